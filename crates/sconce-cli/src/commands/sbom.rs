//! `sconce sbom`.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use sconce_image::{embedded_documents, sbom};
use sconce_schema::exit;
use sconce_store::Store;

use super::package_list::PackageListSource;
use crate::error::CliError;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct SbomArgs {
    /// An image's name or digest, a lock, or a sconce.toml or its folder.
    #[arg(default_value = ".", value_name = "IMAGE|SPEC|LOCK")]
    subject: String,
    /// The document's form.
    #[arg(long, value_enum, default_value = "spdx")]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// SPDX 2.3, JSON.
    Spdx,
    /// CycloneDX 1.6, JSON.
    Cyclonedx,
}

pub(crate) fn sbom(args: &SbomArgs, context: &AppContext) -> Result<u8> {
    let PackageListSource::Lock { name, lock, image } =
        PackageListSource::from_argument(&args.subject, context)?
    else {
        return Err(CliError::IsList {
            path: args.subject.clone().into(),
        }
        .into());
    };
    // Licences are known of what is unpacked here.
    let store = Store::open(&SconceDirs::find(context)?.store)?;
    let environment = sconce_image::load_environment(&lock, &store).ok();
    let facts = environment.map_or_else(BTreeMap::new, |found| {
        embedded_documents::read_wheel_metadata(&lock, &found)
    });
    let subject = sbom::SbomSubject {
        name: &name,
        manifest: image.map(|image| image.digest),
        lock: &lock,
        facts: &facts,
        created_s: 0,
    };
    let document = match args.format {
        Format::Spdx => sbom::spdx(&subject),
        Format::Cyclonedx => sbom::cyclonedx(&subject),
    };
    output::write_data(&String::from_utf8_lossy(&document))?;
    Ok(exit::OK)
}
