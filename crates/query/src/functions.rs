//! Native functions: the set of all functions, the choice among functions of one name, and calls.

mod aggregate;
mod arithmetic;
mod blob;
mod cast;
mod collections;
mod hash;
mod json;
mod mask;
mod math;
mod native;
mod number;
mod precise;
mod resolve;
mod time;
mod vector;

use std::fmt;
use std::sync::Arc;

use cql::ast::{ArithmeticOperator, FunctionName, Identifier, NativeType};
use types::CqlType;

use crate::execution::Execution;
use crate::terms::{Bound, Term};
use crate::{ColumnSpec, ErrorKind, QueryError};

pub(crate) use aggregate::{Accumulator, Aggregate};
pub(crate) use mask::{is_mask, of_column as of_column_mask};
pub(crate) use native::is_made_for_arguments;
pub(crate) use number::refuse_long as refuse_long_numbers;
pub(crate) use resolve::resolve;

/// Computes a scalar function. Arguments are serialized values of the function's argument types.
type ScalarFn = dyn Fn(&Call<'_>, &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, QueryError> + Send + Sync;

/// The context of a function body, besides its arguments.
pub(crate) struct Call<'a> {
    /// The function itself, for its types.
    pub function: &'a Function,
    /// The execution, for the clock.
    pub execution: &'a Execution<'a>,
}

/// The largest value that a function may return, and that an expression may build from other values.
pub(crate) const RESULT_BYTES_MAX: usize = 64 << 20;

/// A check of one argument that does not depend on the others.
struct ArgumentCheck {
    place: usize,
    check: fn(&Function, &[u8]) -> Result<(), QueryError>,
}

/// A function of certain argument types.
pub(crate) struct Function {
    /// The name in lower case, without the keyspace, which is always `system`.
    pub name: String,
    pub arguments: Vec<CqlType>,
    pub returns: CqlType,
    /// Whether results do not decrease when the first argument grows, so that rows can be grouped by it.
    pub is_monotonic: bool,
    check: Option<ArgumentCheck>,
    body: Body,
}

enum Body {
    Scalar(Box<ScalarFn>),
    Aggregate(Aggregate),
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signature())
    }
}

