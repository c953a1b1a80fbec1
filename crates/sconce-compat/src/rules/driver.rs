//! The driver: whether there is one, whether its parts belong together, whether it is new enough.

use sconce_schema::facts::{DriverFlavour, DriverLibrary};
use sconce_schema::finding::{Certainty, Finding, Severity};
use sconce_schema::{CudaVersion, HostFacts};

use super::{
    CheckInput, as_root, card_name, forward_compatible as card_forward_compatible, in_spec, is_wsl,
    kernel_driver, user_driver, variable_action,
};
use crate::matrix;
use crate::tables;

const NO_DRIVER: &str = "Found no NVIDIA driver on your system. Please check that you have an \
    NVIDIA GPU and installed a driver";

fn has_nouveau(host: &HostFacts) -> bool {
    let flavour = host.driver.as_ref().and_then(|driver| driver.flavour);
    let cards = host.pci_cards.iter().flatten();
    let mut owners = cards.filter_map(|card| card.driver.as_deref());
    flavour == Some(DriverFlavour::Nouveau) || owners.any(|owner| owner == "nouveau")
}

/// No driver, or no card.
pub(super) fn check_driver_missing(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: the library met a kernel module, only not its own.
    let met = host.cuda_init.as_ref().and_then(|init| init.result) == Some(803);
    if host.driver.is_some() || has_nouveau(host) || met {
        return Vec::new();
    }
    let found = |certainty, what: &str| {
        Finding::new("no-driver", Severity::Fails, certainty, what).would_say(NO_DRIVER)
    };
    let finding = match (host.pci_cards.as_deref(), host.container.as_deref()) {
        (Some([]), _) => found(
            Certainty::Certain,
            "this machine has no NVIDIA card on its PCI bus",
        )
        .with_evidence("/sys/bus/pci/devices", Some("vendor 0x10de"), "no device")
        .with_fix("Run it on a machine with an NVIDIA card", None),
        (_, Some(container)) if container != "wsl" => found(
            Certainty::Certain,
            &format!("this is a {container} container that was started without the cards"),
        )
        .with_evidence("/proc/driver/nvidia/version", None, "no such file")
        .with_fix(
            "Start the container with the cards: `--gpus all` with Docker, `--device \
             nvidia.com/gpu=all` with Podman, `runtimeClassName: nvidia` with Kubernetes",
            None,
        ),
        (Some(cards), _) => found(
            Certainty::Certain,
            &format!(
                "no NVIDIA driver is loaded, although there {} on the PCI bus",
                match cards.len() {
                    1 => "is 1 NVIDIA device".to_owned(),
                    count => format!("are {count} NVIDIA devices"),
                }
            ),
        )
        .with_evidence("/proc/driver/nvidia/version", None, "no such file")
        .with_fix(
            "Install NVIDIA's driver, then start the machine again",
            None,
        )
        .with_fix(
            "If it is installed, load it; an error here says why it is not",
            as_root("modprobe nvidia"),
        ),
        (None, _) => found(Certainty::Likely, "no NVIDIA driver is loaded")
            .with_fix("Install NVIDIA's driver", None),
    };
    vec![finding]
}

/// The kernel's own driver has the card.
pub(super) fn check_nouveau(case: &CheckInput<'_>) -> Vec<Finding> {
    if !has_nouveau(case.host) {
        return Vec::new();
    }
    let finding = Finding::new(
        "nouveau-has-card",
        Severity::Fails,
        Certainty::Certain,
        "the kernel's own driver nouveau has the card; it has no CUDA",
    )
    .with_evidence("/sys/bus/pci/devices", Some("driver"), "nouveau")
    .would_say(NO_DRIVER)
    .with_fix(
        "Install NVIDIA's driver and keep nouveau from being loaded, then start the machine again",
        as_root(
            "printf \"blacklist nouveau\\noptions nouveau modeset=0\\n\" > \
             /etc/modprobe.d/blacklist-nouveau.conf && update-initramfs -u",
        ),
    );
    vec![finding]
}

/// The driver's library and the kernel module have different versions.
pub(super) fn check_driver_mismatch(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(driver) = &case.host.driver else {
        return Vec::new();
    };
    let Some(kernel) = driver.version else {
        return Vec::new();
    };
    // Under WSL the library is a thin one with a number of its own.
    if is_wsl(case.host) {
        return Vec::new();
    }
    let differs = |library: &&DriverLibrary| {
        let version = library.version.filter(|version| *version != kernel);
        library.wins && !library.compat && version.is_some()
    };
    let others: Vec<&DriverLibrary> = driver.libraries.iter().filter(differs).collect();
    let Some(first) = others.first() else {
        return Vec::new();
    };
    let text = match others.iter().any(|one| one.name.starts_with("libcuda.so")) {
        true => "Error 803: system has unsupported display driver / cuda driver combination",
        false => "Failed to initialize NVML: Driver/library version mismatch",
    };
    let version = first.version.map_or(String::new(), |v| v.to_string());
    let mut finding = Finding::new(
        "driver-mismatch",
        Severity::Fails,
        Certainty::Certain,
        format!(
            "the loaded kernel module is {kernel}, but {} is {version}",
            first.name
        ),
    )
    .with_evidence("/proc/driver/nvidia/version", None, kernel.to_string())
    .would_say(text);
    for library in &others {
        finding = finding.with_evidence(library.path.as_str(), Some("its name"), version.as_str());
    }
    let finding = finding
        .with_fix(
            "Start the machine again, if the driver was just updated: the new kernel module is \
             loaded then",
            as_root("systemctl reboot"),
        )
        .with_fix(
            "Otherwise remove the library that does not belong to the driver, or the folder in \
             LD_LIBRARY_PATH that it is found in",
            None,
        );
    vec![finding]
}

