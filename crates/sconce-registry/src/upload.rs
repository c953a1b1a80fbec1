//! One blob to a registry: looked for, mounted, sent whole, or sent in pieces that go on after a
//! break (distribution specification, "Pushing a blob").

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::{Method, Uri};

use super::auth::encode_form;
use super::client::{Endpoint, RegistryClient, RegistryRequest, resolve_location};
use super::error::RegistryError;
use super::pool::TransferMeter;
use super::wire::{RegistryResponse, RequestBody, RewindableBody};
use sconce_oci::Descriptor;
use sconce_schema::Sha256;
use sha2::Digest as _;

/// Getting this much further earns a fresh set of retries.
const RETRY_RESET_BYTES: u64 = 1 << 20;
/// A registry may look through a whole blob, or move it, before it answers.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// How often a blob is begun anew that the registry did not take as it was.
const MAX_RESTARTS: u32 = 2;
/// The most repositories that a blob is looked for in.
const MAX_MOUNT_SOURCES: usize = 4;
/// A smallest piece that a registry asks for is heeded up to this size in bytes.
const MAX_REQUESTED_CHUNK_BYTES: u64 = 1 << 30;

/// The bytes of a blob.
#[derive(Debug, Clone)]
pub enum BlobSource {
    /// A regular file.
    File(PathBuf),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// A blob to push.
#[derive(Debug, Clone)]
pub struct Blob {
    /// What the manifest says of it.
    pub descriptor: Descriptor,
    /// Its bytes.
    pub content: BlobSource,
}

/// What became of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UploadOutcome {
    Uploaded,
    Mounted,
    Skipped,
}

/// A blob under way.
pub(super) struct Upload<'a> {
    pub(super) client: &'a RegistryClient,
    pub(super) place: &'a Endpoint,
    pub(super) blob: &'a Blob,
    pub(super) mount_from: &'a [String],
    pub(super) meter: TransferMeter<'a>,
}

/// An upload that the registry has begun.
struct UploadSession {
    location: String,
    /// Bytes that the registry has.
    at: u64,
    /// The smallest piece that it takes, bytes.
    smallest: u64,
}

enum UploadStart {
    Mounted,
    Session(UploadSession),
}

