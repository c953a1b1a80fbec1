//! Which standalone Pythons there are: a table of archives of python-build-standalone, as uv takes one
//! by `UV_PYTHON_DOWNLOADS_JSON_URL`, or as the package pbs-installer carries one. It comes from
//! outside: an entry that is not understood, or has no SHA-256, is as if it were not there.

use sconce_base::text::without_credentials;
use sconce_formats::tags::CpuArchitecture;
use sconce_schema::Sha256;
use sconce_schema::lock::StandalonePython;
use serde::Deserialize;
use serde_json::Value;

/// The lowest Python that environments are made with: the first whose archives are `install_only`
/// ones, and the oldest that the probe works in.
pub const LOWEST_MINOR: u32 = 8;
/// The highest.
pub const HIGHEST_MINOR: u32 = 15;

/// What the part of an address that a mirror replaces ends with, as uv has it.
const RELEASES: &str = "/releases/download/";

/// Why a text is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Not JSON.
    #[error("it is not JSON")]
    Json(#[from] serde_json::Error),
    /// Nothing in it can be used.
    #[error("it has no Python for this architecture with a SHA-256")]
    Empty,
}

/// Where a table comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableOrigin<'a> {
    /// Stands for the part of each address that ends with `/releases/download`.
    pub mirror: Option<&'a str>,
    /// It is a file of this machine, and may name others by `file:` addresses.
    pub is_local: bool,
}

/// A table, for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonDownloads {
    pythons: Vec<(Rank, StandalonePython)>,
}

/// By what an archive is chosen: minor, patch, release, and the smaller form.
type Rank = (u32, u32, u64, bool);

/// An entry as uv has it.
#[derive(Deserialize)]
struct UvEntry {
    name: String,
    arch: Architecture,
    os: String,
    libc: String,
    major: u32,
    minor: u32,
    patch: u32,
    #[serde(default)]
    prerelease: Option<String>,
    #[serde(default)]
    variant: Option<String>,
    url: String,
    sha256: Option<String>,
}

/// A machine, as older and newer uv name it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Architecture {
    Plain(String),
    Family {
        family: String,
        variant: Option<String>,
    },
}

impl Architecture {
    fn is(&self, machine: CpuArchitecture) -> bool {
        match self {
            Self::Plain(name) => name == machine.name(),
            // Variants are for newer processors.
            Self::Family { family, variant } => family == machine.name() && variant.is_none(),
        }
    }
}

/// A version as pbs-installer has it.
#[derive(Deserialize)]
struct PbsVersion {
    python_version: PbsNumbers,
    files: Vec<Value>,
}

#[derive(Deserialize)]
struct PbsNumbers {
    implementation: String,
    major: u32,
    minor: u32,
    micro: u32,
    freethreaded: bool,
}

#[derive(Deserialize)]
struct PbsFile {
    platform: String,
    arch: String,
    install_only: bool,
    url: String,
    sha256: Option<String>,
}

impl PythonDownloads {
    /// Reads a table of either form.
    ///
    /// # Errors
    /// [`TableError`].
    pub fn parse(
        text: &[u8],
        machine: CpuArchitecture,
        origin: &TableOrigin<'_>,
    ) -> Result<Self, TableError> {
        let found = match serde_json::from_slice(text)? {
            Value::Object(entries) => uv_entries(entries.into_iter().map(|(_, v)| v), machine),
            Value::Array(versions) => pbs_entries(versions, machine),
            _ => Vec::new(),
        };
        let mut pythons: Vec<(Rank, StandalonePython)> = found
            .into_iter()
            .filter_map(|entry| entry.into_python(origin))
            .collect();
        pythons.sort_by(|(a, x), (b, y)| (a, &x.url).cmp(&(b, &y.url)));
        match pythons.is_empty() {
            true => Err(TableError::Empty),
            false => Ok(Self { pythons }),
        }
    }

    /// The newest Python `3.minor`.
    #[must_use]
    pub fn newest(&self, minor: u32) -> Option<&StandalonePython> {
        let mut pythons = self.pythons.iter().rev();
        pythons
            .find(|(rank, _)| rank.0 == minor)
            .map(|(_, python)| python)
    }

    /// The Python with this archive.
    #[must_use]
    pub fn find(&self, sha256: &Sha256) -> Option<&StandalonePython> {
        let mut pythons = self.pythons.iter().map(|(_, python)| python);
        pythons.find(|python| python.sha256 == *sha256)
    }

    /// The versions that there are, `3.8`, lowest first.
    #[must_use]
    pub fn list_versions(&self) -> Vec<String> {
        let mut minors: Vec<u32> = self.pythons.iter().map(|(rank, _)| rank.0).collect();
        minors.dedup();
        minors.iter().map(|minor| format!("3.{minor}")).collect()
    }
}

