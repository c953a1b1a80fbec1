//! Where the loader looks, rule by rule, on trees made by hand (ld.so(8), dlopen(3)).

use sconce_compat::library::ElfLibrary;
use sconce_compat::loader::{LibraryTree, LoaderProcess, LookupOrigin, UnresolvedReason};

fn library(needed: &[&str]) -> ElfLibrary {
    ElfLibrary {
        machine: 62,
        needed: needed.iter().map(|&name| name.to_owned()).collect(),
        ..ElfLibrary::default()
    }
}

fn with_rpath(mut library: ElfLibrary, path: &str) -> ElfLibrary {
    library.rpath = path.split(':').map(str::to_owned).collect();
    library
}

fn with_runpath(mut library: ElfLibrary, path: &str) -> ElfLibrary {
    library.runpath = Some(path.split(':').map(str::to_owned).collect());
    library
}

fn named(mut library: ElfLibrary, soname: &str) -> ElfLibrary {
    library.soname = Some(soname.to_owned());
    library
}

fn tree<'a>(files: &[(&str, &'a ElfLibrary)]) -> LibraryTree<'a> {
    let mut tree = LibraryTree::new(62);
    for (path, library) in files {
        tree.add_library(path, library);
    }
    tree
}

/// What is loaded, in order, once these were opened.
fn loaded(tree: &LibraryTree<'_>, opens: &[&str]) -> Vec<String> {
    let (mut process, _) = LoaderProcess::start(tree);
    for path in opens {
        process.open(path, None, false);
    }
    let objects = process.objects().iter();
    objects.map(|object| object.path.clone()).collect()
}

#[test]
fn one_place_after_the_other() {
    let plain = library(&[]);
    let rpath = with_rpath(library(&["libx.so"]), "/rpath");
    let runpath = with_runpath(library(&["libx.so"]), "/runpath");
    // Where `libx.so` lies, and where it is found by a module with either.
    for (places, by_rpath, by_runpath) in [
        (
            &["rpath", "env", "runpath", "cache", "lib"][..],
            "rpath",
            "env",
        ),
        (&["runpath", "cache", "lib"], "cache", "runpath"),
        (&["cache", "lib"], "cache", "cache"),
        (&["lib", "usr/lib64"], "usr/lib64", "usr/lib64"),
    ] {
        for (module, place) in [(&rpath, by_rpath), (&runpath, by_runpath)] {
            let mut tree = tree(&[("/m.so", module)]);
            tree.library_path = "/env".to_owned();
            tree.add_cache_entry("libx.so", "/cache/libx.so");
            for place in places {
                tree.add_library(&format!("/{place}/libx.so"), &plain);
            }
            let found = loaded(&tree, &["/m.so"]);
            assert_eq!(found, ["/m.so".to_owned(), format!("/{place}/libx.so")]);
        }
    }
}

#[test]
fn rpath_is_inherited_and_runpath_is_not() {
    let leaf = library(&[]);
    let middle = library(&["libleaf.so"]);
    let middle_with_runpath = with_runpath(library(&["libleaf.so"]), "/nothing");
    let above = ["libmiddle.so"];
    for (top, middle, found) in [
        (with_rpath(library(&above), "/deps"), &middle, true),
        (with_runpath(library(&above), "/deps"), &middle, false),
        // An object with a RUNPATH asks no RPATH, not even those above it.
        (
            with_rpath(library(&above), "/deps"),
            &middle_with_runpath,
            false,
        ),
        // A RUNPATH beside it takes the RPATH away.
        (
            with_runpath(with_rpath(library(&above), "/deps"), "/deps"),
            &middle,
            false,
        ),
    ] {
        let tree = tree(&[
            ("/top.so", &top),
            ("/deps/libmiddle.so", middle),
            ("/deps/libleaf.so", &leaf),
        ]);
        let loaded = loaded(&tree, &["/top.so"]);
        assert_eq!(
            loaded.contains(&"/deps/libleaf.so".to_owned()),
            found,
            "{top:?}"
        );
    }
}

#[test]
fn the_program_s_rpath_serves_all_without_runpath() {
    let (leaf, module) = (library(&[]), library(&["libleaf.so"]));
    for (program, found) in [
        (with_rpath(library(&[]), "$ORIGIN/../lib"), true),
        (with_runpath(library(&[]), "$ORIGIN/../lib"), false),
    ] {
        let mut tree = tree(&[
            ("/conda/bin/python3.13", &program),
            ("/conda/lib/libleaf.so", &leaf),
            ("/site/m.so", &module),
        ]);
        tree.add_link("/venv/bin/python", "/conda/bin/python3.13");
        tree.program = Some("/venv/bin/python".to_owned());
        let loaded = loaded(&tree, &["/site/m.so"]);
        let path = "/conda/bin/../lib/libleaf.so".to_owned();
        assert_eq!(loaded.contains(&path), found);
    }
}

#[test]
fn the_origin_is_the_path_that_led_there() {
    let (leaf, module) = (
        library(&[]),
        with_rpath(library(&["libleaf.so"]), "${ORIGIN}/deps"),
    );
    let mut tree = tree(&[
        ("/cache/m.so", &module),
        ("/cache/deps/libleaf.so", &leaf),
        ("/site/deps/libleaf.so", &leaf),
    ]);
    tree.add_link("/site/m.so", "/cache/m.so");
    assert_eq!(
        loaded(&tree, &["/site/m.so"]),
        ["/site/m.so", "/site/deps/libleaf.so"]
    );
}

