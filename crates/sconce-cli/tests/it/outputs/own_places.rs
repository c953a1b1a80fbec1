//! No output takes the place of what is Sconce's own, nor of the spec or lock of a project, whoever reads that.

use std::fs;
use std::os::unix::fs::symlink;

use super::home::{Home, is_root};
use super::rows::{Kind, Row, rows};

/// Files of Sconce's own, below the home, and how their folder is called.
const OWN: [(&str, &str); 6] = [
    (".local/share/sconce/version", "the store"),
    (".local/share/sconce/items/an-item/file", "the store"),
    (
        ".local/state/sconce/runs/a-run/events.jsonl",
        "the records of runs",
    ),
    (
        ".local/state/sconce/leases/log.jsonl",
        "the records of runs",
    ),
    (".config/sconce/config.toml", "configuration"),
    (".cache/sconce/kernels/a-project/kernel", "the kernels"),
];

/// How an output is named for `path`, also where what comes then cannot be done here: it is not come to.
fn call(row: &Row, path: &str) -> Vec<String> {
    if row.words.is_some() {
        return row.to(path);
    }
    let line = match row.argument.as_str() {
        "build --docker-archive" => "--offline build proj --docker-archive {}",
        "build --oci" => "--offline build proj --oci {}",
        "build --squashfs" => "--offline build proj --squashfs {}",
        "cdi write --output" => "cdi write --output {}",
        "init SOURCE" => "init {}",
        "keygen NAME" => "keygen {}",
        "lock SPEC" => "--offline lock {}",
        other => panic!("{other} has no call here"),
    };
    let words = line.split(' ').map(|word| word.replace("{}", path));
    words.collect()
}

/// A home in which there is a file of each of Sconce's folders, and a project.
fn home() -> Home {
    let home = Home::new();
    for (file, _) in OWN {
        let path = home.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.exists() {
            fs::write(&path, "").unwrap();
        }
    }
    fs::create_dir(home.path("proj")).unwrap();
    fs::write(home.path("proj/sconce.toml"), "[python]\n").unwrap();
    home
}

/// What a row makes at `file`, or beside it where it makes a folder or a file of a name that it gives.
fn target(row: &Row, file: &str) -> String {
    let folder = file.rsplit_once('/').unwrap().0;
    match (row.argument.as_str(), row.kind) {
        ("init SOURCE", _) => folder.to_owned(),
        ("lock SPEC", _) => format!("{folder}/sconce.toml"),
        (_, Kind::Folder | Kind::Events | Kind::New) => format!("{folder}/new"),
        _ => file.to_owned(),
    }
}

#[test]
fn nothing_in_sconces_own_folders_is_an_output() {
    let home = home();
    for (file, name) in OWN {
        let before = fs::read(home.path(file)).unwrap();
        let folder = file.rsplit_once('/').unwrap().0;
        symlink(home.path(folder), home.path("way")).unwrap();
        symlink(home.path(file), home.path("link")).unwrap();
        let by_way = format!("way/{}", file.rsplit_once('/').unwrap().1);
        for row in rows() {
            // A lock needs its spec.
            let spec = home.path(folder).join("sconce.toml");
            if row.argument == "lock SPEC" {
                fs::write(&spec, "[python]\n").unwrap();
            }
            let is_file = matches!(row.kind, Kind::Text | Kind::Binary | Kind::Seekable);
            let is_named = is_file && row.argument != "lock SPEC";
            let mut paths = vec![target(&row, file), target(&row, &by_way)];
            paths.extend(is_named.then(|| "link".to_owned()));
            // One that is not there yet.
            paths.extend(is_named.then(|| format!("{folder}/new")));
            for path in paths {
                // Keys replace nothing, and are well kept beside the configuration.
                if row.argument == "keygen NAME" && name == "configuration" {
                    continue;
                }
                let done = home.sconce(&call(&row, &path));
                let what = format!("{} {path}: {done:?}", row.argument);
                assert_eq!(done.code, 2, "{what}");
                assert!(done.err.contains(name), "{what}");
                assert!(done.err.contains("hint: name a place elsewhere"), "{what}");
                assert!(!home.path("began").exists(), "{what}");
                assert_eq!(fs::read(home.path(file)).unwrap(), before, "{what}");
                assert!(!home.path(folder).join("new").exists(), "{what}");
            }
            if row.argument == "lock SPEC" {
                fs::remove_file(&spec).unwrap();
            }
            assert!(!spec.exists(), "{}", row.argument);
        }
        fs::remove_file(home.path("way")).unwrap();
        fs::remove_file(home.path("link")).unwrap();
    }
    let done = home.sconce(&["keygen", ".config/sconce/release"].map(str::to_owned));
    assert_eq!(done.code, 0, "{done:?}");
}

