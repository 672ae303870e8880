//! A file's bytes: as reads see them now, and as a crash would leave them.

use super::Choices;
use crate::Durability;

/// The unit that the device writes whole or not at all.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// The changes that `durable` lacks, oldest first.
    pending: Vec<Pending>,
}

/// The effect of one call.
#[derive(Clone, Debug)]
enum Pending {
    Write(Vec<Sector>),
    SetLength(usize),
}

/// The contents of a sector after a write; the file's last one may be short.
#[derive(Clone, Debug)]
struct Sector {
    index: usize,
    bytes: Vec<u8>,
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
        put(&mut self.now, data, start);
        let sectors: Vec<Sector> =
            (start / SECTOR..(start + data.len()).div_ceil(SECTOR)).map(|index| self.sector(index)).collect();
        match durability {
            Durability::AtNextSync => self.pending.push(Pending::Write(sectors)),
            Durability::Durable => {
                let written = |index: usize| {
                    sectors.first().is_some_and(|first| first.index <= index && index < first.index + sectors.len())
                };
                for pending in &mut self.pending {
                    match pending {
                        Pending::Write(older) => older.retain(|sector| !written(sector.index)),
                        // Any durable write also makes the file's length durable.
                        Pending::SetLength(length) => self.durable.resize(*length, 0),
                    }
                }
                self.pending.retain(|pending| matches!(pending, Pending::Write(_)));
                for sector in &sectors {
                    put(&mut self.durable, &sector.bytes, sector.index * SECTOR);
                }
            }
        }
    }

    /// Makes what was written to the range so far durable.
    pub fn settle(&mut self, offset: u64, length: usize) {
        let start = offset as usize;
        let range = start / SECTOR..(start + length).div_ceil(SECTOR);
        let durable = &mut self.durable;
        self.pending.retain_mut(|pending| match pending {
            Pending::Write(sectors) => {
                sectors.retain(|sector| {
                    let settled = range.contains(&sector.index);
                    if settled {
                        put(durable, &sector.bytes, sector.index * SECTOR);
                    }
                    !settled
                });
                !sectors.is_empty()
            }
            Pending::SetLength(length) => {
                durable.resize(*length, 0);
                false
            }
        });
    }

    fn sector(&self, index: usize) -> Sector {
        let end = self.now.len().min((index + 1) * SECTOR);
        Sector { index, bytes: self.now.get(index * SECTOR..end).unwrap_or_default().to_vec() }
    }

    pub fn set_len(&mut self, length: u64) {
        let length = length as usize;
        self.now.resize(length, 0);
        for pending in &mut self.pending {
            if let Pending::Write(sectors) = pending {
                // Truncated data does not come back.
                sectors.retain(|sector| sector.index * SECTOR < length);
                sectors.iter_mut().for_each(|sector| sector.bytes.truncate(length - sector.index * SECTOR));
            }
        }
        self.pending.push(Pending::SetLength(length));
    }

    pub fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            pending.apply(&mut self.durable, |_| true);
        }
    }

    pub fn forget_unsynced(&mut self) {
        self.pending.clear();
    }

    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        for bytes in [&mut self.now, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// The file after a power cut: what is durable, and of each other change all, nothing, or any of its sectors.
    pub fn after_crash(&self, choices: &mut Choices) -> Inode {
        let mut bytes = self.durable.clone();
        for pending in &self.pending {
            match choices.below(3) {
                0 => {}
                1 => pending.apply(&mut bytes, |_| true),
                _ => pending.apply(&mut bytes, |_| choices.coin()),
            }
        }
        Inode { now: bytes.clone(), durable: bytes, pending: Vec::new() }
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>, mut keep: impl FnMut(&Sector) -> bool) {
        match self {
            Pending::Write(sectors) => {
                for sector in sectors {
                    if keep(sector) {
                        put(bytes, &sector.bytes, sector.index * SECTOR);
                    }
                }
            }
            Pending::SetLength(length) => bytes.resize(*length, 0),
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
