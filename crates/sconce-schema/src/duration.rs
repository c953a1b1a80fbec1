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

/// The forms of a job's longest time, as the end of the sentence "… is not …".
const EXPECTED_OF_JOBS: &str =
    "a time such as 30m, 4h or 2d, or as Slurm writes it: minutes, 4:00:00 or 2-00:00:00";

/// Milliseconds of the longest time that a job may take: what [`parse_milliseconds`] reads, or a time as sbatch takes it
/// (sbatch(1), `--time`): `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS`, `DAYS-HOURS:MINUTES`,
/// `DAYS-HOURS:MINUTES:SECONDS`. Zero is a time.
///
/// # Errors
/// What is none of these, or longer than ten years; the error names the forms.
pub fn parse_time_limit(text: &str) -> Result<u64, UnitError> {
    let text = text.trim();
    let ms = read(text).or_else(|| read_of_slurm(text));
    ms.filter(|ms| *ms <= MAX_DURATION_MS)
        .ok_or_else(|| UnitError::new(text, EXPECTED_OF_JOBS))
}

fn read_of_slurm(text: &str) -> Option<u64> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_number)
    };
    let numbers = |text: &str| text.split(':').map(number).collect::<Option<Vec<u64>>>();
    let (days, [hours, minutes, seconds]) = match text.split_once('-') {
        Some((days, rest)) => {
            let parts = match numbers(rest)?[..] {
                [hours] => [hours, 0, 0],
                [hours, minutes] => [hours, minutes, 0],
                [hours, minutes, seconds] => [hours, minutes, seconds],
                _ => return None,
            };
            (number(days)?, parts)
        }
        None => {
            let parts = match numbers(text)?[..] {
                [minutes] => [0, minutes, 0],
                [minutes, seconds] => [0, minutes, seconds],
                [hours, minutes, seconds] => [hours, minutes, seconds],
                _ => return None,
            };
            (0, parts)
        }
    };
    let parts = [(days, 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)];
    parts.into_iter().try_fold(0_u64, |sum, (count, unit)| {
        sum.checked_add(count.checked_mul(unit * 1_000)?)
    })
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

    #[test]
    fn times_of_jobs_read_what_sbatch_takes_too() {
        const MINUTE: u64 = 60_000;
        for (text, ms) in [
            ("4h", 240 * MINUTE),
            ("90s", 90_000),
            ("30", 30 * MINUTE),
            ("30:30", 30 * MINUTE + 30_000),
            ("4:00:00", 240 * MINUTE),
            ("04:05:06", 245 * MINUTE + 6_000),
            ("2-0", 2880 * MINUTE),
            ("2-12:30", 3630 * MINUTE),
            ("2-00:00:00", 2880 * MINUTE),
            ("0", 0),
            ("0:00", 0),
        ] {
            assert_eq!(parse_time_limit(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "-1",
            "1-",
            "-",
            ":",
            "1:",
            "1:2:3:4",
            "1-2:3:4:5",
            "1-2-3",
            "+1",
            "1.5",
            "4:00h",
            "9999-0",
            "99999999999999999999",
            "infinite",
        ] {
            let error = parse_time_limit(text).expect_err(text).to_string();
            assert!(error.contains("4:00:00 or 2-00:00:00"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = (parse_milliseconds(&text), parse_time_limit(&text));
        }

        #[test]
        fn parts_add_up(d in 0..9_u64, h in 0..99_u64, m in 0..999_u64) {
            let all = ((d * 24 + h) * 60 + m) * 60_000;
            prop_assert_eq!(parse_milliseconds(&format!("{d}d{h}h{m}m")), Ok(all));
        }
    }
}
