//! The server of `sconce serve`: the page, its figures and the metrics of what is on record.
//!
//! Here are the connections: how many there may be, how long each may take, and who may ask.

mod events;
mod http;
mod record_cache;
mod routes;
mod served_gpus;

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use self::http::{HttpRequest, HttpResponse, HttpStatus, MAX_HEAD_BYTES};
pub use self::record_cache::RecordCache;
use self::routes::RouteResponse;
pub use self::routes::ServerState;
pub use self::served_gpus::ServedGpus;

/// How many connections there may be at once; a stream is one.
const MAX_CONNECTIONS: usize = 64;
/// How many of them may be streams.
const MAX_STREAMS: usize = 24;
/// In which time a request must have arrived.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// In which time its answer must have been taken.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
const CHUNK_BYTES: usize = 64 << 10;

/// A server under way.
pub struct WebServer {
    pub(crate) site: ServerState,
    door: AccessPolicy,
    connections: AtomicUsize,
    streams: AtomicUsize,
    pub(crate) ending: AtomicBool,
}

/// Who may come in.
pub struct AccessPolicy {
    /// SHA-256 of the token: two of them are compared, so that the time tells nothing of the token.
    token: [u8; 32],
    listen: SocketAddr,
    /// Host names that are this server's, beside addresses and `localhost`.
    names: Vec<String>,
    /// `/metrics` needs no token.
    metrics_open: bool,
}

impl AccessPolicy {
    /// Lets in who has the token, at this address: a request has to name it, `localhost` or one of `names`.
    /// `metrics_open` lets anyone read `/metrics`.
    #[must_use]
    pub fn new(token: &str, listen: SocketAddr, names: &[String], metrics_open: bool) -> Self {
        Self {
            token: Sha256::digest(token).into(),
            listen,
            names: names.iter().map(|name| name.to_ascii_lowercase()).collect(),
            metrics_open,
        }
    }

    /// Whether a request names this server. A page of others whose name was made to lead here names
    /// itself; an address cannot be made to lead elsewhere.
    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
            _ => (host, Some(80)),
        };
        if port != Some(self.listen.port()) {
            return false;
        }
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) => {
                let own = self.listen.ip();
                own.is_unspecified()
                    || own == address
                    || (own.is_loopback() && address.is_loopback())
            }
            Err(_) => name == "localhost" || self.names.iter().any(|known| known == name),
        }
    }

    fn knows(&self, token: Option<&str>) -> bool {
        let Some(token) = token else { return false };
        let given: [u8; 32] = Sha256::digest(token).into();
        let differ = (given.iter().zip(&self.token)).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }

    /// Why a request is not answered.
    fn refuses(&self, request: &HttpRequest) -> Option<HttpResponse> {
        if !self.is_ours(&request.host) {
            let why = "This server is not known by that name; --name NAME lets it be.";
            return Some(HttpResponse::plain_text_error(HttpStatus::Misdirected, why));
        }
        let open = match request.path.as_str() {
            "/metrics" => self.metrics_open,
            path => !path.starts_with("/api/"),
        };
        if !open && !self.knows(request.token.as_deref()) {
            let why = "The token is missing or wrong: open the link that `sconce serve` printed.";
            return Some(HttpResponse::plain_text_error(
                HttpStatus::Unauthorized,
                why,
            ));
        }
        None
    }
}

impl WebServer {
    /// Makes a server of what it shows and who may see it.
    #[must_use]
    pub fn new(site: ServerState, door: AccessPolicy) -> Self {
        Self {
            site,
            door,
            connections: AtomicUsize::new(0),
            streams: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
        }
    }

