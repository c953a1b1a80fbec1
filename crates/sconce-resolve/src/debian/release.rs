//! `InRelease`: what a suite is, until when it may be believed, and the digests of its indexes
//! (Debian's repository format).

use std::time::{Duration, SystemTime};

use sconce_schema::{Hint, Sha256, exit};

use super::control;

/// A suite's clock may be ahead of ours by this much.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(24 * 3600);

/// One file that a release names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseFile {
    /// Path below the suite's folder.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Of the whole file.
    pub sha256: Sha256,
}

/// What a suite says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuiteRelease {
    /// Who made it, `Debian`.
    pub origin: String,
    /// Its codename, `trixie-security`.
    pub codename: String,
    /// When it was made.
    pub date: SystemTime,
    /// After this it must not be believed, where it says so.
    pub valid_until: Option<SystemTime>,
    /// Whether indexes can be asked for by their digest.
    pub by_hash: bool,
    /// Every file that it names with a SHA-256.
    pub files: Vec<ReleaseFile>,
}

/// Why a release is not used.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A field is missing or cannot be read.
    #[error("its field `{field}` is missing or malformed{}", value_of(value))]
    Field {
        /// The field.
        field: &'static str,
        /// What stands in it.
        value: String,
    },
    /// It is another suite's.
    #[error("it is the release file of `{found}`, not of `{wanted}`")]
    OtherSuite {
        /// The codename that was asked for.
        wanted: String,
        /// The codename that it has.
        found: String,
    },
    /// It is no longer to be believed.
    #[error("it was valid until {until}, and that has passed")]
    Expired {
        /// `Valid-Until`, as written.
        until: String,
    },
    /// It was made in the future.
    #[error("it says it was made on {date}, which is in the future")]
    FromTheFuture {
        /// `Date`, as written.
        date: String,
    },
    /// It does not have the index.
    #[error("it names no index `{path}`")]
    NoIndex {
        /// The index.
        path: String,
    },
}

fn value_of(value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!(": `{value}`")
    }
}

impl Hint for ReleaseError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::Expired { .. } => "the mirror is out of date, or this machine's clock is wrong; use another mirror",
                Self::FromTheFuture { .. } => "check this machine's clock",
                Self::OtherSuite { .. } => "check the mirror's address: it has to be the archive's base, above `dists/`",
                Self::NoIndex { .. } => "the archive does not serve this architecture",
                Self::Field { .. } => "use another mirror",
            }
            .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NoIndex { .. } => exit::NO_SOLUTION,
            Self::Field { .. }
            | Self::OtherSuite { .. }
            | Self::Expired { .. }
            | Self::FromTheFuture { .. } => exit::VERIFY,
        }
    }
}

impl SuiteRelease {
    /// Reads the text of a release file whose signature has been checked.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        let field = |wanted: &str| {
            control::parse_fields(text)
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| value)
        };
        let needed = |name: &'static str| {
            field(name)
                .filter(|v| !v.is_empty())
                .ok_or(ReleaseError::Field {
                    field: name,
                    value: String::new(),
                })
        };
        let date = |name: &'static str, value: &str| {
            parse_date(value).ok_or_else(|| ReleaseError::Field {
                field: name,
                value: value.to_owned(),
            })
        };
        let files = needed("SHA256")?
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(parse_file)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            origin: field("Origin").unwrap_or_default().to_owned(),
            codename: needed("Codename")?.to_owned(),
            date: date("Date", needed("Date")?)?,
            valid_until: field("Valid-Until")
                .map(|v| date("Valid-Until", v))
                .transpose()?,
            by_hash: field("Acquire-By-Hash") == Some("yes"),
            files,
        })
    }

    /// Whether this is the suite `codename`, and to be believed at the time `now`.
    pub fn validate_suite(&self, codename: &str, now: SystemTime) -> Result<(), ReleaseError> {
        if self.codename != codename {
            return Err(ReleaseError::OtherSuite {
                wanted: codename.to_owned(),
                found: self.codename.clone(),
            });
        }
        if self.date > now + CLOCK_TOLERANCE {
            return Err(ReleaseError::FromTheFuture {
                date: show_date(self.date),
            });
        }
        match self.valid_until {
            Some(until) if until < now => Err(ReleaseError::Expired {
                until: show_date(until),
            }),
            _ => Ok(()),
        }
    }

    /// The file at this path.
    pub fn require_file(&self, path: &str) -> Result<&ReleaseFile, ReleaseError> {
        self.files
            .iter()
            .find(|file| file.path == path)
            .ok_or_else(|| ReleaseError::NoIndex {
                path: path.to_owned(),
            })
    }
}

