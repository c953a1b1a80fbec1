//! `sconce build`.

mod plan;
mod slim_report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_base::Env;
use sconce_compat::tables;
use sconce_image::build::{ImageOptions, find_stored_layers};
use sconce_image::layer::{Compression, LayerBlob};
use sconce_image::layer_plan::{DEFAULT_LAYERS, LayerPlan, LayerPlanOptions};
use sconce_image::local_image::{self, LocalImage};
use sconce_image::slim::SlimRules;
use sconce_image::squashfs::SquashfsSummary;
use sconce_image::{devel, docker_archive, embedded_documents, layout};
use sconce_oci::Digest;
use sconce_schema::spec::{IMAGE, Removal, Variant};
use sconce_schema::tag::image_tag;
use sconce_schema::{Bytes, HostFacts, Lock, exit};

use self::plan::print_plan;
use super::push::{self, PushContext};
use crate::args::{LockFlags, SourceFlags};
use crate::error::CliError;
use crate::output;
use crate::signing_keys::check_signing_key;
use crate::style::OutputStyle;
use sconce_app::background::Background;
use sconce_app::build::projects::ProjectLayers;
use sconce_app::build::stages::StageBuilder;
use sconce_app::build::steps::LayerStack;
use sconce_app::command_context::CommandContext;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::inspect::{device_code, precheck, resolve_capabilities};
use sconce_app::item_guards::with_item_guards;
use sconce_app::outputs::{self, OutputDestination, OutputForm, VerbFiles, inputs};
use sconce_app::project::Project;
use sconce_app::protected_dirs::validate_packed_files;
use sconce_app::registries::{check_local, parse_destination};

/// Layers above the packages.
const DOCUMENTS: &str = "lock and SBOM";
const COMPILER_NAMES: &str = "compilers' names";

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// A sconce.toml or its folder.
    #[arg(default_value = ".")]
    spec: PathBuf,
    /// Print the layers that the image has, and which are there already; build nothing.
    #[arg(long)]
    plan: bool,
    /// Print the files that `variant = "slim"` leaves out, and by which removal; build nothing.
    #[arg(long, conflicts_with = "plan")]
    removed: bool,
    /// Name of the image, NAME:TAG [default: the spec's name, and a tag that says what is inside].
    #[arg(long, short, value_name = "NAME:TAG")]
    tag: Vec<String>,
    /// Also write an OCI image layout: a folder, or one file where the name ends with `.tar`.
    #[arg(long, value_name = "PATH")]
    oci: Option<PathBuf>,
    /// Also write the archive that `docker load` takes; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    docker_archive: Option<PathBuf>,
    /// Also push it: HOST/PATH[:TAG] [default tag: one that says what is inside].
    #[arg(long, value_name = "REF")]
    push: Option<String>,
    /// Allow the tag `latest`.
    #[arg(long)]
    latest: bool,
    /// Sign what is pushed with this private key.
    #[arg(long, value_name = "KEY", requires = "push")]
    sign: Option<PathBuf>,
    /// Write one squashfs file for apptainer, enroot and pyxis, instead of an image.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "tag", "oci", "docker_archive", "push"])]
    squashfs: Option<PathBuf>,
    /// How layers and squashfs files are compressed: zstd, gzip or none.
    #[arg(long, value_name = "HOW", default_value = "zstd")]
    compression: Compression,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    lock: LockFlags,
}

