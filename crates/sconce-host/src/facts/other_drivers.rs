//! Drivers of accelerators that are not NVIDIA's, by what they leave in `/sys/module` and `/dev`.

use std::collections::BTreeMap;

use crate::roots::Roots;
use crate::small_files;

/// Where they are loaded. A version is empty where the driver is the kernel's own and has none.
pub(super) fn read(roots: &Roots) -> BTreeMap<String, String> {
    // `amdgpu` also drives screens: computing needs the node of ROCm.
    let all = [("amdgpu", Some("kfd")), ("xe", None), ("habanalabs", None)];
    let loaded = |(name, node): &(&str, Option<&str>)| {
        let module = roots.sys.join("module").join(name);
        let has_node = node.is_none_or(|node| roots.dev.join(node).exists());
        (module.is_dir() && has_node).then(|| {
            let version = small_files::read_line(&module.join("version")).unwrap_or_default();
            ((*name).to_owned(), version)
        })
    };
    all.iter().filter_map(loaded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_only_drives_a_screen_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(dir.path());
        let module = dir.path().join("sys/module/amdgpu");
        fs::create_dir_all(&module).unwrap();
        fs::write(module.join("version"), "6.10.5\n").unwrap();
        assert!(super::read(&roots).is_empty());
        fs::create_dir_all(dir.path().join("dev/kfd")).unwrap();
        assert_eq!(super::read(&roots)["amdgpu"], "6.10.5");
    }
}
