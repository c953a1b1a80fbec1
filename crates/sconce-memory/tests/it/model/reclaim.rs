//! What is given back to the card.

use sconce_memory::allocator::PoolId;

use super::{At, Model, State, Wish};

impl Model {
    pub(super) fn give_back(&mut self, from: u64) {
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

    pub(super) fn addresses(&self, at: &[At]) -> Vec<u64> {
        at.iter()
            .map(|at| self.segments[at.0].pieces[at.1].from)
            .collect()
    }

    pub(super) fn collect(&mut self) {
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

    pub(super) fn release_some(&mut self, wish: &Wish) -> bool {
        let Some(max_split) = self.settings.max_split_size else {
            return false;
        };
        let wanted = wish.size.max(max_split);
        let free = self.free(wish.pool, wish.small, Some(wish.stream));
        let size = |at: &At| self.segments[at.0].pieces[at.1].size;
        let plain = |at: &At| {
            let segment = &self.segments[at.0];
            segment.page.is_none() && segment.pieces.len() == 1
        };
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

    pub(super) fn release_pool_blocks(&mut self, pool: PoolId, small: bool) {
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
}
