//! Registries as this user has set them up: logins, mirrors, names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sconce_base::Env;
use sconce_image::local_image::{self, LocalImage};
use sconce_image::publish;
use sconce_oci::Platform;
use sconce_registry::{
    HelperPrograms, LoginSources, Mirror, Reference, Registry, RegistrySettings,
};
use sconce_schema::Progress;
use sconce_store::Store;

use crate::context::AppContext;
use crate::dirs::{self, SconceDirs};
use crate::failure::{AppError, Result};
use crate::network;

/// How long a credential helper may take; one may ask its user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);
/// The tag that moves.
const LATEST_TAG: &str = "latest";

/// A client with this user's settings.
///
/// Logins come from `REGISTRY_AUTH_FILE`, podman's file in `XDG_RUNTIME_DIR` and Docker's
/// `config.json` in `DOCKER_CONFIG` or `~/.docker`; the first that knows a registry counts.
pub fn build_registry_client(places: &SconceDirs, context: &AppContext) -> Result<Registry> {
    let config = &places.config;
    let mut logins = LoginSources::empty();
    for path in login_files(&context.env) {
        if let Ok(text) = crate::input::read_text(&path) {
            logins = logins
                .with_file(&text)
                .map_err(|source| AppError::Logins { path, source })?;
        }
    }
    let helpers = HelperPrograms {
        folders: context.env.search_path(),
        limit: HELPER_TIMEOUT,
    };
    let mirror = |mirror: &dirs::RegistryMirror| Mirror {
        of: mirror.of.clone(),
        base: mirror.base.clone(),
    };
    let settings = RegistrySettings {
        fetch: network::fetch_config(context.offline, &[], &context.env),
        logins: logins.with_helpers(Arc::new(helpers)),
        insecure: config.insecure_registries.clone(),
        mirrors: config.registry_mirrors.iter().map(mirror).collect(),
        ..RegistrySettings::default()
    };
    Ok(Registry::new(settings)?)
}

fn login_files(env: &Env) -> Vec<PathBuf> {
    let file = |variable: &str, rest: &str| Some(env.path_var(variable)?.join(rest));
    let home = || Some(env.home_dir()?.join(".docker/config.json"));
    [
        env.path_var("REGISTRY_AUTH_FILE"),
        file("XDG_RUNTIME_DIR", "containers/auth.json"),
        file("DOCKER_CONFIG", "config.json").or_else(home),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A reference as a user writes it.
pub fn parse_reference(text: &str, places: &SconceDirs) -> Result<Reference> {
    Ok(Reference::parse(text, places.config.registry.as_deref())?)
}

/// Where an image goes: with `tag` where the text has none. `latest` says nothing about what is
/// inside, so it has to be asked for twice: by the tag and by `--latest`.
pub fn parse_destination(
    text: &str,
    tag: &str,
    latest: bool,
    places: &SconceDirs,
) -> Result<Reference> {
    let named = parse_reference(text, places)?;
    if named.tag() == Some(LATEST_TAG) && !latest {
        return Err(AppError::Latest.into());
    }
    match named.tag() {
        Some(_) => Ok(named),
        None => parse_reference(&format!("{}/{}:{tag}", named.host(), named.path()), places),
    }
}

/// Whether local names may be given.
pub fn check_local(names: &[String], latest: bool) -> Result<()> {
    names
        .iter()
        .try_for_each(|name| local_image::check_name(name))?;
    let is_latest = |name: &String| {
        name.rsplit_once(':')
            .is_some_and(|(_, tag)| tag == LATEST_TAG)
    };
    match names.iter().any(is_latest) && !latest {
        true => Err(AppError::Latest.into()),
        false => Ok(()),
    }
}

/// Brings an image into the store, where it is called by its whole reference.
pub fn fetch_image(
    from: &Reference,
    platform: &Platform,
    store: &Store,
    context: &AppContext,
    progress: &dyn Progress,
) -> Result<LocalImage> {
    let registry = build_registry_client(&SconceDirs::find(context)?, context)?;
    let image = publish::pull(&registry, from, platform, store, progress)?;
    image.assign_name(store, &full_name(from))?;
    Ok(image)
}

/// A reference as the name of a local image.
pub fn full_name(reference: &Reference) -> String {
    let tag = reference.tag().unwrap_or("latest");
    format!("{}/{}:{tag}", reference.host(), reference.path())
}
