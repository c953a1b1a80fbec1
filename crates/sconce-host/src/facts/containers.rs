//! The system, and what it runs in.

use std::collections::BTreeMap;

use crate::roots::Roots;
use crate::small_files;

/// `PRETTY_NAME` of /etc/os-release, else of /usr/lib/os-release (os-release(5)).
pub(super) fn read_system_name(roots: &Roots) -> Option<String> {
    let files = [
        roots.etc.join("os-release"),
        roots.root.join("usr/lib/os-release"),
    ];
    files
        .iter()
        .find_map(|path| pretty_name(&small_files::read_text(path)?))
}

fn pretty_name(text: &str) -> Option<String> {
    let value = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    let bare = ['"', '\''].iter().find_map(|&quote| {
        let inner = value.strip_prefix(quote)?;
        inner.strip_suffix(quote)
    });
    // An image wrote it, and people will see it.
    let plain = |c: &char| !sconce_base::text::is_unprintable(*c) && *c != '\\';
    let name: String = bare
        .unwrap_or(value)
        .chars()
        .filter(plain)
        .take(200)
        .collect();
    (!name.is_empty()).then_some(name)
}

/// `/proc/sys/kernel/arch` (kernel 6.1 and later), else what this program was built for, which
/// says nothing of a recorded machine.
pub(super) fn detect_architecture(roots: &Roots) -> Option<String> {
    let built = || (*roots == Roots::default()).then(|| std::env::consts::ARCH.to_owned());
    small_files::read_line(&roots.proc.join("sys/kernel/arch")).or_else(built)
}

/// What the reader runs in, where that is no machine of its own. The marks that engines leave, the
/// narrower first: a pod has Docker's or containerd's marks too, and a container may run in
/// Windows' virtual machine.
///
/// 1. `kubernetes`: a service account, or `KUBERNETES_SERVICE_HOST`;
/// 2. `podman`: /run/.containerenv;
/// 3. `docker`: /.dockerenv;
/// 4. `apptainer`: /.singularity.d;
/// 5. /run/systemd/container, which names the engine (systemd-nspawn, lxc, …);
/// 6. the caller's own cgroups, as far as they are not hidden by a namespace;
/// 7. `wsl`: the kernel's release has `microsoft`.
pub(super) fn detect_container(
    roots: &Roots,
    kernel: Option<&str>,
    variables: &BTreeMap<String, String>,
) -> Option<String> {
    let there = |path: &str| roots.root.join(path).exists();
    let pod = ["run", "var/run"].map(|run| format!("{run}/secrets/kubernetes.io/serviceaccount"));
    if pod.iter().any(|path| there(path)) || variables.contains_key("KUBERNETES_SERVICE_HOST") {
        return Some("kubernetes".to_owned());
    }
    for (mark, kind) in [
        ("run/.containerenv", "podman"),
        (".dockerenv", "docker"),
        (".singularity.d", "apptainer"),
    ] {
        if there(mark) {
            return Some(kind.to_owned());
        }
    }
    let of_cgroups = || of_cgroups(&small_files::read_text(&roots.proc.join("self/cgroup"))?);
    let of_kernel = || {
        let kernel = kernel?.to_ascii_lowercase();
        kernel.contains("microsoft").then(|| "wsl".to_owned())
    };
    small_files::read_line(&roots.root.join("run/systemd/container"))
        .filter(|kind| plain(kind))
        .or_else(of_cgroups)
        .or_else(of_kernel)
}

/// systemd's names of engines (systemd-detect-virt(1)).
fn plain(kind: &str) -> bool {
    kind.len() <= 32 && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

fn of_cgroups(text: &str) -> Option<String> {
    const MARKS: [(&str, &str); 6] = [
        ("/kubepods", "kubernetes"),
        ("/libpod-", "podman"),
        ("/docker/", "docker"),
        ("/docker-", "docker"),
        ("/lxc/", "lxc"),
        ("/lxc.payload", "lxc"),
    ];
    let found = MARKS.iter().find(|(mark, _)| text.contains(mark))?;
    Some(found.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_systems() {
        for (text, name) in [
            (
                "NAME=x\nPRETTY_NAME=\"Ubuntu 22.04.5 LTS\"\n",
                Some("Ubuntu 22.04.5 LTS"),
            ),
            ("PRETTY_NAME='Arch Linux'", Some("Arch Linux")),
            ("PRETTY_NAME=Plain", Some("Plain")),
            ("PRETTY_NAME=\"\"", None),
            ("PRETTY_NAME=\"a\u{1b}[31m\"", Some("a[31m")),
            ("PRETTY_NAME=\"open", Some("\"open")),
            ("", None),
        ] {
            assert_eq!(pretty_name(text).as_deref(), name, "{text}");
        }
    }

    #[test]
    fn marks_of_engines() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::from_dir(folder.path());
        let none = BTreeMap::new();
        let found = |kernel| detect_container(&roots, kernel, &none);
        let mark = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(found(Some("6.1.0-25-amd64")), None);
        let windows = Some("5.15.167.4-microsoft-standard-WSL2");
        assert_eq!(found(windows).as_deref(), Some("wsl"));
        // A line of a container without a cgroup namespace, and one of LXD.
        mark("proc/self/cgroup", "0::/lxc.payload.box/user.slice\n");
        assert_eq!(found(windows).as_deref(), Some("lxc"));
        mark("proc/self/cgroup", "9:cpu:/docker/4f1c\n0::/\n");
        assert_eq!(found(None).as_deref(), Some("docker"));
        mark("run/systemd/container", "systemd-nspawn\n");
        assert_eq!(found(None).as_deref(), Some("systemd-nspawn"));
        mark(".dockerenv", "");
        assert_eq!(found(windows).as_deref(), Some("docker"));
        let pod = BTreeMap::from([("KUBERNETES_SERVICE_HOST".to_owned(), "10.0.0.1".to_owned())]);
        assert_eq!(
            detect_container(&roots, None, &pod).as_deref(),
            Some("kubernetes")
        );
    }
}
