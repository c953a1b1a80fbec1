use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use sconce_schema::NoProgress;
use sconce_schema::environment_layers::LayerTree;

use super::*;

/// A store, and layers in it.
struct Layers {
    store: Store,
    layers: EnvironmentLayers,
    _folder: tempfile::TempDir,
}

impl Layers {
    fn new(trees: &[&dyn Fn(&Path)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let layer = |(number, fill): (usize, &&dyn Fn(&Path))| {
            let build = |root: &Path| {
                fill(root);
                Ok::<(), io::Error>(())
            };
            let path = store.build_tree("wheel", &number.to_string(), build);
            LayerTree {
                name: format!("layer {number}"),
                path: path.unwrap(),
            }
        };
        let layers = EnvironmentLayers {
            layers: trees.iter().enumerate().map(layer).collect(),
            env: std::collections::BTreeMap::new(),
        };
        Self {
            store,
            layers,
            _folder: folder,
        }
    }

    fn tree(&self, part: FlatTreePart) -> PathBuf {
        ensure_flat_tree(&self.layers, part, &self.store, &NoProgress).unwrap()
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn later_layers_count_and_files_are_the_stores_own() {
    let made = Layers::new(&[
        &|root| {
            put(root, "usr/bin/a", "below");
            put(root, "usr/lib/b", "below");
            put(root, "usr/gone/c", "below");
        },
        &|root| {
            put(root, "usr/bin/a", "above");
            // What was a folder is none any more: what lay in it is not there.
            put(root, "usr/gone", "a file");
        },
    ]);
    let tree = made.tree(FlatTreePart::Root);
    let read = |path: &str| fs::read_to_string(tree.join(path)).unwrap();
    assert_eq!(read("usr/bin/a"), "above");
    assert_eq!(read("usr/gone"), "a file");
    let source = made.layers.layers[0].path.join("usr/lib/b");
    let inode = |path: &Path| path.metadata().unwrap().ino();
    assert_eq!(inode(&tree.join("usr/lib/b")), inode(&source));
    assert_eq!(made.tree(FlatTreePart::Root), tree);
}

#[test]
fn python_works_wherever_its_tree_lies() {
    let made = Layers::new(&[&|root| {
        put(
            root,
            "opt/python/3.10/bin/python3.10",
            "#!/bin/sh\necho \"python of $0\" \"$@\"\n",
        );
        put(
            root,
            "opt/venv/pyvenv.cfg",
            "home = /opt/python/3.10/bin\nversion = 3.10\n",
        );
        put(
            root,
            "opt/venv/bin/torchrun",
            "#!/opt/venv/bin/python\nimport x\n",
        );
        put(root, "usr/bin/debian", "not there");
        symlink(
            "/opt/python/3.10/bin/python3.10",
            root.join("opt/venv/bin/python"),
        )
        .unwrap();
        symlink("/etc/passwd", root.join("opt/venv/bin/outside")).unwrap();
    }]);
    let tree = made.tree(FlatTreePart::Python);
    let settings = fs::read_to_string(tree.join("opt/venv/pyvenv.cfg")).unwrap();
    let home = format!("home = {}/opt/python/3.10/bin\n", tree.display());
    assert!(settings.starts_with(&home), "{settings}");
    assert!(!tree.join("usr").exists());
    // A link that an image has leads into the tree, and never to the node's own file.
    let outside = fs::read_link(tree.join("opt/venv/bin/outside")).unwrap();
    assert_eq!(outside, Path::new("../../../etc/passwd"));
    assert!(!tree.join("opt/venv/bin/outside").exists());
    let program = tree.join("opt/venv/bin/torchrun");
    let said = Command::new(&program).args(["a b", "c"]).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let bin = tree.join("opt/venv/bin").display().to_string();
    assert_eq!(
        said,
        format!("python of {bin}/python {bin}/torchrun a b c\n")
    );
}

#[test]
fn a_script_stays_one_that_python_reads() {
    let text = "#!/opt/venv/bin/python\nprint('here')\n";
    let moved = move_text(Path::new("opt/venv/bin/x"), text, Path::new("/a b")).unwrap();
    let said = Command::new("python3").args(["-c", &moved]).output();
    assert_eq!(said.unwrap().stdout, b"here\n");
    for text in ["", "#!", "\u{7f}ELF", "#!/bin/sh\necho\n", "import x\n"] {
        let moved = move_text(Path::new("opt/venv/bin/x"), text, Path::new("/a"));
        assert_eq!(moved, None, "{text}");
    }
}
