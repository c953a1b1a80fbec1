//! Where Debian is to be had: read from the apt sources of the machine (sources.list(5)), so that
//! no address stands in the program and a company's mirror is used without being asked for.

use std::path::{Path, PathBuf};

use super::control;

/// A file of apt's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptFile {
    /// Where it is; the name's end tells its form (`.list`, `.sources`).
    pub path: PathBuf,
    /// What stands in it.
    pub text: String,
}

/// One entry of apt's sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptSource {
    /// Base address, without a slash at its end.
    pub uri: String,
    /// Suites.
    pub suites: Vec<String>,
    /// Components.
    pub components: Vec<String>,
    /// The keyring that signs it, where the entry names one.
    pub signed_by: Option<SignedBy>,
}

/// Who signs a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignedBy {
    /// A keyring file.
    File(PathBuf),
    /// The armoured key itself.
    Key(String),
}

/// The base addresses of an archive's two halves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorPair {
    /// The main archive: suites `trixie`, `trixie-updates`.
    pub main: String,
    /// The security archive: suite `trixie-security`.
    pub security: SecurityArchive,
    /// The keyring that the main source names, where it does.
    pub signed_by: Option<SignedBy>,
}

/// Where the security archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityArchive {
    /// The machine or the person says so.
    Known(String),
    /// Guessed from the main archive's address; it may not exist.
    Guessed(String),
}

impl SecurityArchive {
    /// The base address.
    #[must_use]
    pub fn base_uri(&self) -> &str {
        match self {
            Self::Known(uri) | Self::Guessed(uri) => uri,
        }
    }
}

/// Why no archive was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no Debian archive is known: {looked}")]
pub struct NoMirrorError {
    /// Where it was looked.
    pub looked: String,
}

impl sconce_schema::Hint for NoMirrorError {
    fn hint(&self) -> Option<String> {
        Some(
            "name one in sconce.toml or in your own configuration, for example \
             `[system] mirror = \"https://deb.example.org/debian\"` and \
             `security-mirror = \"https://deb.example.org/debian-security\"`; or add the line \
             `deb https://deb.example.org/debian trixie main` to /etc/apt/sources.list"
                .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        sconce_schema::exit::BAD_INPUT
    }
}

/// Every enabled binary source of these files. Entries that cannot be read are passed over: they
/// are apt's to judge, and one that matters is missed later with a clear message.
#[must_use]
pub fn parse(files: &[AptFile]) -> Vec<AptSource> {
    let mut sources = Vec::new();
    for file in files {
        match file.path.extension().and_then(|e| e.to_str()) {
            Some("sources") => parse_deb822(&file.text, &mut sources),
            Some("list") => parse_one_line(&file.text, &mut sources),
            _ => {}
        }
    }
    for source in &mut sources {
        source.uri = resolve_mirror_list(&source.uri, files)
            .unwrap_or_else(|| source.uri.trim_end_matches('/').to_owned());
    }
    sources
}

fn parse_deb822(text: &str, sources: &mut Vec<AptSource>) {
    // apt takes lines of white space as separators too, and comments anywhere.
    let text: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| if line.trim().is_empty() { "" } else { line })
        .collect();
    let text = text.join("\n");
    for paragraph in control::split_paragraphs(&text) {
        let words = |wanted: &str| -> Vec<String> {
            control::parse_fields(paragraph)
                .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
                .flat_map(|(_, value)| value.split_whitespace().map(str::to_owned))
                .collect()
        };
        let disabled = words("Enabled").first().is_some_and(|v| {
            ["no", "false", "without", "off", "disable", "0"]
                .contains(&v.to_ascii_lowercase().as_str())
        });
        if disabled || !words("Types").iter().any(|t| t == "deb") {
            continue;
        }
        let signed_by = control::parse_fields(paragraph)
            .find(|(name, _)| name.eq_ignore_ascii_case("Signed-By"))
            .map(|(_, value)| signed_by(value));
        for uri in words("URIs") {
            sources.push(AptSource {
                uri,
                suites: words("Suites"),
                components: words("Components"),
                signed_by: signed_by.clone(),
            });
        }
    }
}

fn signed_by(value: &str) -> SignedBy {
    if !value.contains("-----BEGIN PGP") {
        // Several keyrings may stand here; the first decides.
        let path = value
            .split([',', ' ', '\n'])
            .find(|p| !p.is_empty())
            .unwrap_or_default();
        return SignedBy::File(PathBuf::from(path));
    }
    // In a folded field each line is indented by a space, and a dot stands for an empty line.
    let lines: Vec<&str> = value
        .lines()
        .map(str::trim)
        .map(|line| if line == "." { "" } else { line })
        .collect();
    SignedBy::Key(lines.join("\n") + "\n")
}

