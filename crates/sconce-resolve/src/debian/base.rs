//! The packages that every environment is made of.

/// A package of the base set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasePackage {
    /// Its name.
    pub name: String,
    /// Why it is there.
    pub reason: &'static str,
}

/// What every environment needs, besides what these packages need themselves. `python` is the
/// major and minor version of the interpreter, `3.13`, where that is the release's own.
#[must_use]
pub fn base_packages(python: Option<&str>) -> Vec<BasePackage> {
    let fixed = [
        (
            "base-files",
            "the folders, /etc/os-release and the licences that others refer to",
        ),
        ("base-passwd", "the system users and groups"),
        ("bash", "the shell that `sconce shell` starts"),
        (
            "ca-certificates",
            "https from inside: data sets, model hubs, experiment trackers",
        ),
        (
            "coreutils",
            "ls, cp, cat, nproc and what every script calls",
        ),
        ("dash", "/bin/sh, for subprocess with shell=True"),
        ("findutils", "find and xargs"),
        ("grep", "people and scripts expect it"),
        ("gzip", "tar calls it"),
        ("less", "git, help() and people page with it"),
        (
            "libc-bin",
            "ldconfig and getent; ctypes.util.find_library calls the former",
        ),
        (
            "libgcc-s1",
            "needed by libtorch_cuda.so; no Debian package of Python needs it",
        ),
        ("libgomp1", "OpenMP, for wheels that do not carry their own"),
        (
            "libstdc++6",
            "needed by libtorch_cuda.so; no Debian package of Python needs it",
        ),
        (
            "ncurses-base",
            "terminal descriptions, for less, readline and progress bars",
        ),
        (
            "netbase",
            "names of ports and protocols, for getservbyname and getprotobyname",
        ),
        (
            "procps",
            "ps and top; data loaders that hang are looked at with them",
        ),
        ("sed", "people and scripts expect it"),
        ("tar", "unpacks data sets"),
    ];
    let standalone = [
        (
            "libcrypt1",
            "standalone Pythons before 2023 are linked to it",
        ),
        ("media-types", "/etc/mime.types, for mimetypes"),
        ("tzdata", "zoneinfo"),
    ];
    let more = match python {
        Some(_) => &[][..],
        None => &standalone,
    };
    let fixed = fixed.iter().chain(more);
    let fixed = fixed.map(|(name, reason)| BasePackage {
        name: (*name).to_owned(),
        reason,
    });
    let python = python.map(|python| BasePackage {
        name: format!("python{python}"),
        reason: "the interpreter, with ssl, sqlite3, ctypes, zlib, bz2, lzma, readline and curses",
    });
    fixed.chain(python).collect()
}
