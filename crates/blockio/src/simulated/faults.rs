//! Injected faults, and the trace of operations.

use std::path::Path;
use std::sync::Arc;

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any operation fails with an I/O error and does nothing.
    Fail,
    /// A write, creation or growth finds the disk full.
    Full,
    /// Opening a file finds no descriptor left.
    OutOfDescriptors,
    /// A sync of a file fails and forgets its data: reads still see the data, but the device never gets it.
    FailSync,
    /// A write fails half-way: what it wrote until then is there, as durable as before a sync.
    ShortWrite,
    /// A read returns half of the data.
    ShortRead,
    /// A read or write has one wrong bit and reports success.
    FlipBit,
    /// A write goes to the next block and reports success.
    Misdirect,
    /// The operation and all later ones fail; a write was in flight.
    PowerCut,
    /// Like `PowerCut`, at a sync of a directory: names were changed, and none of the changes is durable.
    PowerCutBeforeNames,
    /// A queue loses track of its writes in flight. Counted by the waits for such writes.
    LoseQueue,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Open,
    Read,
    Write,
    Sync,
    SetLength,
    Allocate,
    CreateDirectory,
    List,
    Rename,
    Remove,
    Link,
    SyncDirectory,
}

impl Verb {
    /// Whether it changes bytes or names. Syncs do not: a file system that is mounted read-only accepts them.
    fn is_change(self) -> bool {
        !matches!(self, Verb::Open | Verb::Read | Verb::List | Verb::Sync | Verb::SyncDirectory)
    }
}

/// An operation in the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    verb: Verb,
    path: Arc<Path>,
    offset: u64,
    /// The length and hash of the written data.
    data: (usize, u64),
    fault: Option<Fault>,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    trace: Vec<Operation>,
    pending: Vec<Pending>,
    dead: bool,
    /// Changes of files whose path contains this fail.
    refused: Option<String>,
}

/// A pending fault.
#[derive(Debug)]
struct Pending {
    fault: Fault,
    /// How many operations of its kind pass before it.
    skip: u64,
    /// It applies only to files whose path contains this.
    part: String,
}

impl Faults {
    pub fn inject(&mut self, fault: Fault, skip: u64, part: &str) {
        self.pending.push(Pending { fault, skip, part: part.to_owned() });
    }

    /// Makes changes of files whose path contains `part` fail. With `None`, no change fails for this reason.
    pub fn refuse_changes(&mut self, part: Option<String>) {
        self.refused = part;
    }

    /// Whether changes of this file fail.
    pub fn refuses_changes(&self, path: &Path) -> bool {
        self.refused.as_ref().is_some_and(|part| path.to_string_lossy().contains(part))
    }

    pub fn trace(&self) -> &[Operation] {
        &self.trace
    }

    pub fn reads(&self) -> u64 {
        self.trace.iter().filter(|operation| operation.verb == Verb::Read).count() as u64
    }

    /// Whether the power was cut.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Whether the queue that is waited for is lost.
    pub fn loses_queue(&mut self) -> bool {
        let Some(at) = self.pending.iter().position(|pending| pending.fault == Fault::LoseQueue) else { return false };
        let left = &mut self.pending[at].skip;
        if *left > 0 {
            *left -= 1;
            return false;
        }
        self.pending.remove(at);
        true
    }

    /// Records an operation and returns the fault that hits it.
    pub fn next(&mut self, verb: Verb, path: &Arc<Path>, offset: u64, data: &[u8]) -> Option<Fault> {
        let is_refused = verb.is_change() && self.refuses_changes(path);
        let mut fault = (self.dead || is_refused).then_some(Fault::Fail);
        self.pending.retain_mut(|pending| {
            if !pending.fault.applies_to(verb) || !pending.is_for(path) {
                return true;
            }
            if pending.skip == 0 && fault.is_none() {
                fault = Some(pending.fault);
                return false;
            }
            pending.skip = pending.skip.saturating_sub(1);
            true
        });
        self.dead |= matches!(fault, Some(Fault::PowerCut | Fault::PowerCutBeforeNames));
        self.trace.push(Operation { verb, path: Arc::clone(path), offset, data: (data.len(), hash(data)), fault });
        fault
    }
}

impl Pending {
    fn is_for(&self, path: &Path) -> bool {
        self.part.is_empty() || path.to_string_lossy().contains(&self.part)
    }
}

impl Fault {
    fn applies_to(self, verb: Verb) -> bool {
        match self {
            Fault::Fail | Fault::PowerCut => true,
            Fault::Full => matches!(verb, Verb::Write | Verb::Open | Verb::SetLength | Verb::Allocate | Verb::Link),
            Fault::OutOfDescriptors => verb == Verb::Open,
            Fault::FailSync => verb == Verb::Sync,
            Fault::PowerCutBeforeNames => verb == Verb::SyncDirectory,
            Fault::ShortRead => verb == Verb::Read,
            Fault::FlipBit => matches!(verb, Verb::Read | Verb::Write),
            Fault::Misdirect | Fault::ShortWrite => verb == Verb::Write,
            Fault::LoseQueue => false,
        }
    }
}

/// FNV-1a over words of eight bytes, used only to distinguish traces.
fn hash(data: &[u8]) -> u64 {
    let (words, rest) = data.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let add = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    rest.iter().map(|byte| u64::from(*byte)).fold(words.fold(0xcbf2_9ce4_8422_2325, add), add)
}
