//! Types as marshal class strings, which Cassandra uses in sstable headers, `system_schema` and error texts.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::user_type::TYPE_DEPTH_MAX;
use crate::{CqlType, MarshalError, UserType};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

/// Deeper nesting in a class string is refused, so that a hostile string cannot exhaust the stack. A type of the
/// greatest depth has more nested classes than types: a key's class and `FrozenType`s.
const DEPTH_MAX: usize = 2 * TYPE_DEPTH_MAX as usize + 2;

/// The class of a column or key: a type, possibly inside a class that only keys have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarshalClass {
    Plain(CqlType),
    /// A clustering column in descending order.
    Reversed(CqlType),
    /// A partition key of several columns.
    Composite(Vec<CqlType>),
}

impl MarshalClass {
    /// Parses a class string. A name without dots is in Cassandra's own package.
    pub fn parse(text: &str) -> Result<MarshalClass, MarshalError> {
        let mut parser = Parser { text, at: 0 };
        let class = parser.key_class()?;
        parser.skip_blanks();
        if parser.at < text.len() { Err(parser.error("unexpected text")) } else { Ok(class) }
    }

    /// The class string, as Cassandra prints it.
    pub fn name(&self) -> String {
        let mut out = String::new();
        match self {
            MarshalClass::Plain(inner) => print(inner, false, &mut out),
            MarshalClass::Reversed(inner) => {
                out.push_str(PACKAGE);
                out.push_str("ReversedType(");
                print(inner, false, &mut out);
                out.push(')');
            }
            MarshalClass::Composite(components) => {
                out.push_str(PACKAGE);
                out.push_str("CompositeType(");
                print_list(components, false, &mut out);
                out.push(')');
            }
        }
        out
    }
}

impl CqlType {
    /// The full marshal class string of this type.
    pub fn to_marshal_class(&self) -> String {
        let mut out = String::new();
        print(self, false, &mut out);
        out
    }

    /// Parses a marshal class string as the type of a value: a reversed class is the type inside it. Classes without a
    /// CQL type, including composite ones, become [`CqlType::Custom`].
    pub fn parse_marshal_class(text: &str) -> Result<CqlType, MarshalError> {
        match MarshalClass::parse(text)? {
            MarshalClass::Plain(inner) | MarshalClass::Reversed(inner) => Ok(inner),
            composite @ MarshalClass::Composite(_) => Ok(CqlType::Custom(composite.name().into())),
        }
    }
}

/// With `inside_frozen`, nested types are frozen anyway and have no wrapper of their own.
fn print(cql_type: &CqlType, inside_frozen: bool, out: &mut String) {
    if let CqlType::Custom(class) = cql_type {
        out.push_str(class);
        return;
    }
    let wrapped = !inside_frozen
        && !cql_type.is_multi_cell()
        && (cql_type.is_collection() || matches!(cql_type, CqlType::Udt { .. }));
    if wrapped {
        out.push_str(PACKAGE);
        out.push_str("FrozenType(");
    }
    let inside = inside_frozen || wrapped;
    out.push_str(PACKAGE);
    out.push_str(simple_name(cql_type));
    match cql_type {
        CqlType::List { element, .. } | CqlType::Set { element, .. } => {
            out.push('(');
            print(element, inside, out);
            out.push(')');
        }
        CqlType::Map { key, value, .. } => {
            out.push('(');
            print(key, inside, out);
            out.push(',');
            print(value, inside, out);
            out.push(')');
        }
        CqlType::Tuple(elements) => {
            out.push('(');
            print_list(elements, true, out);
            out.push(')');
        }
        CqlType::Udt { definition, .. } => print_udt(definition, inside, out),
        CqlType::Vector { element, dimension } => {
            out.push('(');
            print(element, inside, out);
            let _ = write!(out, " , {dimension})");
        }
        _ => {}
    }
    if wrapped {
        out.push(')');
    }
}

fn print_list(elements: &[CqlType], inside_frozen: bool, out: &mut String) {
    for (i, element) in elements.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        print(element, inside_frozen, out);
    }
}

fn print_udt(definition: &UserType, inside_frozen: bool, out: &mut String) {
    out.push('(');
    out.push_str(&definition.keyspace);
    out.push(',');
    print_hex(&definition.name, out);
    for (name, field) in definition.fields() {
        out.push(',');
        print_hex(name, out);
        out.push(':');
        print(field, inside_frozen, out);
    }
    out.push(')');
}

fn print_hex(name: &str, out: &mut String) {
    crate::hex::write(name.as_bytes(), out);
}

