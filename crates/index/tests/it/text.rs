//! Indexes of text that is divided, and of suffixes.

use std::ops::Bound;
use std::sync::Arc;

use index::{Batch, Candidates, Indexer, KeyBounds, MemoryIndex, Source, TermRange};
use model::{
    Analysis, Cell, Division, IndexPart, KeyRange, LetterCase, PartitionKey, PartitionUpdateBuilder, RowBuilder, Table,
    TableBuilder, TableId,
};
use types::CqlType;
use uuid::Uuid;

fn table() -> Arc<Table> {
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil())).partition_key("p", CqlType::Int);
    Arc::new(table.regular("v", CqlType::Text).build())
}

/// An index of rows with these texts, whose keys are their places.
fn index_of(table: &Arc<Table>, analysis: Analysis, texts: &[&str]) -> (Indexer, Arc<MemoryIndex>) {
    let indexer = Indexer::with_analysis(table, table.column("v").unwrap(), IndexPart::Whole, analysis);
    let memory = Arc::new(MemoryIndex::new(2));
    for (place, text) in texts.iter().enumerate() {
        let key = PartitionKey::new(&(place as i32).to_be_bytes());
        let (mut row, mut blob) = (RowBuilder::default(), Vec::new());
        row.start(table.regulars(), false);
        row.cell(0, &Cell::live(1, text.as_bytes()));
        row.finish(&mut blob);
        let mut update = PartitionUpdateBuilder::new(table.clone(), key.clone());
        update.row(&[], &blob);
        let (update, mut count, mut bytes) = (update.build(), 0, 0);
        indexer.of_update(&update, &mut Vec::new(), |entry, term_length| {
            if memory.put(key.token(), entry, term_length) > 0 {
                (count, bytes) = (count + 1, bytes + entry.len() as u64);
            }
        });
        let growth = indexer.growth(&update, u64::MAX);
        assert_eq!(growth.entries, count, "{text}");
        assert!(indexer.growth(&update, 0).entries <= 1, "counting ends");
        assert!((bytes..bytes + 64 * count + 1).contains(&growth.size_bytes), "{growth:?} for {bytes} bytes of {text}");
    }
    (indexer, memory)
}

/// The places of the texts that a search gives, ascending.
fn found(indexer: &Indexer, memory: &Arc<MemoryIndex>, terms: &TermRange) -> Vec<i32> {
    let sources = memory.parts().map(|part| Box::new(part) as Box<dyn Source>).collect();
    let all = KeyBounds::of(&KeyRange::all());
    let mut candidates = Candidates::open(sources, terms, &all, true, 1 << 20).unwrap().unwrap();
    let mut places = Vec::new();
    while let Some(key) = candidates.peek() {
        let place = index::decode_row_key(indexer.clustering(), key, &mut Vec::new()).unwrap();
        places.push(i32::from_be_bytes(place.partition.bytes().try_into().unwrap()));
        candidates.advance().unwrap();
    }
    places.sort_unstable();
    places
}

#[test]
fn a_term_is_found_by_its_beginning_its_end_and_what_it_contains() {
    let texts = ["Hello", "yellow and mellow", "low", "a\u{e9}llo", "", "abcdefghijkl", "bcdefghijkl"];
    let analysis = Analysis { case: LetterCase::Lower, has_suffixes: true, ..Analysis::NONE };
    let (indexer, memory) = index_of(&table(), analysis, &texts);
    let begin = |indexer: &Indexer, text: &str| indexer.terms_that_begin(text.as_bytes());
    let end = |indexer: &Indexer, text: &str| indexer.terms_that_contain(text.as_bytes(), true);
    let contain = |indexer: &Indexer, text: &str| indexer.terms_that_contain(text.as_bytes(), false);
    // The caller tests each of them: a beginning is looked for among suffixes too, and long texts by what they begin
    // with.
    for (range, expected) in [
        (contain(&indexer, "ell"), &[0, 1][..]),
        (contain(&indexer, "llo"), &[0, 1, 3]),
        (contain(&indexer, "\u{e9}l"), &[3]),
        (contain(&indexer, "low and mellow"), &[1]),
        (end(&indexer, "llo"), &[0, 3]),
        (end(&indexer, "low"), &[1, 2]),
        (end(&indexer, "bcdefghijkl"), &[5, 6]),
        (end(&indexer, "x"), &[]),
        (begin(&indexer, "hel"), &[0]),
        (begin(&indexer, "abcdefghijkl"), &[5]),
        (begin(&indexer, "\u{e9}"), &[3]),
        (indexer.entries_of_term(b"low"), &[1, 2]),
    ] {
        assert_eq!(found(&indexer, &memory, &range), expected, "{range:?}");
    }
}

#[test]
fn each_word_is_a_term() {
    let analysis = Analysis { division: Division::Words, ..Analysis::NONE };
    let (indexer, memory) = index_of(&table(), analysis, &["one two", "two, three", "twofold", "..."]);
    assert_eq!(found(&indexer, &memory, &indexer.entries_of_term(b"two")), [0, 1]);
    assert_eq!(found(&indexer, &memory, &indexer.terms_that_begin(b"tw")), [0, 1, 2]);
    assert_eq!(found(&indexer, &memory, &indexer.terms_that_begin(b"")), [0, 1, 2]);
}

#[test]
fn candidates_are_passed_over_up_to_a_key() {
    let texts: Vec<&str> = (0..2000).map(|row| if row % 2 == 0 { "even" } else { "odd" }).collect();
    let (indexer, memory) = index_of(&table(), Analysis::NONE, &texts);
    for terms in [indexer.terms_of(b"even"), indexer.terms_between(Some(b"even"), Some(b"even"))] {
        let open = || {
            let sources = memory.parts().map(|part| Box::new(part) as Box<dyn Source>).collect();
            Candidates::open(sources, &terms, &KeyBounds::of(&KeyRange::all()), true, 1 << 20).unwrap().unwrap()
        };
        let (mut all, mut keys) = (open(), Vec::new());
        while let Some(key) = all.peek() {
            keys.push(key.to_vec());
            all.advance().unwrap();
        }
        assert_eq!(keys.len(), 1000);
        for step in [1, 7, 300, 900] {
            let mut candidates = open();
            for key in keys.iter().step_by(step) {
                candidates.advance_to(key).unwrap();
                assert_eq!(candidates.peek(), Some(key.as_slice()));
                // Between this key and the next one.
                candidates.advance_to(&[key.as_slice(), &b"\0"[..]].concat()).unwrap();
                assert!(candidates.peek().is_none_or(|next| next > key.as_slice()));
            }
            candidates.advance_to(b"\xff").unwrap();
            assert_eq!(candidates.peek(), None);
        }
    }
    let mut batch = Batch::default();
    memory.parts().next().unwrap().read(Bound::Unbounded, b"\xff", true, &mut batch).unwrap();
    assert_eq!(batch.first_not_before(batch.len(), b""), batch.len());
}
