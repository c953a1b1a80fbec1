//! `sconce build --removed`: what a slim image is made without.

use std::collections::BTreeMap;

use sconce_image::layer_plan::LayerPlan;
use sconce_image::slim::{RemovedFile, SlimRules};
use sconce_schema::{Bytes, EnvironmentLayers, Lock, exit};
use sconce_store::Store;

use crate::output;
use sconce_app::failure::Result;

/// Prints every file, and what each removal comes to. `lock` is what the image is made of, `whole`
/// that of the environment.
pub(super) fn print_removed_files(
    plan: &LayerPlan,
    (whole, lock): (&Lock, &Lock),
    environment: &EnvironmentLayers,
    store: &Store,
    json: bool,
) -> Result<u8> {
    let taken = match &plan.slim {
        Some(rules) => {
            let compiler = sconce_image::build::removed_compiler(whole, lock, store)?;
            let mut taken =
                sconce_image::build::list_removed_files(lock, environment, rules, store)?;
            taken.extend(compiler);
            taken
        }
        None => Vec::new(),
    };
    if json {
        let row = |taken: &RemovedFile| {
            serde_json::json!({
                "removal": taken.removal.name(),
                "path": taken.path,
                "bytes": taken.bytes,
                "zeros": taken.zeros,
            })
        };
        output::write_data(&serde_json::Value::from_iter(taken.iter().map(row)).to_string())?;
        return Ok(exit::OK);
    }
    let mut text = String::new();
    for one in &taken {
        text += &format!(
            "{:11}  {:>9}  {:>9}  /{}\n",
            one.removal.name(),
            Bytes(one.bytes).to_string(),
            Bytes(one.zeros).to_string(),
            output::format_path(&one.path)
        );
    }
    text += &sums(&taken, plan.slim.as_ref());
    output::write_data(&text)?;
    Ok(exit::OK)
}

/// What stands for all removals.
const ALL: &str = "all";

/// A line for each removal.
fn sums(taken: &[RemovedFile], rules: Option<&SlimRules>) -> String {
    if rules.is_none() {
        return "nothing: the variant is not slim\n".to_owned();
    }
    let mut sums: BTreeMap<&str, (usize, u64, u64)> = BTreeMap::new();
    for one in taken {
        for name in [one.removal.name(), ALL] {
            let (files, bytes, zeros) = sums.entry(name).or_default();
            *files += 1;
            *bytes += one.bytes;
            *zeros += one.zeros;
        }
    }
    let all = sums.remove(ALL).unwrap_or_default();
    let line = |(name, (files, bytes, zeros)): (&str, (usize, u64, u64))| {
        let [bytes, zeros] = [bytes, zeros].map(|size| Bytes(size).to_string());
        format!("{name:11}  {bytes:>9}  {zeros:>9}  {files} files\n")
    };
    let head = format!("{:11}  {:>9}  {:>9}\n", "removal", "smaller", "zeroed");
    let rows = sums.into_iter().chain([(ALL, all)]).map(line);
    [head].into_iter().chain(rows).collect()
}
