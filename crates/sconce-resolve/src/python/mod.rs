//! Python packages: resolved by uv, locked as one wheel each.

pub mod compile;
mod index_settings;
pub mod pylock;
pub mod tags;
pub mod uv;
pub mod versions;

pub use index_settings::IndexSettings;

/// `text` with user and password taken out of every URL in it.
#[must_use]
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        // Not `,` and `'`: a password may hold them (RFC 3986, section 3.2.1).
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '`' | '<' | '>');
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        let host = authority.rfind('@').map_or(0, |at| at + 1);
        rest = &after[host..];
    }
    out.push_str(rest);
    out
}

/// Whether a program's text says that a disk is full (`ENOSPC`, as the C library and Rust say it).
fn says_disk_full(text: &str) -> bool {
    text.contains("No space left on device")
}

#[cfg(test)]
mod tests {
    use super::redact;
    use proptest::prelude::*;

    #[test]
    fn urls_lose_their_credentials() {
        for (text, clean) in [
            (
                "see `https://me:s3cret@example.org/simple`.",
                "see `https://example.org/simple`.",
            ),
            ("a://u@h b://u:p@ss@h:1/@x", "a://h b://h:1/@x"),
            ("'https://me:s3,cr'et@example.org'", "'https://example.org'"),
            (
                "me@example.org, https://example.org/@scope",
                "me@example.org, https://example.org/@scope",
            ),
            ("no url", "no url"),
            ("://", "://"),
        ] {
            assert_eq!(redact(text), clean);
        }
    }

    proptest! {
        #[test]
        fn nothing_before_the_host_stays(user in "[a-z]{1,8}", secret in "[A-Z0-9@:]{1,12}", host in "[a-z]{1,8}") {
            let text = redact(&format!("error: https://{user}:{secret}@{host}.example/simple failed"));
            prop_assert_eq!(text, format!("error: https://{host}.example/simple failed"));
        }
    }
}
