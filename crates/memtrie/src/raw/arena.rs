//! An arena: pieces of any size at 8-byte units. Blobs live in one; the nodes of the adaptive layout in another.
//!
//! The committed space is a sequence of 4 KiB pages. Page spans come from a buddy allocator (orders 0.., aligned to
//! their size, merged when freed); pieces of at most 32 KiB come from *runs*, aligned spans that hold objects of one
//! size class (a piece whose size is a power of two is aligned to it) (8 classes for each doubling), larger ones have a span of their own, cut to whole pages. An empty run goes
//! back to the pages, and free pages beyond a reserve go back to the system: what was a lot of large values once does
//! not hold memory when they became small.

use super::space::Space;
use crate::TrieFull;

const PAGE_BYTES: usize = 4096;
const PAGE_UNITS: u32 = 512;
const NO_PAGE: u32 = u32::MAX;
/// Orders of the buddy allocator: 2^22 pages are the whole 16 GiB that leaf pointers can name.
const ORDERS: usize = 23;
/// Largest piece, in units, that lives in a run.
const RUN_UNITS_MAX: u32 = 4096;
const CLASSES: usize = 80;
/// Growth doubles the arena from the first to the second step, in pages.
const STEP_PAGES_MIN: u32 = 16;
const STEP_PAGES_MAX: u32 = 1024;
/// Spans of at least this order are given back to the system when more than the reserve is free.
const RELEASE_ORDER_MIN: u32 = 4;
const RELEASE_RESERVE_PAGES: u32 = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageKind {
    /// Not the first page of anything.
    Inside,
    /// First page of a free span of this order.
    Free(u8),
    /// First page of a run.
    Run,
    /// First page of a piece's own span.
    Large,
}

#[derive(Clone, Copy)]
struct Page {
    /// Neighbours in the list of free spans of an order, or of runs of a class with free objects.
    next: u32,
    previous: u32,
    /// First free object of a run, as its index + 1; 0 = none.
    free_object: u16,
    /// Objects in use, and objects ever used, of a run.
    live: u16,
    carved: u16,
    kind: PageKind,
    /// The page was given back to the system and not used since.
    released: bool,
}

impl Page {
    const NEW: Page = Page {
        next: NO_PAGE,
        previous: NO_PAGE,
        free_object: 0,
        live: 0,
        carved: 0,
        kind: PageKind::Inside,
        released: false,
    };
}

/// The allocator of an arena (invariant R7).
pub(crate) struct Arena {
    space: Space,
    pages: Vec<Page>,
    free_spans: [u32; ORDERS],
    open_runs: [u32; CLASSES],
    used_units: u64,
    free_pages: u32,
    released_pages: u32,
    limit_pages: u32,
}

/// Size class of a run object, and its size in units.
#[inline]
fn class_of(units: u32) -> (usize, u32) {
    debug_assert!((1..=RUN_UNITS_MAX).contains(&units));
    if units <= 16 {
        return (units as usize - 1, units);
    }
    let doubling = 31 - (units - 1).leading_zeros(); // units in (2^doubling, 2^(doubling+1)]
    let spacing = doubling - 3;
    let step = (units - 1 - (1 << doubling)) >> spacing; // 0..8
    (16 + (doubling as usize - 4) * 8 + step as usize, (1 << doubling) + ((step + 1) << spacing))
}

/// Pages of a run of objects of this many units (a power of two).
#[inline]
fn run_pages(units: u32) -> u32 {
    match units {
        0..=64 => 4,
        65..=512 => 16,
        _ => 64,
    }
}

