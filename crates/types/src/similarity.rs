//! The similarity of two vectors of floats, for indexes that find the vectors most similar to a given one.
//!
//! The functions are those of Cassandra's vector indexes. Their sums are added up in another order than those of the
//! CQL functions `similarity_cosine` and the like, so that the compiler can use wide registers; the last bit may
//! differ.

/// How many numbers are summed side by side.
const LANES: usize = 16;

/// The greatest absolute value of an element in an indexed vector. Its square is still a finite float.
const ELEMENT_MAX: f32 = 1e17;

/// A function that says how similar two vectors are. More is more similar.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum Similarity {
    /// By the square of the distance.
    Euclidean,
    /// By the dot product.
    DotProduct,
    /// By the angle.
    Cosine,
}

/// The reason why a vector cannot be indexed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Unindexable {
    /// The element at this place is not a finite number.
    NotFinite(usize, f32),
    /// The element at this place is too large.
    OutOfBounds(usize, f32),
    /// All elements are zero, so that the vector has no direction.
    AllZero,
}

impl Similarity {
    /// All of them, in the order of their numbers in files and of Cassandra's error texts.
    pub const ALL: [Similarity; 3] = [Similarity::Euclidean, Similarity::DotProduct, Similarity::Cosine];

    /// The name in options, in capitals.
    pub fn name(self) -> &'static str {
        match self {
            Similarity::Euclidean => "EUCLIDEAN",
            Similarity::DotProduct => "DOT_PRODUCT",
            Similarity::Cosine => "COSINE",
        }
    }

    /// The function of this name in small or capital letters.
    pub fn of_name(name: &str) -> Option<Similarity> {
        Similarity::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(name))
    }

    /// Checks that a vector can be compared with others.
    pub fn check(self, vector: &[f32]) -> Result<(), Unindexable> {
        for (place, element) in vector.iter().enumerate() {
            if !element.is_finite() {
                return Err(Unindexable::NotFinite(place, *element));
            }
            if element.abs() > ELEMENT_MAX {
                return Err(Unindexable::OutOfBounds(place, *element));
            }
        }
        let is_zero = self == Similarity::Cosine && vector.iter().all(|element| *element == 0.0);
        if is_zero { Err(Unindexable::AllZero) } else { Ok(()) }
    }

    /// The similarity of two vectors of the same dimension that [`Similarity::check`] accepts. It is between 0 and 1,
    /// except for dot products of vectors that are longer than 1.
    pub fn score(self, left: &[f32], right: &[f32]) -> f32 {
        match self {
            Similarity::Euclidean => 1.0 / (1.0 + squared_distance(left, right)),
            Similarity::DotProduct => (1.0 + dot_product(left, right)) / 2.0,
            Similarity::Cosine => (1.0 + cosine(left, right) as f32) / 2.0,
        }
    }
}

/// The sum of the products of two vectors' elements.
pub fn dot_product(left: &[f32], right: &[f32]) -> f32 {
    sum(left, right, |one, other| one * other)
}

/// The square of the distance between two vectors.
pub fn squared_distance(left: &[f32], right: &[f32]) -> f32 {
    sum(left, right, |one, other| (one - other) * (one - other))
}

/// As [`dot_product`], with a vector whose elements are serialized, little-endian.
pub fn dot_product_to_bytes(left: &[f32], right: &[u8]) -> f32 {
    sum_with_bytes(left, right, |one, other| one * other)
}

/// As [`squared_distance`], with a vector whose elements are serialized, little-endian.
pub fn squared_distance_to_bytes(left: &[f32], right: &[u8]) -> f32 {
    sum_with_bytes(left, right, |one, other| (one - other) * (one - other))
}

/// The length of a vector. It is correct even if its square is not a normal float.
pub fn length(vector: &[f32]) -> f64 {
    let squared = dot_product(vector, vector);
    match squared.is_normal() {
        true => f64::from(squared).sqrt(),
        false => exact_dot_product(vector, vector).sqrt(),
    }
}

/// The dot product of vectors whose products need not be normal floats.
fn exact_dot_product(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(one, other)| f64::from(*one) * f64::from(*other)).sum()
}

/// The cosine of the angle between two vectors, of which none is all zero.
fn cosine(left: &[f32], right: &[f32]) -> f64 {
    let quick = dot_product(left, right);
    let product = if quick.is_normal() { f64::from(quick) } else { exact_dot_product(left, right) };
    product / (length(left) * length(right))
}