#[test]
fn the_folders_are_known_where_the_configuration_is_broken_and_by_their_options() {
    let home = home();
    fs::write(home.path(".config/sconce/config.toml"), "store = 1\n").unwrap();
    fs::create_dir(home.path("named")).unwrap();
    for line in [
        "memory report snapshot.pickle --html .config/sconce/config.toml",
        "memory report snapshot.pickle --html .local/share/sconce/version",
        "--store named memory report snapshot.pickle --html named/version",
    ] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let done = home.sconce(&words);
        assert_eq!(done.code, 2, "{line}: {done:?}");
        assert!(done.err.contains("it lies in"), "{line}: {done:?}");
    }
}

/// A file that is a mount would be written in place.
#[test]
fn nothing_in_sconces_own_folders_is_an_output_by_a_mount() {
    if !is_root("a bind mount") {
        return;
    }
    let home = home();
    for row in rows() {
        if row.argument == "lock SPEC" {
            continue;
        }
        let file = matches!(row.kind, Kind::Text | Kind::Binary | Kind::Seekable);
        let words = |path: &str| {
            let words = call(&row, &target(&row, path));
            let words = words
                .iter()
                .map(|word| format!("'{}'", word.replace('\'', r"'\''")));
            words.collect::<Vec<_>>().join(" ")
        };
        let script = format!(
            "mkdir -p shown; touch one
             mount --bind .local/share/sconce/items shown
             mount --bind .local/share/sconce/version one
             code=0; \"$sconce\" {} || code=$?
             if {file}; then \"$sconce\" {} || code=$code,$?; fi
             echo code=$code; umount one shown",
            words("shown/an-item/file"),
            call(&row, "one")
                .iter()
                .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
                .collect::<Vec<_>>()
                .join(" "),
        );
        let done = home.in_own_mounts(&script);
        if done.err.contains("unshare failed") || done.err.contains("mount: ") {
            sconce_testkit::report_skip("own-mounts", done.err);
            return;
        }
        let wanted = if file { "code=2,2\n" } else { "code=2\n" };
        assert!(done.out.ends_with(wanted), "{}: {done:?}", row.argument);
        assert!(done.err.contains("the store"), "{}: {done:?}", row.argument);
        assert!(fs::read(home.path(OWN[1].0)).unwrap().is_empty());
    }
}

/// Of a newer format.
const LOCK: &str = "version = 99\ninputs = \"9f86d0\"\n[versions]\npython = \"3.20\"\n[new]\n";

