//! Reads all libraries under a folder, two at a time, and prints what they say of themselves.
//!
//! `cargo run --release -p sconce-compat --example scan -- FOLDER`
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sconce_compat::binary::{self, BinaryError, ByteSource, ParsedBinary};
use sconce_compat::library::{CodeKind, CodeReach, CodeTarget, ElfLibrary, GpuCode};

/// An open file, and what was read of it.
struct Opened {
    file: File,
    size: u64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

impl ByteSource for Opened {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes
            .fetch_add(into.len() as u64, Ordering::Relaxed);
        self.file.read_exact_at(into, offset)
    }
}

struct Scanned {
    path: PathBuf,
    found: Result<ParsedBinary, BinaryError>,
    took: Duration,
    reads: u64,
    read_bytes: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).ok_or("which folder?")?;
    let mut paths = Vec::new();
    let started = Instant::now();
    walk(Path::new(&folder), &mut paths)?;
    let walked = started.elapsed();
    // The largest are taken first, so that both threads end together.
    paths.sort_by_key(|(size, _)| *size);
    let left = Mutex::new(paths);
    let next = || left.lock().ok()?.pop();
    let scan_all = || -> io::Result<Vec<Scanned>> {
        std::iter::from_fn(next)
            .map(|(size, path)| scan(path, size))
            .collect()
    };
    let mut scanned = std::thread::scope(|scope| {
        let threads = [scope.spawn(scan_all), scope.spawn(scan_all)];
        let mut scanned = Vec::new();
        for thread in threads {
            scanned.extend(thread.join().map_err(|_| "a thread ended")??);
        }
        Ok::<_, Box<dyn Error>>(scanned)
    })?;
    let took = started.elapsed();
    scanned.retain(|one| !matches!(one.found, Ok(ParsedBinary::NotABinary)));
    scanned.sort_by(|one, other| one.path.cmp(&other.path));
    for one in &scanned {
        print(one);
    }
    let total = |of: fn(&Scanned) -> u64| scanned.iter().map(of).sum::<u64>();
    println!(
        "{} binaries in {took:?} ({walked:?} to walk the folder); {} reads, {} KiB read",
        scanned.len(),
        total(|one| one.reads),
        total(|one| one.read_bytes) / 1024
    );
    kept(&scanned)
}

/// All plain files of a size that a binary can have.
fn walk(folder: &Path, paths: &mut Vec<(u64, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let path = entry.path();
        if kind.is_dir() {
            walk(&path, paths)?;
        } else if kind.is_file() && is_binary_name(&entry.file_name().to_string_lossy()) {
            paths.push((entry.metadata()?.len(), path));
        }
    }
    Ok(())
}

fn is_binary_name(name: &str) -> bool {
    name.contains(".so") || name.ends_with(".a") || !name.contains('.')
}

fn scan(path: PathBuf, size: u64) -> io::Result<Scanned> {
    let started = Instant::now();
    let bytes = Opened {
        file: File::open(&path)?,
        size,
        reads: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
    };
    let found = binary::read(&bytes);
    Ok(Scanned {
        path,
        found,
        took: started.elapsed(),
        reads: bytes.reads.into_inner(),
        read_bytes: bytes.read_bytes.into_inner(),
    })
}

fn print(one: &Scanned) {
    println!(
        "{}\n    {:?}, {} reads, {} KiB",
        one.path.display(),
        one.took,
        one.reads,
        one.read_bytes / 1024
    );
    match &one.found {
        Ok(ParsedBinary::Library(library)) => {
            let ElfLibrary {
                machine, soname, ..
            } = library.as_ref();
            println!(
                "    machine {machine}, soname {}, needs {}, rpath {:?}, runpath {:?}",
                soname.as_deref().unwrap_or("–"),
                library.needed.join(" "),
                library.rpath,
                library.runpath
            );
            for needs in &library.needs_versions {
                println!("    of {}: {}", needs.of, needs.versions.join(" "));
            }
            println!(
                "    defines {} versions, {} PyTorch symbols; {} undefined",
                library.defines_versions.len(),
                library.defined.len(),
                library.undefined.len()
            );
            print_code(&library.gpu);
        }
        Ok(ParsedBinary::Archive(archive)) => {
            println!(
                "    {} members, thin: {}",
                archive.members.len(),
                archive.thin
            );
            print_code(&archive.gpu);
        }
        Ok(ParsedBinary::NotABinary) => {}
        Err(error) => println!("    {error}"),
    }
}

fn print_code(code: &GpuCode) {
    if code.container_count() > 0 || code.unread_bytes > 0 {
        println!(
            "    {} containers, {} bytes unread",
            code.container_count(),
            code.unread_bytes
        );
    }
    for kind in &code.coverage {
        let targets: Vec<String> = kind.targets.iter().map(name).collect();
        println!("    {:6} × {}", kind.containers, targets.join(" "));
    }
}

fn name(target: &CodeTarget) -> String {
    let suffix = match target.reach {
        CodeReach::Onward => "",
        CodeReach::Family => "f",
        CodeReach::Exact => "a",
    };
    match target.code {
        CodeKind::Sass => format!("{}{suffix}", target.capability),
        CodeKind::Ptx { major, minor } => {
            format!("{}{suffix}:ptx{major}.{minor}", target.capability)
        }
    }
}

/// What keeping the results would take.
fn kept(scanned: &[Scanned]) -> Result<(), Box<dyn Error>> {
    let libraries: Vec<&ElfLibrary> = scanned
        .iter()
        .filter_map(|one| match &one.found {
            Ok(ParsedBinary::Library(library)) => Some(library.as_ref()),
            _ => None,
        })
        .collect();
    let written = serde_json::to_vec(&libraries)?;
    let started = Instant::now();
    let read: Vec<ElfLibrary> = serde_json::from_slice(&written)?;
    let took = started.elapsed();
    println!(
        "kept as JSON: {} KiB, read again in {took:?}; the same: {}",
        written.len() / 1024,
        read.iter().eq(libraries)
    );
    Ok(())
}
