//! The images that this store knows: documents by digest, and names that point to them.
//!
//! An image is an item of the store: its manifest, its configuration and the list of what is in
//! each layer. Its layers are blobs that it shares with others. A name is a file in the store's `images`
//! folder that holds one digest; it is replaced whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sconce_base::random_name;
use sconce_schema::{Hint, Lock, exit};
use sconce_store::{Store, StoreError, TreeBuildError};
use serde::{Deserialize, Serialize};

use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, DocumentError, ImageManifest};

/// The label that names the digest of the lock an image was made from.
pub(crate) const LOCK_LABEL: &str = "dev.sconce.lock";
/// Kind of images in the store.
const KIND: &str = "image";

/// Why a local image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of an image or a name could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A document of an image is wrong.
    #[error("{} is not part of an image", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: DocumentError,
    },
    /// No local image has this name.
    #[error("there is no local image `{name}`")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A text that cannot name an image.
    #[error("`{name}` cannot name an image")]
    Name {
        /// The text.
        name: String,
    },
    /// A blob of the image is not in the store any more.
    #[error("the layer {digest} of the image is not in the store")]
    Gone {
        /// Its digest.
        digest: Digest,
    },
}

impl Hint for LocalError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::File { .. } => None,
            Self::Document { .. } | Self::Gone { .. } => {
                Some("make it again with `sconce build`".to_owned())
            }
            Self::Unknown { .. } => Some("`sconce images` lists those that are there".to_owned()),
            Self::Name { .. } => Some(
                "NAME:TAG, the name of lower-case letters, digits and `._-/`, the tag of letters, \
                 digits and `._-`"
                    .to_owned(),
            ),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::File { .. } | Self::Document { .. } | Self::Gone { .. } => exit::STORE,
            Self::Unknown { .. } | Self::Name { .. } => exit::BAD_INPUT,
        }
    }
}

/// What is known of one layer beside its descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LayerContents {
    /// The layer's name in the plan.
    pub layer: String,
    /// Names and versions.
    pub packages: Vec<(String, String)>,
    /// Size of its archive, not compressed, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpacked_bytes: Option<u64>,
}

/// An image whose documents are in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalImage {
    /// Digest of the manifest: what the image is called for good.
    pub digest: Digest,
    /// The manifest's bytes.
    pub manifest_bytes: Vec<u8>,
    /// The manifest.
    pub manifest: ImageManifest,
    /// The configuration's bytes.
    pub config_bytes: Vec<u8>,
    /// What lies in each layer, where it is known: as the manifest's layers.
    pub contents: Vec<LayerContents>,
}

impl LocalImage {
    /// Keeps an image whose layers are in the store.
    ///
    /// # Errors
    /// [`LocalError`].
    pub fn store_image(
        store: &Store,
        manifest_bytes: Vec<u8>,
        config_bytes: Vec<u8>,
        contents: Vec<LayerContents>,
    ) -> Result<Self, LocalError> {
        let digest = Digest::hash_bytes(&manifest_bytes);
        let list = oci::to_json(&contents);
        let files = [
            ("manifest.json", &manifest_bytes),
            ("config.json", &config_bytes),
            ("contents.json", &list),
        ];
        let kept = store.build_tree(KIND, &digest.to_hex(), |folder| {
            files.into_iter().try_for_each(|(name, bytes)| {
                let path = folder.join(name);
                fs::write(&path, bytes).map_err(file("write", &path))
            })
        });
        kept.map_err(|error| match error {
            TreeBuildError::Store(error) => LocalError::Store(error),
            TreeBuildError::Build(error) => error,
        })?;
        Self::of(digest, manifest_bytes, config_bytes, contents).map_err(|source| {
            LocalError::Document {
                path: PathBuf::from(digest.to_string()),
                source,
            }
        })
    }

    fn of(
        digest: Digest,
        manifest_bytes: Vec<u8>,
        config_bytes: Vec<u8>,
        contents: Vec<LayerContents>,
    ) -> Result<Self, DocumentError> {
        Ok(Self {
            digest,
            manifest: ImageManifest::from_json(&manifest_bytes)?,
            manifest_bytes,
            config_bytes,
            contents,
        })
    }

