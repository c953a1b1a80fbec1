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
mod tests {
    use super::*;
    use crate::debian::openpgp::find_verifier;
    use crate::documents::memory::{MAIN, MemoryDocuments, SECURITY};
    use sconce_schema::NoProgress;
    use std::path::PathBuf;
    use std::time::Duration;

    const KEYRING: &[u8] = include_bytes!("../../tests/data/archive/keyring.gpg");
    /// The day after the test archive was made.
    const NOW: u64 = 1_795_040_263 + 24 * 3600;
    const INDEX: &str = "https://deb.example.org/debian/dists/trixie/main/binary-amd64";

    /// The notes that were made.
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<String>>);

    impl Progress for Notes {
        fn stage(&self, _: &str, _: Option<u64>) {}
        fn advance(&self, _: &str, _: u64) {}
        fn done(&self, _: &str) {}
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn waits(&self, _: &str, _: Option<&sconce_schema::WaitCause>) {}
    }

    fn suites_at(
        memory: &MemoryDocuments,
        security: SecurityArchive,
        seconds: u64,
    ) -> Result<Vec<Suite>, ArchiveError> {
        read(memory, security, seconds, &NoProgress)
    }

    fn read(
        memory: &MemoryDocuments,
        security: SecurityArchive,
        seconds: u64,
        progress: &dyn Progress,
    ) -> Result<Vec<Suite>, ArchiveError> {
        let verifier = find_verifier(&["/usr/bin", "/bin"].map(PathBuf::from))
            .expect("this test needs gpgv or sqv");
        let archive = ArchiveReader {
            documents: memory,
            verifier: verifier.as_ref(),
            keyring: KEYRING,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            progress,
        };
        let mirrors = MirrorPair {
            main: MAIN.to_owned(),
            security,
            signed_by: None,
        };
        archive.fetch_suites(&mirrors, "trixie", "amd64")
    }

    fn suites(memory: &MemoryDocuments) -> Result<Vec<Suite>, ArchiveError> {
        suites_at(memory, SecurityArchive::Known(SECURITY.to_owned()), NOW)
    }

    fn by_hash_url(memory: &MemoryDocuments) -> String {
        memory
            .documents
            .keys()
            .find(|url| url.starts_with(INDEX) && url.contains("by-hash"))
            .unwrap()
            .clone()
    }

    #[test]
    fn three_suites_with_their_indexes() {
        let suites = suites(&MemoryDocuments::with_test_archive()).unwrap();
        let names: Vec<_> = suites
            .iter()
            .map(|s| (s.name.as_str(), s.base.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("trixie", MAIN),
                ("trixie-updates", MAIN),
                ("trixie-security", SECURITY)
            ]
        );
        assert!(suites[0].packages.starts_with("Package: base-files\n"));
    }

    #[test]
    fn a_second_time_only_release_files_are_read() {
        let memory = MemoryDocuments::with_test_archive();
        let first = suites(&memory).unwrap();
        memory.asked.lock().unwrap().clear();
        assert_eq!(suites(&memory).unwrap(), first);
        let asked = memory.asked.lock().unwrap();
        assert_eq!(asked.len(), 3);
        assert!(
            asked.iter().all(|url| url.ends_with("/InRelease")),
            "{asked:?}"
        );
    }

    #[test]
    fn a_cache_is_not_trusted() {
        let memory = MemoryDocuments::with_test_archive();
        let first = suites(&memory).unwrap();
        for bytes in memory.cache.lock().unwrap().values_mut() {
            bytes[0] ^= 1;
        }
        assert_eq!(suites(&memory).unwrap(), first);
    }

    #[test]
    fn a_mirror_without_digests_in_its_paths() {
        let mut memory = MemoryDocuments::with_test_archive();
        memory.documents.retain(|url, _| !url.contains("by-hash"));
        assert_eq!(suites(&memory).unwrap().len(), 3);
    }

    #[test]
    fn an_index_that_is_not_what_was_signed() {
        let mut memory = MemoryDocuments::with_test_archive();
        let url = by_hash_url(&memory);
        memory.documents.get_mut(&url).unwrap()[100] ^= 1;
        let error = suites(&memory).unwrap_err();
        assert!(matches!(error, ArchiveError::Digest { .. }), "{error}");
        assert_eq!(error.exit_code(), exit::VERIFY);
        memory.documents.get_mut(&url).unwrap().pop();
        assert!(matches!(suites(&memory), Err(ArchiveError::Digest { .. })));
        memory.documents.get_mut(&url).unwrap().extend([0; 10]);
        assert!(matches!(
            suites(&memory),
            Err(ArchiveError::Fetch {
                source: FetchError::TooLarge { .. },
                ..
            })
        ));
        assert!(
            memory.cache.lock().unwrap().len() < 3,
            "nothing wrong was kept"
        );
    }

    #[test]
    fn another_suites_release_file_is_refused() {
        let mut memory = MemoryDocuments::with_test_archive();
        let other = memory.documents[&format!("{MAIN}/dists/trixie-updates/InRelease")].clone();
        memory
            .documents
            .insert(format!("{MAIN}/dists/trixie/InRelease"), other);
        let error = suites(&memory).unwrap_err();
        assert!(
            matches!(
                &error,
                ArchiveError::Release {
                    source: ReleaseError::OtherSuite { .. },
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn an_old_release_file_is_refused() {
        let late = suites_at(
            &MemoryDocuments::with_test_archive(),
            SecurityArchive::Known(SECURITY.to_owned()),
            NOW + 30 * 24 * 3600,
        );
        assert!(matches!(
            late,
            Err(ArchiveError::Release {
                source: ReleaseError::Expired { .. },
                ..
            })
        ));
    }

    #[test]
    fn without_network_an_old_release_file_is_used_and_its_age_said() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut memory = MemoryDocuments::with_test_archive();
        memory.kept_since = Some(at(NOW));
        let security = || SecurityArchive::Known(SECURITY.to_owned());
        let notes = Notes::default();
        let later = NOW + 30 * 24 * 3600;
        assert_eq!(read(&memory, security(), later, &notes).unwrap().len(), 3);
        let notes = notes.0.into_inner().unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        for text in [
            "offline: Debian's package lists are those of 2026-11-19 22:17 UTC: trixie of 2026-",
            ", trixie-security of 2026-11-18 22:17 UTC, which was valid until 2026-11-25 22:17 UTC",
        ] {
            assert!(notes[0].contains(text), "{notes:?}");
        }
        // It is checked as ever in all else.
        let other = memory.documents[&format!("{MAIN}/dists/trixie-updates/InRelease")].clone();
        let url = format!("{SECURITY}/dists/trixie-security/InRelease");
        let good = memory.documents.insert(url.clone(), other).unwrap();
        let error = suites_at(&memory, security(), later).unwrap_err();
        assert!(matches!(error, ArchiveError::Release { .. }), "{error}");
        let text = String::from_utf8(good).unwrap();
        let text = text.replace("Codename: trixie-security", "Codename: trixie-sekurity");
        memory.documents.insert(url, text.into_bytes());
        let error = suites_at(&memory, security(), later).unwrap_err();
        assert!(matches!(error, ArchiveError::Signature { .. }), "{error}");
    }

    #[test]
    fn a_guessed_security_archive_may_be_missing_a_known_one_may_not() {
        let memory = MemoryDocuments::with_test_archive();
        let none = "https://deb.example.org/none".to_owned();
        assert_eq!(
            suites_at(&memory, SecurityArchive::Guessed(none.clone()), NOW)
                .unwrap()
                .len(),
            2
        );
        let error = suites_at(&memory, SecurityArchive::Known(none), NOW).unwrap_err();
        assert_eq!(error.exit_code(), exit::FETCH);
        assert!(error.hint().unwrap().contains("mirror"));
    }

    #[test]
    fn a_stream_larger_than_said_is_not_followed() {
        let mut packed = Vec::new();
        let zeros = vec![0_u8; 1 << 20];
        liblzma::copy_encode(&zeros[..], &mut packed, 6).unwrap();
        assert_eq!(decompress(&packed, 100).unwrap().len(), 101);
        assert_eq!(decompress(&packed, 1 << 20).unwrap(), zeros);
        assert!(decompress(&packed[..packed.len() / 2], 1 << 20).is_err());
        assert!(decompress(b"not xz", 10).is_err());
    }

    /// Believes every signature: what is tested here comes after it.
    struct Credulous;

    impl Verifier for Credulous {
        fn verify(&self, _: &str, _: &str, _: &[u8]) -> Result<(), SignatureError> {
            Ok(())
        }
    }

    const CONTENTS: &str = "usr/lib/x86_64-linux-gnu/libportaudio.so.2 libs/libportaudio2\n\
                            bin/true utils/coreutils\n";
    const TRIXIE: &str = "https://deb.example.org/debian/dists/trixie";

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, text).unwrap();
        packed.finish().unwrap()
    }

    /// An archive whose release file says this of its list of files, and serves this.
    fn archive_with_list(size: u64, packed_size: u64, packed: &[u8], of: &[u8]) -> MemoryDocuments {
        let (plain, sha256) = (Sha256([0; 32]), compute_sha256(of));
        let release = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nOrigin: Debian\nCodename: trixie\n\
             Date: Wed, 18 Nov 2026 22:17:43 UTC\nAcquire-By-Hash: yes\nSHA256:\n \
             {plain} {size} main/Contents-amd64\n {sha256} {packed_size} main/Contents-amd64.gz\n\
             -----BEGIN PGP SIGNATURE-----\n\nAAAA\n-----END PGP SIGNATURE-----\n"
        );
        let mut memory = MemoryDocuments::default();
        let mut add = |path: &str, bytes: &[u8]| {
            let url = format!("{TRIXIE}/{path}");
            memory.documents.insert(url, bytes.to_owned());
        };
        add("InRelease", release.as_bytes());
        add("main/Contents-amd64.gz", packed);
        memory
    }

    fn find_portaudio(
        memory: &MemoryDocuments,
        verifier: &dyn Verifier,
        progress: &dyn Progress,
    ) -> Result<Option<BTreeMap<String, LibraryPackages>>, ArchiveError> {
        let archive = ArchiveReader {
            documents: memory,
            verifier,
            keyring: KEYRING,
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(NOW),
            progress,
        };
        let names = ["libportaudio.so.2".to_owned()].into();
        archive.find_libraries(MAIN, "trixie", "amd64", &names)
    }

    #[test]
    fn a_list_of_files_is_fetched_once_and_kept_by_its_digest() {
        let packed = gzip(CONTENTS.as_bytes());
        let (size, packed_size) = (CONTENTS.len() as u64, packed.len() as u64);
        let mut memory = archive_with_list(size, packed_size, &packed, &packed);
        let notes = Notes::default();
        let found = find_portaudio(&memory, &Credulous, &notes)
            .unwrap()
            .unwrap();
        assert_eq!(
            found["libportaudio.so.2"].best().unwrap().name,
            "libportaudio2"
        );
        let said = notes.0.lock().unwrap().join("\n");
        assert!(said.contains("list of files is fetched"), "{said}");
        // Then it is there, also where the archive is not.
        memory.documents.retain(|url, _| url.ends_with("InRelease"));
        let again = find_portaudio(&memory, &Credulous, &NoProgress)
            .unwrap()
            .unwrap();
        assert_eq!(again, found);
        // What was kept and is not what it was is fetched again.
        memory
            .cache
            .lock()
            .unwrap()
            .values_mut()
            .for_each(|bytes| bytes.push(0));
        assert!(find_portaudio(&memory, &Credulous, &NoProgress).is_err());
    }

    #[test]
    fn a_list_of_files_that_is_not_what_was_signed_is_refused() {
        let packed = gzip(CONTENTS.as_bytes());
        let (size, packed_size) = (CONTENTS.len() as u64, packed.len() as u64);
        let refused = |memory: &MemoryDocuments| {
            let error = find_portaudio(memory, &Credulous, &NoProgress).unwrap_err();
            assert!(memory.cache.lock().unwrap().len() <= 1);
            assert_eq!(error.exit_code(), exit::VERIFY, "{error}");
            error.to_string()
        };
        let other = archive_with_list(size, packed_size, &packed, b"signed");
        assert!(refused(&other).contains("its SHA-256 is"));
        assert!(other.cache.lock().unwrap().is_empty());
        let longer = archive_with_list(size, packed_size + 1, &packed, &packed);
        assert!(refused(&longer).contains("bytes, not"));
        // Little that unpacks to much is read to the size that was signed.
        let bomb = gzip(&vec![b'\n'; 64 << 20]);
        let bomb = archive_with_list(size, bomb.len() as u64, &bomb, &bomb);
        assert!(refused(&bomb).contains(&format!("longer than {size} bytes")));
        let short = archive_with_list(size + 1, packed_size, &packed, &packed);
        assert!(refused(&short).contains(&format!("its text has {size} bytes")));
        let no_gzip = archive_with_list(4, 4, b"text", b"text");
        assert!(refused(&no_gzip).contains("cannot be decompressed"));
        let huge = archive_with_list(size, CONTENTS_LIMIT_BYTES + 1, &packed, &packed);
        assert!(refused(&huge).contains("the limit is"));
        // A release file that nobody signed names no digests.
        let verifier = find_verifier(&["/usr/bin", "/bin"].map(PathBuf::from)).unwrap();
        let good = archive_with_list(size, packed_size, &packed, &packed);
        let error = find_portaudio(&good, verifier.as_ref(), &NoProgress).unwrap_err();
        assert!(matches!(error, ArchiveError::Signature { .. }), "{error}");
    }

    #[test]
    fn an_archive_without_a_list_of_files_has_no_answer() {
        let memory = MemoryDocuments::with_test_archive();
        let verifier = find_verifier(&["/usr/bin", "/bin"].map(PathBuf::from)).unwrap();
        let found = find_portaudio(&memory, verifier.as_ref(), &NoProgress).unwrap();
        assert_eq!(found, None);
    }
}
