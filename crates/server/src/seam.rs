#![allow(missing_docs, dead_code)]
mod client;
mod error;
mod options;
mod response;
pub use client::*;
pub use error::*;
pub use options::*;
pub use response::*;
