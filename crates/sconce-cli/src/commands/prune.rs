//! `sconce prune`.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use sconce_image::local_image::{self, LocalImage};
use sconce_schema::{Bytes, exit};
use sconce_store::{PruneSummary, Store};

use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Days for which what is removed was not used. At least 1: what other commands are at work with
    /// was used today.
    #[arg(long, value_name = "DAYS", default_value_t = 30,
          value_parser = crate::number::whole_number_parser::<u32>(1, u64::MAX))]
    unused: u32,
    /// Say what would be removed, and remove nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Removes what nobody used for some time. Images that have a name stay.
pub(crate) fn prune(args: &PruneArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let store = Store::open(&places.store)?;
    let names = local_image::list_names(&store)?;
    let mut named: HashSet<String> = HashSet::new();
    let mut named_bytes = 0u64;
    let digests: HashSet<_> = names.iter().map(|(_, digest)| *digest).collect();
    for digest in &digests {
        let Ok(image) = LocalImage::load(&store, *digest) else {
            continue;
        };
        for (digest, size) in image.required_items() {
            if named.insert(digest.to_hex()) {
                named_bytes = named_bytes.saturating_add(size);
            }
        }
    }
    let keep = |kind: &str, key: &str| matches!(kind, "blob" | "image") && named.contains(key);
    let unused = Duration::from_secs(u64::from(args.unused) * 24 * 3600);
    let mut pruned = store.prune(unused, &keep, args.dry_run)?;
    let kernels = places.kernels.prune(unused, args.dry_run);
    if kernels.0 > 0 {
        pruned.kinds.insert("kernel cache".to_owned(), kernels);
    }
    if args.json {
        let kinds = pruned.kinds.iter().map(|(kind, (items, bytes))| {
            let figures = serde_json::json!({ "items": items, "bytes": bytes.0 });
            (kind.clone(), figures)
        });
        let said = serde_json::json!({
            "removed": !args.dry_run,
            "bytes": pruned.total_bytes().0,
            "kinds": kinds.collect::<serde_json::Map<_, _>>(),
            "held-by-runs": pruned.held,
            "named-images": digests.len(),
            "named-images-bytes": named_bytes,
        });
        output::write_data(&serde_json::to_string_pretty(&said).unwrap_or_default())?;
        return Ok(exit::OK);
    }
    if context.quiet {
        return Ok(exit::OK);
    }
    output::write_data(&said(&pruned, args))?;
    if !digests.is_empty() {
        output::print_message(&format!(
            "{} named {}, {}, stay: `sconce images --remove NAME` lets go of one",
            digests.len(),
            if digests.len() == 1 {
                "image"
            } else {
                "images"
            },
            Bytes(named_bytes)
        ));
    }
    Ok(exit::OK)
}

/// `removed 12.3 GiB that was not used for 30 days: 40 wheels, 3 layers`.
fn said(pruned: &PruneSummary, args: &PruneArgs) -> String {
    let days = match args.unused {
        1 => "a day".to_owned(),
        days => format!("{days} days"),
    };
    let held = match pruned.held {
        0 => String::new(),
        1 => "\n1 more is in use by a run".to_owned(),
        held => format!("\n{held} more are in use by runs"),
    };
    if pruned.kinds.is_empty() {
        return format!("nothing was unused for {days}{held}");
    }
    let kinds = pruned.kinds.iter().map(|(kind, (count, bytes))| {
        let several = if *count == 1 { "" } else { "s" };
        format!("{count} {kind}{several} ({bytes})")
    });
    let kinds: Vec<String> = kinds.collect();
    let verb = if args.dry_run {
        "would remove"
    } else {
        "removed"
    };
    format!(
        "{verb} {} that nobody used for {days}: {}{held}",
        pruned.total_bytes(),
        kinds.join(", ")
    )
}
