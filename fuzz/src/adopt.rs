//! Files of other tools that `sconce init` makes a spec from.

use std::rc::Rc;

use sconce_formats::tags::CpuArchitecture;
use sconce_import::{
    FolderEntry, ImportFormat, ImportNote, ImportedSpec, LockSelection, ProjectFolder,
    survey_folder,
};
use sconce_schema::{Hint as _, Spec};

use crate::bytes::text;

/// Reads `data` as `kind`; the files beside it are `data` again.
fn read(kind: ImportFormat, data: &[u8]) {
    let _ = sconce_import::decode_text(kind, data);
    let Some(text) = text(data) else { return };
    let beside = |_: &str| Some(text.to_owned());
    match sconce_import::import_spec(kind, "a/source", text, &beside) {
        Ok(adopted) => is_a_spec(&adopted),
        Err(error) => assert!(!format!("{error}{:?}", error.hint()).contains('\u{1b}')),
    }
}

fn is_a_spec(adopted: &ImportedSpec) {
    let written = adopted.spec.to_text();
    assert_eq!(
        Spec::parse(&written).as_ref(),
        Ok(&adopted.spec),
        "{written}"
    );
    for package in &adopted.spec.python.packages {
        assert!(
            !package.trim().is_empty() && !package.starts_with('-'),
            "{package}"
        );
        assert!(!package.contains(char::is_control), "{package:?}");
    }
    for origin in &adopted.origins {
        assert!(adopted.spec.python.packages.contains(&origin.package));
    }
    adopted.notes.iter().for_each(shows_cleanly);
}

/// A folder with the same text in one file and in a program beside it.
struct OneFile<'a> {
    path: &'static str,
    text: &'a str,
}

impl ProjectFolder for OneFile<'_> {
    fn name(&self) -> &str {
        "folder"
    }

    fn read_text(&self, path: &str) -> Option<String> {
        (path == self.path || path == "train.py").then(|| self.text.to_owned())
    }

    fn list(&self, path: &str) -> Rc<[FolderEntry]> {
        let all = [self.path, "train.py"];
        let names = if path.is_empty() { &all[..] } else { &[] };
        let entry = |name: &&str| FolderEntry {
            name: (*name).to_owned(),
            is_dir: false,
        };
        names.iter().map(entry).collect()
    }

    fn read_start(&self, _: &str) -> Vec<u8> {
        self.text.bytes().take(64).collect()
    }
}

/// Surveys a folder whose file `path` is `data`.
fn survey(path: &'static str, data: &[u8]) {
    let Some(text) = text(data) else { return };
    let folder = OneFile { path, text };
    if let Some(found) = survey_folder(None, &folder) {
        is_a_spec(&found.imported);
    }
}

pub(crate) fn setup(data: &[u8]) {
    read(ImportFormat::Setup, data);
}

pub(crate) fn setup_seeds() -> Vec<Vec<u8>> {
    vec![
        b"from setuptools import setup\nextras = {'a': ['x']}\nextras['b'] = extras['a'] + [\"y>=1\" '2']\n\
          with open('requirements.txt') as f:\n    required = [l.strip() for l in f.readlines() if l]\n\
          def reqs(p): return open(os.path.join(here, 'r.in')).read().split('\\n')\n\
          kw = dict(name='n', **{'extras_require': extras})\nsetup(install_requires=required + reqs(1), **kw,\n\
          package_dir={'': 'src'}, entry_points={'console_scripts': ['a = b.c:d']})\n"
            .to_vec(),
    ]
}

pub(crate) fn python_program(data: &[u8]) {
    survey("a.py", data);
}

pub(crate) fn python_program_seeds() -> Vec<Vec<u8>> {
    vec![
        b"import os, cv2 as c\nfrom .a import (b,\n  d as e)\ntry:\n    import x.y\nexcept ImportError as e:\n\
          \x20   import x\nelse: import z\nif TYPE_CHECKING:\n\timport w\nasync def f(a: {1: 2}): import v; import u\n\
          s = rb'''\nimport no''' \\\n  f'{s}'\nif __name__ == '__main__':\n  from torch.utils import tensorboard\n"
            .to_vec(),
    ]
}

pub(crate) fn readme(data: &[u8]) {
    survey("README.md", data);
    survey("README.rst", data);
}

