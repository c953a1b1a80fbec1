//! `conda-lock.yml`, format 1: its pip part is taken with its digests, what is of conda by its name.

use std::collections::BTreeSet;

use sconce_formats::normalize_project_name;

use super::pixi::{locate, platform_name};
use super::yaml_blocks::YamlBlock;
use super::{CondaPackage, LockSelection, ReadLock, common_address, host_of, mark_needed};
use crate::ImportError;
use crate::yaml::YamlNode;

/// The version of the format that is read.
const VERSION: i64 = 1;
/// The category of what runs.
const MAIN: &str = "main";
/// More packages are not read.
const MAX_PACKAGES: usize = 20_000;

pub(super) fn read(text: &str, selection: &LockSelection<'_>) -> Result<ReadLock, ImportError> {
    let root = YamlBlock::new(text);
    let version = root.text_of("version").and_then(|v| v.parse().ok());
    let list = root.child("package");
    let (Some(VERSION), Some(list)) = (version, list) else {
        return Err(ImportError::LockVersion {
            file: "conda-lock.yml",
            found: version.unwrap_or_default(),
            read: VERSION,
        });
    };
    let platform = platform_name(selection.machine);
    let mut read = ReadLock::default();
    let mut pip = Vec::new();
    let mut needs = BTreeSet::new();
    for item in list.items() {
        if !item.as_text().contains(platform) {
            continue;
        }
        let Some(node) = item.parse_item()? else {
            continue;
        };
        let text = |key: &str| node.get(key).and_then(YamlNode::as_text);
        if text("platform") != Some(platform) {
            continue;
        }
        let category = text("category").unwrap_or(MAIN);
        if category != MAIN && !selection.groups.iter().any(|group| group == category) {
            if !read.groups.iter().any(|group| group == category) {
                read.groups.push(category.to_owned());
            }
            continue;
        }
        let (Some(name), Some(version)) = (text("name"), text("version")) else {
            continue;
        };
        if pip.len() + read.conda.len() >= MAX_PACKAGES {
            break;
        }
        if text("manager") == Some("pip") {
            pip.push(node);
        } else if normalize_project_name(name.trim_start_matches('_')).is_some() {
            read.conda.push(CondaPackage {
                line: item.line,
                name: name.to_owned(),
                version: version.to_owned(),
                build: String::new(),
                is_needed: false,
            });
            let of_package = node.get("dependencies").map(YamlNode::as_map);
            let of_package = of_package.unwrap_or_default().iter();
            needs.extend(of_package.map(|(name, _)| name.clone()));
        }
    }
    mark_needed(&mut read.conda, needs.iter().map(String::as_str));
    let urls = pip.iter().filter_map(|node| node.get("url")?.as_text());
    let main_host = common_address(urls.map(host_of)).map(str::to_owned);
    for node in &pip {
        let text = |key: &str| node.get(key).and_then(YamlNode::as_text);
        let sha256 = node
            .get("hash")
            .and_then(|hash| hash.get("sha256")?.as_text());
        let (Some(name), Some(url)) = (text("name"), text("url")) else {
            continue;
        };
        let main_host = main_host.as_deref();
        read.graph
            .packages
            .push(locate(name, text("version"), url, sha256, main_host));
    }
    Ok(read)
}