impl Upload<'_> {
    /// Sees to it that the registry has the blob.
    pub(super) fn run(mut self) -> Result<UploadOutcome, RegistryError> {
        self.meter.advance_to(0)?;
        let mut source = Source::open(self.blob)?;
        let went = if self.exists()? {
            UploadOutcome::Skipped
        } else {
            match self.begin(true)? {
                UploadStart::Mounted => UploadOutcome::Mounted,
                UploadStart::Session(session) => {
                    self.send(&mut source, session)?;
                    UploadOutcome::Uploaded
                }
            }
        };
        self.meter.advance_to(self.blob.descriptor.size)?;
        self.meter.done();
        Ok(went)
    }

    fn exists(&self) -> Result<bool, RegistryError> {
        let Descriptor { digest, size, .. } = &self.blob.descriptor;
        let url = self.place.resource_url(&format!("blobs/{digest}"));
        let mut ask = RegistryRequest::new(Method::HEAD, &url, self.place.push_scopes());
        // Storage elsewhere that has it need not answer HEAD.
        ask.stays = true;
        let client = self.client;
        let reply = client
            .wire
            .retry_transient(|| client.send_once(self.place, &ask, RequestBody::None));
        match reply {
            Ok(reply) if reply.status < 300 => {
                Ok(reply.content_length().is_none_or(|length| length == *size))
            }
            Ok(_) => Ok(true),
            Err(RegistryError::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Begins an upload, or finds the blob in another repository where `mount` allows that.
    fn begin(&self, mount: bool) -> Result<UploadStart, RegistryError> {
        let uploads = self.place.resource_url("blobs/uploads/");
        let mut begun = None;
        let others = self.mount_from.iter().filter(|_| mount);
        for from in others
            .filter(|from| **from != self.place.repository)
            .take(MAX_MOUNT_SOURCES)
        {
            let digest = self.blob.descriptor.digest.to_string();
            let query = encode_form(&[("mount", digest), ("from", from.clone())]);
            let mut scopes = self.place.push_scopes();
            scopes.push(format!("repository:{from}:pull"));
            match self.post(&format!("{uploads}?{query}"), scopes) {
                Ok(reply) if reply.status == 201 => return Ok(UploadStart::Mounted),
                Ok(reply) => begun = Some(reply),
                // Whether that repository may be read decides nothing about this one.
                Err(RegistryError::Transport { .. }) => break,
                Err(_) => {}
            }
        }
        let reply = match begun {
            Some(reply) => reply,
            None => self.post(&uploads, self.place.push_scopes())?,
        };
        let bad = |why| RegistryError::Protocol {
            url: reply.redacted_url(),
            why,
        };
        if reply.status != 202 {
            return Err(bad("an upload was to begin, and it says otherwise"));
        }
        let smallest = reply.header("oci-chunk-min-length");
        Ok(UploadStart::Session(UploadSession {
            location: next(&reply).ok_or_else(|| bad("it does not say where to send the blob"))?,
            at: 0,
            smallest: smallest.and_then(|n| n.trim().parse().ok()).unwrap_or(0),
        }))
    }

    fn post(&self, url: &str, scopes: Vec<String>) -> Result<RegistryResponse, RegistryError> {
        let ask = RegistryRequest::new(Method::POST, url, scopes);
        let client = self.client;
        client
            .wire
            .retry_transient(|| client.send_once(self.place, &ask, RequestBody::Bytes(&[])))
    }

    /// Sends the bytes, and goes on after breaks.
    fn send(
        &mut self,
        source: &mut Source<'_>,
        mut session: UploadSession,
    ) -> Result<(), RegistryError> {
        let size = self.blob.descriptor.size;
        let mut whole = size <= self.client.settings.whole_bytes;
        let (mut tries, mut anew, mut furthest) = (0, 0, 0);
        loop {
            let sent = match whole && session.at == 0 {
                true => self.whole(source, &session),
                false => self.pieces(source, &mut session),
            };
            let Err(error) = sent else { return Ok(()) };
            if let Some(cause) = source.failed.take() {
                return Err(cause);
            }
            let goes_on = error.may_pass();
            match &error {
                _ if goes_on => {}
                // The session is gone, or holds something else than was sent.
                RegistryError::NotFound { .. }
                | RegistryError::Status {
                    status: 400 | 409 | 413 | 416,
                    ..
                } if anew < MAX_RESTARTS => anew += 1,
                _ => return Err(error),
            }
            if session.at >= furthest + RETRY_RESET_BYTES {
                tries = 0;
            }
            furthest = furthest.max(session.at);
            tries += 1;
            if tries > self.client.wire.config.retries {
                return Err(error.with_attempt_count(tries));
            }
            self.client
                .wire
                .sleep_before_retry(tries, error.wait_asked());
            self.meter.advance_to(0)?;
            whole = false;
            let held = match goes_on {
                true => self.held(&session)?,
                false => None,
            };
            match held {
                Some((at, location)) => {
                    let digest = self.blob.descriptor.digest;
                    self.meter
                        .note(&format!("{digest}: the upload goes on at byte {at}"));
                    session = UploadSession {
                        at,
                        location,
                        ..session
                    };
                }
                None => {
                    // The last answer may have been lost, and all is well.
                    if self.exists()? {
                        return Ok(());
                    }
                    match self.begin(false)? {
                        UploadStart::Session(new) => session = new,
                        UploadStart::Mounted => return Ok(()),
                    }
                }
            }
        }
    }

    /// How far the registry got, and where to go on; `None` when it has to begin anew. Version 2 of
    /// distribution gives up an upload whose last request broke off in its middle.
    fn held(&self, session: &UploadSession) -> Result<Option<(u64, String)>, RegistryError> {
        let ask = RegistryRequest::new(Method::GET, &session.location, self.place.push_scopes());
        let client = self.client;
        let reply = client
            .wire
            .retry_transient(|| client.send_once(self.place, &ask, RequestBody::None));
        let reply = match reply {
            Ok(reply) => reply,
            Err(e @ (RegistryError::Transport { .. } | RegistryError::Refused { .. })) => {
                return Err(e);
            }
            Err(_) => return Ok(None),
        };
        let at = reply.header("range").and_then(upload_range);
        // distribution says `0-0` also of an upload that has nothing.
        let at = at.filter(|at| *at > 1 && *at <= self.blob.descriptor.size);
        let location = next(&reply).unwrap_or_else(|| session.location.clone());
        Ok(at.map(|at| (at, location)))
    }

    fn whole(
        &mut self,
        source: &mut Source<'_>,
        session: &UploadSession,
    ) -> Result<(), RegistryError> {
        let size = self.blob.descriptor.size;
        self.commit(source, &session.location, 0, size)
    }

    fn pieces(
        &mut self,
        source: &mut Source<'_>,
        session: &mut UploadSession,
    ) -> Result<(), RegistryError> {
        let size = self.blob.descriptor.size;
        let piece = self.client.settings.piece_bytes.max(1);
        let piece = piece.max(session.smallest.min(MAX_REQUESTED_CHUNK_BYTES));
        while session.at < size {
            let end = size.min(session.at.saturating_add(piece));
            let url = session.location.clone();
            let range = format!("{}-{}", session.at, end - 1);
            let mut ask = RegistryRequest::new(Method::PATCH, &url, self.place.push_scopes())
                .with_header("content-type", "application/octet-stream")
                .with_header("content-range", range);
            ask.times.answer = Some(COMMIT_TIMEOUT);
            let reply = self.stream(source, &ask, session.at, end)?;
            let bad = |why| RegistryError::Protocol {
                url: reply.redacted_url(),
                why,
            };
            let at = match reply.header("range") {
                None => end,
                Some(range) => upload_range(range).ok_or_else(|| bad("its range does not read"))?,
            };
            if reply.status >= 300 || at <= session.at || at > end {
                return Err(bad("it says that it has other bytes than it was sent"));
            }
            session.at = at;
            session.location = next(&reply).unwrap_or(url);
        }
        self.commit(source, &session.location, size, size)
    }

    /// Sends the bytes from `from` to `end` and ends the upload.
    fn commit(
        &mut self,
        source: &mut Source<'_>,
        location: &str,
        from: u64,
        end: u64,
    ) -> Result<(), RegistryError> {
        let digest = self.blob.descriptor.digest.to_string();
        let between = if location.contains('?') { '&' } else { '?' };
        let url = format!("{location}{between}{}", encode_form(&[("digest", digest)]));
        let mut ask = RegistryRequest::new(Method::PUT, &url, self.place.push_scopes())
            .with_header("content-type", "application/octet-stream");
        ask.times.answer = Some(COMMIT_TIMEOUT);
        let reply = self.stream(source, &ask, from, end)?;
        match reply.status {
            201 | 204 => Ok(()),
            _ => Err(RegistryError::Protocol {
                url: reply.redacted_url(),
                why: "the upload was complete, and it says otherwise",
            }),
        }
    }

    fn stream(
        &mut self,
        source: &mut Source<'_>,
        ask: &RegistryRequest<'_>,
        from: u64,
        end: u64,
    ) -> Result<RegistryResponse, RegistryError> {
        if from == end {
            return self
                .client
                .send_once(self.place, ask, RequestBody::Bytes(&[]));
        }
        let mut span = Span {
            source,
            meter: &mut self.meter,
            from,
            at: from,
            end,
        };
        let payload = RequestBody::Part(&mut span);
        self.client.send_once(self.place, ask, payload)
    }
}

/// A blob's bytes while they are read.
struct Source<'a> {
    from: Bytes<'a>,
    descriptor: &'a Descriptor,
    /// Of the first `hashed` bytes of a file, however often some of them are sent; gone once it was looked at.
    hash: Option<sha2::Sha256>,
    hashed: u64,
    /// Why the file could not be read; what the connection says then is beside the point.
    failed: Option<RegistryError>,
}

enum Bytes<'a> {
    File(File, &'a PathBuf),
    Bytes(&'a [u8]),
}

impl<'a> Source<'a> {
    fn open(blob: &'a Blob) -> Result<Self, RegistryError> {
        let Descriptor { digest, size, .. } = blob.descriptor;
        let from = match &blob.content {
            BlobSource::Bytes(bytes) => Bytes::Bytes(bytes),
            BlobSource::File(path) => {
                let failed = |source| RegistryError::Source {
                    path: path.clone(),
                    source,
                };
                // Looked at first: to open a pipe is to wait for its writer.
                let meta = std::fs::metadata(path).map_err(failed)?;
                if !meta.is_file() {
                    return Err(failed(io::Error::other("it is not a regular file")));
                }
                Bytes::File(File::open(path).map_err(failed)?, path)
            }
        };
        let found = match &from {
            Bytes::Bytes(bytes) => bytes.len() as u64,
            Bytes::File(file, path) => {
                let meta = file.metadata();
                let failed = |source| RegistryError::Source {
                    path: (*path).clone(),
                    source,
                };
                meta.map_err(failed)?.len()
            }
        };
        match &from {
            _ if found == size => {}
            Bytes::File(_, path) => {
                return Err(RegistryError::ChangedSource {
                    path: (*path).clone(),
                    wanted: digest,
                });
            }
            Bytes::Bytes(_) => {
                return Err(RegistryError::Size {
                    url: digest.to_string(),
                    wanted: size,
                    found,
                });
            }
        }
        Ok(Self {
            from,
            descriptor: &blob.descriptor,
            hash: Some(sha2::Sha256::new()),
            hashed: 0,
            failed: None,
        })
    }

    fn read(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.from {
            Bytes::Bytes(bytes) => {
                let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..));
                rest.unwrap_or_default().read(buffer)
            }
            Bytes::File(file, path) => {
                let read = match file.read(buffer) {
                    Ok(0) => Err(io::Error::other("it became shorter while it was sent")),
                    other => other,
                };
                let read = read.map_err(|source| {
                    let kind = source.kind();
                    self.failed = Some(RegistryError::Source {
                        path: (*path).clone(),
                        source,
                    });
                    io::Error::from(kind)
                });
                let path = (*path).clone();
                let n = read?;
                match self.is_as_named(at, &buffer[..n]) {
                    true => Ok(n),
                    false => {
                        let wanted = self.descriptor.digest;
                        self.failed = Some(RegistryError::ChangedSource { path, wanted });
                        Err(io::ErrorKind::InvalidData.into())
                    }
                }
            }
        }
    }
}

