//! What if: a snapshot's trace, played on the simulated allocator under other settings.
//!
//! The calls are those of the trace, whatever comes of them: a program that asks for other sizes
//! when memory is short is not played as it would be. First the trace is played under its own
//! settings; how near that comes to what the snapshot says was reserved tells how far the rest can
//! be trusted.

mod calls;
mod initial_segments;
mod playback;
mod search;

use sconce_schema::finding::Certainty;
use sconce_schema::{Hint, exit};
use serde::{Deserialize, Serialize};

use crate::allocator::device::{GRANULE, MALLOC_SPAN};
use crate::allocator::settings::INTERVALS;
use crate::allocator::{
    Allocator, AllocatorSettings, SettingsError, SimulatedGpu, SimulatedGpuError, TorchVersion,
};
use crate::snapshot::Snapshot;
use calls::ReplayCalls;
use playback::{ReplayCounters, ReplayStart};

/// Version of the written answer.
pub const VERSION: u32 = 1;
/// A replay whose peak is off by less than this part is near what was.
const NEAR: f64 = 0.02;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct WhatIfQuery {
    /// The release whose allocator it was; absent: what the snapshot's fields and its replay say.
    pub version: Option<TorchVersion>,
    /// Bytes of the card that PyTorch may have; absent: what the snapshot says, if it does.
    pub capacity: Option<u64>,
    /// Settings to try, each as `PYTORCH_CUDA_ALLOC_CONF`, instead of those of the run.
    pub confs: Vec<String>,
    /// Whether the best settings are looked for.
    pub search: bool,
}

/// Where the figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacitySource {
    /// The question says it.
    Given,
    /// A request failed: what was reserved and what was free then.
    FailedRequest,
    /// The cache was given back to serve a request, which it is where there is less than the
    /// request needs: this is the most that there can have been.
    Retry,
}

/// What PyTorch may have of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UsableCapacity {
    /// How much.
    pub bytes: u64,
    /// Who says so.
    pub source: CapacitySource,
}

/// What came of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplayOutcome {
    /// The settings, as `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// The most that was reserved.
    pub peak_reserved_bytes: u64,
    /// Requests that had failed and get memory.
    pub saved: u64,
    /// Requests that had failed and fail again.
    pub failed_again: u64,
    /// Requests that had got memory and fail.
    pub failed_now: u64,
    /// Times that the whole cache was given back to serve a request, which waits for the card.
    pub retries: u64,
    /// Calls for memory of the card and to give it back, each of which takes time.
    pub card_calls: u64,
}

impl ReplayOutcome {
    /// Requests without memory.
    #[must_use]
    pub fn failed_request_count(&self) -> u64 {
        self.failed_again.saturating_add(self.failed_now)
    }

    /// The better one is less.
    fn order(&self) -> (u64, u64, u64, u64) {
        let reserved = self.peak_reserved_bytes;
        (
            self.failed_request_count(),
            reserved,
            self.retries,
            self.card_calls,
        )
    }
}

/// The trace, played under the settings that it was recorded under, on a card as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Baseline {
    /// What came of it.
    pub outcome: ReplayOutcome,
    /// Bytes by which what is reserved was off, at most.
    pub farthest_bytes: u64,
    /// Calls after which it was the same, of all [`DeviceWhatIf::calls`].
    pub same_calls: usize,
    /// Requests at the address that they had, which only a virtual card gives again.
    pub same_addresses: u64,
    /// How sure the other answers are for that.
    pub certainty: Certainty,
}

