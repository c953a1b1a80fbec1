//! Which Python, and which versions, the files of a folder and its code ask for.

use super::*;

#[test]
fn a_bound_stands_once_and_not_against_the_projects_python() {
    let code = "import numpy as np\nx = np.float\n";
    let project = |python: &str| {
        format!(
            "[project]\nname = \"tr\"\nrequires-python = \"{python}\"\ndependencies = [\"numpy\"]\n"
        )
    };
    let of = |python_file: &str, requires: &str| {
        let project = project(requires);
        let mut files = vec![("pyproject.toml", project.as_str()), ("main.py", code)];
        if !python_file.is_empty() {
            files.push((".python-version", python_file));
        }
        let imported = survey(&ToyFolder::new(&files)).unwrap().imported;
        let mut notes = imported.notes.iter();
        let is_told = notes.any(|note| note.what.contains("numpy<1.24"));
        (imported.spec.python.packages, is_told)
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(of("3.12", ">=3.8"), (none.clone(), true));
    assert_eq!(of("", ">=3.12"), (none, true));
    assert_eq!(of("3.11", ">=3.8"), (vec!["numpy<1.24".to_owned()], false));
    assert_eq!(of("", ">=3.10"), (vec!["numpy<1.24".to_owned()], false));

    let uses =
        "from skimage.measure import compare_ssim\nfrom torch.utils.cpp_extension import load\n";
    assert_eq!(
        python(&[("train.py", uses)]),
        "torch < train.py:2; setuptools<81 < train.py:2, as torch.utils.cpp_extension imports it; \
         scikit-image<0.18 < train.py:1"
    );
}

#[test]
fn versions_are_asked_for_of_what_chosen_extras_bring() {
    let pyproject =
        format!("{BUILD}[project.optional-dependencies]\nworker = [\"transformers>=4.31\"]\n");
    let code = (
        "my_net/a.py",
        "from transformers.modeling_attn_mask_utils import x\n",
    );
    let readme = |line: &str| format!("```sh\n{line}\n```\n");
    let with = |line: &str| {
        python(&[
            ("pyproject.toml", &pyproject),
            ("my_net/__init__.py", "import os\n"),
            code,
            ("README.md", &readme(line)),
        ])
    };
    assert_eq!(
        with("pip install -e '.[worker]'"),
        "-e .; extra worker; transformers<5 < my_net/a.py:1"
    );
    assert_eq!(with("pip install -e ."), "-e .");
}

#[test]
fn small_files_name_the_machine() {
    let train = ("train.py", "import torch");
    for (file, expected) in [
        ((".python-version", "3.10.4\n"), "python 3.10"),
        (("runtime.txt", "python-3.9.1"), "python 3.9"),
        (
            ("Dockerfile", "FROM python:3.12-slim\nRUN make\n"),
            "python 3.12",
        ),
        (
            ("cog.yaml", "build:\n  python_version: \"3.8\"\n"),
            "python 3.8",
        ),
    ] {
        let found = python(&[train, file]);
        assert!(
            found.ends_with(&format!("torch < train.py:1; {expected}")),
            "{file:?}: {found}"
        );
    }
    let found = survey(&ToyFolder::new(&[
        train,
        (".python-version", "3.7"),
        ("apt.txt", "ffmpeg # x\nlibgl1\nNo\n"),
    ]));
    let found = found.unwrap().imported;
    assert_eq!(found.spec.python.version, None);
    assert_eq!(found.spec.system.packages, ["ffmpeg", "libgl1"]);
    assert!(format_notes(&found).contains("left out: Python 3.7: out of reach"));
}

#[test]
fn a_named_python_counts_beside_a_bound_that_has_it() {
    let lock = |bound: &str| {
        format!(
            "version = 1\nrequires-python = \"{bound}\"\n[[package]]\nname = \"n\"\nversion = \"1\"\n\
             source = {{ virtual = \".\" }}\ndependencies = [{{ name = \"six\" }}]\n[[package]]\n\
             name = \"six\"\nversion = \"1.16.0\"\nsource = {{ registry = \"https://index.example.org/simple\" }}\n"
        )
    };
    for (bound, named, expected) in [
        (">=3.8", "3.10", Some("3.10")),
        (">=3.8,<3.13", "3.10.2", Some("3.10")),
        (">=3.11,<3.13", "3.10", Some(">=3.11,<3.13")),
        (">=3.8", "my-env", None),
    ] {
        let lock = lock(bound);
        let files = [
            ("uv.lock", lock.as_str()),
            (".python-version", named),
            ("Dockerfile", "FROM python:3.9\n"),
        ];
        let found = survey(&ToyFolder::new(&files)).unwrap().imported;
        assert_eq!(
            found.spec.python.version.as_deref(),
            expected,
            "{bound} {named}"
        );
        let is_refused =
            format_notes(&found).contains("the project is for >=3.11,<3.13: that counts");
        assert_eq!(is_refused, bound.starts_with(">=3.11"));
    }
}

#[test]
fn names_that_are_gone_ask_for_a_version_where_the_author_says_nothing_else() {
    let packages = |requirements: &str| {
        let folder = ToyFolder::new(&[
            ("requirements.txt", requirements),
            (
                "train.py",
                "import numpy as np\nx = np.Inf\ny = np.float(1)\n",
            ),
        ]);
        survey(&folder).unwrap().imported.spec.python.packages
    };
    assert_eq!(packages("numpy\n"), ["numpy<1.24"]);
    assert_eq!(packages("numpy==1.26.4\n"), [""; 0]);
    assert_eq!(packages("numpy>=2\n"), [""; 0]);
}

#[test]
fn a_module_that_python_has_no_more_asks_for_an_older_one() {
    let python = |files: &[(&str, &str)]| {
        let spec = survey(&ToyFolder::new(files)).unwrap().imported.spec;
        spec.python.version
    };
    let needs = ("requirements.txt", "numpy\n");
    let old = |text| [needs, ("train.py", text)];
    assert_eq!(python(&old("import imp\n")).as_deref(), Some("<3.12"));
    assert_eq!(python(&old("import pipes\n")).as_deref(), Some("<3.13"));
    assert_eq!(
        python(&old(
            "import collections\nx = collections.Mapping\nimport imp\n"
        ))
        .as_deref(),
        Some("<3.10")
    );
    assert_eq!(python(&old("from collections import OrderedDict\n")), None);
    assert_eq!(
        python(&old(
            "try:\n    from collections import Mapping\nexcept ImportError:\n    pass\n"
        )),
        None
    );
    let own = [needs, ("train.py", "import parser\n"), ("parser.py", "")];
    assert_eq!(python(&own), None, "a module of its own");
    let bounded = [
        (
            "pyproject.toml",
            "[project]\nname = \"a\"\nversion = \"1\"\nrequires-python = \">=3.10\"\ndependencies = [\"numpy\"]\n",
        ),
        ("train.py", "from collections import Mapping\n"),
    ];
    assert_eq!(python(&bounded), None, "no Python meets both");
}
