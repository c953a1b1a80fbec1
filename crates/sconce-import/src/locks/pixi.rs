//! `pixi.lock`, formats 4 to 7: what is of the Python package index is taken with its digests, what is of conda by
//! its name.

use std::collections::BTreeSet;

use sconce_formats::tags::CpuArchitecture;
use sconce_formats::{PinnedFile, normalize_project_name};

use super::graph::{LockedOrigin, LockedPackage, LockedWheel};
use super::yaml_blocks::YamlBlock;
use super::{
    CondaPackage, LockSelection, ReadLock, common_address, file_name_of, host_of, mark_needed,
};
use crate::ImportError;
use crate::yaml::YamlNode;

/// The versions of the format that are read.
const VERSIONS: [i64; 4] = [4, 5, 6, 7];
/// The environment that pixi takes where none is named.
const DEFAULT: &str = "default";
/// More packages are not read.
const MAX_PACKAGES: usize = 20_000;

/// conda's name of a platform.
pub(super) fn platform_name(machine: CpuArchitecture) -> &'static str {
    match machine {
        CpuArchitecture::X86_64 => "linux-64",
        CpuArchitecture::Aarch64 => "linux-aarch64",
    }
}

pub(super) fn read(text: &str, selection: &LockSelection<'_>) -> Result<ReadLock, ImportError> {
    let root = YamlBlock::new(text);
    let version = root.text_of("version").and_then(|v| v.parse().ok());
    if !version.is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(ImportError::LockVersion {
            file: "pixi.lock",
            found: version.unwrap_or_default(),
            read: VERSIONS[3],
        });
    }
    let missing = "no list of packages for Linux";
    let nothing = ImportError::Nothing { missing };
    let mut read = ReadLock::default();
    let environments = root.child("environments");
    let environments: Vec<(&str, YamlBlock<'_>)> = environments
        .into_iter()
        .flat_map(YamlBlock::children)
        .collect();
    let platform = platform_name(selection.machine);
    let of_linux = |environment: &YamlBlock<'_>| find_platform(*environment, platform).is_some();
    let named = |name: &str| {
        let mut all = environments.iter();
        all.find(|(one, block)| *one == name && of_linux(block))
    };
    let group = selection.groups.iter().find_map(|group| named(group));
    let chosen = group
        .or_else(|| named(DEFAULT))
        .or_else(|| environments.iter().find(|(_, block)| of_linux(block)));
    let Some((chosen, block)) = chosen else {
        return Err(nothing);
    };
    let names = environments.iter().map(|(name, _)| (*name).to_owned());
    read.environments = names.filter(|name| name != chosen).collect();
    if *chosen != DEFAULT {
        read.environment = Some((*chosen).to_owned());
    }
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    let mut of_conda: BTreeSet<&str> = BTreeSet::new();
    let packages = find_platform(*block, platform).ok_or(nothing)?;
    for item in packages.items().take(MAX_PACKAGES) {
        let line = item.as_text().trim_start_matches(['-', ' ']).lines().next();
        let Some((kind, address)) = line.unwrap_or_default().split_once(':') else {
            continue;
        };
        let address = address.trim().trim_matches(['\'', '"']);
        match kind.trim() {
            "pypi" => drop(wanted.insert(address)),
            "conda" => {
                of_conda.insert(address);
                read.conda
                    .extend(CondaPackage::from_address(item.line, address));
            }
            _ => {}
        }
    }
    let main_host = common_address(wanted.iter().map(|address| host_of(address)));
    let main_host = main_host.map(str::to_owned);
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut needs: Vec<&str> = Vec::new();
    let list = root.child("packages");
    for item in list.into_iter().flat_map(YamlBlock::items) {
        // A quick look first: most of the file is conda's, and of that only needs count.
        if !item
            .as_text()
            .lines()
            .next()
            .unwrap_or_default()
            .contains("pypi")
        {
            if find_address(item).is_some_and(|address| of_conda.contains(address)) {
                needs.extend(list_needs(item));
            }
            continue;
        }
        let Some(node) = item.parse_item()? else {
            continue;
        };
        let text = |key: &str| node.get(key).and_then(YamlNode::as_text);
        let (Some(address), Some(name)) =
            (text("pypi").or(text("url")).or(text("path")), text("name"))
        else {
            continue;
        };
        if !wanted.contains(address) || !known.insert(address.to_owned()) {
            continue;
        }
        read.graph.packages.push(locate(
            name,
            text("version"),
            address,
            text("sha256"),
            main_host.as_deref(),
        ));
    }
    mark_needed(&mut read.conda, needs.into_iter());
    // A folder stands in no list of newer versions.
    for address in wanted
        .into_iter()
        .filter(|address| !known.contains(*address))
    {
        if !address.contains("://") && normalize_project_name(&file_name_of(address)).is_none() {
            read.graph
                .packages
                .push(locate("project", None, address, None, None));
        }
    }
    Ok(read)
}

/// The address of a package of conda's.
fn find_address(item: YamlBlock<'_>) -> Option<&str> {
    let mut lines = item
        .as_text()
        .lines()
        .map(|line| line.trim_start_matches(['-', ' ']));
    let address =
        lines.find_map(|line| line.strip_prefix("conda:").or(line.strip_prefix("url:")))?;
    Some(address.trim().trim_matches(['\'', '"']))
}

/// What a package of conda's needs, a line each.
fn list_needs<'a>(item: YamlBlock<'a>) -> impl Iterator<Item = &'a str> {
    let lines = item.as_text().lines();
    let below = lines.skip_while(|line| line.trim() != "depends:").skip(1);
    let items = below.map_while(|line| line.trim().strip_prefix("- "));
    items.map(|need| need.trim_matches(['\'', '"']))
}

/// The packages of an environment for a platform. Version 7 lets people name platforms, which then begin with what
/// they are.
fn find_platform<'a>(environment: YamlBlock<'a>, platform: &str) -> Option<YamlBlock<'a>> {
    let packages = environment.child("packages")?;
    packages.child(platform).or_else(|| {
        let mut all = packages.children();
        let found = all.find(|(name, _)| name.starts_with(platform));
        found.map(|(_, block)| block)
    })
}

/// A package at its address: an index's where that is where most come from.
pub(super) fn locate(
    name: &str,
    version: Option<&str>,
    address: &str,
    sha256: Option<&str>,
    main_host: Option<&str>,
) -> LockedPackage {
    let digest = format!("sha256:{}", sha256.unwrap_or_default());
    let file = PinnedFile::from_digest(Some(file_name_of(address)), &digest);
    let origin = if let Some(git) = address.strip_prefix("git+") {
        let (address, commit) = git.split_once('#').unwrap_or((git, ""));
        let address = address.split('?').next().unwrap_or_default();
        LockedOrigin::Address(super::git_requirement(address, commit, None))
    } else if !address.contains("://") {
        match address.ends_with(".whl") || address.ends_with(".gz") {
            true => LockedOrigin::Unsupported(super::LOCAL),
            false => LockedOrigin::Folder(Some(address.to_owned())),
        }
    } else if version.is_some() && main_host == Some(host_of(address)) {
        LockedOrigin::Index
    } else if address.ends_with(".whl") {
        LockedOrigin::Wheels(vec![LockedWheel {
            file: file_name_of(address),
            url: address.to_owned(),
            sha256: file.as_ref().map(|file| file.sha256.clone()),
        }])
    } else {
        LockedOrigin::Address(address.to_owned())
    };
    LockedPackage {
        name: name.to_owned(),
        version: version.map(str::to_owned),
        origin,
        files: file.into_iter().collect(),
        ..LockedPackage::default()
    }
}
