//! An HTTP server on the loopback interface that does what a closure says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request without its body.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// All header lines, lower case names.
    pub(crate) headers: Vec<(String, String)>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap()
    }

    /// A field of the query, percent-decoded.
    pub(crate) fn query(&self, name: &str) -> Option<String> {
        self.fields(name).into_iter().next()
    }

    /// All fields of that name.
    pub(crate) fn fields(&self, name: &str) -> Vec<String> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        fields(query, name)
    }

    /// `METHOD TARGET`.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

/// The fields of a form.
pub(crate) fn fields(form: &str, name: &str) -> Vec<String> {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let wanted = pairs.filter(|(key, _)| *key == name);
    wanted.map(|(_, value)| decoded(value)).collect()
}

fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
            let digits = std::str::from_utf8(&digits).unwrap().to_owned();
            out.push(u8::from_str_radix(&digits, 16).unwrap());
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).unwrap()
}

/// A request's connection: its body, and the answer.
pub(crate) struct Conn {
    reader: BufReader<TcpStream>,
    /// Bytes of the body that were not read.
    left: usize,
}

impl Conn {
    /// Reads up to `most` bytes of the body.
    pub(crate) fn body(&mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let wanted = most.min(self.left) as u64;
        // The client may have gone away on purpose.
        let _ = (&mut self.reader).take(wanted).read_to_end(&mut bytes);
        self.left -= bytes.len();
        bytes
    }

    /// Answers with a status line and more headers, and a body.
    pub(crate) fn answer(&mut self, head: &str, body: &[u8]) {
        self.answer_some(head, body.len(), body);
    }

    /// As [`Conn::answer`], with a length of its own.
    pub(crate) fn answer_some(&mut self, head: &str, length: usize, body: &[u8]) {
        // A connection that is closed with bytes unread is reset, and the answer lost.
        self.body(usize::MAX);
        let head =
            format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        self.raw(head.as_bytes());
        self.raw(body);
    }

    /// Sends bytes as they are. Returns whether they went.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> bool {
        // The client may have gone away on purpose.
        self.reader.get_mut().write_all(bytes).is_ok()
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
    pub(crate) fn start(handler: impl Fn(&Request, &mut Conn) + Send + Sync + 'static) -> Self {
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
                let Ok(stream) = stream else { return };
                std::thread::spawn(move || {
                    let limit = Some(Duration::from_secs(20));
                    stream.set_write_timeout(limit).unwrap();
                    stream.set_read_timeout(limit).unwrap();
                    let mut first = [0];
                    // 22 begins a TLS handshake, which this server does not speak.
                    if !matches!(stream.peek(&mut first), Ok(1)) || first[0] == 22 {
                        return;
                    }
                    let mut reader = BufReader::new(stream);
                    if let Some(request) = read_request(&mut reader) {
                        let length = request.header("content-length");
                        let left = length.map_or(0, |text| text.parse().unwrap());
                        log.lock().unwrap().push(request.clone());
                        handler(&request, &mut Conn { reader, left });
                    }
                });
            }
        });
        Self { port, stop, seen }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host())
    }

    /// What was asked, but for the question whether this is a registry at all.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let mut all = self.seen.lock().unwrap().clone();
        all.retain(|request| request.target != "/v2/");
        all
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.requests().iter().map(Request::line).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the loop, so that it sees the flag.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = || {
        let mut text = String::new();
        reader.read_line(&mut text).ok()?;
        Some(text.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    while let Some((key, value)) = line()?.split_once(':') {
        headers.push((key.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some(Request {
        method,
        target,
        headers,
    })
}
