//! Which Debian packages have libraries that an environment lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::SystemTime;

use sconce_schema::Progress;
use sconce_schema::lock::LockTarget;

use crate::debian::ArchiveReader;
use crate::debian::contents::LibraryPackages;
use crate::debian::openpgp::find_verifier;
use crate::debian::sources::{self, AptFile, MirrorOverride};
use crate::debian_packages::{codename, keyring};
use crate::{DocumentSource, ResolveError};

/// What asking an archive needs: as [`crate::LockContext`] has it.
pub struct LibrarySearch<'a> {
    /// What the archive is read through.
    pub documents: &'a dyn DocumentSource,
    /// apt's sources.
    pub apt_files: &'a [AptFile],
    /// Archives that the spec, the configuration or a flag names.
    pub mirror: &'a MirrorOverride,
    /// OpenPGP keys that may sign the archive, where the configuration names them.
    pub keyring: Option<&'a [u8]>,
    /// The folders of PATH, where `gpgv` or `sqv` is looked for.
    pub path_folders: &'a [PathBuf],
    /// The time.
    pub now: SystemTime,
}

impl LibrarySearch<'_> {
    /// The packages of a release that have libraries of these names; `None` where its archive has no list
    /// of files. What no package has is left out.
    ///
    /// # Errors
    /// The archive cannot be reached, or is not to be trusted.
    pub fn find(
        &self,
        target: &LockTarget,
        names: &BTreeSet<String>,
        progress: &dyn Progress,
    ) -> Result<Option<BTreeMap<String, LibraryPackages>>, ResolveError> {
        let codename = codename(&target.release)?;
        let mirrors = sources::select_mirrors(self.apt_files, self.mirror)?;
        let keyring = keyring(self.keyring, &mirrors)?;
        let verifier = find_verifier(self.path_folders)?;
        let archive = ArchiveReader {
            documents: self.documents,
            verifier: verifier.as_ref(),
            keyring: &keyring,
            now: self.now,
            progress,
        };
        let (base, architecture) = (&mirrors.main, &target.architecture);
        Ok(archive.find_libraries(base, codename, architecture, names)?)
    }
}
