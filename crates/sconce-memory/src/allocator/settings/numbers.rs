//! Numbers as C++'s `stoull`, `stoi` and `stod` read them: what begins as one is one.

use super::SettingsError;

fn wrong(function: &'static str, word: &str) -> SettingsError {
    SettingsError::NoNumber {
        function,
        word: word.to_owned(),
    }
}

/// The sign and the digits that a word begins with.
fn digits(word: &str) -> Option<(bool, &str)> {
    let (negative, rest) = signed(word);
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    (end > 0).then_some((negative, &rest[..end]))
}

fn signed(word: &str) -> (bool, &str) {
    match word.as_bytes().first() {
        Some(b'-') => (true, &word[1..]),
        Some(b'+') => (false, &word[1..]),
        _ => (false, word),
    }
}

/// `stoull` and `stoul`: a number below zero wraps.
pub(super) fn parse_unsigned(word: &str, function: &'static str) -> Result<u64, SettingsError> {
    let (negative, digits) = digits(word).ok_or_else(|| wrong(function, word))?;
    let value: u64 = digits.parse().map_err(|_| wrong(function, word))?;
    Ok(match negative {
        true => value.wrapping_neg(),
        false => value,
    })
}

/// `stoi`, made a `size_t`.
pub(super) fn parse_int(word: &str) -> Result<u64, SettingsError> {
    let (negative, digits) = digits(word).ok_or_else(|| wrong("stoi", word))?;
    let value: i64 = digits.parse().map_err(|_| wrong("stoi", word))?;
    let value = if negative { -value } else { value };
    match i32::try_from(value) {
        Ok(value) => Ok(i64::from(value).cast_unsigned()),
        Err(_) => Err(wrong("stoi", word)),
    }
}

/// `stod`. What is too large or too near to zero is an error too.
pub(super) fn parse_double(word: &str) -> Result<f64, SettingsError> {
    let (negative, rest) = signed(word);
    let lower = rest.to_ascii_lowercase();
    let value = if lower.starts_with("inf") {
        f64::INFINITY
    } else if lower.starts_with("nan") {
        f64::NAN
    } else if let Some((value, lost)) = lower.strip_prefix("0x").and_then(hexadecimal) {
        ranged(value, lost).ok_or_else(|| wrong("stod", word))?
    } else {
        let (text, zero) = decimal(&lower).ok_or_else(|| wrong("stod", word))?;
        let value: f64 = text.parse().map_err(|_| wrong("stod", word))?;
        ranged(value, !zero).ok_or_else(|| wrong("stod", word))?
    };
    Ok(if negative { -value } else { value })
}

/// What `strtod` reports no range error for; `nonzero`: the text has a digit that is not 0.
fn ranged(value: f64, nonzero: bool) -> Option<f64> {
    (value.is_normal() || (value == 0.0 && !nonzero)).then_some(value)
}

/// The longest beginning that is a decimal number, and whether it is zero.
fn decimal(text: &str) -> Option<(&str, bool)> {
    let bytes = text.as_bytes();
    let run = |from: usize| {
        let rest = &bytes[from.min(bytes.len())..];
        rest.iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let whole = run(0);
    let mut end = whole;
    let mut digits = whole;
    if bytes.get(end) == Some(&b'.') {
        let part = run(end + 1);
        digits += part;
        end += 1 + part;
    }
    if digits == 0 {
        return None;
    }
    let zero = !bytes[..end].iter().any(|b| (b'1'..=b'9').contains(b));
    if bytes.get(end) == Some(&b'e') {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = run(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some((&text[..end], zero))
}

/// The longest beginning that is a hexadecimal number after its `0x`, and whether it has a digit
/// that is not 0. Absent: the `0` of `0x` is the number.
fn hexadecimal(text: &str) -> Option<(f64, bool)> {
    let (mut value, mut scale, mut digits, mut point) = (0.0_f64, 1.0_f64, 0, false);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match c.to_digit(16) {
            Some(digit) => {
                value = value * 16.0 + f64::from(digit);
                digits += 1;
                if point {
                    scale /= 16.0;
                }
            }
            None if c == '.' && !point => point = true,
            None => break,
        }
        rest = &rest[c.len_utf8()..];
    }
    if digits == 0 {
        return None;
    }
    let power = rest
        .strip_prefix('p')
        .and_then(|exponent| parse_int(exponent).ok());
    let power = power.map_or(0, |power| power.cast_signed().clamp(-5000, 5000) as i32);
    Some((value * scale * 2.0_f64.powi(power), value != 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_numbers_end_where_digits_end() {
        for (word, value) in [
            ("64", 64),
            ("+64x", 64),
            ("-1", u64::MAX),
            ("0x20", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_unsigned(word, "stoull"), Ok(value), "{word}");
        }
        for word in ["", "x", "-", "[", "18446744073709551616"] {
            assert!(parse_unsigned(word, "stoull").is_err(), "{word}");
        }
        assert_eq!(parse_int("-1"), Ok(u64::MAX));
        assert_eq!(parse_int("2147483647x"), Ok(2_147_483_647));
        assert!(parse_int("2147483648").is_err() && parse_int("x").is_err());
    }

    /// As torch 2.15.0 took or refused them.
    #[test]
    fn fractions_are_read_as_strtod_does() {
        for (word, value) in [
            (".5", 0.5),
            ("+0.5", 0.5),
            ("0.5e", 0.5),
            ("0.5.5", 0.5),
            ("5e-1zzz", 0.5),
            ("5e-", 5.0),
            ("0x1p-1", 0.5),
            ("0x.8", 0.5),
            ("0x", 0.0),
            ("-0", 0.0),
            ("0e999", 0.0),
            ("infinity", f64::INFINITY),
        ] {
            assert_eq!(parse_double(word), Ok(value), "{word}");
        }
        assert!(parse_double("nan").is_ok_and(f64::is_nan));
        for word in ["x", ".", "", "1e999", "1e-400", "1e-310"] {
            assert!(parse_double(word).is_err(), "{word}");
        }
    }

    proptest! {
        #[test]
        fn any_word_reads(word in "\\PC*") {
            let _ = (parse_unsigned(&word, "stoull"), parse_int(&word), parse_double(&word));
        }

        #[test]
        fn floats_survive(value in -1e300_f64..1e300) {
            prop_assert_eq!(parse_double(&format!("{value:e}")), Ok(value));
        }
    }
}
