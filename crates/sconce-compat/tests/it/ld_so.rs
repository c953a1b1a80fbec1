//! The loader's simulation against the real one: random trees of tiny ELF files, a random sequence
//! of `dlopen` calls, and after each what is loaded and what the error says.
//!
//! Needs a C compiler and glibc on x86-64; elsewhere there is nothing to compare with.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
#![expect(clippy::unwrap_used, reason = "a failing setup fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use proptest::prelude::*;
use sconce_compat::library::{ElfLibrary, NeededVersions, symbol_hash};
use sconce_compat::loader::{
    DlopenResult, LibraryTree, LoaderProcess, UnresolvedLibrary, UnresolvedReason,
};

const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// Opens each argument in turn; prints the error or nothing, then every loaded path.
const DRIVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
static int show(struct dl_phdr_info *info, size_t size, void *data) {
    printf("%s\t", info->dlpi_name);
    return 0;
}
int main(int count, char **names) {
    for (int at = 1; at < count; at++) {
        void *handle = dlopen(names[at], RTLD_NOW | RTLD_LOCAL);
        printf("%s\n", handle ? "" : dlerror());
        dl_iterate_phdr(show, 0);
        printf("\n");
    }
    return 0;
}
"#;

/// The driver three times: without a search path, with `DT_RPATH`, with `DT_RUNPATH`.
fn drivers() -> Option<&'static [PathBuf; 3]> {
    static DRIVERS: OnceLock<Option<(tempfile::TempDir, [PathBuf; 3])>> = OnceLock::new();
    let made = DRIVERS.get_or_init(|| {
        let compiler = sconce_testkit::find_program("cc")?;
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("driver.c");
        fs::write(&source, DRIVER).unwrap();
        let build = |name: &str, flags: &[&str]| {
            let out = folder.path().join(name);
            let built = Command::new(&compiler)
                .arg("-o")
                .arg(&out)
                .arg(&source)
                .args(flags)
                .status();
            assert!(built.unwrap().success());
            out
        };
        let path = "-Wl,-rpath,$ORIGIN/d2:$ORIGIN/d0";
        let drivers = [
            build("plain", &["-ldl"]),
            build("rpath", &["-ldl", "-Wl,--disable-new-dtags", path]),
            build("runpath", &["-ldl", "-Wl,--enable-new-dtags", path]),
        ];
        Some((folder, drivers))
    });
    made.as_ref().map(|(_, drivers)| drivers)
}

/// An ELF file without code: a dynamic section and its texts.
fn elf(library: &ElfLibrary) -> Vec<u8> {
    let mut texts = vec![0_u8];
    let mut dynamic: Vec<(u64, u64)> = Vec::new();
    let mut text = |value: &str| {
        let at = texts.len() as u64;
        texts.extend(value.as_bytes());
        texts.push(0);
        at
    };
    for name in &library.needed {
        dynamic.push((1, text(name)));
    }
    if let Some(soname) = &library.soname {
        dynamic.push((14, text(soname)));
    }
    if !library.rpath.is_empty() {
        dynamic.push((15, text(&library.rpath.join(":"))));
    }
    if let Some(runpath) = &library.runpath {
        dynamic.push((29, text(&runpath.join(":"))));
    }
    const HEADERS: u64 = 64 + 3 * 56;
    let symbols = HEADERS + 16 * (dynamic.len() as u64 + 5);
    let strings = symbols + 24;
    let size = strings + texts.len() as u64;
    dynamic.extend([
        (5, strings),
        (10, texts.len() as u64),
        (6, symbols),
        (11, 24),
        (0, 0),
    ]);

    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |out: &mut Vec<u8>, value: u16| out.extend(value.to_le_bytes());
    let word = |out: &mut Vec<u8>, value: u32| out.extend(value.to_le_bytes());
    let long = |out: &mut Vec<u8>, value: u64| out.extend(value.to_le_bytes());
    half(&mut out, 3);
    half(&mut out, library.machine);
    word(&mut out, 1);
    for value in [0, 64, 0] {
        long(&mut out, value);
    }
    word(&mut out, 0);
    for value in [64, 56, 3, 64, 0, 0] {
        half(&mut out, value);
    }
    const STACK: u32 = 0x6474_e551;
    for (kind, offset, length) in [(1, 0, size), (2, HEADERS, symbols - HEADERS), (STACK, 0, 0)] {
        word(&mut out, kind);
        word(&mut out, 6);
        for value in [offset, offset, offset, length, length, 0x1000] {
            long(&mut out, value);
        }
    }
    for (tag, value) in dynamic {
        long(&mut out, tag);
        long(&mut out, value);
    }
    out.resize(strings as usize, 0);
    out.extend(texts);
    out
}

