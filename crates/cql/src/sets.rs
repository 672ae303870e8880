//! The sets of tokens that decide between alternatives, named after their role in the grammar.
//!
//! Cassandra looks a fixed number of tokens ahead, and reports the first token that fits no alternative *anywhere* in
//! its grammar. The sets of what may follow a construct are therefore wider than what the current statement allows. The
//! error texts depend on them.

use super::token::TokenKind::*;
use super::token::TokenSet;

/// Keywords that may be names of anything, including functions and types.
pub(crate) const BASIC: TokenSet = TokenSet::of(&[
    KAccess,
    KAggregate,
    KAggregates,
    KAll,
    KAnn,
    KAs,
    KCalled,
    KCidrs,
    KCluster,
    KClustering,
    KCompact,
    KContains,
    KCustom,
    KDatacenters,
    KDefault,
    KExists,
    KFiltering,
    KFinalfunc,
    KFrozen,
    KFunction,
    KFunctions,
    KGroup,
    KHashed,
    KIdentity,
    KInitcond,
    KInput,
    KInternals,
    KKeys,
    KKeyspaces,
    KLanguage,
    KLike,
    KList,
    KLogin,
    KMap,
    KMasked,
    KMbean,
    KMbeans,
    KNologin,
    KNosuperuser,
    KOnly,
    KOptions,
    KPartition,
    KPassword,
    KPer,
    KPermission,
    KPermissions,
    KReplace,
    KReturns,
    KRole,
    KRoles,
    KSelectMasked,
    KSfunc,
    KStatic,
    KStorage,
    KStype,
    KSuperuser,
    KTables,
    KTrigger,
    KTuple,
    KType,
    KTypes,
    KUnmask,
    KUnset,
    KUser,
    KUsers,
    KValues,
    KVector,
]);

/// Names of native types; they may name columns and functions.
pub(crate) const NATIVE_TYPE: TokenSet = TokenSet::of(&[
    KAscii, KBigint, KBlob, KBoolean, KCounter, KDate, KDecimal, KDouble, KDuration, KFloat, KInet, KInt, KSmallint,
    KText, KTime, KTimestamp, KTimeuuid, KTinyint, KUuid, KVarchar, KVarint,
]);

/// Keywords that may be names of columns and tables, but (except COUNT) not of functions.
pub(crate) const OTHER_UNRESERVED: TokenSet =
    TokenSet::of(&[KCast, KCount, KDistinct, KJson, KKey, KMaxwritetime, KTtl, KWritetime]);

/// Keywords that may be identifiers.
pub(crate) const UNRESERVED: TokenSet = BASIC.and(NATIVE_TYPE).and(OTHER_UNRESERVED);

/// Identifiers of columns, fields and tables.
pub(crate) const IDENTIFIER: TokenSet = UNRESERVED.and(TokenSet::of(&[Ident, QuotedName]));

/// Identifiers of columns in queries: also the empty name.
pub(crate) const COLUMN: TokenSet = IDENTIFIER.and(TokenSet::of(&[EmptyQuotedName]));

/// Identifiers of keyspaces, tables and indexes; a marker is refused later with its own message.
pub(crate) const TABLE_NAME: TokenSet = IDENTIFIER.and(TokenSet::of(&[QMark]));

/// Names of functions without TOKEN.
pub(crate) const FUNCTION_NAME: TokenSet = BASIC.and(NATIVE_TYPE).and(TokenSet::of(&[Ident, QuotedName, KCount]));

/// Keywords that can only be the keyspace of a function.
pub(crate) const NO_FUNCTION_NAME: TokenSet = OTHER_UNRESERVED.without(TokenSet::of(&[KCount]));

/// First tokens of a term that is a function call, ignoring CAST and keyspaces.
pub(crate) const FUNCTION_OR_CAST: TokenSet = FUNCTION_NAME.and(TokenSet::of(&[KCast]));

/// Keywords that can only be the keyspace of a function, excluding CAST.
pub(crate) const NO_FUNCTION_NO_CAST: TokenSet = NO_FUNCTION_NAME.without(TokenSet::of(&[KCast]));

/// Constants.
pub(crate) const CONSTANT: TokenSet = TokenSet::of(&[
    StringLiteral,
    Integer,
    Float,
    Boolean,
    Duration,
    Uuid,
    HexNumber,
    KPositiveNan,
    KNegativeNan,
    KPositiveInfinity,
    KNegativeInfinity,
]);

