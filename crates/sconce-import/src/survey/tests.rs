use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::tests::format_notes;
use super::super::{ImportFormat, decode_text, import_spec};
use super::*;

mod versions;

/// A folder in memory.
struct ToyFolder {
    files: BTreeMap<String, String>,
    /// Folders with nothing in them.
    empty: Vec<String>,
}

impl ToyFolder {
    fn new(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self {
            files: files.collect(),
            empty: Vec::new(),
        }
    }
}

impl ProjectFolder for ToyFolder {
    fn name(&self) -> &str {
        "toy"
    }

    fn read_text(&self, path: &str) -> Option<String> {
        self.files.get(path).cloned()
    }

    fn list(&self, path: &str) -> Rc<[FolderEntry]> {
        let begin = if path.is_empty() {
            String::new()
        } else {
            format!("{path}/")
        };
        let all = self.files.keys().chain(&self.empty);
        let below = all.filter_map(|file| file.strip_prefix(&begin));
        let entries: BTreeSet<FolderEntry> = below
            .map(|rest| {
                let (name, inner) = rest.split_once('/').unwrap_or((rest, ""));
                let is_dir = !inner.is_empty() || self.empty.contains(&format!("{begin}{name}"));
                FolderEntry {
                    name: name.to_owned(),
                    is_dir,
                }
            })
            .collect();
        entries.into_iter().collect()
    }

    fn read_start(&self, path: &str) -> Vec<u8> {
        let text = self.read_text(path).unwrap_or_default();
        text.into_bytes().into_iter().take(64).collect()
    }
}

/// As `init` does it: the first file that names packages, completed.
fn survey(folder: &ToyFolder) -> Option<SurveyedSpec> {
    let mut base = None;
    for name in super::super::known_file_names() {
        let kind = ImportFormat::from_file_name(name).unwrap();
        if let Some(text) = folder.read_text(name)
            && decode_text(kind, text.as_bytes()).is_ok()
            && let Ok(imported) = import_spec(kind, name, &text, &|path| folder.read_text(path))
            && (base.is_none() || !imported.provided.is_empty())
        {
            let done = !imported.provided.is_empty();
            let source = name.to_owned();
            base = Some((kind, SurveyedSpec { source, imported }));
            if done {
                break;
            }
        }
    }
    survey_folder(base, folder)
}

/// `[python]` and what was added from where.
fn python(files: &[(&str, &str)]) -> String {
    let Some(found) = survey(&ToyFolder::new(files)) else {
        return "nothing".to_owned();
    };
    let python = &found.imported.spec.python;
    let origins = found.imported.origins.iter();
    let origins: Vec<String> = origins
        .map(|origin| {
            assert!(python.packages.contains(&origin.package));
            format!("{} < {}", origin.package, origin.place)
        })
        .collect();
    let mut shown = Vec::new();
    shown.extend(python.requirements.iter().map(|path| format!("-r {path}")));
    shown.extend(python.editable.iter().map(|path| format!("-e {path}")));
    shown.extend(python.extras.iter().map(|extra| format!("extra {extra}")));
    let own = python.packages.iter();
    let own = own.filter(|package| origins.iter().all(|origin| !origin.starts_with(*package)));
    shown.extend(own.cloned());
    shown.extend(origins);
    shown.extend(
        python
            .version
            .iter()
            .map(|version| format!("python {version}")),
    );
    shown.join("; ")
}

const SETUP: &str =
    "setup(name='my-net', install_requires=['torch'], extras_require={'all': [], 'dev': []})";
const BUILD: &str = "[build-system]\n[project]\nname = \"my-net\"\ndependencies = [\"torch\"]\n";

#[test]
fn a_project_that_its_readme_installs_is_a_package() {
    let project = "[project]\nname = \"own\"\nversion = \"1\"\ndependencies = [\"numpy\"]\n";
    let readme = "# Install\n```\npip install git+https://github.com/me/own.git\n```\n";
    let config = "[remote \"origin\"]\n\turl = https://github.com/me/own\n";
    let files = [
        ("pyproject.toml", project),
        ("src/own/__init__.py", ""),
        ("README.md", readme),
        (".git/config", config),
    ];
    assert_eq!(python(&files), "-e .");
    let refused = format!("{project}[tool.uv]\npackage = false\n");
    assert_eq!(
        python(&[("pyproject.toml", &refused), files[1], files[2]]),
        ""
    );
    assert_eq!(python(&files[..2]), "");
}