/// What lies at a path of a random tree.
#[derive(Debug, Clone)]
enum Kind {
    Library(Box<ElfLibrary>),
    Text(usize),
    Link(String),
}

#[derive(Debug, Clone)]
struct Scene {
    files: Vec<(String, Kind)>,
    /// `d4` is a link to this directory.
    folder_link: usize,
    library_path: String,
    preload: Vec<String>,
    driver: usize,
    opens: Vec<String>,
}

fn file() -> impl Strategy<Value = String> {
    (0..4_u8, 0..6_u8).prop_map(|(directory, name)| format!("d{directory}/l{name}.so"))
}

fn name() -> impl Strategy<Value = String> {
    (0..6_u8).prop_map(|name| format!("l{name}.so"))
}

fn needed() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => name(),
        1 => file().prop_map(|file| format!("$ORIGIN/../{file}")),
        1 => file().prop_map(|file| format!("@/{file}")),
    ]
}

/// One entry of a search path; `@` stands for the tree's root.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("$ORIGIN".to_owned()),
        2 => (0..5_u8).prop_map(|at| format!("$ORIGIN/../d{at}")),
        2 => (0..5_u8).prop_map(|at| format!("@/d{at}")),
        1 => (0..5_u8).prop_map(|at| format!("${{ORIGIN}}/../d{at}//")),
        1 => (0..5_u8).prop_map(|at| format!("@/d{at}/../d0/.")),
        1 => Just(String::new()),
        1 => Just("$NOTHING/d0".to_owned()),
        1 => Just("@/none".to_owned()),
    ]
}

fn library() -> impl Strategy<Value = ElfLibrary> {
    let entries = || prop::collection::vec(entry(), 1..3);
    (
        prop_oneof![24 => Just(X86_64), 1 => Just(AARCH64)],
        prop::option::weighted(0.25, name()),
        prop::collection::vec(needed(), 0..3),
        prop::option::weighted(0.5, entries()),
        prop::option::weighted(0.15, entries()),
    )
        .prop_map(|(machine, soname, needed, rpath, runpath)| ElfLibrary {
            machine,
            soname,
            needed,
            rpath: rpath.unwrap_or_default(),
            runpath,
            ..ElfLibrary::default()
        })
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        20 => library().prop_map(|library| Kind::Library(Box::new(library))),
        1 => prop_oneof![Just(10), Just(500)].prop_map(Kind::Text),
        3 => file().prop_map(|file| Kind::Link(format!("../{file}"))),
    ]
}

fn scene() -> impl Strategy<Value = Scene> {
    let library_path = prop::collection::vec(entry(), 0..3);
    let open = prop_oneof![1 => name(), 3 => file().prop_map(|file| format!("@/{file}"))];
    (
        prop::collection::vec((file(), kind()), 8..22),
        0..4_usize,
        library_path,
        prop::collection::vec(name(), 0..2),
        0..3_usize,
        prop::collection::vec(open, 1..5),
    )
        .prop_map(
            |(files, folder_link, library_path, preload, driver, opens)| Scene {
                files,
                folder_link,
                library_path: library_path.join(":"),
                preload,
                driver,
                opens,
            },
        )
}

/// The scene with the root's path put in.
fn placed(scene: &Scene, root: &str) -> Scene {
    let put = |text: &String| text.replace('@', root);
    let mut scene = scene.clone();
    for (path, kind) in &mut scene.files {
        // A loop of links ends the real search with an error of its own; not so a link to nothing.
        if let Kind::Link(target) = kind
            && target[3..5] <= path[..2]
        {
            target.insert_str(3, "none/");
        }
        if let Kind::Library(library) = kind {
            for text in library.needed.iter_mut().chain(&mut library.rpath) {
                *text = put(text);
            }
            for text in library.runpath.iter_mut().flatten() {
                *text = put(text);
            }
        }
    }
    scene.library_path = put(&scene.library_path);
    scene.opens = scene.opens.iter().map(put).collect();
    scene
}

