//! What is asked, what is held, and what happened.

use sconce_schema::Bytes;
use serde::{Deserialize, Serialize};

use super::{ClockReading, LeaseRefusal, WaitReason};

/// Time of the leases, milliseconds; see [`ClockReading`] for how it passes.
pub type Millis = u64;

/// Somebody who asks: as the kernel knows them, never as they say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseUser {
    /// User id.
    pub uid: u32,
    /// Login name; the number where the machine knows none.
    pub name: String,
    /// Names of the groups.
    pub groups: Vec<String>,
}

/// A process, so that its number given to another is not taken for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Process id.
    pub pid: u32,
    /// Clock ticks after boot at which it started (proc_pid_stat(5), field 22).
    pub start_ticks: u64,
    /// The boot in which it runs.
    pub boot: String,
}

/// A card as far as leases need to know it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseGpu {
    /// What stays the same: its PCI address, or else its UUID.
    pub key: String,
    /// As the driver counts.
    pub index: u32,
    /// Product name.
    pub name: Option<String>,
    /// Its memory.
    pub memory: Option<Bytes>,
}

/// Which cards are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuSelection {
    /// That many, with at least so much memory each. A card whose memory is unknown has not
    /// enough where some is asked for.
    Any {
        /// How many.
        cards: u32,
        /// Memory of each.
        memory: Option<Bytes>,
    },
    /// These, by [`LeaseGpu::key`].
    These(Vec<String>),
}

impl GpuSelection {
    /// How many cards.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        match self {
            Self::Any { cards, .. } => *cards,
            Self::These(keys) => u32::try_from(keys.len()).unwrap_or(u32::MAX),
        }
    }
}

/// A request for cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// Which.
    pub wanted: GpuSelection,
    /// For how long; absent: as long as the process lives, or the policy allows.
    pub for_ms: Option<Millis>,
    /// Whether the lease ends with the process that asks.
    pub while_alive: bool,
    /// Whether to wait in the queue; the place is lost when the process that asks ends.
    pub wait: bool,
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LeaseRequest {
    /// Cards.
    Take(AcquireRequest),
    /// More time for a lease.
    Extend {
        /// The lease.
        id: u64,
        /// How much more.
        by_ms: Millis,
    },
    /// A lease's end, or a place in the queue given up.
    Return {
        /// The lease.
        id: u64,
    },
    /// Nothing but to be told; see [`Overview`].
    Look,
}

/// The reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseResponse {
    /// Cards are held.
    Granted(Lease),
    /// In the queue.
    Queued(QueueEntry),
    /// The lease is longer now.
    Extended(Lease),
    /// It is over.
    Returned(u64),
    /// What there is.
    Overview(Overview),
    /// No, and why.
    Refused(LeaseRefusal),
}

/// Cards that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Number, never used twice.
    pub id: u64,
    /// Whose.
    pub person: LeaseUser,
    /// [`LeaseGpu::key`] of each.
    pub cards: Vec<String>,
    /// Since when.
    pub since_ms: Millis,
    /// Until when; absent: while its process lives.
    pub until_ms: Option<Millis>,
    /// The process that it ends with.
    pub process: Option<ProcessRef>,
    /// Since when none of its cards was used.
    pub idle_since_ms: Option<Millis>,
    /// When the holder was warned of that.
    pub warned_ms: Option<Millis>,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedRequest {
    /// Number, kept by the lease.
    pub id: u64,
    /// Whose.
    pub person: LeaseUser,
    /// What for.
    pub take: AcquireRequest,
    /// Since when.
    pub asked_ms: Millis,
    /// The process that waits.
    pub process: Option<ProcessRef>,
}

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseEnd {
    /// Given back.
    Returned,
    /// Its time was over.
    Over,
    /// Its process ended.
    ProcessEnded,
    /// The machine was started again, and the process did not survive that.
    Reboot,
    /// Nobody used the cards, and the holder was warned.
    Idle,
}

