//! What one user, and one connection, may take of the service.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much the service bears.
#[derive(Debug, Clone)]
pub struct ConnectionQuotas {
    /// A request is there whole so long after its connection came, and an answer is taken whole so
    /// long after it was begun; whoever is slower is hung up on.
    pub patience: Duration,
    /// Connections at once; root's are not counted.
    pub at_once: usize,
    /// Connections at once of one user, who is asked to come again beyond it.
    pub per_user: usize,
}

impl Default for ConnectionQuotas {
    /// 5 seconds, 256 connections, 32 of one user.
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            at_once: 256,
            per_user: 32,
        }
    }
}

/// The connections that there are, by user.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots(Mutex<BTreeMap<u32, usize>>);

/// One of them; free again when this is dropped.
pub(super) struct ConnectionSlot<'a> {
    places: &'a ConnectionSlots,
    uid: u32,
}

impl ConnectionSlots {
    /// A place for that user, if there is one.
    pub(super) fn acquire_slot(
        &self,
        uid: u32,
        bounds: &ConnectionQuotas,
    ) -> Option<ConnectionSlot<'_>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others: usize = taken
            .iter()
            .filter(|(uid, _)| **uid != 0)
            .map(|t| t.1)
            .sum();
        let own = taken.get(&uid).copied().unwrap_or(0);
        // The machine's owner gets in, whoever else is there.
        let full = uid != 0 && (own >= bounds.per_user || others >= bounds.at_once);
        (!full).then(|| {
            *taken.entry(uid).or_default() += 1;
            ConnectionSlot { places: self, uid }
        })
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

/// A connection that is over at a time, however little comes now and then.
pub(super) struct DeadlineStream<'a> {
    pub(super) stream: &'a UnixStream,
    pub(super) until: Instant,
}

impl DeadlineStream<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for DeadlineStream<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for DeadlineStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_cannot_take_all_places_and_root_finds_one() {
        let bounds = ConnectionQuotas {
            at_once: 5,
            per_user: 2,
            ..ConnectionQuotas::default()
        };
        let places = ConnectionSlots::default();
        let take = |uid| places.acquire_slot(uid, &bounds);
        let mut first: Vec<_> = (0..9).filter_map(|_| take(1)).collect();
        assert_eq!(first.len(), 2);
        let others: Vec<_> = [2, 2, 3, 3].into_iter().filter_map(take).collect();
        assert_eq!(others.len(), 3, "five in all");
        let owner: Vec<_> = (0..9).filter_map(|_| take(0)).collect();
        assert_eq!(owner.len(), 9);
        assert!(take(4).is_none());
        first.pop();
        let next = take(1);
        assert!(next.is_some(), "it was given back");
        drop((first, others, owner, next));
        assert!(places.0.lock().is_ok_and(|taken| taken.is_empty()));
    }
}
