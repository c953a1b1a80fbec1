//! Whether the wheels of an environment are made for it: their tags.

use sconce_schema::finding::{Certainty, Finding, Severity};

use super::environment::parse_release;
use super::{CheckInput, EnvironmentVersions, as_user, in_spec};

/// A wheel's tags: Pythons, interfaces and platforms that it is for, each alternatives.
struct Tags<'a> {
    python: Vec<&'a str>,
    abi: Vec<&'a str>,
    platform: Vec<&'a str>,
}

/// The last three parts of a wheel's file name (binary distribution format, "File name convention").
fn tags(file: &str) -> Option<Tags<'_>> {
    let stem = file.strip_suffix(".whl")?;
    let mut parts = stem.rsplitn(4, '-');
    let (platform, abi, python) = (parts.next()?, parts.next()?, parts.next()?);
    parts.next()?;
    Some(Tags {
        python: python.split('.').collect(),
        abi: abi.split('.').collect(),
        platform: platform.split('.').collect(),
    })
}

fn each_wheel<'a>(
    environment: &'a EnvironmentVersions,
) -> impl Iterator<Item = (&'a str, &'a str, Tags<'a>)> {
    environment.packages.iter().filter_map(|(name, package)| {
        let file = package.file.as_deref()?;
        Some((name.as_str(), file, tags(file)?))
    })
}

/// Wheels for another Python.
pub(super) fn check_python_tags(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some((major, minor)) = environment.python.as_deref().and_then(parse_release) else {
        return Vec::new();
    };
    let own = format!("cp{major}{minor}");
    let fits = |tags: &Tags<'_>| {
        let stable = tags.abi.contains(&"abi3");
        tags.python.iter().any(|tag| {
            if let Some(rest) = tag.strip_prefix("py") {
                return rest.starts_with(&major.to_string());
            }
            // The stable interface serves later Pythons too.
            let number = |tag: &str| tag.strip_prefix("cp3").and_then(|rest| rest.parse().ok());
            *tag == own || (stable && number(tag).is_some_and(|of: u32| of <= minor))
        })
    };
    let wrong = each_wheel(environment).filter(|(_, _, tags)| !fits(tags));
    wrong
        .map(|(name, file, tags)| {
            Finding::new(
                "python-abi",
                Severity::Fails,
                Certainty::Certain,
                format!(
                    "the wheel of {name} is for {}; the environment has Python {major}.{minor}",
                    tags.python.join(", ")
                ),
            )
            .with_subject(name)
            .with_evidence("wheel", Some(name), file)
            .would_say(format!("ModuleNotFoundError: No module named '{name}._C'"))
            .with_fix("Resolve again", as_user("sconce lock"))
        })
        .collect()
}

/// Wheels for another processor.
pub(super) fn check_architecture(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let host = case.host.architecture.as_deref();
    let Some(wanted) = environment.architecture.as_deref().or(host) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if let Some(host) = host.filter(|host| *host != wanted) {
        let finding = Finding::new(
            "python-abi",
            Severity::Fails,
            Certainty::Certain,
            format!("the environment is made for {wanted}, the machine is {host}"),
        )
        .would_say("exec format error");
        findings.push(finding.with_evidence("uname -m", None, host));
    }
    let fits = |tags: &Tags<'_>| {
        let mut platforms = tags.platform.iter();
        platforms.any(|platform| *platform == "any" || platform.ends_with(wanted))
    };
    for (name, file, _) in each_wheel(environment).filter(|(_, _, tags)| !fits(tags)) {
        let finding = Finding::new(
            "python-abi",
            Severity::Fails,
            Certainty::Certain,
            format!("the wheel of {name} is not for {wanted}"),
        )
        .with_subject(name)
        .with_evidence("wheel", Some(name), file)
        .would_say("cannot open shared object file: wrong ELF class or machine")
        .with_fix("Resolve again", as_user("sconce lock"));
        findings.push(finding);
    }
    findings
}

/// Wheels that ask for a newer C library than the environment has.
pub(super) fn check_glibc(case: &CheckInput<'_>) -> Vec<Finding> {
    let Some(environment) = case.environment else {
        return Vec::new();
    };
    let Some(own) = environment.glibc.as_deref().and_then(parse_release) else {
        return Vec::new();
    };
    let needs = |tags: &Tags<'_>| tags.platform.iter().filter_map(|tag| manylinux(tag)).min();
    let wrong = each_wheel(environment).filter_map(|(name, file, tags)| {
        let needs = needs(&tags).filter(|needs| *needs > own)?;
        Some((name, file, needs))
    });
    wrong
        .map(|(name, file, (major, minor))| {
            Finding::new(
                "glibc-too-old",
                Severity::Fails,
                Certainty::Certain,
                format!(
                    "the wheel of {name} needs glibc {major}.{minor}; the environment has {}.{}",
                    own.0, own.1
                ),
            )
            .with_subject(name)
            .with_evidence("wheel", Some(name), file)
            .would_say(format!(
                "libc.so.6: version `GLIBC_{major}.{minor}' not found"
            ))
            .with_fix(
                "Take a newer release",
                in_spec("system.release", "\"debian/trixie\""),
            )
        })
        .collect()
}

/// The C library that a platform tag asks for (PEP 600, and its older names).
fn manylinux(tag: &str) -> Option<(u32, u32)> {
    for (name, glibc) in [
        ("manylinux1_", (2, 5)),
        ("manylinux2010_", (2, 12)),
        ("manylinux2014_", (2, 17)),
    ] {
        if tag.starts_with(name) {
            return Some(glibc);
        }
    }
    let mut parts = tag.strip_prefix("manylinux_")?.split('_');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_tell_their_glibc() {
        for (tag, glibc) in [
            ("manylinux_2_28_x86_64", Some((2, 28))),
            ("manylinux2014_x86_64", Some((2, 17))),
            ("manylinux1_x86_64", Some((2, 5))),
            ("linux_x86_64", None),
            ("any", None),
            ("manylinux_2_x_y", None),
        ] {
            assert_eq!(manylinux(tag), glibc, "{tag}");
        }
    }

    proptest! {
        #[test]
        fn no_file_name_panics(file in "\\PC{0,80}") {
            let _ = tags(&file);
            let _ = tags(&format!("{file}.whl"));
            let _ = manylinux(&file);
            let _ = manylinux(&format!("manylinux_{file}"));
        }
    }
}
