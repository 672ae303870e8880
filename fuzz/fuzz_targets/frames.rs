//! A connection's bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    protocol::exercise(bytes);
});
