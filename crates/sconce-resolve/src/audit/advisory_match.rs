//! Whether a version is affected (OSV schema, "Evaluation").

use std::cmp::Ordering;

use super::osv::{Affected, OsvRange};
use crate::ecosystem::Ecosystem;

/// What an entry says of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AdvisoryMatch {
    /// It does not have it.
    Clear,
    /// It has it; the lowest version above it that does not, where there is one.
    Affected { fixed: Option<String> },
    /// The entry cannot be understood, so it may or may not have it.
    Unclear { why: String },
}

/// Judges `version` by one of an entry's `affected` objects, whose package is already known to be
/// the right one.
pub(super) fn match_advisory(
    affected: &Affected,
    ecosystem: Ecosystem,
    version: &str,
) -> AdvisoryMatch {
    let is = |named: &String| {
        named == version || ecosystem.compare_with_advisory(version, named) == Some(Ordering::Equal)
    };
    let fixed = || lowest_fix(affected, ecosystem, version);
    if affected.versions.iter().any(is) {
        return AdvisoryMatch::Affected { fixed: fixed() };
    }
    let ranges: Vec<&OsvRange> = affected
        .ranges
        .iter()
        .filter(|range| range.kind == "ECOSYSTEM")
        .collect();
    // Neither versions nor ranges: the package as such, as malicious ones are listed.
    if affected.versions.is_empty() && affected.ranges.is_empty() {
        return AdvisoryMatch::Affected { fixed: None };
    }
    let mut unclear = None;
    for range in &ranges {
        match includes(range, ecosystem, version) {
            Ok(true) => return AdvisoryMatch::Affected { fixed: fixed() },
            Ok(false) => {}
            Err(why) => unclear = Some(why),
        }
    }
    match unclear {
        Some(why) => AdvisoryMatch::Unclear { why },
        // Commits and semantic versions say nothing of these packages' versions.
        None if ranges.is_empty() && affected.versions.is_empty() => AdvisoryMatch::Unclear {
            why: "it names commits only, no versions".to_owned(),
        },
        None => AdvisoryMatch::Clear,
    }
}

/// Events at one version take effect in this order. A fix comes first, so that ranges which meet
/// (`… fixed 2`, `introduced 2 …`) leave no gap; a last affected version still is affected, so
/// what it ends, it ends behind that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RangeEventOrder {
    Fixed,
    Introduced,
    LastAffected,
}

/// The schema's `IncludedInRanges` and `BeforeLimits` for one range; an error says what could not
/// be compared.
fn includes(range: &OsvRange, ecosystem: Ecosystem, version: &str) -> Result<bool, String> {
    let place = |named: &str| {
        ecosystem
            .compare_with_advisory(version, named)
            .ok_or_else(|| format!("{version} and {named:.60} cannot be compared"))
    };
    // `None` stands before every version.
    let mut events: Vec<(Option<&str>, RangeEventOrder, Ordering)> = Vec::new();
    let (mut limits, mut below_a_limit) = (false, false);
    for event in &range.events {
        match event.introduced.as_deref() {
            Some("0") => events.push((None, RangeEventOrder::Introduced, Ordering::Greater)),
            Some(named) => events.push((Some(named), RangeEventOrder::Introduced, place(named)?)),
            None => {}
        }
        if let Some(named) = event.fixed.as_deref() {
            events.push((Some(named), RangeEventOrder::Fixed, place(named)?));
        }
        if let Some(named) = event.last_affected.as_deref() {
            events.push((Some(named), RangeEventOrder::LastAffected, place(named)?));
        }
        if let Some(named) = event.limit.as_deref() {
            limits = true;
            below_a_limit |= named == "*" || place(named)?.is_lt();
        }
    }
    if limits && !below_a_limit {
        return Ok(false);
    }
    if !events
        .iter()
        .any(|(_, at, _)| *at == RangeEventOrder::Introduced)
    {
        return Err("its range begins nowhere".to_owned());
    }
    // Each was compared with `version` above, so each is a version.
    events.sort_by(|(a, a_at, _), (b, b_at, _)| {
        let order = match (a, b) {
            (Some(a), Some(b)) => ecosystem.compare_versions(a, b).unwrap_or(Ordering::Equal),
            (a, b) => a.is_some().cmp(&b.is_some()),
        };
        order.then(a_at.cmp(b_at))
    });
    let mut affected = false;
    for (_, at, version_is) in events {
        match at {
            RangeEventOrder::Introduced if version_is.is_ge() => affected = true,
            RangeEventOrder::Fixed if version_is.is_ge() => affected = false,
            RangeEventOrder::LastAffected if version_is.is_gt() => affected = false,
            _ => {}
        }
    }
    Ok(affected)
}