#[test]
fn what_other_files_name_is_no_guess() {
    let setup = "setup(name='mu', install_requires=['torch'])";
    let files = [
        ("setup.py", setup),
        ("requirements.txt", "torch\nmuseval\nhydra-core>=1.1,<1.2\n"),
        (
            "environment-cpu.yml",
            "dependencies:\n- pip:\n  - musdb>=0.4.0\n",
        ),
        ("requirements-dev.txt", "some-tool==3\n"),
        ("mu/__init__.py", ""),
        (
            "train.py",
            "import torch, hydra\nimport museval\nimport musdb\nimport some_tool\n",
        ),
    ];
    assert_eq!(
        python(&files),
        "-e .; hydra-core>=1.1,<1.2 < requirements.txt:3; museval < requirements.txt:2; \
         musdb>=0.4.0 < environment-cpu.yml"
    );
}

#[test]
fn what_the_project_names_itself_is_no_guess() {
    let extras = "[build-system]\n[project]\nname = \"my-net\"\ndependencies = [\"torch\"]\n\
        [project.optional-dependencies]\nall = [\"my-net[ui]\"]\nui = [\"streamlit-keyup\", \"gradio>=4\"]\n";
    let program = "import torch\nimport gradio\nfrom st_keyup import st_keyup\n";
    let readme = "# Install\n```\npip install -e \".[all]\"\n```\n";
    let files = [
        ("pyproject.toml", extras),
        ("demo.py", program),
        ("README.md", readme),
    ];
    assert_eq!(python(&files), "-e .; extra all");
    let found = survey(&ToyFolder::new(&files)).unwrap();
    assert!(found.imported.unprovided.is_empty());
    // In the version of the extra that nobody chose.
    let files = [("pyproject.toml", extras), ("demo.py", program)];
    assert!(
        python(&files).contains("gradio>=4 < pyproject.toml extra ui"),
        "{}",
        python(&files)
    );

    let block = "# /// script\n# dependencies = [\"adam-atan2-pytorch\", \"odd-name==1\", \"torch==2.5\", \"wandb\"]\n# ///\n";
    let program = format!("{block}import adam_atan2_pytorch\nimport torch\n");
    assert_eq!(
        python(&[("other.py", &program)]),
        "adam-atan2-pytorch < other.py; torch==2.5 < other.py"
    );
    let all = "adam-atan2-pytorch < train.py; odd-name==1 < train.py; torch==2.5 < train.py; wandb < train.py";
    assert_eq!(python(&[("train.py", &program)]), all);
    let unknown = format!("{block}import strange\n");
    assert_eq!(
        python(&[("other.py", &unknown)]),
        all.replace("train", "other")
    );
}

#[test]
fn the_project_itself_is_installed_where_it_says_that_it_can_be() {
    for (files, expected) in [
        (&[("setup.py", SETUP)][..], "-e ."),
        (&[("pyproject.toml", BUILD)], "-e ."),
        (
            &[
                ("setup.py", SETUP),
                ("Dockerfile", "FROM python\nRUN pip install numpy\n"),
            ],
            "-e .",
        ),
        (
            &[("setup.py", "setup()"), ("requirements.txt", "numpy\n")],
            "-r requirements.txt; -e .",
        ),
        // The file says so itself.
        (
            &[
                ("setup.py", "setup()"),
                ("requirements.txt", "numpy\n-e .\n"),
            ],
            "-r requirements.txt",
        ),
        (&[("requirements.txt", "numpy\n")], "-r requirements.txt"),
        (
            &[
                ("pyproject.toml", "[tool.uv]\npackage = false\n"),
                ("setup.py", SETUP),
                ("requirements.txt", "a"),
            ],
            "torch",
        ),
    ] {
        assert_eq!(python(files), expected, "{files:?}");
    }
}

