//! What keeps a lease from being given, and what keeps the database from being used.

use std::io;
use std::path::PathBuf;

use sconce_schema::{Bytes, Hint, exit};
use serde::{Deserialize, Serialize};

use super::WaitReason;

/// Why a request was refused. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseRefusal {
    /// No card at all.
    #[error("a lease is of 1 card at least")]
    NoCards,
    /// More than there is.
    #[error("{} asked for and this machine has {}{}", cards(*wanted), number(*there), with(*memory))]
    TooFew {
        /// Cards asked for.
        wanted: u32,
        /// Cards that would serve.
        there: u32,
        /// Memory asked for of each.
        memory: Option<Bytes>,
    },
    /// A card that is not there.
    #[error("there is no card {0}")]
    NoSuchCard(String),
    /// More than the policy gives.
    #[error("{} asked for and {user} may hold {limit} at once", cards(*wanted))]
    TooMany {
        /// Cards asked for.
        wanted: u32,
        /// Who.
        user: String,
        /// The policy's limit.
        limit: u32,
    },
    /// Longer than the policy allows.
    #[error("the longest lease is {} and {} was asked for", hours(*limit_s), hours(*wanted_s))]
    TooLong {
        /// Seconds asked for.
        wanted_s: u64,
        /// The policy's limit, seconds.
        limit_s: u64,
    },
    /// More hours than the policy gives.
    #[error(
        "{user} has {} of {} GPU-hours of the last seven days left, and this needs {}",
        format_hours_without_unit(*left_s), format_hours_without_unit(*limit_s), format_hours_without_unit(*needs_s)
    )]
    WeekOver {
        /// Who.
        user: String,
        /// Card seconds that it needs.
        needs_s: u64,
        /// Card seconds that are left.
        left_s: u64,
        /// The policy's limit, card seconds.
        limit_s: u64,
    },
    /// Nothing is free and nobody wants to wait.
    #[error("{}", busy(why.as_ref()))]
    Busy {
        /// When it would start.
        start_s: Option<u64>,
        /// What keeps it from starting now.
        #[serde(default)]
        why: Option<WaitReason>,
    },
    /// An extension that would reach into maintenance.
    #[error(
        "maintenance begins {} after its end{}",
        hours(*left_s), why.as_ref().map_or_else(String::new, |why| format!(": {why}"))
    )]
    Maintenance {
        /// Seconds between the lease's end and the window.
        left_s: u64,
        /// Why there is one, in the owner's words.
        why: Option<String>,
    },
    /// Whoever waited no longer does, and has nothing.
    #[error("your place in the queue was given up{}", by.as_ref().map_or_else(String::new, |by| format!(" by {by}")))]
    GivenUp {
        /// Who did it; absent where nobody knows any more.
        by: Option<String>,
    },
    /// Somebody waits for the cards.
    #[error("{user} waits for these cards")]
    Awaited {
        /// The first of those who would start later.
        user: String,
    },
    /// No such lease.
    #[error("there is no lease {id}")]
    NoLease {
        /// The number.
        id: u64,
    },
    /// Somebody else's.
    #[error("lease {id} is {user}'s")]
    NotYours {
        /// The number.
        id: u64,
        /// Whose it is.
        user: String,
    },
    /// A lease without an end needs no more time.
    #[error("lease {id} has no end: it lasts as long as its process")]
    NoEnd {
        /// The number.
        id: u64,
    },
    /// A user id without an account, which the policy does not name.
    #[error("user id {uid} has no account on this machine, and no lease")]
    Stranger {
        /// The user id.
        uid: u32,
    },
    /// Enough requests of one user wait.
    #[error("{}", queue_full(user, *waiting, *limit))]
    QueueFull {
        /// Who.
        user: String,
        /// How many of theirs wait.
        waiting: u32,
        /// The policy's limit.
        limit: u32,
    },
    /// The process that is to hold or wait is nobody's here.
    #[error("the process that asks has ended, or has no number on this machine")]
    NoProcess,
    /// The user has as many connections to the service as one may.
    #[error("too many requests at once")]
    Crowded,
    /// A request that cannot be read.
    #[error("the request cannot be read: {0}")]
    Unreadable(String),
    /// The service cannot do its work.
    #[error("the lease service says: {0}")]
    Service(String),
}

fn cards(wanted: u32) -> String {
    match wanted {
        1 => "1 card was".to_owned(),
        wanted => format!("{wanted} cards were"),
    }
}

fn number(cards: u32) -> String {
    match cards {
        0 => "none".to_owned(),
        cards => cards.to_string(),
    }
}

fn with(memory: Option<Bytes>) -> String {
    memory.map_or_else(String::new, |memory| format!(" with {memory}"))
}

fn busy(why: Option<&WaitReason>) -> String {
    let unknown = || "the cards are not free".to_owned();
    why.map_or_else(unknown, ToString::to_string)
}