/// `deb [signed-by=FILE arch=amd64] URI SUITE COMPONENT…`
fn parse_one_line(text: &str, sources: &mut Vec<AptSource>) {
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(rest) = line
            .trim()
            .strip_prefix("deb")
            .filter(|r| r.starts_with([' ', '\t', '[']))
        else {
            continue;
        };
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            continue;
        };
        sources.push(AptSource {
            uri,
            suites: vec![suite],
            components: words.collect(),
            signed_by: options
                .split_whitespace()
                .find_map(|option| option.strip_prefix("signed-by="))
                .map(signed_by),
        });
    }
}

/// `mirror+file:/etc/apt/mirrors/debian.list`, which Debian's cloud images use: the first address
/// in that file.
fn resolve_mirror_list(uri: &str, files: &[AptFile]) -> Option<String> {
    let path = uri.strip_prefix("mirror+file:")?;
    let path = Path::new(path.strip_prefix("//").unwrap_or(path));
    let file = files.iter().find(|file| file.path == path)?;
    file.text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .find(|word| word.starts_with("http://") || word.starts_with("https://"))
        .map(|word| word.trim_end_matches('/').to_owned())
}

/// What the caller has decided about mirrors: the spec's, the configuration's or a flag's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MirrorOverride {
    /// Base address of the main archive.
    pub main: Option<String>,
    /// Base address of the security archive.
    pub security: Option<String>,
}

/// Names of Debian's releases, and of what leads to them, that a machine's sources can have.
const SUITES: [&str; 13] = [
    "buster",
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
    "experimental",
];

/// Finds the archives. What the caller decided comes first; else the sources whose suites are
/// Debian's. Which release they name does not matter: one archive holds all of them.
pub fn select_mirrors(
    files: &[AptFile],
    given: &MirrorOverride,
) -> Result<MirrorPair, NoMirrorError> {
    let sources = parse(files);
    let best = |wanted: fn(&AptSource) -> Option<u32>| {
        // Of equal ones the first, as apt's order is the person's order.
        sources
            .iter()
            .rev()
            .filter_map(|s| Some((wanted(s)?, s)))
            .max_by_key(|(score, _)| *score)
            .map(|(_, s)| s)
    };
    let found = best(score_main);
    let main = match (&given.main, found) {
        (Some(main), _) => main.trim_end_matches('/').to_owned(),
        (None, Some(source)) => source.uri.clone(),
        (None, None) => {
            let looked = match files.len() {
                0 => "this machine has no apt sources".to_owned(),
                n => format!(
                    "none of the {} sources in {n} files of apt's configuration is Debian's own",
                    sources.len()
                ),
            };
            return Err(NoMirrorError { looked });
        }
    };
    let security = match (&given.security, &given.main, best(score_security)) {
        (Some(security), _, _) => SecurityArchive::Known(security.trim_end_matches('/').to_owned()),
        (None, None, Some(source)) => SecurityArchive::Known(source.uri.clone()),
        _ => SecurityArchive::Guessed(format!("{main}-security")),
    };
    Ok(MirrorPair {
        main,
        security,
        signed_by: found.and_then(|s| s.signed_by.clone()),
    })
}

fn score_main(source: &AptSource) -> Option<u32> {
    let is_main = |suite: &String| {
        let base = suite.strip_suffix("-updates").unwrap_or(suite);
        SUITES.contains(&base)
    };
    score(source, is_main, "debian")
}

fn score_security(source: &AptSource) -> Option<u32> {
    let is_security = |suite: &String| {
        suite
            .strip_suffix("-security")
            .is_some_and(|base| SUITES.contains(&base))
    };
    score(source, is_security, "debian-security")
}

