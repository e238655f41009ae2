//! Tests of the simulator. One test binary, because linking dominates. No seed is random and none runs twice here: fresh seeds
//! are for `make soak`.

mod accounts;
mod landings;
mod mail;
mod mutations;
mod remembered;
mod scenarios;
