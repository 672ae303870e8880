//! Files and lists of vectors: what a search finds, and what becomes of damaged and hostile files.

use std::path::Path;
use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use index::{
    KeyBounds, NearestSearch, SearchStep, VectorFile, VectorMemory, VectorOptions, VectorSource, VectorWriter,
};
use model::{Analysis, ColumnId, IndexKey, IndexPart, KeyRange};
use sstable::{BlockCache, SSTableError};
use testkit::{Random, seed};
use types::{Similarity, Token};

use crate::support::{disk, origin};

const PATH: &str = "/index/7-vectors.db";
const GRAPHS: VectorOptions = VectorOptions { segment_bytes: 128 << 20, graph_min: 1, always_graph: true };

fn key(similarity: Similarity) -> IndexKey {
    IndexKey { column: ColumnId(7), part: IndexPart::Vectors(similarity), analysis: Analysis::NONE }
}

/// The key of the vector with this number: within all partitions.
fn row_key(number: usize) -> Vec<u8> {
    [&[0x40][..], &(number as u32).to_be_bytes(), &[0x18]].concat()
}

fn number_of(key: &[u8]) -> usize {
    u32::from_be_bytes(key[1..5].try_into().unwrap()) as usize
}

fn serialized(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|element| element.to_be_bytes()).collect()
}

fn write(disk: &Arc<dyn Disk>, similarity: Similarity, vectors: &[Vec<f32>], options: VectorOptions) {
    let mut writer = VectorWriter::create(disk, Path::new(PATH), similarity, options).unwrap();
    for (number, vector) in vectors.iter().enumerate() {
        let bytes = serialized(vector);
        writer.add(&[bytes.as_slice(), &row_key(number)].concat(), bytes.len(), &mut || true).unwrap();
    }
    writer.finish(key(similarity), &origin(), &mut || true).unwrap();
}

fn open(disk: &Arc<dyn Disk>, similarity: Similarity) -> Result<Arc<VectorFile>, SSTableError> {
    VectorFile::open(&**disk, Path::new(PATH), key(similarity), &origin(), &BlockCache::new(64 << 20)).map(Arc::new)
}

