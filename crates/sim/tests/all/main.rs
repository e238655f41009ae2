//! Tests of the simulator. One test binary, because linking dominates. The seeds are fixed, and no history runs twice
//! here: fresh seeds are for `make soak`.

mod accounts;
mod landings;
mod mail;
mod mutations;
mod projection;
mod remembered;
mod scenarios;
