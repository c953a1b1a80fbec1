//! Which torch runs on which machine, and the newest that runs on all of them.

mod named;

use std::cmp::Reverse;

use sconce_schema::finding::{Finding, Severity};
use sconce_schema::{CudaVersion, HostFacts};
use serde::Serialize;

use crate::library::GpuCode;
use crate::rules::{self, CheckInput, EnvironmentVersions};
use crate::tables::{self, SourceQuality, TorchBuild, TorchRelease};

pub use named::NamedTorch;

/// Whether something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compatibility {
    /// It runs.
    Runs,
    /// It runs, and something of it fails or is slow.
    Warns,
    /// Nothing is known of it.
    Unknown,
    /// It does not run.
    Fails,
}

/// What a verdict stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompatibilityBasis {
    /// The libraries' own bytes.
    Bytes,
    /// The tables, as sure as this.
    Table(SourceQuality),
    /// Nothing.
    Nothing,
}

/// One torch, or one environment, on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MatrixCell {
    /// Whether it runs.
    pub verdict: Compatibility,
    /// Why, in few words; empty where there is nothing to say.
    pub reason: String,
    /// What that stands on.
    pub basis: CompatibilityBasis,
    /// The same release's build with another CUDA that runs there, where this one does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<CudaVersion>,
}

/// One torch, or one environment, on all machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MatrixRow {
    /// `torch 2.4.1`.
    pub name: String,
    /// The CUDA that it was built with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaVersion>,
    /// In the order of the machines.
    pub cells: Vec<MatrixCell>,
}

/// All of them on all machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Matrix {
    /// The machines.
    pub machines: Vec<String>,
    /// One a torch or an environment.
    pub rows: Vec<MatrixRow>,
    /// The newest torch that runs on all of the machines, but for those that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<TorchChoice>,
    /// Machines of which no torch can be said to run: they have no card that is known, or are not
    /// x86-64.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// For each machine the place of the first one with the same cards and driver, maybe its own.
    #[serde(skip)]
    pub alike: Vec<usize>,
}

impl Matrix {
    /// Rows that were made for these machines, in their order.
    #[must_use]
    pub fn new(rows: Vec<MatrixRow>, machines: &[HostFacts]) -> Self {
        let (judged, others): (Vec<HostFacts>, Vec<HostFacts>) = machines
            .iter()
            .cloned()
            .partition(|machine| unjudged(machine).is_none());
        let kinds: Vec<_> = machines.iter().map(kind).collect();
        let first = |kind| kinds.iter().position(|other| other == kind).unwrap_or(0);
        Self {
            machines: machines.iter().map(name).collect(),
            rows,
            newest: newest_torch_for(&judged),
            left_out: others.iter().map(name).collect(),
            alike: kinds.iter().map(first).collect(),
        }
    }
}

/// What a torch's verdict depends on: machines that have it in common are one kind.
fn kind(machine: &HostFacts) -> impl PartialEq + use<> {
    let cards = machine.cards.iter().map(|card| {
        let name = card.name.clone();
        (name, card.capability, card.memory, card.mig.clone())
    });
    let mut cards: Vec<_> = cards.collect();
    cards.sort_by(|one, other| one.0.cmp(&other.0));
    let driver = (rules::user_driver(machine), rules::kernel_driver(machine));
    (machine.architecture.clone(), cards, driver)
}

/// A build of torch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TorchChoice {
    /// Its version, `2.14.1`.
    pub torch: String,
    /// The CUDA that it was built with.
    pub cuda: CudaVersion,
    /// How it is asked for: `torch==2.14.1+cu126`.
    pub requirement: String,
    /// PyTorch's own index that has it, `cu126`; absent where the default index has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// How sure it is.
    pub sure: SourceQuality,
}

impl TorchChoice {
    fn of(torch: &TorchRelease, build: &TorchBuild) -> Self {
        let default = build.cuda == torch.cuda;
        Self {
            torch: torch.newest.to_owned(),
            cuda: build.cuda,
            requirement: torch.requirement(build.cuda),
            index: (!default).then(|| format!("cu{}{}", build.cuda.major, build.cuda.minor)),
            sure: build.source.sure,
        }
    }

    /// `torch 2.14.1 built with CUDA 12.6, from PyTorch's own index cu126`.
    #[must_use]
    pub fn to_sentence(&self) -> String {
        let from = self.index.as_ref().map_or(String::new(), |index| {
            format!(", from PyTorch's own index {index} (python.extra-index)")
        });
        format!("torch {} built with CUDA {}{from}", self.torch, self.cuda)
    }

    /// What the spec's `python.packages` says for it.
    #[must_use]
    pub fn spec_value(&self) -> String {
        format!("[\"{}\"]", self.requirement)
    }
}

/// Torches on machines, each by the build that its name says, or else by the wheel of the default index.
#[must_use]
pub fn build_torch_matrix(wanted: &[NamedTorch], machines: &[HostFacts]) -> Matrix {
    let rows = wanted.iter().map(|torch| named::torch_row(torch, machines));
    Matrix::new(rows.collect(), machines)
}

