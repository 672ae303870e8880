//! Steps of work, counted on each thread where debug assertions are on: tests bound with them, without a clock, what a
//! statement costs. In other builds nothing is counted, and nothing is paid.

#[cfg(debug_assertions)]
thread_local! {
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts work of this thread. Stands in loops that statements drive.
#[inline]
pub fn count(_steps: usize) {
    #[cfg(debug_assertions)]
    COUNTED.set(COUNTED.get().wrapping_add(_steps as u64));
}

/// All that this thread has counted so far.
#[cfg(debug_assertions)]
pub fn counted() -> u64 {
    COUNTED.get()
}
