//! conda's `environment.yml`, by hand or from `conda env export`.

use sconce_formats::is_known_project;

use super::conda_names::{ALONE, CondaMapping, UNKNOWN, describe_sources, find_mapping};
use super::draft::Draft;
use super::requirement;
use super::yaml::{self, YamlNode};
use super::{ImportError, ImportedSpec, SiblingFiles};
use crate::project_files::requirements::RequirementsScan;

pub(crate) const CUDA: &str = "torch's wheels bring their own CUDA; for another one, name PyTorch's own index (it ends in /whl/cu124 or the like) as `[python] extra-index`";
pub(crate) const COMPILER: &str = "nothing is compiled while an environment is made; what compiles in a run has gcc and g++ by default where torch or Triton is locked, and `[system] compiler = true` brings them elsewhere";
const DEBIANS: &str = "in Debian's version";
const VERSION: &str = "the version is not understood, so any is taken";

/// The packages of conda whose version is that of CUDA.
const CUDA_VERSIONS: [&str; 3] = ["cudatoolkit", "pytorch-cuda", "cuda-version"];

/// More values than any environment.yml has.
const MAX_VALUES: usize = 50_000;

/// A line of conda: `channel::name=version=build`.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    name: String,
    /// As pip has it; `Err` where it is not understood.
    version: Result<String, ()>,
    /// As written: what stands where a version does.
    written: &'a str,
}

pub(super) fn convert(text: &str, beside: SiblingFiles<'_>) -> Result<ImportedSpec, ImportError> {
    let mut draft = Draft::default();
    convert_into(text, beside, None, &mut draft)?;
    Ok(draft.finish())
}

/// Reads `text` into the draft; every note has the line `place`, where it is given.
pub(super) fn convert_into(
    text: &str,
    beside: SiblingFiles<'_>,
    place: Option<usize>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let root = yaml::parse(text, MAX_VALUES)?;
    let nothing = ImportError::Nothing {
        missing: "no list `dependencies`",
    };
    let Some(root) = root else {
        return Err(nothing);
    };
    let Some(dependencies) = root.get("dependencies") else {
        return Err(nothing);
    };
    if let Some(name) = root.get("name").and_then(YamlNode::as_text)
        && place.is_none()
        && name != "base"
    {
        draft.set_name(name);
    }
    let named: Vec<&str> = (dependencies.as_list().iter())
        .filter_map(YamlNode::as_text)
        .collect();
    if let Some(major) = named.iter().find_map(|text| find_cuda_major(text)) {
        draft.set_cuda_of_wheels(&major);
    }
    let mut unneeded = Vec::new();
    for node in dependencies.as_list() {
        let line = Some(place.unwrap_or(node.line));
        match node.as_text() {
            Some(text) => add_dependency(text, line, draft, &mut unneeded),
            None => pip(node, place, beside, draft),
        }
    }
    note_unneeded(place, &unneeded, draft);
    for (name, value) in root
        .get("variables")
        .map(YamlNode::as_map)
        .unwrap_or_default()
    {
        let line = Some(place.unwrap_or(value.line));
        draft.add_variable(line, name, value.as_text().unwrap_or_default());
    }
    Ok(())
}

/// Notes what [`add_dependency`] found that an environment has without its being named.
pub(super) fn note_unneeded(place: Option<usize>, unneeded: &[String], draft: &mut Draft) {
    let names = match unneeded {
        [] => return,
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    };
    let why = "wheels and the base of every environment bring their own".to_owned();
    draft.note_decision(place, &names, why);
}

/// Whether an index or Debian has what conda calls so.
pub(super) fn is_installable(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "python"
        || matches!(
            find_mapping(&name),
            Some(
                CondaMapping::Python(_)
                    | CondaMapping::CudaWheels(_)
                    | CondaMapping::Sources(_)
                    | CondaMapping::Debian(_)
            )
        )
}

