//! The real programs, from `tasks add` to the end of their runs. They need `make test-agents`, which installs them.

mod accounts;
mod fleet;
mod steering;
mod trouble;
mod work;
