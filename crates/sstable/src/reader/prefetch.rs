//! Prefetching what look-ups of several partitions will read: pages of the index, and blocks of the data.
//!
//! A look-up alone waits for memory some ten times in a row, because each step says where the next one reads. Here
//! several keys take each step together, so that their waits overlap. The look-ups that follow repeat the steps in the
//! processor's caches, which costs less than one wait.

use std::ops::Range;
use std::sync::Arc;

use bytecomp::encode_decorated_key;
use model::PartitionKey;

use super::SSTableReader;
use super::find::Sought;
use crate::cache::{Approached, Lent};
use crate::cached_file::CachedFile;
use crate::partition_index::PartitionPosition;
use crate::trie::{Descent, Reached, prefetch_descent};

/// The keys that take each step together. A thread can borrow few more blocks at once without counting references, and
/// a core waits for hardly more lines.
const TOGETHER: usize = 6;
/// The bytes of a partition that are prefetched, from its start on.
const PARTITION_BYTES: usize = 192;
const LINE_BYTES: usize = 64;

/// Prefetches the memory that look-ups of these partitions will read right after. Reads nothing from a device, and
/// leaves out what the cache lacks.
pub fn prefetch_partitions(sstables: &[Arc<SSTableReader>], keys: &[&PartitionKey]) {
    let mut encoded = Vec::new();
    for keys in keys.chunks(TOGETHER) {
        let sought = keys.iter().map(|key| Sought::new(key.token(), key.bytes()));
        let sought: Vec<Sought<'_>> = sought.collect();
        for sstable in sstables {
            sstable.prefetch_data(&sstable.cached_positions(&sought, &mut encoded));
        }
    }
}

/// A key whose partition is being searched.
struct Search<'k> {
    sought: &'k Sought<'k>,
    /// Where its encoded form is.
    encoded: Range<usize>,
    at: Descent,
}

