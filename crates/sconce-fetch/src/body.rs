//! A stream that goes on where its connection broke.

use std::io::{self, Read};
use std::sync::Arc;

use tracing::debug;

use super::client::FetchClient;
use super::url::redact_url;
use super::{FetchError, Source};

/// Getting this much further earns a fresh set of retries.
const RETRY_RESET_BYTES: u64 = 1 << 20;

/// The bytes under a URL. Reads mend broken connections by themselves; an error is final.
pub struct FetchBody {
    client: Arc<FetchClient>,
    url: String,
    /// Offset of the next byte.
    at: u64,
    total: Option<u64>,
    source: Source,
    /// Failures in a row, and where the first of them happened.
    tries: u32,
    since: u64,
    reconnects: u32,
}

impl std::fmt::Debug for FetchBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body")
            .field("url", &redact_url(&self.url))
            .field("at", &self.at)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}

impl FetchBody {
    pub(super) fn open(client: Arc<FetchClient>, url: &str, from: u64) -> Result<Self, FetchError> {
        let mut body = Self {
            client,
            url: url.to_owned(),
            at: from,
            total: None,
            source: Box::new(io::empty()),
            tries: 0,
            since: from,
            reconnects: 0,
        };
        body.connect(None)?;
        Ok(body)
    }

    /// Size of the whole file in bytes, whatever the offset that reading began at; absent when
    /// the server does not tell.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        self.total
    }

    /// How often the connection broke and was mended.
    #[must_use]
    pub fn reconnect_count(&self) -> u32 {
        self.reconnects
    }

    /// Reads into `buffer`; 0 is the end of the file.
    ///
    /// # Errors
    /// [`FetchError`] when the connection broke and could not be mended.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> Result<usize, FetchError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.total == Some(self.at) {
                return Ok(0);
            }
            match self.source.read(buffer) {
                Ok(0) if self.total.is_none() => return Ok(0),
                Ok(0) => self.mend(None)?,
                Ok(n) => {
                    self.at += n as u64;
                    if let Some(total) = self.total
                        && self.at > total
                    {
                        return Err(FetchError::SizeChanged {
                            url: redact_url(&self.url),
                            first: total,
                            then: self.at,
                        });
                    }
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.mend(Some(e))?,
            }
        }
    }

    /// Connects again after a break in the middle.
    fn mend(&mut self, cause: Option<io::Error>) -> Result<(), FetchError> {
        self.source = Box::new(io::empty());
        if self.at - self.since >= RETRY_RESET_BYTES {
            self.tries = 0;
        }
        if self.tries == 0 {
            self.since = self.at;
        }
        self.tries += 1;
        self.reconnects += 1;
        if self.tries > self.client.config.retries || self.url.starts_with("file:") {
            return Err(FetchError::BrokeOff {
                url: redact_url(&self.url),
                at: self.at,
                total: self.total,
                tries: self.tries,
                source: cause,
            });
        }
        let (url, tries) = (redact_url(&self.url), self.tries);
        debug!(
            url,
            at = self.at,
            tries,
            "the connection broke; it is made again"
        );
        std::thread::sleep(self.client.retry_delay(self.tries, None));
        self.connect(cause)
    }

    /// Connects at the present offset, trying again where that may help.
    fn connect(&mut self, mut cause: Option<io::Error>) -> Result<(), FetchError> {
        loop {
            let failure = match self.client.request_once(&self.url, self.at) {
                Ok(answer) => {
                    if let (Some(first), Some(then)) = (self.total, answer.total)
                        && first != then
                    {
                        return Err(FetchError::SizeChanged {
                            url: redact_url(&self.url),
                            first,
                            then,
                        });
                    }
                    self.total = self.total.or(answer.total);
                    if let Some(total) = self.total
                        && self.at > total
                    {
                        return Err(FetchError::WrongRange {
                            url: redact_url(&self.url),
                            wanted: self.at,
                            said: format!("a file of {total} bytes"),
                        });
                    }
                    self.source = answer.source;
                    // A server that ignores ranges sends the file from its beginning.
                    match skip(&mut self.source, self.at - answer.first) {
                        Ok(()) => return Ok(()),
                        Err(e) => cause = Some(e),
                    }
                    None
                }
                Err(e) if e.may_pass() => Some(e),
                Err(e) => return Err(e),
            };
            self.tries += 1;
            if self.tries > self.client.config.retries {
                return Err(match failure {
                    Some(e) => e.with_attempt_count(self.tries),
                    None => FetchError::BrokeOff {
                        url: redact_url(&self.url),
                        at: self.at,
                        total: self.total,
                        tries: self.tries,
                        source: cause,
                    },
                });
            }
            let asked = failure.as_ref().and_then(FetchError::wait_asked);
            let pause = self.client.retry_delay(self.tries, asked);
            let (url, tries) = (redact_url(&self.url), self.tries);
            debug!(url, tries, ?pause, "no answer; it is asked again");
            std::thread::sleep(pause);
        }
    }
}

fn skip(source: &mut Source, bytes: u64) -> io::Result<()> {
    let skipped = io::copy(&mut source.take(bytes), &mut io::sink())?;
    if skipped == bytes {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Read for FetchBody {
    /// As [`FetchBody::read_some`]; the error's inner error is the [`FetchError`].
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer).map_err(io::Error::other)
    }
}
