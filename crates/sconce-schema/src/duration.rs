//! Times that people write: `30m`, `1h30m`, `1.5h`.

use crate::units::UnitError;

/// The forms, as the end of the sentence "… is not …".
const EXPECTED: &str = "a time such as 90s, 30m, 4h, 1h30m, 1.5h, 7d or 2w";
/// Longer is a typing error, milliseconds: ten years.
const MAX_DURATION_MS: u64 = 3650 * 86_400_000;
/// Letters and their milliseconds, the longest first.
const UNITS: [(char, u64); 5] = [
    ('w', 7 * 86_400_000),
    ('d', 86_400_000),
    ('h', 3_600_000),
    ('m', 60_000),
    ('s', 1_000),
];

/// Milliseconds of a text such as `90s`, `30m`, `4h`, `7d`, `2w`; of several of these, from the
/// longest unit to the shortest, each once: `1d12h`; or of one with a decimal point: `1.5h`. Zero is
/// a time.
///
/// # Errors
/// What is none of these, or longer than ten years; the error names the forms.
pub fn parse_milliseconds(text: &str) -> Result<u64, UnitError> {
    read(text.trim()).ok_or_else(|| UnitError::new(text, EXPECTED))
}

fn read(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0_u64);
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let letter = after.chars().next()?;
        // A unit that came before is not found any more, nor is a longer one.
        let (_, factor) = units.find(|(unit, _)| *unit == letter)?;
        let after = &after[letter.len_utf8()..];
        let alone = number.len() + 1 == text.len();
        let ms = match number.split_once('.') {
            None => number.parse::<u64>().ok()?.checked_mul(*factor)?,
            Some((whole, part)) if alone && !whole.is_empty() && !part.is_empty() => {
                (number.parse::<f64>().ok()? * *factor as f64).round() as u64
            }
            Some(_) => return None,
        };
        sum = sum.checked_add(ms)?;
        rest = after;
    }
    (!text.is_empty() && sum <= MAX_DURATION_MS).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_read_what_people_write() {
        const MINUTE: u64 = 60_000;
        for (text, ms) in [
            ("90s", 90_000),
            ("30m", 30 * MINUTE),
            ("4h", 240 * MINUTE),
            ("1h30m", 90 * MINUTE),
            ("1.5h", 90 * MINUTE),
            (" 1d12h ", 36 * 60 * MINUTE),
            ("1w2d3h4m5s", 788_645_000),
            ("2w", 14 * 1440 * MINUTE),
            ("0s", 0),
            ("0.1s", 100),
        ] {
            assert_eq!(parse_milliseconds(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_the_forms() {
        for text in [
            "",
            "h",
            "4",
            "-1h",
            "+1h",
            "4 h",
            "30m1h",
            "1h1h",
            "1.5h30m",
            "1h1.5m",
            ".5h",
            "1.h",
            "1..5h",
            "1y",
            "1é",
            "h1",
            "4000d",
            "1e3s",
            "inf",
            "٣h",
            "99999999999999999999d",
        ] {
            let error = parse_milliseconds(text).expect_err(text).to_string();
            assert_eq!(error, format!("`{text}` is not {EXPECTED}"));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = parse_milliseconds(&text);
        }

        #[test]
        fn parts_add_up(d in 0..9_u64, h in 0..99_u64, m in 0..999_u64) {
            let all = ((d * 24 + h) * 60 + m) * 60_000;
            prop_assert_eq!(parse_milliseconds(&format!("{d}d{h}h{m}m")), Ok(all));
        }
    }
}
