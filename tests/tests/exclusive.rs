//! Tests that each need a cluster of their own: they stop its server, or end it.

#[path = "exclusive/dev.rs"]
mod dev;
#[path = "exclusive/end.rs"]
mod end;
#[path = "exclusive/manager.rs"]
mod manager;
#[path = "exclusive/restart.rs"]
mod restart;
