//! One line of a log, without what terminals and launchers put around it.
//!
//! What is stripped: terminal colours, also where only their text is left; carriage returns; the
//! `[rank0]:`, time stamps, levels and process names that launchers put before each line; the frames
//! that pretty tracebacks are drawn in. Escaped line ends (`\n` in JSON) become line ends.

/// What stood before a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LinePrefix {
    /// The rank that a launcher named.
    pub(crate) rank: Option<u32>,
    /// It is marked as a warning.
    pub(crate) warning: bool,
}

/// Appends a line's text to `out`, without its last line end.
pub(crate) fn append_clean_text(raw: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        let rest = &raw[at..];
        match byte {
            0x1b => at += escape(rest).max(1),
            b'\\' => {
                let (taken, put) = backslashes(rest);
                out.extend_from_slice(put);
                at += taken;
            }
            b'[' if colour(rest) > 0 => at += colour(rest),
            b'^' if rest.starts_with(b"^[[") => at += (2 + colour(&rest[2..])).max(3),
            // A terminal obeys control characters; C1 ones are two bytes in UTF-8.
            b'\t' | b'\r' => {
                out.push(b' ');
                at += 1;
            }
            0xc2 if matches!(raw.get(at + 1), Some(0x80..=0x9f)) => at += 2,
            0..0x20 | 0x7f => at += 1,
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
}

/// Length of an escape sequence (ECMA-48: CSI, OSC, or two characters).
fn escape(rest: &[u8]) -> usize {
    match rest.get(1) {
        Some(b'[') => {
            let body = &rest[2..rest.len().min(66)];
            let end = body.iter().position(|byte| (0x40..=0x7e).contains(byte));
            end.map_or(2, |end| end + 3)
        }
        Some(b']') => {
            let body = &rest[2..rest.len().min(258)];
            let end = body.iter().position(|&byte| byte == 7 || byte == 0x1b);
            end.map_or(2, |end| end + 3)
        }
        Some(_) => 2,
        None => 1,
    }
}

/// Length of a colour whose escape character was lost, `[0;31m`; 0 where it is none.
fn colour(rest: &[u8]) -> usize {
    let body = &rest[1.min(rest.len())..rest.len().min(14)];
    let end = body
        .iter()
        .position(|byte| !byte.is_ascii_digit() && *byte != b';');
    match end {
        Some(end) if body[end] == b'm' && rest[0] == b'[' => end + 2,
        _ => 0,
    }
}

/// A run of backslashes and what follows, as texts in JSON, shells and logs of logs have them.
fn backslashes(rest: &[u8]) -> (usize, &'static [u8]) {
    let run = rest.iter().take_while(|&&byte| byte == b'\\').count();
    let after = &rest[run..];
    for code in [&b"u001b"[..], b"u001B", b"x1b", b"x1B", b"033"] {
        if after.starts_with(code) && after.get(code.len()) == Some(&b'[') {
            return (run + code.len() + colour(&after[code.len()..]), b"");
        }
    }
    match after.first() {
        Some(b'n') => (run + 1, b"\n"),
        Some(b'r' | b't') => (run + 1, b" "),
        Some(b'"' | b'\'' | b'/') => (run, b""),
        _ => (run, b"\\"),
    }
}

/// Takes away what stands before a line's text.
pub(crate) fn split_prefix(mut line: &[u8]) -> (LinePrefix, &[u8]) {
    let mut prefix = LinePrefix::default();
    // Launchers nest: a container engine's around a queue's around torchrun's.
    for _ in 0..8 {
        let before = line.len();
        line = strip_frame(line);
        line = strip_bracket(line, &mut prefix);
        line = strip_level(line, &mut prefix);
        line = strip_time(line);
        line = strip_name(line);
        if line.len() == before {
            break;
        }
    }
    (prefix, line)
}

/// Blanks, drawn frames, quotation marks of mail, pytest's `E   `.
fn strip_frame(mut line: &[u8]) -> &[u8] {
    loop {
        line = match line {
            [b' ' | b'\t' | b'|' | b'>', rest @ ..] => rest,
            // U+2500 to U+257F.
            [0xe2, 0x94 | 0x95, _, rest @ ..] => rest,
            [b'E', b' ', b' ', rest @ ..] => rest,
            _ => return line,
        }
    }
}

/// `[rank3]:`, `[default0]:`, `[2025-01-30 18:11:27 TP1]`, `[core.py:396]`, `[E`, `(Worker pid=7)`.
fn strip_bracket<'a>(line: &'a [u8], prefix: &mut LinePrefix) -> &'a [u8] {
    let close = match line.first() {
        Some(b'[') => b']',
        Some(b'(') => b')',
        _ => return line,
    };
    let end = line.iter().take(120).position(|&byte| byte == close);
    let Some(end) = end else {
        return line;
    };
    let (inner, mut rest) = (&line[1..end], &line[end + 1..]);
    let has = |part: &[u8]| inner.windows(part.len()).any(|window| window == part);
    let colon = rest.first() == Some(&b':');
    let place = has(b".py:") || has(b".cpp:") || has(b".cc:");
    let time = inner.first().is_some_and(u8::is_ascii_digit) && has(b":");
    let named = has(b"pid=") || has(b"rank") || has(b"Rank");
    if !(colon || place || time || named) {
        return line;
    }
    if let Some(rank) = rank_of(inner, colon && close == b']') {
        prefix.rank = Some(rank);
    }
    prefix.warning |= inner.first() == Some(&b'W') && place;
    if colon {
        rest = &rest[1..];
    }
    rest
}

