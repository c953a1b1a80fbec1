//! The version that a build backend reads from a module or a file: a constant there, and nothing is run.
//!
//! setuptools: <https://setuptools.pypa.io/en/latest/userguide/pyproject_config.html#dynamic-metadata>, hatchling:
//! <https://hatch.pypa.io/latest/plugins/version-source/>, flit: <https://flit.pypa.io/en/stable/pyproject_toml.html>,
//! PDM: <https://backend.pdm-project.org/metadata/#dynamic-project-version>.

use toml::{Table, Value};

use super::setup_version::find_version_sources;
use crate::project_table::tool_table;
use crate::python::{LogicalLine, MAX_SOURCE_BYTES, PythonToken, split_logical_lines};
use crate::setup_cfg::config_values;
use crate::{SiblingFiles, inside};

/// The name of nearly all.
const VERSION: &str = "__version__";
/// Modules that take it from each other.
const MAX_HOPS: usize = 3;

/// Where a version stands.
#[derive(Debug, PartialEq, Eq)]
enum VersionPlace {
    /// `package.module.__version__`
    Attribute(String),
    /// A module's file, in which `__version__` or `VERSION` is set.
    Module(String),
    /// A file that is the version.
    File(String),
}

/// The version of the project called `name`, whose modules lie in `module_root`, where its files say that it is a
/// constant in one of them.
#[must_use]
pub fn read_static_version(
    name: &str,
    module_root: &str,
    beside: SiblingFiles<'_>,
) -> Option<String> {
    let root = beside("pyproject.toml").and_then(|text| text.parse::<Table>().ok());
    let root = root.unwrap_or_default();
    let read = |path: &str| beside(&inside(path)?).filter(|text| text.len() <= MAX_SOURCE_BYTES);
    let files = VersionFiles {
        module_root,
        read: &read,
    };
    let config = || place_of_config(&beside("setup.cfg")?);
    let version = match place_of_pyproject(&root, name).or_else(config) {
        Some(place) => files.read_place(&place)?,
        None if is_of_setuptools(&root) => files.read_setup(&read("setup.py")?)?,
        None => return None,
    };
    sound_version(&version)
}

/// A version without its `v`; `None` for what is none.
fn sound_version(version: &str) -> Option<String> {
    let version = version.trim();
    let version = version.strip_prefix('v').unwrap_or(version);
    let is_sound = |c: char| c.is_ascii_alphanumeric() || ".+!-_".contains(c);
    let begins = version.starts_with(|c: char| c.is_ascii_digit());
    (begins && version.len() < 60 && version.chars().all(is_sound)).then(|| version.to_owned())
}

/// Whether a setup.py counts.
fn is_of_setuptools(root: &Table) -> bool {
    let backend = root
        .get("build-system")
        .and_then(|system| system.get("build-backend")?.as_str());
    backend.is_none_or(|backend| backend.starts_with("setuptools"))
}

/// The files of a project, in which a version stands.
struct VersionFiles<'a> {
    module_root: &'a str,
    read: &'a dyn Fn(&str) -> Option<String>,
}

impl VersionFiles<'_> {
    fn read_place(&self, place: &VersionPlace) -> Option<String> {
        match place {
            VersionPlace::File(path) => (self.read)(path),
            VersionPlace::Module(path) => {
                let text = (self.read)(path)?;
                let lines = split_logical_lines(&text);
                find_constant(&lines, VERSION).or_else(|| find_constant(&lines, "VERSION"))
            }
            VersionPlace::Attribute(path) => {
                let (module, name) = path.rsplit_once('.')?;
                self.read_attribute(module, name)
            }
        }
    }

    fn read_attribute(&self, module: &str, name: &str) -> Option<String> {
        let read = |module: &str| {
            let path = module.replace('.', "/");
            let roots = [self.module_root, ".", "src"].into_iter();
            let mut files = roots.flat_map(|root| {
                [
                    format!("{root}/{path}.py"),
                    format!("{root}/{path}/__init__.py"),
                ]
            });
            files.find_map(|file| (self.read)(&file))
        };
        read_attribute(module, name, &read, 0)
    }

    /// The version that a setup.py takes from a file of the project, where all that it may take it from say the same.
    fn read_setup(&self, text: &str) -> Option<String> {
        let sources = find_version_sources(text, &|path| (self.read)(path).is_some())?;
        let of_files = sources.files.iter().filter_map(|path| self.read_file(path));
        let modules = sources.modules.iter();
        let of_modules = modules.filter_map(|module| self.read_module(module));
        let mut versions = of_files.chain(of_modules);
        let version = versions.next()?;
        versions.all(|other| other == version).then_some(version)
    }

    /// The version in a module, or that a text file is.
    fn read_file(&self, path: &str) -> Option<String> {
        if let Some(module) = path.strip_suffix(".py") {
            let module = module.strip_suffix("/__init__").unwrap_or(module);
            return self.read_module(&module.replace('/', "."));
        }
        let is_named = path.to_ascii_lowercase().contains("version");
        let text = (self.read)(path).filter(|_| is_named)?;
        sound_version(&text)
    }

    fn read_module(&self, module: &str) -> Option<String> {
        let mut names = [VERSION, "VERSION", "version"].into_iter();
        names.find_map(|name| self.read_attribute(module, name))
    }
}

