//! The day of the newest commit.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::git::Repository;

/// What is newer, in days, is as good as new.
pub const RECENT_DAYS: u64 = 180;

/// When a project was last worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestCommit {
    /// `2021-03-25`.
    pub day: String,
    /// How long ago that is, in days.
    pub age_days: u64,
}

/// The commit that is checked out in a folder; `None` where there is none, where it cannot be read, or where it is of
/// the future.
#[must_use]
pub fn newest_commit(folder: &Path) -> Option<NewestCommit> {
    let seconds = Repository::open(folder)?.head_time()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(NewestCommit {
        day: format_day(seconds)?,
        age_days: now.checked_sub(u64::try_from(seconds).ok()?)? / 86_400,
    })
}

/// A day of UTC as `2021-03-25`, by Howard Hinnant's `civil_from_days`; `None` before 1970 and after 9999.
fn format_day(seconds: i64) -> Option<String> {
    let days = u64::try_from(seconds).ok()? / 86_400;
    // Days from 1 March of the year 0; eras of 400 years have 146,097.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year <= 9999).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, Some("1970-01-01")),
            (951_782_400, Some("2000-02-29")),
            (1_616_630_400, Some("2021-03-25")),
            (1_616_716_799, Some("2021-03-25")),
            (-1, None),
            (i64::MAX, None),
        ] {
            assert_eq!(format_day(seconds).as_deref(), day, "{seconds}");
        }
    }
}
