//! Names, places in edited sources, and whole projects in a scratch folder.

mod names;
mod places;
mod projects;
