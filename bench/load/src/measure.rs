//! Latencies, samples over time, and the report.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::process::Figures;

/// The report that is printed. Latencies are in microseconds.
#[derive(Serialize)]
pub struct Report {
    pub seconds: f64,
    pub operations: u64,
    pub reads: u64,
    pub writes: u64,
    pub failures: u64,
    /// Conditional writes of which the server said that their turn did not come in time.
    pub timeouts: u64,
    /// The part of the nearest vectors that searches found.
    pub recall: Option<f64>,
    /// The texts of the first failures.
    pub failure_texts: Vec<String>,
    /// The number of places that were read back after the run and were right.
    pub checked: usize,
    pub server_cpu_seconds: f64,
    pub server_system_seconds: f64,
    pub client_cpu_seconds: f64,
    pub server_resident_bytes: u64,
    pub server_written_bytes: u64,
    /// Latencies of all operations, and of each kind.
    pub latency: Option<Latencies>,
    pub read_latency: Option<Latencies>,
    pub write_latency: Option<Latencies>,
    pub samples: Vec<Sample>,
}

/// The figures of about a quarter of a second.
#[derive(Serialize, Clone, Copy)]
pub struct Sample {
    /// Seconds since the measurement began; negative during the warm-up.
    pub seconds: f64,
    pub operations: u64,
    pub server_cpu_seconds: f64,
    pub server_resident_bytes: u64,
}

#[derive(Serialize)]
pub struct Latencies {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// The points of the curve: the share of operations that took longer, and microseconds.
    pub curve: Vec<(f64, f64)>,
}

/// Computes latencies from tenths of microseconds.
pub fn latencies(tenths: &[&[u32]]) -> Option<Latencies> {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, u64::from(u32::MAX), 3).ok()?;
    tenths.iter().flat_map(|part| part.iter()).for_each(|&latency| histogram.saturating_record(u64::from(latency)));
    if histogram.is_empty() {
        return None;
    }
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 10.0;
    let curve = (0..=60).map(|step| {
        let above = 10f64.powf(-f64::from(step) / 12.0);
        (above, at(1.0 - above))
    });
    let enough = |above: &f64| *above * histogram.len() as f64 >= 2.0;
    Some(Latencies {
        count: histogram.len(),
        mean: histogram.mean() / 10.0,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        max: histogram.max() as f64 / 10.0,
        curve: curve.take_while(|(above, _)| enough(above)).collect(),
    })
}

/// The figures of the server and of this process at one moment.
#[derive(Clone, Copy, Default)]
pub struct Moment {
    pub server: Figures,
    pub client: Figures,
}
