//! Packages that come as sources: where those are, and what is known of them before and after they are
//! built.

use super::lenient_metadata::{read_requirement, read_specifiers};
use sconce_formats::normalize_project_name;
use sconce_schema::Sha256;

/// The address of a repository that no name stands before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnnamedSource {
    /// `git+https://…`, with a commit and a subdirectory where they are given.
    pub url: String,
    /// A marker as it stands behind an address, ` ; python_version < "3.11"`; else empty.
    pub marker: String,
}

impl UnnamedSource {
    /// What its project may be called: the last part of its address. What it is called is known once it
    /// was built.
    #[must_use]
    pub fn guess_name(&self) -> String {
        let url = self.url.split('#').next().unwrap_or_default();
        let last = url
            .trim_end_matches('/')
            .rsplit(['/', ':'])
            .next()
            .unwrap_or_default();
        let last = last.split('@').next().unwrap_or_default();
        let last = last.strip_suffix(".git").unwrap_or(last);
        normalize_project_name(last).unwrap_or_else(|| "unnamed".to_owned())
    }
}

/// A package that has no wheel, as uv resolved it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePackage {
    /// Normalised project name.
    pub name: String,
    /// Whether that is [`UnnamedSource::guess_name`].
    pub is_name_guessed: bool,
    /// As uv has it; what the project itself says may be another one where [`SourceOrigin::Git`] was
    /// never built.
    pub version: Option<String>,
    /// Where its sources are.
    pub origin: SourceOrigin,
}

/// Where sources are, and which ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceOrigin {
    /// An archive.
    Archive {
        /// An http(s) URL without credentials, or a `file:` URL.
        url: String,
        /// Of the whole file.
        sha256: Sha256,
        /// The project's folder in it, where that is not its root.
        subdirectory: Option<String>,
        /// The day it was uploaded on, `2019-12-18`, where the index tells it.
        uploaded: Option<String>,
    },
    /// A commit of a git repository.
    Git {
        /// As git takes it, without credentials.
        url: String,
        /// 40 hexadecimal digits.
        commit: String,
        /// As above.
        subdirectory: Option<String>,
    },
}

impl SourceOrigin {
    /// Its address.
    #[must_use]
    pub fn url(&self) -> &str {
        match self {
            Self::Archive { url, .. } | Self::Git { url, .. } => url,
        }
    }

    /// The project's folder in it, where that is not its root.
    #[must_use]
    pub fn subdirectory(&self) -> Option<&str> {
        match self {
            Self::Archive { subdirectory, .. } | Self::Git { subdirectory, .. } => {
                subdirectory.as_deref()
            }
        }
    }

    /// What names the bytes: a digest, or a commit.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        match self {
            Self::Archive { sha256, .. } => sha256.to_string(),
            Self::Git { commit, .. } => commit.clone(),
        }
    }

    /// Whether it is the same sources, whatever else is known of them.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.url(), self.subdirectory(), self.fingerprint())
            == (other.url(), other.subdirectory(), other.fingerprint())
    }
}

/// What a source package says of itself, as far as uv resolves by it: uv asks no build backend then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceMetadata {
    /// Normalised project name.
    pub name: String,
    /// The version that this is said of; absent: all.
    pub version: Option<String>,
    /// What it needs (PEP 508).
    pub requires_dist: Vec<String>,
    /// The Pythons that it runs on (PEP 440).
    pub requires_python: Option<String>,
    /// Its extras.
    pub provides_extra: Vec<String>,
    /// What of it cannot be read, and so does not count, as it is written.
    pub unread: Vec<String>,
}