/// Adds what a package that is named on a line means, or notes why it is left out. The names of those that an
/// environment has anyway go to `unneeded`, for one note of all.
pub(super) fn add_dependency(
    text: &str,
    line: Option<usize>,
    draft: &mut Draft,
    unneeded: &mut Vec<String>,
) {
    let Some(read) = read(text) else {
        draft.left_out(line, text, requirement::NOT_ONE);
        return;
    };
    let name = read.name.as_str();
    if name == "python" {
        python(&read, line, draft);
        return;
    }
    match find_mapping(name) {
        // Installers are no part of an environment, unless a version is asked for.
        Some(CondaMapping::Python(project))
            if matches!(project.as_str(), "pip" | "setuptools" | "wheel") => {}
        // Of an export, in the version that was built beside the others: what requires it brings it.
        Some(CondaMapping::Dependency(_)) if read.has_build() => unneeded.push(name.to_owned()),
        Some(CondaMapping::Python(project) | CondaMapping::Dependency(project)) => {
            // `pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0`
            let cuda = read
                .written
                .split('_')
                .find_map(|part| part.strip_prefix("cuda"));
            if let Some(cuda) = cuda.filter(|cuda| project == "torch" && is_cuda_version(cuda)) {
                draft.request_cuda(line, text, cuda, CUDA);
            }
            add_project(&project, &read, text, line, draft);
        }
        Some(CondaMapping::CudaWheels(projects)) => {
            let projects = projects.iter().map(|project| draft.cuda_wheel(project));
            let projects: Vec<String> = projects.collect();
            for project in &projects {
                add_project(project, &read, text, line, draft);
            }
            let why = format!(
                "NVIDIA's prebuilt wheel of the index, {}",
                projects.join(", ")
            );
            draft.note_decision(line, text, why);
        }
        Some(CondaMapping::Sources(source)) => {
            let version = read.version.as_deref().unwrap_or_default();
            let exact = version
                .strip_prefix("==")
                .filter(|v| !v.contains(['*', ',']));
            let requirement = source.requirement(exact);
            draft.note_unknown(name);
            draft.offer(line, &requirement);
            draft.left_out(line, text, describe_sources(&requirement));
        }
        Some(CondaMapping::CondaAlone) => {
            draft.note_unknown(name);
            draft.left_out(line, text, ALONE);
        }
        Some(CondaMapping::Debian(package)) => {
            draft.add_system_package(line, package);
            if !read.written.is_empty() {
                draft.note_decision(line, text, DEBIANS.to_owned());
            }
        }
        Some(CondaMapping::Cuda) => {
            let version = read.version.as_deref().unwrap_or_default();
            let version = version.trim_start_matches('=').trim_end_matches(".*");
            match CUDA_VERSIONS.contains(&name) && is_cuda_version(version) {
                true => draft.request_cuda(line, text, version, CUDA),
                false => draft.left_out(line, text, CUDA),
            }
        }
        Some(CondaMapping::Compiler) => draft.left_out(line, text, COMPILER),
        Some(CondaMapping::Unneeded) => unneeded.push(name.to_owned()),
        None if is_known_project(name) => add_project(name, &read, text, line, draft),
        None => {
            draft.note_unknown(name);
            draft.left_out(line, text, UNKNOWN);
        }
    }
}

impl Line<'_> {
    /// Whether a build of conda's is named, as `conda env export` does.
    fn has_build(&self) -> bool {
        let bare = self.written.trim_start_matches('=').trim();
        bare.contains(['=', ' ']) && !bare.contains(['<', '>', ','])
    }
}

/// A project of the Python package index, in the version that is read.
fn add_project(project: &str, read: &Line<'_>, text: &str, line: Option<usize>, draft: &mut Draft) {
    let version = read.version.clone().unwrap_or_else(|()| {
        draft.note_decision(line, text, VERSION.to_owned());
        String::new()
    });
    match requirement::parse(&format!("{project}{version}")) {
        Ok(requirement) => draft.add_requirements(line, vec![requirement]),
        Err(why) => draft.left_out(line, text, why),
    }
}

/// The major version of the CUDA that a line asks for: `12` of `cuda-version>=12.0,<=12.8`.
fn find_cuda_major(text: &str) -> Option<String> {
    let read = read(text)?;
    if !CUDA_VERSIONS.contains(&read.name.as_str()) {
        return None;
    }
    let version = read.version.ok()?;
    let digits = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit());
    let major = &digits[..end.unwrap_or(digits.len())];
    (1..=2).contains(&major.len()).then(|| major.to_owned())
}

/// `11.3`, `12.4.1`
fn is_cuda_version(version: &str) -> bool {
    let digits =
        |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&version.split('.').count()) && version.split('.').all(digits)
}