fn place_of_pyproject(root: &Table, name: &str) -> Option<VersionPlace> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let setuptools =
        tool_table(root, "setuptools").and_then(|tool| tool.get("dynamic")?.get("version"));
    if let Some(version) = setuptools {
        let file = match version.get("file") {
            Some(Value::Array(files)) => files.first(),
            file => file,
        };
        let attribute = text(version.get("attr")).map(VersionPlace::Attribute);
        return attribute.or_else(|| text(file).map(VersionPlace::File));
    }
    let hatch = tool_table(root, "hatch").and_then(|tool| tool.get("version")?.as_table());
    if let Some(version) = hatch {
        // A pattern or an expression of its own is more than a constant.
        let own = ["pattern", "expression", "source"];
        let is_plain = own.iter().all(|key| !version.contains_key(*key));
        return text(version.get("path"))
            .filter(|_| is_plain)
            .map(VersionPlace::Module);
    }
    let pdm = tool_table(root, "pdm").and_then(|tool| tool.get("version")?.as_table());
    if let Some(version) = pdm {
        let is_file = version.get("source").and_then(Value::as_str) == Some("file");
        return text(version.get("path"))
            .filter(|_| is_file)
            .map(VersionPlace::Module);
    }
    let backend = root
        .get("build-system")
        .and_then(|system| system.get("build-backend")?.as_str());
    let is_flit = backend.is_some_and(|backend| backend.starts_with("flit_core"));
    is_flit.then(|| {
        let module =
            tool_table(root, "flit").and_then(|tool| tool.get("module")?.get("name")?.as_str());
        let module = module.unwrap_or(name).replace('-', "_");
        VersionPlace::Attribute(format!("{module}.{VERSION}"))
    })
}

/// `version = attr: net.__version__`, `version = file: VERSION`
fn place_of_config(text: &str) -> Option<VersionPlace> {
    let values = config_values(text).into_iter();
    let mut versions =
        values.filter(|(section, key, _)| (*section, *key) == ("metadata", "version"));
    let (kind, value) = versions
        .next()?
        .2
        .split_once(':')
        .map(|(kind, value)| (kind.trim().to_owned(), value.trim().to_owned()))?;
    match kind.as_str() {
        "attr" => Some(VersionPlace::Attribute(value)),
        "file" => Some(VersionPlace::File(value)),
        _ => None,
    }
}

/// What a module sets a name to, or imports it as from another one of its package.
fn read_attribute(
    module: &str,
    name: &str,
    read: &dyn Fn(&str) -> Option<String>,
    hops: usize,
) -> Option<String> {
    let text = read(module)?;
    let lines = split_logical_lines(&text);
    if let Some(version) = find_constant(&lines, name) {
        return Some(version);
    }
    let names = |token: &PythonToken<'_>| token.as_name() == Some(name);
    let source = lines.iter().find_map(|line| match line.tokens.as_slice() {
        // `from .version import __version__`
        [
            PythonToken::Name("from"),
            PythonToken::Sign('.'),
            PythonToken::Name(of),
            PythonToken::Name("import"),
            rest @ ..,
        ] if rest.iter().any(names) => Some(format!("{module}.{of}")),
        // `from net.version import __version__`
        [
            PythonToken::Name("from"),
            PythonToken::Name(package),
            PythonToken::Sign('.'),
            PythonToken::Name(of),
            PythonToken::Name("import"),
            rest @ ..,
        ] if rest.iter().any(names) => Some(format!("{package}.{of}")),
        _ => None,
    })?;
    (hops < MAX_HOPS)
        .then(|| read_attribute(&source, name, read, hops + 1))
        .flatten()
}

