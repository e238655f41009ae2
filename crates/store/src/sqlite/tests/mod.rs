mod backlog;
mod migrations;
mod plans;
