//! `sconce cdi write`.

use std::path::{Path, PathBuf};

use clap::Args;
use sconce_base::Env;
use sconce_host::cdi::{self, CdiDevice};
use sconce_host::facts::nodes;
use sconce_host::{NvmlMonitor, Roots};
use sconce_schema::{Hint, exit};
use serde_json::Value;

use crate::output;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs;
use sconce_app::failure::{AppError, Failure, Result};
use sconce_app::lease_client;
use sconce_app::outputs::{
    self, OutputDestination, OutputDirectory, OutputError, OutputForm, VerbFiles,
};

/// Where engines of the whole machine look.
const FOLDER: &str = "/etc/cdi";
const NAME: &str = "sconce.json";

#[derive(Debug, Args)]
pub(crate) struct CdiWriteArgs {
    /// The file, ending in .json or .yaml; `-` is standard output [default: /etc/cdi/sconce.json].
    #[arg(long, short, value_name = "FILE", conflicts_with = "user")]
    output: Option<PathBuf>,
    /// For engines that you start yourself: ~/.config/cdi/sconce.json.
    #[arg(long)]
    user: bool,
    /// What the devices are called, VENDOR/CLASS.
    #[arg(long, value_name = "KIND", default_value = cdi::NVIDIA, value_parser = kind)]
    kind: String,
}

fn kind(text: &str) -> Result<String, String> {
    match cdi::is_kind(text) {
        true => Ok(text.to_owned()),
        false => Err("two names such as nvidia.com/gpu".to_owned()),
    }
}

/// Why no file is written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// Two files of a folder with the same device: engines would find it in neither.
    #[error("{other} has the device {device} already, in the same folder")]
    Taken { device: String, other: String },
    #[error("the engines of root read {FOLDER}")]
    UserIsRoot,
}

impl Hint for WriteError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Taken { other, .. } => format!(
                "engines find a device that is in both in neither: write over it (--output {other}), \
                 remove it, or give yours another name (--kind sconce.local/gpu)"
            ),
            Self::UserIsRoot => "leave --user out".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Taken { .. } => exit::BAD_INPUT,
            Self::UserIsRoot => exit::USAGE,
        }
    }
}

pub(super) fn write_cdi_file(args: &CdiWriteArgs, context: &AppContext) -> Result<u8> {
    let given = args.output.as_deref();
    let given = given.map(look).transpose()?;
    VerbFiles {
        outputs: &[given.as_ref()],
        ..VerbFiles::default()
    }
    .claim()?;
    let is_stream = given.as_ref().is_some_and(|output| !output.is_file());
    let path = (!is_stream)
        .then(|| place(args, &context.env))
        .transpose()?;
    let (machine, nvml) = lease_client::read_host_profile();
    let instances = nvml
        .as_ref()
        .map(NvmlMonitor::mig_instances)
        .unwrap_or_default();
    let file = cdi::build_spec(&machine, &instances, &args.kind, &Roots::default())?;
    let (path, output) = match (path, given) {
        (None, Some(stream)) => {
            stream.write(format!("{file:#}\n").as_bytes())?;
            return Ok(exit::OK);
        }
        (path, given) => (path.unwrap_or_default(), given),
    };
    let text = cdi::text_for(&path, &file)?;
    let others = others(&path, &context.env);
    let names = names(&file);
    if let Some(taken) = taken(&path, &names, &others) {
        return Err(taken.into());
    }
    let (output, folder) = match output {
        Some(output) => (output, None),
        None => {
            let folder = path.parent().unwrap_or(&path);
            let folder = OutputDirectory::open_or_create(folder).map_err(refused)?;
            (look(&path)?, Some(folder))
        }
    };
    // Engines of anyone read it.
    let written = output.for_everybody().write(text.as_bytes());
    written.map_err(refused)?;
    if let Some(folder) = folder {
        folder.keep();
    }
    if !context.quiet {
        output::print_message(&said(&path, &names, &others));
    }
    Ok(exit::OK)
}

fn look(path: &Path) -> Result<OutputDestination> {
    outputs::find_with_output_error(path, OutputForm::Text).map_err(refused)
}

/// What the system refuses has a hint of its own here.
fn refused(error: OutputError) -> Failure {
    match error {
        OutputError::Io { path, source } => sconce_host::CdiError::Write { path, source }.into(),
        error => error.into(),
    }
}

/// The file to write.
fn place(args: &CdiWriteArgs, env: &Env) -> Result<PathBuf> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None if !args.user => Path::new(FOLDER).join(NAME),
        None if rustix::process::geteuid().is_root() => return Err(WriteError::UserIsRoot.into()),
        None => dirs::own_cdi(env)
            .ok_or(AppError::NoHome {
                variable: "XDG_CONFIG_HOME",
            })?
            .join(NAME),
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// The qualified names of a file's devices.
fn names(file: &Value) -> Vec<String> {
    let kind = file["kind"].as_str().unwrap_or_default();
    let devices = file["devices"].as_array().into_iter().flatten();
    let names = devices.filter_map(|device| device["name"].as_str());
    names.map(|name| format!("{kind}={name}")).collect()
}

/// What all files but the one at `path` offer.
fn others(path: &Path, env: &Env) -> Vec<CdiDevice> {
    let own = path.canonicalize().ok();
    let mut files = super::files(env);
    files.retain(|file| own.is_none() || Path::new(&file.path).canonicalize().ok() != own);
    cdi::list_devices(&files)
}

/// A device that another file of the same folder has too.
fn taken(path: &Path, names: &[String], others: &[CdiDevice]) -> Option<WriteError> {
    let folder = path.parent()?.canonicalize().ok()?;
    let beside = |other: &&CdiDevice| {
        let of = Path::new(&other.path).parent();
        of.and_then(|of| of.canonicalize().ok()).as_ref() == Some(&folder)
    };
    let found = others
        .iter()
        .filter(beside)
        .find(|other| names.contains(&other.name))?;
    Some(WriteError::Taken {
        device: found.name.clone(),
        other: found.path.clone(),
    })
}

/// What was written, and what of the machine has to do with it.
fn said(path: &Path, names: &[String], others: &[CdiDevice]) -> String {
    let style = OutputStyle::for_stderr();
    let mut lines = vec![format!("written: {}", output::format_path(path))];
    lines.push(format!("  devices: {}", names.join(" ")));
    lines.push("  hooks: none are needed".to_owned());
    let same = others.iter().find(|other| names.contains(&other.name));
    if let Some(other) = same {
        let note = format!(
            "{} has {} too: of two folders engines take /var/run/cdi before /etc/cdi",
            other.path, other.name
        );
        lines.push(format!("  {}", style.warn(&note)));
    }
    let nodes = nodes::read(&Roots::default(), false).unwrap_or_default();
    let without: Vec<_> = nodes
        .iter()
        .filter(|node| node.char_link == Some(false))
        .collect();
    lines.push(match without.len() {
        0 if nodes.iter().any(|node| node.char_link.is_some()) => {
            "  links in /dev/char: there".to_owned()
        }
        0 => "  links in /dev/char: not needed, as systemd does not run here".to_owned(),
        missing => style.warn(&format!(
            "  links in /dev/char: {missing} missing; containers whose cgroups systemd keeps lose the \
             cards at `systemctl daemon-reload`. As root, now and at every start of the machine:\n    {}",
            sconce_compat::rules::char_links(without)
        )),
    });
    lines.join("\n")
}
