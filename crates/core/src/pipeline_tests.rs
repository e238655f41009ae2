//! Tests of pipelines.