/// A forward-compatibility library is in use.
pub(super) fn forward_compatible(case: &CheckInput<'_>) -> Vec<Finding> {
    let host = case.host;
    let libraries = host.driver.iter().flat_map(|driver| &driver.libraries);
    let mut compat = libraries.filter(|library| library.compat && library.wins);
    let (Some(library), Some(kernel)) = (compat.next(), kernel_driver(host)) else {
        return Vec::new();
    };
    let version = library
        .version
        .map_or("of unknown version".into(), |v| v.to_string());
    let start = |weight, certainty, what: String| {
        Finding::new("forward-compat", weight, certainty, what)
            .with_evidence(library.path.as_str(), None, version.clone())
            .with_evidence("/proc/driver/nvidia/version", None, kernel.to_string())
            .would_say("Error 804: forward compatibility was attempted on non supported HW")
            .with_fix(
                "Take the folder of the compatibility library out of LD_LIBRARY_PATH and of \
                 /etc/ld.so.conf.d, so that the driver's own is found",
                variable_action("LD_LIBRARY_PATH", None),
            )
            .with_fix("Update the driver instead", None)
    };
    let barred = host
        .cards
        .iter()
        .find(|card| card_forward_compatible(card) == Some(false));
    if let Some(card) = barred {
        let what = format!(
            "a forward-compatibility library is in use, which does not work on a {}",
            card_name(card)
        );
        return vec![start(Severity::Fails, Certainty::Certain, what)];
    }
    if library.version.is_some_and(|version| version < kernel) {
        let what = format!(
            "a forward-compatibility library ({version}) is in use that is older than the driver \
             ({kernel})"
        );
        return vec![start(Severity::Warns, Certainty::Likely, what)];
    }
    let cuda = library.version.and_then(tables::driver_cuda);
    let row = cuda.and_then(tables::forward_compatibility);
    let known = row.is_some_and(|row| row.branches.contains(&kernel.major));
    let same_branch = library
        .version
        .is_some_and(|version| version.major == kernel.major);
    if !(known || same_branch) {
        let what = format!(
            "the forward-compatibility library {version} is not known to work with driver branch \
             {}",
            kernel.major
        );
        return vec![start(Severity::Warns, Certainty::Possible, what)];
    }
    if host
        .cards
        .iter()
        .any(|card| card_forward_compatible(card).is_none())
    {
        let what = "a forward-compatibility library is in use; on workstation cards it works on \
                    some only";
        return vec![start(Severity::Warns, Certainty::Possible, what.to_owned())];
    }
    Vec::new()
}

/// Windows' Linux.
pub(super) fn check_wsl(case: &CheckInput<'_>) -> Vec<Finding> {
    if !is_wsl(case.host) || case.host.driver.is_none() {
        return Vec::new();
    }
    let finding = Finding::new(
        "wsl",
        Severity::Notes,
        Certainty::Certain,
        "this is Windows' Linux: the driver is Windows' own, memory by process is not shown, \
         cards do not reach each other directly, and little memory can be pinned",
    )
    .with_evidence("/dev/dxg", None, "is there")
    .with_fix(
        "Update the driver in Windows; never install a Linux driver here",
        None,
    );
    vec![finding]
}

