//! The compiler of an environment as a tree of its own, laid over all others: the Debian packages of
//! [`Lock::compiler_debs`] without what nothing compiles with. What of a package is left out is a function
//! of its path and size, so the tree is named by the packages alone.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sconce_schema::spec::Removal;
use sconce_schema::{Lock, Sha256};
use sha2::Digest as _;

use crate::{slim, system};

/// Kind of these trees in the store.
pub(crate) const KIND: &str = "compiler";
/// The name of its layer, in runs and in images.
pub(crate) const LAYER: &str = "compiler";
/// Counts up whenever the same packages would give another tree.
const FORMAT: u32 = 1;

/// Static libraries of at most this many bytes stay. They are what `-lpthread` and `-ldl` find since
/// these are part of the C library, and its `libc_nonshared.a`.
const MAX_PLACEHOLDER_BYTES: u64 = 16 << 10;
/// Static libraries that dynamically linked programs have parts of, whatever their size.
const LINKED_ALWAYS: [&str; 3] = ["libgcc.a", "libgcc_eh.a", "libstdc++fs.a"];
/// Programs of binutils and gcc that no build of an extension calls: linkers that are not the usual
/// one, profilers, what optimizes at link time and the preprocessor by itself (`gcc -E` does it).
const PROGRAMS: [&str; 8] = [
    "cpp", "dwp", "elfedit", "gcov", "gp-", "gprof", "ld.gold", "lto-dump",
];

/// The key of the tree in the store; `None` where the lock has no compiler.
pub(crate) fn tree_key(lock: &Lock) -> Option<String> {
    if lock.compiler_debs().is_empty() {
        return None;
    }
    let mut hasher = sha2::Sha256::new();
    let target = &lock.target;
    hasher.update(format!(
        "{FORMAT} {} {} {}",
        system::BUILDER,
        target.architecture,
        target.python
    ));
    for deb in lock.compiler_debs() {
        hasher.update(deb.sha256.0);
    }
    for (name, _) in names(lock) {
        hasher.update(name);
    }
    Some(Sha256(hasher.finalize().into()).to_string())
}

/// The names under which build tools look for compilers, and the programs: Debian's maintainer
/// scripts would make these links.
fn names(lock: &Lock) -> impl Iterator<Item = (&'static str, &'static str)> {
    let has = |program: &str| lock.all_debs().any(|deb| deb.name == program);
    let names =
        [("cc", "gcc"), ("c++", "g++")].map(|(name, program)| (name, program, has(program)));
    let there = names.into_iter().filter(|(.., there)| *there);
    there.map(|(name, program, _)| (name, program))
}

/// Takes out of `root`, where the packages are unpacked, what nothing compiles with, and puts in the
/// names of compilers.
///
/// # Errors
/// A file cannot be removed, or a link not made.
pub(crate) fn complete_tree(root: &Path, lock: &Lock) -> io::Result<()> {
    let multiarch = system::multiarch_triplet(&lock.target.architecture);
    remove_unneeded(root, Path::new(""), multiarch)?;
    for (name, program) in names(lock) {
        let link = root.join("usr/bin").join(name);
        if link.symlink_metadata().is_err() {
            fs::create_dir_all(root.join("usr/bin"))?;
            symlink(program, link)?;
        }
    }
    Ok(())
}

/// Whether the folder is empty after it.
fn remove_unneeded(root: &Path, folder: &Path, multiarch: &str) -> io::Result<bool> {
    let mut empty = true;
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (meta, path) = (entry.metadata()?, folder.join(entry.file_name()));
        if meta.is_dir() {
            match remove_unneeded(root, &path, multiarch)? {
                true => fs::remove_dir(entry.path())?,
                false => empty = false,
            }
        } else if unneeded(&path, meta.len(), multiarch) {
            fs::remove_file(entry.path())?;
        } else {
            empty = false;
        }
    }
    Ok(empty)
}

/// Whether nothing compiles with a file. `path` is relative to the root.
fn unneeded(path: &Path, size_bytes: u64, multiarch: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let bare = name.strip_prefix(multiarch).unwrap_or(&name);
    let program = bare.strip_prefix('-').unwrap_or(bare);
    match parts[..] {
        ["usr", "bin", _] => PROGRAMS.iter().any(|one| program.starts_with(one)),
        // The compiler that runs at link time. It is as large as the others.
        ["usr", "libexec" | "lib", "gcc", _, _, "lto1"] => true,
        // Licences have to go with what they cover.
        ["usr", "share", "doc", ..] => slim::classify_path(path, false) == Some(Removal::Docs),
        ["usr", "share", ..] => true,
        // Headers of Linux for other architectures, which share one package.
        ["usr", "include", folder, _, ..] if folder.contains("-linux-") => folder != multiarch,
        ["usr", "lib", "linux", "uapi", kernel, ..] => {
            let own = match multiarch {
                "aarch64-linux-gnu" => "arm64",
                _ => "x86",
            };
            kernel != own
        }
        _ if path.extension().is_some_and(|end| end == "a") => {
            size_bytes > MAX_PLACEHOLDER_BYTES && !LINKED_ALWAYS.contains(&&*name)
        }
        _ => false,
    }
}

