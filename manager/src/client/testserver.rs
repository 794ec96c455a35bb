//! Small servers for the tests of this room.
