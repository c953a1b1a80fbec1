//! `sconce lock`.

use sconce_host::{HostProfile, Roots, facts};
use sconce_schema::tag::image_tag;
use sconce_schema::{Bytes, Lock, exit};

use crate::args::LockArgs;
use crate::output;
use crate::style::OutputStyle;
use sconce_app::command_context::CommandContext;
use sconce_app::context::AppContext;
use sconce_app::failure::Result;
use sconce_app::inspect::{precheck, resolve_capabilities};
use sconce_app::project::Project;
use sconce_app::sources::LockUse;

pub(crate) fn lock(args: &LockArgs, context: &AppContext) -> Result<u8> {
    let mut project = Project::open(&args.spec)?;
    if args.check {
        let present = project.load_lock()?;
        return check(&project, present.as_ref(), args, context);
    }
    let present = project.load_lock_to_replace()?;
    if args.as_of.is_some() {
        project.spec.python.as_of.clone_from(&args.as_of);
    }
    let opened = CommandContext::open(project, context)?;
    let workshop = opened.environment_builder(args.sources.to_sources(LockUse::Update), context);
    let lock = workshop.lock_anew(present, args.upgrade)?;
    opened.progress.finish();
    if args.json {
        output::write_data(&serde_json::to_string_pretty(&lock).unwrap_or_default())?;
    } else if !context.quiet {
        let facts = facts::without_nvml(&HostProfile::read(&Roots::default()));
        precheck::report_failures(&lock, facts.as_slice(), context);
        output::print_message(&summary(&lock, &OutputStyle::for_stderr()));
    }
    Ok(exit::OK)
}

/// Whether the lock is what the spec says.
fn check(
    project: &Project,
    lock: Option<&Lock>,
    args: &LockArgs,
    context: &AppContext,
) -> Result<u8> {
    let good = lock.is_some_and(|lock| lock.inputs == project.inputs);
    if args.json {
        let mut answer = serde_json::json!({ "locked": lock.is_some(), "current": good });
        if let Some(lock) = lock {
            let build = &project.spec.build;
            let cards = resolve_capabilities(&build.cards)?;
            let tag = image_tag(lock, build.variant.unwrap_or_default(), &build.keep, &cards);
            answer["tag"] = tag.into();
        }
        output::write_data(&answer.to_string())?;
    } else if !context.quiet {
        output::print_message(match (lock, good) {
            (_, true) => "the lock is what the spec says",
            (Some(_), false) => "the spec has changed since it was locked: run `sconce lock`",
            (None, false) => "there is no lock yet: run `sconce lock`",
        });
    }
    Ok(if good { exit::OK } else { exit::NO })
}

/// One line of what matters, one of how much it is.
fn summary(lock: &Lock, style: &OutputStyle) -> String {
    let versions = &lock.versions;
    let named = [
        ("torch", versions.torch.clone()),
        ("CUDA", versions.cuda.map(|v| v.to_string())),
        ("cuDNN", versions.cudnn.clone()),
        ("NCCL", versions.nccl.clone()),
        ("Triton", versions.triton.clone()),
        ("Python", Some(versions.python.clone())),
        ("glibc", Some(versions.glibc.clone())),
        (
            "driver at least",
            versions.lowest_driver.map(|v| v.to_string()),
        ),
    ];
    let line: Vec<String> = named
        .into_iter()
        .filter_map(|(name, version)| Some(format!("{} {}", style.dim(name), version?)))
        .collect();
    let wheels: u64 = lock.wheels.iter().filter_map(|wheel| wheel.size).sum();
    let debs: u64 = lock.debs.iter().map(|deb| deb.size).sum();
    let compiler = match lock.compiler_debs() {
        [] => String::new(),
        debs => format!(
            "; compiler: {} more ({})",
            debs.len(),
            Bytes(debs.iter().map(|deb| deb.size).sum())
        ),
    };
    format!(
        "{}\n{} wheel{} ({}), {} Debian packages ({}){compiler}",
        line.join("  "),
        lock.wheels.len(),
        if lock.wheels.len() == 1 { "" } else { "s" },
        Bytes(wheels),
        lock.debs.len(),
        Bytes(debs)
    )
}