/// The tree of the lock's compiler, if the store has it.
pub(crate) fn find_tree(lock: &Lock, store: &sconce_store::Store) -> Option<PathBuf> {
    store.find_tree(KIND, &tree_key(lock)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::lock::{COMPILER, LockedStage};

    #[test]
    fn what_nothing_compiles_with_goes() {
        let goes = |path: &str, size| unneeded(Path::new(path), size, "x86_64-linux-gnu");
        for (path, size) in [
            ("usr/libexec/gcc/x86_64-linux-gnu/14/lto1", 30 << 20),
            ("usr/lib/gcc/x86_64-linux-gnu/12/lto1", 30 << 20),
            ("usr/bin/x86_64-linux-gnu-lto-dump-14", 30 << 20),
            ("usr/bin/gp-archive", 0),
            ("usr/bin/x86_64-linux-gnu-gprof", 9),
            ("usr/lib/x86_64-linux-gnu/libc.a", 5 << 20),
            ("usr/lib/gcc/x86_64-linux-gnu/14/libstdc++.a", 6 << 20),
            (
                "usr/lib/python3.13/config-3.13-x86_64-linux-gnu/libpython3.13.a",
                13 << 20,
            ),
            ("usr/share/man/man1/gcc.1.gz", 9),
            ("usr/share/doc/gcc-14/README", 9),
            ("usr/share/gdb/auto-load/x.py", 9),
            ("usr/include/i386-linux-gnu/asm", 9),
            ("usr/include/s390x-linux-gnu/asm/types.h", 9),
            ("usr/lib/linux/uapi/mips/asm/types.h", 9),
        ] {
            assert!(goes(path, size), "{path}");
        }
        for (path, size) in [
            ("usr/libexec/gcc/x86_64-linux-gnu/14/cc1plus", 36 << 20),
            ("usr/libexec/gcc/x86_64-linux-gnu/14/liblto_plugin.so", 99),
            ("usr/bin/x86_64-linux-gnu-g++-14", 1 << 20),
            ("usr/bin/ld", 9),
            ("usr/bin/x86_64-linux-gnu-ld.bfd", 2 << 20),
            ("usr/lib/x86_64-linux-gnu/libpthread.a", 8),
            ("usr/lib/x86_64-linux-gnu/libc_nonshared.a", 5 << 10),
            ("usr/lib/gcc/x86_64-linux-gnu/14/libgcc.a", 3 << 20),
            ("usr/share/doc/gcc-14/copyright", 9),
            ("usr/include/x86_64-linux-gnu/asm", 9),
            ("usr/include/x86_64-linux-gnu/bits/types.h", 9),
            ("usr/include/python3.13/Python.h", 9),
            ("usr/lib/linux/uapi/x86/asm/types.h", 9),
            ("var/lib/dpkg/status.d/gcc", 9),
        ] {
            assert!(!goes(path, size), "{path}");
        }
    }

    #[test]
    fn a_compiler_has_its_names_and_no_empty_folders() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("usr/share/man/man1")).unwrap();
        fs::write(root.join("usr/share/man/man1/g++.1"), "").unwrap();
        fs::write(root.join("usr/bin/g++"), "").unwrap();
        fs::write(root.join("usr/bin/gcc"), "").unwrap();
        let mut lock = Lock::parse(include_str!("sbom/testdata/lock.toml")).unwrap();
        assert_eq!(tree_key(&lock), None);
        let mut deb = lock.debs[0].clone();
        deb.name = "g++".to_owned();
        lock.stages.push(LockedStage {
            name: COMPILER.to_owned(),
            wheels: Vec::new(),
            debs: vec![deb.clone()],
        });
        let alone = tree_key(&lock).unwrap();
        complete_tree(root, &lock).unwrap();
        let link = |name: &str| fs::read_link(root.join("usr/bin").join(name)).ok();
        assert_eq!((link("c++"), link("cc")), (Some("g++".into()), None));
        assert!(!root.join("usr/share").exists());
        // gcc may be the environment's own.
        deb.name = "gcc".to_owned();
        lock.debs.push(deb);
        complete_tree(root, &lock).unwrap();
        assert_eq!(link("cc"), Some("gcc".into()));
        assert_ne!(tree_key(&lock), Some(alone));
        assert_eq!(tree_key(&lock.without_compiler()), None);
    }
}
