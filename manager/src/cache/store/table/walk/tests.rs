//! Accessors for other tests.

use super::*;

impl Table {
    pub(crate) fn list(&self, select: &Select) -> Vec<View> {
        let (mut walk, mut views) = (self.walk(), Vec::new());
        while self.stride(&mut walk, select, &mut views) {}
        views
    }
}
