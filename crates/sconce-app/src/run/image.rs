//! `sconce run IMAGE`: an image that Sconce or anyone else built, held and recorded as a spec's
//! environment is.

use std::io;

use sconce_base::output::OutputDestination;
use sconce_compat::explain::LogEnvironment;
use sconce_host::{HostProfile, Roots};
use sconce_image::execution::{self, Accounts, ImageExecution};
use sconce_image::local_image::{LocalError, LocalImage};
use sconce_image::open;
use sconce_image::unpack::{self, OverlayLookup, UnpackLimits};
use sconce_oci::Platform;
use sconce_registry::Reference;
use sconce_schema::request::{ContainerUser, NetworkMode};
use sconce_schema::{EnvironmentLayers, Progress};
use sconce_store::Store;

use super::contained_run::{CommandInvocation, ContainedRun};
use super::gpu_assignment;
use super::nvml::NvmlLoad;
use super::request::current_folder;
use super::run_source::ImageLocation;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::executor::find_executor;
use crate::failure::{AppError, Result};
use crate::item_guards::with_item_guards;
use crate::kernel_cache::{self, KernelCacheOwner};
use crate::probe::Probe;
use crate::protected_dirs;
use crate::ranks::RankWorld;
use crate::registries::fetch_image;
use crate::reporter::AppEvent;
use crate::run_id::new_id;
use crate::run_options::{ResolvedRunOptions, RunOverrides};
use crate::sources::LockUse;
use crate::virtual_gpu::VirtualGpus;

/// What is to be run in the image.
#[derive(Clone, Copy)]
pub enum ImageCommand<'a> {
    /// This, as arguments of the image's entrypoint; where it is empty, the image's own command.
    Command(&'a [String]),
    /// A shell, without the entrypoint.
    Shell,
}

/// Shells, best first.
const SHELLS: [&str; 3] = ["/bin/bash", "/usr/bin/bash", "/bin/sh"];

/// Runs `asked` in an image, and returns the exit code.
pub fn run_image(
    which: &ImageLocation,
    overrides: &RunOverrides,
    asked: ImageCommand<'_>,
    json: Option<OutputDestination>,
    context: &AppContext,
) -> Result<u8> {
    refuse_sources(overrides)?;
    let here = current_folder()?;
    let mut options = ResolvedRunOptions::of_flags(overrides, &here, &context.env)?;
    let host = HostProfile::read(&Roots::default());
    gpu_assignment::validate_gpu_request(&host, &options.gpus)?;
    let executor = find_executor(options.runtime, &context.env)?;
    let nvml = NvmlLoad::start_if_needed(&host, &options.gpus);
    let places = SconceDirs::find(context)?;
    protected_dirs::validate_mounts(&options.mounts, None, &places)?;
    let (cards, scratch) = (&overrides.virtual_gpus, &places.scratch);
    let words = match asked {
        ImageCommand::Command(words) => words,
        ImageCommand::Shell => &[],
    };
    let world = RankWorld::for_ranks(overrides.ranks, cards.len(), words)?;
    let virtual_gpus = VirtualGpus::from_names(cards, world, scratch, context)?;
    let probe = Probe::of_flags(options.probe, overrides.plans.as_ref(), world, &places)?;
    let store = Store::open(&places.store)?;
    let progress = context.start_progress();

    let (name, image) = find(which, &store, context, &*progress)?;
    let config = image.parse_config()?;
    let limits = UnpackLimits::default();
    let unpack = || {
        Ok(unpack::ensure_trees(
            &image, &name, &store, limits, &*progress,
        )?)
    };
    let (mut layers, mut stays) = with_item_guards(unpack, |layers| layers)?;
    let lookup = OverlayLookup::new(&layers);
    let accounts = Accounts::read(&lookup)?;
    let execution =
        ImageExecution::from_image_config(&config, &accounts, options.user == ContainerUser::Root);
    options.command = command(&execution, &lookup, asked)?;
    options.workdir = execution.resolve_workdir(overrides.workdir.as_deref());
    let home = execution.env["HOME"].clone();
    if options.user == ContainerUser::Plain {
        let (layer, stay) = with_item_guards(
            || Ok(accounts.build_user_layer(&home, &store)?),
            |layer| layer.as_slice(),
        )?;
        layers.extend(layer);
        stays.extend(stay);
    }
    let short = name.rsplit('/').next().unwrap_or(&name);
    let short = short.split(':').next().unwrap_or(short).to_owned();
    let executor = executor.with_image(&short, &store, &*progress, || Ok(image.clone()))?;
    progress.finish();
    report_unmet_wishes(&execution, &options, context);

    let versions = execution::versions_from_labels(&config);
    let owner = || KernelCacheOwner {
        environment: image.digest.to_string(),
        folders: options
            .mounts
            .iter()
            .map(|mount| mount.source.as_path())
            .collect(),
        user: options.user,
        virtual_gpus: virtual_gpus.is_some(),
    };
    let compiles = versions.as_ref().is_some_and(kernel_cache::are_compiled);
    let kernels = match compiles && executor.maps_owners() {
        true => places.kernels.open_or_say(&owner(), context),
        false => None,
    };
    let contained = ContainedRun {
        id: new_id(&short, &places.runs),
        name,
        folder: here,
        image: EnvironmentLayers {
            layers,
            env: execution.env,
        },
        stays,
        home,
        options,
        versions,
        log_environment: LogEnvironment::default(),
        project: None,
        host,
        nvml,
        virtual_gpus,
        probe,
        kernels,
        beside: None,
        executor,
        site: None,
        node: None,
    };
    let called = CommandInvocation {
        places: &places,
        overrides,
        json,
        context,
    };
    let kept = store.clone();
    let idle_work = move || {
        // What was unpacked shall be there after a power loss too; nobody waits for it.
        std::thread::spawn(move || kept.sync());
    };
    contained.run(called, Box::new(idle_work))
}

