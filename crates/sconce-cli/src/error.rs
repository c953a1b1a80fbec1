//! Failures of the command line itself: of its flags, its terminal and what it prints of other stages' work.

use std::path::PathBuf;

use sconce_schema::{Hint, exit};

/// What a verb fails with that neither a stage nor the application has a word for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("the plan {plan} divides a model among ranks, and there is one")]
    PlanWithoutRanks { plan: String },
    #[error("{}", path.display())]
    Snapshot {
        path: PathBuf,
        source: sconce_memory::snapshot::SnapshotError,
    },
    #[error("{} is no price file", path.display())]
    Prices {
        path: PathBuf,
        source: sconce_report::usage::PriceError,
    },
    #[error("only the machine's owner serves leases")]
    NotRoot,
    #[error("there is no lock at {}", path.display())]
    NoLock { path: PathBuf },
    #[error("{name} is `{value}`, not {fits}")]
    Variable {
        name: &'static str,
        value: String,
        fits: &'static str,
    },
    #[error("a squashfs file holds the packages and files alone: no steps, and no slim variant")]
    SquashfsOf,
    #[error("the key needs its password, and there is no terminal to ask on")]
    NoPassword { variable: &'static str },
    #[error("nothing here knows the packages of {image}")]
    NoPackages { image: String },
    #[error("{} has no facts of a machine", path.display())]
    Facts {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("cannot use {}", path.display())]
    NewerFacts {
        path: PathBuf,
        source: sconce_schema::facts::FactsError,
    },
    #[error("{subject} has no Python packages and no libraries")]
    NothingToCheck {
        subject: String,
        /// A file in it that a spec can be made of.
        source_file: Option<&'static str>,
    },
    #[error("there is no file, folder or local image `{subject}`")]
    NoSubject { subject: String },
    #[error("{} is neither a spec nor a lock", path.display())]
    NotASubject { path: PathBuf },
    #[error("the error itself was given, and a file is asked for")]
    NotALog,
    #[error("this machine has no card to judge torch for")]
    NoCardHere,
    #[error("nothing is known of torch {version}")]
    UnknownTorch {
        version: String,
        oldest: &'static str,
        newest: &'static str,
    },
    #[error("{format} has no tables to choose from")]
    NoTables { format: &'static str },
    #[error("sconce top needs a terminal")]
    NoTerminal,
    #[error("{} is a list of packages already", path.display())]
    IsList { path: PathBuf },
    #[error("metrics without a token are for this machine alone, and {listen} is not")]
    OpenMetrics { listen: std::net::IpAddr },
    #[error("cannot listen on {address}")]
    Listen {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("the first line of {} is no token", path.display())]
    WeakToken { path: PathBuf },
}

impl Hint for CliError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotRoot => "start it as root".to_owned(),
            Self::Snapshot { source, .. } => return source.hint(),
            Self::PlanWithoutRanks { .. } => "say how many: --ranks 64".to_owned(),
            Self::NoTables { .. } => "leave --table out: everything is exported".to_owned(),
            Self::NoTerminal => "`sconce report` prints what a run is doing".to_owned(),
            Self::NoLock { .. } => "`sconce lock` makes one".to_owned(),
            Self::SquashfsOf => {
                "push the image: enroot and apptainer import it from a registry".to_owned()
            }
            Self::NoPassword { variable } => format!("set {variable}"),
            Self::NoPackages { .. } => {
                "an image that Sconce built here is known by its lock".to_owned()
            }
            Self::Facts { .. } => "`sconce doctor --facts FILE` writes them".to_owned(),
            Self::NewerFacts { .. } => "update Sconce".to_owned(),
            Self::NothingToCheck { source_file, .. } => match source_file {
                Some(file) => format!(
                    "`sconce init {file}` makes a spec of what is there, `sconce lock` a lock of that"
                ),
                None => "name a spec, a lock, an image, or the folder of an environment".to_owned(),
            },
            Self::NoSubject { .. } => {
                "`sconce images` lists local images, `sconce pull` fetches one".to_owned()
            }
            Self::NotASubject { .. } => {
                let formats = sconce_import::list_formats();
                format!("`sconce init FILE` makes a spec of a {formats}")
            }
            Self::NotALog => {
                "give it on standard input: `sconce explain`, then paste it and press Ctrl-D"
                    .to_owned()
            }
            Self::NoCardHere => "name one: --gpu \"RTX 4090\"".to_owned(),
            Self::UnknownTorch { oldest, newest, .. } => {
                format!("known are {oldest} to {newest}; write `2.8`, or `all`")
            }
            Self::IsList { .. } => "name an image, a lock or a spec".to_owned(),
            Self::OpenMetrics { .. } => {
                "leave out --metrics-open, and give the token as a bearer token".to_owned()
            }
            Self::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                "another program has it; --port 0 takes a free one".to_owned()
            }
            Self::Listen { .. } => {
                "an address of this machine, and a port of 1024 or more".to_owned()
            }
            Self::WeakToken { .. } => "16 or more letters, digits, - and _".to_owned(),
            Self::Prices { .. } | Self::Variable { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            // As a run whose port is taken.
            Self::Listen { .. } => exit::RUN,
            Self::OpenMetrics { .. }
            | Self::SquashfsOf
            | Self::Variable { .. }
            | Self::PlanWithoutRanks { .. }
            | Self::NoTables { .. }
            | Self::NoTerminal
            | Self::NoPassword { .. } => exit::USAGE,
            Self::Snapshot { .. }
            | Self::Prices { .. }
            | Self::NotRoot
            | Self::NoLock { .. }
            | Self::NoPackages { .. }
            | Self::Facts { .. }
            | Self::NewerFacts { .. }
            | Self::NothingToCheck { .. }
            | Self::NoSubject { .. }
            | Self::NotASubject { .. }
            | Self::NotALog
            | Self::NoCardHere
            | Self::UnknownTorch { .. }
            | Self::IsList { .. }
            | Self::WeakToken { .. } => exit::BAD_INPUT,
        }
    }
}