/// The answers for one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceWhatIf {
    /// Its number in the process.
    pub device: u64,
    /// Calls that were played.
    pub calls: usize,
    /// Requests among them that got memory.
    pub requests: u64,
    /// The most that was reserved, as the snapshot says.
    pub peak_reserved_bytes: u64,
    /// Requests that failed.
    pub oom_count: u64,
    /// Entries that do not fit each other.
    pub unmatched: u64,
    /// Bytes that were live before the first entry.
    pub live_before_bytes: u64,
    /// Bytes that were reserved before the first entry.
    pub reserved_before_bytes: u64,
    /// What PyTorch may have of the card; absent where nothing says so, and memory never runs out.
    pub room: Option<UsableCapacity>,
    /// The replay that is to give what was.
    pub as_it_was: Baseline,
    /// The settings of the run from the same beginning as the others: with the live blocks alone.
    pub today: ReplayOutcome,
    /// Those that were asked for.
    pub asked: Vec<ReplayOutcome>,
    /// Those that were searched; none where no search was wished for.
    pub searched: Vec<ReplayOutcome>,
    /// The best of all; absent where the run's own are, or nothing was to be compared.
    pub best: Option<ReplayOutcome>,
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WhatIf {
    /// [`VERSION`].
    pub version: u32,
    /// The release whose rules were followed.
    pub torch: String,
    /// Whether the question named it.
    pub torch_given: bool,
    /// One for each card with a trace.
    pub devices: Vec<DeviceWhatIf>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    /// Nothing to play.
    #[error("the snapshot has no history: it says what was there, not what was asked for")]
    NoTrace,
    /// Settings that PyTorch refuses.
    #[error("`{conf}`")]
    Settings {
        /// The settings.
        conf: String,
        /// What PyTorch says.
        source: SettingsError,
    },
    /// CUDA's own allocator.
    #[error("`{conf}` asks for an allocator of CUDA's own, which is not simulated")]
    MallocAsync {
        /// The settings.
        conf: String,
    },
    /// No card has that.
    #[error(transparent)]
    Capacity(#[from] SimulatedGpuError),
}

impl Hint for WhatIfError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoTrace => Some(
                "torch.cuda.memory._record_memory_history() before the run records it".to_owned(),
            ),
            Self::Settings { source, .. } => source.hint(),
            Self::MallocAsync { .. } => Some("leave `backend` out".to_owned()),
            Self::Capacity(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Capacity(error) => error.exit_code(),
            Self::NoTrace | Self::Settings { .. } | Self::MallocAsync { .. } => exit::BAD_INPUT,
        }
    }
}

/// Answers.
///
/// # Errors
/// [`WhatIfError`].
pub fn what_if(snapshot: &Snapshot, question: &WhatIfQuery) -> Result<WhatIf, WhatIfError> {
    let devices = snapshot.device_numbers().into_iter();
    let devices: Vec<u64> = devices
        .filter(|&one| !snapshot.trace_entries(one).is_empty())
        .collect();
    let versions = match question.version {
        Some(version) => vec![version],
        None => possible(snapshot),
    };
    for conf in &question.confs {
        // Which of the releases it is does not matter yet.
        let newest = versions.last().copied().unwrap_or_default();
        parsed(conf, newest)?;
    }
    let mut version = versions.first().copied().unwrap_or_default();
    let mut answers = Vec::new();
    for (number, &device) in devices.iter().enumerate() {
        let trace = Replay::of(snapshot, device, question)?;
        if number == 0 && versions.len() > 1 {
            // Of releases that would do the same, the oldest: it knows the fewest settings.
            let off = |&version: &TorchVersion| match trace.as_it_was(snapshot, version) {
                Ok(played) => (played.farthest, u64::MAX - played.same_addresses),
                Err(_) => (u64::MAX, 0),
            };
            version = versions.iter().copied().min_by_key(off).unwrap_or(version);
        }
        answers.push(trace.answer(snapshot, question, version)?);
    }
    if answers.is_empty() {
        return Err(WhatIfError::NoTrace);
    }
    Ok(WhatIf {
        version: VERSION,
        torch: version.to_string(),
        torch_given: question.version.is_some(),
        devices: answers,
    })
}

/// The releases that can have written a snapshot, one of each kind that the simulator tells apart,
/// the oldest first.
fn possible(snapshot: &Snapshot) -> Vec<TorchVersion> {
    match snapshot.writer_since {
        Some((2, 15)) => vec![TorchVersion::new(2, 15)],
        Some(_) => [9, 12, 13]
            .map(|minor| TorchVersion::new(2, minor))
            .to_vec(),
        None => vec![TorchVersion::MIN_KNOWN],
    }
}