fn lowest_fix(affected: &Affected, ecosystem: Ecosystem, version: &str) -> Option<String> {
    affected
        .ranges
        .iter()
        .filter(|range| range.kind == "ECOSYSTEM")
        .flat_map(|range| &range.events)
        .filter_map(|event| event.fixed.as_deref())
        .filter(|fixed| {
            let order = ecosystem.compare_with_advisory(version, fixed);
            order.is_some_and(Ordering::is_lt)
        })
        .min_by(|a, b| ecosystem.compare_versions(a, b).unwrap_or(Ordering::Equal))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn affected(json: &str) -> Affected {
        serde_json::from_str(json).unwrap()
    }

    fn range(events: &str) -> Affected {
        affected(&format!(
            "{{\"ranges\":[{{\"type\":\"ECOSYSTEM\",\"events\":[{events}]}}]}}"
        ))
    }

    /// `!` for affected without a fix, the fix where there is one, `-` for clear, `?` for unclear.
    fn said(affected: &Affected, ecosystem: Ecosystem, version: &str) -> String {
        match match_advisory(affected, ecosystem, version) {
            AdvisoryMatch::Clear => "-".into(),
            AdvisoryMatch::Affected { fixed } => fixed.unwrap_or_else(|| "!".into()),
            AdvisoryMatch::Unclear { .. } => "?".into(),
        }
    }

    fn python(affected: &Affected, versions: &[(&str, &str)]) {
        for (version, wanted) in versions {
            assert_eq!(
                said(affected, Ecosystem::Python, version),
                *wanted,
                "{version}"
            );
        }
    }

    #[test]
    fn before_the_fix_and_after() {
        let entry = range(r#"{"introduced":"0"},{"fixed":"2.6.0"}"#);
        python(
            &entry,
            &[
                ("2.5.1", "2.6.0"),
                ("2.6.0rc1", "2.6.0"),
                ("2.5.1+cu124", "2.6.0"),
                ("2.6.0", "-"),
                ("2.6.0+cu126", "-"),
                ("2.10.0", "-"),
            ],
        );
    }

    #[test]
    fn several_branches_in_any_order() {
        let entry = range(
            r#"{"fixed":"3.2.5"},{"introduced":"1.0.0"},{"introduced":"3.0.0"},{"fixed":"1.0.2"}"#,
        );
        python(
            &entry,
            &[
                ("0.9", "-"),
                ("1.0", "1.0.2"),
                ("1.0.2", "-"),
                ("2.9", "-"),
                ("3.1", "3.2.5"),
                ("3.2.5", "-"),
            ],
        );
    }

    #[test]
    fn ranges_that_meet_leave_no_gap() {
        let entry = range(r#"{"introduced":"1"},{"fixed":"2"},{"introduced":"2"},{"fixed":"3"}"#);
        python(&entry, &[("1.5", "2"), ("2", "3"), ("3", "-")]);
    }

    #[test]
    fn the_last_affected_version_is_affected() {
        let entry = range(r#"{"introduced":"1.0"},{"last_affected":"2.8.0"}"#);
        python(
            &entry,
            &[
                ("2.8.0", "!"),
                ("2.8.0+cu126", "!"),
                ("2.8.1", "-"),
                ("0.9", "-"),
            ],
        );
        let one = range(r#"{"introduced":"2"},{"last_affected":"2"}"#);
        python(&one, &[("1", "-"), ("2", "!"), ("3", "-")]);
    }

    #[test]
    fn without_an_end_every_version_is_affected() {
        python(
            &range(r#"{"introduced":"0"}"#),
            &[("0.0.1.dev1", "!"), ("99", "!")],
        );
        python(&affected("{}"), &[("1", "!")]);
    }

    #[test]
    fn listed_versions_are_affected() {
        let entry = affected(
            r#"{"versions":["1.0","2004d"],"ranges":[{"type":"GIT","events":[{"introduced":"0"}]}]}"#,
        );
        python(
            &entry,
            &[
                ("1.0.0", "!"),
                ("1.0+local", "!"),
                ("1.1", "-"),
                ("2004d", "!"),
            ],
        );
    }

    #[test]
    fn limits_end_what_is_said() {
        let entry = range(r#"{"introduced":"1"},{"limit":"2"},{"limit":"4"}"#);
        python(&entry, &[("1", "!"), ("3", "!"), ("4", "-")]);
        python(&range(r#"{"introduced":"1"},{"limit":"*"}"#), &[("9", "!")]);
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        for entry in [
            range(r#"{"introduced":"0"},{"fixed":"2004d"}"#),
            range(r#"{"fixed":"2"}"#),
            range(""),
            affected(r#"{"ranges":[{"type":"GIT","events":[{"introduced":"0"}]}]}"#),
        ] {
            python(&entry, &[("1", "?")]);
        }
        // One clear answer is enough.
        let both = affected(
            r#"{"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"?"}]},{"type":"ECOSYSTEM","events":[{"introduced":"0"}]}]}"#,
        );
        python(&both, &[("1", "!")]);
    }

    #[test]
    fn debian_versions_have_debians_order() {
        let entry = range(r#"{"introduced":"0"},{"fixed":"1:2.47.3-0+deb13u2"}"#);
        for (version, wanted) in [
            ("1:2.47.3-0+deb13u1", "1:2.47.3-0+deb13u2"),
            ("1:2.47.3-0+deb13u2", "-"),
            ("1:2.47.3-0+deb13u10", "-"),
            ("9.0", "1:2.47.3-0+deb13u2"),
        ] {
            assert_eq!(
                said(&entry, Ecosystem::Debian, version),
                wanted,
                "{version}"
            );
        }
        let unfixed = range(r#"{"introduced":"0"},{"fixed":"<unfixed>"}"#);
        assert_eq!(said(&unfixed, Ecosystem::Debian, "1-1"), "?");
    }

    proptest! {
        /// Intervals that do not touch, told in any order, are what their definition says.
        #[test]
        fn a_range_is_its_intervals(ends in proptest::collection::btree_set(1u32..60, 2..10), seed in any::<u64>(), at in 0u32..60) {
            let ends: Vec<u32> = ends.into_iter().collect();
            let mut events = Vec::new();
            let mut inside = false;
            for pair in ends.chunks_exact(2) {
                events.push(format!("{{\"introduced\":\"{}\"}}", pair[0]));
                events.push(format!("{{\"fixed\":\"{}\"}}", pair[1]));
                inside |= pair[0] <= at && at < pair[1];
            }
            let turn = seed as usize % events.len();
            events.rotate_left(turn);
            let entry = range(&events.join(","));
            let found = match_advisory(&entry, Ecosystem::Python, &at.to_string());
            prop_assert_eq!(matches!(found, AdvisoryMatch::Affected { fixed: Some(_) }), inside);
        }
    }
}