/// The rank in `rank3`, `Rank 3`, `Worker_TP3 rank=3`; with `any` in every name that ends in a number.
fn rank_of(inner: &[u8], any: bool) -> Option<u32> {
    let text = std::str::from_utf8(inner).ok()?;
    let lower = text.to_ascii_lowercase();
    let after = match (lower.find("rank"), lower.rfind(" tp")) {
        (Some(at), _) => &lower[at + 4..],
        (None, Some(at)) => &lower[at + 3..],
        (None, None) if any && !text.contains([' ', ':', '.']) => {
            lower.trim_start_matches(|c: char| !c.is_ascii_digit())
        }
        (None, None) => return None,
    };
    let digits = after.trim_start_matches([' ', '=', ':', '_']);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// `ERROR`, `WARNING:`, `E0303 11:40:42.533000 713 torch/x.py:533]`.
fn strip_level<'a>(line: &'a [u8], prefix: &mut LinePrefix) -> &'a [u8] {
    if let [b'E' | b'W' | b'I' | b'F', digits @ ..] = line
        && digits.len() > 4
        && digits[..4].iter().all(u8::is_ascii_digit)
        && digits[4] == b' '
        && let Some(end) = digits.iter().take(200).position(|&byte| byte == b']')
    {
        prefix.warning |= line[0] == b'W';
        return &digits[end + 1..];
    }
    for level in ["CRITICAL", "ERROR", "WARNING", "WARN", "INFO", "DEBUG"] {
        if let Some(rest) = line.strip_prefix(level.as_bytes())
            && let [b' ' | b':', rest @ ..] = rest
        {
            prefix.warning |= level.starts_with("WARN");
            return rest;
        }
    }
    line
}

/// `2024-06-17T13:18:29.371622Z `, `05-06 12:00:00,123 - `, `13:18:29 `.
fn strip_time(line: &[u8]) -> &[u8] {
    let of_time = |byte: &u8| byte.is_ascii_digit() || b"-:.,TZ+/".contains(byte);
    let mut end = line
        .iter()
        .take(40)
        .take_while(|byte| of_time(byte))
        .count();
    // A date and a time of day.
    if line.get(end) == Some(&b' ') && line.get(end + 1).is_some_and(u8::is_ascii_digit) {
        let more = line[end + 1..]
            .iter()
            .take(24)
            .take_while(|byte| of_time(byte));
        end += 1 + more.count();
    }
    let stamp = &line[..end];
    let colons = stamp.iter().filter(|&&byte| byte == b':').count();
    let digits = stamp.iter().filter(|byte| byte.is_ascii_digit()).count();
    match line.get(end) {
        Some(b' ') if colons >= 2 && digits >= 6 => match &line[end..] {
            [b' ', b'-', b' ', rest @ ..] => rest,
            rest => rest,
        },
        // srun's `3: `.
        _ if digits > 0 && digits <= 4 && line.get(digits) == Some(&b':') => {
            match line.get(digits + 1) {
                Some(b' ') => &line[digits + 2..],
                _ => line,
            }
        }
        _ => line,
    }
}

