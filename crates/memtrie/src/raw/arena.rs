//! An arena: pieces of any size in 8-byte units. Blobs are in one arena, and the nodes of the adaptive layout in
//! another.
//!
//! The committed space is a sequence of 4 KiB pages. A buddy allocator provides spans of pages (orders 0.., aligned to
//! their size, merged when freed). Pieces of at most 32 KiB come from *runs*, aligned spans that hold objects of one
//! size class, with 8 classes for each doubling; a piece whose size is a power of two is aligned to it. Larger pieces
//! have a span of their own, cut to whole pages. An empty run returns to the free pages. Free pages beyond a reserve
//! are returned to the system, the largest spans first, so that many large values do not occupy memory once they have
//! become small.

use std::sync::Arc;

use super::space::{HUGE_PAGE_BYTES, Space};
use super::spare_pages::SparePages;
use crate::terms::TrieFull;

const PAGE_BYTES: usize = 4096;
const PAGE_UNITS: u32 = 512;
const NO_PAGE: u32 = u32::MAX;
const PAGES_OF_HUGE: usize = HUGE_PAGE_BYTES / PAGE_BYTES;
/// Orders of the buddy allocator: 2^22 pages are the whole 16 GiB that leaf pointers can name.
const ORDERS: usize = 23;
/// Largest piece, in units, that lives in a run.
const RUN_UNITS_MAX: u32 = 4096;
const CLASSES: usize = 80;
/// Growth doubles the arena from the first step to the second, in pages.
const STEP_PAGES_MIN: u32 = 16;
const STEP_PAGES_MAX: u32 = 1024;
/// Spans of at least this order are returned to the system when more than the reserve is idle: this many pages, and one
/// for each `RELEASE_RESERVE_SHARE` pages in use.
const RELEASE_ORDER_MIN: usize = 2;
const RELEASE_RESERVE_PAGES: u32 = 128;
const RELEASE_RESERVE_SHARE: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageKind {
    /// Not the first page of a span.
    Inside,
    /// First page of a free span of this order.
    Free(u8),
    /// The same, with all of it returned to the system.
    Released(u8),
    /// First page of a run.
    Run,
    /// First page of a large piece's span.
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
    /// Units of a run's objects, and how many of them the run has room for.
    size: u16,
    capacity: u16,
    kind: PageKind,
    /// The page was returned to the system and not used since.
    released: bool,
}

impl Page {
    const NEW: Page = Page {
        next: NO_PAGE,
        previous: NO_PAGE,
        free_object: 0,
        live: 0,
        carved: 0,
        size: 0,
        capacity: 0,
        kind: PageKind::Inside,
        released: false,
    };
}

/// The allocator of an arena (invariant R7).
pub(crate) struct Arena {
    space: Space,
    pages: Vec<Page>,
    free_spans: [u32; ORDERS],
    /// Like `free_spans`, for spans that were returned to the system.
    released_spans: [u32; ORDERS],
    open_runs: [u32; CLASSES],
    used_units: u64,
    free_pages: u32,
    released_pages: u32,
    limit_pages: u32,
    /// For each huge page: whether untouched or released pages of it came into use since it was last made a huge page.
    mixed: Vec<bool>,
}

/// The size class of a run object, and its size in units.
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

/// The lengths of runs in pages, powers of two.
const RUN_SPANS: [u32; 3] = [4, 16, 64];

/// The pages of a run of objects of this many units.
#[inline]
fn run_pages(units: u32) -> u32 {
    match units {
        0..=64 => RUN_SPANS[0],
        65..=512 => RUN_SPANS[1],
        _ => RUN_SPANS[2],
    }
}

