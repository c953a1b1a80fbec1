//! One machine, several users: a root-owned service that answers on a socket.
//!
//! Who asks is what the kernel says of the socket's other end (`SO_PEERCRED`, unix(7)); nothing
//! that a request says of its sender is believed, because it cannot say anything. One line of JSON
//! comes, one goes back, and the connection is over.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use super::peer::{Peer, identify_peer};
pub use super::quotas::ConnectionQuotas;
use super::quotas::{ConnectionSlots, DeadlineStream};
use super::types::{LeaseRequest, LeaseResponse};
use super::{LeaseError, LeaseRefusal};

/// No answer is longer, bytes.
const MAX_RESPONSE_BYTES: u64 = 4 << 20;
/// A request is short; what is longer is nobody's.
const MAX_REQUEST_BYTES: u64 = 64 << 10;
/// For so long the asking side waits for an answer, and for a place.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time until a user who has no place left asks again.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Time in which the machine may find what it has no more of: descriptors, memory, threads.
const RESOURCE_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Version of what is said.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestEnvelope {
    format: u32,
    ask: LeaseRequest,
}

/// What the service is made of.
pub struct LeaseServiceOptions<'a> {
    /// What is borne.
    pub bounds: ConnectionQuotas,
    /// [`identify_peer`](crate::peer::identify_peer).
    pub identify: &'a (dyn Fn(&UnixStream) -> io::Result<Peer> + Sync),
    /// Whose places a user id takes; quick, as everybody waits for it.
    pub charged: &'a (dyn Fn(u32) -> u32 + Sync),
    /// Does the work; called by several threads at once.
    pub answer: &'a (dyn Fn(&Peer, &LeaseRequest) -> Result<LeaseResponse, LeaseError> + Sync),
    /// Whether it is over, asked with each connection.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// What follows from a connection that could not be taken.
#[derive(Debug, PartialEq, Eq)]
enum AcceptFailure {
    /// It was that connection alone.
    Next,
    /// The machine has no more of something; it will have again.
    Pause,
    /// The socket is no socket any more.
    End,
}

/// accept(2): what is of one connection, of the machine at this moment, and of the socket.
fn then(error: &io::Error) -> AcceptFailure {
    match error.raw_os_error() {
        Some(libc::EINTR | libc::ECONNABORTED | libc::EPROTO | libc::EPERM) => AcceptFailure::Next,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN) => {
            AcceptFailure::Pause
        }
        _ => AcceptFailure::End,
    }
}

/// Answers until `stop` says so, each connection on a thread of its own.
///
/// # Errors
/// When the socket fails.
pub fn serve(listener: &UnixListener, serving: &LeaseServiceOptions<'_>) -> io::Result<()> {
    let places = ConnectionSlots::default();
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            if (serving.stop)() {
                break;
            }
            let stream = match stream {
                Ok(stream) => stream,
                Err(error) => match then(&error) {
                    AcceptFailure::Next => continue,
                    AcceptFailure::Pause => {
                        std::thread::sleep(RESOURCE_RETRY_DELAY);
                        continue;
                    }
                    AcceptFailure::End => return Err(error),
                },
            };
            let peer = match (serving.identify)(&stream) {
                Ok(peer) => peer,
                Err(error) => {
                    // There may be no descriptor left for a handle. Whoever hung up already hears
                    // nothing.
                    turn_away(&stream);
                    if then(&error) == AcceptFailure::Pause {
                        std::thread::sleep(RESOURCE_RETRY_DELAY);
                    }
                    continue;
                }
            };
            let Some(place) = places.acquire_slot((serving.charged)(peer.uid), &serving.bounds)
            else {
                turn_away(&stream);
                continue;
            };
            let one = std::thread::Builder::new().spawn_scoped(scope, move || {
                // Whoever hangs up needs no answer.
                let _ = one(&stream, &peer, serving);
                drop(place);
            });
            if one.is_err() {
                std::thread::sleep(RESOURCE_RETRY_DELAY);
            }
        }
        Ok(())
    })
}

/// Says that there is no place, which fits into an empty socket: nobody waits for this one.
fn turn_away(stream: &UnixStream) {
    let _ = stream.set_nonblocking(true);
    let _ = say(stream, &LeaseResponse::Refused(LeaseRefusal::Crowded));
}