#[test]
fn a_readme_installs_what_no_file_names() {
    let readme = "# My net\n## Installation\n```\ngit clone https://git.example.org/me/my-net\ncd my-net; pip install -e '.[all]'\n```\n\
                  ```\npip install opencv-python matplotlib>=3 torch\n```\n## Tests\n```\npip install nose\n```\n";
    assert_eq!(
        python(&[("setup.py", SETUP), ("README.md", readme)]),
        "-e .; extra all; opencv-python < README.md:8; matplotlib>=3 < README.md:8"
    );
    assert_eq!(
        python(&[
            ("README.md", "# Net\n```\npip install torch numpy\n```\n"),
            ("train.py", "import torch\n")
        ]),
        "torch < README.md:3; numpy < README.md:3"
    );
    // Only words: no command.
    assert_eq!(
        python(&[("README.md", "Run pip install torch\n")]),
        "nothing"
    );
}

#[test]
fn a_readme_chooses_among_files_and_pip_comes_before_conda() {
    let conda = (
        "environment.yml",
        "dependencies: [python=3.10, pytorch=2.1]\n",
    );
    let wishes = ("requirements.txt", "torch\n");
    let readme = |text: &str| format!("# Net\n## Install\n```\n{text}\n```\n");
    let both = readme("conda env create -f environment.yml\npip install -r requirements.txt");
    let alone = readme("conda env create -f environment.yml");
    for (text, expected) in [
        (&both, "-r requirements.txt; -e .; python 3.10"),
        (&alone, "-e .; torch==2.1.*; python 3.10"),
    ] {
        let files = [
            ("setup.py", SETUP),
            conda,
            wishes,
            ("README.md", text.as_str()),
        ];
        assert_eq!(python(&files), expected, "{text}");
    }
    let names = readme("conda install pytorch=1.9 ffmpeg cudatoolkit\npip install torch tqdm");
    assert_eq!(
        python(&[("README.md", &names)]),
        "torch < README.md:5; tqdm < README.md:5"
    );
    let two = readme("pip install -r requirements.txt\npip install -r more.txt");
    assert_eq!(
        python(&[wishes, ("more.txt", "einops==0.8\n"), ("README.md", &two)]),
        "-r requirements.txt; einops==0.8 < more.txt:1"
    );
}

#[test]
fn what_programs_import_is_added_by_the_table_alone() {
    let found = survey(&ToyFolder::new(&[
        ("requirements.txt", "torchvision\n"),
        (
            "train.py",
            "import os, cv2\nimport torch, PIL\nfrom util.misc import x\nimport pandsa\nimport util.odd\n\
             def f():\n  import sklearn\nif x:\n  import wandb\n",
        ),
        ("util/__init__.py", ""),
        ("util/misc.py", "from . import odd\nimport yaml\n"),
        ("util/odd.py", "import tqdm\n"),
        ("tests/test_x.py", "import pytest, scipy\n"),
        ("docs/conf.py", "import sphinx\n"),
        ("README.md", "Needs `tqdm==4.60`.\n"),
    ]))
    .unwrap();
    let origins: Vec<String> = found
        .imported
        .origins
        .iter()
        .map(|o| format!("{} {}", o.package, o.place))
        .collect();
    assert_eq!(
        origins,
        [
            "opencv-python-headless train.py:1",
            "scikit-learn train.py:7",
            "pyyaml util/misc.py:2",
            "tqdm==4.60 README.md:1",
        ]
    );
    assert_eq!(
        format_notes(&found.imported),
        "left out: pandsa (train.py:4): imported, and nothing says what brings it: add that to `[python] packages`\n"
    );
}

#[test]
fn of_a_package_what_importing_it_needs_counts() {
    let files = [
        ("setup.py", SETUP),
        ("my_net/__init__.py", "from .model import Net\n"),
        (
            "my_net/model.py",
            "import numpy\ndef f():\n  import wandb\n",
        ),
        ("my_net/extra.py", "import scipy\n"),
        ("examples/a.py", "import timm\n"),
    ];
    assert_eq!(python(&files), "-e .; numpy < my_net/model.py:1");
    let bare = [
        ("setup.py", SETUP),
        ("src/net/__init__.py", ""),
        ("src/net/a.py", "import requests, net.b\n"),
    ];
    assert_eq!(python(&bare), "-e .; requests < src/net/a.py:1");
}

