//! The suites of a release: fetched, checked against their signatures and digests, unpacked.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;
use sconce_fetch::{FetchError, redact_url};
use sconce_schema::{Bytes, Hint, Progress, Sha256, exit};

use super::contents::{self, LibraryPackages};
use super::openpgp::{SignatureError, Verifier, open_clearsigned};
use super::release::{ReleaseError, ReleaseFile, SuiteRelease, show_date};
use super::sources::{MirrorPair, SecurityArchive};
use crate::documents::{DocumentSource, compute_sha256};

/// No release file of Debian's is near this size (trixie's has 140 KB).
const RELEASE_LIMIT_BYTES: u64 = 16 << 20;
/// No index is near this size (trixie's has 57 MB). A larger one would also mean much memory.
const INDEX_LIMIT_BYTES: u64 = 1 << 30;
/// No list of files is near this size (trixie's has 12 MB), nor its text.
const CONTENTS_LIMIT_BYTES: u64 = 256 << 20;
const CONTENTS_TEXT_LIMIT_BYTES: u64 = 8 << 30;
/// Memory that the decompressor may use; `xz -9` needs 65 MiB.
const XZ_MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// One suite, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// Its codename, `trixie-security`.
    pub name: String,
    /// Base address of its archive, which the files of its packages are below.
    pub base: String,
    /// Its index for one architecture.
    pub packages: String,
}

/// How old the release file of a suite is that was not fetched now.
struct Age {
    /// When it was fetched.
    fetched: SystemTime,
    /// Its suite and what its signed text says of its time.
    says: String,
}

/// Why the archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file of it could not be fetched.
    #[error("cannot read the archive's {what}")]
    Fetch {
        /// What was fetched.
        what: &'static str,
        /// Why not.
        source: FetchError,
    },
    /// Its release file is not trusted.
    #[error("{url} is refused")]
    Signature {
        /// The release file.
        url: String,
        /// Why.
        source: SignatureError,
    },
    /// Its release file is not to be used.
    #[error("{url} is refused")]
    Release {
        /// The release file.
        url: String,
        /// Why.
        source: ReleaseError,
    },
    /// Bytes are not what the release file says.
    #[error("{url} is not what the signed release file says: {why}")]
    Digest {
        /// The index.
        url: String,
        /// What differs.
        why: String,
    },
    /// An index cannot be decompressed.
    #[error("{url} cannot be decompressed")]
    Decompress {
        /// The index.
        url: String,
        /// What the decompressor said.
        source: std::io::Error,
    },
    /// A decompressed index is not text.
    #[error("{url} is not UTF-8 text")]
    NotText {
        /// The index.
        url: String,
    },
}

impl Hint for ArchiveError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch { source: FetchError::NotFound { .. }, .. } => Some(
                "check `[system] mirror`: it has to be the archive's base, above `dists/`".to_owned(),
            ),
            Self::Fetch { source, .. } => source.hint(),
            Self::Signature { source, .. } => source.hint(),
            Self::Release { source, .. } => source.hint(),
            Self::Digest { .. } | Self::Decompress { .. } | Self::NotText { .. } => Some(
                "the mirror is being updated, or a proxy changes files; try again, or use another mirror"
                    .to_owned(),
            ),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Fetch { source, .. } => source.exit_code(),
            Self::Signature { source, .. } => source.exit_code(),
            Self::Release { source, .. } => source.exit_code(),
            Self::Digest { .. } | Self::Decompress { .. } | Self::NotText { .. } => exit::VERIFY,
        }
    }
}

/// What reading an archive needs.
pub(crate) struct ArchiveReader<'a> {
    pub(crate) documents: &'a dyn DocumentSource,
    pub(crate) verifier: &'a dyn Verifier,
    /// OpenPGP keys that are trusted, binary or armoured.
    pub(crate) keyring: &'a [u8],
    pub(crate) now: SystemTime,
    pub(crate) progress: &'a dyn Progress,
}

