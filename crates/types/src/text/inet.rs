//! Internet addresses. Host names are refused, not looked up.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::MarshalError;

pub(super) fn parse(text: &str) -> Result<Vec<u8>, MarshalError> {
    ipv4(text)
        .map(|address| address.octets().to_vec())
        .or_else(|| ipv6(text))
        .ok_or_else(|| MarshalError::new(format!("Unable to make inet address from '{text}'")))
}

/// One to four decimal parts; the last one fills the remaining bytes: `1.2` is 1.0.0.2.
fn ipv4(text: &str) -> Option<Ipv4Addr> {
    if text.len() > 15 {
        return None;
    }
    let parts: Vec<&str> = text.split('.').collect();
    let (last, firsts) = parts.split_last()?;
    if firsts.len() > 3 {
        return None;
    }
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u64>().ok())?;
    let mut address = 0;
    for part in firsts {
        address = address << 8 | number(part).filter(|&byte| byte < 256)?;
    }
    let bits_left = 32 - 8 * firsts.len() as u32;
    let last = number(last).filter(|&last| last < 1 << bits_left)?;
    Some(Ipv4Addr::from((address << bits_left | last) as u32))
}

/// With or without brackets, and with or without a numeric scope, which is dropped. An IPv4 address in IPv6 form is an
/// IPv4 address.
fn ipv6(text: &str) -> Option<Vec<u8>> {
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = match inside.split_once('%') {
        None => inside,
        Some((address, scope)) if !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_digit()) => address,
        Some(_) => return None,
    };
    let address: Ipv6Addr = address.parse().ok()?;
    Some(match address.to_ipv4_mapped() {
        Some(address) => address.octets().to_vec(),
        None => address.octets().to_vec(),
    })
}

/// A serialized address as text; all eight parts of an IPv6 address. `None` if it is neither 4 nor 16 bytes.
pub fn format_inet(value: &[u8]) -> Option<String> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(Ipv4Addr::from(octets).to_string());
    }
    let address = Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?);
    if let Some(address) = address.to_ipv4_mapped() {
        return Some(address.to_string());
    }
    Some(address.segments().map(|segment| format!("{segment:x}")).join(":"))
}