pub(crate) fn readme_seeds() -> Vec<Vec<u8>> {
    vec![
        b"# Net\n<details><summary>Install</summary>\n```bash\n$ git clone https://g.example.org/net && cd net\n\
          (env) $ pip3 install -U 'a[b]>=1' c<2 -f https://i.example.org/whl\nconda install -c x pytorch=1.9\n```\n\
          </details>\nUse\n---\n- `pip install -e .[x]`\n\n    sudo apt-get install -y ffmpeg\n`timm==0.3.2`\n~~~\n!pip install d\n"
            .to_vec(),
        b"Net\n===\n\nInstall\n-------\n\n.. code-block:: console\n   :x: y\n\n   $ python -m pip install a\n\nOr::\n\n  pip install b\n"
            .to_vec(),
    ]
}

pub(crate) fn notebook(data: &[u8]) {
    survey("a.ipynb", data);
}

pub(crate) fn notebook_seeds() -> Vec<Vec<u8>> {
    vec![
        br#"{"cells": [{"cell_type": "code", "source": ["!pip install -q a\n", "%pip install b"]}, {"cell_type": "code", "source": "! apt install x"}]}"#
            .to_vec(),
    ]
}

pub(crate) fn cog(data: &[u8]) {
    survey("cog.yaml", data);
}

pub(crate) fn cog_seeds() -> Vec<Vec<u8>> {
    vec![
        b"build:\n  python_version: \"3.9\"\n  python_packages:\n    - torch==2.0\n  system_packages: [ffmpeg]\n  run: [a]\n"
            .to_vec(),
    ]
}