/// Comparisons.
pub(crate) const RELATION: TokenSet = TokenSet::of(&[Equal, Less, LessEq, Greater, GreaterEq, NotEqual]);

/// Tokens that start a term and nothing else.
pub(crate) const TERM_ONLY: TokenSet =
    CONSTANT.and(TokenSet::of(&[OpenParen, Minus, Colon, OpenBracket, OpenBrace, KNull, KToken, QMark]));

/// First tokens of a term.
pub(crate) const TERM: TokenSet = TERM_ONLY.and(IDENTIFIER);

/// The tokens that may follow a term.
pub(crate) const AFTER_TERM: TokenSet = TokenSet::of(&[
    Eof,
    CloseParen,
    Comma,
    Colon,
    Semicolon,
    CloseBracket,
    CloseBrace,
    Range,
    KAllow,
    KAnd,
    KApply,
    KAsc,
    KDelete,
    KDesc,
    KGroup,
    KIf,
    KInsert,
    KLimit,
    KOrder,
    KPer,
    KPrimary,
    KUpdate,
    KWhere,
]);

/// The tokens that may follow a part of a term.
pub(crate) const AFTER_SIMPLE_TERM: TokenSet = AFTER_TERM.and(TokenSet::of(&[KAs, Percent, Plus, Minus, Slash, Star]));

/// The tokens that may follow a parenthesised string in a term, if it is not a type hint.
pub(crate) const AFTER_STRING_TUPLE: TokenSet = AFTER_SIMPLE_TERM.without(TokenSet::of(&[Colon, KAs, KGroup, KPer]));

/// First tokens of an expression after a type hint of a custom type.
pub(crate) const AFTER_CUSTOM_TYPE_HINT: TokenSet = IDENTIFIER
    .and(CONSTANT)
    .and(TokenSet::of(&[OpenParen, OpenBracket, OpenBrace, KNull, KToken, QMark]))
    .without(TokenSet::of(&[KAs, KGroup, KPer]));

/// First tokens of a selected expression.
pub(crate) const SELECTABLE: TokenSet = TERM;

/// The tokens that may follow a selected column or value.
pub(crate) const AFTER_SELECTABLE: TokenSet = TokenSet::of(&[
    Eof,
    Percent,
    CloseParen,
    Plus,
    Comma,
    Minus,
    Slash,
    Colon,
    Semicolon,
    OpenBracket,
    Star,
    CloseBracket,
    CloseBrace,
    KAllow,
    KAs,
    KFrom,
    KLimit,
    KOrder,
    KPer,
]);

/// The tokens that may follow a type.
pub(crate) const AFTER_TYPE: TokenSet = TokenSet::of(&[
    Eof, CloseParen, Comma, Semicolon, Greater, KFinalfunc, KInitcond, KLanguage, KMasked, KPrimary, KStatic,
]);

/// The tokens that may follow the name of a table.
pub(crate) const AFTER_TABLE_NAME: TokenSet = TokenSet::of(&[
    Eof,
    OpenParen,
    Semicolon,
    KAdd,
    KAllow,
    KAlter,
    KAs,
    KDrop,
    KFrom,
    KGroup,
    KJson,
    KLimit,
    KNorecursive,
    KOf,
    KOrder,
    KPer,
    KPrimary,
    KRename,
    KSet,
    KTo,
    KUsing,
    KWhere,
    KWith,
]);

/// Names of roles.
pub(crate) const ROLE_NAME: TokenSet = TABLE_NAME.and(TokenSet::of(&[StringLiteral]));

/// Permissions that are reserved words.
pub(crate) const RESERVED_PERMISSION: TokenSet =
    TokenSet::of(&[KAlter, KAuthorize, KCreate, KDescribe, KDrop, KExecute, KModify, KSelect]);

/// Permissions.
pub(crate) const PERMISSION: TokenSet = RESERVED_PERMISSION.and(TokenSet::of(&[KSelectMasked, KUnmask]));

/// The tokens that may follow the name of a resource.
pub(crate) const AFTER_RESOURCE: TokenSet = TokenSet::of(&[Eof, Semicolon, KFrom, KNorecursive, KOf, KTo]);
