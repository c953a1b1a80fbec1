//! What holds for every format.

use std::fmt::Write as _;

use proptest::prelude::*;
use sconce_schema::Spec;

use super::*;

/// The notes as lines, for a test to look into.
pub(super) fn format_notes(adopted: &ImportedSpec) -> String {
    let mut text = String::new();
    for note in &adopted.notes {
        let line = note.line.map(|line| format!("{line} ")).unwrap_or_default();
        let outcome = match note.outcome {
            NoteKind::LeftOut => "left out",
            NoteKind::Decided => "decided",
        };
        let _ = writeln!(text, "{line}{outcome}: {}: {}", note.what, note.why);
    }
    text
}

/// What must hold whatever the source.
fn holds(adopted: &ImportedSpec) {
    let text = adopted.spec.to_text();
    assert_eq!(Spec::parse(&text).as_ref(), Ok(&adopted.spec), "{text}");
    for package in &adopted.spec.python.packages {
        assert!(
            !package.trim().is_empty() && !package.starts_with('-'),
            "{package:?}"
        );
        assert!(!package.contains(['\n', '\r', '\0']), "{package:?}");
    }
    for folder in &adopted.spec.python.editable {
        assert!(
            !folder.starts_with(['/', '-']) && folder.split('/').all(|part| part != ".."),
            "{folder:?}"
        );
    }
    for note in &adopted.notes {
        let said = format!("{}{}", note.what, note.why);
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}

/// One of each, with most of what its converter knows. Written by hand in the usual shape.
const EXAMPLES: [(ImportFormat, &str); 14] = [
    (
        ImportFormat::Requirements,
        "# train\n-r base.txt\n--extra-index-url https://builds.example.org/whl/cu124\ntorch==2.4.1+cu124 \\\n    --hash=sha256:aa\nnumpy>=1.26; python_version < '3.13'  # why\n-e .\ngit+https://me:pw@git.example.org/x\n",
    ),
    (
        ImportFormat::Pyproject,
        "[project]\nname = \"net\"\nrequires-python = \">=3.9,<3.12\"\ndependencies = [\"torch==2.6.0\", \"a @ git+https://git.example.org/a\"]\n[project.optional-dependencies]\nx = [\"y\"]\n",
    ),
    (
        ImportFormat::Pyproject,
        "[tool.poetry]\nname = \"net\"\n[tool.poetry.dependencies]\npython = \"^3.9\"\ntorch = \"^2.1\"\nray = { version = \"~2.9\", extras = [\"data\"], markers = \"sys_platform == 'linux'\" }\n",
    ),
    (
        ImportFormat::Setup,
        "import os\nfrom setuptools import setup, find_packages\nextras = {'train': ['wandb']}\nextras[\"dev\"] = extras['train'] + ['ruff']\nwith open('requirements.txt') as f:\n    required = [line.strip() for line in f if line]\nsetup(name='net', package_dir={'': 'src'}, install_requires=required + ['torch>=2',], extras_require=extras, entry_points={'console_scripts': ['net=net.cli:main']})\n",
    ),
    (
        ImportFormat::UvLock,
        "version = 1\nrequires-python = \">=3.11\"\n[[package]]\nname = \"net\"\nversion = \"0\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"torch\", marker = \"sys_platform == 'linux'\" }]\n[[package]]\nname = \"torch\"\nversion = \"2.6.0+cu124\"\nsource = { registry = \"https://builds.example.org/whl/cu124\" }\nwheels = [{ url = \"https://builds.example.org/torch-2.6.0%2Bcu124-cp313-cp313-linux_x86_64.whl\" }]\n",
    ),
    (
        ImportFormat::Pylock,
        "lock-version = \"1.0\"\nrequires-python = \">=3.11\"\n[[packages]]\nname = \"torch\"\nversion = \"2.6.0\"\nmarker = \"sys_platform == 'linux' and 'gpu' not in extras\"\nwheels = [{ url = \"https://u:p@i.example.org/torch-2.6.0-cp313-cp313-linux_x86_64.whl\", hashes = { sha256 = \"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" } }]\n[[packages]]\nname = \"a\"\nvcs = { type = \"git\", url = \"https://git.example.org/a\", commit-id = \"01\" }\n[[packages]]\nname = \"net\"\ndirectory = { path = \".\" }\n",
    ),
    (
        ImportFormat::PoetryLock,
        "[[package]]\nname = \"torch\"\nversion = \"2.6.0\"\noptional = false\npython-versions = \">=3.9\"\nfiles = [{ file = \"torch-2.6.0-cp313-cp313-linux_x86_64.whl\", hash = \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\" }]\n[package.dependencies]\nnumpy = { version = \"*\", markers = \"os_name == 'posix'\" }\n[[package]]\nname = \"numpy\"\nversion = \"2\"\n[package.source]\ntype = \"legacy\"\nurl = \"https://me:pw@i.example.org/simple\"\n[metadata]\nlock-version = \"2.0\"\npython-versions = \"^3.9\"\n",
    ),
    (
        ImportFormat::PdmLock,
        "[metadata]\ngroups = [\"default\", \"dev\"]\nlock_version = \"4.5.0\"\n[[metadata.targets]]\nrequires_python = \">=3.9\"\n[[package]]\nname = \"torch\"\nversion = \"2.6.0\"\ngroups = [\"default\"]\nmarker = \"sys_platform == 'linux'\"\ndependencies = [\"numpy[x]>=1; python_version < '3.12'\"]\nfiles = [{ file = \"torch-2.6.0.tar.gz\", hash = \"sha256:00\" }]\n",
    ),
    (
        ImportFormat::PipfileLock,
        "{\"_meta\": {\"pipfile-spec\": 6, \"requires\": {\"python_version\": \"3.11\"}, \"sources\": [{\"name\": \"a\", \"url\": \"https://a.example.org/simple\"}, {\"name\": \"b\", \"url\": \"https://u:p@b.example.org/simple\"}]}, \"default\": {\"torch\": {\"hashes\": [\"sha256:00\"], \"index\": \"b\", \"markers\": \"python_version >= '3.9'\", \"version\": \"==2.6.0\"}, \"x\": {\"path\": \".\"}}, \"develop\": {}}\n",
    ),
    (
        ImportFormat::PixiLock,
        "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n      - conda: https://c.example.org/linux-64/python-3.11.9-h1_0.conda\n      - conda: https://c.example.org/linux-64/numpy-1.26.4-py311_0.conda\n      - pypi: https://f.example.org/wandb-0.19-py3-none-any.whl\n      - pypi: ./\npackages:\n- conda: https://c.example.org/linux-64/numpy-1.26.4-py311_0.conda\n  depends:\n  - python >=3\n- pypi: https://f.example.org/wandb-0.19-py3-none-any.whl\n  name: wandb\n  version: '0.19'\n  sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n- pypi: ./\n  name: net\n  version: '0'\n",
    ),
    (
        ImportFormat::CondaLock,
        "version: 1\nmetadata:\n  platforms: [linux-64]\npackage:\n- name: numpy\n  version: 1.26.4\n  manager: conda\n  platform: linux-64\n  dependencies:\n    python: ''\n  url: https://c.example.org/numpy-1.26.4-py311_0.conda\n  category: main\n- name: wandb\n  version: '0.19'\n  manager: pip\n  platform: linux-64\n  dependencies: {}\n  url: https://f.example.org/wandb-0.19-py3-none-any.whl\n  hash:\n    sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n  category: main\n",
    ),
    (
        ImportFormat::Pipfile,
        "[[source]]\nurl = \"https://a.example.org/simple\"\nname = \"a\"\n[packages]\ntorch = {version = \"~=2.6\", sys_platform = \"== 'linux'\"}\nidna = \"*\"\nx = {git = \"https://git.example.org/x\", ref = \"v1\"}\nnet = {path = \".\", editable = true}\n[dev-packages]\nruff = \"*\"\n[requires]\npython_version = \"3.11\"\n",
    ),
    (
        ImportFormat::Conda,
        "name: seg\nchannels: [pytorch]\ndependencies:\n  - python=3.11\n  - pytorch=2.6=py3.11_cuda12.4\n  - numpy>=1.20,<2\n  - ffmpeg\n  - pip:\n    - wandb\n    - -r requirements.txt\nvariables:\n  A: b\n",
    ),
    (
        ImportFormat::Dockerfile,
        "# syntax=docker/dockerfile:1\nARG TAG=2.6.0-cuda12.4-cudnn9-runtime\nFROM registry.example.org/pytorch/pytorch:${TAG} AS base\nENV A=b PYTHONUNBUFFERED=1\nWORKDIR /app\nRUN apt-get update && apt-get install -y --no-install-recommends \\\n    git libgl1-mesa-glx \\\n && rm -rf /var/lib/apt/lists/*\nCOPY requirements.txt .\nRUN --mount=type=cache,target=/root/.cache pip install -r requirements.txt 'transformers[torch]>=4' ; python -m pip install wandb\nRUN <<EOF\nuv pip install --system einops\nEOF\nCOPY . .\nEXPOSE 8080\nENTRYPOINT [\"python\"]\nCMD [\"/app/train.py\", \"--epochs\", \"1\"]\n",
    ),
];

