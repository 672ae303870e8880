//! Vectors that are the same in every run.

const CENTERS: u64 = 1000;
/// How far vectors are from the center of their cluster, in standard deviations of the centers.
const SPREAD: f32 = 0.25;

/// A set of vectors: each coordinate between 0 and 1, or in clusters.
pub struct VectorSet {
    pub count: usize,
    dimension: usize,
    is_clustered: bool,
}

impl VectorSet {
    /// The set that the arguments of the program name.
    pub fn parse(count: &str, dimension: &str, kind: &str) -> Option<VectorSet> {
        let is_clustered = match kind {
            "uniform" => false,
            "clustered" => true,
            _ => return None,
        };
        Some(VectorSet { count: count.parse().ok()?, dimension: dimension.parse().ok()?, is_clustered })
    }

    /// The vector with this number. Those from `count` on are searched for.
    pub fn vector(&self, number: usize) -> Vec<f32> {
        let number = number as u64 + 1;
        let element = |place: u64| match self.is_clustered {
            false => uniform(number, place),
            true => normal(u64::MAX - mix(number) % CENTERS, place) + SPREAD * normal(number, place),
        };
        (0..self.dimension as u64).map(element).collect()
    }
}

/// The numbers of the vectors that are nearest to a given one.
pub fn nearest(vectors: &[Vec<f32>], wanted: &[f32], count: usize) -> Vec<usize> {
    let distance = |vector: &Vec<f32>| -> f32 { vector.iter().zip(wanted).map(|(a, b)| (a - b) * (a - b)).sum() };
    let mut all: Vec<(f32, usize)> = vectors.iter().map(distance).zip(0..).collect();
    all.select_nth_unstable_by(count, |one, other| one.0.total_cmp(&other.0));
    all.into_iter().take(count).map(|(_, number)| number).collect()
}

/// SplitMix64's finalizer.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number between 0 and 1 that depends on two others.
fn uniform(one: u64, other: u64) -> f32 {
    (mix(mix(one).wrapping_add(other)) >> 40) as f32 / (1 << 24) as f32
}

/// A number with nearly a normal distribution.
fn normal(one: u64, other: u64) -> f32 {
    (0..12).map(|part| uniform(one, other * 12 + part)).sum::<f32>() - 6.0
}