fn bytes_of(disk: &Arc<dyn Disk>) -> Vec<u8> {
    let file = disk.open(Path::new(PATH), OpenOptions::read()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn overwrite(disk: &Arc<dyn Disk>, bytes: &[u8]) {
    disk.open(Path::new(PATH), OpenOptions::create()).unwrap().write_at(bytes, 0).unwrap();
}

/// The numbers of the vectors that a search gives, at most `count`, with their scores.
fn found(sources: Vec<Box<dyn VectorSource>>, count: usize) -> Result<Vec<(usize, f32)>, SSTableError> {
    let mut search = NearestSearch::new(sources, KeyBounds::of(&KeyRange::all()));
    let (mut found, mut key) = (Vec::new(), Vec::new());
    while found.len() < count {
        match search.next(&mut key)? {
            SearchStep::Candidate(score) => found.push((number_of(&key), score)),
            SearchStep::Nothing(_) => {}
            SearchStep::End => break,
        }
    }
    Ok(found)
}

/// The numbers of the most similar vectors.
fn exact(similarity: Similarity, vectors: &[Vec<f32>], wanted: &[f32], count: usize) -> Vec<usize> {
    let score = |vector: &Vec<f32>| similarity.score(vector, wanted);
    let mut all: Vec<(usize, f32)> = vectors.iter().map(score).enumerate().collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all.into_iter().take(count).map(|(number, _)| number).collect()
}

fn element(random: &mut Random) -> f32 {
    // The sum of some uniform numbers has nearly a normal distribution.
    (0..4).map(|_| random.below(1 << 20) as f32 / (1 << 20) as f32 - 0.5).sum()
}

fn uniform(random: &mut Random, count: usize, dimension: usize) -> Vec<Vec<f32>> {
    (0..count).map(|_| (0..dimension).map(|_| element(random)).collect()).collect()
}

fn clustered(random: &mut Random, count: usize, dimension: usize) -> Vec<Vec<f32>> {
    let centers = uniform(random, 20, dimension);
    let near = |random: &mut Random| {
        let center = &centers[random.below(centers.len())];
        center.iter().map(|value| value + element(random) / 8.0).collect()
    };
    (0..count).map(|_| near(random)).collect()
}

#[test]
fn a_search_in_a_graph_finds_nearly_all_of_the_most_similar_vectors() {
    let mut random = Random(seed(11));
    for (name, vectors) in
        [("uniform", uniform(&mut random, 1500, 12)), ("clustered", clustered(&mut random, 1500, 24))]
    {
        for similarity in Similarity::ALL {
            let disk = disk();
            write(&disk, similarity, &vectors, GRAPHS);
            let file = open(&disk, similarity).unwrap();
            assert_eq!(file.vector_count(), 1500);
            let (mut hits, searches) = (0, 30);
            for _ in 0..searches {
                let near = &vectors[random.below(vectors.len())];
                let wanted: Vec<f32> = near.iter().map(|value| value + element(&mut random) / 8.0).collect();
                let best = exact(similarity, &vectors, &wanted, 10);
                let found = found(file.search(&wanted, 10), 10).unwrap();
                hits += found.iter().filter(|(number, _)| best.contains(number)).count();
                let descend = |pair: &[(usize, f32)]| pair[0].1 >= pair[1].1;
                assert!(found.windows(2).all(descend), "the most similar first: {found:?}");
                let (number, score) = found[0];
                assert!((score - similarity.score(&vectors[number], &wanted)).abs() < 1e-3, "the score of the vector");
            }
            assert!(hits * 100 >= searches * 10 * 95, "{name} {similarity:?}: {hits} of {}", searches * 10);
        }
    }
}

#[test]
fn a_search_finds_most_of_the_nearest_uniform_and_clustered_vectors() {
    let mut random = Random(seed(16));
    for (name, vectors) in
        [("uniform", uniform(&mut random, 3000, 48)), ("clustered", clustered(&mut random, 3000, 48))]
    {
        let similarity = Similarity::Euclidean;
        let disk = disk();
        write(&disk, similarity, &vectors, VectorOptions::default());
        let file = open(&disk, similarity).unwrap();
        let (mut hits, searches) = (0, 30);
        for wanted in uniform(&mut random, searches, 48) {
            let best = exact(similarity, &vectors, &wanted, 10);
            let found = found(file.search(&wanted, 10), 10).unwrap();
            hits += found.iter().filter(|(number, _)| best.contains(number)).count();
        }
        assert!(hits * 100 >= searches * 10 * 95, "{name}: {hits} of {}", searches * 10);
    }
}

#[test]
fn every_vector_is_found_once_if_all_are_asked_for() {
    let mut random = Random(seed(12));
    let mut vectors = clustered(&mut random, 400, 5);
    // Many equal vectors are neighbours of one another, and far away from the rest.
    vectors.extend(vec![vec![9.0; 5]; 300]);
    for similarity in Similarity::ALL {
        for options in [GRAPHS, VectorOptions { segment_bytes: 6000, ..GRAPHS }, VectorOptions::default()] {
            let disk = disk();
            write(&disk, similarity, &vectors, options);
            let file = open(&disk, similarity).unwrap();
            let mut all = found(file.search(&vectors[0], 10), usize::MAX).unwrap();
            all.sort_by_key(|(number, _)| *number);
            let numbers: Vec<usize> = all.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (0..vectors.len()).collect::<Vec<_>>(), "{similarity:?} {options:?}");
        }
    }
}

#[test]
fn vectors_of_any_dimension_fit_their_pages() {
    let mut random = Random(seed(13));
    for dimension in [1, 2, 3, 127, 511, 990, 1023, 1024, 1025, 3000] {
        let vectors = uniform(&mut random, 40, dimension);
        for graph_min in [1, 1000] {
            let disk = disk();
            write(&disk, Similarity::Euclidean, &vectors, VectorOptions { graph_min, ..GRAPHS });
            let file = open(&disk, Similarity::Euclidean).unwrap();
            for (number, vector) in vectors.iter().enumerate() {
                let (best, score) = found(file.search(vector, 1), 1).unwrap()[0];
                let is_same = best == number || vectors[best] == *vector;
                assert!(is_same && score == 1.0, "{number} of dimension {dimension}: {best} with {score}");
            }
            file.verify().unwrap();
        }
    }
}

#[test]
fn a_list_in_memory_gives_the_most_similar_vectors_in_order() {
    let mut random = Random(seed(14));
    let vectors = uniform(&mut random, 3000, 20);
    for similarity in Similarity::ALL {
        let memory = VectorMemory::new(similarity, 3);
        let mut grown = 0;
        for (number, vector) in vectors.iter().enumerate() {
            let bytes = serialized(vector);
            let entry = [bytes.as_slice(), &row_key(number)].concat();
            grown += memory.put(Token(random.number() as i64), &entry, bytes.len());
        }
        assert_eq!(memory.used_bytes(), grown as u64);
        let wanted: Vec<f32> = (0..20).map(|_| element(&mut random)).collect();
        let numbers = |found: Vec<(usize, f32)>| found.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        let best = numbers(found(vec![memory.search(&wanted)], 50).unwrap());
        assert_eq!(best, exact(similarity, &vectors, &wanted, 50), "{similarity:?}");
    }
}

#[test]
fn vectors_that_cannot_be_compared_are_left_out() {
    let vectors = [vec![0.0, 0.0], vec![f32::NAN, 1.0], vec![f32::INFINITY, 1.0], vec![1e18, 1.0], vec![1.0, 2.0]];
    let (disk, memory) = (disk(), VectorMemory::new(Similarity::Cosine, 1));
    write(&disk, Similarity::Cosine, &vectors, GRAPHS);
    for (number, vector) in vectors.iter().enumerate() {
        let bytes = serialized(vector);
        memory.put(Token(0), &[bytes.as_slice(), &row_key(number)].concat(), bytes.len());
    }
    let file = open(&disk, Similarity::Cosine).unwrap();
    for sources in [file.search(&[1.0, 1.0], 10), vec![memory.search(&[1.0, 1.0])]] {
        let found = found(sources, 10).unwrap();
        assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [4]);
    }
}

