//! From a fuzzer's bytes to the several texts that a target needs, and from files to seeds.

use std::path::{Path, PathBuf};

use arbitrary::Unstructured;

/// Stands between the parts of an input of several files.
const BETWEEN: &[u8] = b"\xff%%\xff";

/// The input as text.
pub(crate) fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The parts of an input of several files; the missing ones are empty.
pub(crate) fn parts<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut rest = data;
    std::array::from_fn(|_| {
        let at = rest.windows(BETWEEN.len()).position(|w| w == BETWEEN);
        let (part, after) = match at {
            Some(at) => (&rest[..at], &rest[at + BETWEEN.len()..]),
            None => (rest, &[][..]),
        };
        rest = after;
        part
    })
}

/// An input of several files.
pub(crate) fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.join(BETWEEN)
}

/// One of `choices`; the first when the input has ended.
pub(crate) fn pick<T: Copy>(from: &mut Unstructured<'_>, choices: &[T]) -> T {
    from.choose(choices).copied().unwrap_or(choices[0])
}

/// Up to `most` bytes.
pub(crate) fn some_bytes<'a>(from: &mut Unstructured<'a>, most: usize) -> &'a [u8] {
    let length = from.int_in_range(0..=most).unwrap_or(0);
    from.bytes(length.min(from.len())).unwrap_or_default()
}

/// A yes or no; no when the input has ended.
pub(crate) fn flag(from: &mut Unstructured<'_>) -> bool {
    from.arbitrary().unwrap_or(false)
}

/// A file of the repository.
pub(crate) fn fixture(path: &str) -> Vec<u8> {
    let path = repository().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("the seed {}: {e}", path.display()))
}

/// Files of the repository.
pub(crate) fn fixtures(paths: &[&str]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| fixture(path)).collect()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Structured inputs have no text to begin with: some noise of different lengths, always the same.
pub(crate) fn noise() -> Vec<Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    [16, 64, 200, 500]
        .map(|length| (0..length).map(|_| byte()).collect())
        .to_vec()
}