fn simple_name(cql_type: &CqlType) -> &'static str {
    match cql_type {
        CqlType::Ascii => "AsciiType",
        CqlType::Bigint => "LongType",
        CqlType::Blob => "BytesType",
        CqlType::Boolean => "BooleanType",
        CqlType::Counter => "CounterColumnType",
        CqlType::Date => "SimpleDateType",
        CqlType::Decimal => "DecimalType",
        CqlType::Double => "DoubleType",
        CqlType::Duration => "DurationType",
        CqlType::Empty => "EmptyType",
        CqlType::Float => "FloatType",
        CqlType::Inet => "InetAddressType",
        CqlType::Int => "Int32Type",
        CqlType::Smallint => "ShortType",
        CqlType::Text => "UTF8Type",
        CqlType::Time => "TimeType",
        CqlType::Timestamp => "TimestampType",
        CqlType::Timeuuid => "TimeUUIDType",
        CqlType::Tinyint => "ByteType",
        CqlType::Uuid => "UUIDType",
        CqlType::Varint => "IntegerType",
        CqlType::List { .. } => "ListType",
        CqlType::Set { .. } => "SetType",
        CqlType::Map { .. } => "MapType",
        CqlType::Tuple(_) => "TupleType",
        CqlType::Udt { .. } => "UserType",
        CqlType::Vector { .. } => "VectorType",
        CqlType::Custom(_) => "",
    }
}