fn example(format: ImportFormat) -> String {
    let found = EXAMPLES.iter().find(|(one, _)| *one == format);
    found.unwrap().1.to_owned()
}

fn beside(path: &str) -> Option<String> {
    match path {
        "base.txt" => Some("-r base.txt\ntqdm\n".to_owned()),
        "requirements.txt" => Some("torch\naccelerate==1.2\n-e .\n".to_owned()),
        "pyproject.toml" => Some(example(ImportFormat::Pyproject)),
        "environment.yml" => Some(example(ImportFormat::Conda)),
        _ => None,
    }
}

fn adopt_example(kind: ImportFormat, text: &str) -> Result<ImportedSpec, ImportError> {
    import_spec(kind, "a.txt", text, &beside)
}

#[test]
fn every_format_becomes_a_spec_that_reads_the_same() {
    for (kind, text) in EXAMPLES {
        let adopted = adopt_example(kind, text).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        holds(&adopted);
        assert!(adopted.spec != Spec::default(), "{kind:?}");
        let said = format_notes(&adopted);
        assert!(!said.contains("me:pw"), "{said}");
    }
}

#[test]
fn hostile_files_are_read_in_no_time_or_refused() {
    let long = "x".repeat(900 << 10);
    let hostile = [
        long.clone(),
        format!("RUN {long}"),
        format!("FROM a\nRUN {}", "pip install a &&".repeat(40_000)),
        format!("FROM a\nRUN {}", "(".repeat(300_000)),
        format!("FROM a\nRUN {}", "$(".repeat(300_000)),
        format!("FROM a\nRUN {}", "sh -c '".repeat(100_000)),
        format!("FROM a\n{}", "RUN <<A <<B\n".repeat(50_000)),
        "FROM a\n".repeat(100_000),
        (0..5000)
            .map(|n| format!("FROM s{n} AS s{}\nCOPY --from=s{n} /venv /venv\n", n + 1))
            .collect(),
        (1..400).fold("FROM a\nENV A0=aaaaaaaa\n".to_owned(), |text, n| {
            text + &format!("ENV A{n}=$A{0}$A{0}\n", n - 1)
        }),
        "-r base.txt\n".repeat(50_000),
        "FROM a\n".to_owned() + &"RUN pip install -r requirements.txt\n".repeat(20_000),
        "FROM a\nWORKDIR /w\n".to_owned() + &"COPY a b\nENV A=/a:/b:/c:/d\n".repeat(15_000),
        "FROM a\n".to_owned()
            + &(0..20_000)
                .map(|n| format!("RUN pip install a{n}\n"))
                .collect::<String>(),
        "[tool.poetry.dependencies]\n".to_owned()
            + &(0..30_000)
                .map(|n| format!("a{n} = \"^1\"\n"))
                .collect::<String>(),
        "dependencies:\n".to_owned()
            + &(0..20_000)
                .map(|n| format!("- pip: [a{n}]\n- numpy=1.{n}\n"))
                .collect::<String>(),
        "a\\\n".repeat(300_000),
        "dependencies:\n".to_owned() + &"- a\n".repeat(200_000),
        format!("dependencies: {}", "[".repeat(500_000)),
        format!("a = {}", "[".repeat(500_000)),
        "[[package]]\nname = \"a\"\n".repeat(30_000),
        format!(
            "[project]\ndependencies = [\"a ; {}\"]",
            "(".repeat(500_000)
        ),
        "\u{1}\u{2}\u{fffd}".repeat(1000),
        "version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n".to_owned()
            + &"      - pypi: a\n".repeat(40_000),
        format!("version: 1\npackage:\n- a: linux-64 {}", "[".repeat(500_000)),
        format!("version: 1\npackage:\n{}", "- linux-64\n".repeat(50_000)),
        format!("{{\"_meta\": {}", "{\"a\":".repeat(100_000)),
        format!(
            "version = 1\n[manifest]\nrequirements = [{}]\n{}",
            "{ name = \"a\", marker = \"os_name == 'x'\" }, ".repeat(10_000),
            "[[package]]\nname = \"a\"\nversion = \"1\"\nsource = { registry = \"x\" }\nresolution-markers = [\"os_name == 'y'\"]\n".repeat(60)
        ),
    ];
    for text in &hostile {
        for kind in ImportFormat::ALL {
            if let Ok(adopted) = adopt_example(kind, text) {
                holds(&adopted);
            }
        }
    }
    let huge = "x".repeat(10 << 20);
    assert!(matches!(
        adopt_example(ImportFormat::Requirements, &huge),
        Err(ImportError::TooLarge { .. })
    ));
}

