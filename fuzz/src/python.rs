//! What uv writes, with what an index told it.

use std::path::Path;

use sconce_formats::tags::{CpuArchitecture, WheelName, WheelTarget};
use sconce_resolve::python::build_settings::BuildSettings;
use sconce_resolve::python::pylock;
use sconce_resolve::python::versions::name_versions;

use crate::bytes::{fixtures, text};

const TARGET: WheelTarget = WheelTarget {
    python_minor: 13,
    glibc_minor: 41,
    machine: CpuArchitecture::X86_64,
};

/// uv's settings for builds: what they give a build is a name of an index, and a variable of its own.
pub(crate) fn build_settings(data: &[u8]) {
    let Some(table) = text(data).and_then(|text| text.parse().ok()) else {
        return;
    };
    let settings = BuildSettings::parse(&table);
    for name in ["x", "flash-attn"] {
        let Ok(asked) = settings.for_package(name, &[]) else {
            continue;
        };
        for one in &asked.requires {
            assert!(!one.starts_with(['-', '.', '/']), "{one}");
            let before = one.split(';').next().unwrap_or_default();
            assert!(
                !one.contains(['\n', '\r', '\0']) && !before.contains(['@', '/']),
                "{one}"
            );
        }
        for (name, value) in &asked.variables {
            assert!(!name.contains('=') && !name.starts_with("LD_") && name != "PATH");
            assert!(!value.contains('\0'));
        }
    }
}

pub(crate) fn build_setting_seeds() -> Vec<Vec<u8>> {
    [
        "no-build-isolation-package = ['flash-attn']\nextra-build-variables = { x = { A = '1' } }",
        "[extra-build-dependencies]\nx = ['torch>=2', { requirement = 'numpy', match-runtime = false }]",
        "no-build-isolation = true\n[pip]\nextra-build-dependencies = { x = ['a @ file:///b', '-r c'] }",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(crate) fn pylock(data: &[u8]) {
    let Some(text) = text(data) else { return };
    if let Some(name) = WheelName::parse(text) {
        let _ = (name.tag_priority(TARGET), name.tag_string());
    }
    if let Some(name) = sconce_formats::normalize_project_name(text) {
        assert_eq!(
            sconce_formats::normalize_project_name(&name).as_ref(),
            Some(&name)
        );
    }
    let known = pylock::KnownFiles::new();
    let Ok(packages) = pylock::parse(text, TARGET, Path::new("/home/me/project"), &known) else {
        return;
    };
    for source in &packages.sources {
        let url = source.origin.url();
        assert!(!url.starts_with('-') && url.contains("://"), "{url}");
        let folder = source.origin.subdirectory().unwrap_or("x");
        assert!(!folder.split('/').any(|part| matches!(part, "" | "..")));
    }
    assert!(packages.sources.is_sorted_by(|a, b| a.name < b.name));
    let wheels = packages.wheels;
    let _ = name_versions(&wheels, "3.13.5-2", "2.41-12");
    for wheel in &wheels {
        let schemes = ["http://", "https://", "file://"];
        assert!(
            schemes.iter().any(|scheme| wheel.url.starts_with(scheme)),
            "{}",
            wheel.url
        );
        assert_eq!(
            sconce_base::text::without_credentials(&wheel.url),
            wheel.url
        );
        assert!(!wheel.url.contains(char::is_whitespace), "{}", wheel.url);
        assert!(!wheel.file.contains(['/', '\0']), "{}", wheel.file);
        assert_eq!(
            sconce_formats::normalize_project_name(&wheel.name).as_ref(),
            Some(&wheel.name)
        );
        assert!(
            WheelName::parse(&wheel.file).is_some_and(|name| name.tag_priority(TARGET).is_some())
        );
    }
    assert!(wheels.is_sorted_by(|a, b| a.name < b.name));
}

pub(crate) fn pylock_seeds() -> Vec<Vec<u8>> {
    let mut seeds = fixtures(&["crates/sconce-resolve/tests/data/pylock.toml"]);
    let digest = "c1fda9e7".repeat(8);
    seeds.push(
        format!(
            "lock-version = \"1.0\"\n[[packages]]\nname = \"demo\"\nversion = \"1.0\"\n\
             wheels = [{{ url = \"https://u:p@a.example.org/demo-1.0-py3-none-any.whl?x#y\", \
             size = 3, hashes = {{ sha256 = \"{digest}\" }} }}, {{ path = \"../w/demo-1.0-1-cp313-cp313-manylinux_2_28_x86_64.whl\", \
             hashes = {{ sha256 = \"{digest}\" }} }}]\n"
        )
        .into_bytes(),
    );
    seeds.push(
        b"demo-1.0-2b-cp313.cp312-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl".to_vec(),
    );
    seeds
}
