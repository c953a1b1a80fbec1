//! HTTP/1.1 as far as this server speaks it: requests without a body, one a connection. What arrives is
//! anyone's: it is bounded, parsed by `httparse`, and refused where two readers could differ about it.

/// The largest head of a request, bytes.
pub(super) const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;

/// A request for something.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HttpRequest {
    /// Only what a GET would have before its body is wanted.
    pub(super) head_only: bool,
    /// Decoded, and without the query.
    pub(super) path: String,
    pub(super) query: Vec<(String, String)>,
    pub(super) host: String,
    /// `Authorization: Bearer …`.
    pub(super) token: Option<String>,
}

impl HttpRequest {
    /// A number of the query.
    pub(super) fn numeric_parameter(&self, name: &str) -> Option<u64> {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.and_then(|(_, value)| value.parse().ok())
    }
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpRejection {
    Malformed,
    NotGet,
    TooLarge,
    HasBody,
}

impl HttpRejection {
    pub(super) fn status(self) -> HttpStatus {
        match self {
            Self::Malformed => HttpStatus::BadRequest,
            Self::NotGet => HttpStatus::MethodNotAllowed,
            Self::TooLarge => HttpStatus::HeadTooLarge,
            Self::HasBody => HttpStatus::BodyTooLarge,
        }
    }
}

/// What a status line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpStatus {
    Ok,
    BadRequest,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    BodyTooLarge,
    Misdirected,
    HeadTooLarge,
    Failed,
    Busy,
}

impl HttpStatus {
    pub(super) fn code_and_reason(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::Misdirected => "421 Misdirected Request",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Failed => "500 Internal Server Error",
            Self::Busy => "503 Service Unavailable",
        }
    }
}

/// Reads a request's head; `None` while it is not whole.
///
/// # Errors
/// What is no GET or HEAD of this server.
pub(super) fn parse_request(bytes: &[u8]) -> Result<Option<HttpRequest>, HttpRejection> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD_BYTES => {
            return Err(HttpRejection::TooLarge);
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HttpRejection::TooLarge),
        Err(_) => return Err(HttpRejection::Malformed),
    }
    let head_only = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(HttpRejection::NotGet),
    };
    let (mut host, mut token) = (None, None);
    for header in request.headers.iter() {
        let value = str::from_utf8(header.value)
            .map_err(|_| HttpRejection::Malformed)?
            .trim();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") {
            if host.replace(value.to_ascii_lowercase()).is_some() {
                return Err(HttpRejection::Malformed);
            }
        } else if is("authorization") {
            let bearer = value
                .split_once(' ')
                .filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
            token = bearer.map(|(_, token)| token.trim().to_owned());
        } else if is("transfer-encoding") || (is("content-length") && value != "0") {
            return Err(HttpRejection::HasBody);
        }
    }
    let target = request
        .path
        .filter(|target| target.starts_with('/'))
        .ok_or(HttpRejection::Malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(key)?, decoded(value)?))
    });
    Ok(Some(HttpRequest {
        head_only,
        path: decoded(path).ok_or(HttpRejection::Malformed)?,
        query: query
            .collect::<Option<_>>()
            .ok_or(HttpRejection::Malformed)?,
        host: host.ok_or(HttpRejection::Malformed)?,
        token,
    }))
}

/// A text without its `%XX`; `None` where that is no text, or has what no name of ours has.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

/// What is answered.
#[derive(Debug)]
pub(super) struct HttpResponse {
    pub(super) status: HttpStatus,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

/// Content types.
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const CSS: &str = "text/css; charset=utf-8";
pub(super) const JS: &str = "text/javascript; charset=utf-8";
pub(super) const JSON: &str = "application/json";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus's text format.
pub(super) const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
pub(super) const EVENTS: &str = "text/event-stream";

/// A page may load its own script and style and ask this server; nothing else, and nobody may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl HttpResponse {
    pub(super) fn ok(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: HttpStatus::Ok,
            kind,
            body: body.into(),
        }
    }

    /// A refusal, with a sentence for whoever reads it.
    pub(super) fn plain_text_error(status: HttpStatus, why: &str) -> Self {
        Self {
            status,
            kind: TEXT,
            body: format!("{why}\n").into_bytes(),
        }
    }
}

/// The head of an answer. `length` is absent for a stream, which ends with its connection.
pub(super) fn response_head(status: HttpStatus, kind: &str, length: Option<usize>) -> String {
    let mut head = format!(
        "HTTP/1.1 {}\r\nContent-Type: {kind}\r\n",
        status.code_and_reason()
    );
    if let Some(length) = length {
        head += &format!("Content-Length: {length}\r\n");
    }
    match status {
        HttpStatus::Unauthorized => head += "WWW-Authenticate: Bearer\r\n",
        HttpStatus::MethodNotAllowed => head += "Allow: GET, HEAD\r\n",
        _ => {}
    }
    head + "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
        Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
        Cross-Origin-Opener-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\
        Content-Security-Policy: "
        + POLICY
        + "\r\n\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn get(text: &str) -> Result<Option<HttpRequest>, HttpRejection> {
        parse_request(text.as_bytes())
    }

    #[test]
    fn what_a_browser_sends_is_read() {
        let text = "GET /api/runs/a%20b/series?from=5&to=x HTTP/1.1\r\nHost: LocalHost:8080\r\n\
            User-Agent: curl\r\nauthorization: bearer  abc \r\n\r\n";
        let request = get(text).unwrap().unwrap();
        assert_eq!(request.path, "/api/runs/a b/series");
        assert_eq!(
            (
                request.numeric_parameter("from"),
                request.numeric_parameter("to")
            ),
            (Some(5), None)
        );
        assert_eq!(request.host, "localhost:8080");
        assert_eq!(request.token.as_deref(), Some("abc"));
        for end in 0..text.len() {
            assert_eq!(get(&text[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let host = "Host: a\r\n";
        for (text, why) in [
            (
                format!("POST / HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::NotGet,
            ),
            (
                format!("get / HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::NotGet,
            ),
            (
                "GET / HTTP/1.1\r\n\r\n".to_owned(),
                HttpRejection::Malformed,
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}{host}\r\n"),
                HttpRejection::Malformed,
            ),
            (
                format!("GET http://b/ HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::Malformed,
            ),
            (
                format!("GET /%ff HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::Malformed,
            ),
            (
                format!("GET /%0d%0aa HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::Malformed,
            ),
            (
                format!("GET /%4 HTTP/1.1\r\n{host}\r\n"),
                HttpRejection::Malformed,
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\n"),
                HttpRejection::HasBody,
            ),
            (
                format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n"),
                HttpRejection::HasBody,
            ),
            (
                format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65)),
                HttpRejection::TooLarge,
            ),
            (
                format!("GET /{}", "a".repeat(MAX_HEAD_BYTES)),
                HttpRejection::TooLarge,
            ),
            ("\u{16}\u{3}\u{1}".to_owned(), HttpRejection::Malformed),
        ] {
            assert_eq!(get(&text), Err(why), "{text}");
        }
    }

    #[test]
    fn an_answer_is_for_its_own_page_alone() {
        let head = response_head(HttpStatus::Ok, JSON, Some(7));
        assert!(head.contains("Content-Length: 7\r\n") && head.ends_with("\r\n\r\n"));
        assert!(!head.contains("Access-Control") && head.contains("default-src 'none'"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, at in 0_usize..80) {
            let _ = parse_request(&bytes);
            let mut text = b"GET /a?b=%41 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n".to_vec();
            let at = at.min(text.len());
            text.splice(at..at, bytes);
            let _ = parse_request(&text);
        }
    }
}
