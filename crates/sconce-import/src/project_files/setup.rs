//! `setup.py` and `setup.cfg`: what setuptools would say, read and never run.

use std::collections::BTreeMap;

use crate::draft::Draft;
use crate::project_files::requirements::RequirementsScan;
use crate::project_table::{is_package_text, note_choices, refuses_package_text};
use crate::python::{
    ConstantTable, LogicalLine, MAX_SOURCE_BYTES, PythonToken, PythonValue, UNKNOWN_ARGUMENTS,
    UndecidedList, split_logical_lines,
};
use crate::requirement::{self, Requirement};
use crate::setup_cfg::config_values;
use crate::{ImportError, ImportedSpec, SiblingFiles, inside, scm};
use sconce_formats::scm_version::{ScmSettings, VersionFile};

/// Extras whose requirements are read.
const MAX_EXTRAS: usize = 200;
/// Requirements that are read of one list.
const MAX_REQUIREMENTS: usize = 2000;

const UNDECIDED: &str = "setup.py asks for it under a condition that is not known without running it, and it is taken; \
     what it would ask for otherwise goes into `[python] packages`";

/// What a project says of itself, as far as it can be told without running it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SetupFacts {
    pub(crate) name: Option<String>,
    pub(crate) requires: Vec<Requirement>,
    pub(crate) extras: Vec<String>,
    /// What each extra asks for.
    pub(crate) optional: Vec<(String, Vec<Requirement>)>,
    /// Modules that its console scripts begin in.
    pub(crate) scripts: Vec<String>,
    pub(crate) version: Option<String>,
    /// `python_requires`
    pub(crate) requires_python: Option<String>,
    /// Entry points by group and name.
    pub(crate) entry_points: EntryPoints,
    /// The folder that its modules are imported from, where that is said.
    pub(crate) module_root: Option<String>,
    /// Whether it computes what it requires, so that not all of it is known.
    pub(crate) is_partial: bool,
    /// Of what it requires, what its setup.py takes under conditions that are not known.
    pub(crate) undecided: Vec<UndecidedList>,
    /// Where its version comes from, where that is its repository.
    pub(crate) scm: Option<ScmSettings>,
    /// The module that it writes its version to, where it is not there.
    pub(crate) version_file: Option<VersionFile>,
}

/// Entry points by group and name: `console_scripts`, `tool`, `package.module:main`.
pub(crate) type EntryPoints = BTreeMap<String, BTreeMap<String, String>>;

/// The files of the spec's folder together.
pub(crate) fn read_facts(beside: SiblingFiles<'_>) -> Option<SetupFacts> {
    let python = beside("setup.py").and_then(|text| python_facts(&text, beside));
    let config = beside("setup.cfg").and_then(|text| config_facts(&text, beside));
    match (python, config) {
        (Some(mut facts), Some(more)) => {
            facts.name = facts.name.or(more.name);
            facts.version = facts.version.or(more.version);
            facts.requires_python = facts.requires_python.or(more.requires_python);
            facts.module_root = facts.module_root.or(more.module_root);
            facts.is_partial |= more.is_partial;
            facts.undecided.extend(more.undecided);
            facts.scm = facts.scm.or(more.scm);
            facts.optional.extend(more.optional);
            for (group, points) in more.entry_points {
                facts.entry_points.entry(group).or_default().extend(points);
            }
            facts.requires.extend(more.requires);
            facts.extras.extend(more.extras);
            facts.scripts.extend(more.scripts);
            Some(facts)
        }
        (facts, more) => facts.or(more),
    }
}

pub(crate) fn convert(
    path: &str,
    text: &str,
    beside: SiblingFiles<'_>,
) -> Result<ImportedSpec, ImportError> {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let below = |name: &str| match folder {
        "." => beside(name),
        folder => beside(&format!("{folder}/{name}")),
    };
    // The text that is given counts, whatever lies there.
    let name = if name == "setup.cfg" {
        name
    } else {
        "setup.py"
    };
    let own = |asked: &str| match asked == name {
        true => Some(text.to_owned()),
        false => below(asked),
    };
    let Some(facts) = read_facts(&own) else {
        return Err(ImportError::Nothing {
            missing: "no call of setup() and no [options]",
        });
    };
    let mut draft = Draft::default();
    if let Some(name) = &facts.name {
        draft.set_name(name);
    }
    let extras = facts.extras.iter().map(String::as_str);
    note_choices(extras, None, "extras", &mut draft);
    let none = facts.requires.is_empty();
    for list in &facts.undecided {
        draft.note_decision(list.line, &list.texts.join(", "), UNDECIDED.to_owned());
    }
    draft.add_requirements(None, facts.requires);
    // A setup.cfg alone is not installed by anything.
    let pyproject = below("pyproject.toml");
    let refused = pyproject.as_deref().is_some_and(refuses_package_text);
    let installable =
        own("setup.py").is_some() || pyproject.as_deref().is_some_and(is_package_text);
    let installable = installable && !refused;
    if !installable {
        if none {
            return Err(ImportError::Nothing {
                missing: "no install_requires",
            });
        }
        return Ok(draft.finish());
    }
    draft.add_editable(None, folder);
    Ok(draft.finish_referring())
}

