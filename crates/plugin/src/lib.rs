//! The shared library that the plugin for Apache Cassandra loads: the native methods of the crate `jni`, and nothing
//! else.
//!
//! It is a package of its own because cargo optimises a shared library across crates only if the same package is not
//! also a library for Rust, which the tests of `jni` need. So it shares the build of all crates below with the server.
#![forbid(unsafe_code)]

use jni as _;
