//! An HTTP server on the loopback interface that does what a closure says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as the handler sees it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// From `Range: bytes=N-`.
    pub(crate) from: Option<usize>,
    /// All header lines, lower case names.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A running server; it stops when dropped.
pub(crate) struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts one. The connection is closed when the handler returns.
    pub(crate) fn start(
        handler: impl Fn(&Request, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (ended, log) = (Arc::clone(&stop), Arc::clone(&seen));
        let handler = Arc::new(handler);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || {
                    stream
                        .set_write_timeout(Some(Duration::from_secs(20)))
                        .unwrap();
                    stream
                        .set_read_timeout(Some(Duration::from_secs(20)))
                        .unwrap();
                    if let Some(request) = read_request(&stream) {
                        log.lock().unwrap().push(request.clone());
                        handler(&request, &mut stream);
                    }
                });
            }
        });
        Self { port, stop, seen }
    }

    /// Serves `bytes` under every path, ranges included.
    pub(crate) fn file(bytes: Vec<u8>) -> Self {
        Self::start(move |request, stream| serve(request, stream, &bytes))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the loop, so that it sees the flag.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        let Some((key, value)) = line.split_once(':') else {
            break;
        };
        headers.push((key.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let from = headers
        .iter()
        .find(|(key, _)| key == "range")
        .and_then(|(_, value)| {
            value
                .strip_prefix("bytes=")?
                .strip_suffix('-')?
                .parse()
                .ok()
        });
    Some(Request {
        path,
        from,
        headers,
    })
}

/// Answers as a good server does.
pub(crate) fn serve(request: &Request, stream: &mut TcpStream, bytes: &[u8]) {
    serve_some(request, stream, bytes, usize::MAX);
}

/// As [`serve`], but breaks off after `most` bytes of the body.
pub(crate) fn serve_some(request: &Request, stream: &mut TcpStream, bytes: &[u8], most: usize) {
    let from = request.from.unwrap_or(0).min(bytes.len());
    let body = &bytes[from..];
    let head = match request.from {
        Some(_) => format!(
            "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
            bytes.len() - 1,
            bytes.len()
        ),
        None => "200 OK".to_owned(),
    };
    answer(stream, &head, body.len(), &body[..body.len().min(most)]);
}

/// Sends a status line with more headers, a length and a body.
pub(crate) fn answer(stream: &mut TcpStream, head: &str, length: usize, body: &[u8]) {
    let head = format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // The client may have gone away on purpose.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body));
}