/// An entry of either form.
struct FoundEntry {
    minor: u32,
    patch: u32,
    url: String,
    sha256: Option<String>,
}

fn uv_entries(entries: impl Iterator<Item = Value>, machine: CpuArchitecture) -> Vec<FoundEntry> {
    let entry = |value| {
        let entry: UvEntry = serde_json::from_value(value).ok()?;
        let is_plain = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
        let fits = entry.name == "cpython"
            && entry.os == "linux"
            && entry.libc == "gnu"
            && entry.major == 3
            && entry.arch.is(machine)
            && is_plain(&entry.prerelease)
            && is_plain(&entry.variant);
        fits.then_some(FoundEntry {
            minor: entry.minor,
            patch: entry.patch,
            url: entry.url,
            sha256: entry.sha256,
        })
    };
    entries.filter_map(entry).collect()
}

fn pbs_entries(versions: Vec<Value>, machine: CpuArchitecture) -> Vec<FoundEntry> {
    let mut found = Vec::new();
    for version in versions {
        let Ok(version) = serde_json::from_value::<PbsVersion>(version) else {
            continue;
        };
        let numbers = version.python_version;
        if numbers.implementation != "cpython" || numbers.major != 3 || numbers.freethreaded {
            continue;
        }
        let files = version.files.into_iter();
        let files = files.filter_map(|file| serde_json::from_value::<PbsFile>(file).ok());
        let fits = |file: &PbsFile| {
            file.install_only && file.platform == "linux" && file.arch == machine.name()
        };
        found.extend(files.filter(fits).map(|file| FoundEntry {
            minor: numbers.minor,
            patch: numbers.micro,
            url: file.url,
            sha256: file.sha256,
        }));
    }
    found
}

