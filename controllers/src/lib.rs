//! The controllers built into mainstay.
pub mod deployment;
pub mod gate;
pub mod mirror;
pub mod probe;
pub mod reasons;