/// The store in force is not the only one.
#[test]
fn no_output_takes_the_place_of_what_any_store_holds() {
    let home = home();
    // It needs no configuration, and so none that can be read.
    let write = |store: &[&str], path: &str| {
        let words = ["doctor", "-q", "--facts", path];
        let words = store.iter().chain(&words).map(|word| (*word).to_owned());
        home.sconce(&words.collect::<Vec<_>>())
    };
    for folder in [
        "second/items",
        "second/locks",
        "st2/items",
        "no-store/items",
    ] {
        fs::create_dir_all(home.path(folder)).unwrap();
    }
    fs::write(home.path("no-store/version"), "1.2.3\n").unwrap();
    // It ends with 1 where there is no GPU.
    let done = write(&[], "no-store/facts.json");
    assert!(home.path("no-store/facts.json").exists(), "{done:?}");
    fs::write(home.path("second/version"), "1\n").unwrap();
    let config = home.path(".config/sconce/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    for (config_text, store, path) in [
        ("", &["--store", "other"][..], ".local/share/sconce/version"),
        ("", &[], "second/version"),
        ("", &[], "second/items/new"),
        ("store = \"st2\"\nno-such-key = 1\n", &[], "st2/version"),
    ] {
        let text = config_text.replace("st2", home.path("st2").to_str().unwrap());
        fs::write(&config, text).unwrap();
        let before = fs::read(home.path(path)).ok();
        let done = write(store, path);
        assert_eq!(done.code, 2, "{path}: {done:?}");
        assert!(done.err.contains("the store"), "{path}: {done:?}");
        assert_eq!(fs::read(home.path(path)).ok(), before, "{path}");
    }
}

#[test]
fn no_output_takes_the_place_of_a_projects_spec_or_lock() {
    let home = home();
    fs::create_dir(home.path("other")).unwrap();
    fs::create_dir(home.path("bare")).unwrap();
    for (name, text) in [
        ("other/sconce.toml", "[python]\npackages = [\"torch\"]\n"),
        ("other/sconce.lock", LOCK),
        ("other/noext", "[run]\ncommand = [\"true\"]\n"),
        // Of nobody who counts.
        (
            "other/Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"serde\"\n",
        ),
        ("other/pixi.lock", "version: 6\nenvironments: {}\n"),
        ("other/comment.toml", "# nothing\n"),
        ("other/name.toml", "name = \"x\"\n"),
        ("other/train.toml", "[python]\npackages = [\"torch\"]\n"),
        ("other/train.lock", LOCK),
        ("other/uv.lock", "[[package]]\nname = \"torch\"\n"),
        ("other/tool.toml", "[tool.other]\n"),
    ] {
        fs::write(home.path(name), text).unwrap();
    }
    symlink("other/sconce.lock", home.path("link")).unwrap();
    symlink("../elsewhere", home.path("bare/sconce.toml")).unwrap();
    for row in rows() {
        let is_writer = ["init SOURCE", "lock SPEC", "keygen NAME"].contains(&&*row.argument);
        if is_writer || matches!(row.kind, Kind::Folder | Kind::Events) {
            continue;
        }
        for path in [
            "other/sconce.toml",
            "other/sconce.lock",
            "other/train.toml",
            "other/train.lock",
            "other/noext",
            "link",
            "bare/sconce.lock",
            "bare/sconce.toml",
        ] {
            let before = fs::read(home.path(path)).ok();
            let done = home.sconce(&call(&row, path));
            let what = format!("{} {path}: {done:?}", row.argument);
            assert_eq!(done.code, 2, "{what}");
            assert!(done.err.contains("has its spec or its lock"), "{what}");
            assert!(done.err.contains("hint: name another file"), "{what}");
            assert!(!home.path("began").exists(), "{what}");
            assert_eq!(fs::read(home.path(path)).ok(), before, "{what}");
        }
    }
    for path in [
        "other/uv.lock",
        "other/Cargo.lock",
        "other/pixi.lock",
        "other/comment.toml",
        "other/name.toml",
        "other/tool.toml",
        "other/facts.json",
    ] {
        let words = ["export", "-q", "last", "--to", "json", path];
        let done = home.sconce(&words.map(str::to_owned));
        assert_eq!(done.code, 0, "{path}: {done:?}");
    }
    fs::write(
        home.path("id"),
        "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
    )
    .unwrap();
    let words = ["export", "-q", "last", "--to", "json", "id"];
    let done = home.sconce(&words.map(str::to_owned));
    assert_eq!(done.code, 2, "{done:?}");
    assert!(done.err.contains("private key"), "{done:?}");
    // Whoever opened a descriptor chose the file.
    let done = home.shell(r#""$sconce" export last --to json - >>.local/state/sconce/log"#);
    assert_eq!(done.code, 0, "{done:?}");
}