impl Arena {
    pub(crate) fn reserve(bytes_max: usize, spare: Option<&Arc<SparePages>>) -> Option<Arena> {
        let limit = (bytes_max.min(1 << 34) & !(PAGE_BYTES - 1)).max(PAGE_BYTES);
        let limit_pages = (limit / PAGE_BYTES) as u32;
        Some(Arena {
            space: Space::reserve(limit, spare)?,
            pages: Vec::new(),
            free_spans: [NO_PAGE; ORDERS],
            released_spans: [NO_PAGE; ORDERS],
            open_runs: [NO_PAGE; CLASSES],
            used_units: 0,
            free_pages: 0,
            released_pages: 0,
            limit_pages,
            mixed: Vec::new(),
        })
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    /// Allocates the trie's root words at the start, as the first piece.
    pub(crate) fn allocate_root(&mut self, units: u32) -> Result<(), TrieFull> {
        let root = self.allocate(units)?;
        debug_assert_eq!(root, 0);
        self.space.clear_root();
        Ok(())
    }

    /// Allocates a piece of `units` units, with undefined contents. Returns its first unit.
    #[inline]
    pub(crate) fn allocate(&mut self, units: u32) -> Result<u32, TrieFull> {
        if units > RUN_UNITS_MAX {
            return self.allocate_large(units);
        }
        let (class, size) = class_of(units);
        let mut run = self.open_runs[class];
        if run == NO_PAGE {
            run = self.take_span(run_pages(size))?;
            let capacity = (run_pages(size) * PAGE_UNITS / size) as u16;
            self.pages[run as usize] = Page { kind: PageKind::Run, size: size as u16, capacity, ..Page::NEW };
            link(&mut self.pages, &mut self.open_runs[class], run);
        }
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
        if page.live == page.capacity {
            unlink(&mut self.pages, &mut self.open_runs[class], run);
        }
        self.used_units += u64::from(size);
        self.space.poison(first + object * size, size);
        Ok(first + object * size)
    }

    /// Frees the piece of `units` units at `unit`, which no reader can reach any more (R6).
    pub(crate) fn free(&mut self, unit: u32, units: u32) {
        if units > RUN_UNITS_MAX {
            let pages = units.div_ceil(PAGE_UNITS);
            debug_assert_eq!(self.pages[(unit / PAGE_UNITS) as usize].kind, PageKind::Large);
            self.used_units -= u64::from(pages * PAGE_UNITS);
            self.space.poison(unit, pages * PAGE_UNITS);
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
        let was_full = page.live == page.capacity;
        self.space.poison(unit, size);
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
        self.space.poison(first * PAGE_UNITS, pages * PAGE_UNITS);
        Ok(first * PAGE_UNITS)
    }

    /// Takes `count` pages, aligned to `count` if that is a power of two. Idle pages are preferred to those returned to
    /// the system.
    fn take_span(&mut self, count: u32) -> Result<u32, TrieFull> {
        let order = count.next_power_of_two().trailing_zeros() as usize;
        let first_of = |spans: &[u32; ORDERS]| {
            spans
                .iter()
                .enumerate()
                .skip(order)
                .find_map(|(order, &first)| (first != NO_PAGE).then_some((order, first)))
        };
        loop {
            let Some((found, first)) = first_of(&self.free_spans).or_else(|| first_of(&self.released_spans)) else {
                self.grow(count)?;
                continue;
            };
            let is_released = self.pages[first as usize].kind == PageKind::Released(found as u8);
            self.unlink_span(first);
            self.free_pages -= count;
            for index in first as usize..(first + count) as usize {
                let page = &mut self.pages[index];
                self.released_pages -= u32::from(page.released);
                self.mixed[index / PAGES_OF_HUGE] |= page.released;
                page.released = false;
            }
            self.add_free(first + count, (1 << found) - count, is_released);
            return Ok(first);
        }
    }

    fn give_span(&mut self, first: u32, count: u32) {
        self.pages[first as usize].kind = PageKind::Inside;
        self.free_pages += count;
        self.add_free(first, count, false);
        self.release_surplus();
    }

    /// Adds pages (already counted as free) to the free spans, as aligned powers of two, merging each with its free
    /// buddies.
    fn add_free(&mut self, mut first: u32, mut count: u32, is_released: bool) {
        while count > 0 {
            let order = first.trailing_zeros().min(31 - count.leading_zeros()).min(ORDERS as u32 - 1);
            self.merge_free(first, order as u8, is_released);
            first += 1 << order;
            count -= 1 << order;
        }
    }

    fn merge_free(&mut self, mut first: u32, mut order: u8, mut is_released: bool) {
        while usize::from(order) < ORDERS - 1 {
            let buddy = first ^ (1 << order);
            match self.pages.get(buddy as usize).map(|page| page.kind) {
                Some(PageKind::Released(of)) if of == order => {}
                Some(PageKind::Free(of)) if of == order => is_released = false,
                _ => break,
            }
            self.unlink_span(buddy);
            first = first.min(buddy);
            order += 1;
        }
        self.link_span(first, if is_released { PageKind::Released(order) } else { PageKind::Free(order) });
    }

    /// Returns the largest idle spans to the system while more is idle than may soon be used.
    fn release_surplus(&mut self) {
        let reserve = RELEASE_RESERVE_PAGES + (self.pages.len() as u32 - self.free_pages) / RELEASE_RESERVE_SHARE;
        while self.free_pages - self.released_pages > reserve {
            let order = (RELEASE_ORDER_MIN..ORDERS).rfind(|&order| self.free_spans[order] != NO_PAGE);
            let Some(order) = order else { return };
            let first = self.free_spans[order];
            if !self.space.release(first as usize * PAGE_BYTES, PAGE_BYTES << order) {
                return;
            }
            self.unlink_span(first);
            for page in &mut self.pages[first as usize..][..1 << order] {
                self.released_pages += u32::from(!page.released);
                page.released = true;
            }
            self.link_span(first, PageKind::Released(order as u8));
        }
    }

    fn link_span(&mut self, first: u32, kind: PageKind) {
        self.pages[first as usize].kind = kind;
        if let Some(head) = head_of(&mut self.free_spans, &mut self.released_spans, kind) {
            link(&mut self.pages, head, first);
        }
    }

    fn unlink_span(&mut self, first: u32) {
        let kind = std::mem::replace(&mut self.pages[first as usize].kind, PageKind::Inside);
        if let Some(head) = head_of(&mut self.free_spans, &mut self.released_spans, kind) {
            unlink(&mut self.pages, head, first);
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
        // Pages that were never touched take no memory yet.
        self.make_huge();
        self.pages.resize(upto as usize, Page { released: true, ..Page::NEW });
        self.mixed.resize((upto as usize).div_ceil(PAGES_OF_HUGE), false);
        self.free_pages += upto - top;
        self.released_pages += upto - top;
        self.add_free(top, upto - top, true);
        Ok(())
    }

    /// Moves memory that may be in small pages to huge pages, if none of it was returned to the system. This happens
    /// whenever the arena grows, which bounds the cost of pages that are returned and used again.
    fn make_huge(&mut self) {
        if !self.space.wants_huge_pages() {
            return;
        }
        for (index, (pages, mixed)) in self.pages.chunks_exact(PAGES_OF_HUGE).zip(&mut self.mixed).enumerate() {
            if *mixed && pages.iter().all(|page| !page.released) {
                self.space.collapse(index);
                *mixed = false;
            }
        }
    }

    /// Near the limit: all remaining pages, if they contain an aligned span of `count` pages.
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

    /// The bytes of allocated pieces, rounded to their size classes.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_units as usize * 8
    }

    /// Whether runs and large pieces occupy more than half of their limit.
    #[inline]
    pub(crate) fn is_half_full(&self) -> bool {
        2 * (self.pages.len() - self.free_pages as usize) > self.limit_pages as usize
    }

    /// The bytes committed and not returned to the system.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.pages.len() - self.released_pages as usize) * PAGE_BYTES
    }

    /// The bytes of runs and of large pieces' spans that no piece occupies.
    pub(crate) fn gap_bytes(&self) -> usize {
        (self.pages.len() - self.free_pages as usize) * PAGE_BYTES - self.used_bytes()
    }

    /// Whether this address is in a run of which a quarter is free, other than the one that is being filled. There need
    /// not be a piece at the address.
    pub(crate) fn is_sparse_at(&self, address: *const u8) -> bool {
        let page = address.addr().wrapping_sub(self.space.base().addr().get()) / PAGE_BYTES;
        if page >= self.pages.len() {
            return false;
        }
        for span in RUN_SPANS {
            let run = page as u32 & !(span - 1);
            let Page { kind, live, size, .. } = self.pages[run as usize];
            let size = u32::from(size);
            if kind == PageKind::Run && run_pages(size) == span {
                let is_filled_next = self.open_runs[class_of(size).0] == run;
                return !is_filled_next && u32::from(live) * 4 < span * PAGE_UNITS / size * 3;
            }
        }
        false
    }

    /// The bytes that a piece of `units` units occupies.
    #[inline]
    pub(crate) fn bytes_of(units: u32) -> usize {
        if units <= RUN_UNITS_MAX {
            class_of(units).1 as usize * 8
        } else {
            (units as usize * 8).next_multiple_of(PAGE_BYTES)
        }
    }
}

impl Drop for Arena {
    /// Passes on to other tries the huge pages that are mostly in use. Most of the others is not resident: it was
    /// returned to the system, or never used.
    fn drop(&mut self) {
        let is_in_use = |pages: &[Page]| pages.iter().filter(|page| page.released).count() < PAGES_OF_HUGE / 2;
        let pages = &self.pages;
        self.space.leave(|index| pages.chunks_exact(PAGES_OF_HUGE).nth(index).is_some_and(is_in_use));
    }
}

/// The list that contains a free span of this kind.
fn head_of<'s>(free: &'s mut [u32; ORDERS], released: &'s mut [u32; ORDERS], kind: PageKind) -> Option<&'s mut u32> {
    match kind {
        PageKind::Free(order) => Some(&mut free[usize::from(order)]),
        PageKind::Released(order) => Some(&mut released[usize::from(order)]),
        PageKind::Inside | PageKind::Run | PageKind::Large => None,
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

    /// Whatever the order in which pieces are freed, few idle pages remain.
    #[test]
    fn idle_pages_go_back_to_the_system_as_the_arena_empties() {
        for (units, seed) in [(40, 7), (600, 11), (5000, 13)] {
            let mut arena = Arena::reserve(1 << 30, None).expect("address space");
            let mut pieces: Vec<u32> =
                (0..(64 << 20) / (units * 8)).map(|_| arena.allocate(units).expect("room")).collect();
            let random = &mut testkit::Random(seed);
            while !pieces.is_empty() {
                let piece = pieces.swap_remove(random.below(pieces.len()));
                arena.free(piece, units);
                let in_use = arena.used_bytes() + arena.gap_bytes();
                let idle = arena.held_bytes() - in_use;
                assert!(
                    idle <= (RELEASE_RESERVE_PAGES as usize + 4) * PAGE_BYTES + in_use / 16,
                    "{idle} beside {in_use}"
                );
            }
            assert_eq!((arena.used_bytes(), arena.gap_bytes()), (0, 0));
            assert_eq!(arena.free_pages as usize, arena.pages.len());
        }
    }

    /// When the arena grows, it requests huge pages for memory that came in small pages, at first or after it was
    /// returned. Whether or not the kernel grants that, the contents stay the same, and nothing is requested twice.
    #[test]
    fn a_growing_arena_requests_huge_pages_again_and_keeps_its_content() {
        const UNITS: u32 = PAGE_UNITS;
        let mut arena = Arena::reserve(64 << 20, None).expect("address space");
        let mut pieces: Vec<u32> = Vec::new();
        let add = |arena: &mut Arena, pieces: &mut Vec<u32>| {
            let piece = arena.allocate(UNITS).expect("room");
            arena.space.set_free_link(piece, piece);
            arena.space.set_free_link(piece + UNITS - 1, !piece);
            pieces.push(piece);
        };
        let is_open = |arena: &Arena, index: usize| {
            arena
                .pages
                .chunks_exact(PAGES_OF_HUGE)
                .nth(index)
                .is_some_and(|pages| pages.iter().all(|page| !page.released))
        };
        for round in 0..3 {
            let before = arena.pages.len();
            while arena.pages.len() < before + 3 * PAGES_OF_HUGE {
                add(&mut arena, &mut pieces);
            }
            assert!(arena.space.wants_huge_pages());
            let asked = (0..arena.mixed.len()).filter(|&index| is_open(&arena, index)).collect::<Vec<_>>();
            assert!(asked.len() > round, "whole ranges are in use: {asked:?}");
            assert!(asked.iter().all(|&index| !arena.mixed[index]), "{:?}", arena.mixed);
            for &piece in &pieces {
                let found = (arena.space.free_link(piece), arena.space.free_link(piece + UNITS - 1));
                assert_eq!(found, (piece, !piece), "round {round}");
            }
            // Much is freed, also to the system, and allocated again.
            let gone = pieces.split_off(pieces.len() / 3);
            gone.into_iter().for_each(|piece| arena.free(piece, UNITS));
            assert!(arena.released_pages as usize > PAGES_OF_HUGE);
            while arena.released_pages > 0 {
                add(&mut arena, &mut pieces);
            }
            assert!(arena.mixed.iter().any(|&mixed| mixed), "what came again may be on small pages");
        }
    }

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
