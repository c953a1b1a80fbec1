//! Writes the documents of an image, for `scripts/test.d/sbom`: `documents LOCK FOLDER`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use sconce_image::provenance::{LOCAL_BUILDER, ProvenanceInput, render_statement};
use sconce_image::sbom::{License, PackageMetadata, SbomSubject, cyclonedx, spdx};
use sconce_oci::Digest;
use sconce_schema::Lock;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (lock, folder) = arguments
        .next()
        .zip(arguments.next())
        .ok_or("LOCK FOLDER")?;
    let text = fs::read_to_string(lock)?;
    let lock = Lock::parse(&text)?;
    // One of each kind, as far as there are so many wheels.
    let own = "MIT OR (Apache-2.0 WITH LLVM-exception AND LicenseRef-Own)";
    let licenses = [
        License::Expression(own.to_owned()),
        License::Expression("Apache 2".to_owned()),
        License::Text("All rights reserved.\nSee the file.".to_owned()),
    ];
    let facts = |license| PackageMetadata {
        license: Some(license),
        supplier: Some("A & B (Café)".to_owned()),
    };
    let digests = lock.wheels.iter().map(|wheel| wheel.sha256);
    let facts: BTreeMap<_, _> = digests.zip(licenses.map(facts)).collect();
    let manifest = Digest::hash_bytes(b"a manifest");
    let subject = SbomSubject {
        name: "digits",
        manifest: Some(manifest),
        lock: &lock,
        facts: &facts,
        created_s: 0,
    };
    fs::write(folder.join("spdx.json"), spdx(&subject))?;
    fs::write(folder.join("cyclonedx.json"), cyclonedx(&subject))?;
    let without = SbomSubject {
        manifest: None,
        ..subject
    };
    fs::write(folder.join("spdx-inside.json"), spdx(&without))?;
    fs::write(folder.join("cyclonedx-inside.json"), cyclonedx(&without))?;
    let build = ProvenanceInput {
        image: "registry.example.org/digits:1",
        manifest,
        spec: None,
        lock_file: Digest::hash_bytes(text.as_bytes()).0,
        lock: &lock,
        builder: LOCAL_BUILDER,
    };
    fs::write(folder.join("provenance.json"), render_statement(&build))?;
    Ok(())
}
