//! One cause, one finding: what another finding explains is evidence of it.
//!
//! Versions, files and machines are judged apart, and each may find the same: a torchvision of another
//! torch has the wrong version, lacks symbols, and brings another CUDA.

use sconce_schema::finding::{Evidence, Finding, Severity};

/// Evidence of one finding.
const MAX_EVIDENCE: usize = 24;

/// Folds findings into those that explain them, which take over their evidence, the greater weight
/// and the greater certainty; the mends are the cause's. The order stays.
pub fn merge_explained_findings(findings: &mut Vec<Finding>) {
    let mut at = 0;
    while at < findings.len() {
        let other = &findings[at];
        let mut causes = (0..findings.len()).filter(|&cause| cause != at);
        let found = causes.find_map(|cause| {
            let said = explained(&findings[cause], other, cause < at)?;
            Some((cause, said))
        });
        let Some((cause, said)) = found else {
            at += 1;
            continue;
        };
        let other = findings.remove(at);
        // What stood behind it has moved up.
        let cause = if cause > at { cause - 1 } else { cause };
        take_over(&mut findings[cause], other, said);
    }
}

/// Whose error text a run would end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageSource {
    /// The cause's.
    Cause,
    /// That of what it explains, which names the very file and symbol.
    Other,
}

/// Whether a finding is explained by another, and whose words stay. Of two of a kind the first stays.
fn explained(cause: &Finding, other: &Finding, is_first: bool) -> Option<MessageSource> {
    let subject = other.subject.as_deref().unwrap_or_default();
    let about = |start: &str| subject.starts_with(start);
    // A newer version than was tested breaks nothing.
    let breaks = cause.weight != Severity::Notes;
    match (cause.code.as_str(), other.code.as_str()) {
        (
            "torchvision-mismatch",
            "torch-abi-mismatch" | "cuda-major-mismatch" | "library-not-found",
        ) if cause.weight == Severity::Fails && same_subject(cause, other) => {
            Some(match cause.subject.as_deref() {
                // Its own words name no library, and it says them of every cause.
                Some("torchvision") => MessageSource::Cause,
                _ => MessageSource::Other,
            })
        }
        (
            "torchvision-mismatch" | "cuda-major-mismatch" | "torch-abi-mismatch",
            "cuda-majors-mixed",
        ) if same_subject(cause, other) => Some(MessageSource::Cause),
        ("cuda-major-mismatch", "torch-abi-mismatch") if same_subject(cause, other) => {
            Some(MessageSource::Cause)
        }
        ("nvjitlink-stolen", "cuda-symbol-undefined")
            if about("libnvJitLink") && of_packages(other) =>
        {
            Some(MessageSource::Other)
        }
        ("cudnn-mismatch", "cuda-symbol-undefined" | "library-not-found")
            if breaks && about("libcudnn") && of_packages(other) =>
        {
            Some(MessageSource::Other)
        }
        ("nccl-version", "cuda-symbol-undefined")
            if breaks && about("libnccl") && of_packages(other) =>
        {
            Some(MessageSource::Other)
        }
        ("torch-without-cuda", "library-not-found" | "cuda-major-mismatch")
            if same_needers(cause, other) =>
        {
            Some(MessageSource::Cause)
        }
        ("torch-without-cuda", "torch-without-cuda") | ("glibc-too-old", "glibc-too-old")
            if is_first =>
        {
            Some(MessageSource::Cause)
        }
        ("no-driver", "driver-library-not-found") => Some(MessageSource::Cause),
        // What else one folder shadows goes with it.
        (_, "library-shadowed")
            if cause.weight < other.weight
                && !other.mends.is_empty()
                && cause.mends.first() == other.mends.first() =>
        {
            Some(MessageSource::Cause)
        }
        _ => None,
    }
}

/// Whether it is about the same package, or about several of which this is one.
fn same_subject(cause: &Finding, other: &Finding) -> bool {
    cause.subject.is_some() && cause.subject == other.subject
}

/// Whether nothing of the run's own variables or of the system led to it: then the packages are
/// the cause.
fn of_packages(finding: &Finding) -> bool {
    use sconce_schema::finding::FixAction;
    let steered = |action: &Option<FixAction>| matches!(action, Some(FixAction::Variable { .. }));
    !finding.mends.iter().any(|mend| steered(&mend.action))
}

/// Whether all libraries that need it lack what the cause says, too.
fn same_needers(cause: &Finding, other: &Finding) -> bool {
    let mut needers = needers(other).peekable();
    needers.peek().is_some() && needers.all(|one| self::needers(cause).any(|also| also == one))
}

fn needers(finding: &Finding) -> impl Iterator<Item = &str> {
    let needed = |one: &&Evidence| one.place.as_deref() == Some("DT_NEEDED");
    let all = finding.evidence.iter().filter(needed);
    all.map(|one| one.source.as_str())
}