#[test]
fn only_text_is_read() {
    assert_eq!(
        decode_text(ImportFormat::Conda, b"\xef\xbb\xbfa: b"),
        Ok("a: b".into())
    );
    assert_eq!(
        decode_text(ImportFormat::Requirements, b"torch\n\xff\xfet"),
        Err(ImportError::NotText { line: 2 })
    );
    assert_eq!(
        decode_text(ImportFormat::Requirements, b"t\0o\0"),
        Err(ImportError::NotText { line: 1 })
    );
    // As PowerShell's `>` writes.
    let utf16: Vec<u8> = "\u{feff}torch\r\né"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    assert_eq!(
        decode_text(ImportFormat::Requirements, &utf16),
        Ok("torch\r\né".into())
    );
    let big: Vec<u8> = "\u{feff}a"
        .encode_utf16()
        .flat_map(u16::to_be_bytes)
        .collect();
    assert_eq!(
        decode_text(ImportFormat::Requirements, &big),
        Ok("a".into())
    );
    for bytes in [&utf16[..5], b"\xff\xfe\x00\xd8", b"\xff\xfe\0\0"] {
        assert!(decode_text(ImportFormat::Requirements, bytes).is_err());
    }
    assert!(decode_text(ImportFormat::Conda, &utf16).is_err());
    let large = vec![b'a'; 2 << 20];
    assert!(decode_text(ImportFormat::UvLock, &large).is_ok());
    assert!(matches!(
        decode_text(ImportFormat::Conda, &large),
        Err(ImportError::TooLarge { .. })
    ));
}

