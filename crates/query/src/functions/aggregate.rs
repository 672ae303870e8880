//! `count`, `min`, `max`, `sum` and `avg`.

use std::cmp::Ordering;

use num_bigint::BigInt;
use types::{CqlType, Decimal};

use super::number::{self, NUMERIC_TYPES, Number};
use super::{Function, is_null};
use crate::QueryError;

/// The name of `count(*)`, which a call cannot use.
pub(super) const COUNT_ROWS: &str = "countRows";

/// How rows are combined, and the type of the combined values.
#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    kind: Kind,
    ty: CqlType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    CountRows,
    Count,
    Min,
    Max,
    Sum,
    Avg,
}

/// The aggregates of this name, except those that depend on the types of their arguments.
pub(super) fn functions(name: &str) -> Vec<Function> {
    let aggregate = |kind, ty: &CqlType| Aggregate { kind, ty: ty.clone() };
    let numeric = |kind| {
        let function = |ty: &CqlType| Function::aggregate(name, vec![ty.clone()], ty.clone(), aggregate(kind, ty));
        NUMERIC_TYPES.iter().map(function).collect()
    };
    match name {
        COUNT_ROWS => {
            vec![Function::aggregate(name, vec![], CqlType::Bigint, aggregate(Kind::CountRows, &CqlType::Blob))]
        }
        "count" => {
            vec![Function::aggregate(
                name,
                vec![CqlType::Blob],
                CqlType::Bigint,
                aggregate(Kind::Count, &CqlType::Blob),
            )]
        }
        "sum" => numeric(Kind::Sum),
        "avg" => numeric(Kind::Avg),
        _ => Vec::new(),
    }
}

/// `min` or `max` of any type.
pub(super) fn extremum(name: &str, ty: CqlType) -> Function {
    let kind = if name == "min" { Kind::Min } else { Kind::Max };
    Function::aggregate(name, vec![ty.clone()], ty.clone(), Aggregate { kind, ty })
}

/// The aggregate of this name over the elements of a collection.
pub(super) fn over(name: &str, ty: &CqlType) -> Aggregate {
    let kind = match name {
        "min" => Kind::Min,
        "max" => Kind::Max,
        "avg" => Kind::Avg,
        _ => Kind::Sum,
    };
    Aggregate { kind, ty: ty.clone() }
}

impl Aggregate {
    /// An accumulator that has seen nothing.
    pub fn accumulator(&self) -> Accumulator {
        Accumulator { aggregate: self.clone(), count: 0, state: State::Empty }
    }
}

/// Combines the rows of a group.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    aggregate: Aggregate,
    count: i64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Empty,
    /// The best value so far, for min and max.
    Best(Vec<u8>),
    /// The sum of integers.
    Integer(BigInt),
    /// The sum of floats: the compensated sum, its compensation, and the plain sum, which is right for infinities.
    Float {
        sum: f64,
        compensation: f64,
        plain: f64,
    },
    /// The sum of decimals, or their average so far.
    Decimal(Decimal),
}

impl Accumulator {
    /// Adds the arguments of one row.
    pub fn add(&mut self, arguments: &[Option<&[u8]>]) -> Result<(), QueryError> {
        if self.aggregate.kind == Kind::CountRows {
            self.count += 1;
            return Ok(());
        }
        let Some(bytes) = arguments.first().copied().flatten() else { return Ok(()) };
        match self.aggregate.kind {
            Kind::Count | Kind::CountRows => self.count += 1,
            _ if is_null(&self.aggregate.ty, bytes) => {}
            Kind::Min => self.keep(bytes, Ordering::Less),
            Kind::Max => self.keep(bytes, Ordering::Greater),
            Kind::Sum | Kind::Avg => {
                number::refuse_long(&self.aggregate.ty, bytes)?;
                let Some(number) = Number::read(&self.aggregate.ty, bytes) else { return Ok(()) };
                self.count += 1;
                self.sum_up(&number)?;
            }
        }
        Ok(())
    }

