//! Statistics.db: four components after a table of contents, each with its checksum.

mod cardinality;
mod collector;
mod header;
mod histogram;
mod metadata;
mod tombstones;

pub use cardinality::Cardinality;
pub(crate) use collector::{Position, StatsCollector};
pub(crate) use header::push_vbytes;
pub use header::{EncodingBase, HeaderColumn, SerializationHeader};
pub use histogram::EstimatedHistogram;
pub use metadata::{CommitLogPosition, CoveredBound, StatsMetadata};
pub use tombstones::TombstoneHistogram;

use crate::compression::push_utf;
use crate::descriptor::Version;
use crate::error::{Corruption, Decoded, SSTableError};
use crate::input::Input;

/// The only partitioner we know.
pub(crate) const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// Component numbers, in file order.
const VALIDATION: i32 = 0;
const COMPACTION: i32 = 1;
const STATS: i32 = 2;
const HEADER: i32 = 3;
const COMPONENTS: [i32; 4] = [VALIDATION, COMPACTION, STATS, HEADER];

/// Everything in Statistics.db.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Class of the partitioner.
    pub partitioner: String,
    /// The chance for which the Bloom filter was made.
    pub bloom_filter_fp_chance: f64,
    /// Estimate of distinct partition keys.
    pub cardinality: Cardinality,
    /// Facts about the data.
    pub stats: StatsMetadata,
    /// The schema under which Data.db was written.
    pub header: SerializationHeader,
}

impl Statistics {
    /// Reads Statistics.db.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Statistics, SSTableError> {
        Self::decode_version(Version::Da, file, bytes)
    }

    /// Reads Statistics.db of a version.
    pub(crate) fn decode_version(version: Version, file: &str, bytes: &[u8]) -> Result<Statistics, SSTableError> {
        let bodies = Frame::parse(file, bytes)?;
        let mut validation = bodies.body(VALIDATION)?;
        let partitioner = validation.utf("partitioner")?.to_owned();
        let bloom_filter_fp_chance = validation.f64("bloom filter fp chance")?;
        let mut compaction = bodies.body(COMPACTION)?;
        compaction.i32("cardinality length")?;
        Ok(Statistics {
            partitioner,
            bloom_filter_fp_chance,
            cardinality: Cardinality::read(&mut compaction)?,
            stats: StatsMetadata::read(version, &mut bodies.body(STATS)?)?,
            header: SerializationHeader::read(&mut bodies.body(HEADER)?)?,
        })
    }

    /// The bytes of Statistics.db.
    pub fn encode(&self) -> Result<Vec<u8>, SSTableError> {
        let mut validation = Vec::new();
        push_utf(&self.partitioner, &mut validation);
        validation.extend_from_slice(&self.bloom_filter_fp_chance.to_be_bytes());
        let cardinality = self.cardinality.encode();
        let mut compaction = (cardinality.len() as i32).to_be_bytes().to_vec();
        compaction.extend_from_slice(&cardinality);
        let mut stats = Vec::new();
        self.stats.write(&mut stats)?;
        let mut header = Vec::new();
        self.header.write(&mut header);
        Ok(frame([validation, compaction, stats, header]))
    }
}

/// Puts component bodies after their table of contents.
fn frame(bodies: [Vec<u8>; 4]) -> Vec<u8> {
    let count = (COMPONENTS.len() as i32).to_be_bytes();
    let mut out = count.to_vec();
    let mut crc = crc32fast::Hasher::new();
    crc.update(&count);
    out.extend_from_slice(&crc.clone().finalize().to_be_bytes());
    let mut position = 4 + 4 + COMPONENTS.len() * 8 + 4;
    for (component, body) in COMPONENTS.iter().zip(&bodies) {
        out.extend_from_slice(&component.to_be_bytes());
        out.extend_from_slice(&(position as i32).to_be_bytes());
        position += body.len() + 4;
    }
    crc.update(&out[8..]);
    out.extend_from_slice(&crc.finalize().to_be_bytes());
    for body in &bodies {
        out.extend_from_slice(body);
        out.extend_from_slice(&crc32fast::hash(body).to_be_bytes());
    }
    out
}

/// A parsed table of contents.
struct Frame<'a> {
    file: &'a str,
    bytes: &'a [u8],
    /// Component number and position, in file order.
    entries: Vec<(i32, usize)>,
}

impl<'a> Frame<'a> {
    fn parse(file: &'a str, bytes: &'a [u8]) -> Decoded<Self> {
        let mut input = Input::new(file, 0, bytes);
        let count_bytes = input.clone().take(4, "component count")?;
        let count = input.u32("component count")?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(count_bytes);
        check(&mut input, crc.clone().finalize())?;
        let count = input.checked_count(u64::from(count), 8, "components")?;
        crc.update(input.clone().take(count * 8, "table of contents")?);
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let component = input.i32("component")?;
            let position = input.u32("component position")? as usize;
            if position > bytes.len() || entries.last().is_some_and(|(_, last)| *last > position) {
                return Err(input.damaged("ascending positions in the file", position.to_string()));
            }
            entries.push((component, position));
        }
        check(&mut input, crc.finalize())?;
        Ok(Frame { file, bytes, entries })
    }

    /// A component's body, after verifying its checksum.
    fn body(&self, component: i32) -> Decoded<Input<'a>> {
        let missing = || Corruption::new(self.file, 0, format!("component {component}"), "none");
        let index = self.entries.iter().position(|entry| entry.0 == component).ok_or_else(missing)?;
        let start = self.entries[index].1;
        let end = self.entries.get(index + 1).map_or(self.bytes.len(), |next| next.1);
        let stored = self.bytes.get(start..end).and_then(<[u8]>::split_last_chunk::<4>);
        let (body, crc) =
            stored.ok_or_else(|| Corruption::new(self.file, start as u64, "a body and its checksum", "less"))?;
        let (crc, computed) = (u32::from_be_bytes(*crc), crc32fast::hash(body));
        if crc != computed {
            let (expected, got) = (format!("checksum {crc:08x}"), format!("{computed:08x}"));
            return Err(Corruption::new(self.file, start as u64, expected, got));
        }
        Ok(Input::new(self.file, start as u64, body))
    }
}

fn check(input: &mut Input<'_>, computed: u32) -> Decoded<()> {
    let here = input.clone();
    let stored = input.u32("checksum")?;
    if stored == computed {
        return Ok(());
    }
    Err(here.damaged("the checksum of the table of contents", format!("{stored:08x} for {computed:08x}")))
}
