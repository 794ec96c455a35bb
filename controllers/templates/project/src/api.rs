//! The kinds of this operator.

pub mod shop;
