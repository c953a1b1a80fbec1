//! Why a request waits.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What keeps a request from starting now; of several things the one that lasts whatever the others
/// do: the user's own limit before the cards, these before maintenance and the queue's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum WaitReason {
    /// The user would have more cards at once than the policy gives.
    Limit {
        /// Who.
        user: String,
        /// Cards of their leases.
        held: u32,
        /// Cards of their requests that come before this one.
        asked: u32,
        /// The policy's limit.
        limit: u32,
    },
    /// It lasts as long as the user's GPU-hours of the week do, and there are none left now.
    Hours {
        /// Who.
        user: String,
        /// The policy's hours of seven days, card seconds.
        limit_s: u64,
    },
    /// Fewer cards than it needs are there: others were lost.
    Missing {
        /// Cards that would do.
        there: u32,
        /// Cards asked for.
        wanted: u32,
    },
    /// Others hold the cards.
    Held {
        /// Cards that would do and that nobody holds.
        free: u32,
        /// Cards that would do.
        there: u32,
        /// Cards asked for.
        wanted: u32,
    },
    /// No lease reaches into maintenance.
    Maintenance {
        /// Whether it goes on now; else it begins before the lease would end.
        begun: bool,
        /// Why there is one, in the owner's words.
        why: Option<String>,
    },
    /// The cards are kept for a request that comes before by the queue's order.
    Before {
        /// Whose that is.
        user: String,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let are = |number: u32| if number == 1 { "is" } else { "are" };
        match self {
            Self::Limit {
                user,
                held,
                asked: 0,
                limit,
            } => write!(
                f,
                "{user} holds {held} of the {limit} that {user} may hold at once"
            ),
            Self::Limit {
                user,
                held,
                asked,
                limit,
            } => write!(
                f,
                "{user} holds {held} and waits for {asked} of {limit} that are allowed"
            ),
            Self::Hours { user, limit_s } => write!(
                f,
                "{user} has none of {} GPU-hours of the last seven days left",
                super::error::format_hours_without_unit(*limit_s)
            ),
            Self::Missing { there, wanted } => write!(
                f,
                "{there} that would do {} there, and {wanted} {} wanted",
                are(*there),
                are(*wanted)
            ),
            Self::Held {
                free,
                there,
                wanted,
            } => write!(
                f,
                "{free} of {there} that would do {} free, {wanted} {} wanted",
                are(*free),
                are(*wanted)
            ),
            Self::Maintenance { begun, why } => {
                f.write_str(match begun {
                    true => "maintenance goes on",
                    false => "it would reach into maintenance",
                })?;
                why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::Before { user } => write!(f, "free cards are kept for {user}, who is before"),
        }
    }
}
