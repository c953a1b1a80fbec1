//! What an image has at a path, looked up as the run will see it: trees over each other, links
//! followed inside alone. For the few files that decide how an image is run.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sconce_schema::environment_layers::LayerTree;

/// As the kernel's own limit.
const MAX_LINKS: u32 = 40;

/// Trees that lie over each other.
#[derive(Debug)]
pub struct OverlayLookup<'a> {
    /// The highest first.
    trees: Vec<&'a Path>,
}

/// What is at a path.
#[derive(Debug)]
pub struct ResolvedPath {
    /// Where it really is: no part of it is a link.
    pub path: PathBuf,
    /// What it is.
    pub meta: Metadata,
}

impl<'a> OverlayLookup<'a> {
    /// `layers` are lowest first, as a manifest has them.
    #[must_use]
    pub fn new(layers: &'a [LayerTree]) -> Self {
        let trees = layers.iter().rev().map(|layer| layer.path.as_path());
        Self {
            trees: trees.collect(),
        }
    }

    /// What `path` leads to, links followed; `None` where that is nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn resolve_path(&self, path: &[u8]) -> io::Result<Option<ResolvedPath>> {
        let mut links = 0;
        let mut inside = PathBuf::new();
        let mut folders = self.trees.clone();
        // What is still to walk, last first.
        let mut rest = reversed(path);
        while let Some(part) = rest.pop() {
            if part == b".." {
                inside.pop();
                folders = self.folders(&inside)?;
                continue;
            }
            let next = inside.join(OsStr::from_bytes(&part));
            let Some((tree, meta)) = first(&folders, &next)? else {
                return Ok(None);
            };
            let path = tree.join(&next);
            if meta.is_dir() {
                folders = visible(&folders, &next)?;
                inside = next;
            } else if meta.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return Ok(None);
                }
                let target = fs::read_link(&path)?;
                let target = target.as_os_str().as_bytes();
                if target.starts_with(b"/") {
                    inside.clear();
                    folders.clone_from(&self.trees);
                }
                rest.extend(reversed(target));
            } else {
                return Ok(rest.is_empty().then_some(ResolvedPath { path, meta }));
            }
        }
        let found = first(&folders, &inside)?;
        Ok(found.map(|(tree, meta)| ResolvedPath {
            path: tree.join(&inside),
            meta,
        }))
    }

    /// The bytes of a file; `None` where `path` leads to no file, or to one of more than `most`
    /// bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn read(&self, path: &[u8], most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(found) = self
            .resolve_path(path)?
            .filter(|found| found.meta.is_file())
        else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let mut file = fs::File::open(found.path)?.take(most + 1);
        file.read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= most).then_some(bytes))
    }

    /// The trees that show something of the folder `path`, which has no links in it.
    fn folders(&self, path: &Path) -> io::Result<Vec<&'a Path>> {
        let mut folders = self.trees.clone();
        let mut so_far = PathBuf::new();
        for part in path {
            so_far.push(part);
            folders = visible(&folders, &so_far)?;
        }
        Ok(folders)
    }
}

/// The highest tree that has something at `path`.
fn first<'a>(trees: &[&'a Path], path: &Path) -> io::Result<Option<(&'a Path, Metadata)>> {
    for tree in trees {
        if let Some(meta) = look(&tree.join(path))? {
            return Ok(Some((tree, meta)));
        }
    }
    Ok(None)
}

/// Of `trees`, those whose folder `path` is seen: a file or a link of one hides what is below it.
fn visible<'a>(trees: &[&'a Path], path: &Path) -> io::Result<Vec<&'a Path>> {
    let mut seen = Vec::new();
    for tree in trees {
        match look(&tree.join(path))? {
            Some(meta) if meta.is_dir() => seen.push(*tree),
            Some(_) => break,
            None => {}
        }
    }
    Ok(seen)
}

fn look(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(meta) => Ok(Some(meta)),
        Err(e) => match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename => Ok(None),
            _ => Err(e),
        },
    }
}

fn reversed(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&b| b == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
        .map(<[u8]>::to_vec)
        .rev()
        .collect()
}
