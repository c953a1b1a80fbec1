//! The `ar` archive around a package's members (deb(5), the common format without long names).

use super::DebError;

/// Begins the file.
pub(super) const MAGIC: &[u8; 8] = b"!<arch>\n";
/// Bytes of a member's header.
pub(super) const HEADER: usize = 60;

/// A member's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Bytes of its data; one byte of padding follows an odd number.
    pub(super) size: u64,
}

/// Reads a member's header.
pub(super) fn parse_header(header: &[u8; HEADER]) -> Result<Member, DebError> {
    let field = |from: usize, to: usize| {
        std::str::from_utf8(&header[from..to])
            .map(str::trim_end)
            .map_err(|_| DebError::format("a member's header is not text"))
    };
    if &header[58..] != b"`\n" {
        return Err(DebError::format("a member's header has no end mark"));
    }
    let name = field(0, 16)?;
    let size = field(48, 58)?;
    if size.is_empty() || !size.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DebError::format("a member's size is not a number"));
    }
    Ok(Member {
        // GNU ar ends names with a slash.
        name: name.strip_suffix('/').unwrap_or(name).to_owned(),
        size: size
            .parse()
            .map_err(|_| DebError::format("a member's size is too large"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_captured_header() {
        let header = b"control.tar.xz  1748973906  0     0     100644  1052      `\n";
        assert_eq!(
            parse_header(header).unwrap(),
            Member {
                name: "control.tar.xz".to_owned(),
                size: 1052
            }
        );
        for (at, byte) in [(58, b'x'), (48, b'-'), (0, 0xff)] {
            let mut broken = *header;
            broken[at] = byte;
            assert!(parse_header(&broken).is_err(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn no_header_panics(bytes: [u8; 32], end: [u8; 28]) {
            let mut header = [b' '; HEADER];
            header[..32].copy_from_slice(&bytes);
            header[32..].copy_from_slice(&end);
            let _ = parse_header(&header);
            header[58..].copy_from_slice(b"`\n");
            let _ = parse_header(&header);
        }
    }
}