    /// Takes connections until the program ends.
    pub fn accept_connections(self: &Arc<Self>, listener: &TcpListener) {
        for connection in listener.incoming() {
            let Ok(connection) = connection else {
                // Too many open files: those that are open will close.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let Some(place) =
                ConnectionSlot::take(self, |server| &server.connections, MAX_CONNECTIONS)
            else {
                let _ = connection.set_write_timeout(Some(Duration::from_millis(100)));
                let busy = http::response_head(HttpStatus::Busy, http::TEXT, Some(0));
                let _ = (&connection).write_all(busy.as_bytes());
                continue;
            };
            let work = move || {
                // Who goes away while being answered is no error of ours.
                let _ = place.server.answer(&connection);
            };
            let _ = thread::Builder::new()
                .name("request".to_owned())
                .spawn(work);
        }
    }

    /// Reads the newest runs ahead of whoever asks for them.
    pub fn read_ahead(&self) {
        self.site.records.read_ahead();
    }

    /// Waits for answers under way, but not longer than `patience`.
    pub fn shut_down(&self, patience: Duration) {
        self.ending.store(true, Ordering::Relaxed);
        let end = Instant::now() + patience;
        while self.connections.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn answer(self: &Arc<Self>, connection: &TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let request = match ask(connection)? {
            Ok(request) => request,
            Err(refusal) => {
                let why = "This server answers GET and HEAD without a body.";
                return send(
                    connection,
                    &HttpResponse::plain_text_error(refusal.status(), why),
                    false,
                );
            }
        };
        if let Some(refusal) = self.door.refuses(&request) {
            return send(connection, &refusal, request.head_only);
        }
        match self.site.route_request(&request) {
            RouteResponse::Whole(response) => send(connection, &response, request.head_only),
            RouteResponse::Live => {
                match ConnectionSlot::take(self, |server| &server.streams, MAX_STREAMS) {
                    Some(_place) => events::stream_run_events(self, connection),
                    None => {
                        let why = "Too many pages are open.";
                        send(
                            connection,
                            &HttpResponse::plain_text_error(HttpStatus::Busy, why),
                            false,
                        )
                    }
                }
            }
        }
    }
}

/// One of a bounded number of places; given back when it is dropped.
struct ConnectionSlot {
    server: Arc<WebServer>,
    of: fn(&WebServer) -> &AtomicUsize,
}

impl ConnectionSlot {
    fn take(
        server: &Arc<WebServer>,
        of: fn(&WebServer) -> &AtomicUsize,
        most: usize,
    ) -> Option<Self> {
        if of(server).fetch_add(1, Ordering::Relaxed) >= most {
            of(server).fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self {
            server: server.clone(),
            of,
        })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        (self.of)(&self.server).fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads a request's head.
fn ask(mut connection: &TcpStream) -> io::Result<Result<HttpRequest, http::HttpRejection>> {
    let end = Instant::now() + REQUEST_TIMEOUT;
    let mut head = Vec::new();
    let mut chunk = [0; 2048];
    loop {
        connection.set_read_timeout(Some(left(end)?))?;
        let room = (MAX_HEAD_BYTES - head.len()).min(chunk.len());
        let read = connection.read(&mut chunk[..room])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&chunk[..read]);
        match http::parse_request(&head) {
            Ok(None) if head.len() >= MAX_HEAD_BYTES => {
                return Ok(Err(http::HttpRejection::TooLarge));
            }
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(refusal) => return Ok(Err(refusal)),
        }
    }
}

fn send(mut connection: &TcpStream, response: &HttpResponse, head_only: bool) -> io::Result<()> {
    let mut bytes =
        http::response_head(response.status, response.kind, Some(response.body.len())).into_bytes();
    if !head_only {
        bytes.extend_from_slice(&response.body);
    }
    write_with_timeout(connection, &bytes)?;
    // What the other side still sends is read away: closing before that would take the answer back.
    let _ = connection.shutdown(std::net::Shutdown::Write);
    let _ = connection.set_read_timeout(Some(Duration::from_millis(200)));
    let _ = connection.read(&mut [0; 2048]);
    Ok(())
}

/// Writes all of it within [`SEND_TIMEOUT`].
fn write_with_timeout(mut connection: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let end = Instant::now() + SEND_TIMEOUT;
    for chunk in bytes.chunks(CHUNK_BYTES) {
        let mut rest = chunk;
        while !rest.is_empty() {
            connection.set_write_timeout(Some(left(end)?))?;
            match connection.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    (!left.is_zero())
        .then_some(left)
        .ok_or(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(listen: &str, open: bool) -> AccessPolicy {
        AccessPolicy::new(
            "secret",
            listen.parse().unwrap(),
            &["Sun.example".to_owned()],
            open,
        )
    }

    fn request(path: &str, host: &str, token: Option<&str>) -> HttpRequest {
        HttpRequest {
            head_only: false,
            path: path.to_owned(),
            query: Vec::new(),
            host: host.to_owned(),
            token: token.map(str::to_owned),
        }
    }

    #[test]
    fn a_name_that_is_not_ours_is_refused() {
        let loopback = door("127.0.0.1:8000", false);
        for (host, ours) in [
            ("127.0.0.1:8000", true),
            ("localhost:8000", true),
            ("[::1]:8000", true),
            ("sun.example:8000", true),
            ("127.0.0.1:8001", false),
            ("127.0.0.1", false),
            ("192.168.0.7:8000", false),
            ("evil.example:8000", false),
            ("localhost.evil.example:8000", false),
            ("127.0.0.1.evil.example:8000", false),
            ("localhost:8000:8000", false),
            ("", false),
        ] {
            assert_eq!(loopback.is_ours(host), ours, "{host}");
        }
        let anywhere = door("0.0.0.0:80", false);
        assert!(anywhere.is_ours("192.168.0.7") && anywhere.is_ours("[fe80::1]:80"));
        assert!(!anywhere.is_ours("evil.example"));
    }

    #[test]
    fn figures_need_the_token() {
        let refused = |door: &AccessPolicy, path: &str, token| {
            let request = request(path, "127.0.0.1:8000", token);
            door.refuses(&request).map(|response| response.status)
        };
        let closed = door("127.0.0.1:8000", false);
        for token in [
            None,
            Some(""),
            Some("secre"),
            Some("secret2"),
            Some("Secret"),
        ] {
            for path in ["/api/runs", "/api/live", "/metrics"] {
                assert_eq!(
                    refused(&closed, path, token),
                    Some(HttpStatus::Unauthorized),
                    "{path} {token:?}"
                );
            }
            assert_eq!(refused(&closed, "/", token), None);
        }
        assert_eq!(refused(&closed, "/api/runs", Some("secret")), None);
        let open = door("127.0.0.1:8000", true);
        assert_eq!(refused(&open, "/metrics", None), None);
        assert_eq!(
            refused(&open, "/api/runs", None),
            Some(HttpStatus::Unauthorized)
        );
    }
}