impl SourceMetadata {
    /// The core metadata of a wheel, with the usual slips mended: uv would read none of it with one that is wrong.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut metadata = Self::default();
        let headers = text.lines().take_while(|line| !line.is_empty());
        for (key, value) in headers.filter_map(|line| line.split_once(':')) {
            let value = value.trim().to_owned();
            match key {
                "Name" => {
                    metadata.name = normalize_project_name(&value).unwrap_or_default();
                }
                "Version" => metadata.version = Some(value),
                "Requires-Dist" => {
                    let read = read_requirement(&value);
                    if read.as_ref().is_none_or(|read| read.is_shortened) {
                        metadata.unread.push(value);
                    }
                    metadata.requires_dist.extend(read.map(|read| read.text));
                }
                "Requires-Python" => {
                    metadata.requires_python =
                        read_specifiers(&value).filter(|read| !read.is_empty());
                    if metadata.requires_python.is_none() {
                        metadata.unread.push(value);
                    }
                }
                "Provides-Extra" => metadata.provides_extra.push(value),
                _ => {}
            }
        }
        metadata
    }

    /// As `[[dependency-metadata]]` of uv has it.
    pub(crate) fn to_table(&self) -> toml::Table {
        let texts = |list: &[String]| {
            let values = list.iter().cloned().map(toml::Value::String);
            toml::Value::Array(values.collect())
        };
        let mut table = toml::Table::new();
        table.insert("name".into(), self.name.clone().into());
        if let Some(version) = &self.version {
            table.insert("version".into(), version.clone().into());
        }
        table.insert("requires-dist".into(), texts(&self.requires_dist));
        if let Some(python) = &self.requires_python {
            table.insert("requires-python".into(), python.clone().into());
        }
        if !self.provides_extra.is_empty() {
            table.insert("provides-extra".into(), texts(&self.provides_extra));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_says_what_is_needed() {
        let text = "Metadata-Version: 2.1\nName: My_Pkg\nVersion: 1.2\nRequires-Python: >=3.6\n\
            Requires-Dist: numpy>=1.18.0\nRequires-Dist: opencv-python ; extra == 'cv'\n\
            Provides-Extra: cv\n\nRequires-Dist: of the description\n";
        let metadata = SourceMetadata::parse(text);
        assert_eq!(metadata.name, "my-pkg");
        assert_eq!(metadata.version.as_deref(), Some("1.2"));
        assert_eq!(metadata.requires_dist.len(), 2);
        let table = metadata.to_table().to_string();
        for said in ["requires-python = \">=3.6\"", "provides-extra = [\"cv\"]"] {
            assert!(table.contains(said), "{table}");
        }
        assert_eq!(SourceMetadata::parse(""), SourceMetadata::default());
    }

    #[test]
    fn metadata_that_uv_cannot_read_is_mended() {
        let text = "Name: gym\nRequires-Python: >=3.6.*\nRequires-Dist: numpy (>=1.18.0)\n\
            Requires-Dist: opencv-python (>=3.) ; extra == 'other'\nRequires-Dist: box2d (>=new)\n";
        let metadata = SourceMetadata::parse(text);
        assert_eq!(
            metadata.requires_dist,
            [
                "numpy>=1.18.0",
                "opencv-python>=3 ; extra == 'other'",
                "box2d"
            ]
        );
        assert_eq!(metadata.requires_python.as_deref(), Some(">=3.6"));
        assert_eq!(metadata.unread, ["box2d (>=new)"]);
    }

    #[test]
    fn a_name_is_guessed_from_an_address() {
        for (url, expected) in [
            ("git+https://example.org/openai/CLIP.git", "clip"),
            (
                "git+https://example.org/a/Taming_T@main#subdirectory=x",
                "taming-t",
            ),
            ("git+ssh://git@example.org/a/b.git@v1", "b"),
            ("git+https://example.org/", "example-org"),
            ("git+https://example.org/-", "unnamed"),
        ] {
            let source = UnnamedSource {
                url: url.to_owned(),
                marker: String::new(),
            };
            assert_eq!(source.guess_name(), expected, "{url}");
        }
    }

    #[test]
    fn the_same_sources_are_known() {
        let git = |commit: &str, subdirectory: Option<&str>| SourceOrigin::Git {
            url: "https://git.example.org/x".to_owned(),
            commit: commit.to_owned(),
            subdirectory: subdirectory.map(str::to_owned),
        };
        assert!(git("a", None).is_same(&git("a", None)));
        assert!(!git("a", None).is_same(&git("b", None)));
        assert!(!git("a", None).is_same(&git("a", Some("sub"))));
    }
}
