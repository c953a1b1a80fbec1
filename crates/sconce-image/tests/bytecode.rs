//! The compiler of bytecode, executed by this machine's own Python in place of an environment's.
//! Where there is none, nothing is tested.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sconce_image::bytecode::SCRIPT;

fn python(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    let output = command.args(["-I", "-S", "-B", "-c"]).args(arguments);
    output
        .output()
        .ok()
        .filter(|output| output.status.success())
}

/// What the files below `folder` hold, by name.
fn files(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(root, &path, found);
        } else {
            let name = path.strip_prefix(root).unwrap().to_owned();
            found.insert(name, fs::read(&path).unwrap());
        }
    }
}

#[test]
fn what_does_not_compile_is_passed_over_and_what_is_there_is_kept() {
    let Some(output) = python(&["import sys; print(sys.implementation.cache_tag)"]) else {
        return;
    };
    let tag = String::from_utf8(output.stdout).unwrap();
    let pyc = |name: &str| PathBuf::from(format!("p/__pycache__/{name}.{}.pyc", tag.trim()));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir_all(source.join("p")).unwrap();
    for (name, text) in [
        ("a.py", "x = ('a', 'not interned: ö', 1.5)\n"),
        ("b.py", "from .a import x\nclass B:\n    x = x\n"),
        ("broken.py", "def (:\n"),
        ("null.py", "x = 1\0\n"),
        ("data.txt", "x = 1\n"),
    ] {
        fs::write(source.join("p").join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("/nowhere/at/all", source.join("p/link.py")).unwrap();
    let compiled = |into: &str| {
        let into = folder.path().join(into);
        fs::create_dir_all(&into).unwrap();
        let (source, output) = (source.to_str().unwrap(), into.to_str().unwrap());
        python(&[SCRIPT, source, output]).unwrap();
        let mut found = BTreeMap::new();
        files(&into, &into, &mut found);
        found
    };
    let whole = compiled("whole");
    let names: Vec<_> = whole.keys().cloned().collect();
    assert_eq!(names, [pyc("a"), pyc("b")]);

    // One that was killed goes on where it was, and comes out the same.
    let begun = folder.path().join("begun").join(pyc("a"));
    fs::create_dir_all(begun.parent().unwrap()).unwrap();
    fs::write(&begun, &whole[&pyc("a")]).unwrap();
    let before = fs::metadata(&begun).unwrap().modified().unwrap();
    assert_eq!(compiled("begun"), whole);
    assert_eq!(fs::metadata(&begun).unwrap().modified().unwrap(), before);
}
