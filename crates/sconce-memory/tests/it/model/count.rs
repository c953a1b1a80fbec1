//! Counting.

use std::collections::{BTreeMap, BTreeSet};

use super::{Model, State};

impl Model {
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