pub(crate) fn build(args: &BuildArgs, context: &AppContext) -> Result<u8> {
    // Before anything is built, whether it can be named and pushed so at all.
    check_local(&args.tag, args.latest)?;
    let places = SconceDirs::find(context)?;
    let to = |tag: &str| {
        let to = args.push.as_ref();
        to.map(|to| parse_destination(to, tag, args.latest, &places))
            .transpose()
    };
    to("0")?;
    let outputs = Outputs::find(args)?;
    args.sign.as_deref().map_or(Ok(()), check_signing_key)?;
    let project = Project::open(&args.spec)?;
    validate_packed_files(&project.spec.build.files, &project.folder, &places)?;
    let opened = CommandContext::open(project, context)?;
    let workshop =
        opened.environment_builder(args.sources.to_sources(args.lock.to_lock_use()), context);
    let whole = workshop.ensure_lock()?;
    let spec = &opened.project.spec;
    let variant = spec.build.variant.unwrap_or_default();
    let cards = resolve_capabilities(&spec.build.cards)?;
    let tag = image_tag(&whole, variant, &spec.build.keep, &cards);
    let to = to(&tag)?;
    let lock = match variant {
        Variant::Devel => whole.for_stage(IMAGE),
        Variant::Slim if !spec.build.keep.contains(&Removal::Compiler) => whole.without_compiler(),
        Variant::Slim | Variant::Runtime => whole.clone(),
    };
    if variant == Variant::Slim && lock != whole && !context.quiet {
        output::print_message(&without_compiler(&whole));
    }
    let options = LayerPlanOptions {
        most_layers: spec.build.layers.unwrap_or(DEFAULT_LAYERS),
        bytecode: spec.build.bytecode.unwrap_or(true),
    };
    let mut plan = LayerPlan::for_lock(&lock, options);
    if spec.build.variant == Some(Variant::Slim) {
        plan.slim = Some(SlimRules::new(&spec.build.keep, &lock, device_code(&cards)));
    }
    if !context.quiet {
        let cards = spec
            .build
            .cards
            .iter()
            .filter_map(|card| tables::host_from_gpu_name(card, None).ok());
        let hosts: Vec<HostFacts> = cards.chain([HostFacts::default()]).collect();
        precheck::report_failures(&lock, &hosts, context);
    }
    if args.squashfs.is_some() && (!spec.build.run.is_empty() || plan.slim.is_some()) {
        return Err(CliError::SquashfsOf.into());
    }
    // To be looked at, nothing need be here.
    if args.plan && !sconce_image::find_missing_packages(&lock, &opened.store).is_empty() {
        opened.progress.finish();
        plan.push(DOCUMENTS, None);
        let mut stack = LayerStack::for_unfetched_packages(&opened, None);
        if variant == Variant::Devel {
            stack.push(COMPILER_NAMES, None, &mut plan);
        }
        stack.push_projects(&ProjectLayers::unknown(&opened.project.editable), &mut plan);
        stack.push_own_layers(&spec.build, &BTreeMap::new(), &mut plan)?;
        let none = vec![None; plan.layers.len()];
        return print_plan(
            &plan,
            (&none, false),
            &LayerSharing::read(&opened)?,
            args.json,
        );
    }
    let only_look = args.plan || args.removed;
    let stages = StageBuilder {
        opened: &opened,
        workshop: &workshop,
        lock: &whole,
        run: !only_look,
        bytecode: options.bytecode,
    };
    // Its trees stay in the store until the image is written.
    let bring = || match only_look {
        true if args.removed => workshop.assemble_environment(&whole, &mut Background::default()),
        true => workshop.assemble_environment(&lock, &mut Background::default()),
        false => stages.assemble_and_compile(&lock),
    };
    let (mut environment, stays) = with_item_guards(bring, |image| &image.layers)?;
    if args.removed {
        opened.progress.finish();
        return slim_report::print_removed_files(
            &plan,
            (&whole, &lock),
            &environment,
            &opened.store,
            args.json,
        );
    }
    let facts = embedded_documents::read_wheel_metadata(&lock, &environment);
    let about = embedded_documents::build_document_tree(
        &opened.project.name,
        &lock,
        &facts,
        &opened.store,
    )?;
    plan.push(DOCUMENTS, Some(about));
    let mut built = BTreeMap::new();
    stages.build_needed_stages(&spec.build.copy, &mut built)?;
    let mut stack = LayerStack::new(&opened, (environment.clone(), stays), None, !only_look);
    if spec.build.variant == Some(Variant::Devel) {
        let tree = devel::add_devel_layer(&mut environment, &lock, &opened.store)?;
        stack.environment.env = environment.env.clone();
        stack.push(COMPILER_NAMES, Some(tree), &mut plan);
    }
    let projects = ProjectLayers::ensure(&workshop, &whole, !only_look, options.bytecode)?;
    stack.push_projects(&projects, &mut plan);
    stack.push_own_layers(&spec.build, &built, &mut plan)?;
    let before = find_stored_layers(&plan, &lock, &environment, args.compression, &opened.store);
    let shared = LayerSharing::read(&opened)?;
    if args.plan {
        opened.progress.finish();
        return print_plan(&plan, (&before, true), &shared, args.json);
    }
    let options = ImageOptions {
        name: opened.project.name.clone(),
        compression: args.compression,
        env: spec.run.env.clone(),
        command: spec.run.command.clone(),
        workdir: spec.run.workdir.clone(),
        variant: match variant {
            Variant::Runtime => None,
            Variant::Slim => Some("slim"),
            Variant::Devel => Some("devel"),
        },
        cards,
        created: created(&context.env)?,
    };
    if let Some(output) = outputs.squashfs {
        let path = output.path().to_owned();
        let (store, progress) = (&opened.store, &*opened.progress);
        let written = sconce_image::build::write_squashfs(
            &plan,
            &lock,
            &environment,
            &options,
            output,
            store,
            progress,
        )?;
        opened.progress.finish();
        return say_squashfs(&written, &path, args.json, context);
    }
    let image = sconce_image::build::build_image(
        &plan,
        &lock,
        &environment,
        &options,
        &opened.store,
        &*opened.progress,
    )?;
    let names = match args.tag.is_empty() {
        true => vec![format!("{}:{tag}", opened.project.name)],
        false => args.tag.clone(),
    };
    for name in &names {
        image.assign_name(&opened.store, name)?;
    }
    outputs.write(&image, &names, &opened)?;
    let pushed = match &to {
        Some(to) => {
            let push = PushContext {
                to,
                key: args.sign.as_deref(),
                places: &opened.places,
                store: &opened.store,
                context,
            };
            Some(push.push_image(&image, &*opened.progress)?)
        }
        None => None,
    };
    opened.progress.finish();
    let made = before.iter().filter(|layer| layer.is_none()).count();
    if args.json {
        let mut said = as_json(&image, &names, made);
        if let (Some(to), Some(pushed)) = (&to, &pushed) {
            said["pushed"] = push::as_json(to, pushed);
        }
        output::write_data(&said.to_string())?;
    } else if !context.quiet {
        let style = OutputStyle::for_stderr();
        output::print_message(&summary(&image, &names, made, &style));
        if let (Some(to), Some(pushed)) = (&to, &pushed) {
            output::print_message(&push::render_summary(to, pushed, &style));
        }
    }
    Ok(exit::OK)
}