impl Source<'_> {
    /// Hashes what is new of the bytes from `at` on. False where they are the last ones and the digest of all is not
    /// the blob's: they are then not sent, and the registry is left with an upload that never ends.
    fn is_as_named(&mut self, at: u64, bytes: &[u8]) -> bool {
        let Some(hash) = &mut self.hash else {
            return true;
        };
        let known = self.hashed.checked_sub(at);
        let known = known.and_then(|known| usize::try_from(known).ok());
        if let Some(new) = known.and_then(|known| bytes.get(known..)) {
            hash.update(new);
            self.hashed += new.len() as u64;
        }
        if self.hashed < self.descriptor.size {
            return true;
        }
        let hash = self.hash.take().map(|hash| hash.finalize().into());
        hash.is_none_or(|hash| Sha256(hash) == self.descriptor.digest.0)
    }
}

/// A part of a blob on its way.
struct Span<'a, 'b, 'c> {
    source: &'a mut Source<'b>,
    meter: &'a mut TransferMeter<'c>,
    from: u64,
    at: u64,
    end: u64,
}

impl RewindableBody for Span<'_, '_, '_> {
    fn restart(&mut self) -> Result<u64, RegistryError> {
        self.at = self.from;
        if let Bytes::File(file, path) = &mut self.source.from {
            file.seek(SeekFrom::Start(self.at))
                .map_err(|source| RegistryError::Source {
                    path: (*path).clone(),
                    source,
                })?;
        }
        Ok(self.end - self.from)
    }
}

