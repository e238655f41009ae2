//! Tests with the real programs, from `tasks add` to the end of their runs. `make test-agents` installs the programs.

mod accounts;
mod fleet;
mod steering;
mod trouble;
mod work;
