//! Maintenance windows: times on the wall clock in which no card is given.

use toml::value::{Date, Datetime, Offset, Time};

/// A time in which no card is given, and into which no lease may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaintenanceWindow {
    /// Seconds since 1970.
    pub from_s: u64,
    /// Seconds since 1970.
    pub until_s: u64,
    /// Why, in the owner's words.
    pub why: Option<String>,
}

/// Seconds since 1970 of a date and time with its offset; `None` where a part is missing, or it is
/// before 1970.
pub(super) fn to_unix_seconds(at: &Datetime) -> Option<u64> {
    let Date { year, month, day } = at.date?;
    let Time {
        hour,
        minute,
        second,
        ..
    } = at.time?;
    let offset_minutes = match at.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let clock = i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second.unwrap_or(0));
    let days = days_since_1970(i64::from(year), i64::from(month), i64::from(day));
    u64::try_from(days * 86_400 + clock - offset_minutes * 60).ok()
}

/// The proleptic Gregorian calendar, counted in eras of 400 years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_seconds() {
        let of = |text: &str| to_unix_seconds(&text.parse().expect("a date and time"));
        assert_eq!(of("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(of("2026-11-22T06:40:02Z"), Some(1_795_329_602));
        assert_eq!(of("2026-11-22T07:40:02+01:00"), Some(1_795_329_602));
        assert_eq!(of("2024-02-29T00:00:00Z"), Some(1_709_164_800));
        assert_eq!(of("2026-11-22T06:40:02"), None, "which zone?");
        assert_eq!(of("2026-11-22"), None);
        assert_eq!(of("1969-12-31T23:59:59Z"), None);
    }
}
