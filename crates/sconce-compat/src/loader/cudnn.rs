//! cuDNN opens its parts by name when they are first used.

use sconce_schema::finding::{Certainty, Finding, Severity};

use super::load_results::{
    LoadAttempt, LoadPoint, LoadResults, MissingLibraryUse, describe_origin, package_of_path,
};
use super::mismatch::fix_for_origin;
use super::missing_libraries::MissingLibraryContext;
use super::names;
use super::process::LoaderProcess;
use super::tree::{file_name, parent_dir};

/// The parts of a major version: who opens it (empty: `libcudnn` itself) and its name up to `.so`;
/// those that are false came with a later minor version, and may be absent.
fn parts(major: &str) -> &'static [(&'static str, &'static str, bool)] {
    match major {
        "8" => &[
            ("", "libcudnn_ops_infer", true),
            ("", "libcudnn_ops_train", true),
            ("", "libcudnn_cnn_infer", true),
            ("", "libcudnn_cnn_train", true),
            ("", "libcudnn_adv_infer", true),
            ("", "libcudnn_adv_train", true),
        ],
        "9" => &[
            ("", "libcudnn_graph", true),
            ("", "libcudnn_ops", true),
            ("", "libcudnn_cnn", true),
            ("", "libcudnn_adv", true),
            ("", "libcudnn_ext", false),
            ("libcudnn_graph", "libcudnn_heuristic", true),
            ("libcudnn_graph", "libcudnn_engines_precompiled", true),
            ("libcudnn_graph", "libcudnn_engines_runtime_compiled", true),
            ("libcudnn_graph", "libcudnn_engines_tensor_ir", false),
        ],
        _ => &[],
    }
}

const STAGE: LoadPoint = LoadPoint::Later("cuDNN");

/// The function of a part of cuDNN 9 that torch calls first, which is what cuDNN names when the part
/// is not there (seen with 9.1 and 9.26; 9.26 no longer names the file).
fn first_call(stem: &str) -> Option<&'static str> {
    Some(match stem {
        "libcudnn_graph" => "cudnnGetVersion",
        "libcudnn_ops" => "cudnnCreateTensorDescriptor",
        "libcudnn_cnn" => "cudnnCreateConvolutionDescriptor",
        "libcudnn_adv" => "cudnnCreateRNNDescriptor",
        _ => return None,
    })
}

/// Opens cuDNN's parts as it does itself, in a process that has loaded it.
pub(super) fn check_sublibraries(
    process: &mut LoaderProcess<'_, '_>,
    gathered: &mut LoadResults,
    known: &MissingLibraryContext<'_>,
) -> Vec<Finding> {
    let names = ["libcudnn.so.9", "libcudnn.so.8"];
    let Some((name, cudnn)) = names
        .iter()
        .find_map(|name| Some((*name, process.find_object(name)?)))
    else {
        return Vec::new();
    };
    let major = name.rsplit('.').next().unwrap_or_default();
    let home = parent_dir(&process.objects()[cudnn].real).to_owned();
    let mut missing: Vec<String> = Vec::new();
    let mut astray: Vec<usize> = Vec::new();
    for (opener, stem, always) in parts(major) {
        let part = format!("{stem}.so.{major}");
        if !always && known.index.paths(&part).is_empty() {
            continue;
        }
        let caller = match *opener {
            "" => cudnn,
            opener => match process.find_object(&format!("{opener}.so.{major}")) {
                Some(opener) => opener,
                None => continue,
            },
        };
        let opened = process.open(&part, Some(caller), false);
        let Some(root) = opened.root else {
            missing.push(part);
            continue;
        };
        let path = process.objects()[root].real.clone();
        let opening = LoadAttempt {
            stage: STAGE,
            path: &path,
            error_kind: "",
        };
        gathered.add_result(process, &opened, opening);
        if parent_dir(&path) != home {
            astray.push(root);
        }
    }
    let mut findings = Vec::new();
    let wheel = known
        .cuda_major
        .and_then(|major| names::cuda_wheel(name, major));
    let again = |finding: Finding| match &wheel {
        Some(wheel) => finding.with_fix(
            format!("Install {wheel} again."),
            known.reinstall_action(wheel),
        ),
        None => finding,
    };
    let cudnn = &process.objects()[cudnn];
    if let Some(first) = missing.first() {
        let what = format!("cuDNN in {home} lacks {}", missing.join(", "));
        let stem = names::library_stem(first);
        let text = match first_call(stem) {
            Some(symbol) if major == "9" => format!("Invalid handle. Cannot load symbol {symbol}"),
            // It tries the name with more of the version's numbers first, which are not known here.
            _ => format!("Unable to load any of {{..., {first}, {stem}.so}}"),
        };
        // Its other parts need it too, which is the same cause.
        let same = |one: &MissingLibraryUse| missing.contains(&one.name) && one.stage == STAGE;
        gathered.missing.retain(|one| !same(one));
        let code = "cudnn-sublibrary-missing";
        let mut finding = Finding::new(code, Severity::Fails, Certainty::Likely, what)
            .with_subject(name)
            .would_say(text);
        for part in &missing {
            finding = finding.with_evidence(&cudnn.real, Some("dlopen"), part);
        }
        findings.push(again(finding));
    }
    if let Some(&first) = astray.first() {
        let what = format!("cuDNN's parts come from several folders: {home} and others");
        let code = "cudnn-sublibraries-mixed";
        let mut finding = Finding::new(code, Severity::Fails, Certainty::Likely, what)
            .with_subject(name)
            .would_say("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH")
            .with_evidence(
                &cudnn.real,
                None,
                describe_origin(process.objects(), &cudnn.found),
            );
        for &part in &astray {
            let part = &process.objects()[part];
            finding = finding.with_evidence(
                &part.real,
                None,
                describe_origin(process.objects(), &part.found),
            );
        }
        let first = &process.objects()[first];
        if let Some((what, action)) = fix_for_origin(&first.found) {
            finding = finding.with_fix(what, action);
        }
        // Not when the stray part is a package's own and only libcudnn itself comes from outside.
        let stray = package_of_path(&first.real, known.site_packages);
        if stray.is_some()
            && let Some((_, action)) = fix_for_origin(&cudnn.found)
        {
            let what = format!("Let {} not be found first.", file_name(&cudnn.path));
            finding = finding.with_fix(what, action);
        }
        findings.push(again(finding));
    }
    findings
}
