//! `sconce push`, and the pushing of `sconce build`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use sconce_image::local_image::{self, LocalImage};
use sconce_image::{embedded_documents, publish};
use sconce_oci::Digest;
use sconce_registry::{BlobCount, PushSummary, Reference};
use sconce_schema::{Bytes, Progress, exit};
use sconce_store::Store;

use crate::output;
use crate::signing_keys::signing_key;
use crate::style::OutputStyle;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::registries::{build_registry_client, full_name, parse_destination};

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// A local image: NAME:TAG or its digest.
    image: String,
    /// Where to: HOST/PATH[:TAG] [default: what the image is called; its own tag].
    to: Option<String>,
    /// Allow the tag `latest`.
    #[arg(long)]
    latest: bool,
    /// Sign it with this private key.
    #[arg(long, value_name = "KEY")]
    sign: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn push(args: &PushArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let store = Store::open(&places.store)?;
    // Of a digest, enough of it to be told by.
    let own = match args.image.parse::<Digest>() {
        Ok(digest) => digest.to_hex()[..12].to_owned(),
        Err(_) => args.image.rsplit(':').next().unwrap_or_default().to_owned(),
    };
    let to = args.to.as_ref().unwrap_or(&args.image);
    let to = parse_destination(to, &own, args.latest, &places)?;
    let image = LocalImage::find(&store, &args.image)?;
    let progress = context.start_progress();
    let job = PushContext {
        to: &to,
        key: args.sign.as_deref(),
        places: &places,
        store: &store,
        context,
    };
    let pushed = job.push_image(&image, &*progress)?;
    progress.finish();
    if args.json {
        output::write_data(&as_json(&to, &pushed).to_string())?;
    } else if !context.quiet {
        output::print_message(&render_summary(&to, &pushed, &OutputStyle::for_stderr()));
    }
    Ok(exit::OK)
}

/// Where an image goes, and what is done with it there.
pub(super) struct PushContext<'a> {
    pub(super) to: &'a Reference,
    pub(super) key: Option<&'a Path>,
    pub(super) places: &'a SconceDirs,
    pub(super) store: &'a Store,
    pub(super) context: &'a AppContext,
}

impl PushContext<'_> {
    pub(super) fn push_image(
        &self,
        image: &LocalImage,
        progress: &dyn Progress,
    ) -> Result<PushSummary> {
        // Before hours of sending, whether it can be signed at all.
        let key = self.key.map(|key| signing_key(key, &self.context.env));
        let key = key.transpose()?;
        let registry = build_registry_client(self.places, self.context)?;
        let facts = match image.load_lock(self.store)? {
            Some(lock) => sconce_image::load_environment(&lock, self.store).map_or_else(
                |_| BTreeMap::new(),
                |found| embedded_documents::read_wheel_metadata(&lock, &found),
            ),
            None => BTreeMap::new(),
        };
        let from = self.neighbours()?;
        let pushed = publish::push(
            &registry, image, self.to, &from, &facts, self.store, progress,
        )?;
        if let Some(key) = key {
            publish::sign(&registry, self.to, &key, progress)?;
        }
        // From now on its layers can be mounted from there.
        image.assign_name(self.store, &full_name(self.to))?;
        Ok(pushed)
    }

    /// Other repositories of the same registry that local images were pushed to or came from.
    fn neighbours(&self) -> Result<Vec<String>> {
        let names = local_image::list_names(self.store)?;
        let found = names.iter().filter_map(|(name, _)| {
            let other = Reference::parse(name, None).ok()?;
            let near = other.host() == self.to.host() && other.path() != self.to.path();
            near.then(|| other.path().to_owned())
        });
        Ok(found.collect::<BTreeSet<_>>().into_iter().collect())
    }
}

pub(super) fn as_json(to: &Reference, pushed: &PushSummary) -> serde_json::Value {
    let tally = |tally: &BlobCount| serde_json::json!({"blobs": tally.blobs, "bytes": tally.bytes});
    serde_json::json!({
        "reference": to.to_string(),
        "digest": pushed.digest,
        "uploaded": tally(&pushed.uploaded),
        "mounted": tally(&pushed.mounted),
        "skipped": tally(&pushed.skipped),
    })
}

pub(super) fn render_summary(to: &Reference, pushed: &PushSummary, style: &OutputStyle) -> String {
    let part = |what: &str, tally: &BlobCount| match tally.blobs {
        0 => None,
        1 => Some(format!(
            "1 blob ({}) {}",
            Bytes(tally.bytes),
            what.replace("were", "was")
        )),
        n => Some(format!("{n} blobs ({}) {what}", Bytes(tally.bytes))),
    };
    let parts: Vec<String> = [
        part("sent", &pushed.uploaded),
        part("mounted", &pushed.mounted),
        part("were there", &pushed.skipped),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!(
        "{to}\n{} {}\n{}",
        style.dim("digest"),
        pushed.digest,
        parts.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_oci::Digest;

    #[test]
    fn json_is_as_before() {
        let to = Reference::parse("localhost:5000/team/a:1", None).unwrap();
        let tally = |blobs| BlobCount {
            blobs,
            bytes: 10 * blobs,
        };
        let pushed = PushSummary {
            digest: Digest::hash_bytes(b"manifest"),
            uploaded: tally(1),
            mounted: tally(2),
            skipped: tally(3),
        };
        crate::golden::goldens().assert_values("push.json", &[&as_json(&to, &pushed)]);
        let said = render_summary(&to, &pushed, &OutputStyle { color: false });
        assert!(
            said.ends_with("1 blob (10 B) sent, 2 blobs (20 B) mounted, 3 blobs (30 B) were there"),
            "{said}"
        );
    }
}
