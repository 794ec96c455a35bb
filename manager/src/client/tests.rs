//! An API server for tests of code that sends requests.

pub(crate) mod server;
