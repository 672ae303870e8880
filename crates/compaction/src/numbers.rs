//! Numbers in options, read and printed as in Java and Cassandra.

/// A float or double as `Double.parseDouble` reads it, without the hexadecimal form.
pub(crate) fn double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c| c <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    let digits = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let is_number = |c: char| c.is_ascii_digit() || "+-.eE".contains(c);
    digits.parse().ok().filter(|_| digits.chars().all(is_number))
}

/// The reason why `Double.parseDouble` refuses a text.
fn no_double(text: &str) -> String {
    let text = text.trim_matches(|c| c <= ' ');
    if text.is_empty() { "empty String".to_owned() } else { format!("For input string: \"{text}\"") }
}

/// A share: `0.5` or `50%`.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let text = text.trim_matches(|c| c <= ' ');
    let (digits, unit) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits, 100.0));
    Ok(double(digits).ok_or_else(|| no_double(digits))? / unit)
}

/// The prefixes of units, from 10^-30 (2^-100) on.
const UNIT_PREFIXES: &str = "qryzafpnum KMGTPEZYRQ";
/// The index among them that means no prefix.
const NO_PREFIX: i32 = 10;

/// A number of bytes: `1.5GiB`, `1e9 B`, `2*2^20B`, `4MB` (which is 4,000,000). The error says why it is none.
pub(crate) fn bytes(text: &str) -> Result<f64, String> {
    let Some(body) = text.strip_suffix('B') else { return Err(format!("{text} does not end in unit B")) };
    let (number_end, has_exponent) = number_end(body).ok_or("null")?;
    let mut value = double(&body[..number_end]).ok_or("null")?;
    let mut at = number_end;
    if !has_exponent && let Some((power, end)) = binary_exponent(body, at) {
        (value, at) = (value * 2_f64.powi(power), end);
    }
    at += body[at..].len() - body[at..].trim_start().len();
    if let Some(prefix) = body[at..].chars().next().and_then(|prefix| UNIT_PREFIXES.find(prefix)) {
        let power = prefix as i32 - NO_PREFIX;
        let is_binary = body[at + 1..].starts_with('i');
        value *= if is_binary { 2_f64.powi(power * 10) } else { 1000_f64.powi(power) };
        at += 1 + usize::from(is_binary);
    }
    if at < body.len() {
        return Err(format!("Unexpected characters between pos {at} and {} in {text}", body.len()));
    }
    Ok(value)
}

/// Where the number at the start of a text ends, and whether it has a decimal exponent.
fn number_end(text: &str) -> Option<(usize, bool)> {
    let unsigned = usize::from(text.starts_with(['+', '-']));
    for word in ["NaN", "Infinity"] {
        if text[unsigned..].starts_with(word) && (word != "NaN" || unsigned == 0) {
            return Some((unsigned + word.len(), false));
        }
    }
    let integer = digits_end(text, unsigned).filter(|end| *end > unsigned)?;
    let fraction = text[integer..].starts_with('.').then(|| digits_end(text, integer + 1)).flatten();
    let end = fraction.filter(|end| *end > integer + 1).unwrap_or(integer);
    if !text[end..].starts_with(['e', 'E']) {
        return Some((end, false));
    }
    let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
    let exponent = digits_end(text, end + 1 + sign).filter(|past| *past > end + 1 + sign);
    Some(exponent.map_or((end, false), |past| (past, true)))
}

fn digits_end(text: &str, from: usize) -> Option<usize> {
    let rest = text.get(from..)?;
    Some(from + rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len())
}

/// `*2^20` at a position of a text, and where it ends.
fn binary_exponent(text: &str, at: usize) -> Option<(i32, usize)> {
    let digits = at + "*2^".len();
    text[at..].strip_prefix("*2^")?;
    let sign = usize::from(text[digits..].starts_with(['+', '-']));
    let end = digits_end(text, digits + sign)?;
    Some((text[digits..end].parse().ok()?, end))
}

/// Bytes as Cassandra prints them: `100B`, `1.000MiB`.
pub(crate) fn pretty_bytes(bytes: i64) -> String {
    let power = (63 - bytes.unsigned_abs().max(1).leading_zeros()) / 10;
    match UNIT_PREFIXES.chars().nth(NO_PREFIX as usize + power as usize) {
        Some(prefix) if power > 0 => format!("{:.3}{prefix}iB", bytes as f32 / 2_f32.powi(power as i32 * 10)),
        _ => format!("{bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_binary_and_decimal_units_and_exponents() {
        let sound = [
            ("1B", 1.0),
            ("1.5GiB", 1.5 * 1073741824.0),
            ("4MB", 4e6),
            ("1e3 KiB", 1024e3),
            ("2*2^20B", 2097152.0),
            ("-1B", -1.0),
            ("10mB", 0.01),
            ("7\tTiB", 7.0 * 1099511627776.0),
        ];
        for (text, expected) in sound {
            let read = bytes(text).unwrap();
            assert!((read - expected).abs() <= expected.abs() * 1e-12, "{text}: {read}");
        }
        assert!(bytes("NaNB").unwrap().is_nan());
        let wrong = [
            ("1GiB ", "1GiB  does not end in unit B"),
            ("B", "null"),
            ("fiveB", "null"),
            ("5 potatoesB", "Unexpected characters between pos 3 and 10 in 5 potatoesB"),
            ("1.B", "Unexpected characters between pos 1 and 2 in 1.B"),
        ];
        for (text, why) in wrong {
            assert_eq!(bytes(text).unwrap_err(), why, "{text}");
        }
    }

    #[test]
    fn bytes_are_printed_with_three_digits() {
        let printed = [0, 1023, 1024, 1 << 20, 734003200, -5].map(pretty_bytes);
        assert_eq!(printed, ["0B", "1023B", "1.000KiB", "1.000MiB", "700.000MiB", "-5B"]);
    }

    #[test]
    fn doubles_are_those_of_java() {
        for (text, value) in [("0.5", 0.5), (" 5. ", 5.0), (".5", 0.5), ("1e3", 1e3), ("0.25f", 0.25), ("-2D", -2.0)] {
            assert_eq!(double(text), Some(value), "{text}");
        }
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        for wrong in ["", "x", "inf", "nan", "infinity", "1ff", "f", "5 %"] {
            assert_eq!(double(wrong), None, "{wrong}");
        }
        assert_eq!((percent("50 %"), percent("0.5")), (Ok(0.5), Ok(0.5)));
        assert_eq!(percent("%"), Err("empty String".into()));
    }
}