/// The type without parameters that corresponds to this class of Cassandra's package.
fn native(simple: &str) -> Option<CqlType> {
    Some(match simple {
        "AsciiType" => CqlType::Ascii,
        "LongType" => CqlType::Bigint,
        "BytesType" => CqlType::Blob,
        "BooleanType" => CqlType::Boolean,
        "CounterColumnType" => CqlType::Counter,
        "SimpleDateType" => CqlType::Date,
        "DecimalType" => CqlType::Decimal,
        "DoubleType" => CqlType::Double,
        "DurationType" => CqlType::Duration,
        "EmptyType" => CqlType::Empty,
        "FloatType" => CqlType::Float,
        "InetAddressType" => CqlType::Inet,
        "Int32Type" => CqlType::Int,
        "ShortType" => CqlType::Smallint,
        "UTF8Type" => CqlType::Text,
        "TimeType" => CqlType::Time,
        // Before 2.0 this was the class of a timestamp.
        "TimestampType" | "DateType" => CqlType::Timestamp,
        "TimeUUIDType" => CqlType::Timeuuid,
        "ByteType" => CqlType::Tinyint,
        "UUIDType" => CqlType::Uuid,
        "IntegerType" => CqlType::Varint,
        _ => return None,
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn key_class(&mut self) -> Result<MarshalClass, MarshalError> {
        let start = self.at;
        match self.simple_name()? {
            "ReversedType" => {
                self.expect('(')?;
                let inner = self.class(1)?;
                self.expect(')')?;
                Ok(MarshalClass::Reversed(inner))
            }
            "CompositeType" if !self.holds_reversed() => Ok(MarshalClass::Composite(self.classes(1)?)),
            _ => {
                self.at = start;
                Ok(MarshalClass::Plain(self.class(0)?))
            }
        }
    }

    fn class(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        if depth > DEPTH_MAX {
            return Err(self.error("types nested too deeply"));
        }
        let simple = self.simple_name()?;
        if let Some(native) = native(simple) {
            return Ok(native);
        }
        match simple {
            "FrozenType" => Ok(self.one(depth)?.freeze()),
            "ReversedType" => self.one(depth),
            "ListType" => Ok(CqlType::list(self.one(depth)?.freeze())),
            "SetType" => Ok(CqlType::set(self.one(depth)?.freeze())),
            "MapType" => self.map(depth),
            "TupleType" => Ok(CqlType::tuple(self.classes(depth)?)),
            "VectorType" => self.vector(depth),
            "UserType" => self.user_type(depth),
            "CompositeType" => self.composite(depth),
            "DynamicCompositeType" => self.dynamic_composite(simple, depth),
            _ => self.custom(simple),
        }
    }

    /// `(T)`
    fn one(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.expect('(')?;
        let inner = self.class(depth + 1)?;
        self.expect(')')?;
        Ok(inner)
    }

    /// `(T,T,...)`
    fn classes(&mut self, depth: usize) -> Result<Vec<CqlType>, MarshalError> {
        self.expect('(')?;
        let mut classes = Vec::new();
        if self.accept(')') {
            return Ok(classes);
        }
        loop {
            classes.push(self.class(depth + 1)?);
            if !self.accept(',') {
                self.expect(')')?;
                return Ok(classes);
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.expect('(')?;
        let key = self.class(depth + 1)?;
        self.expect(',')?;
        let value = self.class(depth + 1)?;
        self.expect(')')?;
        // The parts of a collection are frozen, with or without a wrapper.
        Ok(CqlType::map(key.freeze(), value.freeze()))
    }

    fn vector(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.expect('(')?;
        let element = self.class(depth + 1)?;
        self.expect(',')?;
        let dimension = self.word()?;
        let dimension = match dimension.parse::<u32>() {
            Ok(dimension) if (1..=i32::MAX as u32).contains(&dimension) => dimension,
            _ => return Err(self.error("vectors may only have positive dimensions")),
        };
        self.expect(')')?;
        Ok(CqlType::vector(element.freeze(), dimension))
    }

    fn user_type(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        self.expect('(')?;
        let keyspace = Arc::from(self.word()?);
        self.expect(',')?;
        let name = self.hex_word()?;
        let mut fields = Vec::new();
        while self.accept(',') {
            let field = self.hex_word()?;
            self.expect(':')?;
            fields.push((field, self.class(depth + 1)?));
        }
        self.expect(')')?;
        // The types inside a non-frozen user type are frozen; they are written with their wrappers, but may lack them.
        let fields = fields.into_iter().map(|(name, field)| (name, field.freeze())).collect();
        Ok(CqlType::Udt { definition: Arc::new(UserType::new(keyspace, name, fields)), frozen: false })
    }

    /// A composite value, written with full class names; a part may be in descending order.
    fn composite(&mut self, depth: usize) -> Result<CqlType, MarshalError> {
        let mut class = format!("{PACKAGE}CompositeType(");
        self.expect('(')?;
        loop {
            self.part(depth + 1, &mut class)?;
            if !self.accept(',') {
                self.expect(')')?;
                class.push(')');
                return Ok(CqlType::Custom(class.into()));
            }
            class.push(',');
        }
    }

    /// `(a=>T,b=>T,...)`: written with full class names, in the order of Cassandra's hash map. Any other form is kept
    /// unchanged.
    fn dynamic_composite(&mut self, simple: &str, depth: usize) -> Result<CqlType, MarshalError> {
        let start = self.at;
        match self.aliases(depth) {
            Ok(mut aliases) => {
                // Java's maps start with 16 slots and double when more than three quarters are taken.
                let slots = (aliases.len() * 4).div_ceil(3).next_power_of_two().max(16);
                aliases.sort_by_key(|(alias, _)| usize::from(*alias) & (slots - 1));
                let parts: Vec<String> =
                    aliases.iter().map(|(alias, class)| format!("{}=>{class}", char::from(*alias))).collect();
                Ok(CqlType::Custom(format!("{PACKAGE}DynamicCompositeType({})", parts.join(",")).into()))
            }
            Err(_) => {
                self.at = start;
                self.custom(simple)
            }
        }
    }

    fn aliases(&mut self, depth: usize) -> Result<Vec<(u8, String)>, MarshalError> {
        self.expect('(')?;
        let mut aliases = Vec::new();
        loop {
            let &[alias] = self.word()?.as_bytes() else { return Err(self.error("expected an alias of one letter")) };
            self.expect('=')?;
            self.expect('>')?;
            let mut class = String::new();
            self.part(depth + 1, &mut class)?;
            aliases.push((alias, class));
            if !self.accept(',') {
                self.expect(')')?;
                return Ok(aliases);
            }
        }
    }

    /// Appends a part of a composite value with full class names.
    fn part(&mut self, depth: usize, out: &mut String) -> Result<(), MarshalError> {
        let start = self.at;
        let is_reversed = self.simple_name()? == "ReversedType";
        self.at = start;
        let part = self.class(depth)?;
        match is_reversed {
            true => out.push_str(&MarshalClass::Reversed(part).name()),
            false => print(&part, false, out),
        }
        Ok(())
    }

    /// Whether a part of the class that follows is reversed, which the composite of a partition key never has.
    fn holds_reversed(&self) -> bool {
        self.text[self.at..].contains("ReversedType")
    }

    /// A class without a type, with its parameters kept unchanged.
    fn custom(&mut self, simple: &str) -> Result<CqlType, MarshalError> {
        let mut class = if simple.contains('.') { String::new() } else { String::from(PACKAGE) };
        class.push_str(simple);
        let start = self.at;
        if self.accept('(') {
            let mut open = 1usize;
            while open > 0 {
                let Some(c) = self.text[self.at..].chars().next() else {
                    return Err(self.error("missing ')'"));
                };
                self.at += c.len_utf8();
                match c {
                    '(' => open += 1,
                    ')' => open -= 1,
                    _ => {}
                }
            }
            class.push_str(self.text[start..self.at].trim_start());
        }
        Ok(CqlType::Custom(class.into()))
    }

    /// A class name, without Cassandra's package.
    fn simple_name(&mut self) -> Result<&'a str, MarshalError> {
        let word = self.word()?;
        Ok(match word.strip_prefix(PACKAGE) {
            Some(simple) if !simple.contains('.') => simple,
            _ => word,
        })
    }

    fn word(&mut self) -> Result<&'a str, MarshalError> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-' | '+' | '&');
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.error("expected a name"));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    fn hex_word(&mut self) -> Result<Arc<str>, MarshalError> {
        let word = self.word()?;
        crate::hex::parse(word)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .map(Arc::from)
            .ok_or_else(|| self.error("expected a name in hexadecimal"))
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n']).len();
    }

    fn accept(&mut self, c: char) -> bool {
        self.skip_blanks();
        let found = self.text[self.at..].starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<(), MarshalError> {
        if self.accept(c) { Ok(()) } else { Err(self.error(&format!("expected '{c}'"))) }
    }

    fn error(&self, what: &str) -> MarshalError {
        MarshalError::new(format!("Syntax error parsing '{}': at char {}: {what}", self.text, self.at))
    }
}