    /// The image with this digest.
    ///
    /// # Errors
    /// [`LocalError`].
    pub fn load(store: &Store, digest: Digest) -> Result<Self, LocalError> {
        let folder =
            store
                .find_tree(KIND, &digest.to_hex())
                .ok_or_else(|| LocalError::Unknown {
                    name: digest.to_string(),
                })?;
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read(&path).map_err(file("read", &path))
        };
        let document = |source| LocalError::Document {
            path: folder.clone(),
            source,
        };
        let contents = oci::parse_document(&read("contents.json")?).map_err(document)?;
        let (manifest, config) = (read("manifest.json")?, read("config.json")?);
        Self::of(digest, manifest, config, contents).map_err(document)
    }

    /// The image that `name` points to, or that it is the digest of.
    ///
    /// # Errors
    /// [`LocalError::Unknown`] and the others.
    pub fn find(store: &Store, name: &str) -> Result<Self, LocalError> {
        if let Ok(digest) = name.parse() {
            return Self::load(store, digest);
        }
        let path = name_file(store, name)?;
        match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(LocalError::Unknown {
                name: name.to_owned(),
            }),
            Err(source) => Err(LocalError::File {
                action: "read",
                path,
                source,
            }),
            Ok(text) => match text.trim().parse() {
                Ok(digest) => Self::load(store, digest),
                Err(_) => Err(LocalError::Unknown {
                    name: name.to_owned(),
                }),
            },
        }
    }

    /// Has `name` point to this image from now on.
    ///
    /// # Errors
    /// [`LocalError::Name`], [`LocalError::File`].
    pub fn assign_name(&self, store: &Store, name: &str) -> Result<(), LocalError> {
        let path = name_file(store, name)?;
        let folder = store.root().join("images");
        fs::create_dir_all(&folder).map_err(file("create", &folder))?;
        let fresh = folder.join(format!(".{}", random_name()));
        let write = || {
            fs::write(&fresh, format!("{}\n", self.digest))?;
            fs::rename(&fresh, &path)
        };
        let written = write().map_err(file("write", &path));
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written
    }

    /// The configuration.
    ///
    /// # Errors
    /// [`LocalError::Document`].
    pub fn parse_config(&self) -> Result<oci::ImageConfiguration, LocalError> {
        oci::ImageConfiguration::from_json(&self.config_bytes).map_err(|source| {
            LocalError::Document {
                path: PathBuf::from(self.manifest.config.digest.to_string()),
                source,
            }
        })
    }

    /// The lock that it was made from, where the store has it: its label names the lock's digest.
    ///
    /// # Errors
    /// [`LocalError::Document`].
    pub fn load_lock(&self, store: &Store) -> Result<Option<Lock>, LocalError> {
        self.parse_config()?;
        let text = self
            .lock_digest()
            .and_then(|digest| store.find_blob(&digest.0))
            .and_then(|path| fs::read_to_string(path).ok());
        Ok(text.and_then(|text| Lock::parse(&text).ok()))
    }

    fn lock_digest(&self) -> Option<Digest> {
        let config = oci::ImageConfiguration::from_json(&self.config_bytes).ok()?;
        config.config?.labels?.get(LOCK_LABEL)?.parse().ok()
    }

    /// The file of each layer, lowest first.
    ///
    /// # Errors
    /// [`LocalError::Gone`].
    pub fn layer_blobs(&self, store: &Store) -> Result<Vec<(Descriptor, PathBuf)>, LocalError> {
        let blob = |layer: &Descriptor| match store.find_blob(&layer.digest.0) {
            Some(path) => Ok((layer.clone(), path)),
            None => Err(LocalError::Gone {
                digest: layer.digest,
            }),
        };
        self.manifest.layers.iter().map(blob).collect()
    }

    /// What of the store it needs, with the size in bytes: its documents' item, its layers, its lock.
    #[must_use]
    pub fn required_items(&self) -> Vec<(Digest, u64)> {
        let layers = self.manifest.layers.iter();
        let mut parts: Vec<(Digest, u64)> = layers.map(|one| (one.digest, one.size)).collect();
        let documents = self.config_bytes.len() + self.manifest_bytes.len();
        parts.push((self.digest, documents as u64));
        parts.extend(self.lock_digest().map(|digest| (digest, 0)));
        parts
    }

    /// Bytes of all its layers and documents, as they are stored and sent.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let layers = self.manifest.layers.iter().map(|layer| layer.size);
        layers.sum::<u64>() + (self.config_bytes.len() + self.manifest_bytes.len()) as u64
    }
}

/// Takes a name away. What it pointed to stays until the store is pruned.
///
/// # Errors
/// [`LocalError::Unknown`] and the others.
pub fn remove_name(store: &Store, name: &str) -> Result<(), LocalError> {
    let path = name_file(store, name)?;
    fs::remove_file(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LocalError::Unknown {
            name: name.to_owned(),
        },
        _ => file("remove", &path)(source),
    })
}