/// One environment on machines.
#[must_use]
pub fn environment_row(
    name: &str,
    environment: &EnvironmentVersions,
    files: &[(&str, &GpuCode)],
    machines: &[HostFacts],
) -> MatrixRow {
    let build = || environment.known_build();
    let read = files
        .iter()
        .any(|(path, code)| path.ends_with("libtorch_cuda.so") && code.container_count() > 0);
    let basis = match (read, build()) {
        (true, _) => CompatibilityBasis::Bytes,
        (false, Some(build)) => CompatibilityBasis::Table(build.source.sure),
        (false, None) => CompatibilityBasis::Nothing,
    };
    let cell = |machine: &HostFacts| {
        let case = CheckInput {
            host: machine,
            environment: Some(environment),
            files,
        };
        // What is wrong with a machine whatever runs on it is not the environment's, but for its
        // driver and cards.
        let mut findings = rules::check_environment(&case);
        let of_machine = rules::check_host(machine);
        let cards = ["no-driver", "card-too-new", "card-dropped"];
        findings.extend(
            of_machine
                .into_iter()
                .filter(|one| cards.contains(&one.code.as_str())),
        );
        sconce_schema::finding::sort_by_severity(&mut findings);
        cell_of(&findings, basis)
    };
    MatrixRow {
        name: name.to_owned(),
        cuda: environment.torch_cuda(),
        cells: machines.iter().map(cell).collect(),
    }
}

fn cell_of(findings: &[Finding], basis: CompatibilityBasis) -> MatrixCell {
    let first = findings
        .first()
        .filter(|first| first.weight != Severity::Notes);
    let unjudged = findings.iter().find(|one| one.code == rules::NOT_JUDGED);
    let verdict = match (first.map(|first| first.weight), basis) {
        (Some(Severity::Fails), _) => Compatibility::Fails,
        (_, CompatibilityBasis::Nothing) => Compatibility::Unknown,
        _ if unjudged.is_some() => Compatibility::Unknown,
        (Some(Severity::Warns), _) => Compatibility::Warns,
        _ => Compatibility::Runs,
    };
    MatrixCell {
        verdict,
        reason: match (verdict, first) {
            (Compatibility::Unknown, _) => match unjudged {
                Some(unjudged) if basis != CompatibilityBasis::Nothing => unjudged.what.clone(),
                _ => "nothing is known of this torch".to_owned(),
            },
            (_, Some(first)) => first.what.clone(),
            (_, None) => String::new(),
        },
        basis,
        instead: None,
    }
}

fn name(machine: &HostFacts) -> String {
    let first = machine.cards.first().and_then(|card| card.name.clone());
    machine
        .name
        .clone()
        .or(first)
        .unwrap_or_else(|| "this machine".to_owned())
}

fn default_cell(torch: &'static TorchRelease, machine: &HostFacts) -> MatrixCell {
    let Some(build) = torch.find_build(torch.cuda) else {
        return unknown("no wheel of this release is known");
    };
    let mut cell = on(torch, build, machine);
    if cell.verdict == Compatibility::Fails {
        let other = build_for(torch, std::slice::from_ref(machine));
        cell.instead = other.map(|choice| choice.cuda);
    }
    cell
}

fn unknown(why: &str) -> MatrixCell {
    MatrixCell {
        verdict: Compatibility::Unknown,
        reason: why.to_owned(),
        basis: CompatibilityBasis::Nothing,
        instead: None,
    }
}

/// Why nothing can be said of a machine.
fn unjudged(machine: &HostFacts) -> Option<&'static str> {
    let architecture = machine.architecture.as_deref();
    if architecture.is_some_and(|machine| machine != "x86_64") {
        return Some("only wheels for x86-64 are known");
    }
    let nothing = rules::group_gpus(machine).is_empty();
    nothing.then_some("the machine has no card whose capability is known")
}

/// One build on one machine: the worst of its cards.
fn on(torch: &TorchRelease, build: &TorchBuild, machine: &HostFacts) -> MatrixCell {
    if let Some(why) = unjudged(machine) {
        return unknown(why);
    }
    let kinds = rules::group_gpus(machine);
    let basis = CompatibilityBasis::Table(build.source.sure);
    let cell = |verdict, reason: String| MatrixCell {
        verdict,
        reason,
        basis,
        instead: None,
    };
    if let Some(driver) = rules::user_driver(machine) {
        let floor = build.cuda.lowest_driver();
        if let Some(floor) = floor.filter(|floor| driver < *floor) {
            let reason = format!("CUDA {} needs driver {floor}", build.cuda);
            return cell(Compatibility::Fails, reason);
        }
    }
    let all = kinds
        .iter()
        .map(|kind| on_card(torch, build, machine, kind, &cell));
    let worst = all.max_by_key(|cell| cell.verdict);
    let fails = |cell: &MatrixCell| cell.verdict == Compatibility::Fails;
    if machine.cards.iter().any(rules::is_unknown) && !worst.as_ref().is_some_and(fails) {
        return unknown("the capability of one of its cards is not known");
    }
    worst.unwrap_or_else(|| unknown("the machine has no card"))
}

