//! Server-sent events: which runs there are and how far each is, whenever that changes.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::http::{self, HttpStatus};
use super::{WebServer, write_with_timeout};

/// How often it is looked whether something changed.
const CHANGE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the end of the server is looked for.
const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After which silence something is sent, so that a page that is gone is noticed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Sends until the page or the server is gone.
pub(super) fn stream_run_events(server: &Arc<WebServer>, connection: &TcpStream) -> io::Result<()> {
    write_with_timeout(
        connection,
        http::response_head(HttpStatus::Ok, http::EVENTS, None).as_bytes(),
    )?;
    let (mut told, mut spoke) = (None, Instant::now());
    while !server.ending.load(Ordering::Relaxed) {
        let now = server.site.run_states_json();
        if told.as_ref() != Some(&now) {
            write_with_timeout(
                connection,
                format!("event: runs\ndata: {now}\n\n").as_bytes(),
            )?;
            (told, spoke) = (Some(now), Instant::now());
        } else if spoke.elapsed() >= KEEPALIVE_INTERVAL {
            write_with_timeout(connection, b": \n\n")?;
            spoke = Instant::now();
        }
        let next = Instant::now() + CHANGE_POLL_INTERVAL;
        while Instant::now() < next && !server.ending.load(Ordering::Relaxed) {
            thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
    }
    Ok(())
}