#[test]
fn every_format_has_an_example_and_is_found_by_its_names() {
    for format in ImportFormat::ALL {
        assert!(EXAMPLES.iter().any(|(one, _)| *one == format), "{format:?}");
        for name in format.file_names() {
            assert_eq!(ImportFormat::from_file_name(name), Some(format), "{name}");
        }
    }
    assert_eq!(
        super::list_formats(),
        "uv.lock, pylock.toml, poetry.lock, pdm.lock, Pipfile.lock, pixi.lock, conda-lock.yml, \
         pyproject.toml, setup.py, requirements.txt, Pipfile, environment.yml or Dockerfile"
    );
    assert_eq!(super::known_file_names().count(), 18);
}

#[test]
fn every_format_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/init.md");
    let page = std::fs::read_to_string(page).unwrap();
    for format in ImportFormat::ALL {
        let row = format!("| `{}` |", format.file_names()[0]);
        assert!(page.contains(&row), "docs/init.md has no row {row}");
    }
}

#[test]
fn kinds_are_told_by_their_names() {
    for (name, kind) in [
        ("requirements.txt", Some(ImportFormat::Requirements)),
        ("requirements-dev.in", Some(ImportFormat::Requirements)),
        ("pyproject.toml", Some(ImportFormat::Pyproject)),
        ("uv.lock", Some(ImportFormat::UvLock)),
        ("environment.yml", Some(ImportFormat::Conda)),
        ("Dockerfile", Some(ImportFormat::Dockerfile)),
        ("Dockerfile.gpu", Some(ImportFormat::Dockerfile)),
        ("train.Dockerfile", Some(ImportFormat::Dockerfile)),
        ("Containerfile", Some(ImportFormat::Dockerfile)),
        ("UV.LOCK", Some(ImportFormat::UvLock)),
        ("pylock.gpu.toml", Some(ImportFormat::Pylock)),
        ("poetry.lock", Some(ImportFormat::PoetryLock)),
        ("gpu.conda-lock.yml", Some(ImportFormat::CondaLock)),
        ("cargo.lock", None),
        ("dockerfile.txt", Some(ImportFormat::Dockerfile)),
        ("setup.py", Some(ImportFormat::Setup)),
        ("conda.yaml", Some(ImportFormat::Conda)),
        ("Pipfile", Some(ImportFormat::Pipfile)),
        ("train.py", None),
    ] {
        assert_eq!(ImportFormat::from_file_name(name), kind, "{name}");
    }
}

