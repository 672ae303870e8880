//! A file of an SSTable.
#![no_main]

use sstable::{Component, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let component = Component::ALL[usize::from(*choice) % Component::ALL.len()];
    let _ = decode::component(component, bytes);
});