#[test]
fn a_file_of_another_index_or_sstable_is_refused() {
    let disk = disk();
    write(&disk, Similarity::Cosine, &[vec![1.0, 2.0]], GRAPHS);
    assert!(open(&disk, Similarity::Euclidean).is_err());
    let other = index::Origin { data_bytes: 101, ..origin() };
    let opened = VectorFile::open(&*disk, Path::new(PATH), key(Similarity::Cosine), &other, &BlockCache::new(1 << 20));
    assert!(opened.is_err());
    assert!(open(&disk, Similarity::Cosine).is_ok());
}

#[test]
fn damage_is_noticed_wherever_it_is() {
    let mut random = Random(seed(15));
    let disk = disk();
    let vectors = uniform(&mut random, 60, 6);
    write(&disk, Similarity::Cosine, &vectors, GRAPHS);
    let bytes = bytes_of(&disk);
    for place in (0..bytes.len()).step_by(61).chain(bytes.len() - 200..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 0x24;
        overwrite(&disk, &damaged);
        let read = open(&disk, Similarity::Cosine).and_then(|file| {
            file.verify()?;
            found(file.search(&vectors[0], 10), usize::MAX)
        });
        assert!(read.is_err(), "byte {place} of {}", bytes.len());
    }
}

/// The bytes of a node's coordinates.
const POINT_BYTES: usize = 6 * 4;
const PAGE: usize = 4096;

/// A file of 60 vectors: its graph has three pages, and the fourth page is the graph above, of three nodes.
fn small_graph() -> (Arc<dyn Disk>, Vec<Vec<f32>>) {
    let disk = disk();
    let vectors = uniform(&mut Random(seed(18)), 60, 6);
    write(&disk, Similarity::Euclidean, &vectors, GRAPHS);
    (disk, vectors)
}

fn u32_at(bytes: &[u8], place: usize) -> u32 {
    u32::from_be_bytes(bytes[place..place + 4].try_into().unwrap())
}

