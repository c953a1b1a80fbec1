//! Expandable segments.

use super::{At, MIB, Model, Piece, Segment, State, Wish};

impl Model {
    pub(super) fn expand(&mut self, wish: &Wish) -> Option<At> {
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

    pub(super) fn map(&mut self, at: At, bytes: u64) -> bool {
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

    pub(super) fn unmap(&mut self, from: u64) {
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
}
