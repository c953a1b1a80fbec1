//! `sconce build --removed`: what a slim image is made without.

use std::collections::BTreeMap;

use sconce_image::plan::Plan;
use sconce_image::slim::{Rules, Taken};
use sconce_schema::spec::Removal;
use sconce_schema::{Bytes, ImageManifest, Lock, exit};
use sconce_store::Store;

use crate::failure::Result;
use crate::output;

/// Prints every file, and what each removal comes to.
pub(super) fn print(
    plan: &Plan,
    lock: &Lock,
    environment: &ImageManifest,
    store: &Store,
    json: bool,
) -> Result<u8> {
    let taken = match &plan.slim {
        Some(rules) => sconce_image::build::removed(lock, environment, rules, store)?,
        None => Vec::new(),
    };
    if json {
        let row = |taken: &Taken| {
            serde_json::json!({
                "removal": taken.removal.name(),
                "path": taken.path,
                "bytes": taken.bytes,
            })
        };
        output::data(&serde_json::Value::from_iter(taken.iter().map(row)).to_string())?;
        return Ok(exit::OK);
    }
    let mut text = String::new();
    for one in &taken {
        let (name, size) = (one.removal.name(), Bytes(one.bytes).to_string());
        text += &format!("{name:8}  {size:>9}  /{}\n", one.path.display());
    }
    text += &sums(&taken, plan.slim.as_ref());
    output::data(&text)?;
    Ok(exit::OK)
}

/// A line for each removal.
fn sums(taken: &[Taken], rules: Option<&Rules>) -> String {
    if rules.is_none() {
        return "nothing: the variant is not slim\n".to_owned();
    }
    let mut sums: BTreeMap<Removal, (usize, u64)> = BTreeMap::new();
    for one in taken {
        let (files, bytes) = sums.entry(one.removal).or_default();
        *files += 1;
        *bytes += one.bytes;
    }
    let line = |(removal, (files, bytes)): (&Removal, &(usize, u64))| {
        let (name, size) = (removal.name(), Bytes(*bytes).to_string());
        format!("{name:8}  {size:>9}  {files} files\n")
    };
    let all: u64 = taken.iter().map(|one| one.bytes).sum();
    let all = format!(
        "{:8}  {:>9}  {} files\n",
        "all",
        Bytes(all).to_string(),
        taken.len()
    );
    sums.iter().map(line).chain([all]).collect()
}
