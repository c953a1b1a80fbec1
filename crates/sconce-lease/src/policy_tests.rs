use proptest::prelude::*;

use super::*;

const LAB: &str = r#"half-life = "7d"
patience = "2d"
idle-grace = "5m"

[default]
cards = 2
hours-a-week = 200
longest = "24h"
idle = "30m"

[groups.vision]
cards = 4
[groups.speech]
cards = 3
priority = 5

[users.anna]
cards = 8
longest = "72h"

[[maintenance]]
from = 2026-12-01T08:00:00Z
until = 2026-12-01T12:00:00Z
why = "new driver"
"#;

fn who(name: &str, groups: &[&str]) -> LeaseUser {
    LeaseUser {
        uid: 1000,
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
    }
}

#[test]
fn each_limit_comes_from_the_nearest_table() {
    let policy = Policy::parse(LAB).expect("it can be followed");
    let cards = |person| policy.limits_for(&person).cards;
    assert_eq!(cards(who("bo", &[])), Some(2));
    assert_eq!(cards(who("bo", &["speech", "vision"])), Some(4));
    assert_eq!(cards(who("anna", &["vision"])), Some(8));
    let limits = policy.limits_for(&who("anna", &["speech"]));
    assert_eq!(limits.longest_ms, Some(72 * 3_600_000));
    assert_eq!((limits.priority, limits.idle_ms), (5, Some(1_800_000)));
    assert_eq!(policy.maintenance[0].why.as_deref(), Some("new driver"));
    let free = Policy::parse("").expect("nothing is asked");
    assert_eq!(free, Policy::default());
    let free = free.limits_for(&who("bo", &[]));
    assert_eq!((free.cards, free.longest_ms, free.queue), (None, None, 64));
    let few = Policy::parse("[default]\nqueue = 3\n[users.bo]\nqueue = 0\n");
    let few = few.expect("it can be followed");
    let queue = |name| few.limits_for(&who(name, &[])).queue;
    assert_eq!((queue("anna"), queue("bo")), (3, 0));
    assert!(few.has_rules_for("bo") && !few.has_rules_for("anna"));
}

#[test]
fn what_contradicts_itself_is_named_with_its_line() {
    let said = |text: &str| Policy::parse(text).expect_err(text).to_string();
    for (text, expected) in [
        (
            "[default]\nlongest = \"48h\"\nhours-a-week = 20\n",
            "line 2: `longest` of 48 h for everybody contradicts `hours-a-week` of 20",
        ),
        (
            "[default]\nlongest = \"24h\"\n\n[users.bo]\nhours-a-week = 12\n",
            "line 5: `longest` of 24 h for bo contradicts `hours-a-week` of 12",
        ),
        (
            "[default]\nlongest = \"1h\"\nidle = \"2h\"\n",
            "line 3: `idle` of 120 min for everybody contradicts `longest` of 60 min, which \
             is over before",
        ),
        (
            "[default]\ncards = 2\nhours-a-week = 0\n",
            "line 3: `hours-a-week` of 0 contradicts `cards` of 2",
        ),
        (
            "[[maintenance]]\nfrom = 2026-12-01T08:00:00Z\nuntil = 2026-12-01T07:00:00Z\n",
            "line 3: `until` of 2026-12-01T07:00:00Z contradicts `from` of 2026-12-01T08:00:00Z",
        ),
        (
            "[[maintenance]]\nfrom = 2026-12-01T08:00:00Z\nuntil = 2026-12-01T09:00:00Z\n",
            "line 2: a maintenance window contradicts leases without an end: [default] has no \
             `longest`",
        ),
        (
            "[[maintenance]]\nfrom = 2026-12-01T08:00:00\nuntil = 2026-12-01T09:00:00Z\n",
            "line 2: `from` is 2026-12-01T08:00:00, not a date and time with its zone, such as \
             2026-12-01T08:00:00Z",
        ),
        (
            "half-life = \"0d\"",
            "line 1: `half-life` is `0d`, which is no time",
        ),
        (
            "\npatience = \"soon\"",
            "line 2: `patience` is `soon`, not a time such as 90s, 30m, 4h, 1h30m, 1.5h, 7d or 2w",
        ),
    ] {
        assert_eq!(said(text), expected);
    }
    let overlap = format!(
        "{LAB}\n[[maintenance]]\nfrom = 2026-12-01T11:00:00Z\nuntil = 2026-12-01T13:00:00Z\n"
    );
    assert!(
        said(&overlap).contains("the one on line 22: they overlap"),
        "{}",
        said(&overlap)
    );
    assert!(said("[default]\ncrads = 2\n").starts_with("line 2: unknown field `crads`"));
    assert_eq!(
        said("[default]\ncards = -1\n"),
        "line 2: invalid value: integer `-1`, expected a whole number from 0 to 4294967295"
    );
    let far = said("[users.bo]\npriority = 9999999999\n");
    assert!(far.contains("from -2147483648 to 2147483647"), "{far}");
    assert!(said("[default\n").starts_with("line 1: "));
}

#[test]
fn the_soonest_idle_time_is_anybodys() {
    let soonest = |text| Policy::parse(text).expect(text).soonest_idle_ms();
    assert_eq!(soonest(""), None);
    assert_eq!(soonest("[default]\nidle = \"30m\"\n"), Some(600_000));
    let few = "[default]\nidle = \"30m\"\n[groups.short]\nidle = \"90s\"\n";
    assert_eq!(soonest(few), Some(90_000));
}

#[test]
fn a_time_may_have_several_units() {
    let policy = Policy::parse("[default]\nlongest = \"1d12h\"\nidle = \"1.5h\"\n").expect("times");
    let limits = policy.limits_for(&who("bo", &[]));
    assert_eq!(limits.longest_ms, Some(36 * 3_600_000));
    assert_eq!(limits.idle_ms, Some(5_400_000));
}

proptest! {
    #[test]
    fn hostile_text_is_refused_or_read(text in "\\PC{0,200}") {
        let _ = Policy::parse(&text);
    }

    #[test]
    fn a_changed_policy_is_refused_or_read(at in 0..LAB.len(), with in any::<char>()) {
        let mut text: Vec<char> = LAB.chars().collect();
        text[at] = with;
        let _ = Policy::parse(&text.into_iter().collect::<String>());
    }
}
