//! A file's bytes: as reads see them now, and as a crash would leave them.

use std::sync::Arc;

use super::Choices;
use crate::Durability;

/// The unit that the device writes whole or not at all.
const SECTOR: usize = 512;

/// A file. The disks that were made of one disk share its bytes until one of them changes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    now: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    /// The changes that `durable` lacks, oldest first.
    pending: Vec<Pending>,
}

/// The effect of one call.
#[derive(Clone, Debug)]
enum Pending {
    Write(Sectors),
    SetLength(usize),
}

/// The content of a write's sectors after it. The file's last sector may be short.
#[derive(Clone, Debug)]
struct Sectors {
    /// The sector at which `bytes` begin.
    first: usize,
    bytes: Vec<u8>,
    /// The sectors that are still pending, in ascending order.
    pending: Vec<usize>,
}

impl Inode {
    pub fn len(&self) -> u64 {
        self.now.len() as u64
    }

    pub fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.now.get(offset..)).unwrap_or_default();
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        n
    }

    pub fn write(&mut self, data: &[u8], offset: u64, durability: Durability) {
        let start = offset as usize;
        put(Arc::make_mut(&mut self.now), data, start);
        let written = Sectors::new(&self.now, start, data.len());
        match durability {
            Durability::AtNextSync => self.pending.push(Pending::Write(written)),
            Durability::Durable => {
                let durable = Arc::make_mut(&mut self.durable);
                self.pending.retain_mut(|pending| match pending {
                    Pending::Write(older) => {
                        older.pending.retain(|sector| !written.range().contains(sector));
                        true
                    }
                    // Any durable write also makes the file's length durable.
                    Pending::SetLength(length) => {
                        durable.resize(*length, 0);
                        false
                    }
                });
                written.put_all(durable);
            }
        }
    }

    /// Makes what was written to the range so far durable.
    pub fn make_durable(&mut self, offset: u64, length: usize) {
        if self.pending.is_empty() {
            return;
        }
        let start = offset as usize;
        let range = start / SECTOR..(start + length).div_ceil(SECTOR);
        let durable = Arc::make_mut(&mut self.durable);
        self.pending.retain_mut(|pending| match pending {
            Pending::Write(sectors) => {
                sectors.put(durable, |sector| range.contains(&sector));
                sectors.pending.retain(|sector| !range.contains(sector));
                !sectors.pending.is_empty()
            }
            Pending::SetLength(length) => {
                durable.resize(*length, 0);
                false
            }
        });
    }

    pub fn set_len(&mut self, length: u64) {
        let length = length as usize;
        Arc::make_mut(&mut self.now).resize(length, 0);
        for pending in &mut self.pending {
            if let Pending::Write(sectors) = pending {
                sectors.truncate(length);
            }
        }
        self.pending.push(Pending::SetLength(length));
    }

    pub fn sync(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        self.pending.drain(..).for_each(|pending| pending.apply_all(durable));
    }

    pub fn forget_unsynced(&mut self) {
        self.pending.clear();
    }

    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        for bytes in [&mut self.now, &mut self.durable] {
            if let Some(byte) = Arc::make_mut(bytes).get_mut(offset as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// The file after a power cut: what is durable, and of each other change all, nothing, or any of its sectors.
    pub fn after_crash(&self, choices: &mut Choices) -> Inode {
        let mut bytes = Arc::clone(&self.durable);
        for pending in &self.pending {
            match choices.below(3) {
                0 => {}
                1 => pending.apply_all(Arc::make_mut(&mut bytes)),
                _ => pending.apply(Arc::make_mut(&mut bytes), choices),
            }
        }
        Inode { now: Arc::clone(&bytes), durable: bytes, pending: Vec::new() }
    }
}

impl Pending {
    fn apply_all(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::Write(sectors) => sectors.put_all(bytes),
            Pending::SetLength(length) => bytes.resize(*length, 0),
        }
    }

    /// Applies any of the sectors. A change of the length is applied as a whole.
    fn apply(&self, bytes: &mut Vec<u8>, choices: &mut Choices) {
        match self {
            Pending::Write(sectors) => sectors.put(bytes, |_| choices.coin()),
            Pending::SetLength(length) => bytes.resize(*length, 0),
        }
    }
}

impl Sectors {
    /// The sectors of a file that a write of this range touched.
    fn new(file: &[u8], start: usize, length: usize) -> Sectors {
        let sectors = start / SECTOR..(start + length).div_ceil(SECTOR);
        let end = file.len().min(sectors.end * SECTOR);
        let bytes = file.get(sectors.start * SECTOR..end).unwrap_or_default().to_vec();
        Sectors { first: sectors.start, bytes, pending: sectors.collect() }
    }

    /// The sectors of `bytes`.
    fn range(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.bytes.len().div_ceil(SECTOR)
    }

    /// Forgets what is beyond the file's new length: truncated data does not come back.
    fn truncate(&mut self, length: usize) {
        self.pending.retain(|sector| sector * SECTOR < length);
        self.bytes.truncate(length.saturating_sub(self.first * SECTOR));
    }

    /// Writes the pending sectors to their places.
    fn put_all(&self, file: &mut Vec<u8>) {
        if !self.bytes.is_empty() && self.pending.len() == self.range().len() {
            put(file, &self.bytes, self.first * SECTOR);
        } else {
            self.put(file, |_| true);
        }
    }

    /// Writes those of the pending sectors that `keep` selects to their places.
    fn put(&self, file: &mut Vec<u8>, mut keep: impl FnMut(usize) -> bool) {
        for sector in self.pending.iter().copied().filter(|sector| keep(*sector)) {
            let start = (sector - self.first) * SECTOR;
            let end = self.bytes.len().min(start + SECTOR);
            put(file, self.bytes.get(start..end).unwrap_or_default(), sector * SECTOR);
        }
    }
}

fn put(bytes: &mut Vec<u8>, data: &[u8], start: usize) {
    let end = start + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].copy_from_slice(data);
}
