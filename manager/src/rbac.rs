//! The rights that a manager needs at the API server, from what its code and configuration declare.
//!
//! Stores, writes, finalizers and the election are declared before they are used, each with its line of code.
//! [`Rights`] is the sum: roles that grant exactly this, and for each rule the lines that need it.
//!
//! # Invariants
//! 1. No right without a [`Need`] that names its place in the code or the configuration.
//! 2. A right is asked for in the smallest scope that its needs allow: one namespace before all of them.

mod access;
mod declarations;
mod explain;
mod rights;

pub use access::{Access, Within};
pub use declarations::{Declarations, Need, Place};
pub use rights::{Grounds, Rights, Rule, Target, Verb};

#[cfg(test)]
mod tests;
