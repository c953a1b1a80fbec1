//! Files of other tools that `sconce init` makes a spec from.

use sconce_import::{ImportFormat, ImportNote};
use sconce_schema::{Hint as _, Spec};

use crate::bytes::text;

/// Reads `data` as `kind`; the files beside it are `data` again.
fn read(kind: ImportFormat, data: &[u8]) {
    let _ = sconce_import::decode_text(kind, data);
    let Some(text) = text(data) else { return };
    let beside = |_: &str| Some(text.to_owned());
    match sconce_import::import_spec(kind, "a/source", text, &beside) {
        Ok(adopted) => {
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
            adopted.notes.iter().for_each(shows_cleanly);
        }
        Err(error) => assert!(!format!("{error}{:?}", error.hint()).contains('\u{1b}')),
    }
}

fn shows_cleanly(note: &ImportNote) {
    assert!(!note.what.contains(char::is_control), "{:?}", note.what);
    assert!(!note.why.contains(char::is_control), "{:?}", note.why);
    assert_ne!(note.line, Some(0));
}

pub(crate) fn pip(data: &[u8]) {
    read(ImportFormat::Requirements, data);
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
    read(ImportFormat::UvLock, data);
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