/// Reads `data` as a lock, as `lock` does.
fn pin(kind: ImportFormat, data: &[u8]) {
    read(kind, data);
    let Some(text) = text(data) else { return };
    let beside = |_: &str| Some(text.to_owned());
    let asked = ["x".to_owned(), "dev".to_owned()];
    let selection = LockSelection {
        extras: &asked,
        groups: &asked,
        machine: CpuArchitecture::X86_64,
    };
    let Ok(lock) = sconce_import::read_pinned_lock(kind, "a/source", text, &beside, &selection)
    else {
        return;
    };
    lock.notes.iter().for_each(shows_cleanly);
    for package in &lock.packages {
        // A line each of a file that uv reads: none may be an option, or have a login.
        let line = &package.requirement;
        assert!(
            line.starts_with(|c: char| c.is_ascii_alphanumeric()),
            "{line:?}"
        );
        assert!(!line.contains(char::is_control), "{line:?}");
        assert_eq!(
            sconce_formats::normalize_project_name(&package.name).as_ref(),
            Some(&package.name)
        );
        for file in &package.files {
            assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }
    let same = (kind, "a/source", text);
    let found = sconce_import::find_version_differences(same, same, &beside);
    assert!(found.is_empty(), "{found:?}");
}

fn shows_cleanly(note: &ImportNote) {
    assert!(!note.what.contains(char::is_control), "{:?}", note.what);
    assert!(!note.why.contains(char::is_control), "{:?}", note.why);
    assert_ne!(note.line, Some(0));
}

pub(crate) fn pip(data: &[u8]) {
    read(ImportFormat::Requirements, data);
    if let Some(text) = text(data) {
        let beside = |_: &str| Some(text.to_owned());
        let _ = sconce_import::read_requirement_options("a/r.txt", text, &beside);
    }
}

pub(crate) fn pip_seeds() -> Vec<Vec<u8>> {
    vec![
        b"# all\n--extra-index-url https://me:pw@i.example.org/whl/cu124\n-r more.txt\n-c limits.txt\n\
          torch==2.4.1+cu124 \\\n  --hash=sha256:aa\nray[data] >=2,<3 ; python_version < '3.12' # x\n\
          -e .\n--no-binary :all:\nx @ git+https://git.example.org/x\n\
          y @ https://u:p@i.example.org/y-1-py3-none-any.whl\n./z.whl\n"
            .to_vec(),
    ]
}

pub(crate) fn project(data: &[u8]) {
    read(ImportFormat::Pyproject, data);
}

pub(crate) fn pipfile_without_lock(data: &[u8]) {
    read(ImportFormat::Pipfile, data);
}

pub(crate) fn pipfile_without_lock_seeds() -> Vec<Vec<u8>> {
    vec![
        b"[[source]]\nurl = \"https://me:pw@i.example.org/simple\"\nname = \"s\"\n[packages]\n\
          torch = {version = \"~=2.6\", sys_platform = \"== 'linux'\", markers = \"os_name == 'posix'\", index = \"s\"}\n\
          x = {git = \"https://git.example.org/x\", ref = \"v1\"}\ny = {path = \"libs/y\", extras = [\"a\"]}\n\
          [dev-packages]\nz = \"*\"\n[requires]\npython_version = \"3.11\"\n"
            .to_vec(),
    ]
}

pub(crate) fn project_seeds() -> Vec<Vec<u8>> {
    vec![
        b"[build-system]\nrequires = []\n[project]\nname = \"n\"\nrequires-python = \">=3.9,<3.12\"\n\
          dynamic = [\"version\"]\ndependencies = [\"torch==2.6.0\", \"a\"]\n\
          [project.optional-dependencies]\nx = [\"y\"]\n[dependency-groups]\ndev = [\"z\"]\n\
          [tool.uv.sources]\na = { git = \"https://git.example.org/a\" }\n"
            .to_vec(),
        b"[tool.poetry]\nname = \"n\"\n[tool.poetry.dependencies]\npython = \"^3.9\"\ntorch = \"~2.1\"\n\
          ray = { version = \"2.*\", extras = [\"data\"], markers = \"os_name == 'posix'\" }\n\
          b = { git = \"x\" }\n[[tool.poetry.source]]\nname = \"s\"\nurl = \"https://i.example.org\"\n"
            .to_vec(),
    ]
}

pub(crate) fn uv(data: &[u8]) {
    pin(ImportFormat::UvLock, data);
}

pub(crate) fn uv_seeds() -> Vec<Vec<u8>> {
    vec![
        b"version = 1\nrequires-python = \">=3.11\"\n[manifest]\nmembers = [\"n\"]\n[[package]]\n\
          name = \"n\"\nversion = \"0\"\nsource = { virtual = \".\" }\ndependencies = [\
          { name = \"torch\", extra = [\"x\"], marker = \"sys_platform == 'linux' and extra != 'y'\" }]\n\
          [package.optional-dependencies]\nx = [{ name = \"n\" }]\n[[package]]\nname = \"torch\"\n\
          version = \"2.6.0\"\nresolution-markers = [\"python_full_version < '3.13'\"]\n\
          source = { registry = \"https://i.example.org/simple\" }\nwheels = [\
          { url = \"https://i.example.org/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl\" }]\n\
          [package.optional-dependencies]\nx = [{ name = \"torch\", version = \"2.6.0\" }]\n"
            .to_vec(),
    ]
}

pub(crate) fn conda(data: &[u8]) {
    read(ImportFormat::Conda, data);
}

pub(crate) fn conda_seeds() -> Vec<Vec<u8>> {
    vec![
        b"name: n\nchannels: [pytorch]\ndependencies:\n  - python=3.11\n  - conda-forge::pytorch=2.6=py3_0\n\
          \x20 - numpy >=1.20,<2\n  - opencv[version='>=4']\n  - ffmpeg=6\n  - gxx\n  - libffi\n  - odd\n\
          \x20 - pip:\n    - wandb\n    - -r more.txt\nvariables:\n  A: b\n"
            .to_vec(),
        b"&a a: *a\n? [b]\n: !!str |+\n  text\n--- >-\n more\n...\n".to_vec(),
    ]
}

pub(crate) fn docker(data: &[u8]) {
    read(ImportFormat::Dockerfile, data);
}

pub(crate) fn docker_seeds() -> Vec<Vec<u8>> {
    vec![
        b"# escape=\\\nARG TAG=2.6.0-cuda12.6-cudnn9-devel\nFROM r.example.org/pytorch/pytorch:${TAG:-x} AS a\n\
          ENV A=\"b c\" PYTHONPATH=/app/src:$A\nWORKDIR /app\nRUN apt-get update && apt-get install -y \\\n\
          # why\n    git=1:2 python3.11 cuda-nvcc \\\n || true; (cd /x && make) > log 2>&1\n\
          COPY --chown=1 requirements.txt src/*.py ./\nRUN --mount=type=cache,target=/c pip install -r requirements.txt \\\n\
          'x[y]>=1' --index-url=https://u:p@i.example.org/simple\nRUN <<-EOF bash -e\n\tuv pip install z\n\tEOF\n"
            .to_vec(),
        b"FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04 AS b\nRUN [\"pip\", \"install\", \"torch\"]\n\
          FROM b\nCOPY --from=b /venv /venv\nCOPY . /srv\nCOPY data /data\nWORKDIR /srv/x\n\
          RUN bash -c \"conda install -y numpy=1.26 && conda env update -f e.yml\"; if x; then pip install .; fi\n\
          EXPOSE 80\nENTRYPOINT [\"tini\", \"--\"]\nCMD python /srv/train.py --n $(nproc)\n"
            .to_vec(),
    ]
}

/// A digest, for seeds.
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn seed(text: &str) -> Vec<Vec<u8>> {
    vec![text.replace("DIGEST", DIGEST).into_bytes()]
}

pub(crate) fn pylock(data: &[u8]) {
    pin(ImportFormat::Pylock, data);
}

pub(crate) fn pylock_seeds() -> Vec<Vec<u8>> {
    seed(
        "lock-version = \"1.0\"\nrequires-python = \">=3.11\"\nextras = [\"x\"]\n\
         dependency-groups = [\"dev\"]\ndefault-groups = [\"dev\"]\n[[packages]]\nname = \"torch\"\n\
         version = \"2.6.0\"\nmarker = \"'x' in extras and python_version >= '3.12'\"\n\
         wheels = [{ url = \"https://i.example.org/torch-2.6.0-cp313-cp313-linux_x86_64.whl\", \
         hashes = { sha256 = \"01\" } }]\n[[packages]]\nname = \"a\"\n\
         vcs = { type = \"git\", url = \"https://git.example.org/a\", commit-id = \"01\" }\n\
         [[packages]]\nname = \"n\"\ndirectory = { path = \".\" }\n[[packages]]\nname = \"b\"\n\
         archive = { path = \"b-1.tar.gz\" }\n",
    )
}

pub(crate) fn poetry_lock(data: &[u8]) {
    pin(ImportFormat::PoetryLock, data);
}

pub(crate) fn poetry_lock_seeds() -> Vec<Vec<u8>> {
    let mut seeds = seed(
        "[[package]]\nname = \"torch\"\nversion = \"2.6.0\"\noptional = true\npython-versions = \"^3.9\"\n\
         category = \"main\"\nfiles = [{ file = \"torch-2.6.0.tar.gz\", hash = \"DIGEST\" }]\n\
         [package.dependencies]\nnumpy = [{ version = \"*\", markers = \"os_name == 'posix'\" }]\n\
         [package.extras]\nx = [\"a (>=1) ; extra == 'y'\"]\n[package.source]\ntype = \"git\"\n\
         url = \"https://git.example.org/t\"\nresolved_reference = \"01\"\nsubdirectory = \"s\"\n\
         [extras]\nx = [\"torch\"]\n[metadata]\nlock-version = \"2.0\"\npython-versions = \"~3.9\"\n\
         [metadata.files]\ntorch = []\n[tool.poetry.dependencies]\ntorch = { version = \"^2\", optional = true }\n\
         [tool.poetry.extras]\nx = [\"torch\"]\n[tool.poetry.group.dev.dependencies]\ntorch = \"*\"\n",
    );
    seeds.extend(seed(
        "[[package]]\nname = \"numpy\"\nversion = \"2\"\noptional = false\npython-versions = \">=3\"\n\
         groups = [\"main\", \"dev\"]\nmarkers = { main = \"python_version > '3.9'\", dev = \"extra == 'x'\" }\n\
         [metadata]\nlock-version = \"2.1\"\npython-versions = \">=3.10,<4.0\"\n",
    ));
    seeds
}

pub(crate) fn pdm_lock(data: &[u8]) {
    pin(ImportFormat::PdmLock, data);
}

pub(crate) fn pdm_lock_seeds() -> Vec<Vec<u8>> {
    seed(
        "[metadata]\ngroups = [\"default\", \"dev\"]\nlock_version = \"4.5.0\"\n[[metadata.targets]]\n\
         requires_python = \">=3.9\"\n[[package]]\nname = \"torch\"\nversion = \"2.6.0\"\ngroups = [\"default\"]\n\
         marker = \"sys_platform == 'linux'\"\ndependencies = [\"numpy[x]>=1; python_version < '3.12'\"]\n\
         files = [{ url = \"https://i.example.org/torch-2.6.0.tar.gz\", hash = \"DIGEST\" }]\n[[package]]\n\
         name = \"torch\"\nversion = \"2.6.0\"\nextras = [\"x\"]\ndependencies = [\"a\"]\n[[package]]\n\
         name = \"a\"\ngit = \"git@git.example.org:a/b\"\nrevision = \"01\"\n[project]\n\
         dependencies = [\"torch[x] @ https://i.example.org/t.whl\"]\n[dependency-groups]\ndev = [\"a\"]\n",
    )
}

pub(crate) fn pipfile(data: &[u8]) {
    pin(ImportFormat::PipfileLock, data);
}

pub(crate) fn pipfile_seeds() -> Vec<Vec<u8>> {
    seed(
        "{\"_meta\": {\"pipfile-spec\": 6, \"requires\": {\"python_version\": \"3.11\"}, \"sources\": [\
         {\"name\": \"a\", \"url\": \"https://a.example.org/simple\"}, \
         {\"name\": \"b\", \"url\": \"https://u:p@b.example.org/simple\"}]}, \"default\": {\"torch\": {\
         \"hashes\": [\"DIGEST\"], \"index\": \"b\", \"markers\": \"python_version >= '3.9'\", \
         \"version\": \"==2.6.0\"}, \"x\": {\"path\": \".\"}, \"y\": {\"git\": \"https://g.example.org/y\", \
         \"ref\": \"01\"}, \"z\": {\"file\": \"https://i.example.org/z.zip\"}}, \"develop\": {}}",
    )
}

pub(crate) fn pixi(data: &[u8]) {
    pin(ImportFormat::PixiLock, data);
}

pub(crate) fn pixi_seeds() -> Vec<Vec<u8>> {
    seed(
        "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n\
         \x20     - conda: https://c.example.org/linux-64/python-3.11.9-h1_0.conda\n\
         \x20     - conda: https://c.example.org/linux-64/pytorch-2.4.1-py311_cuda12.1_0.tar.bz2\n\
         \x20     - pypi: https://f.example.org/wandb-0.19-py3-none-any.whl\n      - pypi: ./\n\
         \x20     - pypi: git+https://g.example.org/x?branch=y#01\n  dev:\n    packages: {}\npackages:\n\
         - conda: https://c.example.org/linux-64/python-3.11.9-h1_0.conda\n  depends:\n  - openssl >=3\n\
         - pypi: https://f.example.org/wandb-0.19-py3-none-any.whl\n  name: wandb\n  version: '0.19'\n\
         \x20 sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n- kind: pypi\n\
         \x20 name: n\n  version: '0'\n  path: ./\n",
    )
}

pub(crate) fn conda_lock(data: &[u8]) {
    pin(ImportFormat::CondaLock, data);
}

pub(crate) fn conda_lock_seeds() -> Vec<Vec<u8>> {
    seed(
        "version: 1\nmetadata:\n  platforms: [linux-64]\npackage:\n- name: numpy\n  version: 1.26.4\n\
         \x20 manager: conda\n  platform: linux-64\n  dependencies:\n    python: ''\n  category: main\n\
         - name: wandb\n  version: '0.19'\n  manager: pip\n  platform: linux-64\n  dependencies: {}\n\
         \x20 url: https://f.example.org/wandb-0.19-py3-none-any.whl\n  hash:\n    md5: '0'\n\
         \x20   sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n  category: dev\n",
    )
}

/// The requirements in a comment of a program.
pub fn script(data: &[u8]) {
    let Some(text) = text(data) else { return };
    match sconce_import::read_inline_metadata(text) {
        // The block alone is all that there is to it.
        Ok(Some(table)) => assert!(text.contains("# /// script"), "{table}"),
        Ok(None) => {}
        Err(error) => assert!(!error.to_string().contains('\u{1b}')),
    }
}

pub fn script_seeds() -> Vec<Vec<u8>> {
    let block = "# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"torch>=2\",\n# ]\n#\n\
                 # [tool.sconce.run]\n# memory = \"4 GiB\"\n# ///\nimport torch\n";
    let other = "#!/usr/bin/env python3\n# /// other\n# a = 1\n# ///\n\n";
    vec![
        block.into(),
        format!("{other}{block}").into(),
        block.replace('\n', "\r\n").into(),
        format!("{block}{block}").into(),
    ]
}