#[test]
fn what_is_loaded_is_taken_again() {
    // By the name it was asked for, by its own name, by its file.
    let first = named(library(&[]), "libx.so.1");
    let second = named(library(&[]), "libx.so.1");
    let module = with_rpath(
        library(&["libx.so.1", "libx-hash.so", "liblink.so"]),
        "/other:/a",
    );
    let mut tree = tree(&[
        ("/a/libx-hash.so", &first),
        ("/other/libx.so.1", &second),
        ("/m.so", &module),
    ]);
    tree.add_link("/other/liblink.so", "../a/libx-hash.so");
    assert_eq!(
        loaded(&tree, &["/a/libx-hash.so", "/m.so"]),
        ["/a/libx-hash.so", "/m.so"]
    );
    // The other way round both are there.
    assert_eq!(
        loaded(&tree, &["/m.so"]),
        ["/m.so", "/other/libx.so.1", "/a/libx-hash.so"]
    );
}

#[test]
fn breadth_comes_first() {
    let (a, b) = (
        library(&["libx.so"]),
        with_rpath(library(&["libx.so"]), "/b"),
    );
    let (x, top) = (library(&[]), library(&["liba.so", "libb.so", "libx.so"]));
    let mut tree = tree(&[
        ("/lib/liba.so", &a),
        ("/lib/libb.so", &b),
        ("/b/libx.so", &x),
        ("/top.so", &top),
    ]);
    // The top's own need comes before those of what it needs, and fails.
    let (mut process, _) = LoaderProcess::start(&tree);
    let opened = process.open("/top.so", None, false);
    let missing = opened.missing.iter().map(|missing| missing.needed_by);
    assert_eq!(missing.collect::<Vec<_>>(), [Some(0), Some(1)]);
    tree.preload = "/b/libx.so".to_owned();
    let (mut process, _) = LoaderProcess::start(&tree);
    assert!(process.open("/top.so", None, false).missing.len() == 2);
}

#[test]
fn other_processors_are_passed_over_and_no_libraries_are_not() {
    let (mut foreign, own) = (library(&[]), library(&[]));
    foreign.machine = 183;
    let module = with_rpath(library(&["libx.so"]), "/foreign:/text:/own");
    let files = [
        ("/foreign/libx.so", &foreign),
        ("/own/libx.so", &own),
        ("/m.so", &module),
    ];
    let mut tree = tree(&files);
    assert_eq!(loaded(&tree, &["/m.so"]), ["/m.so", "/own/libx.so"]);
    tree.add_refused_file("/text/libx.so", false);
    let (mut process, _) = LoaderProcess::start(&tree);
    let opened = process.open("/m.so", None, false);
    let absent = UnresolvedReason::Refused {
        path: "/text/libx.so".to_owned(),
        text: "invalid ELF header",
    };
    assert_eq!(opened.missing[0].absent, absent);
}

#[test]
fn the_working_directory_is_told_and_not_searched() {
    let (module, x) = (
        with_runpath(library(&["libx.so"]), "$ORIGIN/none:"),
        library(&[]),
    );
    let mut tree = tree(&[("/m.so", &module), ("/libx.so", &x)]);
    tree.library_path = ":relative;/none".to_owned();
    let (mut process, _) = LoaderProcess::start(&tree);
    assert_eq!(process.open("/m.so", None, false).missing.len(), 1);
    let relative: Vec<_> = process
        .relative_search_paths()
        .iter()
        .map(|(_, entry)| entry.as_str())
        .collect();
    assert_eq!(relative, ["", "relative", ""]);
    // A variable that is empty as a whole means nothing.
    tree.library_path.clear();
    let (process, _) = LoaderProcess::start(&tree);
    assert_eq!(process.relative_search_paths(), []);
}

#[test]
fn better_processors_folders_come_first() {
    let (module, x) = (with_rpath(library(&["libx.so"]), "/a"), library(&[]));
    let mut tree = tree(&[
        ("/m.so", &module),
        ("/a/libx.so", &x),
        ("/a/glibc-hwcaps/x86-64-v3/libx.so", &x),
    ]);
    assert_eq!(loaded(&tree, &["/m.so"])[1], "/a/libx.so");
    tree.hwcaps = vec!["glibc-hwcaps/x86-64-v3".to_owned()];
    assert_eq!(
        loaded(&tree, &["/m.so"])[1],
        "/a/glibc-hwcaps/x86-64-v3/libx.so"
    );
}

#[test]
fn what_the_driver_brings_is_not_missing() {
    let module = library(&["libcuda.so.1", "libgone.so"]);
    let mut tree = tree(&[("/m.so", &module)]);
    tree.add_provided_name("libcuda.so.1");
    let (mut process, _) = LoaderProcess::start(&tree);
    let opened = process.open("/m.so", None, false);
    assert_eq!(opened.missing.len(), 1);
    assert_eq!(opened.missing[0].name, "libgone.so");
    assert_eq!(process.objects()[0].needed, [None, None]);
}

#[test]
fn dlopen_searches_for_its_caller() {
    let (cudnn, ops) = (with_rpath(library(&[]), "$ORIGIN"), library(&[]));
    let tree = tree(&[("/c/libcudnn.so.9", &cudnn), ("/c/libcudnn_ops.so.9", &ops)]);
    let (mut process, _) = LoaderProcess::start(&tree);
    process.open("/c/libcudnn.so.9", None, false);
    assert_eq!(process.open("libcudnn_ops.so.9", None, false).root, None);
    let opened = process.open("libcudnn_ops.so.9", Some(0), false);
    let found = &process.objects()[opened.root.unwrap_or_default()].found;
    let rpath = LookupOrigin::Rpath {
        object: 0,
        directory: "/c".to_owned(),
    };
    assert_eq!(*found, rpath);
}