#[inline(always)]
fn sum_with_bytes(left: &[f32], right: &[u8], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (lefts, left_rest) = left.as_chunks::<LANES>();
    let (rights, right_rest) = right.as_chunks::<{ LANES * 4 }>();
    let mut sums = [0.0; LANES];
    for (left, right) in lefts.iter().zip(rights) {
        let right = right.as_chunks::<4>().0;
        for lane in 0..LANES {
            sums[lane] += term(left[lane], f32::from_le_bytes(right[lane]));
        }
    }
    let rest = right_rest.as_chunks::<4>().0.iter().map(|element| f32::from_le_bytes(*element));
    let rest: f32 = left_rest.iter().zip(rest).map(|(one, other)| term(*one, other)).sum();
    sums.iter().sum::<f32>() + rest
}

#[inline(always)]
fn sum(left: &[f32], right: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (lefts, left_rest) = left.as_chunks::<LANES>();
    let (rights, right_rest) = right.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (left, right) in lefts.iter().zip(rights) {
        for lane in 0..LANES {
            sums[lane] += term(left[lane], right[lane]);
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(one, other)| term(*one, *other)).sum();
    sums.iter().sum::<f32>() + rest
}

/// Appends the elements of a serialized `vector<float, n>`.
pub fn read_floats(bytes: &[u8], out: &mut Vec<f32>) {
    let (elements, _) = bytes.as_chunks::<4>();
    out.extend(elements.iter().map(|element| f32::from_be_bytes(*element)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similarities_are_those_of_their_definitions_at_any_dimension() {
        for dimension in 1..70 {
            let left: Vec<f32> = (0..dimension).map(|place| (place as f32 * 0.7 + 0.3).sin()).collect();
            let right: Vec<f32> = (0..dimension).map(|place| (place as f32 * 1.3 + 1.0).cos()).collect();
            let exact = |term: fn(f64, f64) -> f64| -> f64 {
                left.iter().zip(&right).map(|(one, other)| term(f64::from(*one), f64::from(*other))).sum()
            };
            let (dot, distance) = (exact(|one, other| one * other), exact(|one, other| (one - other).powi(2)));
            let length = |vector: &[f32]| vector.iter().map(|element| f64::from(*element).powi(2)).sum::<f64>().sqrt();
            let is_near = |similarity: Similarity, wanted: f64| {
                let score = f64::from(similarity.score(&left, &right));
                assert!((score - wanted).abs() < 1e-4, "{similarity:?} of {dimension}: {score} and {wanted}");
            };
            is_near(Similarity::Euclidean, 1.0 / (1.0 + distance));
            is_near(Similarity::DotProduct, (1.0 + dot) / 2.0);
            is_near(Similarity::Cosine, (1.0 + dot / (length(&left) * length(&right))) / 2.0);
        }
    }

    #[test]
    fn the_cosine_does_not_depend_on_the_lengths_of_the_vectors() {
        let (left, right) = ([3.0_f32, 4.0, 0.5], [1.0_f32, -2.0, 7.0]);
        let wanted = Similarity::Cosine.score(&left, &right);
        let scaled = |vector: [f32; 3], factor: f32| vector.map(|element| element * factor);
        for factors in [(1e-30, 1.0), (1e-37, 1e-37), (1e-30, 1e16), (1e16, 1e16)] {
            let score = Similarity::Cosine.score(&scaled(left, factors.0), &scaled(right, factors.1));
            assert!((score - wanted).abs() < 1e-5, "{factors:?}: {score} and {wanted}");
        }
        let long = vec![1e17; 1 << 16];
        assert!((Similarity::Cosine.score(&long, &long) - 1.0).abs() < 1e-5, "the square of the length is infinite");
    }

    #[test]
    fn vectors_that_cannot_be_compared_are_refused_with_the_reason() {
        assert_eq!(Similarity::Cosine.check(&[0.0, -0.0]), Err(Unindexable::AllZero));
        assert_eq!(Similarity::Euclidean.check(&[0.0, 0.0]), Ok(()));
        assert!(matches!(Similarity::Euclidean.check(&[0.0, f32::NAN]), Err(Unindexable::NotFinite(1, _))));
        assert_eq!(Similarity::DotProduct.check(&[-1e18]), Err(Unindexable::OutOfBounds(0, -1e18)));
    }
}
