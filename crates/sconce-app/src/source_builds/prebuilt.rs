//! Wheels that projects publish with their releases, fetched once: after that the lock has their digests.

use std::path::PathBuf;

use sconce_base::secrets;
use sconce_fetch::FetchError;
use sconce_resolve::BuiltWheel;
use sconce_resolve::python::prebuilt::{RELEASES, publishes_wheels, wheel_addresses};
use sconce_resolve::python::source_package::SourcePackage;
use sconce_schema::Sha256;
use sconce_schema::lock::{Lock, Wheel};
use sha2::Digest as _;

use super::{ContainedBuilder, KIND, single_file};
use crate::failure::Result;

/// No wheel is larger.
const MAX_WHEEL_BYTES: u64 = 2 << 30;

impl ContainedBuilder<'_> {
    /// The wheel that the project of a package published for the torch among `installed`. `None` where
    /// none of its addresses has one, which is said.
    pub(super) fn find_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>> {
        let Some(version) = package.version.as_deref() else {
            return Ok(None);
        };
        if !publishes_wheels(&package.name) {
            return Ok(None);
        }
        let releases = self.places.config.releases.as_deref().unwrap_or(RELEASES);
        let (name, target) = (package.name.as_str(), &base.target);
        let python = &target.python;
        let addresses = wheel_addresses(
            releases,
            (name, version),
            installed,
            python,
            &target.architecture,
        );
        for address in &addresses {
            let file = match self.fetch_once(address)? {
                Ok(file) => file,
                Err(FetchError::NotFound { .. }) => continue,
                Err(error) => {
                    let address = secrets::mask_text(address);
                    self.progress.note(&format!(
                        "whether {name} {version} has a wheel at {address} is not known: {error}"
                    ));
                    return Ok(None);
                }
            };
            let mut built = self.install_wheel(package, &file, base)?;
            built.wheel.url.clone_from(address);
            return Ok(Some(built));
        }
        let torch = installed.iter().find(|wheel| wheel.name == "torch");
        if let (Some(first), Some(torch)) = (addresses.first(), torch) {
            self.progress.note(&format!(
                "{name} {version} was not published for torch {} and Python {python} ({} and its like); with a \
                 torch that it was published for, it would not be compiled",
                torch.version,
                secrets::mask_text(first)
            ));
        }
        Ok(None)
    }

    /// The file at an address, from the store where it was fetched before.
    fn fetch_once(&self, address: &str) -> Result<Result<PathBuf, FetchError>> {
        let key = Sha256(sha2::Sha256::digest(address).into()).to_string();
        if let Some(file) = (self.store.find_tree(KIND, &key)).and_then(|tree| single_file(&tree)) {
            return Ok(Ok(file));
        }
        if self.context.offline {
            let url = secrets::mask_text(address);
            return Ok(Err(FetchError::Offline { url }));
        }
        let name = address.rsplit('/').next().unwrap_or_default();
        let name = name.replace("%2B", "+");
        self.progress.advance(&name, 0);
        let fetched = self.fetcher.get(address, MAX_WHEEL_BYTES);
        self.progress.done(&name);
        let bytes = match fetched {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error)),
        };
        let folder = self.temp_folder()?;
        let file = folder.path().join(&name);
        std::fs::write(&file, bytes).map_err(|source| crate::failure::AppError::File {
            action: crate::file_action::FileAction::Write,
            path: file.clone(),
            source,
        })?;
        self.keep_wheel(&key, &file).map(Ok)
    }
}