fn python(read: &Line<'_>, line: Option<usize>, draft: &mut Draft) {
    match read.version.as_deref() {
        Ok("") => {}
        // `python=3.11` and `python=3.11.8` name one; `>=3.9` allows several.
        Ok(version) => match version.strip_prefix("==").filter(|v| !v.contains(',')) {
            Some(exact) => draft.set_python(line, exact.trim_end_matches(".*")),
            None => draft.requires_python(line, version),
        },
        Err(()) => draft.left_out(line, &format!("python {}", read.written), VERSION),
    }
}

/// `- pip: […]`.
fn pip(node: &YamlNode, place: Option<usize>, beside: SiblingFiles<'_>, draft: &mut Draft) {
    for (key, list) in node.as_map() {
        if key != "pip" {
            draft.left_out(place.unwrap_or(list.line), key, requirement::NOT_ONE);
            continue;
        }
        let entries: Vec<(usize, String)> = list
            .as_list()
            .iter()
            .filter_map(|entry| Some((entry.line, entry.as_text()?.replace(['\n', '\r'], " "))))
            .collect();
        let texts: Vec<&str> = entries.iter().map(|(_, text)| text.as_str()).collect();
        let lines: Vec<usize> = entries.iter().map(|(line, _)| *line).collect();
        let mut scan = RequirementsScan::scan_file("environment.yml", &texts.join("\n"), beside);
        scan.lines_are(&lines);
        scan.copy_into(draft, place);
    }
}

/// Takes a line apart.
fn read(text: &str) -> Option<Line<'_>> {
    let text = text.split('#').next().unwrap_or_default().trim();
    let text = text.rsplit_once("::").map_or(text, |(_, rest)| rest);
    // `name[version='>=1.2']`
    let (text, bracket) = match text.split_once('[') {
        Some((name, inner)) => {
            let inner = inner.strip_suffix(']')?;
            let version = inner
                .split_once("version=")
                .map(|(_, v)| v.trim_matches(['\'', '"']));
            (name.trim(), version.unwrap_or_default())
        }
        None => (text, ""),
    };
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name.len() > 100 {
        return None;
    }
    let rest = rest.trim();
    let written = if rest.is_empty() { bracket } else { rest };
    Some(Line {
        name: name.to_ascii_lowercase(),
        version: version(written).ok_or(()),
        written,
    })
}

/// A version as pip has it: `=1.26`, `=1.26.4=py310_0`, `1.26.4 py310_0`, `>=1.2,<2`.
fn version(written: &str) -> Option<String> {
    if written.is_empty() || written == "*" {
        return Some(String::new());
    }
    let fuzzy = written.starts_with('=') && !written.starts_with("==");
    let bare = written.trim_start_matches('=').trim();
    if fuzzy || written.starts_with(|c: char| c.is_ascii_digit()) {
        // A build string follows `=` or a space, and makes the version an exact one.
        let (version, build) = match bare.split_once(['=', ' ']) {
            Some((version, build)) => (version.trim(), Some(build)),
            None => (bare, None),
        };
        let exact = build.is_some() || !fuzzy || version.split('.').count() > 2;
        return match version.strip_suffix(".*").or(version.strip_suffix('*')) {
            Some(begin) => of_numbers(begin).map(|v| format!("=={v}.*")),
            None if version.contains(['<', '>', ',', '|']) => clauses(version),
            None => of_numbers(version).map(|v| {
                if exact {
                    format!("=={v}")
                } else {
                    format!("=={v}.*")
                }
            }),
        };
    }
    clauses(written)
}

fn clauses(written: &str) -> Option<String> {
    let clauses: Option<Vec<String>> = written
        .split(',')
        .map(|clause| {
            let clause = clause.trim();
            let end = clause.find(|c: char| !"<>=!~".contains(c))?;
            let (operator, version) = clause.split_at(end);
            let version = version.trim();
            let (begin, star) = match version.strip_suffix(".*") {
                Some(begin) => (begin, ".*"),
                None => (version, ""),
            };
            let begin = of_numbers(begin)?;
            match (operator, star) {
                ("" | "=", _) => Some(format!("=={begin}.*")),
                ("==" | "!=", star) => Some(format!("{operator}{begin}{star}")),
                // conda passes over the star there.
                (">=" | "<=" | "<" | ">" | "~=", _) => Some(format!("{operator}{begin}")),
                _ => None,
            }
        })
        .collect();
    Some(clauses?.join(","))
}