fn python_facts(text: &str, beside: SiblingFiles<'_>) -> Option<SetupFacts> {
    if text.len() > MAX_SOURCE_BYTES {
        return None;
    }
    let (table, calls) = ConstantTable::read_calls(text, "setup");
    let call = calls.iter().max_by_key(|call| match call {
        PythonValue::Map(pairs) => pairs.len(),
        _ => 0,
    })?;
    let source = text;
    let text = |key: &str| call.get(key)?.as_text().map(str::to_owned);
    let root = call.get("package_dir").and_then(|folders| folders.get(""));
    let mut facts = SetupFacts {
        scm: scm::of_setup_call(call, source, beside),
        name: text("name"),
        version: text("version"),
        requires_python: text("python_requires"),
        module_root: root.and_then(PythonValue::as_text).map(str::to_owned),
        version_file: find_version_file(source, beside),
        ..SetupFacts::default()
    };
    if facts.version_file.is_some() && facts.version.is_none() {
        let version = beside("VERSION").unwrap_or_default();
        let version = version.trim();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit())
            && version.len() < 40
            && version
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '.');
        facts.version = is_version.then(|| version.to_owned());
    }
    if let Some(requires) = call.get("install_requires").or(call.get("requires")) {
        facts.is_partial |= !requires.is_known();
        facts.is_partial |= !add_value(requires, beside, &mut facts.requires);
    } else {
        facts.is_partial = call.get(UNKNOWN_ARGUMENTS).is_some();
    }
    if let Some(PythonValue::Map(extras)) = call.get("extras_require") {
        let names = extras.iter().filter_map(|(name, _)| name.split(':').next());
        facts.extras = names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        facts.extras.dedup();
        for (name, value) in extras.iter().take(MAX_EXTRAS) {
            let mut requires = Vec::new();
            add_value(value, beside, &mut requires);
            // `:python_version < "3.9"` and `gpu:sys_platform == "linux"`, as setuptools had markers first.
            let (extra, marker) = name.split_once(':').unwrap_or((name, ""));
            if !marker.is_empty() {
                let texts = requires
                    .iter()
                    .map(|one| format!("{} ; {marker}", one.text));
                requires = texts
                    .filter_map(|text| requirement::parse(&text).ok())
                    .collect();
            }
            let mut known = facts.optional.iter_mut();
            match known.find(|(known, _)| known == extra) {
                _ if extra.is_empty() => facts.requires.extend(requires),
                Some((_, list)) => list.extend(requires),
                None => facts.optional.push((extra.to_owned(), requires)),
            }
        }
    }
    let all = facts.optional.iter().flat_map(|(_, requires)| requires);
    let all: Vec<&Requirement> = all.chain(&facts.requires).collect();
    let is_required = |text: &String| {
        let parsed = requirement::parse(text);
        parsed.is_ok_and(|one| all.iter().any(|known| known.text == one.text))
    };
    for list in table.undecided_lists() {
        let texts = list.texts.iter().filter(|text| is_required(text));
        let texts: Vec<String> = texts.cloned().collect();
        if !texts.is_empty() {
            facts.undecided.push(UndecidedList {
                line: list.line,
                texts,
            });
        }
    }
    if let Some(points) = call.get("entry_points") {
        let scripts = points.get("console_scripts").unwrap_or(points);
        add_scripts(scripts, &mut facts.scripts);
        add_entry_points(points, &mut facts.entry_points);
    }
    Some(facts)
}

/// Requirements, files of requirements, and text with one a line.
/// What BasicSR's family has: `version_file = 'basicsr/version.py'`, which setup.py writes before it is installed, and
/// which the package imports.
const WRITTEN_VERSION: &str = "__version__ = version = short_version = '{version}'\n__gitsha__ = 'unknown'\n\
     version_info = {version_tuple}\n";

