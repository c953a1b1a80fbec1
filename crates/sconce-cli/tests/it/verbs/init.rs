//! What `init` makes of the files that are there.

use insta::assert_snapshot;

use super::Home;

#[test]
fn init_writes_a_small_spec_and_keeps_what_is_there() {
    let home = Home::new("");
    let spec = home.path().join("project/sconce.toml");
    assert_snapshot!(home.said(&["init"]), @r#"
    exit code 2
    -- standard output
    -- standard error
    error: there is a sconce.toml already
    hint: --force replaces it, --dry-run only shows the new one
    "#);
    assert_eq!(std::fs::read_to_string(&spec).unwrap(), "");
    let (code, out, err) = home.sconce(&["init", "--force"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let text = std::fs::read_to_string(&spec).unwrap();
    let spec = sconce_schema::Spec::parse(&text).unwrap();
    assert_eq!(spec.name.as_deref(), Some("project"));
    assert_eq!(spec.python.packages, ["torch", "numpy"]);
    // It is a spec that the other verbs take.
    assert_eq!(home.sconce(&["lock", "--check"]).0, 1);
    // Another folder, and nothing beside the file.
    std::fs::create_dir(home.path().join("other")).unwrap();
    let (code, _, err) = home.sconce(&["init", "../other", "--name", "n"]);
    assert_eq!(
        (code, err.as_str()),
        (0, "wrote ../other/sconce.toml, a small one to begin with\n")
    );
    assert_eq!(
        std::fs::read_dir(home.path().join("other"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn init_adopts_what_is_there() {
    let home = Home::new("");
    let project = home.path().join("project");
    std::fs::remove_file(project.join("sconce.toml")).unwrap();
    for (name, text) in [
        ("requirements.txt", "torch==2.4.1\n"),
        ("train.py", ""),
        (
            "Dockerfile",
            "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\nRUN pip install -r requirements.txt && make\n",
        ),
    ] {
        std::fs::write(project.join(name), text).unwrap();
    }
    assert_snapshot!(home.said(&["init", "--dry-run"]), @r#"
    exit code 0
    -- standard output
    # Made by `sconce init` from requirements.txt.

    [python]
    requirements = "requirements.txt"

    [run]
    command = ["python", "train.py"]
    -- standard error
    not written: sconce.toml from requirements.txt (also here: Dockerfile)
    decided: the command is `python train.py`
    "#);
    assert!(!project.join("sconce.toml").exists());
    assert_snapshot!(home.said(&["init", "Dockerfile", "--name", "net"]), @r#"
    exit code 0
    -- standard output
    -- standard error
    wrote sconce.toml from Dockerfile
    left out: make (line 2)
      an environment is made without running commands: do it in the run's own command, or once outside and mount the result
    decided: pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime (line 1)
      becomes torch==2.6.0, whose usual wheels are for CUDA 12.4 too, and torchvision; what else it holds (torchaudio, conda's packages) has to be named
    decided: torch==2.4.1 (line 2)
      takes the place of torch==2.6.0
    decided: requirements.txt (line 2)
      its requirements are copied into the spec, as they are not all; later changes of it do not count
    decided: the command is `python train.py`
    "#);
    assert_snapshot!(std::fs::read_to_string(project.join("sconce.toml")).unwrap(), @r#"
    # Made by `sconce init` from Dockerfile.
    # Left out of it:
    #   make (line 2): an environment is made without running commands: do it in the run's own command, or once outside and mount the result

    name = "net"

    [python]
    packages = ["torchvision", "torch==2.4.1"]

    [run]
    command = ["python", "train.py"]
    "#);

    std::fs::write(project.join("requirements.txt"), "torch==2.4.1+cu118\n").unwrap();
    let (code, out, err) = home.sconce(&["init", "--force", "--json", "requirements.txt"]);
    assert_eq!((code, err.as_str()), (0, ""));
    crate::json::assert_same("init.json", &out);
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["spec"]["python"]["requirements"], "requirements.txt");
    assert_eq!(
        (&said["written"], &said["notes"][0]["outcome"]),
        (&true.into(), &"decided".into())
    );
}

#[test]
fn init_completes_a_project_by_what_its_folder_has() {
    let home = Home::new("");
    let project = home.path().join("project");
    std::fs::remove_file(project.join("sconce.toml")).unwrap();
    std::fs::create_dir(project.join("net")).unwrap();
    for (name, text) in [
        (
            "setup.py",
            "setup(name='net', install_requires=['torch'])\n",
        ),
        ("Dockerfile", "FROM python:3.10\nRUN pip install tqdm\n"),
        (
            "README.md",
            "# Net\n## Installation\n```\npip install -e .\npip install opencv-python\nsudo apt install ffmpeg\n```\n",
        ),
        ("net/__init__.py", "import cv2, numpy\n"),
        ("show.py", "import yaml\nimport tourch\n"),
    ] {
        std::fs::write(project.join(name), text).unwrap();
    }
    assert_snapshot!(home.said(&["init"]), @r#"
    exit code 0
    -- standard output
    -- standard error
    wrote sconce.toml from setup.py (also here: Dockerfile)
    left out: tourch (show.py:2)
      imported, and nothing says what brings it: add that to `[python] packages`
    decided: ffmpeg
      as README.md:6 has it
    decided: Python 3.10
      as Dockerfile has it
    added: opencv-python (README.md:5), pyyaml (show.py:1)
      setup.py does not name them
    hint: no command yet: give [run] one, or say `sconce run -- COMMAND`; this folder is /workspace inside
    "#);
    assert_snapshot!(std::fs::read_to_string(project.join("sconce.toml")).unwrap(), @r#"
    # Made by `sconce init` from setup.py.
    # Left out of it:
    #   tourch (show.py:2): imported, and nothing says what brings it: add that to `[python] packages`

    name = "net"

    [python]
    version = "3.10"
    packages = [
        "opencv-python",  # README.md:5
        "pyyaml",  # show.py:1
    ]
    editable = ["."]

    [system]
    packages = ["ffmpeg"]
    "#);
}

#[test]
fn what_the_code_cannot_do_without_is_an_error_of_lock() {
    let home = Home::new("");
    let project = home.path().join("project");
    std::fs::remove_file(project.join("sconce.toml")).unwrap();
    for (name, text) in [
        (
            "environment.yml",
            "dependencies:\n  - six\n  - psi4=1.9\n  - no-code-imports-it\n",
        ),
        ("tools/own.py", "import psi4\nimport some_tool\n"),
        (
            "main.py",
            "import some_module\nfrom a.b import c\ndef f():\n    import some_other\ntry:\n    import apex\nexcept ImportError:\n    pass\n",
        ),
        ("a/b.py", "import deeper\n"),
    ] {
        let path = project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    assert_eq!(home.sconce(&["init"]).0, 0);
    let written = std::fs::read_to_string(project.join("sconce.toml")).unwrap();
    let spec = sconce_schema::Spec::parse(&written).unwrap();
    assert_eq!(spec.python.missing, ["some_module", "psi4"], "{written}");
    // Here nothing can be resolved: why is the error, and beside it stands what is known to be missing.
    let (code, _, err) = home.sconce(&["--offline", "lock"]);
    let note = "nothing brings some_module, psi4 yet, which the code imports and `missing`";
    assert!(code != 0 && err.contains(note), "{err}");
    let mended: Vec<&str> = written
        .lines()
        .filter(|line| !line.starts_with("missing = "))
        .collect();
    std::fs::write(project.join("sconce.toml"), mended.join("\n")).unwrap();
    let (_, _, err) = home.sconce(&["--offline", "lock"]);
    assert!(!err.contains("imports"), "{err}");
}

#[test]
fn init_says_what_it_cannot_read() {
    let home = Home::new("");
    let project = home.path().join("project");
    for (name, text) in [
        ("settings.py", &b"setup()"[..]),
        ("requirements.txt", b"six\ntorch\xff\n"),
        ("compose.yml", b"services: {}\n"),
        ("uv.lock", b"version = 7\n"),
    ] {
        std::fs::write(project.join(name), text).unwrap();
    }
    let force = |source| home.said(&["init", "--force", source]);
    assert_snapshot!(force("settings.py"), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: it is not known what settings.py is
    hint: SOURCE is a uv.lock, pylock.toml, poetry.lock, pdm.lock, Pipfile.lock, pixi.lock, conda-lock.yml, pyproject.toml, setup.py, requirements.txt, Pipfile, environment.yml or Dockerfile, told by its name; or a folder
    "#);
    assert_snapshot!(force("nowhere.txt"), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: there is nothing at nowhere.txt
    hint: SOURCE is a uv.lock, pylock.toml, poetry.lock, pdm.lock, Pipfile.lock, pixi.lock, conda-lock.yml, pyproject.toml, setup.py, requirements.txt, Pipfile, environment.yml or Dockerfile, told by its name; or a folder
    "#);
    assert_snapshot!(force("requirements.txt"), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: requirements.txt: line 2: this is not UTF-8 text
    hint: save it as UTF-8 (`iconv -f UTF-16 -t UTF-8` where PowerShell wrote it)
    "#);
    assert_snapshot!(force("compose.yml"), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: compose.yml: there is no list `dependencies` in it
    hint: give another file, or write sconce.toml by hand
    "#);
    assert_snapshot!(force("uv.lock"), @r#"
    exit code 3
    -- standard output
    -- standard error
    error: uv.lock: this is version 7 of uv.lock; version 1 is read
    hint: give pyproject.toml instead
    "#);
    assert_snapshot!(home.said(&["init", "--force", "--name", "a/b"]), @r#"
    exit code 2
    -- standard output
    -- standard error
    error: --name: `name` cannot be `a/b`
    hint: letters, digits, `.`, `_` and `-`, 63 at most
    "#);
    assert_eq!(
        std::fs::read_to_string(project.join("sconce.toml")).unwrap(),
        ""
    );
}
