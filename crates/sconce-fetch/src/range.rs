//! `Content-Range` and `Retry-After`, as text to values.

use std::time::Duration;

/// What a 206 answer says it holds: `bytes first-last/total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
    /// Size of the whole, where the server knows it.
    pub total: Option<u64>,
}

/// Reads a `Content-Range` header (RFC 9110, section 14.4). `None` unless it is one of bytes.
#[must_use]
pub fn content_range(text: &str) -> Option<ContentRange> {
    let (unit, rest) = text.trim().split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (span, total) = rest.trim().split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let total = match total {
        "*" => None,
        number => Some(number.parse().ok()?),
    };
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && total.is_none_or(|total| last < total)).then_some(ContentRange {
        first,
        last,
        total,
    })
}

/// Reads `Retry-After` in seconds. The other form, a date, is not read: the caller's own pause
/// serves as well.
#[must_use]
pub fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_read() {
        let range = |first, last, total| Some(ContentRange { first, last, total });
        for (text, want) in [
            ("bytes 5-9/10", range(5, 9, Some(10))),
            ("Bytes 0-0/*", range(0, 0, None)),
            ("bytes 5-10/10", None),
            ("bytes 9-5/10", None),
            ("bytes */10", None),
            ("items 0-1/2", None),
            ("", None),
        ] {
            assert_eq!(content_range(text), want, "{text}");
        }
        assert_eq!(retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }

    proptest! {
        #[test]
        fn no_header_panics(text in "\\PC*") {
            let _ = content_range(&text);
            let _ = retry_after(&text);
        }
    }
}
