//! Futures that wait for the device, or for room in the log.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::hold::{self, write_held};
use crate::shared::Shared;
use crate::waiters::Awaits;
use crate::{LogError, SyncMode};

/// A wait for the device that does not hold a reference to the log; the caller passes the log to each poll. There are
/// many such waits, and a reference count that all of them change would be a cache line that their threads contend for.
#[derive(Debug)]
pub struct LogWait {
    awaits: Awaits,
    key: Option<u64>,
    /// Always register the waker, even where its position could be noted for a thread that polls many waits.
    registers: bool,
}

impl LogWait {
    /// Waits for the record that ends at the position.
    pub(crate) fn new(position: u64) -> LogWait {
        LogWait { awaits: Awaits::Record(position), key: None, registers: false }
    }

    pub(crate) fn poll(&mut self, shared: &Shared, context: &mut Context<'_>) -> Poll<Result<(), LogError>> {
        let (waker, registers, position) = (context.waker(), self.registers, self.awaits.position());
        let record_wait = || !registers && hold::record_wait(shared, position, waker);
        let polled = shared.waiters.poll(self.awaits, &mut self.key, waker, record_wait);
        debug_assert!(!polled.is_pending() || !registers || self.key.is_some(), "its waker is registered");
        debug_assert!(
            !matches!(polled, Poll::Ready(Ok(()))) || self.is_over(shared),
            "{:?} is acknowledged before it is on the device",
            self.awaits
        );
        polled.map_err(LogError::Closed)
    }

    /// Whether its record may be acknowledged, as far as the durable horizon shows; for assertions.
    fn is_over(&self, shared: &Shared) -> bool {
        let is_independent = shared.sync == SyncMode::Each && matches!(self.awaits, Awaits::Record(_));
        is_independent || shared.waiters.horizon() >= self.awaits.position()
    }
}

/// Resolves when a record is on the device, or can no longer reach it.
#[must_use = "a record is acknowledged only after its future has resolved"]
pub struct Durable {
    shared: Arc<Shared>,
    wait: LogWait,
}

impl Durable {
    pub(crate) fn new(shared: Arc<Shared>, wait: LogWait) -> Durable {
        Durable { shared, wait }
    }

    /// Waits for all records that end at or before the position.
    pub(crate) fn of_all(shared: Arc<Shared>, position: u64) -> Durable {
        Durable::new(shared, LogWait { awaits: Awaits::AllUpTo(position), ..LogWait::new(position) })
    }

    /// Always registers its waker, also while a [`LogHold`](crate::LogHold) collects the positions of this thread.
    pub(crate) fn registered(shared: Arc<Shared>, position: u64) -> Durable {
        Durable::new(shared, LogWait { registers: true, ..LogWait::new(position) })
    }

    /// Blocks this thread until the wait is over.
    pub fn wait(mut self) -> Result<(), LogError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => {
                    if !write_held() {
                        thread::park();
                    }
                }
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Future for Durable {
    type Output = Result<(), LogError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.wait.poll(&this.shared, context)
    }
}

/// Resolves when there may be room for a record that was refused because the log was full.
#[derive(Debug)]
#[must_use = "it only waits when polled"]
pub struct SpaceFreed {
    shared: Arc<Shared>,
    epoch: u64,
    waiting_since: Option<Instant>,
}

impl SpaceFreed {
    pub(crate) fn new(shared: Arc<Shared>) -> SpaceFreed {
        let epoch = shared.space.epoch();
        SpaceFreed { shared, epoch, waiting_since: None }
    }
}

impl Future for SpaceFreed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        debug_assert!(this.epoch <= this.shared.space.epoch(), "announcements are counted upwards");
        if this.shared.space.is_announced_after(this.epoch, context.waker()) {
            return Poll::Ready(());
        }
        this.waiting_since.get_or_insert_with(Instant::now);
        Poll::Pending
    }
}

impl Drop for SpaceFreed {
    /// Counts the time waited, whether the wait ended with room or was abandoned.
    fn drop(&mut self) {
        if let Some(since) = self.waiting_since {
            self.shared.counters.allocation_waits.add(since.elapsed());
        }
    }
}