/// The constant that a name stands for in a module: text, or numbers that are joined by points. `None` where it is set
/// to anything else, too.
fn find_constant(lines: &[LogicalLine<'_>], name: &str) -> Option<String> {
    let mut found = None;
    for line in lines {
        let tokens = line.tokens.as_slice();
        let Some(value) = assigned_value(tokens, name) else {
            continue;
        };
        let value = match value {
            [PythonToken::Text(text)] => text.clone(),
            [
                PythonToken::Sign('(' | '['),
                inner @ ..,
                PythonToken::Sign(')' | ']'),
            ] => {
                let parts = inner.split(|token| token.is_sign(','));
                let parts = parts
                    .filter(|part| !part.is_empty())
                    .map(|part| match part {
                        [PythonToken::Number(number)] => Some((*number).to_owned()),
                        [PythonToken::Text(text)] => Some(text.clone()),
                        _ => None,
                    });
                parts.collect::<Option<Vec<_>>>()?.join(".")
            }
            _ => return None,
        };
        if line.indent > 0 || found.is_some_and(|known| known != value) {
            return None;
        }
        found = Some(value);
    }
    found
}

/// `name = value`, `name: str = value`, `name = other = value`
fn assigned_value<'t, 'a>(
    tokens: &'t [PythonToken<'a>],
    name: &str,
) -> Option<&'t [PythonToken<'a>]> {
    let is_name = |token: &PythonToken<'_>| matches!(token, PythonToken::Name(_));
    let mut rest = tokens;
    let mut is_it = false;
    loop {
        rest = match rest {
            [first, PythonToken::Sign('='), second, ..]
                if is_name(first) && !second.is_sign('=') =>
            {
                is_it |= first.as_name() == Some(name);
                &rest[2..]
            }
            [
                first,
                PythonToken::Sign(':'),
                PythonToken::Name(_),
                PythonToken::Sign('='),
                ..,
            ] if is_name(first) => {
                is_it |= first.as_name() == Some(name);
                &rest[4..]
            }
            _ => break,
        };
    }
    is_it.then_some(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(files: &[(&str, &str)]) -> Option<String> {
        let beside = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path)?;
            Some(found.1.to_owned())
        };
        read_static_version("my-net", ".", &beside)
    }

    #[test]
    fn constants_that_backends_read_are_the_version() {
        let attribute = "[tool.setuptools.dynamic]\nversion = { attr = 'net.__version__' }\n";
        let hatch = "[tool.hatch.version]\npath = 'src/net/__about__.py'\n";
        let flit = "[build-system]\nbuild-backend = 'flit_core.buildapi'\n";
        for (pyproject, file, text, expected) in [
            (
                attribute,
                "net/__init__.py",
                "__version__ = '1.2'\n",
                Some("1.2"),
            ),
            (
                attribute,
                "src/net/__init__.py",
                "__version__: str = 'v1.2'\n",
                Some("1.2"),
            ),
            (
                attribute,
                "net.py",
                "__version__ = version = (1, 2, 'rc1')\n",
                Some("1.2.rc1"),
            ),
            (attribute, "net/__init__.py", "__version__ = read()\n", None),
            (
                attribute,
                "net/__init__.py",
                "if x:\n  __version__ = '1'\n",
                None,
            ),
            (
                attribute,
                "net/__init__.py",
                "__version__ = '1'\n__version__ = '2'\n",
                None,
            ),
            (attribute, "net/__init__.py", "__version__ = '1; x'\n", None),
            (
                hatch,
                "src/net/__about__.py",
                "# x\nVERSION = \"0.3.1\"\n",
                Some("0.3.1"),
            ),
            (
                "[tool.hatch.version]\npath = '../v.py'\n",
                "../v.py",
                "VERSION = '1'",
                None,
            ),
            (
                flit,
                "my_net/__init__.py",
                "\"\"\"Net.\"\"\"\n__version__ = '4'\n",
                Some("4"),
            ),
            (
                "[tool.pdm.version]\nsource = 'file'\npath = 'v.py'\n",
                "v.py",
                "__version__ = '5'",
                Some("5"),
            ),
            (
                "[tool.setuptools.dynamic]\nversion = { file = ['VERSION'] }\n",
                "VERSION",
                "6.0\n",
                Some("6.0"),
            ),
            ("", "my_net/__init__.py", "__version__ = '7'\n", None),
        ] {
            let found = read(&[("pyproject.toml", pyproject), (file, text)]);
            assert_eq!(found.as_deref(), expected, "{pyproject}{text}");
        }
        let config = ("setup.cfg", "[metadata]\nversion = attr: net.__version__\n");
        let package = ("net/__init__.py", "from .version import a, __version__\n");
        let module = ("net/version.py", "__version__ = '8'\n");
        assert_eq!(read(&[config, package, module]).as_deref(), Some("8"));
        // A circle.
        let module = ("net/version.py", "from net.version import __version__\n");
        assert_eq!(read(&[config, package, module]), None);
    }

    const INIT: (&str, &str) = (
        "net/__init__.py",
        "\"\"\"Net.\"\"\"\n__version__ = '1.2.3'\n",
    );

    #[test]
    fn the_version_that_a_setup_py_reads_of_its_project_is_known() {
        let read_file = "import os, re\nhere = os.path.abspath(os.path.dirname(__file__))\n\
             def read(*parts):\n    with open(os.path.join(here, *parts), 'r') as fp:\n        return fp.read()\n";
        let find = "def find_version(*file_paths):\n    version_file = read(*file_paths)\n    \
             version_match = re.search(r\"^__version__ = ['\\\"]([^'\\\"]*)['\\\"]\", version_file, re.M)\n    \
             if version_match:\n        return version_match.group(1)\n    raise RuntimeError('no version')\n";
        let regular = format!("{read_file}{find}");
        for setup in [
            format!("{regular}setup(name='net', version=find_version('net', '__init__.py'))"),
            "def get_version():\n    with open(HERE / 'net/__init__.py') as f:\n        result = re.search('__version__', f.read())\n        return result.group(1)\n\
             version = get_version()\nsetup(version=version)".to_owned(),
            "def get_version(package):\n    init = open(os.path.join(package, '__init__.py')).read()\n    return re.match('v', init).group(1)\nsetup(version=get_version('net'))".to_owned(),
            "NAME = 'net'\nwith open(f'{NAME}/__init__.py') as f:\n    for line in f:\n        if line.startswith('__version__'):\n            version = line.split('=')[1]\n            break\nsetup(version=version)".to_owned(),
            "exec(open('net/__init__.py').read())\nsetup(version=__version__)".to_owned(),
            "about = {}\nwith open(os.path.join(here, 'net', '__init__.py'), encoding='utf-8') as f:\n    exec(f.read(), about)\nsetup(version=about['__version__'])".to_owned(),
            "import net\nsetup(version=net.__version__)".to_owned(),
            "from net import __version__ as v\nsetup(version=v)".to_owned(),
            "sys.path.insert(0, path.join(here, 'net'))\nfrom version import __version__\nsetup(version=__version__)".to_owned(),
            "ns = runpy.run_path(os.path.dirname(__file__) + '/net/__init__.py')\nsetup(version=ns['__version__'])".to_owned(),
            format!("{read_file}setup(long_description=read('README.md'), version=read('VERSION').strip())"),
            "setup(version=open('VERSION').readline())".to_owned(),
            "setup(version=Path(__file__).with_name('VERSION').read_text())".to_owned(),
        ] {
            let text = ("VERSION", "1.2.3\n");
            let files = [("setup.py", setup.as_str()), INIT, text, ("README.md", "0.1\n"), ("net/version.py", INIT.1)];
            let found = read(&files);
            assert_eq!(found.as_deref(), Some("1.2.3"), "{setup}");
            let other = ("pyproject.toml", "[build-system]\nbuild-backend = 'hatchling.build'\n");
            assert_eq!(read(&[("setup.py", &setup), INIT, text, other]), None);
        }
    }

    #[test]
    fn a_version_that_a_setup_py_computes_is_not_guessed() {
        let get = "def get_version():\n    version = open('VERSION').read().strip()\n";
        for setup in [
            format!("{get}    sha = subprocess.check_output(['git', 'rev-parse', 'HEAD'])\n    return version\nsetup(version=get_version())"),
            format!("{get}    version += '+cpu'\n    return version\nsetup(version=get_version())"),
            format!("{get}    return f'{{version}}.dev0'\nsetup(version=get_version())"),
            "setup(name='net')".to_owned(),
            "setup(version=find('net'))".to_owned(),
            // Two that differ.
            "exec(open('net/__init__.py').read())\nsetup(version=__version__ or open('VERSION').read())".to_owned(),
        ] {
            let found = read(&[("setup.py", &setup), INIT, ("VERSION", "2.0\n")]);
            assert_eq!(found, None, "{setup}");
        }
    }

    proptest! {
        #[test]
        fn no_setup_panics(text in "((setup|version|open|'net/__init__.py'|'net'|with|as|def|for|in|exec|from|import|=|\\(|\\)|\\[|\\]|:|\\+|\\.|,|/|\n) ?){0,60}") {
            let _ = read(&[("setup.py", &text), INIT]);
        }

        #[test]
        fn no_text_panics(text in "((__version__|from|import|net|'1'|1|=|:|\\(|\\)|,|\\.|\n) ?){0,40}") {
            let pyproject = "[tool.setuptools.dynamic]\nversion = { attr = 'net.__version__' }\n";
            let _ = read(&[("pyproject.toml", pyproject), ("net/__init__.py", &text)]);
        }
    }
}