/// What happened; the log is a list of these, and [`LeaseState`](super::LeaseState) is what they add up to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseEvent {
    /// Time passed.
    Time {
        /// Now, in the time of the leases.
        now_ms: Millis,
        /// The clocks that told.
        clock: ClockReading,
    },
    /// Which cards there are.
    Cards(Vec<LeaseGpu>),
    /// A request came.
    Queued(QueuedRequest),
    /// A request was given up, or its process ended.
    Left {
        /// Which.
        id: u64,
        /// Who gave it up; absent where its process ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A request got its cards.
    Granted {
        /// Which.
        id: u64,
        /// [`LeaseGpu::key`] of each.
        cards: Vec<String>,
        /// Until when.
        until_ms: Option<Millis>,
    },
    /// A lease got more time.
    Extended {
        /// Which.
        id: u64,
        /// Until when now.
        until_ms: Millis,
    },
    /// A lease ended.
    Ended {
        /// Which.
        id: u64,
        /// When.
        at_ms: Millis,
        /// Why.
        why: LeaseEnd,
        /// The policy's half-life, in which its use is forgotten.
        half_life_ms: Millis,
    },
    /// No card of a lease is used, since then; or one is again.
    Idle {
        /// Which.
        id: u64,
        /// Since when; absent: used.
        since_ms: Option<Millis>,
    },
    /// The holder was warned that nothing is used.
    Warned {
        /// Which.
        id: u64,
        /// When.
        at_ms: Millis,
    },
}

/// What was seen of the machine before a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemObservation {
    /// The clocks.
    pub clock: ClockReading,
    /// The cards that answer; a lost one is not among them.
    pub cards: Vec<LeaseGpu>,
    /// Leases and requests, by number, whose process is gone.
    pub gone: Vec<u64>,
}

/// Who has what, and who waits, in wall clock time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Version of this form.
    pub format: u32,
    /// Now, seconds since 1970.
    pub now_s: u64,
    /// The cards that were seen last.
    pub cards: Vec<LeaseGpu>,
    /// What is held, by number.
    pub leases: Vec<LeaseSummary>,
    /// Who waits, in order.
    pub queue: Vec<QueueEntry>,
    /// What is worth telling: clocks that went back, cards that are gone.
    pub remarks: Vec<String>,
    /// The last places in the queue that were given up by somebody.
    #[serde(default)]
    pub given_up: Vec<AbandonedRequest>,
}

/// A place in the queue that somebody gave up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonedRequest {
    /// The request's number.
    pub id: u64,
    /// Login name of who did it.
    pub by: String,
}

/// A lease as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSummary {
    /// Number.
    pub id: u64,
    /// User id.
    pub uid: u32,
    /// Login name.
    pub user: String,
    /// [`LeaseGpu::key`] of each card.
    pub cards: Vec<String>,
    /// Those of them that no longer answer.
    pub lost: Vec<String>,
    /// Seconds since 1970.
    pub since_s: u64,
    /// Seconds since 1970; absent: while its process lives.
    pub until_s: Option<u64>,
    /// The process that it ends with.
    pub pid: Option<u32>,
    /// Seconds for which none of its cards was used.
    pub idle_s: Option<u64>,
    /// Whether the holder was warned of that.
    pub warned: bool,
}

/// A request as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// Number.
    pub id: u64,
    /// User id.
    pub uid: u32,
    /// Login name.
    pub user: String,
    /// How many cards.
    pub cards: u32,
    /// For how long, seconds; absent: while its process lives.
    pub for_s: Option<u64>,
    /// Place in the queue, from 1.
    pub place: u32,
    /// Expected start, seconds since 1970; absent where it hangs on a lease without an end.
    pub start_s: Option<u64>,
    /// Since when it waits, seconds since 1970.
    pub asked_s: u64,
    /// What keeps it from starting now; absent where a service of before does not tell.
    #[serde(default)]
    pub why: Option<WaitReason>,
}

/// Marks a decision's events together with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What to write down, in order; nothing where nothing changed.
    pub events: Vec<LeaseEvent>,
    /// What to say.
    pub answer: LeaseResponse,
}