/// What the driver prints: the error, and what is loaded below the root.
type Shown = (String, Vec<String>);

fn real(scene: &Scene, root: &Path, driver: &Path) -> Vec<Shown> {
    for directory in ["d0", "d1", "d2", "d3", "work"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    std::os::unix::fs::symlink(format!("d{}", scene.folder_link), root.join("d4")).unwrap();
    for (path, kind) in &scene.files {
        let path = root.join(path);
        // A path may come twice: the last counts.
        fs::remove_file(&path).ok();
        match kind {
            Kind::Library(library) => fs::write(path, elf(library)).unwrap(),
            Kind::Text(length) => fs::write(path, "x".repeat(*length)).unwrap(),
            Kind::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
        }
    }
    let program = root.join("driver");
    fs::copy(driver, &program).unwrap();
    let out = Command::new(&program)
        .current_dir(root.join("work"))
        .args(&scene.opens)
        .env("LD_LIBRARY_PATH", &scene.library_path)
        .env("LD_PRELOAD", scene.preload.join(" "))
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let root = root.to_str().unwrap();
    let pairs = lines.chunks(2);
    pairs
        .map(|pair| {
            let loaded = pair[1].split('\t').filter(|path| path.starts_with(root));
            (pair[0].to_owned(), loaded.map(str::to_owned).collect())
        })
        .collect()
}

fn words(missing: &UnresolvedLibrary) -> String {
    match &missing.absent {
        UnresolvedReason::NotFound => format!(
            "{}: cannot open shared object file: No such file or directory",
            missing.name
        ),
        UnresolvedReason::Refused { path, text } => format!("{path}: {text}"),
    }
}

fn simulated(scene: &Scene, root: &str) -> Vec<Shown> {
    let path: Vec<String> = ["$ORIGIN/d2", "$ORIGIN/d0"].map(String::from).to_vec();
    let program = ElfLibrary {
        machine: X86_64,
        needed: vec!["libc.so.6".to_owned()],
        rpath: if scene.driver == 1 {
            path.clone()
        } else {
            Vec::new()
        },
        runpath: (scene.driver == 2).then_some(path),
        ..ElfLibrary::default()
    };
    let mut tree = LibraryTree::new(X86_64);
    tree.add_provided_name("libc.so.6");
    tree.library_path.clone_from(&scene.library_path);
    tree.preload = scene.preload.join(" ");
    tree.program = Some(format!("{root}/driver"));
    tree.add_library(&format!("{root}/driver"), &program);
    tree.add_link(&format!("{root}/d4"), &format!("d{}", scene.folder_link));
    for (path, kind) in &scene.files {
        let path = format!("{root}/{path}");
        match kind {
            Kind::Library(library) => tree.add_library(&path, library),
            Kind::Text(length) => tree.add_refused_file(&path, *length < 64),
            Kind::Link(target) => tree.add_link(&path, target),
        }
    }
    let (mut process, started) = LoaderProcess::start(&tree);
    // What is preloaded may be absent, what that needs may not.
    if started
        .missing
        .iter()
        .any(|missing| missing.needed_by.is_some())
    {
        return Vec::new();
    }
    let opens = scene.opens.iter();
    opens
        .map(|name| {
            let opened = process.open(name, Some(0), false);
            let error = opened.missing.first().map(words).unwrap_or_default();
            if !error.is_empty() {
                process.unload_new_objects(&opened);
            }
            let loaded = process.objects()[1..]
                .iter()
                .map(|object| object.path.clone());
            (error, loaded.collect())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_trees_load_as_ld_so_loads_them(scene in scene()) {
        let Some(drivers) = drivers() else {
            return Ok(());
        };
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let scene = placed(&scene, root.to_str().unwrap());
        let expected = real(&scene, &root, &drivers[scene.driver]);
        prop_assert_eq!(simulated(&scene, root.to_str().unwrap()), expected);
    }
}

/// Compiles a library; false where there is no compiler.
fn compile(out: &Path, source: &str, flags: &[&str]) -> bool {
    let file = out.with_extension("c");
    fs::write(&file, source).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(out)
        .arg(file)
        .args(flags)
        .current_dir(out.parent().unwrap())
        .status();
    built.is_ok_and(|status| status.success())
}

/// The loader's own error for opening a file.
fn error(driver: &Path, path: &Path) -> String {
    let out = Command::new(driver).arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn versions_and_symbols_fail_as_in_ld_so() {
    let Some([driver, ..]) = drivers() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let script = root.join("script");
    let flags = ["-Wl,-soname,libp.so", "-Wl,--version-script=script"];
    let (provider, module, linked) = (root.join("libp.so"), root.join("m.so"), root.join("n.so"));
    let symbols = "int _ZN3c104goneEv, _ZN3c104hereEv;";
    fs::write(&script, "V_2 { *; };").unwrap();
    assert!(compile(&provider, symbols, &flags));
    let uses = "extern int _ZN3c104goneEv; int *use(void) { return &_ZN3c104goneEv; }";
    assert!(compile(&module, uses, &["libp.so", "-Wl,-rpath,$ORIGIN"]));
    let uses_here = "extern int _ZN3c104hereEv; int *use(void) { return &_ZN3c104hereEv; }";
    assert!(compile(
        &linked,
        uses_here,
        &["libp.so", "-Wl,-rpath,$ORIGIN"]
    ));

    let library = |needs: &str, undefined: &str| ElfLibrary {
        machine: X86_64,
        needed: vec!["libp.so".to_owned()],
        runpath: Some(vec!["$ORIGIN".to_owned()]),
        needs_versions: vec![NeededVersions {
            of: "libp.so".to_owned(),
            versions: vec![needs.to_owned()],
        }],
        undefined: vec![undefined.to_owned()],
        ..ElfLibrary::default()
    };
    let (module_library, linked_library) = (
        library("V_2", "_ZN3c104goneEv"),
        library("V_2", "_ZN3c104hereEv"),
    );
    let provides = |version: &str, symbols: &[&str]| {
        let mut defined: Vec<_> = symbols
            .iter()
            .map(|symbol| symbol_hash(symbol.as_bytes()))
            .collect();
        defined.sort_unstable();
        ElfLibrary {
            machine: X86_64,
            soname: Some("libp.so".to_owned()),
            defines_versions: vec![version.to_owned()],
            defined,
            ..ElfLibrary::default()
        }
    };
    // First all is well; then a symbol goes; then the version.
    let both = ["_ZN3c104goneEv", "_ZN3c104hereEv"];
    for (script_text, symbols, version, defined) in [
        ("V_2 { *; };", symbols, "V_2", &both[..]),
        ("V_2 { *; };", "int _ZN3c104hereEv;", "V_2", &both[1..]),
        ("V_1 { *; };", symbols, "V_1", &both[..]),
    ] {
        fs::write(&script, script_text).unwrap();
        assert!(compile(&provider, symbols, &flags));
        let provider_library = provides(version, defined);
        for (path, library) in [(&module, &module_library), (&linked, &linked_library)] {
            let mut tree = LibraryTree::new(X86_64);
            tree.add_library(provider.to_str().unwrap(), &provider_library);
            tree.add_library(path.to_str().unwrap(), library);
            let (mut process, _) = LoaderProcess::start(&tree);
            let opened = process.open(path.to_str().unwrap(), None, false);
            assert_eq!(first_error(&process, &opened, "V_2"), error(driver, path));
        }
    }
}

/// The loader's words for the first thing that is wrong with an opening.
fn first_error(process: &LoaderProcess<'_, '_>, opened: &DlopenResult, version: &str) -> String {
    let path = |object: usize| &process.objects()[object].path;
    if let Some(miss) = process.version_misses(opened).first() {
        let (provider, needer) = (path(miss.provider), path(miss.needer));
        return format!(
            "{provider}: version `{}' not found (required by {needer})",
            miss.version
        );
    }
    match process.undefined_symbols(opened).first() {
        Some(undefined) => format!(
            "{}: undefined symbol: {}, version {version}",
            path(undefined.needer),
            undefined.symbols[0]
        ),
        None => String::new(),
    }
}