fn parsed(conf: &str, version: TorchVersion) -> Result<AllocatorSettings, WhatIfError> {
    let settings =
        AllocatorSettings::parse(conf, version).map_err(|source| WhatIfError::Settings {
            conf: conf.to_owned(),
            source,
        })?;
    match settings.malloc_async {
        true => Err(WhatIfError::MallocAsync {
            conf: conf.to_owned(),
        }),
        false => Ok(settings),
    }
}

/// The settings of the run: the text, and what the snapshot says was in effect.
fn own(
    snapshot: &Snapshot,
    version: TorchVersion,
) -> Result<(String, AllocatorSettings), WhatIfError> {
    let Some(said) = &snapshot.settings else {
        return Ok((String::new(), AllocatorSettings::default()));
    };
    let conf = said.conf.clone().unwrap_or_default();
    // A text that this release would refuse was set some other way.
    let mut settings = AllocatorSettings::parse(&conf, version).unwrap_or_default();
    if settings.malloc_async {
        return Err(WhatIfError::MallocAsync { conf });
    }
    settings.max_split_size = said.max_split_size_bytes;
    if let Some(grows) = said.expandable_segments {
        settings.expandable_segments = grows;
    }
    if let Some(part) = said.garbage_collection_threshold {
        settings.garbage_collection_threshold = (part > 0.0 && part < 1.0).then_some(part);
    }
    settings.roundup_power2_divisions = [0; INTERVALS];
    for (size, divisions) in &said.roundup_power2_divisions {
        let mebibytes = size
            .parse::<u64>()
            .ok()
            .filter(|size| size.is_power_of_two());
        let slot = mebibytes.and_then(|size| {
            let slots = &mut settings.roundup_power2_divisions;
            slots.get_mut(size.ilog2() as usize)
        });
        if let Some(slot) = slot.filter(|_| divisions.is_power_of_two()) {
            *slot = *divisions;
        }
    }
    Ok((conf, settings))
}

/// A card's trace, ready to be played.
struct Replay {
    device: u64,
    calls: ReplayCalls,
    stood: Vec<initial_segments::InitialSegment>,
    room: Option<UsableCapacity>,
    /// The simulated card's memory.
    total: u64,
    /// That of the card that it was, which the question may want otherwise.
    own_total: u64,
}

impl Replay {
    fn of(snapshot: &Snapshot, device: u64, question: &WhatIfQuery) -> Result<Self, WhatIfError> {
        let grows = snapshot.settings.as_ref();
        let grows = grows
            .and_then(|one| one.expandable_segments)
            .unwrap_or(false);
        let calls = calls::extract_calls(snapshot, device, grows);
        let room = room(&calls, question.capacity);
        let total = self::total(&calls, room);
        let own_total = self::total(&calls, self::room(&calls, None));
        if question.capacity.is_some() {
            SimulatedGpu::new(total)?;
        }
        Ok(Self {
            device,
            stood: initial_segments::initial_segments(snapshot, device, &calls),
            calls,
            room,
            total,
            own_total,
        })
    }

    fn play(
        &self,
        settings: AllocatorSettings,
        version: TorchVersion,
        start: ReplayStart<'_>,
    ) -> Result<ReplayCounters, WhatIfError> {
        let total = match start {
            ReplayStart::AsItStood(_) => self.own_total,
            ReplayStart::Afresh => self.total,
        };
        let device = SimulatedGpu::new(total.min(MALLOC_SPAN))?;
        let allocator = Allocator::new(settings, device, version);
        Ok(playback::replay_calls(allocator, &self.calls, start))
    }

    fn as_it_was(
        &self,
        snapshot: &Snapshot,
        version: TorchVersion,
    ) -> Result<ReplayCounters, WhatIfError> {
        let (_, settings) = own(snapshot, version)?;
        self.play(settings, version, ReplayStart::AsItStood(&self.stood))
    }

