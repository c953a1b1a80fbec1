//! What an archive serves, and apt's own files.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use sconce_resolve::debian::contents::find_libraries;
use sconce_resolve::debian::index::DebianIndex;
use sconce_resolve::debian::openpgp::{SignatureError, Verifier, open_clearsigned};
use sconce_resolve::debian::pythons;
use sconce_resolve::debian::relation::{is_name, parse_field, parse_request};
use sconce_resolve::debian::release::SuiteRelease;
use sconce_resolve::debian::sources::{self, AptFile, MirrorOverride};
use sconce_resolve::debian::version::{compare, upstream_version};

use crate::bytes::{fixture, fixtures, joined, parts, text};

/// Three versions, one a line: their order is total.
pub(crate) fn version(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let mut lines = text.splitn(3, '\n');
    let [a, b, c] = [(); 3].map(|()| lines.next().unwrap_or_default());
    for one in [a, b, c] {
        assert_eq!(compare(one, one), Ordering::Equal);
        let _ = upstream_version(one);
    }
    for (one, other) in [(a, b), (b, c), (a, c)] {
        assert_eq!(compare(one, other), compare(other, one).reverse());
    }
    for [x, y, z] in [
        [a, b, c],
        [a, c, b],
        [b, a, c],
        [b, c, a],
        [c, a, b],
        [c, b, a],
    ] {
        let (first, second) = (compare(x, y), compare(y, z));
        if first.is_le() && second.is_le() {
            // Equal only when both are: equality is transitive too.
            assert_eq!(compare(x, z), first.then(second), "{x:?} {y:?} {z:?}");
        }
    }
}

