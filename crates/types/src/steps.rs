//! Steps of work, counted on each thread if debug assertions are on. Tests use them to bound the cost of a statement
//! without a clock. Other builds count nothing.

#[cfg(debug_assertions)]
thread_local! {
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts work of this thread. Loops whose length depends on a statement call it.
#[inline]
pub fn count(_steps: usize) {
    #[cfg(debug_assertions)]
    COUNTED.set(COUNTED.get().wrapping_add(_steps as u64));
}

/// The steps that this thread has counted so far.
#[cfg(debug_assertions)]
pub fn counted() -> u64 {
    COUNTED.get()
}
