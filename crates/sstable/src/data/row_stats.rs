//! Statistics of encoded rows: a file keeps them, a message does not.

use model::{Cell, DeletionTime, Liveness};

use crate::stats::StatsCollector;

/// Receives the parts of the data that encoding writes.
pub(crate) trait RowStats {
    fn deletion(&mut self, deletion: DeletionTime);
    fn liveness(&mut self, liveness: &Liveness);
    fn cell(&mut self, cell: &Cell<'_>);
    fn plain_row(&mut self, timestamp: i64, cells: usize);
    fn row(&mut self, columns_set: usize);
}

impl RowStats for StatsCollector {
    fn deletion(&mut self, deletion: DeletionTime) {
        StatsCollector::deletion(self, deletion);
    }
    fn liveness(&mut self, liveness: &Liveness) {
        StatsCollector::liveness(self, liveness);
    }
    fn cell(&mut self, cell: &Cell<'_>) {
        StatsCollector::cell(self, cell);
    }
    fn plain_row(&mut self, timestamp: i64, cells: usize) {
        StatsCollector::plain_row(self, timestamp, cells);
    }
    fn row(&mut self, columns_set: usize) {
        StatsCollector::row(self, columns_set);
    }
}

/// Keeps no statistics.
pub(crate) struct NoStats;

impl RowStats for NoStats {
    fn deletion(&mut self, _: DeletionTime) {}
    fn liveness(&mut self, _: &Liveness) {}
    fn cell(&mut self, _: &Cell<'_>) {}
    fn plain_row(&mut self, _: i64, _: usize) {}
    fn row(&mut self, _: usize) {}
}