    /// The memory of its values, bytes.
    pub fn held_bytes(&self) -> usize {
        let of_number = |number: &BigInt| (number.bits() / 8) as usize;
        match &self.state {
            State::Best(best) => best.len(),
            State::Integer(sum) => of_number(sum),
            State::Decimal(total) => of_number(&total.unscaled),
            State::Empty | State::Float { .. } => 0,
        }
    }

    fn keep(&mut self, bytes: &[u8], wanted: Ordering) {
        let is_better = match &self.state {
            State::Best(best) => self.aggregate.ty.compare(bytes, best) == wanted,
            _ => true,
        };
        if is_better {
            self.state = State::Best(bytes.to_vec());
        }
    }

    fn sum_up(&mut self, number: &Number) -> Result<(), QueryError> {
        let too_large = |error: types::decimal::DecimalError| QueryError::server(error.to_string());
        match (&mut self.state, number) {
            (State::Float { sum, compensation, plain }, Number::Float(_) | Number::Double(_)) => {
                let value = number.to_f64();
                *plain += value;
                let compensated = value - *compensation;
                let total = *sum + compensated;
                *compensation = (total - *sum) - compensated;
                *sum = total;
            }
            (_, Number::Float(_) | Number::Double(_)) => {
                let value = number.to_f64();
                self.state = State::Float { sum: value, compensation: 0.0, plain: value };
            }
            (state, Number::Decimal(value)) => {
                // The sum starts at a zero of scale 0, so even the sum of one value has no scale below 0.
                let zero = Decimal::new(0, 0);
                let so_far = if let State::Decimal(so_far) = &*state { so_far } else { &zero };
                let step = match self.aggregate.kind {
                    // As in Cassandra, an average of decimals is rounded at every step.
                    Kind::Avg => divide_half_even(&value.subtract(so_far).map_err(too_large)?, self.count),
                    _ => value.clone(),
                };
                *state = State::Decimal(so_far.add(&step).map_err(too_large)?);
            }
            (State::Integer(sum), _) => *sum += number.to_bigint(),
            (_, _) => self.state = State::Integer(number.to_bigint()),
        }
        Ok(())
    }

    /// The value of the group.
    pub fn result(&self) -> Result<Option<Vec<u8>>, QueryError> {
        match self.aggregate.kind {
            Kind::CountRows | Kind::Count => Ok(Some(self.count.to_be_bytes().to_vec())),
            Kind::Min | Kind::Max => Ok(match &self.state {
                State::Best(best) => Some(best.clone()),
                _ => None,
            }),
            Kind::Sum => self.total(1),
            Kind::Avg => self.total(self.count.max(1)),
        }
    }

    /// The sum divided by `divisor`, in the type of the summed values; zero if there were none.
    fn total(&self, divisor: i64) -> Result<Option<Vec<u8>>, QueryError> {
        // Decimals are averaged row by row.
        let number = match &self.state {
            State::Float { sum, plain, .. } => {
                let sum = if sum.is_nan() && plain.is_infinite() { *plain } else { *sum };
                Number::Double(sum / divisor as f64)
            }
            State::Decimal(total) => Number::Decimal(total.clone()),
            State::Integer(sum) => Number::Varint(sum / divisor),
            State::Empty | State::Best(_) => Number::Varint(BigInt::ZERO),
        };
        Ok(match (&self.aggregate.ty, number) {
            (CqlType::Varint, Number::Varint(value)) => Some(value.to_signed_bytes_be()),
            (ty, number) => number.cast(ty).map(|number| number.to_bytes()),
        })
    }
}

/// The quotient at the dividend's scale, rounded half to even.
fn divide_half_even(dividend: &Decimal, divisor: i64) -> Decimal {
    let divisor = BigInt::from(divisor);
    let quotient = &dividend.unscaled / &divisor;
    let remainder = &dividend.unscaled % &divisor;
    let doubled: BigInt = &remainder * 2;
    let is_odd = quotient.bit(0);
    let away = match doubled.magnitude().cmp(divisor.magnitude()) {
        Ordering::Greater => true,
        Ordering::Equal => is_odd,
        Ordering::Less => false,
    };
    let step = if dividend.unscaled.sign() == num_bigint::Sign::Minus { -1 } else { 1 };
    Decimal::new(if away { quotient + step } else { quotient }, dividend.scale)
}
