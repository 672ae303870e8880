//! Names of files: `da-<id>-bti-<component>`.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

/// The version that this crate writes.
const VERSION: &str = "da";
/// Its format.
const FORMAT: &str = "bti";
/// The suffix of files that are being written, which are meaningless after a crash.
pub(crate) const TEMPORARY: &str = ".tmp";
/// Length of an id made of a UUID: `DDDD_SSSS_NNNNNRRRRRRRRRRRRR`.
const UUID_ID_LENGTH: usize = 28;
/// Ticks of a version 1 UUID's timestamp per second.
const TICKS_PER_SECOND: u64 = 10_000_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// From the start of the UUID calendar (15 October 1582) to 1970, in seconds.
const UUID_EPOCH_SECONDS: u64 = 12_219_292_800;

/// The id that distinguishes the tables of a directory. Within a kind, later ids are greater; sequence numbers come
/// before UUIDs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SSTableId(Arc<str>);

impl SSTableId {
    /// The id of a version 1 UUID.
    pub fn from_uuid(uuid: Uuid) -> SSTableId {
        let (high, low) = uuid.as_u64_pair();
        let ticks = (high & 0xFFF) << 48 | (high >> 16 & 0xFFFF) << 32 | high >> 32;
        let seconds = ticks / TICKS_PER_SECOND;
        let mut text = String::with_capacity(UUID_ID_LENGTH);
        push_base36(seconds / SECONDS_PER_DAY, 4, &mut text);
        text.push('_');
        push_base36(seconds % SECONDS_PER_DAY, 4, &mut text);
        text.push('_');
        push_base36(ticks % TICKS_PER_SECOND, 5, &mut text);
        push_base36(low, 13, &mut text);
        SSTableId(text.into())
    }

    /// The id of a sequence number.
    pub fn from_sequence(number: u32) -> SSTableId {
        SSTableId(number.to_string().into())
    }

    /// Reads an id of either kind.
    pub fn parse(text: &str) -> Option<SSTableId> {
        let sequence = (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let base36 = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        let uuid = text.len() == UUID_ID_LENGTH
            && text.bytes().enumerate().all(|(at, byte)| if at == 4 || at == 9 { byte == b'_' } else { base36(byte) });
        (sequence || uuid).then(|| SSTableId(text.into()))
    }

    /// When the id was made, in seconds since the epoch; `None` for a sequence number.
    pub fn created_seconds(&self) -> Option<u64> {
        if self.0.len() != UUID_ID_LENGTH {
            return None;
        }
        let part = |range| u64::from_str_radix(self.0.get(range)?, 36).ok();
        (part(0..4)? * SECONDS_PER_DAY + part(5..9)?).checked_sub(UUID_EPOCH_SECONDS)
    }

    /// The id as in file names.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn push_base36(mut value: u64, width: usize, out: &mut String) {
    let mut digits = [b'0'; 13];
    for digit in digits[..width].iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(value % 36) as usize];
        value /= 36;
    }
    out.extend(digits[..width].iter().map(|digit| char::from(*digit)));
}

impl fmt::Display for SSTableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SSTableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ord for SSTableId {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |id: &SSTableId| id.0.parse::<u64>().map_or((1, 0), |number| (0, number));
        key(self).cmp(&key(other)).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for SSTableId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A component of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Component {
    /// Checksums of an uncompressed Data.db.
    Crc,
    /// Checksums for components that have none in Cassandra's format; written by this database only.
    Checksums,
    /// The place of each chunk of a compressed Data.db.
    CompressionInfo,
    /// The partitions.
    Data,
    /// Checksum of Data.db as a file.
    Digest,
    /// Bloom filter.
    Filter,
    /// Partition index.
    Partitions,
    /// Row indexes.
    Rows,
    /// Statistics and serialization header.
    Statistics,
    /// List of components; written last.
    Toc,
}

impl Component {
    /// All components, in the order of their names.
    pub const ALL: [Component; 10] = [
        Component::Crc,
        Component::Checksums,
        Component::CompressionInfo,
        Component::Data,
        Component::Digest,
        Component::Filter,
        Component::Partitions,
        Component::Rows,
        Component::Statistics,
        Component::Toc,
    ];

    /// The last part of the file name.
    pub fn name(self) -> &'static str {
        match self {
            Component::Crc => "CRC.db",
            Component::Checksums => "Checksums.db",
            Component::CompressionInfo => "CompressionInfo.db",
            Component::Data => "Data.db",
            Component::Digest => "Digest.crc32",
            Component::Filter => "Filter.db",
            Component::Partitions => "Partitions.db",
            Component::Rows => "Rows.db",
            Component::Statistics => "Statistics.db",
            Component::Toc => "TOC.txt",
        }
    }

    /// The component of that name.
    pub fn of_name(name: &str) -> Option<Component> {
        Self::ALL.into_iter().find(|component| component.name() == name)
    }
}

/// Version and format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Version {
    /// `da`, BTI: this database's version, and Cassandra 5.0's if configured so.
    Da,
    /// `nb`, `big`: Cassandra 4, and a stock 5.0.
    Nb,
    /// `oa`, `big`: Cassandra 5.0 without compatibility with 4.
    Oa,
}

impl Version {
    /// Version and format as in file names.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Version::Da => (VERSION, FORMAT),
            Version::Nb => ("nb", "big"),
            Version::Oa => ("oa", "big"),
        }
    }
}

