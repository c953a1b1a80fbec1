//! Drives the signing library, for `scripts/test.d/cosign`:
//!
//! - `cosign key PASSWORD FOLDER` writes `ours.key` and `ours.pub`.
//! - `cosign sign KEY PASSWORD REFERENCE DIGEST FOLDER` writes `tag`, `manifest`, `config` and
//!   `payload`; a `manifest` that lies there already is the one to add to.
//! - `cosign layers MANIFEST FILE` writes the digests of the payloads, a line each.
//! - `cosign verify PUBLIC REFERENCE DIGEST MANIFEST FOLDER`, with each payload in a file of the
//!   folder that is named after its digest.

use std::collections::HashMap;
use std::error::Error;
use std::{env, fs, path::Path};

use sconce_oci::Digest;
use sconce_registry::sign::{
    Claim, KeyFile, PublicKey, SigningKey, attach_signature, parse_signatures, sign_claim,
    verify_any_signature,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["key", password, folder] => {
            let made = SigningKey::generate_pem_pair(password.as_bytes())?;
            fs::write(Path::new(folder).join("ours.key"), made.private)?;
            fs::write(Path::new(folder).join("ours.pub"), made.public)?;
        }
        ["sign", key, password, reference, digest, folder] => {
            let folder = Path::new(folder);
            let key =
                SigningKey::from_key_file(&KeyFile::parse(&fs::read(key)?)?, password.as_bytes())?;
            let digest: Digest = digest.parse()?;
            let signature = sign_claim(&key, &Claim::new(reference, digest)?)?;
            let present = fs::read(folder.join("manifest")).ok();
            let made = attach_signature(&digest, present.as_deref(), &signature)?;
            fs::write(folder.join("tag"), made.tag)?;
            fs::write(folder.join("manifest"), made.manifest)?;
            fs::write(folder.join("config"), made.config)?;
            fs::write(folder.join("payload"), made.payload)?;
        }
        ["layers", manifest, file] => {
            let found = parse_signatures(&fs::read(manifest)?)?;
            let lines = found.iter().map(|one| format!("{}\n", one.layer.digest));
            fs::write(file, lines.collect::<String>())?;
        }
        ["verify", public, reference, digest, manifest, folder] => {
            let key = PublicKey::parse(&fs::read(public)?)?;
            let found = parse_signatures(&fs::read(manifest)?)?;
            let mut payloads = HashMap::new();
            for one in &found {
                let file = Path::new(folder).join(one.layer.digest.to_hex());
                payloads.insert(one.layer.digest, fs::read(file)?);
            }
            let found = found
                .iter()
                .map(|one| (one, payloads[&one.layer.digest].as_slice()));
            verify_any_signature(found, &[key], &digest.parse()?, reference)?;
        }
        _ => return Err("see the head of this file".into()),
    }
    Ok(())
}
