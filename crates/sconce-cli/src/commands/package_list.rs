//! What a verb about packages is pointed at: a spec, a lock, a list of packages, or an image.

use std::path::Path;

use sconce_image::local_image::LocalImage;
use sconce_image::sbom::{self, SbomPackage};
use sconce_schema::Lock;
use sconce_store::Store;

use crate::error::CliError;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::{AppError, Result};
use sconce_app::file_action::FileAction;
use sconce_app::project::{Project, is_lock, read_lock};

/// Something that has packages.
pub(super) enum PackageListSource {
    /// A lock: named, or a spec's, or the one that an image was made from.
    Lock {
        name: String,
        lock: Box<Lock>,
        image: Option<Box<LocalImage>>,
    },
    /// A list of packages that any program wrote.
    List(Vec<SbomPackage>),
}

impl PackageListSource {
    /// In this order: a file that ends with `.lock`, another file (a list of packages, or a spec),
    /// a folder with a spec, a local image's name or digest.
    pub(super) fn from_argument(what: &str, context: &AppContext) -> Result<Self> {
        let path = Path::new(what);
        let read = || {
            sconce_app::input::read_bytes(path).map_err(|source| AppError::File {
                action: FileAction::Read,
                path: path.to_owned(),
                source,
            })
        };
        let ends = |end: &str| path.extension().is_some_and(|found| found == end);
        if path.exists() && is_lock(path) {
            return Ok(Self::of_lock(what, read_lock(path)?, None));
        }
        if path.is_file() && !ends("toml") {
            return Ok(Self::List(sbom::parse(&read()?)?));
        }
        if path.exists() {
            let project = Project::open(path)?;
            let lock = project.load_lock()?.ok_or_else(|| CliError::NoLock {
                path: project.lock_file(),
            })?;
            return Ok(Self::of_lock(&project.name, lock, None));
        }
        let store = Store::open(&SconceDirs::find(context)?.store)?;
        let image = LocalImage::find(&store, what)?;
        match image.load_lock(&store)? {
            Some(lock) => Ok(Self::of_lock(what, lock, Some(Box::new(image)))),
            None => Err(CliError::NoPackages {
                image: what.to_owned(),
            }
            .into()),
        }
    }

    fn of_lock(name: &str, lock: Lock, image: Option<Box<LocalImage>>) -> Self {
        Self::Lock {
            name: name.to_owned(),
            lock: Box::new(lock),
            image,
        }
    }

    /// Its packages.
    pub(super) fn packages(&self) -> Vec<SbomPackage> {
        match self {
            Self::Lock { lock, .. } => sbom::packages_of_lock(lock),
            Self::List(packages) => packages.clone(),
        }
    }
}
