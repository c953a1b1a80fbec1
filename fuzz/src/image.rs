//! Shared libraries and the loader's cache: the image's from the libraries of its packages, the
//! host's from the driver's.

#[path = "../../crates/sconce-host/src/cdi/elf.rs"]
mod elf;
#[path = "../../crates/sconce-host/src/cdi/ld_cache.rs"]
mod ld_cache;
#[expect(
    dead_code,
    unused_imports,
    reason = "some of it is for the rest of its crate"
)]
#[path = "../../crates/sconce-image/src/system/mod.rs"]
mod system;

use std::fs;
use std::path::Path;

use crate::bytes::{joined, parts};
use crate::scratch::{Pen, put};
use crate::testing;

/// Account files, a library, and a cache.
pub(crate) fn libraries(data: &[u8]) {
    let [passwd, group, library, cache] = parts::<4>(data);
    for folder in ld_cache::find_library_dirs(cache, |_| true) {
        assert!(folder.is_absolute());
    }
    let pen = Pen::new();
    let root = &pen.tree;
    let folder = root.join("usr/lib/x86_64-linux-gnu");
    let file = folder.join("libx.so.1.2");
    put(&root.join("usr/share/base-passwd/passwd.master"), passwd);
    put(&root.join("usr/share/base-passwd/group.master"), group);
    put(&file, library);
    put(
        &folder.join("libc.so.6"),
        &testing::shared_library(Some("libc.so.6")),
    );
    std::os::unix::fs::symlink("libx.so.1.2", folder.join("libx.so")).expect("a link can be made");
    std::os::unix::fs::symlink(&pen.outside, folder.join("libo.so")).expect("a link can be made");
    let found = elf::read_library(&file);
    if let Some(name) = found.as_ref().and_then(|library| library.soname.as_deref()) {
        assert!(!name.is_empty() && !name.contains('/') && name != ".." && name != ".");
    }
    system::create_merged_usr(root).expect("folders can be made");
    match system::configure_root(root, &crate::osv::lock()) {
        Ok(()) => {
            let cache = fs::read(root.join("etc/ld.so.cache")).expect("it was written");
            let folders = ld_cache::find_library_dirs(&cache, |name| name == "libc.so.6");
            assert_eq!(
                folders,
                [Path::new("/lib/x86_64-linux-gnu")],
                "our own cache reads"
            );
        }
        Err(error) => {
            assert!(
                std::str::from_utf8(passwd).is_err() || std::str::from_utf8(group).is_err(),
                "{error}"
            );
        }
    }
    pen.assert_closed();
}

pub(crate) fn library_seeds() -> Vec<Vec<u8>> {
    let passwd =
        b"root:*:0:0:root:/root:/bin/bash\ndaemon:*:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n";
    let group = b"root:*:0:\ndaemon:*:1:\n";
    let named = testing::shared_library(Some("libx.so.1"));
    let nameless = testing::shared_library(None);
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    vec![
        joined(&[passwd, group, &named, &cache[..cache.len().min(600)]]),
        joined(&[passwd, group, &nameless]),
    ]
}