/// Compose's `trainer-1  | `, `stderr: `, BuildKit's `#12 3.456 `.
fn strip_name(line: &[u8]) -> &[u8] {
    for name in [&b"stderr: "[..], b"stdout: "] {
        if let Some(rest) = line.strip_prefix(name) {
            return rest;
        }
    }
    if let [b'#', rest @ ..] = line {
        let end = rest
            .iter()
            .take(16)
            .take_while(|byte| byte.is_ascii_digit() || **byte == b' ' || **byte == b'.')
            .count();
        if end > 1 && rest[end - 1] == b' ' {
            return &rest[end..];
        }
    }
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-' || *byte == b'_';
    let end = line.iter().take(40).take_while(|byte| word(byte)).count();
    let blanks = line[end..]
        .iter()
        .take(24)
        .take_while(|&&byte| byte == b' ')
        .count();
    match &line[end + blanks..] {
        [b'|', b' ', rest @ ..] if end > 0 && blanks > 0 => rest,
        _ => line,
    }
}

/// Whether a line begins with the name of an exception, `torch.OutOfMemoryError: …`.
pub(crate) fn is_exception(line: &[u8]) -> bool {
    let of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'.';
    let end = line
        .iter()
        .take(120)
        .take_while(|byte| of_name(byte))
        .count();
    let name = &line[..end];
    let ends = |tail: &[u8]| name.ends_with(tail);
    matches!(line.get(end), None | Some(b':' | b'(' | b' '))
        && (ends(b"Error") || ends(b"Exception") || ends(b"Interrupt"))
        && (line.get(end) != Some(&b' ') || end > 9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(raw: &str) -> String {
        let mut out = Vec::new();
        append_clean_text(raw.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn colours_and_escapes_go() {
        for (raw, text) in [
            ("\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("[0;36m(core)[0;0m a[1] b[m", "(core) a[1] b"),
            ("^[[31mred^[[0m", "red"),
            (r"\u001b[31mred\x1b[0m", "red"),
            (
                r#"{"a": "one\ntwo \\\"three\\\""}"#,
                "{\"a\": \"one\ntwo \"three\"\"}",
            ),
            ("bell\u{7} and \u{9b}31m and\r", "bell and 31m and "),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
            ("\\", "\\"),
        ] {
            assert_eq!(cleaned(raw), text, "{raw:?}");
        }
    }

    #[test]
    fn prefixes_go_and_ranks_stay() {
        for (line, rank, text) in [
            ("[rank3]: RuntimeError: x", Some(3), "RuntimeError: x"),
            ("[default12]:Traceback", Some(12), "Traceback"),
            ("[1]: x", Some(1), "x"),
            ("3: x", None, "x"),
            ("2024-06-17T13:18:29.371622Z ERROR x", None, "x"),
            ("[2025-01-30 18:11:27 TP1] x", Some(1), "x"),
            (
                "ERROR 04-30 10:20:36 [core.py:396] ValueError: x",
                None,
                "ValueError: x",
            ),
            (
                "(EngineCore_DP0 pid=6940) ERROR 09-06 23:28:45 [core.py:714] x",
                None,
                "x",
            ),
            (
                "E0303 11:40:42.533000 713 site-packages/a.py:533] x",
                None,
                "x",
            ),
            (
                "[rank0]:[E813 12:25:31.213 ProcessGroupNCCL.cpp:1536] [PG ID 0 Rank 0] x",
                Some(0),
                "x",
            ),
            (
                "vllm-1  | ERROR 11-18 18:07:28 engine.py:366] x",
                None,
                "engine.py:366] x",
            ),
            ("│ RuntimeError: x", None, "RuntimeError: x"),
            ("E       RuntimeError: x", None, "RuntimeError: x"),
            ("#12 3.456 error: x", None, "error: x"),
            (
                "[Errno 24] Too many open files",
                None,
                "[Errno 24] Too many open files",
            ),
            ("Error 804: x", None, "Error 804: x"),
            ("", None, ""),
        ] {
            let (prefix, rest) = split_prefix(line.as_bytes());
            assert_eq!(
                (prefix.rank, std::str::from_utf8(rest).unwrap()),
                (rank, text),
                "{line}"
            );
        }
    }

    #[test]
    fn exceptions_are_seen() {
        for (line, is) in [
            ("torch.OutOfMemoryError: CUDA out of memory", true),
            ("KeyboardInterrupt", true),
            ("OSError('x')", true),
            ("an Error: x", false),
            ("Error in x", false),
            ("raise RuntimeError('x')", false),
            ("", false),
        ] {
            assert_eq!(is_exception(line.as_bytes()), is, "{line}");
        }
    }
}