/// How surely this is Debian's own archive; `None` when it is not. Third parties use Debian's
/// suite names too, so the keyring and the address have to speak for it.
fn score(source: &AptSource, suite: impl Fn(&String) -> bool, folder: &str) -> Option<u32> {
    let fetchable = ["http://", "https://", "file:"]
        .iter()
        .any(|s| source.uri.starts_with(s));
    if !fetchable
        || !source.suites.iter().any(suite)
        || !source.components.iter().any(|c| c == "main")
    {
        return None;
    }
    let by_key = match &source.signed_by {
        Some(SignedBy::File(path)) if path.to_string_lossy().contains("debian-archive") => 4,
        Some(SignedBy::File(_)) => return None,
        Some(SignedBy::Key(_)) | None => 0,
    };
    let mut segments = source.uri.split('/').skip(3);
    // A snapshot archive has the time after the folder's name.
    let by_address = match segments.clone().last() {
        Some(last) if last == folder => 2,
        _ => u32::from(segments.any(|s| s == folder)),
    };
    (by_key + by_address > 0).then_some(by_key + by_address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCES: &str = include_str!("../../tests/data/debian.sources");
    const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

    fn file(path: &str, text: &str) -> AptFile {
        AptFile {
            path: PathBuf::from(path),
            text: text.to_owned(),
        }
    }

    fn find_in(files: &[AptFile]) -> Result<MirrorPair, NoMirrorError> {
        select_mirrors(files, &MirrorOverride::default())
    }

    #[test]
    fn a_container_image_of_debian() {
        let mirrors = find_in(&[file("/etc/apt/sources.list.d/debian.sources", SOURCES)]).unwrap();
        assert_eq!(mirrors.main, "http://deb.example.org/debian");
        assert_eq!(
            mirrors.security,
            SecurityArchive::Known("http://deb.example.org/debian-security".into())
        );
        assert_eq!(mirrors.signed_by, Some(SignedBy::File(KEYRING.into())));
    }

    #[test]
    fn one_line_sources() {
        let text = "\
# deb http://commented.example/debian trixie main
deb-src http://source.example/debian trixie main
deb [arch=amd64 signed-by=/usr/share/keyrings/docker.gpg] https://docker.example/linux/debian bookworm stable
deb http://mirror.example/debian/ bookworm main contrib # the mirror
deb http://mirror.example/debian bookworm-updates main
deb http://mirror.example/debian-security/ bookworm-security main
";
        let mirrors = find_in(&[file("/etc/apt/sources.list", text)]).unwrap();
        assert_eq!(mirrors.main, "http://mirror.example/debian");
        assert_eq!(
            mirrors.security.base_uri(),
            "http://mirror.example/debian-security"
        );
        assert_eq!(mirrors.signed_by, None);
    }

    #[test]
    fn a_cloud_image_of_debian() {
        let sources = SOURCES
            .replace(
                "http://deb.example.org/debian-security",
                "mirror+file:///etc/apt/mirrors/security.list",
            )
            .replace(
                "http://deb.example.org/debian",
                "mirror+file:///etc/apt/mirrors/debian.list",
            );
        let mirrors = find_in(&[
            file("/etc/apt/sources.list.d/debian.sources", &sources),
            file(
                "/etc/apt/mirrors/debian.list",
                "https://near.example/debian\thttps://far.example/debian\n",
            ),
            file(
                "/etc/apt/mirrors/security.list",
                "https://near.example/debian-security/ priority:1\n",
            ),
        ])
        .unwrap();
        assert_eq!(mirrors.main, "https://near.example/debian");
        assert_eq!(
            mirrors.security.base_uri(),
            "https://near.example/debian-security"
        );
    }

    #[test]
    fn others_are_not_debian() {
        for text in [
            "deb http://archive.example/ubuntu noble main",
            "deb [signed-by=/usr/share/keyrings/vendor.gpg] https://vendor.example/debian bookworm main",
            "deb https://vendor.example/12/prod bookworm main",
            "deb https://vendor.example/debian bookworm-pgdg main",
            "deb https://vendor.example/debian bookworm stable",
            "deb cdrom:[Debian]/ bookworm main",
        ] {
            let error = find_in(&[file("/etc/apt/sources.list", text)]).unwrap_err();
            assert!(
                error.to_string().contains("none of the 1 sources"),
                "{text}"
            );
        }
        assert!(find_in(&[]).is_err());
    }

    #[test]
    fn a_source_with_the_archives_keyring_wins_over_a_look_alike() {
        let text = format!(
            "deb https://vendor.example/debian trixie main\ndeb [signed-by={KEYRING}] http://mirror.example/pub trixie main\n"
        );
        assert_eq!(
            find_in(&[file("/etc/apt/sources.list", &text)])
                .unwrap()
                .main,
            "http://mirror.example/pub"
        );
    }

    #[test]
    fn what_is_given_comes_first() {
        let files = [file("/x.sources", SOURCES)];
        let given = MirrorOverride {
            main: Some("https://m.example/debian/".into()),
            security: None,
        };
        let mirrors = select_mirrors(&files, &given).unwrap();
        assert_eq!(mirrors.main, "https://m.example/debian");
        assert_eq!(
            mirrors.security,
            SecurityArchive::Guessed("https://m.example/debian-security".into())
        );
        assert_eq!(mirrors.signed_by, Some(SignedBy::File(KEYRING.into())));
        let given = MirrorOverride {
            security: Some("https://s.example/x".into()),
            ..given
        };
        assert_eq!(
            select_mirrors(&[], &given).unwrap().security,
            SecurityArchive::Known("https://s.example/x".into())
        );
    }

    #[test]
    fn a_source_can_hold_its_key() {
        let text = "Types: deb\nURIs: https://m.example/debian\nSuites: trixie\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDME\n -----END PGP PUBLIC KEY BLOCK-----\n";
        let mirrors = find_in(&[file("/x.sources", text)]).unwrap();
        let key =
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n";
        assert_eq!(mirrors.signed_by, Some(SignedBy::Key(key.into())));
    }

    #[test]
    fn disabled_sources_are_not_used() {
        let text = SOURCES.replace("Types: deb\n", "Types: deb\nEnabled: no\n");
        assert!(find_in(&[file("/x.sources", &text)]).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(deb |\\[|\\]|Types: deb|URIs: |Suites: |\n|\\PC){0,40}") {
            let _ = find_in(&[file("/a.list", &text), file("/b.sources", &text)]);
        }
    }
}
