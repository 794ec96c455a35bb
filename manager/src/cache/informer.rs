//! One list and watch: what the server sends, cut into objects, for one store.

pub(super) mod frame;
pub(super) mod pages;
pub(super) mod reflector;
