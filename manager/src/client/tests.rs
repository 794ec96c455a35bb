//! A server for the tests of whatever sends requests.

pub(crate) mod server;