/// A module named `version.py` that a setup.py opens to write, and that is not there.
fn find_version_file(source: &str, beside: SiblingFiles<'_>) -> Option<VersionFile> {
    let lines = split_logical_lines(source);
    let path = lines.iter().find_map(|line| match line.tokens.as_slice() {
        [PythonToken::Name(_), sign, PythonToken::Text(path)] if sign.is_sign('=') => {
            path.ends_with("/version.py").then(|| path.clone())
        }
        _ => None,
    })?;
    let writes = |line: &LogicalLine<'_>| {
        let opens = line.tokens.iter().any(|t| t.as_name() == Some("open"));
        opens && line.tokens.contains(&PythonToken::Text("w".to_owned()))
    };
    let path = inside(&path)?;
    (lines.iter().any(writes) && beside(&path).is_none()).then(|| VersionFile {
        path,
        template: Some(WRITTEN_VERSION.to_owned()),
    })
}

/// Gives whether every file that is named is there. One that lies in `requirements` is often named without it.
fn add_value(value: &PythonValue, beside: SiblingFiles<'_>, found: &mut Vec<Requirement>) -> bool {
    let mut is_there = true;
    match value {
        PythonValue::List(list) => {
            for one in list {
                is_there &= add_value(one, beside, found);
            }
        }
        PythonValue::Text(text) => add_lines(text, found),
        PythonValue::File(path) => {
            let name = path.trim_start_matches('/');
            let mut places = [name.to_owned(), format!("requirements/{name}")].into_iter();
            let file = places.find_map(|place| {
                let place = inside(&place)?;
                Some((beside(&place)?, place))
            });
            is_there = file.is_some();
            if let Some((text, path)) = file {
                let scan = RequirementsScan::scan_file(&path, &text, beside);
                found.extend(scan.requirements.into_iter().map(|(_, one)| one));
            }
        }
        PythonValue::Map(_) | PythonValue::Unknown => {}
    }
    found.truncate(MAX_REQUIREMENTS);
    is_there
}

fn add_lines(text: &str, found: &mut Vec<Requirement>) {
    for line in text.lines().take(MAX_REQUIREMENTS) {
        let line = line.split(" #").next().unwrap_or_default().trim();
        found.extend(requirement::parse(line).ok());
    }
}

fn add_scripts(value: &PythonValue, found: &mut Vec<String>) {
    match value {
        PythonValue::List(list) => list.iter().for_each(|one| add_scripts(one, found)),
        PythonValue::Text(text) => found.extend(text.lines().filter_map(script_module)),
        _ => {}
    }
    found.truncate(200);
}

/// A map of groups, or the text of an `entry_points.txt`.
fn add_entry_points(value: &PythonValue, found: &mut EntryPoints) {
    match value {
        PythonValue::Map(groups) => {
            for (group, points) in groups {
                let lines = match points {
                    PythonValue::List(list) => {
                        list.iter().filter_map(PythonValue::as_text).collect()
                    }
                    PythonValue::Text(text) => text.lines().collect(),
                    _ => Vec::new(),
                };
                add_points(group, lines.into_iter(), found);
            }
        }
        PythonValue::Text(text) => {
            for (group, key, target) in config_values(text) {
                add_points(
                    group,
                    std::iter::once(format!("{key}={target}").as_str()),
                    found,
                );
            }
        }
        _ => {}
    }
}

/// Lines `tool = package.module:main`; `[extra]` behind one is left out.
fn add_points<'a>(group: &str, lines: impl Iterator<Item = &'a str>, found: &mut EntryPoints) {
    for line in lines.take(MAX_EXTRAS) {
        let Some((name, target)) = line.split_once('=') else {
            continue;
        };
        let target = target.split('[').next().unwrap_or_default().trim();
        let plain = |c: char| c.is_alphanumeric() || "_.:".contains(c);
        if !target.is_empty() && target.chars().all(plain) {
            let points = found.entry(group.trim().to_owned()).or_default();
            points.insert(name.trim().to_owned(), target.to_owned());
        }
    }
}

/// `tool = package.module:main`
fn script_module(line: &str) -> Option<String> {
    let (_, target) = line.split_once('=')?;
    let module = target.split(':').next()?.trim();
    let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    (!module.is_empty() && module.chars().all(plain)).then(|| module.to_owned())
}

