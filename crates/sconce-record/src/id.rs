//! Names of runs.

/// A run's id, such as `digits-20261121-0034-7f3ac1`: the environment's name, the minute in which
/// it began (UTC) and six hexadecimal digits of chance, so that ids of one name sort by time
/// and two runs that begin at the same moment differ. At most 40 characters of `a-z 0-9 -`, so it is a host name
/// too; a name without any such character becomes `run`.
///
/// `unix_ms` is milliseconds since 1970; the lower 24 bits of `random` count.
#[must_use]
pub fn new_id(name: &str, unix_ms: u64, random: u32) -> String {
    const MAX_NAME_BYTES: usize = 19;
    let mut short = String::new();
    for c in name.chars() {
        if short.len() == MAX_NAME_BYTES {
            break;
        }
        if c.is_ascii_alphanumeric() {
            short.push(c.to_ascii_lowercase());
        } else if !short.is_empty() && !short.ends_with('-') {
            short.push('-');
        }
    }
    let short = match short.trim_end_matches('-') {
        "" => "run",
        short => short,
    };
    let at = UtcMinute::from_unix_ms(unix_ms);
    let (day, minute) = (
        format!("{:04}{:02}{:02}", at.year, at.month, at.day),
        format!("{:02}{:02}", at.hour, at.minute),
    );
    format!("{short}-{day}-{minute}-{:06x}", random & 0xff_ffff)
}

/// A minute of the Gregorian calendar, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UtcMinute {
    /// The year.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
}

impl UtcMinute {
    /// Of milliseconds since 1970.
    #[must_use]
    pub fn from_unix_ms(unix_ms: u64) -> Self {
        let minutes = unix_ms / 60_000;
        let (year, month, day) = civil(minutes / 1440);
        Self {
            year,
            month,
            day,
            hour: minutes / 60 % 24,
            minute: minutes % 60,
        }
    }
}

/// The Gregorian date of a day counted from 1970-01-01. Years are counted from 1 March, so that
/// the leap day is a year's last day and 400 years have 146,097 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 1 March of the year 0
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let (month, next_year) = if months_since_march < 10 {
        (months_since_march + 3, 0)
    } else {
        (months_since_march - 9, 1)
    };
    (era * 400 + year_of_era + next_year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_readable() {
        for (name, unix_ms, random, id) in [
            (
                "digits",
                1_795_221_240_000,
                0x7f3ac1,
                "digits-20261121-0034-7f3ac1",
            ),
            (
                "ResNet 50!",
                951_782_400_000,
                1,
                "resnet-50-20000229-0000-000001",
            ),
            ("数字", 0, u32::MAX, "run-19700101-0000-ffffff"),
            (
                "../../etc",
                4_102_444_799_999,
                0,
                "etc-20991231-2359-000000",
            ),
            (
                "a-very-long-name-indeed-it-is",
                0,
                0,
                "a-very-long-name-in-19700101-0000-000000",
            ),
        ] {
            assert_eq!(new_id(name, unix_ms, random), id);
        }
    }

    proptest! {
        #[test]
        fn ids_are_host_names(name in "\\PC*", unix_ms in 0_u64..253_402_300_800_000, random: u32) {
            let id = new_id(&name, unix_ms, random);
            prop_assert!(id.len() <= 40);
            prop_assert!(id.starts_with(|c: char| c.is_ascii_alphanumeric()));
            prop_assert!(id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        }

        #[test]
        fn later_ids_sort_later(a in 0_u64..253_402_300_800_000, b in 0_u64..253_402_300_800_000) {
            if a / 60_000 < b / 60_000 {
                prop_assert!(new_id("x", a, u32::MAX) < new_id("x", b, 0));
            }
        }

        #[test]
        fn no_time_panics(unix_ms: u64) {
            let _ = new_id("x", unix_ms, 0);
        }
    }
}
