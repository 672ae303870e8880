//! Similarity as distance: vectors become points, of which the nearest to a target is the most similar to it.
//!
//! Graphs need distances that obey the triangle inequality. Under cosine similarity a point is the vector at length 1.
//! Under dot products it has one coordinate more, which makes all points of a segment as long as the longest vector;
//! the target has zero there.

use types::Similarity;
use types::similarity::{dot_product, squared_distance, squared_distance_to_bytes};

/// The points of one segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Space {
    pub similarity: Similarity,
    /// Under dot products the square of every point's length, else 0.
    pub squared_length: f32,
}

/// What is searched for, as a point.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    space: Space,
    point: Vec<f32>,
    squared_length: f32,
}

/// How many coordinates the point of a vector has.
pub(crate) fn coordinates(similarity: Similarity, dimension: usize) -> usize {
    dimension + usize::from(similarity == Similarity::DotProduct)
}

impl Space {
    /// The space of vectors of this dimension, which follow one another.
    pub fn of(similarity: Similarity, dimension: usize, vectors: &[f32]) -> Space {
        let squared_length = match similarity {
            Similarity::DotProduct => {
                let lengths = vectors.chunks_exact(dimension.max(1)).map(|vector| dot_product(vector, vector));
                lengths.fold(0.0, f32::max)
            }
            _ => 0.0,
        };
        Space { similarity, squared_length }
    }

    /// Appends the point of a vector.
    pub fn push_point(self, vector: &[f32], out: &mut Vec<f32>) {
        match self.similarity {
            Similarity::Euclidean => out.extend_from_slice(vector),
            Similarity::Cosine => {
                let length = f64::from(dot_product(vector, vector)).sqrt() as f32;
                out.extend(vector.iter().map(|element| element / length));
            }
            Similarity::DotProduct => {
                out.extend_from_slice(vector);
                out.push((self.squared_length - dot_product(vector, vector)).max(0.0).sqrt());
            }
        }
    }

    /// The target for a wanted vector.
    pub fn target(self, vector: &[f32]) -> Target {
        let mut point = Vec::with_capacity(vector.len() + 1);
        match self.similarity {
            Similarity::DotProduct => {
                point.extend_from_slice(vector);
                point.push(0.0);
            }
            _ => self.push_point(vector, &mut point),
        }
        Target { space: self, squared_length: dot_product(vector, vector), point }
    }
}

impl Target {
    /// A point itself.
    pub fn of_point(point: &[f32]) -> Target {
        let space = Space { similarity: Similarity::Euclidean, squared_length: 0.0 };
        Target { space, squared_length: 0.0, point: point.to_vec() }
    }

    /// The square of the distance to a point.
    pub fn distance(&self, point: &[f32]) -> f32 {
        squared_distance(&self.point, point)
    }

    /// As [`Target::distance`], of a point whose coordinates are serialized, little-endian.
    pub fn distance_to_bytes(&self, point: &[u8]) -> f32 {
        squared_distance_to_bytes(&self.point, point)
    }

    /// The similarity of the vector at this distance.
    pub fn score(&self, distance: f32) -> f32 {
        match self.space.similarity {
            Similarity::Euclidean => 1.0 / (1.0 + distance),
            Similarity::Cosine => 1.0 - distance / 4.0,
            Similarity::DotProduct => {
                let product = (self.squared_length + self.space.squared_length - distance) / 2.0;
                (1.0 + product) / 2.0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_point_is_the_most_similar_vector() {
        let vector = |seed: f32| -> Vec<f32> { (0..9).map(|place| (seed + place as f32 * 1.7).sin() * seed).collect() };
        let vectors: Vec<f32> = (1..30).flat_map(|seed| vector(seed as f32)).collect();
        let wanted = vector(0.5);
        for similarity in Similarity::ALL {
            let space = Space::of(similarity, 9, &vectors);
            let target = space.target(&wanted);
            for vector in vectors.chunks(9) {
                let mut point = Vec::new();
                space.push_point(vector, &mut point);
                assert_eq!(point.len(), coordinates(similarity, 9));
                let (found, exact) = (target.score(target.distance(&point)), similarity.score(vector, &wanted));
                assert!((found - exact).abs() <= 1e-4 * exact.abs().max(1.0), "{similarity:?}: {found} and {exact}");
            }
        }
    }
}