#[test]
fn a_package_that_leaves_torch_to_its_reader_leaves_its_family_too() {
    let files = [
        (
            "setup.py",
            "setup(name='my-net', install_requires=['numpy'])",
        ),
        ("my_net/__init__.py", "import torch\n"),
        ("my_net/layers/__init__.py", ""),
        (
            "my_net/layers/roi.py",
            "import os\nfrom torchvision.ops import roi_align\n",
        ),
        ("my_net/sound.py", "def f():\n  import torchaudio\n"),
    ];
    assert_eq!(
        python(&files),
        "-e .; torch < my_net/__init__.py:1; torchvision < my_net/layers/roi.py:2"
    );
    let named = [("setup.py", SETUP), files[1], files[2], files[3]];
    assert_eq!(python(&named), "-e .");
}

#[test]
fn a_folder_of_data_is_no_module() {
    let files = [
        ("main.py", "import datasets\nimport clip\n"),
        ("datasets/a.csv", ""),
        ("clip/x.py", ""),
    ];
    assert_eq!(python(&files), "datasets < main.py:1");
    let own = [
        ("main.py", "import datasets\n"),
        ("datasets/__init__.py", "import numpy\n"),
    ];
    assert_eq!(python(&own), "numpy < datasets/__init__.py:1");
    let loop_of_two = [("a.py", "import b"), ("b.py", "import a, torch")];
    assert_eq!(python(&loop_of_two), "torch < b.py:1");
}

#[test]
fn cog_and_notebooks_count_where_nothing_else_does() {
    let cog = (
        "cog.yaml",
        "build:\n  python_packages:\n    - torch==2.0\n  system_packages: [ffmpeg]\n  run: [make]\npredict: a\n",
    );
    assert_eq!(python(&[cog]), "torch==2.0 < cog.yaml:3");
    let notebook = (
        "a.ipynb",
        r#"{"cells": [{"cell_type": "code", "source": ["!pip install -q timm\n", "import x"]}]}"#,
    );
    assert_eq!(python(&[notebook]), "timm < a.ipynb cell 1");
    assert_eq!(
        python(&[notebook, ("requirements.txt", "torch")]),
        "-r requirements.txt"
    );
}

#[test]
fn what_a_clone_lacks_is_named() {
    let mut folder = ToyFolder::new(&[
        ("train.py", "import torch"),
        (
            ".gitmodules",
            "[submodule \"a\"]\n\tpath = third_party/a\n[submodule \"b\"]\n\tpath = b\n\tpath = ../c\n",
        ),
        ("b/x", ""),
        (".gitattributes", "*.pt filter=lfs\n"),
        (
            "weights/a.pt",
            "version https://git-lfs.example.org/spec/v1\noid sha256:00\n",
        ),
        ("weights/b.pt", "PK"),
    ]);
    folder.empty.push("third_party/a".to_owned());
    let said = format_notes(&survey(&folder).unwrap().imported);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines[0]
            .starts_with("left out: third_party/a: the submodule is empty: `git submodule update")
    );
    assert!(lines[1].starts_with("left out: weights/a.pt: a pointer of Git LFS"));
}

proptest! {
    #[test]
    fn no_folder_panics(
        texts in proptest::collection::vec(
            "((import|from|pip install|setup\\(|=|\\[|\\]|'a'|torch|```|# Install|\\.|:|,|\\{|\\}|\"|-e|é|\n) ?){0,30}",
            8,
        ),
    ) {
        let names = [
            "setup.py", "README.md", "train.py", "pyproject.toml", "cog.yaml", "a.ipynb", ".gitmodules", "src/a/__init__.py",
        ];
        let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
        if let Some(found) = survey(&ToyFolder::new(&files)) {
            let text = found.imported.spec.to_text();
            prop_assert_eq!(sconce_schema::Spec::parse(&text), Ok(found.imported.spec));
        }
    }
}