impl ArchiveReader<'_> {
    /// The three suites of a stable release, all at once: the release itself, its updates, its
    /// security updates.
    pub(crate) fn fetch_suites(
        &self,
        mirrors: &MirrorPair,
        codename: &str,
        architecture: &str,
    ) -> Result<Vec<Suite>, ArchiveError> {
        let wanted = [
            (codename.to_owned(), mirrors.main.as_str(), false),
            (format!("{codename}-updates"), mirrors.main.as_str(), false),
            (
                format!("{codename}-security"),
                mirrors.security.base_uri(),
                matches!(mirrors.security, SecurityArchive::Guessed(_)),
            ),
        ];
        let suites: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = wanted
                .iter()
                .map(|(name, base, is_guess)| {
                    scope.spawn(move || match self.suite(name, base, architecture) {
                        Err(ArchiveError::Fetch { source: FetchError::NotFound { .. }, .. }) if *is_guess => {
                            self.progress.note(&format!(
                                "no security updates: {} has no {name}; name the archive that has them with `[system] security-mirror`",
                                redact_url(base)
                            ));
                            Ok(None)
                        }
                        suite => suite.map(Some),
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        let suites: Result<Vec<_>, _> = suites.into_iter().filter_map(Result::transpose).collect();
        let (suites, ages): (Vec<_>, Vec<_>) = suites?.into_iter().unzip();
        self.tell_age(&ages.into_iter().flatten().collect::<Vec<_>>());
        Ok(suites)
    }

    /// Says that package lists are not of today.
    fn tell_age(&self, ages: &[Age]) {
        let Some(oldest) = ages.iter().map(|age| age.fetched).min() else {
            return;
        };
        let says: Vec<&str> = ages.iter().map(|age| age.says.as_str()).collect();
        self.progress.note(&format!(
            "offline: Debian's package lists are those of {}: {}",
            show_date(oldest),
            says.join(", ")
        ));
    }

    /// The release file of a suite, checked.
    fn release(&self, name: &str, base: &str) -> Result<CheckedRelease, ArchiveError> {
        let folder = format!("{base}/dists/{name}");
        let url = format!("{folder}/InRelease");
        let latest = self
            .documents
            .latest(&url, RELEASE_LIMIT_BYTES)
            .map_err(|source| ArchiveError::Fetch {
                what: "release file",
                source,
            })?;
        let text =
            open_clearsigned(&latest.bytes, self.keyring, self.verifier).map_err(|source| {
                ArchiveError::Signature {
                    url: redact_url(&url),
                    source,
                }
            })?;
        let wrong = |source| ArchiveError::Release {
            url: redact_url(&url),
            source,
        };
        let release = SuiteRelease::parse(&text).map_err(wrong)?;
        let believed = release.validate_suite(name, self.now);
        let expired = matches!(believed, Err(ReleaseError::Expired { .. }));
        // Without network there is no newer one: how old it is is said, and the person decides.
        if !(expired && latest.kept_since.is_some()) {
            believed.map_err(wrong)?;
        }
        tracing::debug!(
            url = redact_url(&url),
            date = show_date(release.date),
            "the release file is trusted"
        );
        Ok(CheckedRelease {
            folder,
            url,
            release,
            kept_since: latest.kept_since,
            expired,
        })
    }

    fn suite(
        &self,
        name: &str,
        base: &str,
        architecture: &str,
    ) -> Result<(Suite, Option<Age>), ArchiveError> {
        let CheckedRelease {
            folder,
            url,
            release,
            kept_since,
            expired,
        } = self.release(name, base)?;
        let wrong = |source| ArchiveError::Release {
            url: redact_url(&url),
            source,
        };
        let plain = release
            .require_file(&format!("main/binary-{architecture}/Packages"))
            .map_err(wrong)?;
        let packed = release
            .require_file(&format!("main/binary-{architecture}/Packages.xz"))
            .map_err(wrong)?;
        let packages = self.index(&folder, &release, plain, packed)?;
        let age = kept_since.map(|fetched| {
            let date = show_date(release.date);
            let says = match release.valid_until.filter(|_| expired) {
                Some(until) => format!(
                    "{name} of {date}, which was valid until {}",
                    show_date(until)
                ),
                None => format!("{name} of {date}"),
            };
            Age { fetched, says }
        });
        let suite = Suite {
            name: name.to_owned(),
            base: base.to_owned(),
            packages,
        };
        Ok((suite, age))
    }

    /// The decompressed index. It is kept decompressed: that costs some disk and saves, each
    /// time, a second of decompressing.
    fn index(
        &self,
        folder: &str,
        release: &SuiteRelease,
        plain: &ReleaseFile,
        packed: &ReleaseFile,
    ) -> Result<String, ArchiveError> {
        let url = format!("{folder}/{}", packed.path);
        let text = |bytes| {
            String::from_utf8(bytes).map_err(|_| ArchiveError::NotText {
                url: redact_url(&url),
            })
        };
        if let Some(bytes) = self.documents.kept(&plain.sha256)
            && compute_sha256(&bytes) == plain.sha256
        {
            return text(bytes);
        }
        check_limit(&url, plain.size.max(packed.size), INDEX_LIMIT_BYTES)?;
        let bytes = self
            .fetch_index(folder, release.by_hash, packed)
            .map_err(|source| ArchiveError::Fetch {
                what: "index",
                source,
            })?;
        check(&url, &bytes, packed.size, &packed.sha256)?;
        let bytes = decompress(&bytes, plain.size).map_err(|source| ArchiveError::Decompress {
            url: redact_url(&url),
            source,
        })?;
        check(&url, &bytes, plain.size, &plain.sha256)?;
        self.documents.keep(&plain.sha256, &bytes);
        text(bytes)
    }

    /// Which packages of a release have libraries of these names, by its list of files; `None` where the
    /// release has no such list. It is kept as it came, packed.
    pub(crate) fn find_libraries(
        &self,
        base: &str,
        codename: &str,
        architecture: &str,
        names: &BTreeSet<String>,
    ) -> Result<Option<BTreeMap<String, LibraryPackages>>, ArchiveError> {
        let checked = self.release(codename, base)?;
        let (folder, release) = (&checked.folder, &checked.release);
        let path = format!("main/Contents-{architecture}");
        let plain = release.require_file(&path);
        let packed = release.require_file(&format!("{path}.gz"));
        let (Ok(plain), Ok(packed)) = (plain, packed) else {
            return Ok(None);
        };
        let url = format!("{folder}/{}", packed.path);
        check_limit(&url, packed.size, CONTENTS_LIMIT_BYTES)?;
        let kept = self.documents.kept(&packed.sha256);
        let kept = kept.filter(|bytes| compute_sha256(bytes) == packed.sha256);
        let bytes = match kept {
            Some(bytes) => bytes,
            None => {
                self.progress.note(&format!(
                    "Debian's list of files is fetched ({}, kept from then on)",
                    Bytes(packed.size)
                ));
                let fetched = self.fetch_index(folder, release.by_hash, packed);
                let bytes = fetched.map_err(|source| ArchiveError::Fetch {
                    what: "list of files",
                    source,
                })?;
                check(&url, &bytes, packed.size, &packed.sha256)?;
                self.documents.keep(&packed.sha256, &bytes);
                bytes
            }
        };
        // More than it says is never unpacked.
        let text =
            MultiGzDecoder::new(&bytes[..]).take(plain.size.min(CONTENTS_TEXT_LIMIT_BYTES) + 1);
        let mut text = CountingReader {
            inner: text,
            count: 0,
        };
        let found = contents::find_libraries(&mut BufReader::new(&mut text), architecture, names);
        let found = found.map_err(|source| ArchiveError::Decompress {
            url: redact_url(&url),
            source,
        })?;
        if text.count != plain.size {
            let why = match text.count > plain.size.min(CONTENTS_TEXT_LIMIT_BYTES) {
                true => format!("its text is longer than {} bytes", text.count - 1),
                false => format!("its text has {} bytes, not {}", text.count, plain.size),
            };
            return Err(ArchiveError::Digest {
                url: redact_url(&url),
                why,
            });
        }
        Ok(Some(found))
    }

    /// By its digest where the archive offers that: then a mirror that is updated at this moment
    /// cannot give the next index for the last release file.
    fn fetch_index(
        &self,
        folder: &str,
        by_hash: bool,
        file: &ReleaseFile,
    ) -> Result<Vec<u8>, FetchError> {
        if by_hash {
            let parent = file.path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let url = format!("{folder}/{parent}/by-hash/SHA256/{}", file.sha256);
            match self.documents.get(&url, file.size) {
                // Some mirrors leave the digests out.
                Err(FetchError::NotFound { .. }) => {}
                result => return result,
            }
        }
        self.documents
            .get(&format!("{folder}/{}", file.path), file.size)
    }
}

/// A release file, and what is known of it.
struct CheckedRelease {
    /// The suite's folder.
    folder: String,
    url: String,
    release: SuiteRelease,
    kept_since: Option<SystemTime>,
    /// It is older than it may be, and there is no network.
    expired: bool,
}

/// Counts what is read through it.
struct CountingReader<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(into)?;
        self.count += read as u64;
        Ok(read)
    }
}

fn check_limit(url: &str, size: u64, limit: u64) -> Result<(), ArchiveError> {
    if size <= limit {
        return Ok(());
    }
    Err(ArchiveError::Digest {
        url: redact_url(url),
        why: format!("it says {size} bytes, the limit is {limit}"),
    })
}

fn check(url: &str, bytes: &[u8], size: u64, wanted: &Sha256) -> Result<(), ArchiveError> {
    let why = if bytes.len() as u64 != size {
        format!("it has {} bytes, not {size}", bytes.len())
    } else if compute_sha256(bytes) != *wanted {
        format!("its SHA-256 is {}, not {wanted}", compute_sha256(bytes))
    } else {
        return Ok(());
    };
    Err(ArchiveError::Digest {
        url: redact_url(url),
        why,
    })
}

/// Decompresses up to one byte more than `size`, so that a larger stream is seen as wrong and
/// not followed to its end.
fn decompress(packed: &[u8], size: u64) -> std::io::Result<Vec<u8>> {
    let stream = liblzma::stream::Stream::new_stream_decoder(
        XZ_MEMORY_LIMIT_BYTES,
        liblzma::stream::CONCATENATED,
    )?;
    let decoder = liblzma::read::XzDecoder::new_stream(packed, stream);
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(1));
    decoder.take(size + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
