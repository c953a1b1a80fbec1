//! Whose the user ids without accounts are: every user of containers without root has thousands of
//! them (subuid(5)).

/// What `/etc/subuid` says.
#[derive(Debug, Default)]
pub(super) struct SubordinateIds(Vec<Range>);

#[derive(Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    /// The last, itself within.
    last: u32,
    owner: u32,
}

impl SubordinateIds {
    /// Reads `OWNER:FIRST:COUNT` lines; an owner is a number or a name, which `uid_of` knows. Lines
    /// that say nothing are left out, as newuidmap(1) does.
    pub(super) fn parse(text: &str, uid_of: &dyn Fn(&str) -> Option<u32>) -> Self {
        let line = |line: &str| {
            let mut words = line.trim().splitn(3, ':');
            let owner = words.next()?;
            let first: u32 = words.next()?.parse().ok()?;
            let count: u32 = words.next()?.parse().ok()?;
            Some(Range {
                first,
                last: first.checked_add(count.checked_sub(1)?)?,
                owner: owner.parse().ok().or_else(|| uid_of(owner))?,
            })
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Whose that user id is; absent where it is nobody's, or two users'.
    pub(super) fn owner(&self, uid: u32) -> Option<u32> {
        let within = |range: &&Range| (range.first..=range.last).contains(&uid);
        let mut owners = self.0.iter().filter(within).map(|range| range.owner);
        let owner = owners.next()?;
        owners.all(|other| other == owner).then_some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(name: &str) -> Option<u32> {
        match name {
            "anna" => Some(1001),
            "bo" => Some(1002),
            _ => None,
        }
    }

    #[test]
    fn ranges_have_owners() {
        let text = "anna:100000:65536\nbo:165536:65536\n1003:300000:2\ngone:400000:9\n\
                    # anna:500000:1\nanna:x:1\nanna:1\nanna:600000:0\nanna:4294967295:2\n\
                    anna:4294967290:6\nanna:700000:10\nbo:700005:10\n";
        let ranges = SubordinateIds::parse(text, &known);
        for (uid, owner) in [
            (99_999, None),
            (100_000, Some(1001)),
            (165_535, Some(1001)),
            (165_536, Some(1002)),
            (300_001, Some(1003)),
            (300_002, None),
            (400_000, None),
            (500_000, None),
            (600_000, None),
            (u32::MAX, Some(1001)),
            (700_004, Some(1001)),
            (700_005, None),
            (700_014, Some(1002)),
        ] {
            assert_eq!(ranges.owner(uid), owner, "{uid}");
        }
    }

    proptest! {
        #[test]
        fn hostile_text_is_read_or_left_out(text in "[a-z0-9:\n#-]{0,200}", uid in any::<u32>()) {
            let _ = SubordinateIds::parse(&text, &known).owner(uid);
        }
    }
}
