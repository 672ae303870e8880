//! Similarity of vectors of floats.

use types::CqlType;

use super::{Function, native};
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::Assignable;

/// The similarity function of this name, for vectors of the arguments' dimension.
pub(super) fn function(
    name: &str,
    arguments: &[&dyn Assignable],
    preparing: &Preparing<'_>,
) -> Result<Option<Function>, QueryError> {
    let similarity: fn(&[f32], &[f32]) -> f32 = match name {
        "similarity_cosine" => cosine,
        "similarity_euclidean" => euclidean,
        "similarity_dot_product" => dot_product,
        _ => return Ok(None),
    };
    const PARAMETERS: &str = "vector<float, n>, vector<float, n>";
    if arguments.len() != 2 {
        return Err(QueryError::invalid(format!(
            "Invalid number of arguments for function system.{name}({PARAMETERS})"
        )));
    }
    let mut types = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let ty = match (argument.literal_length(), argument.compatible_type(preparing)) {
            (Some(length), _) => Some(CqlType::vector(CqlType::Float, length as u32)),
            (None, ty) => ty,
        };
        types.push(ty);
    }
    let known = types.iter().flatten().next().cloned();
    let ty = known.ok_or_else(|| native::cannot_infer(arguments[0], name, PARAMETERS))?;
    for (argument, found) in arguments.iter().zip(types.iter()) {
        let found = found.as_ref().unwrap_or(&ty);
        if !matches!(found, CqlType::Vector { element, .. } if **element == CqlType::Float) {
            return Err(QueryError::invalid(format!(
                "Function system.{name} requires a float vector argument, but found argument {argument} of type {found}"
            )));
        }
    }
    if types.iter().flatten().any(|found| *found != ty) {
        return Err(QueryError::invalid("All arguments must have the same vector dimensions"));
    }
    let function = Function::of_values(name, vec![ty.clone(), ty], CqlType::Float, move |call, values| {
        let (left, right) = (floats(values[0]), floats(values[1]));
        let all_zeros = |vector: &[f32]| vector.iter().all(|value| *value == 0.0);
        if call.function.name == "similarity_cosine" && (all_zeros(&left) || all_zeros(&right)) {
            let name = call.function.qualified_name();
            return Err(QueryError::invalid(format!("Function {name} doesn't support all-zero vectors.")));
        }
        Ok(Some(similarity(&left, &right).to_be_bytes().to_vec()))
    });
    Ok(Some(function))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_be_bytes([chunk[0], chunk[1], chunk[2], chunk[3]])).collect()
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

/// The similarity is scaled to 0 to 1, as in Cassandra's index.
fn cosine(left: &[f32], right: &[f32]) -> f32 {
    let norm = (f64::from(dot(left, left)) * f64::from(dot(right, right))).sqrt();
    (1.0 + (f64::from(dot(left, right)) / norm) as f32) / 2.0
}

fn euclidean(left: &[f32], right: &[f32]) -> f32 {
    let squares: f32 = left.iter().zip(right).map(|(a, b)| (a - b) * (a - b)).sum();
    1.0 / (1.0 + squares)
}

fn dot_product(left: &[f32], right: &[f32]) -> f32 {
    (1.0 + dot(left, right)) / 2.0
}
