//! What the owner most likely did not mean with a policy that can be followed.

use super::Policy;
use super::policy::PolicyTable;
use super::types::Millis;

const WEEK_MS: Millis = 7 * 24 * 3600 * 1000;

impl Policy {
    /// One sentence for each rule that does nothing on a machine with so many cards, or less than
    /// was surely meant. `is_user` and `is_group` ask for names; that of a directory which is down
    /// now may be there later, so none of this keeps a policy from being followed.
    #[must_use]
    pub fn list_warnings(
        &self,
        cards: u32,
        is_user: &dyn Fn(&str) -> bool,
        is_group: &dyn Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut found = Vec::new();
        of_numbers("[default]", &self.default, cards, &mut found);
        for (name, rules) in &self.groups {
            let table = format!("[groups.{name}]");
            if !is_group(name) {
                found.push(format!("{table}: this machine knows no group {name}"));
            }
            of_numbers(&table, rules, cards, &mut found);
        }
        for (name, rules) in &self.users {
            let table = format!("[users.{name}]");
            // A number is a user id, which needs no account.
            if name.parse::<u32>().is_err() && !is_user(name) {
                found.push(format!("{table}: this machine knows no user {name}"));
            }
            of_numbers(&table, rules, cards, &mut found);
        }
        found
    }
}

fn of_numbers(table: &str, rules: &PolicyTable, there: u32, found: &mut Vec<String>) {
    // A machine whose cards cannot be seen now says nothing of how many it has.
    let seen = Some(there).filter(|there| *there > 0);
    match (rules.cards, seen) {
        (Some(0), _) => found.push(format!("{table}: `cards` of 0 gives no card")),
        (Some(cards), Some(there)) if cards > there => {
            let are = if there == 1 { "is" } else { "are" };
            let more = format!("{table}: `cards` of {cards}, and there {are} {there}");
            found.push(more);
        }
        _ => {}
    }
    if let (Some(week_ms), Some(there)) = (rules.week_ms, seen)
        && week_ms > WEEK_MS * u64::from(there)
    {
        found.push(format!(
            "{table}: `hours-a-week` of {}, and all cards have {} together",
            week_ms / 3_600_000,
            168 * u64::from(there)
        ));
    }
    if rules.queue == Some(0) {
        let none = "`queue` of 0 lets nobody wait, and runs neither";
        found.push(format!("{table}: {none}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, cards: u32) -> Vec<String> {
        let policy = Policy::parse(text).expect(text);
        policy.list_warnings(cards, &|name| name == "anna", &|name| name == "vision")
    }

    #[test]
    fn a_name_that_nobody_has_is_told() {
        let text = "[users.anna]\ncards = 4\n[users.ana]\ncards = 4\n[users.4000000]\ncards = 1\n\
                    [groups.vision]\ncards = 2\n[groups.visoin]\ncards = 2\n";
        assert_eq!(
            of(text, 8),
            [
                "[groups.visoin]: this machine knows no group visoin",
                "[users.ana]: this machine knows no user ana",
            ]
        );
    }

    #[test]
    fn what_the_machine_does_not_have_is_told() {
        let text =
            "[default]\ncards = 99\nhours-a-week = 1345\nqueue = 0\n[users.anna]\ncards = 0\n";
        assert_eq!(
            of(text, 8),
            [
                "[default]: `cards` of 99, and there are 8",
                "[default]: `hours-a-week` of 1345, and all cards have 1344 together",
                "[default]: `queue` of 0 lets nobody wait, and runs neither",
                "[users.anna]: `cards` of 0 gives no card",
            ]
        );
        let fits = "[default]\ncards = 8\nhours-a-week = 1344\nqueue = 1\n";
        assert!(of(fits, 8).is_empty());
        let unseen = "[default]\ncards = 8\nhours-a-week = 10000\n";
        assert!(of(unseen, 0).is_empty(), "the driver is not there yet");
    }
}
