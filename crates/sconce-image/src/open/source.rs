//! Where an image is read from, as it is written on the command line.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sconce_base::input::open_regular;

/// What a file or folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// A folder that is an OCI image layout.
    Layout,
    /// A tar archive of one.
    LayoutArchive,
    /// What `docker save` writes.
    DockerArchive,
    /// One of the two archives.
    Archive,
}

/// A file or folder with images in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSource {
    /// What it is.
    pub kind: ImageFormat,
    /// Where it is.
    pub path: PathBuf,
    /// The image in it that is meant; absent where there is only one.
    pub name: Option<String>,
}

impl ImageSource {
    /// `oci:FOLDER[:NAME]`, `oci-archive:FILE[:NAME]` or `docker-archive:FILE[:NAME]`, as in
    /// containers-transports(5): the path ends at the first colon. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let kind = match kind {
            "oci" => ImageFormat::Layout,
            "oci-archive" => ImageFormat::LayoutArchive,
            "docker-archive" => ImageFormat::DockerArchive,
            _ => return None,
        };
        let (path, name) = match rest.split_once(':') {
            Some((path, name)) => (path, Some(name.to_owned())),
            None => (rest, None),
        };
        (!path.is_empty() && name.as_deref() != Some("")).then(|| Self {
            kind,
            path: path.into(),
            name,
        })
    }

    /// A folder with `oci-layout` in it, or a file that begins as a tar archive or as compressed
    /// data; `None` for anything else.
    ///
    /// # Errors
    /// What the system says.
    pub fn detect_at(path: &Path) -> io::Result<Option<Self>> {
        let found = |kind| {
            Some(Self {
                kind,
                path: path.to_owned(),
                name: None,
            })
        };
        let meta = fs::metadata(path)?;
        if meta.is_dir() {
            let layout = path.join("oci-layout").is_file();
            return Ok(found(ImageFormat::Layout).filter(|_| layout));
        }
        if !meta.is_file() {
            return Ok(None);
        }
        let mut head = Vec::new();
        open_regular(path)?.take(512).read_to_end(&mut head)?;
        let tar = head.get(257..262) == Some(b"ustar");
        let packed = super::files::is_packed(&head);
        Ok(found(ImageFormat::Archive).filter(|_| tar || packed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_written_as_elsewhere() {
        let source = |kind, path: &str, name: Option<&str>| {
            Some(ImageSource {
                kind,
                path: path.into(),
                name: name.map(str::to_owned),
            })
        };
        for (text, wanted) in [
            ("oci:lay", source(ImageFormat::Layout, "lay", None)),
            (
                "oci:/a/b:x:1",
                source(ImageFormat::Layout, "/a/b", Some("x:1")),
            ),
            (
                "oci-archive:a.tar",
                source(ImageFormat::LayoutArchive, "a.tar", None),
            ),
            (
                "docker-archive:a.tar:b:1",
                source(ImageFormat::DockerArchive, "a.tar", Some("b:1")),
            ),
            ("oci:", None),
            ("oci::x", None),
            ("oci:lay:", None),
            ("base:1.0", None),
            ("lay", None),
            ("OCI:lay", None),
        ] {
            assert_eq!(ImageSource::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_path_is_known_by_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |name: &str| {
            let source = ImageSource::detect_at(&folder.path().join(name));
            source.unwrap().map(|source| source.kind)
        };
        let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        put("text", b"name = \"x\"");
        put(
            "tar",
            &crate::unpack::testing::TarBuilder::default()
                .with_file("a", "")
                .into_bytes(),
        );
        put("gz", b"\x1f\x8b\x08\0");
        put("zst", b"\x28\xb5\x2f\xfd");
        fs::create_dir(folder.path().join("plain")).unwrap();
        fs::create_dir(folder.path().join("lay")).unwrap();
        put("lay/oci-layout", b"{}");
        assert_eq!(["text", "plain"].map(kind), [None, None]);
        assert_eq!(
            ["tar", "gz", "zst"].map(kind),
            [Some(ImageFormat::Archive); 3]
        );
        assert_eq!(kind("lay"), Some(ImageFormat::Layout));
        assert!(ImageSource::detect_at(&folder.path().join("nowhere")).is_err());
    }
}