fn say(mut to: impl io::Write, said: &LeaseResponse) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(said)?;
    bytes.push(b'\n');
    to.write_all(&bytes)
}

fn one(stream: &UnixStream, peer: &Peer, serving: &LeaseServiceOptions<'_>) -> io::Result<()> {
    let patience = serving.bounds.patience;
    let timed = || DeadlineStream {
        stream,
        until: Instant::now() + patience,
    };
    let mut line = Vec::new();
    BufReader::new(timed().take(MAX_REQUEST_BYTES)).read_until(b'\n', &mut line)?;
    let said = match read(&line) {
        Ok(ask) => (serving.answer)(peer, &ask).unwrap_or_else(|error| {
            let mut text = error.to_string();
            if let Some(cause) = std::error::Error::source(&error) {
                text = format!("{text}: {cause}");
            }
            LeaseResponse::Refused(LeaseRefusal::Service(text))
        }),
        Err(refusal) => LeaseResponse::Refused(refusal),
    };
    say(timed(), &said)
}

/// A request's line.
fn read(line: &[u8]) -> Result<LeaseRequest, LeaseRefusal> {
    let wrong = |error: serde_json::Error| LeaseRefusal::Unreadable(error.to_string());
    let asked: RequestEnvelope = serde_json::from_slice(line).map_err(wrong)?;
    if asked.format != FORMAT {
        let text = format!("format {} is not {FORMAT}", asked.format);
        return Err(LeaseRefusal::Unreadable(text));
    }
    Ok(asked.ask)
}

/// Asks the service at `socket`, again where it has no place left.
///
/// # Errors
/// When it does not answer.
pub fn send_request(socket: &Path, ask: &LeaseRequest) -> Result<LeaseResponse, LeaseError> {
    let until = Instant::now() + RESPONSE_TIMEOUT;
    loop {
        let said = talk(socket, ask).map_err(|source| LeaseError::Service {
            socket: socket.to_owned(),
            source,
        })?;
        if said != LeaseResponse::Refused(LeaseRefusal::Crowded) || Instant::now() >= until {
            return Ok(said);
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

fn talk(socket: &Path, ask: &LeaseRequest) -> io::Result<LeaseResponse> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    let asked = RequestEnvelope {
        format: FORMAT,
        ask: ask.clone(),
    };
    let mut bytes = serde_json::to_vec(&asked)?;
    bytes.push(b'\n');
    match stream.write_all(&bytes) {
        // It may have hung up without hearing, and have said why.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written?,
    }
    let mut line = Vec::new();
    BufReader::new((&stream).take(MAX_RESPONSE_BYTES)).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_of_before_are_read() {
        let text = crate::golden::goldens().read_text("requests.jsonl");
        let read: Result<Vec<_>, _> = text.lines().map(|line| read(line.as_bytes())).collect();
        assert_eq!(read, Ok(crate::golden::asks()));
    }

    #[test]
    fn requests_are_read_strictly() {
        let look = br#"{"format":1,"ask":"look"}"#;
        assert_eq!(read(look), Ok(LeaseRequest::Look));
        for wrong in [
            &br#"{"format":2,"ask":"look"}"#[..],
            br#"{"format":1,"ask":"look","uid":0}"#,
            br#"{"format":1,"ask":{"return":{"id":-1}}}"#,
            b"",
            b"\xff\n",
        ] {
            assert!(matches!(read(wrong), Err(LeaseRefusal::Unreadable(_))));
        }
    }

    #[test]
    fn a_lack_of_descriptors_passes_and_a_broken_socket_ends_the_service() {
        let of = |code| then(&io::Error::from_raw_os_error(code));
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert_eq!(of(code), AcceptFailure::Pause);
        }
        for code in [libc::EINTR, libc::ECONNABORTED] {
            assert_eq!(of(code), AcceptFailure::Next);
        }
        for code in [libc::EBADF, libc::EINVAL, libc::ENOTSOCK] {
            assert_eq!(of(code), AcceptFailure::End);
        }
    }

    proptest! {
        #[test]
        fn hostile_requests_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }
    }
}
