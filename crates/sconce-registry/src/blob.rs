//! One blob from a registry or its mirrors: in order, without gaps, checked at its end.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use sconce_fetch::content_range;
use sconce_schema::{Progress, Sha256};
use sha2::Digest as _;
use ureq::http::Method;

use super::client::{Endpoint, RegistryClient, RegistryRequest};
use super::error::RegistryError;
use super::pool::TransferMeter;
use super::wire::RequestBody;
use sconce_oci::{Descriptor, Digest};

/// Getting this much further earns a fresh set of retries.
const RETRY_RESET_BYTES: u64 = 1 << 20;
/// How much is read at once, bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Where the bytes go.
trait Out {
    fn put(&mut self, bytes: &[u8]) -> Result<(), RegistryError>;
    /// Throws away what it got. Returns whether it can.
    fn restart(&mut self) -> Result<bool, RegistryError>;
}

struct Sink<'a> {
    to: &'a mut dyn Write,
    what: Digest,
}

impl Out for Sink<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        let what = self.what;
        let written = self.to.write_all(bytes);
        written.map_err(|source| RegistryError::Sink { what, source })
    }

    fn restart(&mut self) -> Result<bool, RegistryError> {
        Ok(false)
    }
}

struct OnDisk<'a> {
    file: &'a mut File,
    path: &'a Path,
}

impl OnDisk<'_> {
    fn failed(&self, source: io::Error) -> RegistryError {
        RegistryError::Disk {
            path: self.path.to_owned(),
            source,
        }
    }
}

impl Out for OnDisk<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), RegistryError> {
        self.file.write_all(bytes).map_err(|e| self.failed(e))
    }

    fn restart(&mut self) -> Result<bool, RegistryError> {
        let again = self.file.set_len(0).and_then(|()| self.file.rewind());
        again.map(|()| true).map_err(|e| self.failed(e))
    }
}

/// How far a blob is.
struct State {
    at: u64,
    hash: sha2::Sha256,
}

/// Brings a blob into a sink.
pub(super) fn into_sink(
    client: &RegistryClient,
    sources: &[Endpoint],
    what: &Descriptor,
    to: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<(), RegistryError> {
    let stop = AtomicBool::new(false);
    let mut meter = TransferMeter::new(progress, &stop, what.digest.to_string());
    let digest = what.digest;
    bring(
        client,
        sources,
        what,
        &mut Sink { to, what: digest },
        &mut meter,
    )
}

/// Brings a blob into the folder, called by its 64 digits. Returns whether it had to be fetched.
pub(super) fn into_folder(
    client: &RegistryClient,
    sources: &[Endpoint],
    what: &Descriptor,
    folder: &Path,
    meter: &mut TransferMeter<'_>,
) -> Result<bool, RegistryError> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(what.digest.to_hex());
    if is_there(&path, what, meter)? {
        meter.advance_to(what.size)?;
        meter.done();
        return Ok(false);
    }
    let failed = |source| RegistryError::Disk {
        path: path.clone(),
        source,
    };
    let mut part = tempfile::Builder::new()
        .prefix(".")
        .suffix(".part")
        .permissions(std::fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)
        .map_err(failed)?;
    let mut out = OnDisk {
        file: part.as_file_mut(),
        path: &path,
    };
    bring(client, sources, what, &mut out, meter)?;
    part.persist(&path).map_err(|e| failed(e.error))?;
    Ok(true)
}

/// Whether the file is there and is the blob.
fn is_there(
    path: &Path,
    what: &Descriptor,
    meter: &mut TransferMeter<'_>,
) -> Result<bool, RegistryError> {
    let is_file = |meta: std::fs::Metadata| meta.is_file() && meta.len() == what.size;
    if !path.symlink_metadata().is_ok_and(is_file) {
        return Ok(false);
    }
    let failed = |source| RegistryError::Disk {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut chunk) = (sha2::Sha256::new(), vec![0; CHUNK_BYTES]);
    loop {
        meter.advance_to(0)?;
        match file.read(&mut chunk).map_err(failed)? {
            0 => break,
            n => hash.update(&chunk[..n]),
        }
    }
    Ok(finished(hash) == what.digest)
}

fn finished(hash: sha2::Sha256) -> Digest {
    Digest(Sha256(hash.finalize().into()))
}

/// Tries the sources in turn. A source that breaks off is gone on from at the next one, since the
/// digest says whether the whole is right.
fn bring(
    client: &RegistryClient,
    sources: &[Endpoint],
    what: &Descriptor,
    out: &mut dyn Out,
    meter: &mut TransferMeter<'_>,
) -> Result<(), RegistryError> {
    let mut state = State {
        at: 0,
        hash: sha2::Sha256::new(),
    };
    for (number, place) in sources.iter().enumerate() {
        let is_last = number + 1 == sources.len();
        let error = match stream(client, place, what, out, &mut state, meter) {
            Ok(url) => {
                let found = finished(state.hash.clone());
                if found == what.digest {
                    meter.done();
                    return Ok(());
                }
                RegistryError::Digest {
                    url,
                    wanted: what.digest,
                    found,
                }
            }
            Err(
                e @ (RegistryError::Sink { .. }
                | RegistryError::Disk { .. }
                | RegistryError::Stopped),
            ) => return Err(e),
            Err(e) => e,
        };
        if is_last {
            return Err(error);
        }
        meter.note(&format!("{error}; the next source is asked"));
        // What came so far may be what is wrong.
        let is_wrong = matches!(
            error,
            RegistryError::Digest { .. } | RegistryError::Size { .. }
        );
        if is_wrong && state.at > 0 {
            if !out.restart()? {
                return Err(error);
            }
            state = State {
                at: 0,
                hash: sha2::Sha256::new(),
            };
        }
    }
    Err(RegistryError::NotFound {
        url: what.digest.to_string(),
        said: None,
    })
}