fn take_over(cause: &mut Finding, other: Finding, said: MessageSource) {
    cause.weight = cause.weight.min(other.weight);
    cause.certainty = cause.certainty.min(other.certainty);
    if said == MessageSource::Other && other.error_text.is_some() {
        cause.error_text = other.error_text;
    }
    for evidence in other.evidence {
        if cause.evidence.len() < MAX_EVIDENCE && !cause.evidence.contains(&evidence) {
            cause.evidence.push(evidence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::finding::{Certainty, FixAction};

    fn found(code: &str, weight: Severity, about: &str) -> Finding {
        Finding::new(code, weight, Certainty::Likely, code)
            .with_subject(about)
            .with_evidence(code, Some("DT_NEEDED"), about)
            .would_say(format!("{code} of {about}"))
    }

    fn folded(mut findings: Vec<Finding>) -> Vec<String> {
        merge_explained_findings(&mut findings);
        let told = |one: &Finding| {
            let seen: Vec<&str> = one.evidence.iter().map(|one| one.source.as_str()).collect();
            let said = one.error_text.as_deref().unwrap_or_default();
            format!("{:?} {}: {}; {said}", one.weight, one.code, seen.join(" "))
        };
        findings.iter().map(told).collect()
    }

    const FAILS: Severity = Severity::Fails;
    const WARNS: Severity = Severity::Warns;

    #[test]
    fn a_torchvision_of_another_torch_is_said_once() {
        let findings = vec![
            found("cuda-majors-mixed", WARNS, "torchvision"),
            found("torchvision-mismatch", FAILS, "torchvision"),
            found("torch-abi-mismatch", FAILS, "torchvision"),
            found("cuda-major-mismatch", FAILS, "torchvision"),
            found("torchvision-mismatch", FAILS, "torchaudio"),
            found("torch-abi-mismatch", FAILS, "torchaudio"),
            found("torch-abi-mismatch", FAILS, "flash_attn"),
        ];
        assert_eq!(
            folded(findings),
            [
                "Fails torchvision-mismatch: torchvision-mismatch cuda-majors-mixed \
                 torch-abi-mismatch cuda-major-mismatch; torchvision-mismatch of torchvision",
                "Fails torchvision-mismatch: torchvision-mismatch torch-abi-mismatch; \
                 torch-abi-mismatch of torchaudio",
                "Fails torch-abi-mismatch: torch-abi-mismatch; torch-abi-mismatch of flash_attn",
            ]
        );
        // Of another build, but of this torch: symbols are another matter.
        let findings = vec![
            found("torch-abi-mismatch", FAILS, "torchvision"),
            found("torchvision-mismatch", WARNS, "torchvision"),
        ];
        assert_eq!(folded(findings).len(), 2);
    }

    #[test]
    fn an_older_library_is_why_its_symbols_are_missing() {
        for (version, library) in [
            ("nvjitlink-stolen", "libnvJitLink.so.12"),
            ("cudnn-mismatch", "libcudnn.so.9"),
            ("nccl-version", "libnccl.so.2"),
        ] {
            let symbol = found("cuda-symbol-undefined", FAILS, library);
            let cause = found(version, WARNS, "nvidia");
            assert_eq!(
                folded(vec![symbol.clone(), cause.clone()]),
                [format!(
                    "Fails {version}: {version} cuda-symbol-undefined; cuda-symbol-undefined of \
                     {library}"
                )]
            );
            // A folder in LD_LIBRARY_PATH is a cause of its own.
            let action = FixAction::Variable {
                name: "LD_LIBRARY_PATH".to_owned(),
                value: None,
            };
            let steered = symbol.with_fix("Take it out.", Some(action));
            assert_eq!(folded(vec![steered, cause]).len(), 2);
        }
        let newer = found("cudnn-mismatch", Severity::Notes, "nvidia");
        let symbol = found("cuda-symbol-undefined", FAILS, "libcudnn.so.9");
        assert_eq!(folded(vec![newer, symbol]).len(), 2);
    }

    #[test]
    fn a_torch_without_cuda_is_said_once() {
        let mut lacks = found("torch-without-cuda", FAILS, "libc10_cuda.so");
        lacks.evidence[0].source = "ext/_C.so".to_owned();
        let mut runtime = found("library-not-found", FAILS, "libcudart.so.12");
        runtime.evidence[0].source = "ext/_C.so".to_owned();
        let findings = vec![
            found("torch-without-cuda", FAILS, "torch"),
            lacks,
            runtime,
            found("library-not-found", FAILS, "libGL.so.1"),
        ];
        let said = folded(findings);
        assert_eq!(said.len(), 2, "{said:?}");
    }

    #[test]
    fn what_one_folder_shadows_goes_with_what_it_breaks() {
        let mend = |one: Finding, what: &str| one.with_fix(what, None);
        let broken = mend(found("cuda-symbol-undefined", FAILS, "libx"), "Take /a out");
        let shadowed = |what| mend(found("library-shadowed", WARNS, "/a"), what);
        assert_eq!(
            folded(vec![broken.clone(), shadowed("Take /a out")]).len(),
            1
        );
        assert_eq!(folded(vec![broken, shadowed("Take /b out")]).len(), 2);
        // Nothing is lost without a cause.
        assert_eq!(folded(vec![shadowed("Take /b out")]).len(), 1);
    }

    #[test]
    fn without_a_driver_its_libraries_are_not_named() {
        let findings = vec![
            found("driver-library-not-found", WARNS, "libcuda.so.1"),
            found("no-driver", FAILS, "driver"),
        ];
        assert_eq!(folded(findings).len(), 1);
    }
}