impl Arena {
    pub(crate) fn reserve(bytes_max: usize) -> Option<Arena> {
        let limit = (bytes_max.min(1 << 34) & !(PAGE_BYTES - 1)).max(PAGE_BYTES);
        let limit_pages = (limit / PAGE_BYTES) as u32;
        Some(Arena {
            space: Space::reserve(limit)?,
            pages: Vec::new(),
            free_spans: [NO_PAGE; ORDERS],
            open_runs: [NO_PAGE; CLASSES],
            used_units: 0,
            free_pages: 0,
            released_pages: 0,
            limit_pages,
        })
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Room for a piece of `units` units: its first unit.
    #[inline]
    pub(crate) fn allocate(&mut self, units: u32) -> Result<u32, TrieFull> {
        if units > RUN_UNITS_MAX {
            return self.allocate_large(units);
        }
        let (class, size) = class_of(units);
        let mut run = self.open_runs[class];
        if run == NO_PAGE {
            run = self.take_span(run_pages(size))?;
            self.pages[run as usize] = Page { kind: PageKind::Run, ..Page::NEW };
            link(&mut self.pages, &mut self.open_runs[class], run);
        }
        let capacity = run_pages(size) * PAGE_UNITS / size;
        let page = &mut self.pages[run as usize];
        let first = run * PAGE_UNITS;
        let object = if page.free_object != 0 {
            let object = u32::from(page.free_object) - 1;
            page.free_object = self.space.free_link(first + object * size) as u16;
            object
        } else {
            page.carved += 1;
            u32::from(page.carved) - 1
        };
        page.live += 1;
        if u32::from(page.live) == capacity {
            unlink(&mut self.pages, &mut self.open_runs[class], run);
        }
        self.used_units += u64::from(size);
        Ok(first + object * size)
    }

    /// Takes back the piece of `units` units at `unit`, which no reader can reach any more (R6).
    pub(crate) fn free(&mut self, unit: u32, units: u32) {
        if units > RUN_UNITS_MAX {
            let pages = units.div_ceil(PAGE_UNITS);
            debug_assert_eq!(self.pages[(unit / PAGE_UNITS) as usize].kind, PageKind::Large);
            self.used_units -= u64::from(pages * PAGE_UNITS);
            self.give_span(unit / PAGE_UNITS, pages);
            return;
        }
        let (class, size) = class_of(units);
        let span = run_pages(size);
        let run = (unit / PAGE_UNITS) & !(span - 1);
        let object = (unit - run * PAGE_UNITS) / size;
        debug_assert_eq!(unit, run * PAGE_UNITS + object * size);
        let page = &mut self.pages[run as usize];
        debug_assert_eq!(page.kind, PageKind::Run);
        debug_assert!(page.live > 0);
        let was_full = u32::from(page.live) == span * PAGE_UNITS / size;
        self.space.set_free_link(unit, u32::from(page.free_object));
        page.free_object = object as u16 + 1;
        page.live -= 1;
        let empty = page.live == 0;
        self.used_units -= u64::from(size);
        if was_full && !empty {
            link(&mut self.pages, &mut self.open_runs[class], run);
        } else if empty {
            if !was_full {
                unlink(&mut self.pages, &mut self.open_runs[class], run);
            }
            self.give_span(run, span);
        }
    }

    fn allocate_large(&mut self, units: u32) -> Result<u32, TrieFull> {
        let pages = units.div_ceil(PAGE_UNITS);
        let first = self.take_span(pages)?;
        self.pages[first as usize] = Page { kind: PageKind::Large, ..Page::NEW };
        self.used_units += u64::from(pages * PAGE_UNITS);
        Ok(first * PAGE_UNITS)
    }

    /// `count` pages; aligned to `count` if that is a power of two.
    fn take_span(&mut self, count: u32) -> Result<u32, TrieFull> {
        let order = count.next_power_of_two().trailing_zeros() as usize;
        loop {
            let found = (order..ORDERS).find(|&order| self.free_spans[order] != NO_PAGE);
            let Some(found) = found else {
                self.grow(count)?;
                continue;
            };
            let first = self.free_spans[found];
            unlink(&mut self.pages, &mut self.free_spans[found], first);
            self.pages[first as usize].kind = PageKind::Inside;
            self.free_pages -= count;
            for page in &mut self.pages[first as usize..(first + count) as usize] {
                self.released_pages -= u32::from(page.released);
                page.released = false;
            }
            self.add_free(first + count, (1 << found) - count);
            return Ok(first);
        }
    }

    fn give_span(&mut self, first: u32, count: u32) {
        self.pages[first as usize].kind = PageKind::Inside;
        self.free_pages += count;
        self.add_free(first, count);
    }

    /// Links pages (counted as free already) into the free spans, as aligned powers of two, merging each with its free buddies.
    fn add_free(&mut self, mut first: u32, mut count: u32) {
        while count > 0 {
            let order = first.trailing_zeros().min(31 - count.leading_zeros()).min(ORDERS as u32 - 1);
            self.merge_free(first, order);
            first += 1 << order;
            count -= 1 << order;
        }
    }

    fn merge_free(&mut self, mut first: u32, mut order: u32) {
        while (order as usize) < ORDERS - 1 {
            let buddy = first ^ (1 << order);
            if self.pages.get(buddy as usize).map(|page| page.kind) != Some(PageKind::Free(order as u8)) {
                break;
            }
            unlink(&mut self.pages, &mut self.free_spans[order as usize], buddy);
            self.pages[buddy as usize].kind = PageKind::Inside;
            first = first.min(buddy);
            order += 1;
        }
        self.pages[first as usize].kind = PageKind::Free(order as u8);
        link(&mut self.pages, &mut self.free_spans[order as usize], first);
        self.release_surplus(first, order);
    }

    /// Gives a free span back to the system if plenty is free besides.
    fn release_surplus(&mut self, first: u32, order: u32) {
        let idle = self.free_pages - self.released_pages;
        let in_use = self.pages.len() as u32 - self.free_pages;
        if order < RELEASE_ORDER_MIN || idle <= RELEASE_RESERVE_PAGES + in_use / 8 {
            return;
        }
        let span = &mut self.pages[first as usize..(first + (1 << order)) as usize];
        if span.iter().all(|page| page.released) {
            return;
        }
        if self.space.release(first as usize * PAGE_BYTES, span.len() * PAGE_BYTES) {
            for page in span {
                self.released_pages += u32::from(!page.released);
                page.released = true;
            }
        }
    }

    #[cold]
    fn grow(&mut self, count: u32) -> Result<(), TrieFull> {
        let top = self.pages.len() as u32;
        // Growing to the next multiple of the step keeps the new pages aligned, so that one span of `count` fits.
        let step = top.clamp(STEP_PAGES_MIN, STEP_PAGES_MAX).next_power_of_two();
        let wanted = count.next_power_of_two();
        let aligned = top.checked_next_multiple_of(step.max(wanted)).ok_or(TrieFull)?;
        let mut upto = if aligned > top { aligned } else { top.saturating_add(step) };
        if upto - top < wanted || upto - wanted < top {
            upto = aligned.saturating_add(wanted);
        }
        let upto = self.fit_limit(upto, count)?;
        if !self.space.commit(upto as usize * PAGE_BYTES) {
            return Err(TrieFull);
        }
        // Committed and never touched counts as reserved: the system may have to give it at any time.
        self.pages.resize(upto as usize, Page::NEW);
        self.free_pages += upto - top;
        self.add_free(top, upto - top);
        Ok(())
    }

    /// Near the limit: everything that is left, if an aligned span of `count` pages is in it.
    fn fit_limit(&self, upto: u32, count: u32) -> Result<u32, TrieFull> {
        if upto <= self.limit_pages {
            return Ok(upto);
        }
        let top = self.pages.len() as u32;
        let wanted = count.next_power_of_two();
        let start = top.checked_next_multiple_of(wanted).ok_or(TrieFull)?;
        let end = start.checked_add(wanted).ok_or(TrieFull)?;
        if end <= self.limit_pages { Ok(self.limit_pages) } else { Err(TrieFull) }
    }

    /// Bytes of pieces handed out and not given back, rounded to their size classes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_units as usize * 8
    }