/// The image, and what to call it.
fn find(
    which: &ImageLocation,
    store: &Store,
    context: &AppContext,
    progress: &dyn Progress,
) -> Result<(String, LocalImage)> {
    let platform = host_platform();
    match which {
        ImageLocation::Named(name) => {
            let image = match (LocalImage::find(store, name), Reference::parse(name, None)) {
                (Err(LocalError::Unknown { .. } | LocalError::Name { .. }), Ok(reference)) => {
                    fetch_image(&reference, &platform, store, context, progress)?
                }
                (found, _) => found?,
            };
            let config = image.parse_config()?;
            let there = Platform {
                architecture: config.architecture,
                os: config.os,
                variant: None,
            };
            if there != platform {
                return Err(open::OpenError::for_others(&platform, &[there]).into());
            }
            Ok((name.clone(), image))
        }
        ImageLocation::There(source) => {
            let image = open::load_image(source, &platform, store, progress)?;
            let file = source.path.file_name().unwrap_or_default();
            let name = match &source.name {
                Some(name) => name.clone(),
                None => file.to_string_lossy().into_owned(),
            };
            Ok((name, image))
        }
    }
}

/// This machine, in Go's words.
pub fn host_platform() -> Platform {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Platform {
        architecture: architecture.to_owned(),
        os: std::env::consts::OS.to_owned(),
        variant: None,
    }
}

fn command(
    execution: &ImageExecution,
    image: &OverlayLookup<'_>,
    asked: ImageCommand<'_>,
) -> Result<Vec<String>> {
    let command = match asked {
        ImageCommand::Command(words) => execution.resolve_command(words),
        ImageCommand::Shell => {
            let there = |shell: &&str| -> io::Result<bool> {
                Ok(image
                    .resolve_path(shell.as_bytes())?
                    .is_some_and(|found| found.meta.is_file()))
            };
            let shell = SHELLS.iter().find(|shell| there(shell).unwrap_or(false));
            let shell = shell.ok_or(AppError::NoShell)?;
            vec![(*shell).to_owned()]
        }
    };
    match command.first() {
        Some(_) => Ok(command),
        None => Err(AppError::NoImageCommand.into()),
    }
}

/// Tells what of the image's configuration is not followed.
fn report_unmet_wishes(
    execution: &ImageExecution,
    options: &ResolvedRunOptions,
    context: &AppContext,
) {
    for note in &execution.notes {
        context.report(&AppEvent::ImageNote(note));
    }
    // On the machine's own network they can be reached as they are.
    if options.network == NetworkMode::None && !execution.ports.is_empty() {
        let ports = execution.ports.iter().take(8);
        let ports: Vec<String> = ports
            .map(|port| port.chars().take(20).flat_map(char::escape_debug).collect())
            .collect();
        context.report(&AppEvent::UnpublishedPorts(&ports));
    }
}

/// An image is complete: no index and no mirror has a say.
fn refuse_sources(overrides: &RunOverrides) -> Result<()> {
    let sources = &overrides.sources;
    let given = [
        ("--index", sources.index.is_some()),
        ("--extra-index", !sources.extra_index.is_empty()),
        ("--mirror", sources.mirror.is_some()),
        ("--locked", sources.lock_use == LockUse::Locked),
        ("--frozen", sources.lock_use == LockUse::Frozen),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(AppError::ImageSource { flag }.into()),
        None => Ok(()),
    }
}
