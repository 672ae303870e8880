#![doc = include_str!("../FORMAT.md")]
#![forbid(unsafe_code)]

mod clustering;
mod decimal;
mod decode;
mod encode;
mod escape;
mod key;
mod number;
mod reader;
pub mod separator;

pub use clustering::{ClusteringColumnType, decode_clustering, encode_clustering, encode_serialized_clustering};
pub use decode::{decode_value, decode_value_reversed};
pub use encode::{encode_value, encode_value_reversed, is_invertible};
pub use key::{
    Side, decode_decorated_key, decode_decorated_key_into, decode_leading_key, encode_decorated_key, encode_key_bound,
    encode_token_bound,
};
pub use reader::DecodeError;
