//! Checksums.db, this database's one additional component: Cassandra's format has no checksum on its indexes, its
//! filter and its tables of chunks and checksums. It holds the length of each component that a read needs, and a CRC-32
//! for each page of those that have none of their own. FORMAT.md describes the layout.

use crate::descriptor::Component;
use crate::error::{Corruption, Decoded, SSTableError};
use crate::input::Input;
use crate::trie::PAGE_SIZE;

const MAGIC: &[u8; 4] = b"ESPC";
const VERSION: u32 = 1;

/// The covered components, with their numbers.
const COVERED: [(u8, Component); 6] = [
    (1, Component::Crc),
    (2, Component::CompressionInfo),
    (3, Component::Data),
    (4, Component::Filter),
    (5, Component::Partitions),
    (6, Component::Rows),
];

/// Checksums of one component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ComponentChecksums {
    /// Its length in bytes.
    pub length: u64,
    /// The CRC-32 of each page of 4096 bytes, of which the last may be shorter; empty for Data.db, which has its own.
    pub crcs: Vec<u32>,
}

impl ComponentChecksums {
    /// The checksums of a whole component.
    pub fn of(bytes: &[u8]) -> Self {
        let crcs = bytes.chunks(PAGE_SIZE).map(crc32fast::hash).collect();
        ComponentChecksums { length: bytes.len() as u64, crcs }
    }

    /// Fails unless a file has the length with which it was written.
    pub fn check_length(&self, file: &str, length: u64) -> Decoded<()> {
        if length == self.length {
            return Ok(());
        }
        let expected = format!("a file of {} bytes as Checksums.db says", self.length);
        Err(Corruption::new(file, length.min(self.length), expected, format!("{length} bytes")))
    }

    /// Verifies page `number`.
    pub fn check_page(&self, file: &str, number: u64, page: &[u8]) -> Decoded<()> {
        let stored = usize::try_from(number).ok().and_then(|number| self.crcs.get(number));
        let computed = crc32fast::hash(page);
        if stored == Some(&computed) {
            return Ok(());
        }
        let expected =
            stored.map_or("a page that Checksums.db has".to_owned(), |crc| format!("page checksum {crc:08x}"));
        Err(Corruption::new(file, number.saturating_mul(PAGE_SIZE as u64), expected, format!("{computed:08x}")))
    }

    /// Verifies a whole component.
    pub fn check(&self, file: &str, bytes: &[u8]) -> Decoded<()> {
        self.check_length(file, bytes.len() as u64)?;
        bytes.chunks(PAGE_SIZE).zip(0..).try_for_each(|(page, number)| self.check_page(file, number, page))
    }
}

/// Hashes a component piece by piece.
#[derive(Debug, Default)]
pub(crate) struct PageHasher {
    checksums: ComponentChecksums,
    page: crc32fast::Hasher,
}

impl PageHasher {
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = (self.checksums.length % PAGE_SIZE as u64) as usize;
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE_SIZE - filled));
            self.page.update(now);
            self.checksums.length += now.len() as u64;
            if filled + now.len() == PAGE_SIZE {
                self.end_page();
            }
            bytes = rest;
        }
    }

    fn end_page(&mut self) {
        self.checksums.crcs.push(std::mem::take(&mut self.page).finalize());
    }

    pub fn finish(mut self) -> ComponentChecksums {
        if !self.checksums.length.is_multiple_of(PAGE_SIZE as u64) {
            self.end_page();
        }
        self.checksums
    }
}

/// Content of Checksums.db.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageChecksums {
    /// In the order of the numbers.
    entries: Vec<(Component, ComponentChecksums)>,
}

impl PageChecksums {
    /// Adds a component's checksums.
    pub fn add(&mut self, component: Component, checksums: ComponentChecksums) {
        self.entries.push((component, checksums));
        self.entries.sort_by_key(|(component, _)| COVERED.iter().position(|(_, covered)| covered == component));
    }