/// Where the footer starts and where its checksum is.
fn footer_of(bytes: &[u8]) -> (usize, usize) {
    let tail = bytes.len() - 12;
    (u32_at(bytes, tail + 4) as usize, tail - 4)
}

/// Makes the checksums of a page and of the footer right again.
fn seal(bytes: &mut [u8], page: usize) {
    let (footer, end) = footer_of(bytes);
    // The footer has the magic number, three numbers, the analysis and the SSTable's id, and 12 bytes before checksums.
    let id = footer + 20 + u32_at(bytes, footer + 16) as usize;
    let crcs = id + 4 + u32_at(bytes, id) as usize + 12;
    let crc = crc32fast::hash(&bytes[page * PAGE..(page + 1) * PAGE]);
    bytes[crcs + page * 4..crcs + page * 4 + 4].copy_from_slice(&crc.to_be_bytes());
    let crc = crc32fast::hash(&bytes[footer..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_be_bytes());
}

#[test]
fn a_neighbour_that_a_graph_above_does_not_have_is_refused() {
    let (disk, vectors) = small_graph();
    let bytes = bytes_of(&disk);
    let neighbour = 3 * PAGE + POINT_BYTES + 4;
    // Node 3 would be in the graph below, and the graph above has three.
    for (number, is_sound) in [(2_u32, true), (3, false), (u32::MAX, false)] {
        let mut changed = bytes.clone();
        changed[neighbour..neighbour + 4].copy_from_slice(&number.to_be_bytes());
        seal(&mut changed, 3);
        overwrite(&disk, &changed);
        let file = open(&disk, Similarity::Euclidean).unwrap();
        assert_eq!(found(file.search(&vectors[0], 10), 10).is_ok(), is_sound, "neighbour {number}");
    }
}

#[test]
fn a_node_above_with_too_many_neighbours_is_refused() {
    let (disk, vectors) = small_graph();
    let mut bytes = bytes_of(&disk);
    bytes[3 * PAGE + POINT_BYTES..3 * PAGE + POINT_BYTES + 4].copy_from_slice(&33_u32.to_be_bytes());
    seal(&mut bytes, 3);
    overwrite(&disk, &bytes);
    assert!(found(open(&disk, Similarity::Euclidean).unwrap().search(&vectors[0], 10), 10).is_err());
}

#[test]
fn a_segment_without_pages_for_the_graph_above_is_refused() {
    let (disk, _) = small_graph();
    let bytes = bytes_of(&disk);
    // The segment starts with the pages of its graph and of its keys.
    let keys_page = footer_of(&bytes).1 - 44 + 8;
    for (page, is_sound) in [(4_u64, true), (3, false)] {
        let mut changed = bytes.clone();
        changed[keys_page..keys_page + 8].copy_from_slice(&page.to_be_bytes());
        seal(&mut changed, 0);
        overwrite(&disk, &changed);
        assert_eq!(open(&disk, Similarity::Euclidean).is_ok(), is_sound, "keys at page {page}");
    }
}

#[test]
fn the_example_of_a_file_is_the_file() {
    let disk = disk();
    let mut writer =
        VectorWriter::create(&disk, Path::new(PATH), Similarity::Euclidean, VectorOptions::default()).unwrap();
    for (vector, key) in [([1.0, 2.0], b"\x40a\x18"), ([3.0, -4.0], b"\x40b\x18")] {
        writer.add(&[serialized(&vector).as_slice(), key].concat(), 8, &mut || true).unwrap();
    }
    writer.finish(key(Similarity::Euclidean), &origin(), &mut || true).unwrap();
    let bytes = bytes_of(&disk);
    let text = include_str!("../../VECTORS.md");
    let lines = text.split("```").nth(3).unwrap().lines().skip(1);
    let hex =
        |text: &str| -> Vec<u8> { text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect() };
    let mut expected = vec![0; bytes.len()];
    for line in lines {
        let (offset, rest) = line.split_once(": ").unwrap();
        let (offset, part) = (usize::from_str_radix(offset, 16).unwrap(), hex(rest));
        expected[offset..offset + part.len()].copy_from_slice(&part);
    }
    assert!(bytes == expected, "{:02x?}", &bytes[8192..]);
}
