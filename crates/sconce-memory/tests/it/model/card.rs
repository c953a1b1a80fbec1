//! The card of the model: a list of what is taken.

pub(crate) struct Card {
    pub(crate) total: u64,
    used: u64,
    mallocs: Vec<(u64, u64)>,
    reserved: Vec<(u64, u64)>,
}

const GRANULE: u64 = 2 << 20;

/// The lowest place from `base` on that touches nothing.
fn place(taken: &[(u64, u64)], base: u64, span: u64, size: u64) -> Option<u64> {
    let ends = taken.iter().map(|&(from, size)| from + size);
    let mut starts: Vec<u64> = ends.chain([base]).collect();
    starts.sort_unstable();
    starts.into_iter().find(|&start| {
        let end = start + size;
        let apart = |&(from, size): &(u64, u64)| end <= from || from + size <= start;
        end <= base + span && taken.iter().all(apart)
    })
}

impl Card {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            used: 0,
            mallocs: Vec::new(),
            reserved: Vec::new(),
        }
    }

    pub(crate) fn malloc(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.total {
            return None;
        }
        let size = bytes.div_ceil(GRANULE) * GRANULE;
        if self.used + size > self.total {
            return None;
        }
        let from = place(&self.mallocs, 1 << 40, 1 << 40, size)?;
        self.mallocs.push((from, size));
        self.used += size;
        Some(from)
    }

    pub(crate) fn free(&mut self, from: u64) {
        let at = self.mallocs.iter().position(|range| range.0 == from);
        self.used -= self.mallocs.remove(at.expect("it is taken")).1;
    }

    pub(crate) fn reserve(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.div_ceil(GRANULE) * GRANULE;
        let from = place(&self.reserved, 16 << 40, 8 << 40, size)?;
        self.reserved.push((from, size));
        Some(from)
    }

    pub(crate) fn unreserve(&mut self, from: u64) {
        self.reserved.retain(|range| range.0 != from);
    }

    /// Pages, one after the other; none of them where one is too many.
    pub(crate) fn take(&mut self, count: u64, page: u64) -> bool {
        for taken in 0..count {
            if self.used + page > self.total {
                self.used -= taken * page;
                return false;
            }
            self.used += page;
        }
        true
    }

    pub(crate) fn give(&mut self, bytes: u64) {
        self.used -= bytes;
    }
}
