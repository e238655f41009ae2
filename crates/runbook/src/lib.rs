//! Runbooks: TOML text becomes typed definitions, or diagnostics that point at the place. Nothing here reads a file.

mod runbook;
pub mod template;

pub use runbook::{LockTerms, PipelineDef, Runbook, SemaphoreTerms};
pub use template::{TemplateError, check_template, render};
