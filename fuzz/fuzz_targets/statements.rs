//! CQL text.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = cql::parse(text);
});