pub(crate) fn version_seeds() -> Vec<Vec<u8>> {
    [
        "1:2.41-12+deb13u1\n2.41~rc1-1\n2.41",
        "1.0\n1.00\n1.0-0",
        "0:\n\n0",
        "1.0a~\n1.0+\n1.0",
        "99999999999999999999998\n:1\na:1",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn relation(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Ok(request) = parse_request(text) {
        assert!(is_name(request.name));
    }
    let Ok(groups) = parse_field(text) else {
        return;
    };
    let plain = |qualified: bool| {
        let one = |relation: &sconce_resolve::debian::relation::Relation<'_>| {
            let text = relation.to_string();
            match relation.qualifier.filter(|_| qualified) {
                Some(qualifier) => {
                    text.replacen(relation.name, &format!("{}:{qualifier}", relation.name), 1)
                }
                None => text,
            }
        };
        let groups = groups
            .iter()
            .map(|group| group.iter().map(one).collect::<Vec<_>>().join(" | "));
        groups.collect::<Vec<_>>().join(", ")
    };
    let written = plain(true);
    assert_eq!(parse_field(&written).as_ref(), Ok(&groups), "{written}");
    for relation in groups.iter().flatten() {
        assert!(is_name(relation.name));
        if let Some((_, version)) = relation.version {
            let _ = relation.accepts(version);
        }
    }
}

pub(crate) fn relation_seeds() -> Vec<Vec<u8>> {
    [
        "debconf (>= 0.5) | debconf-2.0, libc6 (>> 2.38), python3:any, dash (<< 1:2~)",
        "git=1:2.47.3-0+deb13u1",
        "a:amd64 (= 1)|b(<2) ,, c",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn index(data: &[u8]) {
    let [first, second] = parts(data);
    let (Some(first), Some(second)) = (text(first), text(second)) else {
        return;
    };
    let mut index = DebianIndex::default();
    for (suite, text) in [first, second].into_iter().enumerate() {
        if index.add_suite(suite, text, "amd64").is_err() {
            break;
        }
    }
    for number in 0..index.len() {
        let package = index.package(number);
        assert!(is_name(package.name));
        assert!(!package.path.starts_with('/') && package.path.split('/').all(|p| p != ".."));
        assert!(
            !package.path.contains(['%', '?', '#', '\\', '@']),
            "{}",
            package.path
        );
        assert!(package.sha256.parse::<sconce_schema::Sha256>().is_ok());
        let newest = index.find_newest(package.name).map(|n| index.package(n));
        assert!(newest.is_some_and(|n| compare(n.version, package.version).is_ge()));
        assert!(index.find_version(package.name, package.version).is_some());
    }
    let _ = (
        pythons::list_python_versions(&index),
        pythons::default_version(&index),
    );
}

pub(crate) fn index_seeds() -> Vec<Vec<u8>> {
    let data = "crates/sconce-resolve/tests/data";
    let (one, other) = (
        fixture(&format!("{data}/archive/Packages.trixie-security")),
        fixture(&format!("{data}/archive/Packages.trixie-updates")),
    );
    vec![
        fixture(&format!("{data}/Packages.small")),
        joined(&[&one, &other]),
    ]
}

/// Believes everything, and looks at what it is shown.
struct Credulous;

impl Verifier for Credulous {
    fn verify(&self, text: &str, signature: &str, _: &[u8]) -> Result<(), SignatureError> {
        assert!(signature.starts_with("-----BEGIN PGP SIGNATURE-----"));
        assert!(
            signature
                .trim_end()
                .ends_with("-----END PGP SIGNATURE-----")
        );
        assert!(!text.contains("\n-----BEGIN PGP SIGNATURE-----\n"));
        Ok(())
    }
}

pub(crate) fn release(data: &[u8]) {
    let opened = open_clearsigned(data, b"keyring", &Credulous);
    if let Ok(text) = &opened {
        assert!(text.len() < data.len());
    }
    let opened = opened.ok();
    let Some(text) = opened.as_deref().or_else(|| text(data)) else {
        return;
    };
    match SuiteRelease::parse(text) {
        Ok(release) => {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
            let _ = release
                .validate_suite("trixie", now)
                .map_err(|e| e.to_string());
            for file in &release.files {
                assert!(release.require_file(&file.path).is_ok());
            }
        }
        Err(error) => drop(error.to_string()),
    }
}

pub(crate) fn release_seeds() -> Vec<Vec<u8>> {
    let data = "crates/sconce-resolve/tests/data";
    fixtures(&[
        &format!("{data}/Release.small"),
        &format!("{data}/archive/dists/trixie/InRelease"),
        &format!("{data}/archive/dists/trixie-updates/InRelease"),
    ])
}

/// An index of files, asked for some libraries.
pub(crate) fn contents(data: &[u8]) {
    let names = ["libGL.so.1", "libx.so", "a.so.1"]
        .map(str::to_owned)
        .into();
    let found = find_libraries(&mut &*data, "amd64", &names).expect("bytes in memory can be read");
    for (name, packages) in &found {
        assert!(names.contains(name));
        assert!(packages.candidates.iter().all(|one| is_name(&one.name)));
        assert!(
            packages
                .candidates
                .iter()
                .all(|one| one.folder.starts_with('/'))
        );
        let best = packages.best().expect("what nobody has is left out");
        assert!(packages.ties().all(|tie| tie.name.len() == best.name.len()));
    }
}

pub(crate) fn contents_seeds() -> Vec<Vec<u8>> {
    [
        "usr/lib/x86_64-linux-gnu/libGL.so.1    libs/libgl1,x11/libgl1-other\nbin/true utils/coreutils\n",
        "lib/a b/libx.so libdevel/libx-dev\nusr/lib/a.so.1\ta,b,c\nusr/lib/debug/a.so.1 debug/a-dbg",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A `.sources` file, a `.list` file and a list of mirrors.
pub(crate) fn sources(data: &[u8]) {
    let names = [
        "/etc/apt/sources.list.d/a.sources",
        "/etc/apt/sources.list",
        "/etc/apt/mirrors/m.list",
    ];
    let files: Vec<AptFile> = names
        .iter()
        .zip(parts::<3>(data))
        .map(|(path, part)| AptFile {
            path: path.into(),
            text: String::from_utf8_lossy(part).into_owned(),
        })
        .collect();
    for source in sources::parse(&files) {
        assert!(!source.uri.ends_with('/') && !source.uri.contains(char::is_whitespace));
    }
    if let Ok(mirrors) = sources::select_mirrors(&files, &MirrorOverride::default()) {
        assert!(!mirrors.main.is_empty() && !mirrors.security.base_uri().is_empty());
    }
}

pub(crate) fn source_seeds() -> Vec<Vec<u8>> {
    let deb822 = fixture("crates/sconce-resolve/tests/data/debian.sources");
    let list =
        b"# mine\ndeb [signed-by=/k.gpg arch=amd64] https://a.example.org/debian trixie main\n\
        deb-src https://a.example.org/debian trixie main\n\
        deb mirror+file:/etc/apt/mirrors/m.list trixie-security main contrib\n";
    let mirrors = b"https://b.example.org/debian-security/\tpriority:1\n";
    let key = b"Types: deb\nURIs: https://c.example.org/debian\nSuites: trixie trixie-updates\n\
        Components: main\nEnabled: yes\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n";
    vec![joined(&[&deb822, list, mirrors]), joined(&[key, b"", b""])]
}