    /// Bytes committed and not given back to the system.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.pages.len() - self.released_pages as usize) * PAGE_BYTES
    }

    /// Bytes that a piece of `units` units takes.
    #[inline]
    pub(crate) fn bytes_of(units: u32) -> usize {
        if units <= RUN_UNITS_MAX {
            class_of(units).1 as usize * 8
        } else {
            (units as usize * 8).next_multiple_of(PAGE_BYTES)
        }
    }
}

fn link(pages: &mut [Page], head: &mut u32, page: u32) {
    pages[page as usize].next = *head;
    pages[page as usize].previous = NO_PAGE;
    if *head != NO_PAGE {
        pages[*head as usize].previous = page;
    }
    *head = page;
}

fn unlink(pages: &mut [Page], head: &mut u32, page: u32) {
    let Page { next, previous, .. } = pages[page as usize];
    if previous == NO_PAGE {
        debug_assert_eq!(*head, page);
        *head = next;
    } else {
        pages[previous as usize].next = next;
    }
    if next != NO_PAGE {
        pages[next as usize].previous = previous;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_cover_every_size_without_gap_and_waste_at_most_an_eighth() {
        let mut last = (usize::MAX, 0);
        for units in 1..=RUN_UNITS_MAX {
            let (class, size) = class_of(units);
            assert!(size >= units && (units <= 16 || size - units <= units / 8), "{units}: {size}");
            assert!(class < CLASSES);
            if size == last.1 {
                assert_eq!(class, last.0);
            } else {
                assert_eq!(class, last.0.wrapping_add(1));
            }
            last = (class, size);
        }
        assert_eq!(last.0, CLASSES - 1);
    }
}
