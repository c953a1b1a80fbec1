//! Which Debian packages bring what a locked environment lacks: asked of the archive that the lock's
//! packages come from, where nothing here knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use sconce_base::text::to_printable;
use sconce_resolve::debian::contents::LibraryPackages;
use sconce_resolve::debian::sources::MirrorOverride;
use sconce_resolve::library_packages::LibrarySearch;
use sconce_resolve::{ResolveError, StoreDocuments};
use sconce_schema::lock::LockTarget;
use sconce_schema::spec::System;
use sconce_schema::{HostFacts, Lock, Progress};
use sconce_store::Store;
use tracing::info;

use crate::context::AppContext;
use crate::debian_sources;
use crate::dirs::SconceDirs;
use crate::failure::{Failure, Result};
use crate::inspect::InspectedEnvironment;
use crate::network;

/// Libraries that a note names; the rest is counted.
const MAX_NAMED: usize = 6;
/// Names of files and libraries are of wheels; a longer sentence is cut.
const MAX_SENTENCE_CHARS: usize = 300;

/// Asks archives for packages of libraries.
pub struct LibraryAdvisor<'a> {
    /// The directories to work in.
    pub places: &'a SconceDirs,
    /// Where lists of files are kept.
    pub store: &'a Store,
    /// How the program was started.
    pub context: &'a AppContext,
    /// The spec's `[system]`, where there is a spec.
    pub system: Option<&'a System>,
    /// The mirror that a flag names.
    pub mirror: Option<&'a str>,
    /// Told what is fetched, and what could not be asked.
    pub progress: &'a dyn Progress,
}

impl LibraryAdvisor<'_> {
    /// With the packages of libraries that nothing here knows. Where the archive cannot be asked, the
    /// environment stays as it is, which is said.
    #[must_use]
    pub fn advise(&self, judged: InspectedEnvironment, host: &HostFacts) -> InspectedEnvironment {
        let Some((target, names)) = judged.unknown_libraries(host) else {
            return judged;
        };
        match self.search(target, &names) {
            Ok(Some(found)) => {
                info!(
                    asked = names.len(),
                    found = found.len(),
                    "Debian's list of files was asked"
                );
                judged.with_library_packages(&found)
            }
            Ok(None) => {
                self.tell_unasked(&names, "the archive has no list of files");
                judged
            }
            Err(failure) => {
                self.tell_unasked(&names, &failure.message());
                judged
            }
        }
    }

    /// Says which Debian packages `lock`, whose packages are in the store, lacks. It is never an error:
    /// what is missing may never be opened.
    pub fn note_lacking(&self, lock: &Lock) {
        let judged = match InspectedEnvironment::from_lock("", lock, self.store) {
            Ok(judged) if judged.absent.is_empty() => judged,
            _ => return,
        };
        // No card is asked for here: the driver's libraries come with one.
        let host = HostFacts::default();
        for (package, finding) in self.advise(judged, &host).lacking_system_packages(&host) {
            self.progress.note(&format!(
                "{}: Debian's {package} brings it; add it to `[system] packages` and lock again (`sconce lock`)",
                to_printable(&finding.what, MAX_SENTENCE_CHARS)
            ));
        }
    }

    fn search(
        &self,
        target: &LockTarget,
        names: &BTreeSet<String>,
    ) -> Result<Option<BTreeMap<String, LibraryPackages>>> {
        let config = &self.places.config;
        let of_spec =
            |key: fn(&System) -> &Option<String>| self.system.and_then(|one| key(one).clone());
        let mirror = MirrorOverride {
            main: (self.mirror.map(str::to_owned))
                .or_else(|| of_spec(|system| &system.mirror))
                .or_else(|| config.mirror.clone()),
            security: of_spec(|system| &system.security_mirror)
                .or_else(|| config.security_mirror.clone()),
        };
        let addresses: Vec<String> = mirror
            .main
            .iter()
            .chain(&mirror.security)
            .cloned()
            .collect();
        let fetcher = network::build_fetcher(self.context, &addresses)?;
        let keyring = debian_sources::read_keyring(config)?;
        let search = LibrarySearch {
            documents: &StoreDocuments {
                fetcher: &fetcher,
                store: self.store,
            },
            apt_files: &debian_sources::apt_files(),
            mirror: &mirror,
            keyring: keyring.as_deref(),
            path_folders: &self.context.env.search_path(),
            now: SystemTime::now(),
        };
        let found = search.find(target, names, self.progress);
        found.map_err(|error: ResolveError| Failure::from(error))
    }

    fn tell_unasked(&self, names: &BTreeSet<String>, why: &str) {
        let named = names.iter().take(MAX_NAMED).map(String::as_str);
        let named = to_printable(&named.collect::<Vec<_>>().join(", "), MAX_SENTENCE_CHARS);
        self.progress.note(&format!(
            "which Debian package has {named} is not known: {}",
            why.lines().next().unwrap_or_default()
        ));
    }
}
