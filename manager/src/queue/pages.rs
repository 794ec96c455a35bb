//! Values by number, stored in pages that are allocated and freed one by one.
//!
//! A `Vec` that grows copies everything it holds, and it never frees memory by itself; under the queue's lock
//! the copy stops every worker, and the kept memory is that of the largest list a watch ever had. Here
//! growing allocates one page more, and a page that has become empty is freed.
//!
//! A page with a single value in it stays, so in the worst case a few keys, spread over all pages, keep the
//! memory of many. Values are never moved, because lists, index and workers refer to them by number.
//!
//! # Invariants
//! 1. A page is in `roomy` exactly if one of its places is free.
//! 2. Bit `i` of `used` is set exactly if place `i` holds a value. A page without memory has no bit set.

/// Number of places for values in one page: one bit each in a word.
const PAGE: u32 = u64::BITS;
/// Largest number of empty pages that keep their memory, so that a queue with a depth that goes up and down
/// by some thousands needs no allocation.
const SPARE: usize = 64;

/// A list of values by number, in pages that are allocated and freed one by one; a removed value leaves a
/// hole.
#[derive(Debug)]
pub(super) struct Pages<T> {
    list: Vec<Page<T>>,
    /// Numbers of the pages that have a free place. The last of them is filled first.
    roomy: Vec<u32>,
    /// Number of pages that have memory and hold no value.
    spare: usize,
    /// Pages with memory that is no longer needed; the caller of [`Self::take_unused`] frees it.
    unused: Vec<Page<T>>,
    len: usize,
}

/// A page: memory for [`PAGE`] values.
#[derive(Debug)]
pub(super) struct Page<T> {
    /// The places for values: empty for a page without memory, else `PAGE` places.
    places: Vec<Option<T>>,
    used: u64,
}

// === impl Pages ===

impl<T> Pages<T> {
    pub(super) fn new() -> Self {
        Self { list: Vec::new(), roomy: Vec::new(), spare: 0, unused: Vec::new(), len: 0 }
    }

    /// Returns the number of values in all pages.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a number above the numbers of all stored values.
    pub(super) fn end(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX).saturating_mul(PAGE)
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        let page = self.list.get((number / PAGE) as usize)?;
        page.places.get((number % PAGE) as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let page = self.list.get_mut((number / PAGE) as usize)?;
        page.places.get_mut((number % PAGE) as usize)?.as_mut()
    }

    /// Stores a value in a free place, and returns the number of this place.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        let at = self.roomy.last().copied().unwrap_or_else(|| {
            let at = self.end() / PAGE;
            self.list.push(Page { places: Vec::new(), used: 0 });
            self.roomy.push(at);
            at
        });
        let page = &mut self.list[at as usize];
        if page.places.is_empty() {
            page.places.reserve_exact(PAGE as usize);
            page.places.resize_with(PAGE as usize, || None);
        } else if page.used == 0 {
            self.spare -= 1;
        }
        let free = page.used.trailing_ones();
        page.places[free as usize] = Some(value);
        page.used |= 1 << free;
        if page.used == u64::MAX {
            self.roomy.pop();
        }
        self.len += 1;
        at * PAGE + free
    }

    /// Drops the value stored under `number`, if there is one.
    pub(super) fn remove(&mut self, number: u32) {
        let (at, bit) = (number / PAGE, number % PAGE);
        let page = self.list.get_mut(at as usize).filter(|page| page.used & (1 << bit) != 0);
        let Some(page) = page else { return };
        page.places[bit as usize] = None;
        if page.used == u64::MAX {
            self.roomy.push(at);
        }
        page.used &= !(1 << bit);
        self.len -= 1;
        if page.used == 0 {
            self.retire(at);
        }
    }

    /// Returns the pages with memory that is no longer needed. The caller drops them after it has released
    /// its lock: on that occasion the allocator may merge all the small blocks freed before, or return a
    /// large stretch to the system, and both take milliseconds.
    pub(super) fn take_unused(&mut self) -> Vec<Page<T>> {
        std::mem::take(&mut self.unused)
    }

    /// Takes the memory away from the page `at`, which has become empty, if there are already enough spare
    /// ones. With the last value of a long list it takes away all memory, the list of pages included, which
    /// takes a hundredth of the memory of its pages.
    fn retire(&mut self, at: u32) {
        if self.len == 0 && self.list.len() > 2 * SPARE {
            self.unused.extend(std::mem::take(&mut self.list));
            self.roomy = Vec::new();
            self.spare = 0;
        } else if self.spare == SPARE {
            let places = std::mem::take(&mut self.list[at as usize].places);
            self.unused.push(Page { places, used: 0 });
        } else {
            self.spare += 1;
        }
    }
}

#[cfg(test)]
mod tests;
