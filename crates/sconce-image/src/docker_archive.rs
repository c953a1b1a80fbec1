//! An image as the archive that `docker load` takes, of any age (`docker image save`, "Docker Image
//! Specification v1.2", combined image JSON and file system change sets).
//!
//! The layers in it are plain archives: Docker Engine before 23 knows no zstd, and plain bytes are
//! written faster than gzip. The image's id is the digest of its configuration, as everywhere.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::thread;

use sconce_base::output::OutputDestination;
use sconce_schema::Progress;
use sconce_store::Store;
use serde::Serialize;

use crate::layer::{HashedBlob, decompress, put_file, write_end_of_archive, write_padding};
use crate::layout::{LayoutError, check_digest, io_error, unreadable_blob};
use crate::local_image::LocalImage;
use sconce_oci as oci;
use sconce_oci::Digest;

/// Bytes of a layer that are handed on at a time, and how many such pieces wait at most.
const CHUNK_BYTES: usize = 1 << 20;
const MAX_QUEUED_CHUNKS: usize = 16;

/// An entry of `manifest.json`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

/// `manifest.json`: the names in the archive of the configuration and the layers, lowest first.
pub(crate) fn render_manifest(config: &str, names: &[String], layers: Vec<String>) -> Vec<u8> {
    oci::to_json(&[Entry {
        config: config.to_owned(),
        repo_tags: names.to_vec(),
        layers,
    }])
}

/// Writes `image` to where it was asked for; a file there has all of it or is as it was.
///
/// # Errors
/// [`LayoutError`].
pub fn write_archive(
    image: &LocalImage,
    names: &[String],
    store: &Store,
    output: OutputDestination,
    progress: &dyn Progress,
) -> Result<(), LayoutError> {
    let path = output.path().to_owned();
    let mut out = output.open()?;
    send_archive(image, names, store, (&mut out, &path), progress)?;
    Ok(out.finish()?)
}

/// Writes the archive of `image` to something else than a file, as it is made. It is called by the path
/// beside it in errors.
///
/// # Errors
/// [`LayoutError`].
pub fn send_archive(
    image: &LocalImage,
    names: &[String],
    store: &Store,
    (out, path): (&mut impl Write, &Path),
    progress: &dyn Progress,
) -> Result<(), LayoutError> {
    let diff_ids = image.parse_config()?.rootfs.diff_ids;
    let blobs = image.layer_blobs(store)?;
    if diff_ids.len() != blobs.len() {
        return Err(LayoutError::Layers {
            digest: image.digest,
        });
    }
    let config = format!("{}.json", Digest::hash_bytes(&image.config_bytes).to_hex());
    let layer_name = |diff_id: &Digest| format!("{}.tar", diff_id.to_hex());
    let manifest = render_manifest(&config, names, diff_ids.iter().map(layer_name).collect());
    let mut sizes = Vec::new();
    for (at, (layer, blob)) in blobs.iter().enumerate() {
        let known = image
            .contents
            .get(at)
            .and_then(|layer| layer.unpacked_bytes);
        // An image from elsewhere does not say how large its archives are; a tar header must.
        let count = || {
            let mut archive = decompress(fs::File::open(blob)?, &layer.media_type)?;
            io::copy(&mut archive, &mut io::sink())
        };
        let size = known.map_or_else(count, Ok);
        sizes.push(size.map_err(|source| unreadable_blob(layer, blob, store, source))?);
    }
    progress.stage("export", Some(sizes.iter().sum()));
    let write = |source| LayoutError::File {
        action: "write",
        path: path.to_owned(),
        source,
    };
    for (name, bytes) in [
        ("manifest.json", &manifest),
        (config.as_str(), &image.config_bytes),
    ] {
        put_file(name, bytes.len() as u64, out).map_err(write)?;
        out.write_all(bytes).map_err(write)?;
        write_padding(bytes.len() as u64, out).map_err(write)?;
    }
    let mut written = Vec::new();
    for ((diff_id, (layer, blob)), size) in diff_ids.iter().zip(&blobs).zip(&sizes) {
        let name = layer_name(diff_id);
        // The same layer may be there twice; the archive holds it once.
        if written.contains(diff_id) {
            continue;
        }
        written.push(*diff_id);
        put_file(&name, *size, out).map_err(write)?;
        let told = |bytes| progress.advance(&name, bytes);
        let unreadable = |source| unreadable_blob(layer, blob, store, source);
        let mut bytes = HashedBlob::open(blob).map_err(io_error("read", blob))?;
        let archive = decompress(&mut bytes, &layer.media_type).map_err(unreadable)?;
        let copied = copy(archive, out, told).map_err(|error| match error {
            Side::Read(source) => unreadable(source),
            Side::Write(source) => write(source),
        })?;
        let found = bytes.finish_digest().map_err(io_error("read", blob))?;
        check_digest(layer, found, store)?;
        if copied != *size {
            return Err(io_error("read", blob)(io::ErrorKind::UnexpectedEof.into()));
        }
        write_padding(*size, out).map_err(write)?;
        progress.done(&name);
    }
    write_end_of_archive(out).map_err(write)
}

/// The side on which a copy failed.
enum Side {
    Read(io::Error),
    Write(io::Error),
}

/// Copies on two threads: one decompresses, one writes.
fn copy(
    mut from: Box<dyn Read + Send + '_>,
    to: &mut impl Write,
    told: impl Fn(u64),
) -> Result<u64, Side> {
    let (send, receive) = sync_channel::<Vec<u8>>(MAX_QUEUED_CHUNKS);
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            loop {
                let mut piece = Vec::with_capacity(CHUNK_BYTES);
                from.by_ref()
                    .take(CHUNK_BYTES as u64)
                    .read_to_end(&mut piece)?;
                // A writer that failed hears nothing any more.
                if piece.is_empty() || send.send(piece).is_err() {
                    return Ok(());
                }
            }
        });
        let mut copied = 0;
        for piece in receive {
            to.write_all(&piece).map_err(Side::Write)?;
            copied += piece.len() as u64;
            told(piece.len() as u64);
        }
        let read = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.map_err(Side::Read).map(|()| copied)
    })
}