/// Reads on from where the state is, to the end of the blob, over breaks. Returns the URL.
fn stream(
    client: &RegistryClient,
    place: &Endpoint,
    what: &Descriptor,
    out: &mut dyn Out,
    state: &mut State,
    meter: &mut TransferMeter<'_>,
) -> Result<String, RegistryError> {
    let url = place.resource_url(&format!("blobs/{}", what.digest));
    let (mut tries, mut since) = (0, state.at);
    let mut chunk = vec![0; CHUNK_BYTES];
    while state.at < what.size {
        let error = match open(client, place, &url, what, state.at) {
            Ok(mut source) => {
                match pass_on(&mut *source, &mut chunk, &url, what, out, state, meter)? {
                    None => continue,
                    Some(cause) => RegistryError::BrokeOff {
                        url: url.clone(),
                        at: state.at,
                        total: what.size,
                        tries: 1,
                        source: cause,
                    },
                }
            }
            Err(e) if e.may_pass() => e,
            Err(e) => return Err(e),
        };
        if state.at >= since.saturating_add(RETRY_RESET_BYTES) {
            (tries, since) = (0, state.at);
        }
        tries += 1;
        if tries > client.wire.config.retries {
            return Err(match error {
                RegistryError::BrokeOff {
                    url,
                    at,
                    total,
                    source,
                    ..
                } => RegistryError::BrokeOff {
                    url,
                    at,
                    total,
                    tries,
                    source,
                },
                error => error.with_attempt_count(tries),
            });
        }
        meter.advance_to(state.at)?;
        client.wire.sleep_before_retry(tries, error.wait_asked());
    }
    Ok(url)
}

/// What a broken connection said; nothing when the server just stopped.
type Break = Option<io::Error>;

/// Passes on what a connection gives. `None` when the blob is complete, else why it is not.
fn pass_on(
    source: &mut dyn Read,
    chunk: &mut [u8],
    url: &str,
    what: &Descriptor,
    out: &mut dyn Out,
    state: &mut State,
    meter: &mut TransferMeter<'_>,
) -> Result<Option<Break>, RegistryError> {
    loop {
        match source.read(chunk) {
            Ok(0) if state.at == what.size => return Ok(None),
            Ok(0) => return Ok(Some(None)),
            Ok(n) => {
                let found = state.at.saturating_add(n as u64);
                if found > what.size {
                    return Err(RegistryError::Size {
                        url: url.to_owned(),
                        wanted: what.size,
                        found,
                    });
                }
                out.put(&chunk[..n])?;
                state.hash.update(&chunk[..n]);
                state.at = found;
                meter.advance_to(found)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The end was there; how the connection was closed after it is nobody's business.
            Err(_) if state.at == what.size => return Ok(None),
            Err(e) => return Ok(Some(Some(e))),
        }
    }
}

/// Asks for the blob from `at` on.
fn open(
    client: &RegistryClient,
    place: &Endpoint,
    url: &str,
    what: &Descriptor,
    at: u64,
) -> Result<Box<dyn Read>, RegistryError> {
    let mut ask = RegistryRequest::new(Method::GET, url, place.pull_scopes());
    ask.times.is_bulk = true;
    if at > 0 {
        ask = ask.with_header("range", format!("bytes={at}-"));
    }
    let reply = client.send_once(place, &ask, RequestBody::None)?;
    let protocol = |why| RegistryError::Protocol {
        url: reply.redacted_url(),
        why,
    };
    let skipped = match reply.status {
        // A server that ignores ranges sends the blob from its beginning.
        200 => {
            if let Some(found) = reply.content_length().filter(|length| *length != what.size) {
                return Err(RegistryError::Size {
                    url: reply.redacted_url(),
                    wanted: what.size,
                    found,
                });
            }
            at
        }
        206 if at > 0 => {
            let range = reply.header("content-range").and_then(content_range);
            let range = range.ok_or_else(|| protocol("it gives a range and does not say which"))?;
            let is_whole = range.total.is_none_or(|total| total == what.size);
            if range.first != at || !is_whole {
                return Err(protocol("it gives another range than was asked for"));
            }
            0
        }
        _ => return Err(protocol("a blob was asked for, and it says otherwise")),
    };
    let shown = reply.redacted_url();
    let mut source = reply.into_reader();
    let passed = io::copy(&mut (&mut source).take(skipped), &mut io::sink());
    match passed {
        Ok(n) if n == skipped => Ok(Box::new(source)),
        other => Err(RegistryError::Transport {
            url: shown,
            tries: 1,
            source: Box::new(ureq::Error::Io(
                other.err().unwrap_or(io::ErrorKind::UnexpectedEof.into()),
            )),
        }),
    }
}