impl SSTableReader {
    /// The data positions of the partitions of these keys, at most [`TOGETHER`], as far as the cache has their indexes.
    /// The keys there are not compared. Those of large partitions are left out.
    fn cached_positions(&self, sought: &[Sought<'_>], encoded: &mut Vec<u8>) -> Vec<u64> {
        let index = &self.files.partitions;
        let Some((at, root_page)) = index.begin_descent() else { return Vec::new() };
        encoded.clear();
        let mut searches = Vec::with_capacity(sought.len());
        for sought in sought.iter().filter(|sought| self.may_have(sought)) {
            let start = encoded.len();
            encode_decorated_key(sought.token, sought.key, encoded);
            searches.push(Search { sought, encoded: start..encoded.len(), at });
        }
        let mut positions = Vec::with_capacity(searches.len());
        searches.retain_mut(|search| self.goes_on(search, root_page, encoded, &mut positions));
        while !searches.is_empty() {
            let pages = borrow_together(index.cached_pages(), searches.iter().map(|search| search.at.page()));
            for (page, search) in pages.iter().zip(&searches) {
                page.iter().for_each(|page| prefetch_descent(page, search.at.position));
            }
            let mut pages = pages.into_iter();
            searches.retain_mut(|search| match pages.next().flatten() {
                Some(page) => self.goes_on(search, &page, encoded, &mut positions),
                None => false,
            });
        }
        positions
    }

    /// Continues a search in its page, and notes the position that it ends at. Returns whether it goes on in another
    /// page.
    fn goes_on(&self, search: &mut Search<'_>, page: &[u8], encoded: &[u8], positions: &mut Vec<u64>) -> bool {
        let Search { sought, encoded: place, at } = search;
        match self.files.partitions.descend(page, &encoded[place.clone()], sought.hash, at) {
            Ok(Reached::OtherPage) => return true,
            Ok(Reached::Entry(PartitionPosition::Data(position))) => positions.push(position),
            // Of a large partition only its record is known. Damage is reported by the look-up that follows.
            Ok(Reached::Entry(PartitionPosition::Rows(_)) | Reached::Nothing) | Err(_) => {}
        }
        false
    }

    fn prefetch_data(&self, positions: &[u64]) {
        let data = &self.files.data;
        let blocks = positions.iter().map(|position| position / data.block_length);
        for (block, position) in borrow_together(data.cached_blocks(), blocks).iter().zip(positions) {
            let Some(block) = block else { continue };
            let start = (position % data.block_length) as usize;
            for at in (start..start + PARTITION_BYTES).step_by(LINE_BYTES) {
                block.get(at).into_iter().for_each(blockio::prefetch);
            }
        }
    }
}

/// Borrows several blocks of a file from the cache.
fn borrow_together(file: &CachedFile, numbers: impl Iterator<Item = u64> + Clone) -> Vec<Option<Lent>> {
    numbers.clone().for_each(|number| file.prefetch_place(number));
    let approached: Vec<Approached> = numbers.clone().map(|number| file.approach(number)).collect();
    approached.into_iter().zip(numbers).map(|(approached, number)| file.arrive(approached, number)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blockio::{Disk, SimulatedDisk};
    use model::{
        Cell, DeletionTime, KeyRange, Liveness, PartitionHead, ReadRange, Row, RowBuilder, RowRef, TableBuilder,
        TableId, Unfiltered, UnfilteredCursor,
    };
    use testkit::Random;
    use types::CqlType;
    use uuid::Uuid;

    use super::*;
    use crate::cache::BlockCache;
    use crate::{Descriptor, SSTableId, SSTableWriter, WriterOptions};

    fn key(number: usize) -> PartitionKey {
        PartitionKey::new(&(number as u32).to_be_bytes())
    }

    /// A table of the partitions with even numbers, of a row each.
    fn even_partitions(disk: &Arc<dyn Disk>, count: usize) -> SSTableReader {
        let builder = TableBuilder::new("ks", "even", TableId(Uuid::from_u128(9)));
        let table = Arc::new(builder.partition_key("key", CqlType::Int).regular("value", CqlType::Blob).build());
        disk.create_dir_all(Path::new("/t")).unwrap();
        let descriptor = Descriptor::new("/t", SSTableId::from_sequence(1));
        let options = WriterOptions::for_table(&table).unwrap();
        let mut writer = SSTableWriter::create(disk, &descriptor, &table, options).unwrap();
        let mut keys: Vec<PartitionKey> = (0..count).map(|number| key(2 * number)).collect();
        keys.sort();
        for key in &keys {
            writer.begin_partition(&PartitionHead { key, deletion: DeletionTime::LIVE, static_row: None }).unwrap();
            let (mut builder, mut blob) = (RowBuilder::default(), Vec::new());
            builder.start(table.columns(false), false);
            builder.liveness(Liveness::at(1_000));
            builder.cell(0, &Cell::live(1_000, &[7; 100]));
            builder.finish(&mut blob);
            writer.add(&Unfiltered::Row(RowRef { clustering: &[], row: Row::new(&blob) })).unwrap();
            writer.end_partition().unwrap();
        }
        let descriptor = writer.finish().unwrap().unwrap();
        SSTableReader::open(&**disk, &descriptor, &table, &BlockCache::new(64 << 20)).unwrap()
    }

    fn read(sstable: &SSTableReader, key: &PartitionKey) {
        let mut cursor = sstable.cursor(&ReadRange::all_rows(KeyRange::Single(key.clone()))).unwrap();
        while cursor.advance_partition().unwrap() {
            while cursor.advance().unwrap() {}
        }
    }

    #[test]
    fn searches_together_end_where_each_alone_does() {
        const COUNT: usize = 20_000;
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        let sstable = even_partitions(&disk, COUNT);
        (0..COUNT).for_each(|number| read(&sstable, &key(2 * number)));
        let (mut random, mut encoded, mut found) = (Random(3), Vec::new(), 0);
        for _ in 0..2_000 {
            let keys: Vec<PartitionKey> =
                (0..1 + random.below(TOGETHER)).map(|_| key(random.below(2 * COUNT))).collect();
            let sought: Vec<Sought<'_>> = keys.iter().map(|key| Sought::new(key.token(), key.bytes())).collect();
            let alone = sought.iter().filter(|sought| sstable.may_have(sought)).filter_map(|sought| {
                encoded.clear();
                encode_decorated_key(sought.token, sought.key, &mut encoded);
                match sstable.files.partitions.cached_candidate(&encoded, sought.hash).unwrap() {
                    Some(PartitionPosition::Data(position)) => Some(position),
                    _ => None,
                }
            });
            let mut alone: Vec<u64> = alone.collect();
            let mut together = sstable.cached_positions(&sought, &mut Vec::new());
            alone.sort_unstable();
            together.sort_unstable();
            assert_eq!(together, alone);
            found += together.len();
        }
        assert!(found > 2_000, "{found} positions");
    }

    #[test]
    fn nothing_is_read_from_the_disk() {
        let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new());
        let sstable = Arc::new(even_partitions(&disk, 5_000));
        let keys: Vec<PartitionKey> = (0..64).map(|number| key(2 * number)).collect();
        let keys: Vec<&PartitionKey> = keys.iter().collect();
        let held = |sstable: &SSTableReader| {
            let index = sstable.files.partitions.cached_pages();
            let blocks = sstable.files.data.cached_blocks();
            let pages = (0..100).filter(|number| index.peek(*number).is_some()).count();
            (pages, (0..100).filter(|number| blocks.peek(*number).is_some()).count(), sstable.data_bytes_read())
        };
        let before = held(&sstable);
        prefetch_partitions(std::slice::from_ref(&sstable), &keys);
        assert_eq!(held(&sstable), before, "without the root");
        read(&sstable, keys[0]);
        let before = held(&sstable);
        prefetch_partitions(std::slice::from_ref(&sstable), &keys);
        assert_eq!(held(&sstable), before, "with some of the pages");
    }
}
