//! Batches of wake-ups: a thread that begins many writes in a row wakes the log's writer once, after the last append,
//! so that one frame contains all of them. Otherwise the first append would be written alone, and the others would wait
//! for its frame.
//!
//! Waits are batched too: a task that polls many writes with one waker need not register it for each of them. The
//! position for which such a write waits is recorded. The task takes it after each poll, and waits for the least one.
//!
//! This is the one state of a thread that changes what a call means. It cannot be an argument: the futures of writes
//! are polled through combinators, which pass nothing but a waker.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use crate::lead::lead;
use crate::primitive::thread_local;
use crate::shared::Shared;
use crate::{Durable, SyncMode};

/// The size at which a thread's appends are no longer held back, bytes: the device writes them while the thread appends
/// more.
const HELD_SIZE_MAX: u64 = 256 << 10;

thread_local! {
    static HELD: RefCell<Option<HeldAppends>> = const { RefCell::new(None) };
}

/// The log whose writer this thread does not wake.
struct HeldAppends {
    shared: Arc<Shared>,
    /// The end of this thread's held appends; 0 if there are none.
    reach: u64,
    /// The start of the first held append.
    from: u64,
    /// For futures that are polled with this waker, the awaited position is recorded instead of registering the waker.
    waker: Waker,
    /// The greatest recorded position, until it is taken; 0 if there is none.
    awaited: u64,
}

fn with_held<R>(act: impl FnOnce(&mut Option<HeldAppends>) -> R) -> R {
    HELD.with(|held| act(&mut held.borrow_mut()))
}

/// While this value lives, appends of this thread to its log do not wake the log's writer. Dropping it does. Before
/// this thread waits for one of these appends it must call [`release_held_wake_ups`], as
/// [`Durable::wait`](crate::Durable::wait) does.
#[derive(Debug)]
#[must_use = "wake-ups are held back while it lives"]
pub struct LogHold {
    shared: Arc<Shared>,
    on_this_thread: PhantomData<*const ()>,
}

/// A position in the log for which a write waits. Later appends of one thread have greater positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Awaited(u64);

impl LogHold {
    pub(crate) fn new(shared: &Arc<Shared>, waker: &Waker) -> LogHold {
        debug_assert!(with_held(|held| held.is_none()), "a thread has one hold at a time");
        let held = HeldAppends { shared: Arc::clone(shared), reach: 0, from: 0, waker: waker.clone(), awaited: 0 };
        HELD.with(|now| now.replace(Some(held)));
        LogHold { shared: Arc::clone(shared), on_this_thread: PhantomData }
    }

    /// The position for which futures wait that were polled with this hold's waker since the last call. The poller must
    /// call this after each poll, because nothing else wakes it for that position.
    pub fn take_awaited(&self) -> Option<Awaited> {
        let awaited = with_held(|held| held.as_mut().map_or(0, |held| std::mem::take(&mut held.awaited)));
        (awaited > 0).then_some(Awaited(awaited))
    }

    /// Whether the position is on the device, or never will be. Futures that wait for it must then be polled again.
    pub fn is_settled(&self, awaited: Awaited) -> bool {
        self.shared.waiters.horizon() >= awaited.0 || self.shared.closed().is_some()
    }

    /// Completes when the position is settled. An error means that it will never be on the device.
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

/// Wakes the log's writer for the appends that this thread's [`LogHold`] has held back. A thread calls it before it
/// waits, or does something that takes long.
pub fn release_held_wake_ups() {
    if let Some((shared, reach)) = take_held() {
        shared.signals.appended(reach);
    }
}

/// Takes the log and the end of this thread's held appends, if there are any.
fn take_held() -> Option<(Arc<Shared>, u64)> {
    with_held(|held| {
        let held = held.as_mut().filter(|held| held.reach > 0)?;
        Some((Arc::clone(&held.shared), std::mem::take(&mut held.reach)))
    })
}

/// Writes the appends that this thread's [`LogHold`] has held back, if no other frame is in flight, and otherwise wakes
/// the log's writer. A thread calls it when it would otherwise sleep until its appends are on the device. Returns
/// whether it wrote them, in which case all waiters were woken.
pub fn write_held() -> bool {
    let Some((shared, reach)) = take_held() else { return false };
    let wrote = lead(&shared, reach);
    if !wrote {
        shared.signals.appended(reach);
    }
    wrote
}

/// Records an append from `start` to `end` in the ring. Returns whether its wake-up is held back. It is not if the held
/// appends are large enough for a frame of their own.
pub(crate) fn hold_back(shared: &Shared, start: u64, end: u64) -> bool {
    with_held(|held| match held {
        Some(held) if std::ptr::eq(&*held.shared, shared) => {
            debug_assert!(start < end && held.reach <= start, "a thread's appends ascend");
            if held.reach == 0 {
                held.from = start;
            }
            let holds = end - held.from < HELD_SIZE_MAX;
            held.reach = if holds { end } else { 0 };
            holds
        }
        _ => false,
    })
}

/// Records that a future waits for a ring position. Returns false if its waker must be registered instead, as always
/// with `each`, in which records are acknowledged one by one and out of order.
pub(crate) fn record_wait(shared: &Shared, position: u64, waker: &Waker) -> bool {
    shared.sync != SyncMode::Each
        && with_held(|held| match held {
            Some(held) if std::ptr::eq(&*held.shared, shared) && held.waker.will_wake(waker) => {
                held.awaited = held.awaited.max(position);
                true
            }
            _ => false,
        })
}