fn on_card(
    torch: &TorchRelease,
    build: &TorchBuild,
    machine: &HostFacts,
    kind: &rules::SameGpus<'_>,
    cell: &dyn Fn(Compatibility, String) -> MatrixCell,
) -> MatrixCell {
    let capability = kind.capability;
    let known = tables::gpu_architecture(capability);
    if let (Some(driver), Some(known)) = (rules::kernel_driver(machine), known) {
        if let Some(first) = known.first_branch.filter(|first| driver.major < *first) {
            return cell(
                Compatibility::Fails,
                format!("the card needs driver {first}"),
            );
        }
        if let Some(last) = known.last_branch.filter(|last| driver.major > *last) {
            return cell(
                Compatibility::Fails,
                format!("driver {last} is the card's last"),
            );
        }
    }
    let driver = rules::driver_cuda(machine);
    let reached = rules::runnable_code(&build.code, capability, driver, Some(build.cuda));
    if reached.runnable_count() == 0 && reached.too_new == 0 {
        let has = build.sass_capabilities();
        // Which side of what it has the card lies on says more than the list.
        let reason = match (has.first(), has.last()) {
            (Some(first), _) if capability < *first => {
                format!("no code for {capability}, begins at {first}")
            }
            (_, Some(last)) if capability > *last => {
                format!("no code for {capability}, ends at {last}")
            }
            _ => format!("no code for {capability}"),
        };
        return cell(Compatibility::Fails, reason);
    }
    let needs = reached.needs.map_or(String::new(), |cuda| cuda.to_string());
    if reached.runnable_count() == 0 {
        return cell(
            Compatibility::Fails,
            format!("PTX needs a driver of CUDA {needs}"),
        );
    }
    if reached.compiled > 0 {
        let reason = format!("PTX only, compiled by a driver of CUDA {needs}");
        return cell(Compatibility::Warns, reason);
    }
    if let Some(gap) = build.gaps.iter().find(|gap| gap.capability == capability) {
        let what = gap.what.split(" (").next().unwrap_or(gap.what);
        let mut cell = cell(Compatibility::Warns, format!("no code in {what}"));
        cell.basis = CompatibilityBasis::Table(gap.source.sure);
        return cell;
    }
    let triton = rules::parse_release(torch.triton).and_then(tables::find_triton_release);
    let first = known.and_then(|known| known.first_cuda);
    if let (Some(triton), Some(first)) = (triton, first)
        && triton.ptxas < first
        && rules::parse_release(torch.triton) == Some(triton.release)
    {
        return cell(
            Compatibility::Warns,
            format!("torch.compile needs ptxas {first}"),
        );
    }
    if capability.major < 7 {
        return cell(
            Compatibility::Warns,
            "no torch.compile below 7.0".to_owned(),
        );
    }
    cell(Compatibility::Runs, String::new())
}

fn runs_on_all(torch: &TorchRelease, build: &TorchBuild, machines: &[HostFacts]) -> bool {
    let runs = |machine| {
        let verdict = on(torch, build, machine).verdict;
        matches!(verdict, Compatibility::Runs | Compatibility::Warns)
    };
    !machines.is_empty() && machines.iter().all(runs)
}

/// The build of a release that runs on all of these machines: the default index's if it does, then
/// the newest CUDA that does, of what is well known before the rest.
#[must_use]
pub fn build_for(torch: &TorchRelease, machines: &[HostFacts]) -> Option<TorchChoice> {
    let mut builds: Vec<&TorchBuild> = torch.builds.iter().collect();
    let lead = |build: &TorchBuild| build.source.sure == SourceQuality::Lead;
    builds.sort_by_key(|build| (build.cuda != torch.cuda, lead(build), Reverse(build.cuda)));
    // What was not seen published is not offered.
    let offered =
        |build: &&&TorchBuild| build.source.sure != SourceQuality::Lead || published(torch, build);
    let mut runs = builds.iter().filter(offered);
    let found = runs.find(|build| runs_on_all(torch, build, machines))?;
    Some(TorchChoice::of(torch, found))
}

/// A lead about what a build has code for is no doubt of its being published, but for the newest
/// release, whose other builds nobody has seen.
fn published(torch: &TorchRelease, build: &TorchBuild) -> bool {
    let newest = tables::torch_releases().last().map(|last| last.release);
    build.cuda == torch.cuda || Some(torch.release) != newest
}

/// The newest torch that runs on all of these machines, and with which CUDA.
#[must_use]
pub fn newest_torch_for(machines: &[HostFacts]) -> Option<TorchChoice> {
    let mut newest_first = tables::torch_releases().iter().rev();
    newest_first.find_map(|torch| build_for(torch, machines))
}