    fn certainty(&self, played: &ReplayCounters) -> Certainty {
        let off = played.peak_reserved.abs_diff(self.calls.peak_reserved) as f64;
        let near = off <= self.calls.peak_reserved as f64 * NEAR;
        let as_before = played.failed_now == 0 && played.saved == 0 && played.missing == 0;
        match (played.farthest, near && as_before) {
            (0, true) if self.calls.unmatched == 0 => Certainty::Certain,
            (_, true) => Certainty::Likely,
            _ => Certainty::Possible,
        }
    }

    fn answer(
        &self,
        snapshot: &Snapshot,
        question: &WhatIfQuery,
        version: TorchVersion,
    ) -> Result<DeviceWhatIf, WhatIfError> {
        let (conf, settings) = own(snapshot, version)?;
        let was = self.as_it_was(snapshot, version)?;
        let begins_within = !self.calls.initial.is_empty() || self.calls.first_reserved > 0;
        let today = match begins_within || self.total != self.own_total {
            true => self.play(settings, version, ReplayStart::Afresh)?,
            false => was,
        };
        let today = outcome(&conf, &today);
        let afresh = |conf: &str| {
            let played = self.play(parsed(conf, version)?, version, ReplayStart::Afresh)?;
            Ok::<_, WhatIfError>(outcome(conf, &played))
        };
        let asked: Result<Vec<ReplayOutcome>, _> =
            question.confs.iter().map(|conf| afresh(conf)).collect();
        let asked = asked?;
        let searched = match question.search {
            true => search::search_settings(version, self.room, |conf| afresh(conf).ok()),
            false => Vec::new(),
        };
        // The run's own stand first: of equals they win.
        let all: Vec<ReplayOutcome> = [&today]
            .into_iter()
            .chain(&asked)
            .chain(&searched)
            .cloned()
            .collect();
        let best = search::select_best(&all).filter(|&best| all[best].order() < today.order());
        let before = self.calls.initial.iter().map(|block| block.bytes);
        Ok(DeviceWhatIf {
            device: self.device,
            calls: self.calls.calls.len(),
            requests: was.requests,
            peak_reserved_bytes: self.calls.peak_reserved,
            oom_count: self.calls.ooms,
            unmatched: self.calls.unmatched,
            live_before_bytes: before.fold(0, u64::saturating_add),
            reserved_before_bytes: self.calls.first_reserved,
            room: self.room,
            as_it_was: Baseline {
                outcome: outcome(&conf, &was),
                farthest_bytes: was.farthest,
                same_calls: was.same,
                same_addresses: was.same_addresses,
                certainty: self.certainty(&was),
            },
            best: best.map(|best| all[best].clone()),
            today,
            asked,
            searched,
        })
    }
}

fn outcome(conf: &str, played: &ReplayCounters) -> ReplayOutcome {
    ReplayOutcome {
        conf: conf.to_owned(),
        peak_reserved_bytes: played.peak_reserved,
        saved: played.saved,
        failed_again: played.failed_again,
        failed_now: played.failed_now.saturating_add(played.missing),
        retries: played.retries,
        card_calls: played.card_calls,
    }
}

/// A card with so much room.
fn total(calls: &ReplayCalls, room: Option<UsableCapacity>) -> u64 {
    // What never runs out leaves room for addresses: each expandable segment takes 9/8 of it.
    let plenty = calls.peak_reserved.saturating_mul(4).max(GRANULE << 9);
    match room {
        Some(room) => room.bytes,
        None => plenty.min(MALLOC_SPAN).next_power_of_two(),
    }
}

/// What PyTorch could have of the card.
fn room(calls: &ReplayCalls, given: Option<u64>) -> Option<UsableCapacity> {
    let from = |bytes, source| Some(UsableCapacity { bytes, source });
    match (given, calls.room_at_oom, calls.room_below) {
        (Some(bytes), ..) => from(bytes, CapacitySource::Given),
        (None, Some(bytes), _) => from(bytes, CapacitySource::FailedRequest),
        (None, None, Some(below)) => {
            let most = below.saturating_sub(GRANULE);
            from(most.max(calls.peak_reserved), CapacitySource::Retry)
        }
        (None, None, None) => None,
    }
}

#[cfg(test)]
mod tests;