/// One table in one directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Descriptor {
    /// The directory of its files.
    pub dir: PathBuf,
    /// Its id in that directory.
    pub id: SSTableId,
    /// The encoding of its files.
    pub(crate) version: Version,
}

impl Descriptor {
    /// The table `id` in `dir`.
    pub fn new(dir: impl Into<PathBuf>, id: SSTableId) -> Descriptor {
        Descriptor { dir: dir.into(), id, version: Version::Da }
    }

    /// The common beginning of the names of all its files: version, id and format.
    pub fn name(&self) -> String {
        let (version, format) = self.version.names();
        format!("{version}-{}-{format}", self.id)
    }

    /// The name of a component's file.
    pub fn file_name(&self, component: Component) -> String {
        format!("{}-{}", self.name(), component.name())
    }

    /// The path of a component's file.
    pub fn path(&self, component: Component) -> PathBuf {
        self.dir.join(self.file_name(component))
    }

    /// The path of a component while it is written.
    pub(crate) fn temporary_path(&self, component: Component) -> PathBuf {
        self.dir.join(self.file_name(component) + TEMPORARY)
    }

    /// Splits a file name into id and component name; `None` for names that are not of a `da` BTI table.
    pub fn parse_file_name(name: &str) -> Option<(SSTableId, &str)> {
        let mut parts = name.splitn(4, '-');
        let (version, id, format, component) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        (version == VERSION && format == FORMAT).then(|| SSTableId::parse(id).map(|id| (id, component)))?
    }

    /// The descriptor of any component's path, of every supported version.
    pub fn of_path(path: &Path) -> Option<Descriptor> {
        let mut parts = path.file_name()?.to_str()?.splitn(4, '-');
        let (version, id, format, _component) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let known = [Version::Da, Version::Nb, Version::Oa];
        let version = known.into_iter().find(|known| known.names() == (version, format))?;
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        Some(Descriptor { dir, id: SSTableId::parse(id)?, version })
    }

    /// Whether the files have Cassandra's older format `big`, which is read in file order only.
    pub fn is_big(&self) -> bool {
        self.version != Version::Da
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dir.join(self.name()).display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_of_uuids_as_cassandra_does() {
        // One day, one second and one tick after the start of the UUID calendar.
        let ticks = (86_400 + 1) * 10_000_000_u64 + 1;
        let high = ticks << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48;
        let id = SSTableId::from_uuid(Uuid::from_u64_pair(high, 35));
        assert_eq!(id.as_str(), "0001_0001_00001000000000000z");
        assert_eq!(SSTableId::parse(id.as_str()), Some(id.clone()));
        assert_eq!(id.created_seconds(), None, "long before 1970");
        for wrong in ["", "12345678901", "0001-0001_00001000000000000z", "0001_0001_00001000000000000Z", "12a"] {
            assert_eq!(SSTableId::parse(wrong), None);
        }
    }

    #[test]
    fn ids_contain_their_creation_time() {
        // 2023-11-14T22:13:20Z.
        let ticks = (1_700_000_000 + UUID_EPOCH_SECONDS) * TICKS_PER_SECOND + 5;
        let high = ticks << 32 | (ticks >> 32 & 0xFFFF) << 16 | 0x1000 | ticks >> 48;
        assert_eq!(SSTableId::from_uuid(Uuid::from_u64_pair(high, 35)).created_seconds(), Some(1_700_000_000));
        assert_eq!(SSTableId::from_sequence(7).created_seconds(), None);
    }

    #[test]
    fn ids_sort_by_age_within_their_kind() {
        let id = |text: &str| SSTableId::parse(text).unwrap();
        let mut ids = [id("3gyf_0001_00001000000000000z"), id("10"), id("3gyf_0000_zzzzz000000000000z"), id("9")];
        ids.sort();
        let sorted = ["9", "10", "3gyf_0000_zzzzz000000000000z", "3gyf_0001_00001000000000000z"];
        assert_eq!(ids.map(|id| id.to_string()), sorted);
    }

    #[test]
    fn file_names_are_split_at_the_first_three_dashes() {
        let (id, component) = Descriptor::parse_file_name("da-12-bti-SAI+aa+x-y.db").unwrap();
        assert_eq!((id.as_str(), component), ("12", "SAI+aa+x-y.db"));
        assert!(Descriptor::parse_file_name("nb-12-big-Data.db").is_none());
        assert!(Descriptor::parse_file_name("manifest.json").is_none());
    }

    #[test]
    fn paths_of_every_version_that_is_read_name_a_table() {
        for (name, is_big) in [("da-12-bti-Data.db", false), ("nb-12-big-Index.db", true), ("oa-12-big-Data.db", true)]
        {
            let descriptor = Descriptor::of_path(&Path::new("/t").join(name)).unwrap();
            assert_eq!(descriptor.is_big(), is_big);
            let prefix = name.rsplit_once('-').unwrap().0;
            assert_eq!(descriptor.to_string(), format!("/t/{prefix}"));
        }
        for other in ["mc-12-big-Data.db", "nb-12-bti-Data.db", "da-12-big-Data.db", "nb-12-big", "nb-x-big-Data.db"] {
            assert_eq!(Descriptor::of_path(&Path::new("/t").join(other)), None);
        }
    }
}
