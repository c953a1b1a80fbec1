//! The compilers of bytecode, executed by this machine's own Python in place of an environment's.
//! Where there is none (3.11, Debian 12's, or later), nothing is tested.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sconce_image::bytecode::{SCRIPT, first};

const SITE: &str = "opt/venv/lib/python/site-packages";

fn python(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    let output = command.args(["-I", "-S", "-B", "-c"]).args(arguments);
    output.output().ok()
}

fn is_there() -> bool {
    let version = "import sys; sys.exit(sys.version_info < (3, 11))";
    python(&[version]).is_some_and(|output| output.status.success())
}

/// Trees as the compilers see them.
struct Trees(tempfile::TempDir);

impl Trees {
    fn new(count: usize) -> Self {
        let trees = Self(tempfile::tempdir().unwrap());
        for tree in 0..count {
            fs::create_dir_all(trees.path(&format!("trees/{tree}/source"))).unwrap();
            fs::create_dir_all(trees.path(&format!("trees/{tree}/bytecode"))).unwrap();
        }
        trees
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A module of tree `tree`.
    fn module(&self, tree: usize, path: &str, text: impl AsRef<[u8]>) {
        self.write(&format!("trees/{tree}/source/{SITE}/{path}"), text);
    }

    fn first(&self, trees: usize, kind: &str, what: &str) -> Output {
        let root = self.0.path().to_str().unwrap();
        python(&[first::SCRIPT, root, &trees.to_string(), SITE, kind, what]).unwrap()
    }

    /// The modules of tree `tree` that have bytecode.
    fn compiled(&self, tree: usize) -> BTreeSet<String> {
        let root = self.path(&format!("trees/{tree}/bytecode/{SITE}"));
        let mut found = BTreeSet::new();
        files(&root, &mut |file| {
            let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
            let path = path.replace("__pycache__/", "");
            found.insert(path.split('.').next().unwrap().to_owned());
            assert!(path.ends_with(".pyc"), "{path}");
        });
        found
    }
}

fn files(folder: &Path, tell: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, tell),
            path => tell(&path),
        }
    }
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_imported_at_once_is_compiled_and_nothing_else() {
    if !is_there() {
        return;
    }
    let trees = Trees::new(3);
    let package = "from typing import TYPE_CHECKING\nimport typing\n\
        import package.dotted.deep\n\
        from . import sibling, name_that_is_no_module\n\
        from .inner import *\n\
        try:\n    import guarded\nexcept ImportError:\n    import fallback\n\
        if TYPE_CHECKING:\n    import for_checkers\n    from package import also_for_checkers\n\
        if typing.TYPE_CHECKING:\n    import for_checkers\nelse:\n    import for_all\n\
        class A:\n    import in_class\n\
        def later():\n    import in_function\n";
    trees.module(1, "package/__init__.py", package);
    trees.module(1, "package/dotted/__init__.py", "");
    trees.module(
        1,
        "package/dotted/deep.py",
        "from .. import up\nfrom ... import beyond\n",
    );
    trees.module(1, "package/inner/__init__.py", "from ..up2 import x\n");
    for name in ["sibling", "up", "up2", "also_for_checkers", "unused"] {
        trees.module(1, &format!("package/{name}.py"), "");
    }
    for name in [
        "guarded",
        "fallback",
        "for_checkers",
        "for_all",
        "in_class",
        "in_function",
        "covered",
    ] {
        trees.module(1, &format!("{name}.py"), "import covered\n");
    }
    trees.module(2, "covered.py", "import from_the_higher\n");
    trees.module(2, "from_the_higher.py", "");
    let output = trees.first(3, "code", "import package");
    assert!(output.status.success(), "{output:?}");
    let expected = names(&[
        "package/__init__",
        "package/dotted/__init__",
        "package/dotted/deep",
        "package/inner/__init__",
        "package/sibling",
        "package/up",
        "package/up2",
        "guarded",
        "fallback",
        "for_all",
        "in_class",
    ]);
    assert_eq!(trees.compiled(1), expected);
    assert_eq!(trees.compiled(2), names(&["covered", "from_the_higher"]));
}

#[test]
fn the_bytes_are_those_of_the_whole_tree() {
    if !is_there() {
        return;
    }
    let trees = Trees::new(2);
    let text = "import b\nclass A:\n    text = 'not interned: ö'\n    name = 'interned'\n\
        def f(x=('a', 1.5, 'a')):\n    return {'interned', x, 12345}\n";
    for name in ["a.py", "b.py", "c.py"] {
        trees.module(
            1,
            &format!("p/{name}"),
            text.replace("import b", "from . import b"),
        );
    }
    trees.module(1, "p/__init__.py", "from .a import A\n");
    assert!(trees.first(2, "code", "import p").status.success());
    let of_first: Vec<_> = bytes(&trees.path("trees/1/bytecode"));
    assert_eq!(of_first.len(), 3);
    let (source, whole) = (trees.path("trees/1/source"), trees.path("whole"));
    let tree = [SCRIPT, source.to_str().unwrap(), whole.to_str().unwrap()];
    assert!(python(&tree).unwrap().status.success());
    let of_tree = bytes(&whole);
    assert_eq!(of_tree.len(), 4);
    assert!(of_first.iter().all(|file| of_tree.contains(file)));

    // What was begun is gone on with, and comes out the same.
    let output = trees.path("trees/1/bytecode");
    let tree = [SCRIPT, source.to_str().unwrap(), output.to_str().unwrap()];
    assert!(python(&tree).unwrap().status.success());
    assert_eq!(bytes(&output), of_tree);
}

