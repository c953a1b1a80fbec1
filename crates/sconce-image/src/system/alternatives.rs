//! The names that several packages may give a program, linked as `update-alternatives` would:
//! `/usr/bin/awk` leads to `/etc/alternatives/awk`, and that to `/usr/bin/mawk`.

use std::collections::BTreeMap;

use sconce_store::deb::Alternative;

use super::SystemError;
use super::files::SystemTree;

const FOLDER: &str = "etc/alternatives";

/// Makes the links of each group: of its packages' requests the one with the highest priority, of
/// equals the first. What a package brings itself stays, and what leads to nothing is left out.
pub(super) fn write_links(
    tree: &mut SystemTree,
    requests: &[Alternative],
) -> Result<(), SystemError> {
    let mut chosen: BTreeMap<&str, &Alternative> = BTreeMap::new();
    for request in requests {
        if !tree.contains_path(inside(&request.target))? {
            continue;
        }
        let best = chosen.entry(&request.name).or_insert(request);
        if request.priority > best.priority {
            *best = request;
        }
    }
    for request in chosen.values() {
        write_link(tree, &request.name, &request.link, &request.target)?;
        for (name, link, target) in &request.followers {
            // Pages of the manual are not in every tree that is made of packages.
            if !link.starts_with("/usr/share/man/") && tree.contains_path(inside(target))? {
                write_link(tree, name, link, target)?;
            }
        }
    }
    Ok(())
}

fn write_link(
    tree: &mut SystemTree,
    name: &str,
    link: &str,
    target: &str,
) -> Result<(), SystemError> {
    if tree.contains_path(inside(link))? {
        return Ok(());
    }
    tree.symlink_if_missing(target, &format!("{FOLDER}/{name}"))?;
    tree.symlink_if_missing(&format!("/{FOLDER}/{name}"), inside(link))
}

fn inside(path: &str) -> &str {
    path.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn request(name: &str, target: &str, priority: i32) -> Alternative {
        Alternative {
            name: name.to_owned(),
            link: format!("/usr/bin/{name}"),
            target: target.to_owned(),
            priority,
            followers: vec![(
                format!("n{name}"),
                format!("/usr/bin/n{name}"),
                target.to_owned(),
            )],
        }
    }

    #[test]
    fn the_highest_priority_that_is_there_is_linked() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("usr/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["mawk", "gawk", "vi"] {
            fs::write(bin.join(name), name).unwrap();
        }
        let requests = [
            request("awk", "/usr/bin/mawk", 5),
            request("awk", "/usr/bin/gawk", 10),
            request("awk", "/usr/bin/original-awk", 20),
            request("vi", "/usr/bin/gawk", 1),
            request("editor", "/usr/bin/nano", 1),
        ];
        write_links(&mut SystemTree::new(root.path()), &requests).unwrap();
        let link = |path: &str| fs::read_link(root.path().join(path)).ok();
        assert_eq!(link("usr/bin/awk"), Some("/etc/alternatives/awk".into()));
        assert_eq!(link("etc/alternatives/awk"), Some("/usr/bin/gawk".into()));
        assert_eq!(link("usr/bin/nawk"), Some("/etc/alternatives/nawk".into()));
        assert_eq!(link("usr/bin/vi"), None, "a package's own file stays");
        assert_eq!(fs::read_to_string(bin.join("vi")).unwrap(), "vi");
        assert!(!bin.join("editor").is_symlink());
    }
}
