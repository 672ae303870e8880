//! Appends that go together: a thread that begins many writes in a row wakes the writer once, behind the last, so that one frame takes
//! them all. Without it the first goes alone, and the others wait for its frame.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::shared::Shared;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Whose writer this thread does not wake, and up to where its appends reach; 0 if there were none.
struct Held {
    shared: Arc<Shared>,
    reach: u64,
}

/// While it lives, appends of this thread to its log do not wake the log's writer; its end does. Nobody may wait on this thread for one
/// of these appends without [`release_held_wake_ups`]; [`Durable::wait`](crate::Durable::wait) does that itself.
#[derive(Debug)]
#[must_use = "wake-ups are held back while it lives"]
pub struct HeldWakeUps {
    on_this_thread: PhantomData<*const ()>,
}

impl HeldWakeUps {
    pub(crate) fn new(shared: &Arc<Shared>) -> HeldWakeUps {
        release_held_wake_ups();
        HELD.set(Some(Held { shared: Arc::clone(shared), reach: 0 }));
        HeldWakeUps { on_this_thread: PhantomData }
    }
}

impl Drop for HeldWakeUps {
    fn drop(&mut self) {
        release_held_wake_ups();
    }
}

/// Ends what [`HeldWakeUps`] of this thread hold back, ahead of time: for whoever is about to wait, or to do something that takes long.
pub fn release_held_wake_ups() {
    if let Some(Held { shared, reach }) = HELD.take().filter(|held| held.reach > 0) {
        shared.signals.appended(reach);
    }
}

/// An append that ends at a ring position; answers whether its wake-up is held back.
pub(crate) fn holds_back(shared: &Shared, end: u64) -> bool {
    HELD.with_borrow_mut(|held| match held {
        Some(held) if std::ptr::eq(&*held.shared, shared) => {
            held.reach = held.reach.max(end);
            true
        }
        _ => false,
    })
}
