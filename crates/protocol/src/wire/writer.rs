//! Writing the protocol's notations.

/// `[short]`.
pub(crate) fn put_short(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[int]`.
pub(crate) fn put_int(out: &mut Vec<u8>, value: i32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// `[string]`. A text that does not fit into a two-byte length is truncated at a character boundary; only texts that
/// echo a statement can be that long.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    let cut = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    put_short(out, cut.len() as u16);
    out.extend_from_slice(cut.as_bytes());
}

/// `[string list]`.
pub(crate) fn put_string_list<T: AsRef<str>>(out: &mut Vec<u8>, texts: &[T]) {
    put_short(out, texts.len() as u16);
    for text in texts {
        put_string(out, text.as_ref());
    }
}

/// `[short bytes]`; at most 65535 of them.
pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
    put_short(out, bytes.len() as u16);
    out.extend_from_slice(bytes);
}

/// `[bytes]`.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_int(out, bytes.len() as i32);
    out.extend_from_slice(bytes);
}
