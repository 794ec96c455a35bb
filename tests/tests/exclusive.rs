//! Tests that each need a cluster of their own: they stop its server, or end it.

#[path = "exclusive/end.rs"]
mod end;
#[path = "exclusive/restart.rs"]
mod restart;