/// What is said of a slim image whose environment has a compiler.
fn without_compiler(whole: &Lock) -> String {
    format!(
        "slim: the compiler is left out ({} Debian packages): torch.compile, Triton and C++ extensions \
         cannot compile in this image; `[build] keep = [\"compiler\"]` keeps it",
        whole.compiler_debs().len()
    )
}

/// The time that the image says it was made at (reproducible-builds.org, `SOURCE_DATE_EPOCH`).
fn created(env: &Env) -> Result<i64> {
    let name = "SOURCE_DATE_EPOCH";
    match env.var(name) {
        None => Ok(0),
        Some(text) => text.parse().map_err(|_| {
            CliError::Variable {
                name,
                value: text.to_owned(),
                fits: "seconds since 1970",
            }
            .into()
        }),
    }
}

/// What was asked for beside the store.
#[derive(Debug, Default)]
struct Outputs<'a> {
    /// A folder.
    layout: Option<&'a Path>,
    layout_archive: Option<OutputDestination>,
    docker_archive: Option<OutputDestination>,
    squashfs: Option<OutputDestination>,
}

impl<'a> Outputs<'a> {
    /// Looks at them all, before there is anything to write.
    fn find(args: &'a BuildArgs) -> Result<Self> {
        if args.plan || args.removed {
            return Ok(Self::default());
        }
        let oci = args.oci.as_deref();
        let is_tar = |path: &&Path| path.extension().is_some_and(|end| end == "tar");
        let found = Self {
            layout: oci.filter(|path| !is_tar(path)),
            layout_archive: outputs::find_some(oci.filter(is_tar), OutputForm::Binary)?,
            docker_archive: outputs::find_some(args.docker_archive.as_deref(), OutputForm::Binary)?,
            squashfs: outputs::find_some(args.squashfs.as_deref(), OutputForm::Seekable)?,
        };
        let folder = found.layout.map(layout::check_folder).transpose()?;
        let files = [
            &found.layout_archive,
            &found.docker_archive,
            &found.squashfs,
        ];
        let mut inputs = inputs::of_spec(&args.spec);
        inputs.extend(args.sign.clone());
        VerbFiles {
            outputs: &files.map(Option::as_ref),
            folder: folder.as_ref(),
            inputs: &inputs,
            prints_json: args.json,
        }
        .claim()?;
        Ok(found)
    }