fn queue_full(user: &str, waiting: u32, limit: u32) -> String {
    match (limit, waiting) {
        (0, _) => format!("no request of {user} may wait"),
        (_, 1) => format!("1 request of {user} waits already, and {limit} at once may"),
        _ => format!("{waiting} requests of {user} wait already, and {limit} at once may"),
    }
}

/// Hours, where the unit stands behind.
pub(super) fn format_hours_without_unit(seconds: u64) -> String {
    if seconds.is_multiple_of(3600) {
        return (seconds / 3600).to_string();
    }
    // What is left is not rounded up to what would be enough.
    format!("{:.2}", (seconds as f64 / 36.0).floor() / 100.0)
}

fn hours(seconds: u64) -> String {
    match seconds {
        0..3600 => format!("{} min", seconds / 60),
        _ if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

impl Hint for LeaseRefusal {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::TooFew { .. } => "leases are of one machine; beyond it is Slurm's or \
                 Kubernetes' work"
                .to_owned(),
            Self::TooMany { .. }
            | Self::TooLong { .. }
            | Self::WeekOver { .. }
            | Self::Maintenance { .. } => {
                "ask for less, or ask the machine's owner to change the policy".to_owned()
            }
            Self::GivenUp { .. } => "ask again, or ask them why".to_owned(),
            Self::Busy {
                why: Some(WaitReason::Limit { .. }),
                ..
            } => {
                "`--wait` waits until one of your leases ends, `sconce lease return` ends one; the \
                 policy is the machine's owner's"
                    .to_owned()
            }
            Self::Busy { .. } => {
                "`--wait` waits for them, `sconce lease list` tells who has what".to_owned()
            }
            Self::Awaited { .. } => "return it when it is over, and take another".to_owned(),
            Self::NoSuchCard(_) | Self::NoLease { .. } | Self::NotYours { .. } => {
                "`sconce lease list` tells what there is".to_owned()
            }
            Self::Stranger { uid } => format!(
                "the machine's owner can name it in the policy, as [users.{uid}], or its owner in \
                 /etc/subuid"
            ),
            Self::QueueFull { .. } => {
                "wait until one of them has its cards, or give one up: `sconce lease return`"
                    .to_owned()
            }
            Self::NoProcess => "in a container with process numbers of its own, `sconce lease \
                 take --no-wait` has cards for a time; better is to ask outside of it"
                .to_owned(),
            Self::Crowded => "ask again in a moment".to_owned(),
            Self::NoCards | Self::NoEnd { .. } | Self::Unreadable(_) | Self::Service(_) => {
                return None;
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Busy { .. }
            | Self::Awaited { .. }
            | Self::QueueFull { .. }
            | Self::GivenUp { .. } => exit::NO,
            Self::Service(_) | Self::Crowded => exit::STORE,
            Self::NoCards
            | Self::TooFew { .. }
            | Self::NoSuchCard(_)
            | Self::TooMany { .. }
            | Self::TooLong { .. }
            | Self::WeekOver { .. }
            | Self::Maintenance { .. }
            | Self::NoLease { .. }
            | Self::NotYours { .. }
            | Self::NoEnd { .. }
            | Self::Stranger { .. }
            | Self::NoProcess
            | Self::Unreadable(_) => exit::BAD_INPUT,
        }
    }
}

/// Why the leases cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// A file.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read`, `write`, `lock`.
        action: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line in the middle of the log is not what was written.
    #[error("{} is damaged at line {line}", path.display())]
    Damaged {
        /// The log.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// Written by a newer Sconce.
    #[error("{} was written by a newer Sconce (format {format})", path.display())]
    Newer {
        /// The log.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// The service does not answer.
    #[error("the lease service at {} does not answer", socket.display())]
    Service {
        /// Its socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The lease has a card that whoever got it does not see.
    #[error("the lease is of the card {0}, which cannot be seen from here")]
    Unseen(String),
    /// The clocks cannot be read.
    #[error("this machine's boot id cannot be read")]
    NoClock,
}

impl Hint for LeaseError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "free some space: nothing was given, and nothing that was held is lost".to_owned()
            }
            Self::File { .. } | Self::NoClock => return None,
            Self::Damaged { path, .. } => format!(
                "the disk lost what was written; move {} away to begin anew: nobody holds \
                 anything then",
                path.display()
            ),
            Self::Newer { .. } => "update Sconce".to_owned(),
            Self::Unseen(_) => {
                "`sconce lease list` tells which cards the lease service sees, `sconce doctor` which \
                 are seen here; update and restart whichever is the older"
                    .to_owned()
            }
            Self::Service { .. } => {
                "the machine's owner starts it as root: `sconce lease serve`".to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::STORE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_card_is_not_cards() {
        let told = |wanted, there, memory| {
            let refusal = LeaseRefusal::TooFew {
                wanted,
                there,
                memory,
            };
            refusal.to_string()
        };
        assert_eq!(
            told(1, 0, None),
            "1 card was asked for and this machine has none"
        );
        assert_eq!(
            told(3, 2, Some(Bytes::from_mib(20_480))),
            "3 cards were asked for and this machine has 2 with 20 GiB"
        );
    }
}
