//! The slow, obvious allocator: segments in a vector, each with its pieces in a vector, everything
//! found by looking at all of it and every counter counted anew. Written from the description of
//! PyTorch's rules, not from the simulator.

mod card;

use std::collections::{BTreeMap, BTreeSet};

use sconce_memory::allocator::settings::Settings;
use sconce_memory::allocator::{BlockState, PoolId, PoolOptions, Takes, Version};

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
    pub(crate) settings: Settings,
    version: Version,
    card: Card,
    limit: Option<u64>,
    pub(crate) segments: Vec<Segment>,
    searches: BTreeMap<(PoolId, bool), u64>,
    pools: BTreeMap<PoolId, Pool>,
    diverted: Vec<(PoolId, Takes, bool)>,
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
    pub(crate) fn new(settings: Settings, capacity: u64, version: Version) -> Self {
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
        if fraction == 1.0 && self.version >= Version::new(2, 9) {
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
                    if piece.is_free() {
                        free.push((segment.stream, piece.size, piece.from, (s, p)));
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
        let takes = |entry: &&(PoolId, Takes, bool)| {
            entry.1 == Takes::All || entry.1 == Takes::Stream(stream)
        };
        let pool = match self.version >= Version::new(2, 9) {
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
        match self.version >= Version::new(2, 13) {
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

    pub(crate) fn free_address(&mut self, from: u64) {
        let at = self.find(from);
        self.piece(at).state = State::Waiting { events: 0 };
        if self.piece(at).uses.is_empty() {
            self.freed(from);
        } else if self.diverted.is_empty() {
            self.record(from);
        } else {
            self.deferred.push(from);
        }
        self.count();
    }

    pub(crate) fn use_on(&mut self, from: u64, stream: u64) {
        let at = self.find(from);
        if self.segments[at.0].stream != stream {
            let diverted = !self.diverted.is_empty();
            // Once seen while diverted, always seen so.
            let seen = self.piece(at).uses.entry(stream).or_insert(diverted);
            *seen |= diverted;
        }
    }

    fn record(&mut self, from: u64) {
        let at = self.find(from);
        let uses = std::mem::take(&mut self.piece(at).uses);
        let events = uses.len();
        self.piece(at).state = State::Waiting { events };
        for stream in uses.into_keys() {
            self.queues.entry(stream).or_default().0.push(from);
        }
    }

    fn record_deferred(&mut self) {
        for from in std::mem::take(&mut self.deferred) {
            let at = self.find(from);
            self.piece(at).uses.retain(|_, diverted| !*diverted);
            self.record(from);
            let at = self.find(from);
            if self.piece(at).state == (State::Waiting { events: 0 }) {
                self.freed(from);
            }
        }
    }

    fn completed(&mut self, from: u64) {
        let at = self.find(from);
        let piece = self.piece(at);
        let State::Waiting { events } = &mut piece.state else {
            panic!("{piece:?} does not wait");
        };
        *events -= 1;
        if *events == 0 {
            self.freed(from);
        }
    }

    fn process_events(&mut self) {
        self.record_deferred();
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            let at_once = self.at_once;
            let (waiting, done) = self.queues.get_mut(&stream).expect("it is a key");
            let done = if at_once { waiting.len() } else { *done };
            let done: Vec<u64> = waiting.drain(..done).collect();
            self.queues.get_mut(&stream).expect("it is a key").1 = 0;
            for from in done {
                self.completed(from);
            }
        }
    }

    pub(crate) fn complete(&mut self, stream: u64, count: Option<usize>) {
        if let Some((waiting, done)) = self.queues.get_mut(&stream) {
            *done = (*done + count.unwrap_or(waiting.len())).min(waiting.len());
        }
    }

    pub(crate) fn synchronize(&mut self) {
        for (waiting, done) in self.queues.values_mut() {
            *done = waiting.len();
        }
    }

    fn wait(&mut self, only: Option<PoolId>) {
        self.numbers.waits += 1;
        self.record_deferred();
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            let (waiting, done) = self.queues.remove(&stream).expect("it is a key");
            let mut stay = (Vec::new(), 0);
            for (place, from) in waiting.into_iter().enumerate() {
                let pool = self.segments[self.find(from).0].pool;
                if only.is_none_or(|only| only == pool) {
                    self.completed(from);
                } else {
                    stay.0.push(from);
                    stay.1 += usize::from(place < done);
                }
            }
            self.queues.insert(stream, stay);
        }
    }

    /// A piece becomes free, and one with its free neighbours.
    fn freed(&mut self, from: u64) {
        let at = self.find(from);
        let (pool, small) = (self.segments[at.0].pool, self.segments[at.0].small);
        let since = self.searched(pool, small);
        *self.piece(at) = Piece {
            asked: 0,
            ..Piece::new(
                from,
                self.segments[at.0].pieces[at.1].size,
                State::Free { since },
            )
        };
        self.join(at);
        self.count();
    }

    /// One with its neighbours that are as it is; gives where it is then.
    fn join(&mut self, at: At) -> At {
        let pieces = &mut self.segments[at.0].pieces;
        let mut p = at.1;
        let mapped = |piece: &Piece| piece.state != State::Unmapped;
        let alike = |a: &Piece, b: &Piece| a.is_idle() && b.is_idle() && mapped(a) == mapped(b);
        if p + 1 < pieces.len() && alike(&pieces[p], &pieces[p + 1]) {
            pieces[p].size += pieces.remove(p + 1).size;
        }
        if p > 0 && alike(&pieces[p - 1], &pieces[p]) {
            p -= 1;
            let gone = pieces.remove(p + 1);
            pieces[p].size += gone.size;
            pieces[p].state = gone.state;
        }
        (at.0, p)
    }

    fn expand(&mut self, wish: &Wish) -> Option<At> {
        let mut unmapped = Vec::new();
        for (s, segment) in self.segments.iter().enumerate() {
            let same = segment.pool == wish.pool && segment.small == wish.small;
            if same && segment.stream == wish.stream {
                for (p, piece) in segment.pieces.iter().enumerate() {
                    if piece.state == State::Unmapped {
                        unmapped.push((piece.from, (s, p)));
                    }
                }
            }
        }
        unmapped.sort();
        let mut start = None;
        for (_, (s, p)) in unmapped {
            let pieces = &self.segments[s].pieces;
            let first = if p > 0 && pieces[p - 1].is_free() {
                p - 1
            } else {
                p
            };
            let run = pieces[first..].iter().take_while(|piece| piece.is_idle());
            if run.map(|piece| piece.size).sum::<u64>() >= wish.size {
                start = Some(pieces[first].from);
                break;
            }
        }
        let from = match start {
            Some(from) => from,
            None => {
                let page = match wish.small {
                    true => 2 * MIB,
                    false => self.settings.large_segment_size,
                };
                let size = (self.card.total / 8 * 9).max(1).div_ceil(page) * page;
                let from = self.card.reserve(size)?;
                self.segments.push(Segment {
                    pool: wish.pool,
                    small: wish.small,
                    stream: wish.stream,
                    page: Some(page),
                    pieces: vec![Piece::new(from, size, State::Unmapped)],
                });
                from
            }
        };
        loop {
            let at = self.find(from);
            let piece = self.piece(at).clone();
            if piece.is_free() && piece.size >= wish.size {
                return Some(at);
            }
            let (at, missing) = match piece.is_free() {
                true => ((at.0, at.1 + 1), wish.size - piece.size),
                false => (at, wish.size),
            };
            if at.1 == self.segments[at.0].pieces.len() || !self.map(at, missing) {
                return None;
            }
        }
    }

    fn map(&mut self, at: At, bytes: u64) -> bool {
        let segment = &self.segments[at.0];
        let (pool, small) = (segment.pool, segment.small);
        let page = segment.page.expect("it is expandable");
        let room = segment.pieces[at.1].size;
        let size = bytes.min(room).div_ceil(page) * page;
        if !self.card.take(size / page, page) {
            return false;
        }
        let since = self.searched(pool, small);
        let piece = self.piece(at);
        piece.state = State::Free { since };
        piece.size = size;
        let rest = Piece::new(piece.from + size, room - size, State::Unmapped);
        if room > size {
            self.segments[at.0].pieces.insert(at.1 + 1, rest);
        }
        self.join(at);
        self.numbers.card_allocs += 1;
        self.count();
        true
    }

    fn unmap(&mut self, from: u64) {
        let at = self.find(from);
        let segment = &self.segments[at.0];
        let (pool, small) = (segment.pool, segment.small);
        let page = segment.page.expect("it is expandable");
        let base = segment.pieces[0].from;
        let piece = segment.pieces[at.1].clone();
        let end = piece.from + piece.size;
        let first = base + (piece.from - base).div_ceil(page) * page;
        let last = base + (end - base) / page * page;
        if first >= last {
            return;
        }
        let since = self.searched(pool, small);
        let mut pieces = vec![
            Piece::new(piece.from, first - piece.from, State::Free { since }),
            Piece::new(first, last - first, State::Unmapped),
            Piece::new(last, end - last, State::Free { since }),
        ];
        pieces.retain(|piece| piece.size > 0);
        self.segments[at.0].pieces.splice(at.1..=at.1, pieces);
        let at = self.find(first);
        self.join(at);
        self.card.give(last - first);
        self.numbers.card_frees += 1;
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.from_card = pool.from_card.saturating_sub(1);
        }
        let pieces = &self.segments[at.0].pieces;
        if pieces.len() == 1 {
            self.card.unreserve(pieces[0].from);
            self.segments.remove(at.0);
        }
        self.count();
    }

    fn give_back(&mut self, from: u64) {
        let at = self.find(from);
        let segment = self.segments.remove(at.0);
        assert!(segment.page.is_none() && segment.pieces.len() == 1);
        self.card.free(from);
        self.numbers.card_frees += 1;
        if let Some(pool) = self.pools.get_mut(&segment.pool) {
            pool.from_card = pool.from_card.saturating_sub(1);
        }
        self.count();
    }

    fn addresses(&self, at: &[At]) -> Vec<u64> {
        at.iter()
            .map(|at| self.segments[at.0].pieces[at.1].from)
            .collect()
    }

    fn collect(&mut self) {
        let limit = self.limit.expect("there is one");
        let part = self
            .settings
            .garbage_collection_threshold
            .expect("there is one");
        let threshold = (part * limit as f64) as u64;
        if self.reserved() <= threshold {
            return;
        }
        let target = self.reserved() - threshold;
        let searches = self.searched(PoolId(0, 0), false);
        let mut reclaimed = 0;
        loop {
            let mut whole = self.free(PoolId(0, 0), false, None);
            whole.retain(|at| self.segments[at.0].pieces.len() == 1);
            let age = |at: &At| match self.segments[at.0].pieces[at.1].state {
                State::Free { since } => searches - since,
                _ => panic!("it is free"),
            };
            let total: u64 = whole.iter().map(age).sum();
            let average = total as f64 / whole.len() as f64;
            let mut old = whole.clone();
            old.retain(|at| self.segments[at.0].page.is_none() && age(at) as f64 >= average);
            if reclaimed >= target || old.is_empty() {
                return;
            }
            for from in self.addresses(&old) {
                let at = self.find(from);
                reclaimed += self.piece(at).size;
                self.give_back(from);
            }
        }
    }

    fn release_some(&mut self, wish: &Wish) -> bool {
        let Some(max_split) = self.settings.max_split_size else {
            return false;
        };
        let wanted = wish.size.max(max_split);
        let free = self.free(wish.pool, wish.small, Some(wish.stream));
        let size = |at: &At| self.segments[at.0].pieces[at.1].size;
        let plain = |at: &At| self.segments[at.0].page.is_none();
        let first = free.iter().find(|at| size(at) >= wanted);
        if let Some(at) = first.filter(|at| plain(at)) {
            let from = self.segments[at.0].pieces[at.1].from;
            self.give_back(from);
            return true;
        }
        let mut released = 0;
        let mut chosen = Vec::new();
        for at in free.iter().rev().filter(|at| size(at) < wanted) {
            if released >= wanted || size(at) < max_split {
                break;
            }
            if plain(at) {
                released += size(at);
                chosen.push(*at);
            }
        }
        for from in self.addresses(&chosen) {
            self.give_back(from);
        }
        released >= wanted
    }

    pub(crate) fn release_all(&mut self, only: Option<PoolId>) {
        if only.is_none() && self.may_wait() {
            self.wait(None);
            self.release_pool_blocks(PoolId(0, 0), false);
            self.release_pool_blocks(PoolId(0, 0), true);
        }
        let released: Vec<PoolId> = self.pools.keys().copied().collect();
        for id in released {
            if self.pools[&id].users > 0 || only.is_some_and(|only| only != id) {
                continue;
            }
            if only.is_some() {
                self.wait(only);
            }
            self.release_pool_blocks(id, true);
            self.release_pool_blocks(id, false);
            let has = self.segments.iter().any(|segment| segment.pool == id);
            let begun = self.diverted.iter().any(|entry| entry.0 == id);
            if self.pools[&id].from_card == 0 && !has && !begun {
                self.pools.remove(&id);
                self.searches.remove(&(id, true));
                self.searches.remove(&(id, false));
            }
        }
    }

    fn release_pool_blocks(&mut self, pool: PoolId, small: bool) {
        let free = self.free(pool, small, None);
        let (expandable, plain): (Vec<At>, Vec<At>) = free
            .into_iter()
            .partition(|at| self.segments[at.0].page.is_some());
        let mut plain = plain;
        plain.retain(|at| self.segments[at.0].pieces.len() == 1);
        let (plain, expandable) = (self.addresses(&plain), self.addresses(&expandable));
        for from in plain {
            self.give_back(from);
        }
        for from in expandable {
            self.unmap(from);
        }
    }

    pub(crate) fn create_pool(&mut self, id: PoolId, options: PoolOptions) -> bool {
        if self.pools.contains_key(&id) {
            return false;
        }
        let options = match self.version >= Version::new(2, 9) {
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

    pub(crate) fn begin_pool(&mut self, id: PoolId, takes: Takes, captures: bool) -> bool {
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

    /// Counts everything anew.
    pub(crate) fn count(&mut self) {
        let mut now: BTreeMap<(&'static str, Option<bool>), u64> = BTreeMap::new();
        for name in [
            "active",
            "active_bytes",
            "allocated_bytes",
            "allocation",
            "inactive_split",
            "inactive_split_bytes",
            "requested_bytes",
            "reserved_bytes",
            "segment",
            "oversize_allocations",
            "oversize_segments",
        ] {
            for pool in [None, Some(true), Some(false)] {
                now.insert((name, pool), 0);
            }
        }
        let max_split = self.max_split();
        for segment in &self.segments {
            let mut add = |name, amount| {
                for pool in [None, Some(segment.small)] {
                    *now.entry((name, pool)).or_default() += amount;
                }
            };
            if segment.page.is_none() {
                add("segment", 1);
                let size: u64 = segment.pieces.iter().map(|piece| piece.size).sum();
                add("oversize_segments", u64::from(size >= max_split));
            }
            for piece in &segment.pieces {
                let busy = piece.state == State::Busy;
                if piece.state != State::Unmapped {
                    add("reserved_bytes", piece.size);
                }
                if busy {
                    add("allocation", 1);
                    add("allocated_bytes", piece.size);
                    add("oversize_allocations", u64::from(piece.size >= max_split));
                }
                if busy || matches!(piece.state, State::Waiting { .. }) {
                    add("active", 1);
                    add("active_bytes", piece.size);
                    add("requested_bytes", piece.asked);
                }
                if piece.is_free() && segment.page.is_none() && segment.pieces.len() > 1 {
                    add("inactive_split", 1);
                    add("inactive_split_bytes", piece.size);
                }
            }
        }
        for (key, now) in now {
            let count = self.counts.entry(key).or_default();
            count.now = now;
            count.peak = count.peak.max(now);
        }
    }

    /// Addresses that are allocated.
    pub(crate) fn busy(&self) -> BTreeSet<u64> {
        let pieces = self.segments.iter().flat_map(|segment| &segment.pieces);
        let busy = pieces.filter(|piece| piece.state == State::Busy);
        busy.map(|piece| piece.from).collect()
    }
}
