//! The guardrails of SSTables: sizes of partitions and collections, judged when a flush or a compaction writes them.
//!
//! No request is refused for them. They are messages for the log.

use engine::{Oversize, SizeKind, SizeLimits};

use super::{
    COLLECTION_SIZE, Guardrail, Guardrails, ITEMS_PER_COLLECTION, PARTITION_SIZE, PARTITION_TOMBSTONES, Texts,
};

/// The message of a guardrail that an SSTable violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A value is above the threshold that warns.
    Warning(String),
    /// A value is above the threshold that refuses, where something can be refused.
    Failure(String),
}

impl Guardrails {
    /// The values above which [`Self::size_violation`] returns a violation.
    pub fn size_limits(&self) -> SizeLimits {
        let least = |kind| {
            let Guardrail { warn, fail } = self.of_size(kind).0;
            [warn, fail].into_iter().flatten().filter(|threshold| *threshold > 0).min().unwrap_or(u64::MAX)
        };
        SizeLimits {
            partition_bytes: least(SizeKind::PartitionBytes),
            partition_tombstones: least(SizeKind::PartitionTombstones),
            collection_bytes: least(SizeKind::CollectionBytes),
            collection_items: least(SizeKind::CollectionItems),
        }
    }

    /// The message that Cassandra logs about something large in an SSTable.
    pub fn size_violation(&self, found: &Oversize) -> Option<Violation> {
        let (Guardrail { warn, fail }, texts) = self.of_size(found.kind);
        let passed = |threshold: Option<u64>| threshold.filter(|threshold| *threshold > 0 && found.value > *threshold);
        if let Some(bound) = passed(fail) {
            return Some(Violation::Failure(texts.failed(&found.what, found.value, bound)));
        }
        passed(warn).map(|bound| Violation::Warning(texts.warned(&found.what, found.value, bound)))
    }

    fn of_size(&self, kind: SizeKind) -> (Guardrail, &'static Texts) {
        match kind {
            SizeKind::PartitionBytes => (self.partition_size, &PARTITION_SIZE),
            SizeKind::PartitionTombstones => (self.partition_tombstones, &PARTITION_TOMBSTONES),
            SizeKind::CollectionBytes => (self.collection_size, &COLLECTION_SIZE),
            SizeKind::CollectionItems => (self.items_per_collection, &ITEMS_PER_COLLECTION),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: u64) -> Oversize {
        Oversize { kind: SizeKind::PartitionBytes, value, what: "ks.t:7 on sstable /d/da-1-bti-Data.db".into() }
    }

    #[test]
    fn a_large_partition_warns_or_fails_in_cassandras_words() {
        let text = |value, level, bound| {
            format!(
                "Guardrail partition_size violated: Partition ks.t:7 on sstable /d/da-1-bti-Data.db has size {value}, this \
                 exceeds the {level} threshold of {bound}. Too large partitions can cause performance problems."
            )
        };
        let partition_size = Guardrail { warn: Some(10), fail: Some(20) };
        let guardrails = Guardrails { partition_size, ..Guardrails::default() };
        assert_eq!(guardrails.size_violation(&found(10)), None);
        assert_eq!(guardrails.size_violation(&found(20)), Some(Violation::Warning(text(20, "warning", 10))));
        assert_eq!(guardrails.size_violation(&found(21)), Some(Violation::Failure(text(21, "failure", 20))));
        assert_eq!(guardrails.size_limits(), SizeLimits { partition_bytes: 10, ..SizeLimits::default() });
    }

    #[test]
    fn guardrails_that_are_off_ask_for_no_report() {
        assert_eq!(Guardrails::default().size_limits(), SizeLimits::default());
        let partition_size = Guardrail { warn: Some(0), fail: None };
        let guardrails = Guardrails { partition_size, ..Guardrails::default() };
        assert_eq!(guardrails.size_limits(), SizeLimits::default(), "0 switches a threshold off, as in Cassandra");
    }
}
