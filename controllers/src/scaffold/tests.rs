//! Names, places in edited sources, written files, and whole projects in a scratch folder.

mod files;
mod names;
mod places;
mod projects;