/// `[metadata]`, `[options]` and their kind, as configparser has them: a value goes on in lines that are
/// indented.
fn config_facts(text: &str, beside: SiblingFiles<'_>) -> Option<SetupFacts> {
    let mut facts = SetupFacts::default();
    let mut known = text.lines().any(|line| line.trim().starts_with("[options"));
    for (section, key, value) in config_values(text) {
        match (section, key) {
            ("metadata", "name") => facts.name = Some(value.trim().to_owned()),
            // `attr: package.__version__` is code, `file: VERSION` is not worth it.
            ("metadata", "version") if !value.contains(':') => {
                facts.version = Some(value.trim().to_owned());
            }
            ("options", "python_requires") => {
                facts.requires_python = Some(value.trim().to_owned());
            }
            ("options", "package_dir") => {
                let root = value.lines().find_map(|line| line.trim().strip_prefix('='));
                facts.module_root = root.map(|root| root.trim().to_owned());
            }
            ("options", "install_requires") => {
                known = true;
                match value.trim().strip_prefix("file:") {
                    Some(files) => {
                        for file in files.split([',', '\n']).map(str::trim) {
                            let file = PythonValue::File(file.to_owned());
                            add_value(&file, beside, &mut facts.requires);
                        }
                    }
                    None => add_lines(&value.replace(';', " ;"), &mut facts.requires),
                }
            }
            ("options", _) => known = true,
            ("options.extras_require", name) => {
                let mut requires = Vec::new();
                add_lines(&value.replace(';', " ;"), &mut requires);
                facts.optional.push((name.to_owned(), requires));
                facts.extras.push(name.to_owned());
            }
            ("options.entry_points", group) => {
                if group == "console_scripts" {
                    let modules = value.lines().filter_map(script_module);
                    facts.scripts.extend(modules);
                }
                add_points(group, value.lines(), &mut facts.entry_points);
            }
            _ => {}
        }
    }
    known.then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::format_notes;

    fn read(files: &[(&str, &str)]) -> Result<ImportedSpec, ImportError> {
        let beside = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        };
        convert(files[0].0, files[0].1, &beside)
    }

    fn provided(adopted: &ImportedSpec) -> Vec<&str> {
        adopted.provided.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_project_with_a_setup_is_installed() {
        let adopted = read(&[
            (
                "setup.py",
                "from setuptools import setup, find_packages\nextras = {'train': ['wandb']}\nextras['dev'] = ['ruff']\n\
                 setup(name='My Net', package_dir={'': 'src'}, packages=find_packages(where='src'),\n\
                 python_requires='>=3.8', install_requires=['torch>=2', 'numpy'] + open('r.txt').read().splitlines(),\n\
                 extras_require=extras, entry_points={'console_scripts': ['net = net.cli:main']})\n",
            ),
            ("r.txt", "tqdm  # why\n-e .\n"),
        ])
        .unwrap();
        assert_eq!(adopted.spec.name.as_deref(), Some("My-Net"));
        let python = &adopted.spec.python;
        assert_eq!(python.editable, ["."]);
        assert!(python.packages.is_empty() && python.version.is_none());
        assert_eq!(provided(&adopted), ["numpy", "torch", "tqdm"]);
        assert_eq!(
            format_notes(&adopted),
            "decided: the extras train: not installed; `extras` in [python] chooses some of them\n"
        );
    }

    #[test]
    fn a_setup_cfg_counts_where_the_project_can_be_built() {
        let config = (
            "setup.cfg",
            "[metadata]\nname = net\n# why\n[options]\ninstall_requires =\n    torch>=2\n    numpy; python_version<'3.12'\n\
             [options.extras_require]\ntrain = wandb\n[options.entry_points]\nconsole_scripts =\n    net = net.cli:main\n",
        );
        let adopted = read(&[config]).unwrap();
        assert_eq!(adopted.spec.python.editable, [""; 0]);
        assert_eq!(adopted.spec.python.packages.len(), 2);
        for more in [
            ("setup.py", "setup()"),
            ("pyproject.toml", "[build-system]\n"),
        ] {
            let adopted = read(&[config, more]).unwrap();
            assert_eq!(adopted.spec.python.editable, ["."]);
            assert_eq!(provided(&adopted), ["numpy", "torch"]);
        }
        let settings = ("setup.cfg", "[flake8]\nignore = E1\n");
        assert!(matches!(
            read(&[settings]),
            Err(ImportError::Nothing { .. })
        ));
        assert!(matches!(
            read(&[("setup.py", "print(1)")]),
            Err(ImportError::Nothing { .. })
        ));
    }

    #[test]
    fn modules_of_scripts_are_known() {
        let beside = |path: &str| match path {
            "setup.py" => {
                Some("setup(entry_points='''[console_scripts]\na = b.c:d\n''')".to_owned())
            }
            "setup.cfg" => {
                Some("[options]\n[options.entry_points]\nconsole_scripts =\n  e=f:g\n".to_owned())
            }
            _ => None,
        };
        assert_eq!(read_facts(&beside).unwrap().scripts, ["b.c", "f"]);
    }
}