/// Numbers and points, `rc1` or `.post1` behind them. conda's `2024a` means something else to pip.
fn of_numbers(version: &str) -> Option<&str> {
    let numbers = version.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbers = ["rc", ".post"]
        .iter()
        .find_map(|tail| numbers.strip_suffix(tail))
        .unwrap_or(version);
    let plain = |part: &str| {
        !part.is_empty() && part.len() < 12 && part.bytes().all(|b| b.is_ascii_digit())
    };
    (numbers.split('.').count() < 9 && numbers.split('.').all(plain)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::super::tests::format_notes;
    use super::*;

    fn read_env(text: &str) -> ImportedSpec {
        convert(text, &|_| None).expect("it can be adopted")
    }

    #[test]
    fn versions_become_those_of_pep_440() {
        for (conda, pip) in [
            ("numpy", Some("")),
            ("numpy=1.26", Some("==1.26.*")),
            ("numpy=1.26.4", Some("==1.26.4")),
            ("numpy=1.26=py310_0", Some("==1.26")),
            ("numpy==1.26", Some("==1.26")),
            ("numpy 1.26.*", Some("==1.26.*")),
            ("numpy=1.26.*", Some("==1.26.*")),
            ("numpy=1.*", Some("==1.*")),
            ("numpy 1.26.4 py310_0", Some("==1.26.4")),
            ("numpy >=1.20,<2", Some(">=1.20,<2")),
            ("numpy>=1.20,<2.0.*", Some(">=1.20,<2.0")),
            ("numpy[version='>=1.2']", Some(">=1.2")),
            ("conda-forge::numpy=1.26 # why", Some("==1.26.*")),
            ("numpy=*=*cuda*", None),
            ("numpy=2024a", None),
            ("numpy>=1|<0.5", None),
            ("numpy=2.0.0rc1", Some("==2.0.0rc1")),
        ] {
            let line = read(conda).expect(conda);
            assert_eq!(line.name, "numpy");
            assert_eq!(line.version.ok().as_deref(), pip, "{conda}");
        }
        assert_eq!(read("=1.2"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn an_environment_by_hand() {
        let adopted = read_env(
            "name: seg\nchannels: [pytorch, nvidia]\ndependencies:\n  - python=3.11\n  - pytorch=2.6\n\
             \x20 - pytorch-cuda=12.4\n  - opencv\n  - ffmpeg=6\n  - gxx_linux-64\n  - mystery\n  - pip\n\
             \x20 - pip:\n      - wandb>=0.17\n      - -e .\n      - git+https://git.example.org/x\n\
             variables:\n  OMP_NUM_THREADS: 4\n",
        );
        let spec = &adopted.spec;
        assert_eq!(
            spec.python.packages,
            [
                "torch==2.6.*",
                "opencv-python-headless",
                "wandb>=0.17",
                "git+https://git.example.org/x"
            ]
        );
        assert_eq!(spec.python.editable, ["."]);
        assert_eq!(spec.python.version.as_deref(), Some("3.11"));
        assert_eq!(spec.system.release, "debian/bookworm");
        assert_eq!(spec.system.packages, ["ffmpeg"]);
        assert_eq!(spec.run.env["OMP_NUM_THREADS"], "4");
        assert_eq!(spec.name.as_deref(), Some("seg"));
        let said = format_notes(&adopted);
        for expected in [
            "6 decided: pytorch-cuda=12.4: torch 2.6.* of the main index is built for it",
            "8 decided: ffmpeg=6: in Debian's version",
            "9 left out: gxx_linux-64: nothing is compiled",
            "10 left out: mystery: not known",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn what_only_conda_has_under_a_name_ends_with_a_way() {
        let adopted = read_env(
            "dependencies:\n  - rapids=25.02\n  - cuda-version>=12.0,<=12.8\n  - pytorch3d=0.7.8\n\
             \x20 - pdbfixer\n  - hmmer=3.3\n  - psi4\n  - mystery\n",
        );
        let spec = &adopted.spec;
        let packages = spec.python.packages.join(" ");
        assert_eq!(
            packages,
            "cudf-cu12==25.02.* cugraph-cu12==25.02.* cuml-cu12==25.02.* pdbfixer"
        );
        assert_eq!(spec.system.packages, ["hmmer"]);
        assert!(adopted.unknown.contains("psi4") && adopted.unknown.contains("mystery"));
        let said = format_notes(&adopted);
        for expected in [
            "2 decided: rapids=25.02: NVIDIA's prebuilt wheel of the index, cudf-cu12, cugraph-cu12, cuml-cu12",
            "4 left out: pytorch3d=0.7.8: no index has it, and nothing here imports it; where it is needed, its sources are built: `pytorch3d @ git+https://github.com/facebookresearch/pytorch3d@V0.7.8`",
            "7 left out: psi4: conda alone has it: it runs from an image made with conda",
            "8 left out: mystery: not known under this name outside conda: add its project, or the",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
        let of_13 = read_env("dependencies: [cudf, cuda-version=13]\n");
        assert_eq!(of_13.spec.python.packages, ["cudf-cu13"]);
    }

    #[test]
    fn what_others_require_is_not_pinned_by_an_export() {
        let adopted = read_env(
            "dependencies:\n- jupyter_client=7.3.4=pyhd8ed1ab_0\n- nbclient\n- scikit-learn=1.1.2=py310_0\n",
        );
        assert_eq!(
            adopted.spec.python.packages,
            ["nbclient", "scikit-learn==1.1.2"]
        );
    }

    #[test]
    fn another_cuda_is_a_question() {
        for (text, expected) in [
            (
                "[pytorch=1.12.1, cudatoolkit=11.3]",
                "1 left out: cudatoolkit=11.3: torch 1.12.1 of the main index is built for cu102",
            ),
            (
                "[\"pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0\", cudatoolkit=11.3]",
                "1 left out: pytorch=1.12.1=py3.9_cuda11.3_cudnn8.3.2_0: torch 1.12.1 of the main index is built for cu102",
            ),
            (
                "[cudatoolkit=11.7, pytorch=2.0.1]",
                "1 decided: cudatoolkit=11.7: torch 2.0.1 of the main index is built for it (cu117)",
            ),
            (
                "[cudatoolkit=11.3, pytorch]",
                "1 left out: cudatoolkit=11.3: torch's wheels bring",
            ),
            (
                "[cudatoolkit, pytorch]",
                "1 left out: cudatoolkit: torch's wheels bring",
            ),
        ] {
            let said = format_notes(&read_env(&format!("dependencies: {text}\n")));
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn an_exported_environment() {
        let adopted = read_env(
            "name: base\ndependencies:\n- _libgcc_mutex=0.1=main\n- ca-certificates=2024.7.2=h06a4308_0\n\
             - libffi=3.4.4=h6a678d5_1\n- openssl=3.0.14=h5eee18b_0\n- python=3.10.14=h955ad1f_1\n\
             - numpy=1.26.4=py310h5f9d8c6_0\n- tzdata=2024a=h04d1e81_0\nprefix: /opt/conda\n",
        );
        assert_eq!(adopted.spec.python.packages, ["numpy==1.26.4", "tzdata"]);
        assert_eq!(adopted.spec.python.version.as_deref(), Some("3.10"));
        assert_eq!(adopted.spec.name, None);
        let said = format_notes(&adopted);
        for expected in [
            "_libgcc_mutex, ca-certificates, libffi and 1 more: wheels and the base",
            "9 decided: tzdata=2024a=h04d1e81_0: the version is not understood",
        ] {
            assert!(said.contains(expected), "{expected}\n{said}");
        }
    }

    #[test]
    fn python_may_be_a_range() {
        let adopted = read_env("dependencies: [\"python>=3.9,<3.12\", numpy]\n");
        assert_eq!(adopted.spec.python.version.as_deref(), Some(">=3.9,<3.12"));
        assert_eq!(adopted.spec.system.release, "debian/trixie");
        let adopted = read_env("dependencies: [\"python>=3.8\", numpy]\n");
        assert_eq!(adopted.spec.python.version, None);
        let said = format_notes(&read_env("dependencies: [python=3.7]\n"));
        assert!(
            said.contains("1 left out: Python 3.7: out of reach: Pythons from 3.8"),
            "{said}"
        );
    }

    #[test]
    fn what_is_no_environment_is_refused() {
        for text in ["", "a: 1\n", "- a\n", "services:\n  web: {image: x}\n"] {
            let error = convert(text, &|_| None).unwrap_err();
            assert!(matches!(error, ImportError::Nothing { .. }), "{text}");
        }
    }
}
