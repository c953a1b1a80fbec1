//! Debian version numbers and their order (deb-version(7)).

use std::cmp::Ordering;

/// Compares two versions as dpkg does: epoch, then upstream version, then revision.
///
/// Any text has a place in the order, so that a malformed version can be compared too.
#[must_use]
pub fn compare(left: &str, right: &str) -> Ordering {
    let (left_epoch, left) = split_epoch(left);
    let (right_epoch, right) = split_epoch(right);
    let (left_upstream, left_revision) = split_revision(left);
    let (right_upstream, right_revision) = split_revision(right);
    compare_part(left_epoch, right_epoch)
        .then_with(|| compare_part(left_upstream, right_upstream))
        .then_with(|| compare_part(left_revision, right_revision))
}

/// The upstream part: without epoch and revision (`1:2.41-12+deb13u1` gives `2.41`).
#[must_use]
pub fn upstream_version(version: &str) -> &str {
    split_revision(split_epoch(version).1).0
}

fn split_epoch(version: &str) -> (&str, &str) {
    match version.split_once(':') {
        Some((epoch, rest)) if epoch.bytes().all(|b| b.is_ascii_digit()) => (epoch, rest),
        _ => ("", version),
    }
}

fn split_revision(version: &str) -> (&str, &str) {
    version.rsplit_once('-').unwrap_or((version, ""))
}

/// One part: runs of non-digits and runs of digits in turn. In a run of non-digits `~` sorts
/// before the end, letters before everything else; a run of digits compares as a number of any
/// length.
fn compare_part(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    while !left.is_empty() || !right.is_empty() {
        while starts_with_text(left) || starts_with_text(right) {
            let order = weight(left.first()).cmp(&weight(right.first()));
            if order.is_ne() {
                return order;
            }
            left = left.get(1..).unwrap_or_default();
            right = right.get(1..).unwrap_or_default();
        }
        let (left_number, left_rest) = split_number(left);
        let (right_number, right_rest) = split_number(right);
        let order = (left_number.len(), left_number).cmp(&(right_number.len(), right_number));
        if order.is_ne() {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    Ordering::Equal
}

fn starts_with_text(part: &[u8]) -> bool {
    part.first().is_some_and(|b| !b.is_ascii_digit())
}

fn weight(byte: Option<&u8>) -> i32 {
    match byte {
        None => 0,
        Some(b'~') => -1,
        Some(b) if b.is_ascii_digit() => 0,
        Some(b) if b.is_ascii_alphabetic() => i32::from(*b),
        Some(b) => i32::from(*b) + 256,
    }
}

/// The leading number without its leading zeros, and what follows it.
fn split_number(part: &[u8]) -> (&[u8], &[u8]) {
    let end = part
        .iter()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(part.len());
    let (number, rest) = part.split_at(end);
    let zeros = number
        .iter()
        .position(|b| *b != b'0')
        .unwrap_or(number.len());
    (&number[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Each line was answered by `dpkg --compare-versions` 1.21.22.
    #[test]
    fn orders_as_dpkg() {
        for (left, right) in [
            ("1.0", "1.1"),
            ("1.9", "1.10"),
            ("1.0~rc1", "1.0"),
            ("1.0~~", "1.0~"),
            ("1.0~", "1.0"),
            ("1.0", "1.0-1"),
            ("1.0-1", "1.0-1+b1"),
            ("1.0-1", "1.0-1.1"),
            ("2.9", "1:0.1"),
            ("1.0a", "1.0+"),
            ("1.0a", "1.0b"),
            ("3.13.5-2", "3.13.5-2+deb13u5"),
            ("2.36-9+deb12u9", "2.36-9+deb12u10"),
            ("1.2-3-1", "1.2-3-2"),
            ("99999999999999999999998", "99999999999999999999999"),
            ("1.18~bpo", "1.18"),
            ("1.0.", "1.0.0a"),
        ] {
            assert_eq!(compare(left, right), Ordering::Less, "{left} < {right}");
            assert_eq!(compare(right, left), Ordering::Greater, "{right} > {left}");
        }
        for (left, right) in [
            ("1.0", "0:1.0"),
            ("1.00", "1.0"),
            ("1.0-0", "1.0"),
            ("", "0"),
        ] {
            assert_eq!(compare(left, right), Ordering::Equal, "{left} = {right}");
        }
    }

    #[test]
    fn upstream_has_neither_epoch_nor_revision() {
        assert_eq!(upstream_version("1:2.41-12+deb13u1"), "2.41");
        assert_eq!(upstream_version("2.36"), "2.36");
    }

    proptest! {
        #[test]
        fn is_a_total_order(a in "[0-9a-c.~+:-]{0,8}", b in "[0-9a-c.~+:-]{0,8}", c in "[0-9a-c.~+:-]{0,8}") {
            prop_assert_eq!(compare(&a, &a), Ordering::Equal);
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }

        #[test]
        fn no_text_panics(a in "\\PC*", b in "\\PC*") {
            let _ = compare(&a, &b);
        }
    }
}
