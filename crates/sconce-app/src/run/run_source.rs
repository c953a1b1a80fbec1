//! What `run` and `shell` are to run: a spec or an image.

use std::path::{Path, PathBuf};

use sconce_image::local_image;
use sconce_image::open::ImageSource;
use sconce_oci::Digest;
use sconce_registry::Reference;
use sconce_schema::spec::FILE_NAME;

/// What is to be run.
#[derive(Debug, PartialEq, Eq)]
pub enum RunSource {
    /// The spec there, or the spec in the folder there.
    Spec(PathBuf),
    /// An image.
    Image(ImageLocation),
}

/// Where an image is.
#[derive(Debug, PartialEq, Eq)]
pub enum ImageLocation {
    /// A local image's name or digest, or else one in a registry.
    Named(String),
    /// A file or folder.
    There(ImageSource),
}

impl RunSource {
    /// In this order, the first that fits:
    ///
    /// 1. `oci:`, `oci-archive:` or `docker-archive:` and a path, or `sha256:` and a digest: an image;
    /// 2. a folder with a sconce.toml, or a file that ends in `.toml`: a spec;
    /// 3. a folder that is an image layout, or a file that is an archive: an image;
    /// 4. any other file or folder: a spec, which will say what is wrong with it;
    /// 5. NAME:TAG: a local image; with a registry before it, one that is fetched if it is not here;
    /// 6. anything else: a spec, which is not there.
    ///
    /// So what is there comes before a name, and `./` before a path tells it from a prefix.
    pub fn from_argument(argument: &Path) -> Self {
        let spec = || Self::Spec(argument.to_owned());
        let text = argument.to_str();
        if let Some(source) = text.and_then(ImageSource::parse) {
            return Self::Image(ImageLocation::There(source));
        }
        let local = |text: &str| Self::Image(ImageLocation::Named(text.to_owned()));
        if let Some(digest) = text.filter(|text| text.parse::<Digest>().is_ok()) {
            return local(digest);
        }
        let toml = argument.extension().is_some_and(|end| end == "toml");
        if argument.join(FILE_NAME).is_file() || toml && argument.is_file() {
            return spec();
        }
        let name = |text: &&str| local_image::is_name(text) || Reference::parse(text, None).is_ok();
        match (ImageSource::detect_at(argument), text.filter(name)) {
            (Ok(Some(source)), _) => Self::Image(ImageLocation::There(source)),
            (Ok(None), _) => spec(),
            (Err(_), Some(name)) => local(name),
            (Err(_), None) => spec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_image::open::ImageFormat;

    #[test]
    fn a_spec_and_an_image_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let here = |name: &str| folder.path().join(name);
        for (name, bytes) in [
            ("spec/sconce.toml", &b""[..]),
            ("both/sconce.toml", b""),
            ("both/oci-layout", b"{}"),
            ("lay/oci-layout", b"{}"),
            ("empty/file", b""),
            ("other.toml", b""),
            ("saved.tar.gz", b"\x1f\x8b"),
            ("packed.toml", b"\x1f\x8b"),
            ("text", b"hello"),
            ("base:1", b"hello"),
        ] {
            std::fs::create_dir_all(here(name).parent().unwrap()).unwrap();
            std::fs::write(here(name), bytes).unwrap();
        }
        for name in [
            "spec",
            "both",
            "empty",
            "other.toml",
            "packed.toml",
            "text",
            "base:1",
            "nowhere",
        ] {
            assert_eq!(
                RunSource::from_argument(&here(name)),
                RunSource::Spec(here(name)),
                "{name}"
            );
        }
        let there = |kind, path: &Path, name: Option<&str>| {
            RunSource::Image(ImageLocation::There(ImageSource {
                kind,
                path: path.to_owned(),
                name: name.map(str::to_owned),
            }))
        };
        for (name, kind) in [
            ("lay", ImageFormat::Layout),
            ("saved.tar.gz", ImageFormat::Archive),
        ] {
            assert_eq!(
                RunSource::from_argument(&here(name)),
                there(kind, &here(name), None),
                "{name}"
            );
        }
        let both = format!("oci:{}:1.0", here("both").display());
        let wanted = there(ImageFormat::Layout, &here("both"), Some("1.0"));
        assert_eq!(RunSource::from_argument(Path::new(&both)), wanted);
        let digest = format!("sha256:{}", "0f".repeat(32));
        for name in [
            "no-such:1.0",
            "team/no-such:2.15.0-cuda13",
            "sha256:0f",
            "localhost:5000/team/a:1",
            "registry.example.org/team/a",
            &digest,
        ] {
            let wanted = RunSource::Image(ImageLocation::Named(name.to_owned()));
            assert_eq!(RunSource::from_argument(Path::new(name)), wanted, "{name}");
        }
        for name in ["no-such", "No-Such:1", "no-such:", "../no:such/x"] {
            let wanted = RunSource::Spec(PathBuf::from(name));
            assert_eq!(RunSource::from_argument(Path::new(name)), wanted, "{name}");
        }
    }
}
