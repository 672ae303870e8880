//! The forms of the distance between vectors agree.

use types::similarity::{squared_distance, squared_distance_to_bytes};

fn vectors(dimension: usize) -> (Vec<f32>, Vec<f32>) {
    let left = (0..dimension).map(|place| (place as f32 * 0.7 + 0.3).sin()).collect();
    let right = (0..dimension).map(|place| (place as f32 * 1.3 + 1.0).cos()).collect();
    (left, right)
}

#[test]
fn the_distance_to_serialized_elements_is_that_to_the_vector() {
    for dimension in [1, 3, 15, 16, 17, 64, 100, 128, 769] {
        let (left, right) = vectors(dimension);
        let bytes: Vec<u8> = right.iter().flat_map(|element| element.to_le_bytes()).collect();
        assert_eq!(squared_distance_to_bytes(&left, &bytes), squared_distance(&left, &right), "{dimension}");
    }
}
