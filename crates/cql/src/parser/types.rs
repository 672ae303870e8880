//! Types.

use super::{Parsed, Parser, Stop, sets};
use crate::ast::{NativeType, TypeName};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

const MARSHAL_PACKAGE: &str = "org.apache.cassandra.db.marshal.";

const MARSHAL_CLASSES: [&str; 34] = [
    "AsciiType",
    "BooleanType",
    "ByteType",
    "BytesType",
    "CompositeType",
    "CounterColumnType",
    "DateType",
    "DecimalType",
    "DoubleType",
    "DurationType",
    "DynamicCompositeType",
    "EmptyType",
    "FloatType",
    "FrozenType",
    "InetAddressType",
    "Int32Type",
    "IntegerType",
    "LexicalUUIDType",
    "ListType",
    "LongType",
    "MapType",
    "ReversedType",
    "SetType",
    "ShortType",
    "SimpleDateType",
    "TimeType",
    "TimeUUIDType",
    "TimestampType",
    "TupleType",
    "UTF8Type",
    "UUIDType",
    "UserType",
    "VectorType",
    "LegacyTimeUUIDType",
];

impl Parser<'_> {
    /// Any type.
    pub(super) fn type_name(&mut self) -> Parsed<TypeName> {
        let kind = self.kind();
        let after_name = sets::AFTER_TYPE.and(TokenSet::of(&[Dot]));
        if sets::NATIVE_TYPE.contains(kind) {
            return match self.decide(2, after_name)? {
                Dot => self.user_type(),
                _ => Ok(TypeName::Native(self.native_type()?)),
            };
        }
        if !matches!(kind, KList | KMap | KTuple | KVector | KFrozen) {
            self.decide(1, sets::IDENTIFIER.and(TokenSet::of(&[KSet, StringLiteral])))?;
        }
        match kind {
            KSet => self.nested(Self::collection_type),
            KList | KMap | KTuple | KVector | KFrozen => {
                if self.decide(2, after_name.and(TokenSet::of(&[Less])))? == Less {
                    self.nested(Self::collection_type)
                } else {
                    self.user_type()
                }
            }
            StringLiteral => self.custom_type(),
            _ => self.user_type(),
        }
    }

    fn user_type(&mut self) -> Parsed<TypeName> {
        Ok(TypeName::UserType { name: self.user_type_name()?, frozen: false })
    }

    /// A type with types in angle brackets.
    fn collection_type(&mut self) -> Parsed<TypeName> {
        let kind = self.kind();
        self.advance();
        self.expect(Less)?;
        let type_name = match kind {
            KSet => TypeName::Set { element: Box::new(self.type_name()?), frozen: false },
            KList => TypeName::List { element: Box::new(self.type_name()?), frozen: false },
            KMap => {
                let key = Box::new(self.type_name()?);
                self.expect(Comma)?;
                TypeName::Map { key, value: Box::new(self.type_name()?), frozen: false }
            }
            // The types inside a tuple are frozen with it.
            KTuple => TypeName::Tuple(self.list(Self::type_name)?).freeze(),
            KVector => {
                let element = Box::new(self.type_name()?);
                self.expect(Comma)?;
                let text = self.expect_text(Integer)?;
                self.expect(Greater)?;
                return Ok(TypeName::Vector { element, dimension: self.java_int(&text)? });
            }
            _ => self.type_name()?,
        };
        self.expect(Greater)?;
        if kind == KFrozen {
            return Ok(self.freeze(type_name));
        }
        Ok(type_name)
    }

    fn freeze(&mut self, type_name: TypeName) -> TypeName {
        if !type_name.supports_freezing() {
            let message =
                format!("frozen<> is only allowed on collections, tuples, and user-defined types (got {type_name})");
            self.complain(message);
        }
        type_name.freeze()
    }

    /// A marshal class. It is interpreted later, but its name must be one of Cassandra's.
    fn custom_type(&mut self) -> Parsed<TypeName> {
        let text = self.take_text().into_owned();
        let class = text.split(|c: char| !(c.is_alphanumeric() || "-+._&".contains(c))).next().unwrap_or_default();
        let simple = class.strip_prefix(MARSHAL_PACKAGE).unwrap_or(class);
        if !class.is_empty() && !MARSHAL_CLASSES.contains(&simple) {
            let package = if class.contains('.') { "" } else { MARSHAL_PACKAGE };
            self.complain(format!("Error setting type {text}: Unable to find abstract-type class '{package}{class}'"));
        }
        Ok(TypeName::Custom(text))
    }

    /// A native type.
    pub(super) fn native_type(&mut self) -> Parsed<NativeType> {
        let kind = self.require(1, sets::NATIVE_TYPE)?;
        self.advance();
        native_type_of(kind).map_or_else(|| self.no_alternative(1), Ok)
    }

    /// A number that Cassandra reads into 32 bits.
    fn java_int(&mut self, text: &str) -> Parsed<i32> {
        text.parse().map_err(|_| self.number_format(text))
    }

    /// A number that Cassandra reads into 64 bits.
    pub(super) fn java_long(&mut self, text: &str) -> Parsed<i64> {
        text.parse().map_err(|_| self.number_format(text))
    }

    fn number_format(&self, number: &str) -> Stop {
        Stop::Thrown(
            format!(
                "Failed parsing statement: [{}] reason: NumberFormatException For input string: \"{number}\"",
                self.text
            )
            .into(),
        )
    }
}

fn native_type_of(kind: TokenKind) -> Option<NativeType> {
    Some(match kind {
        KAscii => NativeType::Ascii,
        KBigint => NativeType::Bigint,
        KBlob => NativeType::Blob,
        KBoolean => NativeType::Boolean,
        KCounter => NativeType::Counter,
        KDate => NativeType::Date,
        KDecimal => NativeType::Decimal,
        KDouble => NativeType::Double,
        KDuration => NativeType::Duration,
        KFloat => NativeType::Float,
        KInet => NativeType::Inet,
        KInt => NativeType::Int,
        KSmallint => NativeType::Smallint,
        KText => NativeType::Text,
        KTime => NativeType::Time,
        KTimestamp => NativeType::Timestamp,
        KTimeuuid => NativeType::Timeuuid,
        KTinyint => NativeType::Tinyint,
        KUuid => NativeType::Uuid,
        KVarchar => NativeType::Varchar,
        KVarint => NativeType::Varint,
        _ => return None,
    })
}