fn parse_file(line: &str) -> Result<ReleaseFile, ReleaseError> {
    let wrong = || ReleaseError::Field {
        field: "SHA256",
        value: line.to_owned(),
    };
    let mut words = line.split_ascii_whitespace();
    let (Some(sha256), Some(size), Some(path), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    Ok(ReleaseFile {
        path: path.to_owned(),
        size: size.parse().map_err(|_| wrong())?,
        sha256: sha256.parse().map_err(|_| wrong())?,
    })
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// `Sat, 12 Sep 2026 07:55:41 UTC` (RFC 2822's form; archives write UTC).
fn parse_date(text: &str) -> Option<SystemTime> {
    let (_, text) = text.split_once(", ")?;
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [day, month, year, time, zone] = words[..] else {
        return None;
    };
    if !matches!(zone, "UTC" | "GMT" | "Z" | "+0000") {
        return None;
    }
    let month = MONTHS.iter().position(|m| *m == month)? as u64 + 1;
    let (day, year) = (number(day, 1, 31)?, number(year, 1970, 9999)?);
    let times: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = times[..] else {
        return None;
    };
    let (hour, minute, second) = (
        number(hour, 0, 23)?,
        number(minute, 0, 59)?,
        number(second, 0, 60)?,
    );
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn number(text: &str, lowest: u64, highest: u64) -> Option<u64> {
    text.parse().ok().filter(|n| (lowest..=highest).contains(n))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. The year is taken to begin in March,
/// so that a leap day is its last day.
pub(crate) fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days_before_month = (153 * month + 2) / 5;
    let days_before_year = year * 365 + year / 4 - year / 100 + year / 400;
    days_before_year + days_before_month + day - 1 - 719_468
}

/// `2026-11-18 22:17 UTC`
pub(super) fn show_date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let days = seconds / 86_400;
    // Found by counting up: a message needs no speed, and one calendar rule is enough.
    let year = (1970..10_000)
        .rfind(|y| days_since_1970(*y, 1, 1) <= days)
        .unwrap_or(1970);
    let month = (1..=12)
        .rfind(|m| days_since_1970(year, *m, 1) <= days)
        .unwrap_or(1);
    let day = days - days_since_1970(year, month, 1) + 1;
    let (hour, minute) = (seconds % 86_400 / 3600, seconds % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REAL: &str = include_str!("../../tests/data/Release.small");

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// 2026-11-18 22:17:43 UTC, by `date -d`.
    const MADE: u64 = 1_795_040_263;
    const WEEK: u64 = 7 * 24 * 3600;

    #[test]
    fn reads_a_real_release() {
        let release = SuiteRelease::parse(REAL).unwrap();
        assert_eq!(release.codename, "trixie-security");
        assert_eq!(release.origin, "Debian");
        assert_eq!(release.date, at(MADE));
        assert_eq!(release.valid_until, Some(at(MADE + WEEK)));
        assert!(release.by_hash);
        assert_eq!(
            release
                .require_file("main/binary-amd64/Packages.xz")
                .unwrap()
                .size,
            325_224
        );
        assert!(matches!(
            release.require_file("main/binary-m68k/Packages.xz"),
            Err(ReleaseError::NoIndex { .. })
        ));
    }

    #[test]
    fn is_believed_for_its_suite_and_in_its_time_only() {
        let release = SuiteRelease::parse(REAL).unwrap();
        let check = |name, seconds| release.validate_suite(name, at(seconds));
        assert!(check("trixie-security", MADE).is_ok());
        assert!(check("trixie-security", MADE + WEEK).is_ok());
        assert!(check("trixie-security", MADE - 3600).is_ok());
        assert!(matches!(
            check("bookworm-security", MADE),
            Err(ReleaseError::OtherSuite { .. })
        ));
        assert!(matches!(
            check("trixie-security", MADE - WEEK),
            Err(ReleaseError::FromTheFuture { .. })
        ));
        let expired = check("trixie-security", MADE + WEEK + 1).unwrap_err();
        assert_eq!(
            expired.to_string(),
            "it was valid until 2026-11-25 22:17 UTC, and that has passed"
        );
    }

    #[test]
    fn dates_are_the_calendars() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 UTC", 0),
            ("Thu, 29 Feb 2024 12:00:00 UTC", 1_709_208_000),
            ("Wed, 31 Dec 2025 23:59:59 UTC", 1_767_225_599),
        ] {
            assert_eq!(parse_date(text), Some(at(seconds)), "{text}");
        }
        assert_eq!(show_date(at(1_709_208_000)), "2024-02-29 12:00 UTC");
        for text in [
            "",
            "yesterday",
            "Thu, 32 Jan 2026 00:00:00 UTC",
            "Thu, 01 Foo 2026 00:00:00 UTC",
            "Thu, 01 Jan 2026 00:00:00 CET",
            "Thu, 01 Jan 99999999999999999999 00:00:00 UTC",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
    }

    #[test]
    fn refuses_what_lacks_a_part() {
        for field in ["Codename", "Date", "SHA256"] {
            let text = REAL.replace(&format!("{field}:"), "X:");
            assert!(
                matches!(SuiteRelease::parse(&text), Err(ReleaseError::Field { field: f, .. }) if f == field)
            );
        }
        let text = REAL.replace(" 325224 ", " -1 ");
        assert!(SuiteRelease::parse(&text).is_err());
        // A malformed date of expiry must not mean "never".
        let text = REAL.replace("Valid-Until: Wed, 25 Nov", "Valid-Until: 25 Nov");
        assert!(matches!(
            SuiteRelease::parse(&text),
            Err(ReleaseError::Field {
                field: "Valid-Until",
                ..
            })
        ));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Date: |SHA256:|Codename: x|\n|\\PC){0,40}", date in "\\PC*") {
            let _ = SuiteRelease::parse(&text);
            let _ = parse_date(&date);
        }
    }
}
