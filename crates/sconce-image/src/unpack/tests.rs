use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;

use proptest::prelude::*;
use sconce_schema::NoProgress;
use sconce_store::scoped_root::ScopedRootError;

use super::testing::TarBuilder;
use super::*;
use sconce_oci as oci;
use sconce_oci::{ImageManifest, RootFs, media};

/// Keeps an image of these archives, lowest first.
fn image(store: &Store, archives: &[Vec<u8>]) -> LocalImage {
    let config = oci::ImageConfiguration {
        created: None,
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        config: None,
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: archives
                .iter()
                .map(|bytes| Digest::hash_bytes(bytes))
                .collect(),
        },
        history: None,
    };
    let layer = |bytes: &Vec<u8>| {
        let descriptor = Descriptor::for_bytes(media::LAYER, bytes);
        store.put_blob(bytes, &descriptor.digest.0).unwrap();
        descriptor
    };
    let config = oci::to_json(&config);
    let manifest = ImageManifest::new(
        Descriptor::for_bytes(media::CONFIG, &config),
        archives.iter().map(layer).collect(),
    );
    LocalImage::store_image(store, oci::to_json(&manifest), config, Vec::new()).unwrap()
}

fn trees_of(
    store: &Store,
    archives: &[Vec<u8>],
) -> Result<Vec<environment_layers::LayerTree>, TreesError> {
    let image = image(store, archives);
    ensure_trees(&image, "img", store, UnpackLimits::default(), &NoProgress)
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path()).unwrap();
    (folder, store)
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Folder,
    /// With this text.
    File(String),
    /// To this target.
    Link(String),
}

type View = BTreeMap<String, Node>;

/// What overlayfs shows of trees, lowest first (kernel documentation, "Overlay Filesystem").
fn union(layers: &[environment_layers::LayerTree]) -> View {
    let mut view = View::new();
    let highest: Vec<&Path> = layers.iter().rev().map(|l| l.path.as_path()).collect();
    show(&highest, "", &mut view);
    view
}

fn show(trees: &[&Path], folder: &str, view: &mut View) {
    let list = |tree: &&Path| -> Vec<String> {
        let entries = fs::read_dir(tree.join(folder)).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        entries.map(|entry| name(entry).unwrap()).collect()
    };
    let names: BTreeSet<String> = trees.iter().flat_map(list).collect();
    for name in names {
        let path = format!("{folder}{name}");
        let has = |tree: &&&Path| tree.join(&path).symlink_metadata().is_ok();
        let top = trees.iter().find(has).unwrap().join(&path);
        if top.is_symlink() {
            let target = fs::read_link(&top).unwrap().into_os_string();
            view.insert(path, Node::Link(target.into_string().unwrap()));
        } else if top.is_file() {
            view.insert(path, Node::File(fs::read_to_string(&top).unwrap()));
        } else {
            let merged = trees.iter().filter(has).take_while(|tree| {
                let meta = tree.join(&path).symlink_metadata();
                meta.unwrap().is_dir()
            });
            let merged: Vec<&Path> = merged.copied().collect();
            show(&merged, &format!("{path}/"), view);
            view.insert(path, Node::Folder);
        }
    }
}

/// A step of a layer.
#[derive(Debug, Clone)]
enum Step {
    Put(String, Node),
    Hide(String),
    HideAllIn(String),
}

fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn remove(view: &mut View, path: &str) {
    view.retain(|other, _| other != path && !below(other, path));
}

/// Puts an entry, with the folders above it.
fn put(view: &mut View, path: &str, node: &Node) {
    for (at, _) in path.match_indices('/') {
        put(view, &path[..at], &Node::Folder);
    }
    let merges = *node == Node::Folder && view.get(path) == Some(&Node::Folder);
    if !merges {
        remove(view, path);
        view.insert(path.to_owned(), node.clone());
    }
}

/// The obvious model: a layer's whiteouts first, for they are about what is below, then its
/// entries.
fn apply(view: &mut View, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Hide(path) => remove(view, path),
            Step::HideAllIn(folder) => view.retain(|other, _| !below(other, folder)),
            Step::Put(..) => {}
        }
    }
    for step in steps {
        if let Step::Put(path, node) = step {
            put(view, path, node);
        }
    }
}

