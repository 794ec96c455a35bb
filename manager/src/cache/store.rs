//! The cached objects of one kind and scope: filled by lists, watches and own writes, indexed, compressed,
//! and delivered to handlers.

pub(super) mod counts;
pub(super) mod dispatcher;
pub(super) mod function;
pub(super) mod index;
pub(super) mod left_out;
pub(super) mod object_store;
pub(super) mod packer;
pub(super) mod required;
pub(super) mod select;
pub(super) mod slots;
pub(super) mod status;
pub(super) mod sub_scope;
pub(super) mod table;
pub(super) mod untyped_store;