impl Read for Span<'_, '_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Err(e) = self.meter.advance_to(self.at) {
            self.source.failed = Some(e);
            return Err(io::Error::other("stopped"));
        }
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let most = buffer.len().min(left);
        if most == 0 {
            return Ok(0);
        }
        let n = self.source.read(self.at, &mut buffer[..most])?;
        self.at += n as u64;
        Ok(n)
    }
}

/// Where an upload goes on.
fn next(reply: &RegistryResponse) -> Option<String> {
    let from: Uri = reply.url.parse().ok()?;
    resolve_location(&from, reply.header("location"))
}

/// How many bytes an upload has: `0-LAST`, of older registries also `bytes=0-LAST`.
fn upload_range(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix("bytes=").unwrap_or(text);
    let last = text.strip_prefix("0-")?;
    let digits = last.bytes().all(|b| b.is_ascii_digit());
    digits
        .then(|| last.parse::<u64>().ok()?.checked_add(1))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_of_uploads_read() {
        for (text, want) in [
            ("0-0", Some(1)),
            ("0-1023", Some(1024)),
            (" bytes=0-9 ", Some(10)),
            ("1-9", None),
            ("0-", None),
            ("0-+5", None),
            ("0-18446744073709551615", None),
            ("", None),
        ] {
            assert_eq!(upload_range(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_range_panics(text in "\\PC{0,30}") {
            upload_range(&text);
        }
    }
}