/// The layer's archive. Whiteouts stand where they come: the order means nothing.
fn archive(steps: &[Step]) -> Vec<u8> {
    let mut made = TarBuilder::default();
    for step in steps {
        made = match step {
            Step::Put(path, Node::Folder) => made.with_dir(path),
            Step::Put(path, Node::File(text)) => made.with_file(path, text),
            Step::Put(path, Node::Link(target)) => made.with_symlink(path, target),
            Step::Hide(path) => {
                let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
                made.with_file(&format!("{above}/.wh.{name}"), "")
            }
            Step::HideAllIn(folder) => made.with_file(&format!("{folder}/.wh..wh..opq"), ""),
        };
    }
    made.into_bytes()
}

/// Leaves out what no tool writes: an entry below a file or a link of the same layer.
fn sound(steps: Vec<Step>) -> Vec<Step> {
    let mut own = View::new();
    let mut kept = Vec::new();
    for step in steps {
        if let Step::Put(path, node) = &step {
            let through = path
                .match_indices('/')
                .any(|(at, _)| own.get(&path[..at]).is_some_and(|n| *n != Node::Folder));
            if through {
                continue;
            }
            put(&mut own, path, node);
        }
        kept.push(step);
    }
    kept
}

fn some_path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))
}

fn some_step() -> impl Strategy<Value = Step> {
    let node = prop_oneof![
        2 => Just(Node::Folder),
        3 => (0..9_u8).prop_map(|n| Node::File(n.to_string())),
        1 => Just(Node::Link("../a".to_owned())),
    ];
    prop_oneof![
        6 => (some_path(), node).prop_map(|(path, node)| Step::Put(path, node)),
        3 => some_path().prop_map(Step::Hide),
        1 => prop_oneof![Just(String::new()), some_path()].prop_map(Step::HideAllIn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn trees_show_what_the_layers_say(
        layers in prop::collection::vec(prop::collection::vec(some_step(), 0..7), 1..6),
    ) {
        let (_folder, store) = store();
        let mut wanted = View::new();
        let mut archives = Vec::new();
        for steps in layers {
            let steps = sound(steps);
            // An opaque folder at the root hides everything.
            if steps.iter().any(|s| matches!(s, Step::HideAllIn(f) if f.is_empty())) {
                wanted.clear();
            }
            apply(&mut wanted, &steps);
            archives.push(archive(&steps));
        }
        match trees_of(&store, &archives) {
            Ok(found) => prop_assert_eq!(union(&found), wanted),
            Err(TreesError::Empty) => prop_assert!(wanted.is_empty()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }
}

#[test]
fn a_folder_that_replaces_a_file_of_its_layer_shows_nothing_of_the_layers_below() {
    let (_folder, store) = store();
    let below = TarBuilder::default()
        .with_file("b/a", "")
        .with_file("c/a", "")
        .with_file("d", "");
    let above = TarBuilder::default()
        .with_file("b", "")
        .with_dir("b/")
        .with_symlink("way", "b")
        .with_entry(b"c", b'3', b"", b"")
        .with_file("c/own", "")
        .with_file("way/x", "")
        .with_dir("way/x/")
        .with_entry(b"d", b'6', b"", b"")
        .into_bytes();
    let found = trees_of(&store, &[below.into_bytes(), above]).unwrap();
    let shown: Vec<String> = union(&found).into_keys().collect();
    assert_eq!(shown, ["b", "b/x", "c", "c/own", "way"]);
}

#[test]
fn what_hides_nothing_is_shared_and_what_is_hidden_costs_nothing() {
    let (_folder, store) = store();
    let base = TarBuilder::default()
        .with_dir("usr/")
        .with_file("usr/large", &"x".repeat(100_000))
        .with_file("usr/old", "old")
        .into_bytes();
    let plain = TarBuilder::default()
        .with_file("etc/own", "own")
        .with_file(".wh.nothing", "")
        .into_bytes();
    let hiding = TarBuilder::default()
        .with_file("usr/.wh.old", "")
        .with_file("usr/new", "new")
        .into_bytes();

    let one = trees_of(&store, &[base.clone(), plain.clone()]).unwrap();
    let two = trees_of(&store, &[base.clone(), plain, hiding]).unwrap();
    assert_eq!(one[1].path, two[1].path);
    assert_ne!(one[0].path, two[0].path);
    assert_eq!(two[2].name, "img layer 3");
    let large =
        |layer: &environment_layers::LayerTree| layer.path.join("usr/large").metadata().unwrap();
    assert_eq!(large(&one[0]).ino(), large(&two[0]).ino());
    assert!(one[0].path.join("usr/old").exists() && !two[0].path.join("usr/old").exists());
    let folder = |layer: &environment_layers::LayerTree| {
        let meta = layer.path.join("usr").metadata().unwrap();
        (meta.mode(), meta.mtime())
    };
    assert_eq!(folder(&one[0]), folder(&two[0]));
    // The same layer again, above and below, and one without anything.
    let empty = TarBuilder::default().into_bytes();
    let thrice = trees_of(&store, &[base.clone(), empty, base]).unwrap();
    assert_eq!(thrice.len(), 1);
}

#[test]
fn too_many_layers_are_merged() {
    let (_folder, store) = store();
    let mut wanted = View::new();
    let mut archives = Vec::new();
    for number in 0..MAX_TREES + 20 {
        let steps = [
            Step::Hide(format!("d/{}", number.saturating_sub(3))),
            Step::Put(format!("d/{number}"), Node::File(number.to_string())),
            Step::Put("last".to_owned(), Node::Link(number.to_string())),
        ];
        apply(&mut wanted, &steps);
        archives.push(archive(&steps));
    }
    let found = trees_of(&store, &archives).unwrap();
    assert_eq!(found.len(), MAX_TREES);
    assert_eq!(union(&found), wanted);
    assert!(found[0].name.ends_with("20 below"), "{}", found[0].name);
}

#[test]
fn an_image_that_cannot_be_is_refused() {
    let (_folder, store) = store();
    let layer = TarBuilder::default().with_file("a", "x").into_bytes();
    let mut made = image(
        &store,
        &[
            layer.clone(),
            TarBuilder::default().with_file("b", "").into_bytes(),
        ],
    );
    made.manifest.layers.pop();
    let run =
        |image: &LocalImage| ensure_trees(image, "x", &store, UnpackLimits::default(), &NoProgress);
    assert!(matches!(run(&made), Err(TreesError::Count { .. })));
    assert!(matches!(trees_of(&store, &[]), Err(TreesError::Empty)));
    // A blob that is not in the store, and one that is another than the configuration says.
    let gone = image(&store, std::slice::from_ref(&layer));
    store
        .remove_item("blob", &Digest::hash_bytes(&layer).to_hex())
        .unwrap();
    assert!(matches!(
        run(&gone),
        Err(TreesError::Image(LocalError::Gone { .. }))
    ));
    let mut other = image(
        &store,
        &[TarBuilder::default().with_file("c", "").into_bytes()],
    );
    let blob = TarBuilder::default().with_file("d", "").into_bytes();
    store.put_blob(&blob, &Digest::hash_bytes(&blob).0).unwrap();
    other.manifest.layers[0].digest = Digest::hash_bytes(&blob);
    let error = run(&other).unwrap_err();
    assert!(
        matches!(
            error,
            TreesError::Layer {
                source: UnpackError::Archive { .. },
                ..
            }
        ),
        "{error}"
    );
    // Nothing of it was kept.
    assert!(matches!(run(&other), Err(TreesError::Layer { .. })));
}

#[test]
fn a_damaged_blob_is_the_stores_and_not_the_senders() {
    let (_folder, store) = store();
    let layer = TarBuilder::default().with_file("a", "x").into_bytes();
    let good = TarBuilder::default().with_file("a", "y").into_bytes();
    for damage in [&b"evil"[..], b"", &good] {
        let image = image(&store, std::slice::from_ref(&layer));
        let digest = Digest::hash_bytes(&layer);
        let path = store.find_blob(&digest.0).unwrap();
        fs::write(&path, damage).unwrap();
        let trees = ensure_trees(&image, "x", &store, UnpackLimits::default(), &NoProgress);
        let error = trees.unwrap_err();
        assert!(
            matches!(error, TreesError::Store(StoreError::Damaged { .. })),
            "{error}"
        );
        assert_eq!((error.exit_code(), store.find_blob(&digest.0)), (6, None));
    }
}

#[test]
fn files_are_looked_up_as_the_run_sees_them() {
    let (folder, store) = store();
    fs::write(folder.path().join("passwd"), "outside").unwrap();
    let found = trees_of(
        &store,
        &[
            TarBuilder::default()
                .with_file("usr/etc/passwd", "below")
                .with_file("usr/etc/group", "group")
                .with_file("a/hidden", "x")
                .with_file("opt/x", "x")
                .into_bytes(),
            TarBuilder::default()
                .with_symlink("etc", "usr/etc")
                .with_file("usr/etc/passwd", "above")
                .with_symlink("a", "nowhere")
                .with_symlink("loop", "loop")
                .with_symlink("out", folder.path().join("passwd").to_str().unwrap())
                .with_symlink("up", "../../../../usr/../etc/passwd")
                .with_file("opt", "a file")
                .into_bytes(),
            TarBuilder::default().with_dir("opt/").into_bytes(),
        ],
    )
    .unwrap();
    let lookup = OverlayLookup::new(&found);
    let read = |path: &str| {
        let bytes = lookup.read(path.as_bytes(), 100).unwrap();
        bytes.map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(read("/etc/passwd").as_deref(), Some("above"));
    assert_eq!(read("etc/./group").as_deref(), Some("group"));
    assert_eq!(read("up").as_deref(), Some("above"));
    for nothing in [
        "a/hidden",
        "a",
        "loop",
        "out",
        "opt/x",
        "etc",
        "etc/passwd/x",
        "/",
    ] {
        assert_eq!(read(nothing), None, "{nothing}");
    }
    assert_eq!(lookup.read(b"etc/passwd", 4).unwrap(), None);
    assert!(lookup.resolve_path(b"etc").unwrap().unwrap().meta.is_dir());
    assert!(lookup.resolve_path(b"/").unwrap().is_some());
}

#[test]
fn a_tree_that_another_process_removes_is_made_again_and_then_stays() {
    let (_folder, store) = store();
    let mut made = 0;
    let (tree, stays) = ensure_held(|| {
        made += 1;
        let write = |tree: &Path| fs::write(tree.join("a"), "a");
        let tree = store.build_tree(KIND, "key", write).unwrap();
        // As another process's prune would, just before it is held.
        if made < 3 {
            assert!(store.remove_item(KIND, "key").unwrap());
        }
        Ok(tree)
    })
    .unwrap();
    assert_eq!((made, stays.len()), (3, 1));
    assert!(!store.remove_item(KIND, "key").unwrap(), "it is in use");
    drop(stays);
    assert!(tree.join("a").is_file() && store.remove_item(KIND, "key").unwrap());
}

/// The image is not at fault, and getting it again would not help.
#[test]
fn refusing_disk_is_not_blamed_on_the_image() {
    let of_layer = |kind: io::ErrorKind| TreesError::Layer {
        layer: Digest::hash_bytes(b""),
        source: UnpackError::Entry(ScopedRootError::Disk {
            action: "create",
            path: "/store/tree".into(),
            source: kind.into(),
        }),
    };
    let full = of_layer(io::ErrorKind::StorageFull);
    assert_eq!(full.exit_code(), exit::STORE);
    assert!(full.hint().unwrap().contains("the disk is full"));
    let denied = of_layer(io::ErrorKind::PermissionDenied);
    assert_eq!((denied.exit_code(), denied.hint()), (exit::STORE, None));
    // A name that leads out is the image's.
    let name = TreesError::Layer {
        layer: Digest::hash_bytes(b""),
        source: UnpackError::Entry(ScopedRootError::Name {
            name: "../x".to_owned(),
            why: "leads out of the folder",
        }),
    };
    assert_eq!(name.exit_code(), exit::VERIFY);
    assert!(name.hint().unwrap().contains("get the image again"));
}