/// Names within `root`, and what the files hold.
fn bytes(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    files(root, &mut |file| {
        let name = file.strip_prefix(root).unwrap().to_owned();
        found.push((name, fs::read(file).unwrap()));
    });
    found.sort();
    found
}

#[test]
fn hostile_sources_cost_no_more_than_their_own_bytecode() {
    if !is_there() {
        return;
    }
    let trees = Trees::new(2);
    let all = "import good, broken, deep, null, binary, circle, lone, unwritable, link, dotted\n";
    trees.module(1, "broken.py", "import good2\ndef (:\n");
    trees.module(1, "deep.py", "-".repeat(200_000) + "1\n");
    trees.module(1, "null.py", "import good2\0\n");
    trees.module(1, "binary.py", [0xff, 0xfe, 0x00, 0x80]);
    trees.module(1, "circle.py", "import circle, good, circle.circle\n");
    trees.module(1, "lone.py", "import good3\nx = '\\ud800'\n");
    trees.module(
        1,
        "dotted.py",
        format!("import {}\n", vec!["a"; 3000].join(".")),
    );
    trees.module(1, "good.py", "import sys, nowhere, good.inner\n");
    trees.module(1, "good2.py", "");
    trees.module(1, "good3.py", "");
    let link = trees.path(&format!("trees/1/source/{SITE}/link.py"));
    std::os::unix::fs::symlink("/nowhere/at/all", link).unwrap();
    // Bytecode of a killed machine.
    let tag = python(&["import sys; print(sys.implementation.cache_tag)"]).unwrap();
    let tag = String::from_utf8(tag.stdout).unwrap();
    let cache = format!("trees/1/bytecode/{SITE}/__pycache__");
    trees.module(1, "unwritable.py", "import good2\n");
    trees.write(&format!("{cache}/unwritable.{}.pyc", tag.trim()), [0; 40]);

    for (kind, what) in [("code", all), ("file", "local/main.py")] {
        trees.write("local/main.py", format!("import helper\n{all}"));
        trees.write("local/helper.py", "import good2\n");
        let output = trees.first(2, kind, what);
        assert!(output.status.success(), "{output:?}");
        let compiled = trees.compiled(1);
        for good in ["good", "circle", "lone", "good3", "dotted"] {
            assert!(compiled.contains(good), "{good}: {compiled:?}");
        }
        for bad in ["broken", "null", "binary", "link"] {
            assert!(!compiled.contains(bad), "{bad}");
        }
    }
    // The command's own module is followed, and not compiled.
    assert!(trees.compiled(1).contains("good2"));
    files(&trees.path("local"), &mut |file| {
        assert_eq!(file.extension().unwrap(), "py");
    });
}

#[test]
fn commands_that_cannot_be_read_are_left_to_themselves() {
    if !is_there() {
        return;
    }
    let trees = Trees::new(2);
    trees.module(1, "tool/__init__.py", "import dependency\n");
    trees.module(1, "tool/__main__.py", "import more\n");
    trees.module(1, "dependency.py", "");
    trees.module(1, "more.py", "");
    for (kind, what) in [
        ("code", "import tool ("),
        ("file", "local/missing.py"),
        ("module", "missing.module"),
        ("module", ""),
        ("module", "..."),
    ] {
        let output = trees.first(2, kind, what);
        assert!(output.status.success(), "{what}: {output:?}");
        assert_eq!(trees.compiled(1), names(&[]), "{what}");
    }
    assert!(trees.first(2, "module", "tool").status.success());
    let all = ["tool/__init__", "tool/__main__", "dependency", "more"];
    assert_eq!(trees.compiled(1), names(&all));
}

#[test]
fn extension_modules_are_named() {
    if !is_there() {
        return;
    }
    let trees = Trees::new(3);
    trees.module(
        2,
        "p/__init__.py",
        "from ._C import x\nfrom p import _missing\n",
    );
    trees.module(2, "p/_C.abi3.so", "");
    trees.module(2, "p/unused.abi3.so", "");
    let output = trees.first(3, "code", "import p");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(told, format!("2\t{SITE}/p/_C.abi3.so\n"));
}
