//! Several blobs at once, on a few threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use sconce_schema::Progress;

use super::error::RegistryError;

/// Tells how far one blob is, and whether to go on.
pub(super) struct TransferMeter<'a> {
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
    name: String,
    /// The furthest that was told. A blob that is sent again from its beginning counts once.
    furthest: u64,
}

impl<'a> TransferMeter<'a> {
    pub(super) fn new(progress: &'a dyn Progress, stop: &'a AtomicBool, name: String) -> Self {
        progress.advance(&name, 0);
        Self {
            progress,
            stop,
            name,
            furthest: 0,
        }
    }

    /// `at` bytes are through. Fails when another blob has failed.
    pub(super) fn advance_to(&mut self, at: u64) -> Result<(), RegistryError> {
        if at > self.furthest {
            self.progress.advance(&self.name, at - self.furthest);
            self.furthest = at;
        }
        match self.stop.load(Ordering::Relaxed) {
            true => Err(RegistryError::Stopped),
            false => Ok(()),
        }
    }

    pub(super) fn note(&self, text: &str) {
        self.progress.note(text);
    }

    pub(super) fn done(&self) {
        self.progress.done(&self.name);
    }
}

/// Does `work` for every item, on up to `threads` threads, and gives the results in the items'
/// order. The first failure sets `stop`, and is what is returned.
pub(super) fn run_parallel<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    stop: &AtomicBool,
    work: impl Fn(&T) -> Result<R, RegistryError> + Sync,
) -> Result<Vec<R>, RegistryError> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, 64).min(items.len()) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    match work(item) {
                        Ok(result) => {
                            let mut all = results.lock().unwrap_or_else(PoisonError::into_inner);
                            all.push((at, result));
                        }
                        Err(e) => {
                            stop.store(true, Ordering::Relaxed);
                            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            if first.is_none() || matches!(*first, Some(RegistryError::Stopped)) {
                                *first = Some(e);
                            }
                        }
                    }
                }
            });
        }
    });
    if let Some(e) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(e);
    }
    let mut all = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_their_order_and_the_first_failure_counts() {
        let items: Vec<u32> = (0..100).collect();
        let stop = AtomicBool::new(false);
        let doubled = run_parallel(&items, 4, &stop, |n| Ok(n * 2)).unwrap();
        assert_eq!(doubled, items.iter().map(|n| n * 2).collect::<Vec<_>>());
        let seen = AtomicUsize::new(0);
        let error = run_parallel(&items, 4, &stop, |n| {
            seen.fetch_add(1, Ordering::Relaxed);
            // The others are not through before it has failed.
            while *n > 3 && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            match n {
                3 => Err(RegistryError::TooLarge {
                    url: String::new(),
                    limit: 0,
                }),
                _ if stop.load(Ordering::Relaxed) => Err(RegistryError::Stopped),
                _ => Ok(()),
            }
        })
        .unwrap_err();
        assert!(matches!(error, RegistryError::TooLarge { .. }), "{error}");
        assert!(seen.into_inner() < 100);
        assert!(run_parallel(&[] as &[u32], 4, &AtomicBool::new(false), |_| Ok(())).is_ok());
    }
}
