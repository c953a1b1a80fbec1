//! Signs of life of a stage where no live line is drawn: in a log, in CI.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use sconce_schema::Bytes;

/// Time between two signs.
pub(super) const INTERVAL: Duration = Duration::from_secs(30);

/// Prints a line at each interval, until it is dropped.
pub(super) struct Heartbeat {
    bytes: Arc<AtomicU64>,
    /// Its end is the thread's.
    _alive: Sender<()>,
}

impl Heartbeat {
    /// Begins with none of `total` bytes, where the stage has a size. Without a thread there are no signs.
    pub(super) fn start(
        total: Option<u64>,
        interval: Duration,
        mut print: impl FnMut(&str) + Send + 'static,
    ) -> Option<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let (alive, ended) = channel::<()>();
        let (done, began) = (Arc::clone(&bytes), Instant::now());
        let beat = move || {
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let done = done.load(Ordering::Relaxed);
                print(&format_sign(done, total, began.elapsed()));
            }
        };
        std::thread::Builder::new().spawn(beat).ok()?;
        Some(Self {
            bytes,
            _alive: alive,
        })
    }

    /// Counts what has come.
    pub(super) fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn format_sign(done: u64, total: Option<u64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    match (done, total) {
        (0, None) => format!("{seconds} s ..."),
        (done, None) => format!("{}, {seconds} s ...", Bytes(done)),
        (done, Some(total)) => format!("{} of {}, {seconds} s ...", Bytes(done), Bytes(total)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stage_gives_signs_until_it_ends() {
        let (send, receive) = channel();
        let print = move |text: &str| send.send(text.to_owned()).unwrap();
        let heartbeat = Heartbeat::start(Some(4096), Duration::from_millis(20), print).unwrap();
        heartbeat.advance(1024);
        let patience = Duration::from_secs(20);
        let mut last = receive.recv_timeout(patience).unwrap();
        while last.starts_with("0 B") {
            last = receive.recv_timeout(patience).unwrap();
        }
        assert_eq!(last, "1 KiB of 4 KiB, 0 s ...");
        drop(heartbeat);
        // The thread ends, and what it prints with.
        while receive.recv_timeout(patience).is_ok() {}
        let ended = receive.recv_timeout(Duration::ZERO);
        assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn what_is_known_is_said() {
        let minute = Duration::from_secs(60);
        assert_eq!(format_sign(0, None, minute), "60 s ...");
        assert_eq!(format_sign(2048, None, minute), "2 KiB, 60 s ...");
    }
}