#[test]
fn what_a_readme_leaves_to_a_page_is_read_there() {
    let page = "# Net\n## Requirements\n```\npip install torch==2.1.0\n```\n## Docker\n```\npip install apex\n```\n";
    let packages = |files: &[(&str, &str)]| {
        let found = survey(&ToyFolder::new(files)).unwrap();
        let places = found.imported.origins.iter();
        let places: Vec<_> = places
            .map(|origin| format!("{} {}", origin.package, origin.place))
            .collect();
        (found.source, places)
    };
    let lead = ("README.md", "See [the steps](docs/setup.md) to install.\n");
    let linked = ("README.md", "See [installation](docs/steps.md).\n");
    let own = (
        "README.md",
        "[installation](docs/steps.md)\n```\npip install numpy\n```\n",
    );
    let of = |place: &str| (place.to_owned(), vec![format!("torch==2.1.0 {place}:4")]);
    assert_eq!(
        packages(&[lead, ("docs/setup.md", page)]),
        of("docs/setup.md")
    );
    assert_eq!(
        packages(&[linked, ("docs/steps.md", page)]),
        of("docs/steps.md")
    );
    assert_eq!(packages(&[("INSTALL.md", page)]), of("INSTALL.md"));
    assert_eq!(
        packages(&[own, ("docs/steps.md", page)]).1,
        ["numpy README.md:3"],
        "the README says it itself"
    );
}

#[test]
fn a_list_of_condas_is_taken_by_what_it_is() {
    let list = "# $ conda create --name <env> --file <this file>\n_libgcc_mutex=0.1=main\npython=3.10.4=h12debd9_0\n\
                pytorch=2.0.1=py3.10_cuda11.7_cudnn8.5.0_0\nrich=13.0.0=pypi_0\n";
    let found = survey(&ToyFolder::new(&[("requirements.txt", list)])).unwrap();
    let python = &found.imported.spec.python;
    assert_eq!(python.packages, ["torch==2.0.1", "rich==13.0.0"]);
    assert_eq!(python.version.as_deref(), Some("3.10"));
    assert_eq!(python.requirements, None);
}

#[test]
fn programs_below_the_first_level_are_read_where_nothing_above_is_started() {
    let numpy = "import numpy\n";
    for (files, expected) in [
        (&[("exp/a/train.py", numpy)][..], "numpy < exp/a/train.py:1"),
        (
            &[("util.py", "import os"), ("exp/a/train.py", numpy)],
            "numpy < exp/a/train.py:1",
        ),
        (&[("run.py", "import os"), ("exp/train.py", numpy)], ""),
        (
            &[
                ("run.py", "import os"),
                ("training/train.py", "import util\n"),
                ("training/util.py", numpy),
                ("README.md", "## Use\n```\npython training/train.py\n```\n"),
            ],
            "numpy < training/util.py:1",
        ),
        (
            &[
                ("pkg/__init__.py", "from .core import a\n"),
                ("pkg/core.py", "a = 1"),
                ("pkg/sub/utils.py", numpy),
            ],
            "numpy < pkg/sub/utils.py:1",
        ),
        (
            &[(
                "a.ipynb",
                r#"{"cells": [{"cell_type": "code", "source": "import transformers"}]}"#,
            )],
            "transformers < a.ipynb cell 1",
        ),
        (
            &[
                ("requirements.txt", "torch\n"),
                (
                    "a.ipynb",
                    r#"{"cells": [{"cell_type": "code", "source": "import transformers"}]}"#,
                ),
            ],
            "-r requirements.txt; transformers < a.ipynb cell 1",
        ),
        (
            &[
                ("exp/a/train.py", "import helper\nimport numpy\n"),
                ("exp/b/c/helper.py", "import torch\n"),
                ("web/requirements.txt", "flask\n"),
                ("web/main.py", "import flask\n"),
                ("tests/a/main.py", "import scipy\n"),
            ],
            "torch < exp/b/c/helper.py:1; numpy < exp/a/train.py:2",
        ),
    ] {
        let found = python(files);
        let mut found: Vec<&str> = found.split("; ").collect();
        let mut expected: Vec<&str> = expected.split("; ").collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{files:?}");
    }
}