    /// The checksums of a component.
    pub fn of(&self, component: Component) -> Option<&ComponentChecksums> {
        self.entries.iter().find(|(covered, _)| *covered == component).map(|(_, checksums)| checksums)
    }

    /// The components with which the table was written.
    pub fn components(&self) -> impl Iterator<Item = Component> {
        self.entries.iter().map(|(component, _)| *component)
    }

    /// The bytes of Checksums.db.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_be_bytes());
        for (component, ComponentChecksums { length, crcs }) in &self.entries {
            let number = COVERED.iter().find(|(_, covered)| covered == component).map_or(0, |(number, _)| *number);
            out.push(number);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(&(crcs.len() as u32).to_be_bytes());
            out.extend(crcs.iter().flat_map(|crc| crc.to_be_bytes()));
        }
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads Checksums.db.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<PageChecksums, SSTableError> {
        let damaged = |offset, expected: &'static str, got: String| Corruption::new(file, offset, expected, got);
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged(0, "a checksum of 4 bytes at the end", format!("{} bytes", bytes.len())).into());
        };
        let (stored, computed) = (u32::from_be_bytes(*crc), crc32fast::hash(body));
        if stored != computed {
            let expected = format!("checksum {stored:08x}");
            return Err(Corruption::new(file, body.len() as u64, expected, format!("{computed:08x}")).into());
        }
        let mut input = Input::new(file, 0, body);
        if input.take(4, "magic number")? != MAGIC {
            return Err(damaged(0, "the magic number ESPC", "another".into()).into());
        }
        let version = input.u32("version")?;
        if version != VERSION {
            return Err(SSTableError::Unsupported { file: file.into(), what: format!("version {version} of it") });
        }
        let mut checksums = PageChecksums::default();
        while !input.is_empty() {
            let (component, entry) = read_entry(&mut input)?;
            checksums.add(component, entry);
        }
        Ok(checksums)
    }
}

fn read_entry(input: &mut Input<'_>) -> Decoded<(Component, ComponentChecksums)> {
    let number = input.u8("component number")?;
    let component = COVERED.iter().find(|(covered, _)| *covered == number).map(|(_, component)| *component);
    let component = component.ok_or_else(|| input.damaged("a component's number", number.to_string()))?;
    let length = input.i64("component length")? as u64;
    let count = u64::from(input.u32("page count")?);
    let pages = if component == Component::Data { 0 } else { length.div_ceil(PAGE_SIZE as u64) };
    if count != pages {
        return Err(input.damaged("a checksum per page", format!("{count} for {length} bytes")));
    }
    let count = input.checked_count(count, 4, "page checksums")?;
    let crcs = (0..count).map(|_| input.u32("page checksum")).collect::<Decoded<Vec<u32>>>()?;
    Ok((component, ComponentChecksums { length, crcs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_checksums_of_the_whole() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|i| (i * i / 7) as u8).collect();
        for length in [0, 1, 4095, 4096, 4097, 8192, 20_000] {
            for piece in [1, 7, 4096, 5000] {
                let mut hasher = PageHasher::default();
                bytes[..length].chunks(piece).for_each(|piece| hasher.update(piece));
                assert_eq!(hasher.finish(), ComponentChecksums::of(&bytes[..length]), "{length} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let mut checksums = PageChecksums::default();
        checksums.add(Component::Rows, ComponentChecksums::of(&[1; 5000]));
        checksums.add(Component::Data, ComponentChecksums { length: 1 << 40, crcs: Vec::new() });
        let bytes = checksums.encode();
        assert_eq!(PageChecksums::decode("Checksums.db", &bytes).unwrap(), checksums);
        for at in 0..bytes.len() {
            assert!(PageChecksums::decode("Checksums.db", &bytes[..at]).is_err());
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(PageChecksums::decode("Checksums.db", &damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}