impl Function {
    /// A function of arguments that may be null.
    fn scalar(
        name: &str,
        arguments: Vec<CqlType>,
        returns: CqlType,
        body: impl Fn(&Call<'_>, &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, QueryError> + Send + Sync + 'static,
    ) -> Function {
        let body = Body::Scalar(Box::new(body));
        Function { name: name.to_owned(), arguments, returns, is_monotonic: false, check: None, body }
    }

    /// A function that returns null if an argument is null, or is empty and has a type in which empty means null.
    fn of_values(
        name: &str,
        arguments: Vec<CqlType>,
        returns: CqlType,
        body: impl Fn(&Call<'_>, &[&[u8]]) -> Result<Option<Vec<u8>>, QueryError> + Send + Sync + 'static,
    ) -> Function {
        Function::scalar(name, arguments, returns, move |call, arguments| {
            let mut values = Vec::with_capacity(arguments.len());
            for (argument, ty) in arguments.iter().zip(&call.function.arguments) {
                match argument {
                    Some(bytes) if !is_null(ty, bytes) => {
                        number::refuse_long(ty, bytes)?;
                        values.push(*bytes);
                    }
                    _ => return Ok(None),
                }
            }
            let result = body(call, &values)?;
            result.iter().try_for_each(|result| number::refuse_long(&call.function.returns, result))?;
            Ok(result)
        })
    }

    fn aggregate(name: &str, arguments: Vec<CqlType>, returns: CqlType, aggregate: Aggregate) -> Function {
        let body = Body::Aggregate(aggregate);
        Function { name: name.to_owned(), arguments, returns, is_monotonic: false, check: None, body }
    }

    fn monotonic(self) -> Function {
        Function { is_monotonic: true, ..self }
    }

    /// Adds a check of the argument at `place` to the function.
    fn checking(self, place: usize, check: fn(&Function, &[u8]) -> Result<(), QueryError>) -> Function {
        Function { check: Some(ArgumentCheck { place, check }), ..self }
    }

    /// The place of the argument that has a check of its own. If that argument is constant, it is checked before any
    /// row is read.
    pub fn checked_argument(&self) -> Option<usize> {
        self.check.as_ref().map(|check| check.place)
    }

    /// Checks that argument.
    pub fn check_argument(&self, value: &[u8]) -> Result<(), QueryError> {
        self.check.as_ref().map_or(Ok(()), |check| (check.check)(self, value))
    }

    /// `system.now`.
    pub fn qualified_name(&self) -> String {
        format!("system.{}", self.name)
    }

    /// `system.sum : (int) -> int`.
    pub fn signature(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        format!("{} : ({}) -> {}", self.qualified_name(), arguments.join(", "), self.returns)
    }

    /// The signature with constants marked, such as `system."_multiply" : (int, int(constant)) -> int`. An argument is
    /// constant if it is known before any row is read.
    pub fn signature_applied_to(&self, is_constant: &[bool]) -> String {
        let name = Identifier::quoted(&self.name);
        let arguments = self.arguments.iter().zip(is_constant);
        let arguments: Vec<String> =
            arguments.map(|(ty, constant)| format!("{ty}{}", if *constant { "(constant)" } else { "" })).collect();
        format!("system.{name} : ({}) -> {}", arguments.join(", "), self.returns)
    }

    /// The receiver of the argument at `place`.
    pub fn argument_spec(&self, place: usize, beside: &ColumnSpec) -> ColumnSpec {
        let ty = self.arguments.get(place).cloned().unwrap_or(CqlType::Blob);
        beside.sibling(format!("arg{place}({})", self.qualified_name()), ty)
    }

    /// Whether the function is an aggregate.
    pub fn is_aggregate(&self) -> bool {
        matches!(self.body, Body::Aggregate(_))
    }

    /// A new accumulator of an aggregate function.
    pub fn accumulator(&self) -> Option<Accumulator> {
        match &self.body {
            Body::Aggregate(aggregate) => Some(aggregate.accumulator()),
            Body::Scalar(_) => None,
        }
    }

    /// The name of a result column that contains a call on columns of these names.
    pub fn column_name(&self, arguments: &[String]) -> String {
        match (operator_symbol(&self.name), arguments) {
            (Some(symbol), [left, right]) => format!("{left} {symbol} {right}"),
            (_, [argument]) if self.name == NEGATION => format!("-{argument}"),
            (_, [argument]) if self.name.starts_with(CAST_PREFIX) => format!("cast({argument} as {})", self.returns),
            (_, []) if self.name == aggregate::COUNT_ROWS => "count".to_owned(),
            _ => format!("{}({})", self.qualified_name(), arguments.join(", ")),
        }
    }

    /// The steps that a call takes with arguments of these bytes in all, beside reading them. The product or quotient
    /// of two long numbers takes nearly the square of their digits.
    pub fn steps_of_digits(&self, size_bytes: usize) -> u64 {
        const SQUARE_BYTES_PER_STEP: u64 = 1 << 14;
        let is_long = |ty: &CqlType| matches!(ty, CqlType::Varint | CqlType::Decimal);
        match self.arguments.iter().any(is_long) {
            true => (size_bytes as u64).saturating_mul(size_bytes as u64) / SQUARE_BYTES_PER_STEP,
            false => 0,
        }
    }

    /// Calls a scalar function. A result larger than any value that can be stored is refused, because nested calls
    /// could double it at every level.
    pub fn call(&self, execution: &Execution<'_>, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, QueryError> {
        let Body::Scalar(body) = &self.body else {
            return Err(QueryError::server("an aggregate function called as a scalar one"));
        };
        let result = body(&Call { function: self, execution }, arguments)?;
        match &result {
            Some(value) if value.len() > RESULT_BYTES_MAX => Err(self.failure(
                &self.name,
                format!("the result of {} has more than {RESULT_BYTES_MAX} bytes", self.qualified_name()),
            )),
            _ => Ok(result),
        }
    }

    /// The error for a function that failed on its arguments.
    fn failure(&self, name: &str, message: String) -> QueryError {
        let kind = ErrorKind::FunctionFailure {
            keyspace: "system".into(),
            function: name.into(),
            arguments: self.arguments.iter().map(ToString::to_string).collect(),
        };
        QueryError::new(kind, message)
    }
}

/// Whether native functions treat these bytes as null. Empty bytes are null, except in types in which empty is an
/// ordinary value.
pub(crate) fn is_null(ty: &CqlType, bytes: &[u8]) -> bool {
    bytes.is_empty() && !matches!(ty, CqlType::Ascii | CqlType::Text | CqlType::Blob | CqlType::Custom(_))
}

/// A call with prepared arguments.
#[derive(Clone, Debug)]
pub(crate) struct FunctionCall {
    pub function: Arc<Function>,
    pub arguments: Vec<Term>,
}

impl FunctionCall {
    /// The value of the call; `None` is null.
    pub fn execute(&self, execution: &Execution<'_>) -> Result<Option<Vec<u8>>, QueryError> {
        let mut bound = Vec::with_capacity(self.arguments.len());
        for argument in &self.arguments {
            let value = argument.bind(execution)?;
            if value == Bound::Unset {
                let name = &self.function.name;
                let message = format!("Invalid unset value for argument in call to function {name}");
                return Err(QueryError::invalid(message));
            }
            bound.push(value);
        }
        let arguments: Vec<Option<&[u8]>> = bound.iter().map(Bound::as_bytes).collect();
        self.function.call(execution, &arguments)
    }
}

const NEGATION: &str = "_negate";
const CAST_PREFIX: &str = "cast_as_";

/// Operators by the names of their functions.
const OPERATORS: [(ArithmeticOperator, &str); 5] = [
    (ArithmeticOperator::Add, "_add"),
    (ArithmeticOperator::Subtract, "_substract"),
    (ArithmeticOperator::Multiply, "_multiply"),
    (ArithmeticOperator::Divide, "_divide"),
    (ArithmeticOperator::Modulo, "_modulo"),
];

/// The function behind an operator.
pub(crate) fn operator_name(operator: ArithmeticOperator) -> FunctionName {
    let name = OPERATORS.iter().find(|(known, _)| *known == operator).map_or("", |(_, name)| name);
    FunctionName::unqualified(name)
}

/// The operator behind a function.
pub(crate) fn operator_symbol(name: &str) -> Option<char> {
    OPERATORS.iter().find(|(_, known)| *known == name).map(|(operator, _)| operator.symbol())
}

/// The function behind unary minus.
pub(crate) fn negation_name() -> FunctionName {
    FunctionName::unqualified(NEGATION)
}

/// The function behind CAST.
pub(crate) fn cast_name(ty: NativeType) -> FunctionName {
    FunctionName::unqualified(&format!("{CAST_PREFIX}{}", crate::terms::cast_type(ty)))
}
