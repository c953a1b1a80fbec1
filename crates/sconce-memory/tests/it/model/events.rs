//! What happens to freed pieces.

use sconce_memory::allocator::PoolId;

use super::{At, Model, Piece, State};

impl Model {
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

    pub(super) fn record(&mut self, from: u64) {
        let at = self.find(from);
        let uses = std::mem::take(&mut self.piece(at).uses);
        let events = uses.len();
        self.piece(at).state = State::Waiting { events };
        for stream in uses.into_keys() {
            self.queues.entry(stream).or_default().0.push(from);
        }
    }

    pub(super) fn record_deferred(&mut self) {
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

    pub(super) fn completed(&mut self, from: u64) {
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

    pub(super) fn process_events(&mut self) {
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

    pub(super) fn wait(&mut self, only: Option<PoolId>) {
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
    pub(super) fn freed(&mut self, from: u64) {
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
    pub(super) fn join(&mut self, at: At) -> At {
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
}
