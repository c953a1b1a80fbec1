//! What an image says of itself, inside it: the lock it was made from and its lists of packages.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sconce_base::direct_io::fixed_time;
use sconce_schema::{EnvironmentLayers, Lock, Sha256};
use sconce_store::{Store, StoreError, TreeBuildError};
use sha2::Digest as _;

use crate::sbom::{self, License, PackageMetadata, SbomSubject};

/// Kind of these trees.
const KIND: &str = "about";
/// Where they lie in an image.
const FOLDER: &str = "usr/share/sconce";
/// More of a package's metadata is not read, bytes. The fields stand before the description.
const MAX_METADATA_BYTES: u64 = 1 << 20;

/// What the wheels of `environment` say of themselves. A wheel whose metadata cannot be read has no
/// facts: they are nice to have.
#[must_use]
pub fn read_wheel_metadata(
    lock: &Lock,
    environment: &EnvironmentLayers,
) -> BTreeMap<Sha256, PackageMetadata> {
    // The system tree comes first.
    let trees = environment.layers.iter().skip(1);
    let site = format!("opt/venv/lib/python{}/site-packages", lock.target.python);
    let one = |(wheel, tree): (
        &sconce_schema::lock::Wheel,
        &sconce_schema::environment_layers::LayerTree,
    )| {
        let text = read_metadata_text(&tree.path.join(&site))?;
        Some((wheel.sha256, parse(&text)))
    };
    lock.wheels.iter().zip(trees).filter_map(one).collect()
}

/// The `METADATA` file in a wheel's tree, of its folder `site-packages`. Trees of wheels have no links.
#[must_use]
pub fn read_metadata_text(site: &Path) -> Option<String> {
    let entries = fs::read_dir(site).ok()?.flatten();
    let info = entries
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "dist-info"))?;
    let mut bytes = Vec::new();
    let file = fs::File::open(info.join("METADATA")).ok()?;
    file.take(MAX_METADATA_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the fields that matter (core metadata specification, 2.4). They end at the first empty
/// line.
fn parse(text: &str) -> PackageMetadata {
    let field = |name: &str| {
        text.lines()
            .take_while(|line| !line.trim().is_empty())
            .find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
            .filter(|value| !value.is_empty() && !value.eq_ignore_ascii_case("unknown"))
    };
    let license = field("License-Expression").map(License::Expression);
    PackageMetadata {
        license: license.or_else(|| field("License").map(License::Text)),
        supplier: field("Author").or_else(|| field("Author-email")),
    }
}

/// A tree with the lock and both lists of packages.
///
/// # Errors
/// [`StoreError`].
pub fn build_document_tree(
    name: &str,
    lock: &Lock,
    facts: &BTreeMap<Sha256, PackageMetadata>,
    store: &Store,
) -> Result<PathBuf, StoreError> {
    let subject = SbomSubject {
        name,
        manifest: None,
        lock,
        facts,
        created_s: 0,
    };
    let files = [
        ("sconce.lock", lock.to_text().into_bytes()),
        ("sbom.spdx.json", sbom::spdx(&subject)),
        ("sbom.cyclonedx.json", sbom::cyclonedx(&subject)),
    ];
    let mut hash = sha2::Sha256::new();
    for (_, bytes) in &files {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    let key = Sha256(hash.finalize().into()).to_string();
    let built = store.build_tree(KIND, &key, |root| {
        let folder = root.join(FOLDER);
        let write = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            for above in folder.ancestors().take_while(|above| *above != root) {
                fs::set_permissions(above, fs::Permissions::from_mode(0o755))?;
            }
            for (name, bytes) in &files {
                let path = folder.join(name);
                fs::write(&path, bytes)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
                fs::File::options()
                    .append(true)
                    .open(&path)?
                    .set_modified(fixed_time())?;
            }
            Ok(())
        };
        write().map_err(|source| StoreError::Disk {
            what: "write",
            path: folder.clone(),
            source,
        })
    });
    built.map_err(|error| match error {
        TreeBuildError::Store(error) | TreeBuildError::Build(error) => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_end_where_the_description_begins() {
        let text = "Metadata-Version: 2.4\nName: a\nAuthor-email: A <a@example.org>\n\
                    License-Expression: BSD-3-Clause\n\nLicense: GPL\n";
        let facts = parse(text);
        let expression = License::Expression("BSD-3-Clause".to_owned());
        assert_eq!(facts.license, Some(expression));
        assert_eq!(facts.supplier.as_deref(), Some("A <a@example.org>"));
        let facts = parse("Name: a\nLicense: UNKNOWN\nAuthor: \n");
        assert_eq!((facts.license, facts.supplier), (None, None));
        assert_eq!(parse("\n\nLicense: MIT").license, None);
    }
}