/// The driver is older than the environment's CUDA allows.
pub(super) fn too_old(case: &CheckInput<'_>) -> Vec<Finding> {
    let (Some(environment), Some(driver)) = (case.environment, user_driver(case.host)) else {
        return Vec::new();
    };
    let Some(cuda) = environment.torch_cuda() else {
        return Vec::new();
    };
    let Some(floor) = cuda.lowest_driver().filter(|floor| driver < *floor) else {
        return Vec::new();
    };
    let serves = case.host.driver.as_ref().and_then(|driver| driver.cuda);
    let serves = serves.or_else(|| tables::driver_cuda(driver));
    let number = serves.map_or(String::new(), |v| format!(" (found version {})", number(v)));
    let mut finding = Finding::new(
        "driver-too-old",
        Severity::Fails,
        Certainty::Certain,
        format!(
            "torch was built with CUDA {cuda}, which needs driver {floor}; this one is {driver}"
        ),
    )
    .with_subject("torch")
    .with_evidence("/proc/driver/nvidia/version", None, driver.to_string())
    .with_evidence(
        "NVIDIA, CUDA compatibility",
        Some("minor version compatibility"),
        format!("CUDA {}.x needs {floor}", cuda.major),
    )
    .would_say(format!(
        "The NVIDIA driver on your system is too old{number}"
    ));
    // Cards that newer drivers dropped may have no driver for this CUDA at all.
    let last = super::group_gpus(case.host).into_iter().filter_map(|kind| {
        let last = tables::gpu_architecture(kind.capability)?.last_branch?;
        Some((last, kind.name()))
    });
    finding = match last.min() {
        Some((last, name)) if last < floor.major => finding.with_evidence(
            "NVIDIA, Unix graphics feature deprecation schedule",
            Some(name.as_str()),
            format!(
                "branch {last} was the last: no driver for it serves CUDA {}",
                cuda.major
            ),
        ),
        Some((last, name)) => finding.with_fix(
            format!(
                "Install driver {floor} or newer, up to branch {last}, the last for the {name}"
            ),
            None,
        ),
        None => finding.with_fix(format!("Install driver {floor} or newer"), None),
    };
    if let Some(choice) = matrix::newest_torch_for(std::slice::from_ref(case.host)) {
        finding = finding.with_fix(
            format!("Take {}", choice.to_sentence()),
            in_spec("python.packages", &choice.spec_value()),
        );
    }
    let all_server = !case.host.cards.is_empty()
        && case
            .host
            .cards
            .iter()
            .all(|card| card_forward_compatible(card) == Some(true));
    let forward =
        tables::forward_compatibility(cuda).filter(|row| row.branches.contains(&driver.major));
    if let (true, Some(_)) = (all_server, forward) {
        finding = finding.with_fix(
            format!(
                "As this is a data-centre card, add NVIDIA's forward-compatibility library \
                 (cuda-compat-{}-{}) to the image",
                cuda.major, cuda.minor
            ),
            None,
        );
    }
    vec![finding]
}

/// A CUDA version as cudaDriverGetVersion gives it: 12.2 is 12020.
fn number(cuda: CudaVersion) -> u32 {
    let thousands = cuda.major.saturating_mul(1000);
    thousands.saturating_add(cuda.minor.saturating_mul(10))
}

/// What CUDA itself said when it was started in a process of its own.
pub(super) fn check_cuda_init(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(init) = &case.host.cuda_init else {
        return Vec::new();
    };
    let found = |code: &str, what: &str, text: &str| {
        Finding::new(code, Severity::Fails, Certainty::Certain, what).would_say(text)
    };
    let finding = match (init.result, &init.error) {
        (Some(0), _) | (None, None) => return Vec::new(),
        (Some(100), _) => found(
            "no-driver",
            "the driver shows no card to this process",
            "No CUDA GPUs are available",
        )
        .with_fix(
            "See which cards are visible: CUDA_VISIBLE_DEVICES, and the container's cards",
            None,
        ),
        (Some(802), _) => found(
            "fabric-not-ready",
            "the NVLink fabric of this machine is not set up",
            "Error 802: system not yet initialized",
        )
        .with_fix(
            "Start the fabric manager",
            as_root("systemctl start nvidia-fabricmanager"),
        ),
        (Some(803), _) => found(
            "driver-mismatch",
            "the driver's library does not belong to the loaded kernel module",
            "Error 803: system has unsupported display driver / cuda driver combination",
        )
        .with_fix("Start the machine again", as_root("systemctl reboot")),
        (Some(804), _) => found(
            "forward-compat",
            "a forward-compatibility library is in use on a card that it does not work on",
            "Error 804: forward compatibility was attempted on non supported HW",
        )
        .with_fix(
            "Take its folder out of the loader's search",
            variable_action("LD_LIBRARY_PATH", None),
        ),
        (Some(999), _) => found(
            "uvm-broken",
            "CUDA does not start: mostly the nvidia-uvm module, after the machine slept",
            "CUDA unknown error - this may be due to an incorrectly set up environment",
        )
        .with_fix(
            "Load the module anew",
            as_root("modprobe -r nvidia_uvm && modprobe nvidia_uvm"),
        ),
        (Some(code), _) => found(
            "cuda-init",
            &format!("CUDA does not start: it says {code}"),
            &format!("CUDA driver initialization failed (CUresult {code})"),
        ),
        (None, Some(error)) if error.contains("libcuda") => found(
            "libcuda-missing",
            "the driver's library libcuda.so.1 is not found",
            "libcuda.so.1: cannot open shared object file: No such file or directory",
        )
        .with_fix(
            "Install the driver's user libraries, or start the container with them",
            None,
        ),
        (None, Some(error)) => found(
            "cuda-init",
            &format!("CUDA does not start: {error}"),
            "CUDA driver initialization failed",
        ),
    };
    let said = match (init.result, &init.error) {
        (Some(code), _) => code.to_string(),
        (None, error) => error.clone().unwrap_or_default(),
    };
    vec![finding.with_evidence(INIT, None, said)]
}

const INIT: &str = "cuInit(0)";

/// Whether a finding is [`check_cuda_init`]'s.
pub(super) fn from_init(finding: &Finding) -> bool {
    finding
        .evidence
        .first()
        .is_some_and(|seen| seen.source == INIT)
}
