//! Checks of a service's health that Sconce makes itself, in a process of their own: whoever started
//! it ends it when it takes too long.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any check may take, so that a read ends at some time even if nobody ends the process.
const READ_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Whether something listens on this port of the loopback address.
pub(super) fn is_port_open(port: u16) -> bool {
    connect(port).is_some()
}

/// Whether `GET` of a path is answered with a status of 200 to 399.
pub(super) fn is_http_ok(port: u16, path: &str) -> bool {
    connect(port).is_some_and(|stream| answers(stream, port, path).unwrap_or(false))
}

fn connect(port: u16) -> Option<TcpStream> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let stream = TcpStream::connect(v4).or_else(|_| TcpStream::connect(v6));
    stream.ok()
}

fn answers(mut stream: TcpStream, port: u16, path: &str) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: sconce\r\nConnection: close\r\n\r\n"
    )?;
    // As much as a status line needs, whatever comes after it.
    let mut first = Vec::new();
    stream.take(16).read_to_end(&mut first)?;
    Ok(status(&first).is_some_and(|status| (200..400).contains(&status)))
}

/// The status of the beginning of an answer (RFC 9112, section 4).
fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', digits @ ..] = rest else {
        return None;
    };
    let digits = digits
        .get(..3)
        .filter(|d| d.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_status_is_read_from_an_answer_and_from_nothing_else() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 404"), Some(404));
        for answer in [
            &b""[..],
            b"HTTP/1.1 ",
            b"HTTP/1.1 20",
            b"HTTP/1.1 2x0 OK",
            b"HTTP/2 200",
            b"SSH-2.0-OpenSSH",
            b"\xff\xfe\0",
        ] {
            assert_eq!(status(answer), None, "{answer:?}");
        }
    }

    #[test]
    fn a_server_is_healthy_when_it_answers_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = listener.local_addr().unwrap().port();
        let answers = [
            "HTTP/1.1 302 Found\r\n\r\n",
            "HTTP/1.1 503 Not yet\r\n\r\n",
            "nonsense",
            "",
        ];
        let served = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                // To its end: what is left unread would turn the end into a reset.
                let (mut asked, mut one) = (Vec::new(), [0_u8]);
                while !asked.ends_with(b"\r\n\r\n") {
                    stream.read_exact(&mut one).unwrap();
                    asked.extend(one);
                }
                assert!(asked.starts_with(b"GET "));
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        assert_eq!(
            answers.map(|_| is_http_ok(number, "/api")),
            [true, false, false, false]
        );
        served.join().unwrap();
        assert!(!is_port_open(number), "nobody listens any more");
    }
}