impl FoundEntry {
    /// `None` for one that cannot be used.
    fn into_python(self, origin: &TableOrigin<'_>) -> Option<(Rank, StandalonePython)> {
        if !(LOWEST_MINOR..=HIGHEST_MINOR).contains(&self.minor) {
            return None;
        }
        let sha256: Sha256 = self.sha256?.parse().ok()?;
        let mut may_be_file = origin.is_local;
        let url = match (origin.mirror, self.url.split_once(RELEASES)) {
            (Some(mirror), Some((_, rest))) => {
                may_be_file = true;
                format!("{}/{rest}", mirror.trim_end_matches('/'))
            }
            _ => self.url,
        };
        let is_address = url.starts_with("https://") || url.starts_with("http://");
        let is_plain = url.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
        if !is_plain || !(is_address || may_be_file && url.starts_with("file:///")) {
            return None;
        }
        let file = url
            .rsplit('/')
            .next()?
            .replace("%2B", "+")
            .replace("%2b", "+");
        let good = |b: u8| b.is_ascii_alphanumeric() || b"+-._".contains(&b);
        // The other archives are of another layout, or compressed in another way.
        let is_known = file.contains("-install_only") && file.ends_with(".tar.gz");
        if !is_known || !file.bytes().all(good) || file.len() > 200 {
            return None;
        }
        let release: String = file
            .split_once('+')?
            .1
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        let number = release.parse().ok()?;
        let is_stripped = file.contains("-install_only_stripped");
        let python = StandalonePython {
            version: format!("3.{}.{}", self.minor, self.patch),
            release,
            file,
            url: without_credentials(&url).to_string(),
            size: None,
            sha256,
        };
        Some(((self.minor, self.patch, number, is_stripped), python))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DIGEST: &str = "0a0659d9cb5a4b8bb347548e2cabefc16af10c60891a334aed18be547c300971";

    fn parse(text: &str, mirror: Option<&str>) -> Result<PythonDownloads, TableError> {
        let origin = TableOrigin {
            mirror,
            is_local: false,
        };
        PythonDownloads::parse(text.as_bytes(), CpuArchitecture::X86_64, &origin)
    }

    fn uv(patch: u32, change: &[(&str, Value)]) -> Value {
        let file =
            format!("cpython-3.10.{patch}%2B20240107-x86_64-unknown-linux-gnu-install_only.tar.gz");
        let mut entry = serde_json::json!({
            "name": "cpython", "arch": {"family": "x86_64", "variant": null}, "os": "linux",
            "libc": "gnu", "major": 3, "minor": 10, "patch": patch, "prerelease": "",
            "url": format!("https://host.example/x/releases/download/20240107/{file}"),
            "sha256": DIGEST, "variant": null, "build": "20240107"
        });
        for (key, value) in change {
            entry[*key] = value.clone();
        }
        entry
    }

    #[test]
    fn the_newest_of_uvs_table_is_taken() {
        let table = serde_json::json!({
            "a": uv(9, &[]),
            "b": uv(13, &[]),
            "old": uv(12, &[("arch", "x86_64".into())]),
            "no digest": uv(20, &[("sha256", Value::Null)]),
            "half a digest": uv(20, &[("sha256", "0a06".into())]),
            "free-threaded": uv(20, &[("variant", "freethreaded".into())]),
            "early": uv(20, &[("prerelease", "rc1".into())]),
            "musl": uv(20, &[("libc", "musl".into())]),
            "newer processors": uv(20, &[("arch", serde_json::json!({"family": "x86_64", "variant": "v3"}))]),
            "pypy": uv(20, &[("name", "pypy".into())]),
            "other machine": uv(20, &[("arch", "aarch64".into())]),
            "other layout": uv(20, &[("url", "https://host.example/cpython-3.10.20%2B20240107-full.tar.zst".into())]),
            "other scheme": uv(20, &[("url", "ftp://host.example/cpython-3.10.20+20240107-install_only.tar.gz".into())]),
            "a newline": uv(20, &[("url", "https://host.example/\ncpython-3.10.20+20240107-install_only.tar.gz".into())]),
            "a name": uv(20, &[("url", "https://host.example/cpython-3.10.20+20240107-install_only`x`.tar.gz".into())]),
            "too old": uv(20, &[("minor", 7.into())]),
            "of this machine": uv(20, &[("url", "file:///srv/cpython-3.10.20+20240107-install_only.tar.gz".into())]),
            "nonsense": 3,
        });
        let table = parse(&table.to_string(), None).unwrap();
        let python = table.newest(10).unwrap();
        assert_eq!(
            (&*python.version, &*python.release),
            ("3.10.13", "20240107")
        );
        assert_eq!(
            python.file,
            "cpython-3.10.13+20240107-x86_64-unknown-linux-gnu-install_only.tar.gz"
        );
        assert_eq!(python.sha256.to_string(), DIGEST);
        assert_eq!(table.newest(11), None);
        assert_eq!(table.list_versions(), ["3.10"]);
    }

    /// Two entries as pbs-installer 2026.10.25 has them, the host changed.
    const PBS: &str = r#"[{"files": [
        {"arch": "x86_64", "filename": "cpython-3.15.1+20261021-x86_64-unknown-linux-gnu-pgo+lto-full.tar.zst",
         "install_only": false, "platform": "linux", "sha256": "ed8c818ad80faeb7cb3a37f5d2283bd5f8350350b007bdda092026b9048ccb33",
         "url": "https://host.example/astral/releases/download/20261021/cpython-3.15.1%2B20261021-x86_64-unknown-linux-gnu-pgo%2Blto-full.tar.zst"},
        {"arch": "x86_64", "filename": "cpython-3.15.1+20261021-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz",
         "install_only": true, "platform": "linux", "sha256": "01d901e09ca673c99a6c9bd9ec2cfbd58dbe8813d07514c36cb73cfd20b18bd8",
         "url": "https://host.example/astral/releases/download/20261021/cpython-3.15.1%2B20261021-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz"},
        {"arch": "x86_64", "install_only": true, "platform": "linux", "sha256": null, "url": "https://host.example/x"}],
        "python_version": {"freethreaded": false, "implementation": "cpython", "major": 3, "micro": 1, "minor": 15}}]"#;

    #[test]
    fn the_other_form_is_read_and_a_mirror_replaces_the_front() {
        let python = |mirror| parse(PBS, mirror).unwrap().newest(15).unwrap().clone();
        assert_eq!(python(None).version, "3.15.1");
        let file =
            "cpython-3.15.1%2B20261021-x86_64-unknown-linux-gnu-install_only_stripped.tar.gz";
        assert_eq!(
            python(Some("https://mirror.example/pbs/")).url,
            format!("https://mirror.example/pbs/20261021/{file}")
        );
        assert_eq!(
            python(Some("file:///srv/pbs")).url,
            format!("file:///srv/pbs/20261021/{file}")
        );
        assert!(matches!(
            PythonDownloads::parse(
                PBS.as_bytes(),
                CpuArchitecture::Aarch64,
                &TableOrigin::default()
            ),
            Err(TableError::Empty)
        ));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in ["", "{", "<html>", "{}", "[]", "3", "null", "[[[]]]"] {
            assert!(parse(text, None).is_err(), "{text}");
        }
        assert!(parse(&"[".repeat(100_000), None).is_err());
    }

    proptest! {
        #[test]
        fn a_damaged_table_is_taken_or_refused(at in 0..PBS.len(), byte in any::<u8>()) {
            let mut bytes = PBS.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(table) = PythonDownloads::parse(&bytes, CpuArchitecture::X86_64, &TableOrigin::default()) {
                prop_assert!(table.pythons.iter().all(|(_, python)| python.file.ends_with(".tar.gz")));
            }
        }
    }
}
