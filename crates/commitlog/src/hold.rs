//! Appends that go together: a thread that begins many writes in a row wakes the writer once, behind the last, so that
//! one frame takes them all. Without it the first goes alone, and the others wait for its frame.
//!
//! Waits go together as well: who polls many writes with one waker need not have it registered for each of them. What
//! such a write waits for is noted, and whoever polled it asks for it, and waits for the first of all.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use crate::lead::lead;
use crate::primitive::thread_local;
use crate::shared::Shared;
use crate::{Durable, SyncMode};

/// So many bytes of one thread's appends are not held back any longer: the device writes them while others are
/// appended.
const HELD_SIZE_MAX: u64 = 256 << 10;

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Whose writer this thread does not wake, and up to where its appends reach; 0 if there were none.
struct Held {
    shared: Arc<Shared>,
    reach: u64,
    /// Where the first of them begins.
    from: u64,
    /// Who is polled with it has its position noted in place of being registered.
    waker: Waker,
    /// The position noted last, until it is asked for; 0 if there is none.
    awaited: u64,
}

fn with_held<R>(act: impl FnOnce(&mut Option<Held>) -> R) -> R {
    HELD.with(|held| act(&mut held.borrow_mut()))
}

/// While it lives, appends of this thread to its log do not wake the log's writer; its end does. Nobody may wait on
/// this thread for one of these appends without [`release_held_wake_ups`]; [`Durable::wait`](crate::Durable::wait) does
/// that itself.
#[derive(Debug)]
#[must_use = "wake-ups are held back while it lives"]
pub struct LogHold {
    shared: Arc<Shared>,
    on_this_thread: PhantomData<*const ()>,
}

/// A place in the log that a write waits for. Of one thread's appends the later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Awaited(u64);

impl LogHold {
    pub(crate) fn new(shared: &Arc<Shared>, waker: &Waker) -> LogHold {
        release_held_wake_ups();
        let held = Held { shared: Arc::clone(shared), reach: 0, from: 0, waker: waker.clone(), awaited: 0 };
        HELD.with(|now| now.replace(Some(held)));
        LogHold { shared: Arc::clone(shared), on_this_thread: PhantomData }
    }

    /// What of the log was waited for by what was polled since the last call, with the waker that this was made with.
    /// Whoever polls with it has to ask after each poll: nobody else wakes for it.
    pub fn take_awaited(&self) -> Option<Awaited> {
        let awaited = with_held(|held| held.as_mut().map_or(0, |held| std::mem::take(&mut held.awaited)));
        (awaited > 0).then_some(Awaited(awaited))
    }

    /// Whether it is on the device, or never will be: who waits for it is to be polled again.
    pub fn is_settled(&self, awaited: Awaited) -> bool {
        self.shared.waiters.horizon() >= awaited.0 || self.shared.closed().is_some()
    }

    /// Resolves when it is settled; an error says that it never will be on the device.
    pub fn settled(&self, awaited: Awaited) -> Durable {
        Durable::registered(Arc::clone(&self.shared), awaited.0)
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        release_held_wake_ups();
        HELD.with(|now| now.replace(None));
    }
}

/// Tells the log's writer of the appends that [`LogHold`] of this thread have held back so far: for whoever is
/// about to wait, or to do something that takes long.
pub fn release_held_wake_ups() {
    if let Some((shared, reach)) = take_held() {
        shared.signals.appended(reach);
    }
}

/// Whose writer is to be told how far this thread's appends reach, if there were any.
fn take_held() -> Option<(Arc<Shared>, u64)> {
    with_held(|held| {
        let held = held.as_mut().filter(|held| held.reach > 0)?;
        Some((Arc::clone(&held.shared), std::mem::take(&mut held.reach)))
    })
}

/// For a thread that would now sleep until what it has appended is on the device: writes what [`LogHold`] of this
/// thread have held back, where nothing is under way beside it, or else tells the log's writer. Answers whether it
/// wrote: those who waited were told.
pub fn write_held() -> bool {
    let Some((shared, reach)) = take_held() else { return false };
    let wrote = lead(&shared, reach);
    if !wrote {
        shared.signals.appended(reach);
    }
    wrote
}

/// An append that ends at a ring position; answers whether its wake-up is held back. So much that is worth a frame
/// beside others is not.
pub(crate) fn holds_back(shared: &Shared, start: u64, end: u64) -> bool {
    with_held(|held| match held {
        Some(held) if std::ptr::eq(&*held.shared, shared) => {
            if held.reach == 0 {
                held.from = start;
            }
            let holds = end - held.from < HELD_SIZE_MAX;
            held.reach = if holds { held.reach.max(end) } else { 0 };
            holds
        }
        _ => false,
    })
}

/// Somebody waits for a ring position; answers whether that was noted for whoever polled it. Where records are told one
/// by one, out of order, everyone registers.
pub(crate) fn notes(shared: &Shared, position: u64, waker: &Waker) -> bool {
    shared.sync != SyncMode::Each
        && with_held(|held| match held {
            Some(held) if std::ptr::eq(&*held.shared, shared) && held.waker.will_wake(waker) => {
                held.awaited = held.awaited.max(position);
                true
            }
            _ => false,
        })
}