    fn write(self, image: &LocalImage, names: &[String], opened: &CommandContext) -> Result<()> {
        let (store, progress) = (&opened.store, &*opened.progress);
        if let Some(folder) = self.layout {
            layout::write_folder(image, names.first().map(String::as_str), store, folder)?;
        }
        if let Some(output) = self.layout_archive {
            layout::write_tar(image, names, store, output, progress)?;
        }
        if let Some(output) = self.docker_archive {
            docker_archive::write_archive(image, names, store, output, progress)?;
        }
        Ok(())
    }
}

/// Which local images have a layer.
struct LayerSharing(BTreeMap<Digest, Vec<String>>);

impl LayerSharing {
    fn read(opened: &CommandContext) -> Result<Self> {
        let mut shared: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for (name, digest) in local_image::list_names(&opened.store)? {
            // A name may outlive its image.
            if let Ok(image) = LocalImage::load(&opened.store, digest) {
                for layer in &image.manifest.layers {
                    shared.entry(layer.digest).or_default().push(name.clone());
                }
            }
        }
        Ok(Self(shared))
    }

    fn of(&self, layer: Option<&LayerBlob>) -> &[String] {
        layer
            .and_then(|layer| self.0.get(&layer.digest))
            .map_or(&[], Vec::as_slice)
    }
}

fn say_squashfs(
    written: &SquashfsSummary,
    file: &Path,
    json: bool,
    context: &AppContext,
) -> Result<u8> {
    if json {
        let value = serde_json::json!({
            "squashfs": file,
            "size_bytes": written.size_bytes,
            "content_bytes": written.content_bytes,
            "inodes": written.inodes,
        });
        output::write_data(&value.to_string())?;
    } else if !context.quiet {
        output::print_message(&format!(
            "{}\n{}; {} in {} files, folders and links",
            output::format_path(file),
            Bytes(written.size_bytes),
            Bytes(written.content_bytes),
            written.inodes
        ));
    }
    Ok(exit::OK)
}

fn as_json(image: &LocalImage, names: &[String], made: usize) -> serde_json::Value {
    serde_json::json!({
        "digest": image.digest,
        "names": names,
        "layers": image.manifest.layers.len(),
        "layers_made": made,
        "size_bytes": image.size_bytes(),
    })
}

fn summary(image: &LocalImage, names: &[String], made: usize, style: &OutputStyle) -> String {
    format!(
        "{}\n{} {}\n{} layers, {}; {made} of them made now",
        names.join("\n"),
        style.dim("digest"),
        image.digest,
        image.manifest.layers.len(),
        Bytes(image.size_bytes()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_oci::{Descriptor, ImageManifest, media};

    #[test]
    fn json_is_as_before() {
        let config = Descriptor::for_bytes(media::CONFIG, b"{}");
        let layer = Descriptor::for_bytes(media::LAYER, b"layer");
        let manifest_bytes = sconce_oci::to_json(&ImageManifest::new(config, vec![layer]));
        let image = LocalImage {
            digest: sconce_oci::Digest::hash_bytes(&manifest_bytes),
            manifest: ImageManifest::from_json(&manifest_bytes).unwrap(),
            manifest_bytes,
            config_bytes: b"{}".to_vec(),
            contents: Vec::new(),
        };
        let names = ["team/a:1".to_owned()];
        crate::golden::goldens().assert_values("build.json", &[&as_json(&image, &names, 1)]);
    }
}
