//! Mends of an environment that is a folder, as pip's commands.

use sconce_compat::rules::EnvironmentVersions;
use sconce_schema::finding::{Finding, FixAction};

/// Mends of a folder are pip's: what a spec would say is a command, unless a better one stands there
/// already, and what is installed again stays at its version.
pub(super) fn rewrite_fixes(finding: &mut Finding, environment: &EnvironmentVersions) {
    const PIP: &str = "python -m pip install ";
    let is_pip = |action: &Option<FixAction>| match action {
        Some(FixAction::Command { line, .. }) => line.starts_with(PIP),
        _ => false,
    };
    if finding.mends.iter().any(|mend| is_pip(&mend.action)) {
        let of_spec = |action: &Option<FixAction>| match action {
            Some(FixAction::Spec { key, .. }) => key == "python.packages",
            _ => false,
        };
        finding.mends.retain(|mend| !of_spec(&mend.action));
    }
    for mend in &mut finding.mends {
        match &mut mend.action {
            Some(FixAction::Command { line, .. }) if line.starts_with(PIP) => {
                *line = pinned(line, environment);
            }
            Some(FixAction::Spec { key, value }) if key == "python.packages" => {
                let Some(wanted) = requirements(value) else {
                    continue;
                };
                mend.action = Some(FixAction::Command {
                    line: format!("{PIP}{wanted}"),
                    root: false,
                    safe: false,
                });
            }
            _ => {}
        }
    }
}

/// Requirements of a spec as words of a shell. `None` for what is not plainly that, and for builds of
/// other indexes than the default one, which would have to be named.
fn requirements(value: &str) -> Option<String> {
    let wanted: Vec<String> = serde_json::from_str(value).ok()?;
    let plain = |one: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-=<>~*,".contains(c);
        one.starts_with(|c: char| c.is_ascii_alphanumeric()) && one.chars().all(fits)
    };
    if wanted.is_empty() || !wanted.iter().all(plain) {
        return None;
    }
    let word = |one: &String| match one.contains(['<', '>', '*', '~']) {
        true => format!("'{one}'"),
        false => one.clone(),
    };
    Some(wanted.iter().map(word).collect::<Vec<_>>().join(" "))
}

/// The line with the versions that are installed: of torch always, of others where they are installed
/// again as they are.
fn pinned(line: &str, environment: &EnvironmentVersions) -> String {
    let as_is = line.contains(" --no-deps ");
    let words: Vec<&str> = line.split(' ').collect();
    let pin = |(at, word): (usize, &&str)| {
        let is_last = at + 1 == words.len();
        // A local version is not the default index's.
        let version = environment
            .version(word)
            .filter(|version| !version.contains('+'));
        match version.filter(|_| *word == "torch" || (as_is && is_last)) {
            Some(version) => format!("{word}=={version}"),
            None => (*word).to_owned(),
        }
    };
    words
        .iter()
        .enumerate()
        .map(pin)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::finding::{Certainty, Severity};

    fn mended(actions: &[FixAction]) -> Vec<String> {
        let packages = [("torch", "2.8.0"), ("nvidia-cudnn-cu12", "9.10.2.21")];
        let mut finding = Finding::new("x", Severity::Fails, Certainty::Certain, "x");
        for action in actions {
            finding = finding.with_fix("x", Some(action.clone()));
        }
        rewrite_fixes(&mut finding, &EnvironmentVersions::from_packages(packages));
        let said = finding.mends.iter().map(|mend| match &mend.action {
            Some(FixAction::Command { line, .. }) => line.clone(),
            other => format!("{other:?}"),
        });
        said.collect()
    }

    fn spec(key: &str, value: &str) -> FixAction {
        FixAction::Spec {
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    fn command(line: &str) -> FixAction {
        FixAction::Command {
            line: line.to_owned(),
            root: false,
            safe: false,
        }
    }

    #[test]
    fn a_folder_is_mended_mend() {
        for (value, line) in [
            ("[\"torch==2.8.0\"]", "python -m pip install torch==2.8.0"),
            (
                "[\"torchvision==0.23.*\", \"six\"]",
                "python -m pip install 'torchvision==0.23.*' six",
            ),
        ] {
            assert_eq!(mended(&[spec("python.packages", value)]), [line]);
        }
        for (key, value) in [
            ("python.packages", "[\"torch==2.8.0+cu126\"]"),
            ("python.packages", "[\"a; touch x\"]"),
            ("python.packages", "[\"a'b\"]"),
            ("python.packages", "[\"--pre\"]"),
            ("python.packages", "[]"),
            ("python.packages", "torch"),
            ("system.packages", "[\"libgl1\"]"),
        ] {
            let said = mended(&[spec(key, value)]);
            assert!(said[0].starts_with("Some(Spec"), "{said:?}");
        }
    }

    #[test]
    fn what_is_installed_again_stays_at_its_version() {
        let again = "python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12";
        let spec = spec("python.packages", "[\"nvidia-cudnn-cu12\"]");
        // One way is enough.
        assert_eq!(
            mended(&[command(again), spec]),
            [format!("{again}==9.10.2.21")]
        );
        for (line, typed) in [
            (
                "python -m pip install --force-reinstall torch torchvision",
                "python -m pip install --force-reinstall torch==2.8.0 torchvision",
            ),
            (
                "python -m pip install --no-deps --no-binary apex apex",
                "python -m pip install --no-deps --no-binary apex apex",
            ),
            ("modprobe torch", "modprobe torch"),
        ] {
            assert_eq!(mended(&[command(line)]), [typed]);
        }
    }
}