/// The names of local images and what they point to, sorted.
///
/// # Errors
/// [`LocalError::File`].
pub fn list_names(store: &Store) -> Result<Vec<(String, Digest)>, LocalError> {
    let folder = store.root().join("images");
    let entries = match fs::read_dir(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(file("list", &folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file("list", &folder))?;
        let Some(name) = entry
            .file_name()
            .to_str()
            .map(|name| name.replace('~', "/"))
        else {
            continue;
        };
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        if let (false, Ok(digest)) = (name.starts_with('.'), text.trim().parse()) {
            found.push((name, digest));
        }
    }
    found.sort();
    Ok(found)
}

/// Keeps a lock where [`LocalImage::load_lock`] finds it, and gives its digest.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn keep_lock(lock: &Lock, store: &Store) -> Result<Digest, StoreError> {
    let text = lock.to_text();
    let digest = Digest::hash_bytes(text.as_bytes());
    store.put_blob(text.as_bytes(), &digest.0)?;
    Ok(digest)
}

/// The file of a name. The grammar is that of references without a registry (distribution's
/// reference package), so a slash is the only character that a file name cannot have.
fn name_file(store: &Store, name: &str) -> Result<PathBuf, LocalError> {
    check_name(name)?;
    Ok(store.root().join("images").join(name.replace('/', "~")))
}

/// Refuses a text that cannot be the name of a local image.
///
/// # Errors
/// [`LocalError::Name`].
pub fn check_name(text: &str) -> Result<(), LocalError> {
    match is_name(text) {
        true => Ok(()),
        false => Err(LocalError::Name {
            name: text.chars().take(200).collect(),
        }),
    }
}

/// Whether a text could be the name of a local image.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let Some((path, tag)) = text.rsplit_once(':') else {
        return false;
    };
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().copied().is_some_and(lower)
            && bytes.last().copied().is_some_and(lower)
            && bytes.iter().all(|&b| lower(b) || b"._-".contains(&b))
    };
    let tag_good = !tag.is_empty()
        && tag.len() <= 128
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    // A registry before it may have a port.
    let port = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (first, rest) = match path.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let first_good = match first.split_once(':') {
        Some((name, number)) => rest.is_some() && part(name) && port(number),
        None => part(first),
    };
    let rest_good = rest.is_none_or(|rest| rest.split('/').all(part));
    tag_good && path.len() <= 100 && first_good && rest_good
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LocalError {
    move |source| LocalError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_oci::media;

    fn image(store: &Store, layer: &[u8]) -> LocalImage {
        let digest = Digest::hash_bytes(layer);
        store.put_blob(layer, &digest.0).unwrap();
        let config = b"{}".to_vec();
        let manifest = ImageManifest::new(
            Descriptor::for_bytes(media::CONFIG, &config),
            vec![Descriptor::for_bytes(media::LAYER, layer)],
        );
        LocalImage::store_image(store, oci::to_json(&manifest), config, Vec::new()).unwrap()
    }

    #[test]
    fn names_point_to_images_and_can_be_moved() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (one, two) = (image(&store, b"one"), image(&store, b"two"));
        one.assign_name(&store, "team/base:1.0").unwrap();
        assert_eq!(LocalImage::find(&store, "team/base:1.0").unwrap(), one);
        two.assign_name(&store, "team/base:1.0").unwrap();
        assert_eq!(LocalImage::find(&store, "team/base:1.0").unwrap(), two);
        assert_eq!(
            LocalImage::find(&store, &one.digest.to_string()).unwrap(),
            one
        );
        assert_eq!(
            list_names(&store).unwrap(),
            [("team/base:1.0".to_owned(), two.digest)]
        );
        let parts = two.required_items();
        let parts: Vec<&Digest> = parts.iter().map(|(digest, _)| digest).collect();
        assert_eq!(parts, [&Digest::hash_bytes(b"two"), &two.digest]);
        one.assign_name(&store, "other:1").unwrap();
        remove_name(&store, "other:1").unwrap();
        for name in ["other:1", "never:1"] {
            let gone = remove_name(&store, name);
            assert!(matches!(gone, Err(LocalError::Unknown { .. })), "{name}");
        }
        let unknown = LocalImage::find(&store, "team/base:2");
        assert!(matches!(unknown, Err(LocalError::Unknown { .. })));
        assert_eq!(
            fs::read(&two.layer_blobs(&store).unwrap()[0].1).unwrap(),
            b"two"
        );
        store
            .remove_item("blob", &Digest::hash_bytes(b"two").to_hex())
            .unwrap();
        assert!(matches!(
            two.layer_blobs(&store),
            Err(LocalError::Gone { .. })
        ));
    }

    #[test]
    fn a_name_stays_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for name in [
            "base", ":1", "base:", "../x:1", "a//b:1", "/a:1", "A:1", "a:..", "a:b/c", "a~b:1",
            ".a:1", "a:1:2",
        ] {
            let file = name_file(&store, name);
            assert!(matches!(file, Err(LocalError::Name { .. })), "{name}");
        }
        for name in [
            "a/b-c_d.e:2.15.0-cuda13.2",
            "localhost:5000/team/a:1",
            "a:1",
        ] {
            assert!(name_file(&store, name).is_ok(), "{name}");
        }
    }
}
