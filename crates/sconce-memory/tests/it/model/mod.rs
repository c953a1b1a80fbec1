//! The slow, obvious allocator: segments in a vector, each with its pieces in a vector, everything
//! found by looking at all of it and every counter counted anew. Written from the description of
//! PyTorch's rules, not from the simulator.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "this is part of a test, which clippy does not know"
)]

mod card;
mod count;
mod events;
mod expandable;
mod reclaim;

use std::collections::BTreeMap;

use sconce_memory::allocator::settings::AllocatorSettings;
use sconce_memory::allocator::{BlockState, PoolId, PoolOptions, PoolScope, TorchVersion};

use card::Card;

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum State {
    Unmapped,
    Free {
        since: u64,
    },
    /// Given to somebody.
    Busy,
    /// Freed; other streams use it still.
    Waiting {
        events: usize,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Piece {
    pub(crate) from: u64,
    pub(crate) size: u64,
    pub(crate) asked: u64,
    pub(crate) state: State,
    /// Other streams, and whether they came while requests were diverted.
    uses: BTreeMap<u64, bool>,
}

impl Piece {
    fn new(from: u64, size: u64, state: State) -> Self {
        Self {
            from,
            size,
            asked: 0,
            state,
            uses: BTreeMap::new(),
        }
    }

    fn is_free(&self) -> bool {
        matches!(self.state, State::Free { .. })
    }

    fn is_idle(&self) -> bool {
        self.is_free() || self.state == State::Unmapped
    }

    pub(crate) fn shown(&self) -> BlockState {
        match self.state {
            State::Busy => BlockState::Allocated,
            State::Waiting { .. } => BlockState::PendingFree,
            _ => BlockState::Inactive,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) pool: PoolId,
    pub(crate) small: bool,
    pub(crate) stream: u64,
    /// Of an expandable segment.
    pub(crate) page: Option<u64>,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, Default)]
struct Pool {
    options: PoolOptions,
    users: u32,
    from_card: u32,
}

/// The counters that the model keeps: now, and the most there was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) ooms: u64,
    pub(crate) retries: u64,
    pub(crate) waits: u64,
    pub(crate) card_allocs: u64,
    pub(crate) card_frees: u64,
    pub(crate) rejections: u64,
}

pub(crate) struct Model {
    pub(crate) settings: AllocatorSettings,
    version: TorchVersion,
    card: Card,
    limit: Option<u64>,
    pub(crate) segments: Vec<Segment>,
    searches: BTreeMap<(PoolId, bool), u64>,
    pools: BTreeMap<PoolId, Pool>,
    diverted: Vec<(PoolId, PoolScope, bool)>,
    /// Events by stream: addresses of the pieces that wait, and how many have completed.
    queues: BTreeMap<u64, (Vec<u64>, usize)>,
    deferred: Vec<u64>,
    pub(crate) at_once: bool,
    pub(crate) numbers: Numbers,
    /// By name and pool (`None`: both).
    pub(crate) counts: BTreeMap<(&'static str, Option<bool>), Count>,
}

struct Wish {
    size: u64,
    stream: u64,
    pool: PoolId,
    small: bool,
    from_card: u64,
    expandable: bool,
}

type At = (usize, usize);

impl Model {
    pub(crate) fn new(settings: AllocatorSettings, capacity: u64, version: TorchVersion) -> Self {
        let mut model = Self {
            version,
            card: Card::new(capacity),
            limit: None,
            segments: Vec::new(),
            searches: BTreeMap::new(),
            pools: BTreeMap::new(),
            diverted: Vec::new(),
            queues: BTreeMap::new(),
            deferred: Vec::new(),
            at_once: false,
            numbers: Numbers::default(),
            counts: BTreeMap::new(),
            settings,
        };
        if model.settings.per_process_memory_fraction < 1.0 {
            model.set_fraction(model.settings.per_process_memory_fraction);
        }
        model
    }

    pub(crate) fn set_fraction(&mut self, fraction: f64) {
        self.limit = Some((fraction * self.card.total as f64) as u64);
        if fraction == 1.0 && self.version >= TorchVersion::new(2, 9) {
            self.limit = None;
        }
    }

    fn round(&self, n: u64) -> u64 {
        if n < 512 {
            return 512;
        }
        let mut slot = 0;
        while slot < 15 && n >> (21 + slot) != 0 {
            slot += 1;
        }
        let d = self.settings.roundup_power2_divisions[slot];
        if d > 1 && n > 512 * d {
            let mut f = 1_u64;
            while f * 2 <= n {
                f *= 2;
            }
            if n == f {
                return n;
            }
            let q = f / d;
            return if q == 0 { 2 * f } else { n.div_ceil(q) * q };
        }
        n.div_ceil(512) * 512
    }

    fn max_split(&self) -> u64 {
        self.settings.max_split_size.unwrap_or(u64::MAX)
    }

    fn reserved(&self) -> u64 {
        let pieces = self.segments.iter().flat_map(|segment| &segment.pieces);
        let mapped = pieces.filter(|piece| piece.state != State::Unmapped);
        mapped.map(|piece| piece.size).sum()
    }

    fn find(&self, from: u64) -> At {
        for (s, segment) in self.segments.iter().enumerate() {
            for (p, piece) in segment.pieces.iter().enumerate() {
                if piece.from == from {
                    return (s, p);
                }
            }
        }
        panic!("no piece at {from:#x}");
    }

    fn piece(&mut self, at: At) -> &mut Piece {
        &mut self.segments[at.0].pieces[at.1]
    }

    /// Free pieces of a pool, and of one stream where that is said, in their order.
    fn free(&self, pool: PoolId, small: bool, stream: Option<u64>) -> Vec<At> {
        let mut free = Vec::new();
        for (s, segment) in self.segments.iter().enumerate() {
            let same = segment.pool == pool && segment.small == small;
            if same && stream.is_none_or(|stream| stream == segment.stream) {
                for (p, piece) in segment.pieces.iter().enumerate() {
                    // The list of segments is in the order in which they were made.
                    let by_age = self.version >= TorchVersion::new(2, 12) && segment.page.is_none();
                    let age = if by_age { s + 1 } else { 0 };
                    if piece.is_free() {
                        free.push((segment.stream, piece.size, age, piece.from, (s, p)));
                    }
                }
            }
        }
        free.sort();
        free.into_iter().map(|(.., at)| at).collect()
    }

    fn searched(&mut self, pool: PoolId, small: bool) -> u64 {
        *self.searches.entry((pool, small)).or_default()
    }

    pub(crate) fn malloc(&mut self, asked: u64, stream: u64) -> Option<u64> {
        if asked == 0 {
            return Some(0);
        }
        if self.diverted.is_empty() {
            self.process_events();
        }
        let size = self.round(asked);
        let small = size <= MIB;
        let takes = |entry: &&(PoolId, PoolScope, bool)| {
            entry.1 == PoolScope::All || entry.1 == PoolScope::Stream(stream)
        };
        let pool = match self.version >= TorchVersion::new(2, 9) {
            true => self.diverted.iter().rev().find(takes),
            false => self.diverted.iter().find(takes),
        };
        let pool = pool.map_or(PoolId(0, 0), |entry| entry.0);
        let own = self
            .pools
            .get(&pool)
            .is_some_and(|pool| pool.options.own_allocator);
        let mut wish = Wish {
            size,
            stream,
            pool,
            small,
            from_card: match size {
                _ if small => 2 * MIB,
                _ if size < 10 * MIB => self.settings.large_segment_size,
                _ => size.div_ceil(2 * MIB) * 2 * MIB,
            },
            expandable: self.settings.expandable_segments && !own,
        };
        let at = match self.best_fit(&wish) {
            Some(at) => at,
            None => self.otherwise(&mut wish)?,
        };
        Some(self.hand_out(at, &wish, asked))
    }

    fn otherwise(&mut self, wish: &mut Wish) -> Option<At> {
        if self.limit.is_some() && self.settings.garbage_collection_threshold.is_some() {
            self.collect();
        }
        let beyond = |model: &Self| {
            let after = model.reserved().saturating_add(wish.from_card);
            model.limit.is_some_and(|limit| after > limit)
        };
        if self.settings.throw_on_cudamalloc_oom && beyond(self) {
            self.numbers.rejections += 1;
            return None;
        }
        if let Some(at) = self.ask_card(wish) {
            return Some(at);
        }
        if wish.pool == PoolId(0, 0) {
            let ids: Vec<PoolId> = self.pools.keys().copied().collect();
            for id in ids {
                let known = &self.pools[&id];
                let begun = self.diverted.iter().any(|entry| entry.0 == id);
                if !known.options.use_on_oom || known.users == 0 || begun {
                    continue;
                }
                let expandable = std::mem::replace(&mut wish.expandable, false);
                wish.pool = id;
                if let Some(at) = self.best_fit(wish) {
                    return Some(at);
                }
                wish.pool = PoolId(0, 0);
                wish.expandable = expandable;
            }
        }
        if self.release_some(wish)
            && let Some(at) = self.ask_card(wish)
        {
            return Some(at);
        }
        if self.may_wait() {
            self.release_all(None);
            self.numbers.retries += 1;
            if let Some(at) = self.ask_card(wish) {
                return Some(at);
            }
        }
        self.numbers.ooms += 1;
        None
    }

    fn may_wait(&self) -> bool {
        match self.version >= TorchVersion::new(2, 13) {
            true => self.diverted.iter().all(|entry| !entry.2),
            false => self.diverted.is_empty(),
        }
    }

    fn best_fit(&mut self, wish: &Wish) -> Option<At> {
        if self.limit.is_some() && self.settings.garbage_collection_threshold.is_some() {
            *self.searches.entry((wish.pool, wish.small)).or_default() += 1;
        }
        let mut fits = self.free(wish.pool, wish.small, Some(wish.stream));
        fits.retain(|at| self.segments[at.0].pieces[at.1].size >= wish.size);
        let expandable = |at: At| self.segments[at.0].page.is_some();
        let mut chosen = 0;
        if fits.first().is_some_and(|&at| expandable(at)) {
            if wish.expandable {
                let could_be = |at: At| {
                    let pieces = &self.segments[at.0].pieces;
                    let next = pieces.get(at.1 + 1);
                    let next = next.filter(|next| next.state == State::Unmapped);
                    pieces[at.1].size + next.map_or(0, |next| next.size)
                };
                while expandable(fits[chosen])
                    && chosen + 1 < fits.len()
                    && could_be(fits[chosen + 1]) < could_be(fits[chosen])
                {
                    chosen += 1;
                }
            } else {
                fits.retain(|&at| !expandable(at));
            }
        }
        let at = *fits.get(chosen)?;
        let size = self.segments[at.0].pieces[at.1].size;
        let max_split = self.max_split();
        if wish.size < max_split && size >= max_split {
            return None;
        }
        let most = wish
            .size
            .saturating_add(self.settings.max_non_split_rounding);
        (wish.size < max_split || size < most).then_some(at)
    }

    fn ask_card(&mut self, wish: &Wish) -> Option<At> {
        let after = self.reserved().saturating_add(wish.from_card);
        if self.limit.is_some_and(|limit| after > limit) {
            return None;
        }
        let at = match wish.expandable {
            true => self.expand(wish)?,
            false => {
                let from = self.card.malloc(wish.from_card)?;
                let since = self.searched(wish.pool, wish.small);
                let piece = Piece::new(from, wish.from_card, State::Free { since });
                self.segments.push(Segment {
                    pool: wish.pool,
                    small: wish.small,
                    stream: wish.stream,
                    page: None,
                    pieces: vec![piece],
                });
                self.numbers.card_allocs += 1;
                (self.segments.len() - 1, 0)
            }
        };
        if let Some(pool) = self.pools.get_mut(&wish.pool) {
            pool.from_card += 1;
        }
        self.count();
        Some(at)
    }

    fn hand_out(&mut self, at: At, wish: &Wish, asked: u64) -> u64 {
        let whole = self.segments[at.0].pieces[at.1].size;
        let rest = whole - wish.size;
        let options = self.pools.get(&wish.pool).map(|pool| pool.options);
        let splits = match () {
            () if options.is_some_and(|options| options.no_split) => false,
            () if wish.small || wish.expandable => rest >= 512,
            () => wish.size < self.max_split() && rest > MIB,
        };
        let since = self.searched(wish.pool, wish.small);
        let piece = self.piece(at);
        piece.state = State::Busy;
        piece.asked = asked;
        let from = piece.from;
        if splits {
            piece.size = wish.size;
            let rest = Piece::new(from + wish.size, rest, State::Free { since });
            self.segments[at.0].pieces.insert(at.1 + 1, rest);
        }
        self.count();
        from
    }

    pub(crate) fn create_pool(&mut self, id: PoolId, options: PoolOptions) -> bool {
        if self.pools.contains_key(&id) {
            return false;
        }
        let options = match self.version >= TorchVersion::new(2, 9) {
            true => options,
            false => PoolOptions::default(),
        };
        let pool = Pool {
            options,
            users: 1,
            from_card: 0,
        };
        self.pools.insert(id, pool);
        true
    }

    pub(crate) fn begin_pool(&mut self, id: PoolId, takes: PoolScope, captures: bool) -> bool {
        let begun = self.diverted.iter().any(|entry| entry.0 == id);
        let released = self.pools.get(&id).is_some_and(|pool| pool.users == 0);
        if begun || released {
            return false;
        }
        if !self.create_pool(id, PoolOptions::default()) {
            self.pools.get_mut(&id).expect("it is there").users += 1;
        }
        self.diverted.push((id, takes, captures));
        true
    }

    pub(crate) fn end_pool(&mut self, id: PoolId) -> bool {
        let before = self.diverted.len();
        self.diverted.retain(|entry| entry.0 != id);
        self.diverted.len() < before
    }

    pub(crate) fn release_pool(&mut self, id: PoolId) -> bool {
        match self.pools.get_mut(&id) {
            Some(pool) if pool.users > 0 => {
                pool.users -= 1;
                true
            }
            _ => false,
        }
    }
}
