//! The objects of one kind and scope: fed by lists, watches and own writes, indexed, packed, and told to handlers.

pub(super) mod dispatcher;
pub(super) mod function;
pub(super) mod index;
pub(super) mod kind_store;
pub(super) mod left_out;
pub(super) mod lens;
pub(super) mod object_store;
pub(super) mod packer;
pub(super) mod required;
pub(super) mod select;
pub(super) mod slots;
pub(super) mod status;
pub(super) mod table;