#[test]
fn code_that_needs_nothing_known_is_no_bare_folder() {
    for (files, expected) in [
        (&[("main.py", "import os\n")][..], ""),
        (
            &[("main.py", "import idna_of_mine\n")],
            "idna_of_mine (main.py:1)",
        ),
        (
            &[
                ("lib/setup.py", ""),
                (
                    "lib/a.ipynb",
                    r#"{"cells": [{"cell_type": "code", "source": "import numpy"}]}"#,
                ),
            ],
            "decided: lib: a project of its own",
        ),
    ] {
        let found = survey(&ToyFolder::new(files)).expect("there is code");
        let python = &found.imported.spec.python;
        assert!(python.packages.is_empty(), "{files:?}");
        let said = format_notes(&found.imported);
        assert!(said.contains(expected), "{said}");
    }
    assert!(survey(&ToyFolder::new(&[("README.md", "# Net\n")])).is_none());
}

#[test]
fn a_notebook_installs_from_a_file() {
    let cell = r#"{"cells": [{"cell_type": "code", "source": "%pip install -r reqs.txt\n%pip install tqdm"}]}"#;
    let files = [("a.ipynb", cell), ("reqs.txt", "torch\nnumpy\n")];
    assert_eq!(python(&files), "-r reqs.txt; tqdm < a.ipynb cell 1");
    let said = format_notes(&survey(&ToyFolder::new(&files[..1])).unwrap().imported);
    assert!(
        said.contains("reqs.txt: a.ipynb cell 1 installs from it, and"),
        "{said}"
    );
}

#[test]
fn condas_environment_of_the_readme_that_is_not_taken_is_said() {
    let files = [
        ("requirements.txt", "numpy\n"),
        ("environment.yml", "dependencies:\n- numpy\n"),
        (
            "README.md",
            "## Install\n```\nconda env create -f environment.yml\n```\n",
        ),
    ];
    assert_eq!(python(&files), "-r requirements.txt");
    let said = format_notes(&survey(&ToyFolder::new(&files)).unwrap().imported);
    assert!(said.contains("requirements.txt is taken"), "{said}");
}

#[test]
fn the_project_by_pip_goes_before_condas_environment() {
    let conda = "dependencies:\n- numpy\n- pandas\n";
    let pip = "```\npip install my-net\n```\n";
    let env = "```\nconda env create -f environment.yml\n```\n";
    let readme = |first: &str, second: &str| format!("## Install\n{first}{second}");
    let with = |readme: &str| {
        python(&[
            ("setup.py", SETUP),
            ("environment.yml", conda),
            ("README.md", readme),
        ])
    };
    assert_eq!(with(&readme(pip, env)), "-e .");
    assert_eq!(with(&readme(env, pip)), "-e .; numpy; pandas");
}

#[test]
fn extras_that_the_readme_installs_are_not_said_to_be_left() {
    let said = |extras: &str| {
        let project = "[build-system]\n[project]\nname = \"my-net\"\n[project.optional-dependencies]\nall = []\ngpu = []\nweb = []\n";
        let readme = format!("## Install\n```\npip install my-net[{extras}]\n```\n");
        let files = [("pyproject.toml", project), ("README.md", &*readme)];
        format_notes(&survey(&ToyFolder::new(&files)).unwrap().imported)
    };
    let one = said("all");
    assert!(one.contains("the extras gpu, web: not installed"), "{one}");
    assert!(one.contains("the extra `all`: README.md:3"), "{one}");
    let all = said("all,gpu,web");
    assert!(!all.contains("not installed"), "{all}");
    assert!(
        all.contains("the extras all, gpu, web: README.md:3 installs the project with them"),
        "{all}"
    );
}

#[test]
fn the_python_of_the_readme_is_said() {
    let said = |version: &str, pinned: &str| {
        let readme = format!("## Install\n```\nconda create -n x python={version}\n```\n");
        let files = [("environment.yml", pinned), ("README.md", &*readme)];
        format_notes(&survey(&ToyFolder::new(&files)).unwrap().imported)
    };
    let open = "dependencies: [numpy]\n";
    assert!(said("3.6.7", open).contains("left out: Python 3.6.7: README.md:3 names it, and"));
    assert!(said("3.8", open).contains("decided: Python 3.8: README.md:3 names it; `lock`"));
    assert!(!said("3.8", "dependencies: [numpy, python=3.9]\n").contains("Python 3.8"));
}
