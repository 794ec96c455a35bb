//! Things by number, in pages that come and go one by one.
//!
//! A `Vec` that grows copies everything it holds, and never gives back what it once needed; under the queue's lock the
//! first stops every worker, and the second keeps the memory of the largest list a watch ever had. Here growing means
//! one page more, and a page that is empty again is given back.
//!
//! A page with a single thing in it stays, so that in the worst case few keys, spread over all pages, keep the memory
//! of many: nothing is ever moved, because its number is what the lists, the index and the workers know it by.
//!
//! # Invariants
//! 1. A page is in `roomy` exactly if one of its places is free.
//! 2. Bit `i` of `used` is set exactly if place `i` holds something. A page without memory has no bit set.

/// Places per page: one bit each in a word.
const PAGE: u32 = u64::BITS;
/// Empty pages that keep their memory, so that a queue whose depth goes up and down by some thousands allocates
/// nothing.
const SPARE: usize = 64;

/// A list with holes.
#[derive(Debug)]
pub(super) struct Pages<T> {
    list: Vec<Page<T>>,
    /// Numbers of the pages with a free place. The last one is filled first.
    roomy: Vec<u32>,
    /// How many pages have memory and nothing in it.
    spare: usize,
    /// What the last removal gave up, if anything.
    emptied: Option<Emptied<T>>,
    len: usize,
}

/// Memory that is not needed any more and has yet to be freed. On that occasion the allocator may sort in all the small
/// blocks freed before, or give a large stretch back to the system, both for milliseconds: so whoever holds a lock takes
/// this along and drops it later.
#[derive(Debug)]
pub(super) enum Emptied<T> {
    Places { _places: Vec<Option<T>> },
    List { _list: Vec<Page<T>> },
}

#[derive(Debug)]
pub(super) struct Page<T> {
    /// `PAGE` places; without any, the page has no memory.
    places: Vec<Option<T>>,
    used: u64,
}

// === impl Pages ===

impl<T> Pages<T> {
    pub(super) fn new() -> Self {
        Self { list: Vec::new(), roomy: Vec::new(), spare: 0, emptied: None, len: 0 }
    }

    /// Returns how many things there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a number above all that are in use.
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

    /// Stores something, and returns its number.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> u32 {
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
        page.places[free as usize] = Some(thing);
        page.used |= 1 << free;
        if page.used == u64::MAX {
            self.roomy.pop();
        }
        self.len += 1;
        at * PAGE + free
    }

    /// Drops something.
    pub(super) fn remove(&mut self, number: u32) {
        let at = number / PAGE;
        let Some(page) = self.list.get_mut(at as usize) else { return };
        let Some(place) = page.places.get_mut((number % PAGE) as usize).filter(|place| place.is_some())
        else {
            return;
        };
        *place = None;
        if page.used == u64::MAX {
            self.roomy.push(at);
        }
        page.used &= !(1 << (number % PAGE));
        self.len -= 1;
        if page.used == 0 {
            self.empty(at);
        }
    }

    /// Returns the memory that has been given up, to be dropped without a lock.
    pub(super) fn take_emptied(&mut self) -> Option<Emptied<T>> {
        self.emptied.take()
    }

    /// Gives up the memory of a page that is empty now, if there are enough of its sort, and with the last one the
    /// list of pages: a hundredth of what they held.
    fn empty(&mut self, at: u32) {
        if self.len == 0 && self.list.len() > 2 * SPARE {
            self.emptied = Some(Emptied::List { _list: std::mem::take(&mut self.list) });
            self.roomy = Vec::new();
            self.spare = 0;
        } else if self.spare == SPARE {
            let places = std::mem::take(&mut self.list[at as usize].places);
            self.emptied = Some(Emptied::Places { _places: places });
        } else {
            self.spare += 1;
        }
    }
}

#[cfg(test)]
mod tests;
