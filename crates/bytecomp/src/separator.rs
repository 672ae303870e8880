//! The bytes between and after components, and the short keys between two neighbours.

/// Ends the position of a static row.
pub const EXCLUDED: u8 = 0x18;
/// Ends a bound that sorts before everything that has its prefix.
pub const LT_NEXT_COMPONENT: u8 = 0x20;
/// Ends a row's position, a tuple, a collection, a vector, a decorated key.
pub const TERMINATOR: u8 = 0x38;
/// The component is null, or (inside a tuple, collection or vector) has no encoding; nothing follows for it.
pub const NEXT_COMPONENT_NULL: u8 = 0x3e;
/// An ascending clustering component that exists but has no encoding (such as an empty int).
pub const NEXT_COMPONENT_EMPTY: u8 = 0x3f;
/// A component with bytes follows.
pub const NEXT_COMPONENT: u8 = 0x40;
/// Like [`NEXT_COMPONENT_EMPTY`], descending.
pub const NEXT_COMPONENT_EMPTY_REVERSED: u8 = 0x41;
/// Ends a bound that sorts after everything that has its prefix.
pub const GT_NEXT_COMPONENT: u8 = 0x60;

/// Writes the shortest sequence that is greater than `previous` (and everything that starts with `previous` up to its
/// first difference from `next`) and not greater than `next`: the common prefix and the byte after `previous`'s own.
pub fn write_separator_after(previous: &[u8], next: &[u8], out: &mut Vec<u8>) {
    let common = previous.iter().zip(next).take_while(|(a, b)| a == b).count();
    out.extend_from_slice(&previous[..common]);
    // Weakly prefix-free keys with previous < next always differ at a byte of both, and previous's is the smaller one.
    if let Some(byte) = previous.get(common) {
        out.push(byte.saturating_add(1));
    }
}
