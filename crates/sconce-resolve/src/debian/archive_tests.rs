//! Archives of files in memory, as mirrors serve them.

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