#[test]
fn paths_stay_inside() {
    assert_eq!(inside("./a//b.txt").as_deref(), Some("a/b.txt"));
    assert_eq!(inside("a/../b.txt").as_deref(), Some("b.txt"));
    for path in [
        "",
        ".",
        "/etc/passwd",
        "../a",
        "a/../../b",
        "a\0b",
        "https://x/y",
    ] {
        assert_eq!(inside(path), None, "{path}");
    }
}

proptest! {
    #[test]
    fn no_mutation_panics(
        example in 0..EXAMPLES.len(),
        at in 0..2000_usize,
        cut in 0..30_usize,
        insert in "[-a-z$(){}<>=&|;:'\"\\[\\]@#*!~^,. \n\\\\]{0,8}",
        kind in 0..ImportFormat::ALL.len() * 4,
    ) {
        let (own, text) = EXAMPLES[example];
        // Mostly its own reader, now and then another's.
        let kind = ImportFormat::ALL.get(kind).copied().unwrap_or(own);
        let mut chars: Vec<char> = text.chars().collect();
        let at = at % chars.len();
        let end = (at + cut).min(chars.len());
        chars.splice(at..end, insert.chars());
        let text: String = chars.into_iter().collect();
        if let Ok(adopted) = adopt_example(kind, &text) {
            holds(&adopted);
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}", kind in 0..ImportFormat::ALL.len()) {
        if let Ok(adopted) = adopt_example(ImportFormat::ALL[kind], &text) {
            holds(&adopted);
        }
    }
}
