//! Similarity as distance: vectors are mapped to points, so that the nearest point to a target is the most similar
//! vector.
//!
//! Graphs need distances that obey the triangle inequality. With cosine similarity, a point is the vector scaled to
//! length 1. With dot products, a point has an additional coordinate that makes all points of a segment as long as the
//! longest vector, and the target has zero there. Then the nearest point has the greatest product with the target.
//! Searches compare the products, because distances would lose digits to the square of the longest vector's length.

use types::Similarity;
use types::similarity::{dot_product, dot_product_to_bytes, length, squared_distance, squared_distance_to_bytes};

/// The points of one segment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Space {
    pub similarity: Similarity,
    /// With dot products the square of every point's length, otherwise 0.
    pub squared_length: f32,
}

/// The target of a search.
#[derive(Clone, Debug)]
pub(crate) struct SearchTarget {
    similarity: Similarity,
    /// The target as a point. With dot products the additional coordinate is left out, because it is zero.
    point: Vec<f32>,
}

/// The number of coordinates of a vector's point.
pub(crate) fn coordinates(similarity: Similarity, dimension: usize) -> usize {
    dimension + usize::from(similarity == Similarity::DotProduct)
}

impl Space {
    /// The space of these vectors, all of this dimension and one after the other.
    pub fn of(similarity: Similarity, dimension: usize, vectors: &[f32]) -> Space {
        let squared_length = match similarity {
            Similarity::DotProduct => {
                let lengths = vectors.chunks_exact(dimension.max(1)).map(|vector| dot_product(vector, vector));
                lengths.fold(0.0, f32::max).min(f32::MAX)
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
                let length = length(vector);
                out.extend(vector.iter().map(|element| (f64::from(*element) / length) as f32));
            }
            Similarity::DotProduct => {
                out.extend_from_slice(vector);
                out.push((self.squared_length - dot_product(vector, vector)).max(0.0).sqrt());
            }
        }
    }

    /// The target for a wanted vector.
    pub fn target(self, vector: &[f32]) -> SearchTarget {
        let mut point = Vec::with_capacity(vector.len());
        match self.similarity {
            Similarity::DotProduct => point.extend_from_slice(vector),
            _ => self.push_point(vector, &mut point),
        }
        SearchTarget { similarity: self.similarity, point }
    }
}

impl SearchTarget {
    /// A point as a target.
    pub fn of_point(point: &[f32]) -> SearchTarget {
        SearchTarget { similarity: Similarity::Euclidean, point: point.to_vec() }
    }

    /// A number that is smaller for nearer points: the square of the distance, or the negative product.
    pub fn distance(&self, point: &[f32]) -> f32 {
        match self.similarity {
            Similarity::DotProduct => -dot_product(&self.point, &point[..self.point.len().min(point.len())]),
            _ => squared_distance(&self.point, point),
        }
    }

    /// As [`SearchTarget::distance`], of a point whose coordinates are serialized, little-endian.
    pub fn distance_to_bytes(&self, point: &[u8]) -> f32 {
        match self.similarity {
            Similarity::DotProduct => {
                let vector = &point[..(self.point.len() * 4).min(point.len())];
                -dot_product_to_bytes(&self.point, vector)
            }
            _ => squared_distance_to_bytes(&self.point, point),
        }
    }

    /// The similarity of the vector at this distance.
    pub fn score(&self, distance: f32) -> f32 {
        match self.similarity {
            Similarity::Euclidean => 1.0 / (1.0 + distance),
            Similarity::Cosine => 1.0 - distance / 4.0,
            Similarity::DotProduct => (1.0 - distance) / 2.0,
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

    #[test]
    fn short_vectors_beside_a_long_one_keep_their_products() {
        let vectors: Vec<f32> = (1..50).flat_map(|k| [(k as f32 / 10.0).cos(), (k as f32 / 10.0).sin()]).collect();
        let all: Vec<f32> = [[1e8, 0.0].as_slice(), &vectors].concat();
        let space = Space::of(Similarity::DotProduct, 2, &all);
        let target = space.target(&[0.0, 1.0]);
        for vector in vectors.chunks(2) {
            let mut point = Vec::new();
            space.push_point(vector, &mut point);
            let score = target.score(target.distance(&point));
            assert_eq!(score, Similarity::DotProduct.score(vector, &[0.0, 1.0]));
        }
    }
}
