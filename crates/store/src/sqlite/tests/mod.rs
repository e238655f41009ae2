mod backlog;
mod leaving;
mod migrations;
mod plans;
