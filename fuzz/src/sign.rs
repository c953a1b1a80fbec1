//! Keys, signatures and package lists, as registries and other programs hand them out.

use std::sync::LazyLock;

use sconce_image::package_diff::diff_packages;
use sconce_image::sbom;
use sconce_oci::{Digest, to_json};
use sconce_registry::sign::{
    Claim, KeyFile, MAX_MEMORY_BYTES, PublicKey, Signature, SigningKey, attach_signature,
    parse_signatures, sign_claim, verify_any_signature,
};
use sconce_schema::{Hint as _, Lock};

use crate::bytes::{fixture, fixtures, joined, parts, text};

const FOLDER: &str = "crates/sconce-registry/src/sign/testdata";
const LOCK: &str = "crates/sconce-image/src/sbom/testdata/lock.toml";
const NAME: &str = "registry.example.org/digits:1";
const IMAGE: &[u8] = b"image";

static PUBLIC: LazyLock<PublicKey> = LazyLock::new(|| {
    PublicKey::parse(&fixture(&format!("{FOLDER}/cosign.pub"))).expect("cosign's own")
});

/// A key file, or a public key.
pub(crate) fn key(data: &[u8]) {
    if let Ok(public) = PublicKey::parse(data) {
        assert_eq!(
            PublicKey::parse(public.to_pem().as_bytes()).ok(),
            Some(public)
        );
        assert!(!public.verify(data, data));
    }
    match KeyFile::parse(data) {
        Ok(file) => {
            assert!(file.memory_bytes() <= MAX_MEMORY_BYTES);
            // What cosign writes takes too long to be tried thousands of times.
            if file.memory_bytes() <= 1 << 18 {
                assert!(
                    SigningKey::from_key_file(&file, b"").is_err(),
                    "nobody knows a key by chance"
                );
            }
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    let mut seeds = fixtures(&[
        &format!("{FOLDER}/cosign.key"),
        &format!("{FOLDER}/cosign.pub"),
    ]);
    // {"kdf":{"name":"scrypt","params":{"N":2,"r":1,"p":1},"salt":"AAAA"},"cipher":{"name":
    // "nacl/secretbox","nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},"ciphertext":"AAAA"}
    seeds.push(
        b"-----BEGIN ENCRYPTED COSIGN PRIVATE KEY-----\n\
          eyJrZGYiOnsibmFtZSI6InNjcnlwdCIsInBhcmFtcyI6eyJOIjoyLCJyIjoxLCJwIjoxfSwic2FsdCI6IkFBQUEifSwi\n\
          Y2lwaGVyIjp7Im5hbWUiOiJuYWNsL3NlY3JldGJveCIsIm5vbmNlIjoiQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB\n\
          QUFBQUEifSwiY2lwaGVydGV4dCI6IkFBQUEifQ==\n\
          -----END ENCRYPTED COSIGN PRIVATE KEY-----\n"
            .to_vec(),
    );
    seeds
}

/// A signature manifest and a payload.
pub(crate) fn signatures(data: &[u8]) {
    let [manifest, payload] = parts::<2>(data);
    let image = Digest::hash_bytes(IMAGE);
    if let Ok(claim) = Claim::parse(payload) {
        assert_eq!(Claim::parse(&claim.to_payload()).ok(), Some(claim));
    }
    let added = Signature {
        payload: payload.to_vec(),
        der: Vec::new(),
    };
    let Ok(found) = parse_signatures(manifest) else {
        assert!(attach_signature(&image, Some(manifest), &added).is_err());
        return;
    };
    if let Ok(made) = attach_signature(&image, Some(manifest), &added) {
        let after = parse_signatures(&made.manifest).expect("our own manifest reads");
        let fits = payload.len() <= sconce_registry::sign::MAX_PAYLOAD_BYTES;
        assert_eq!(after.len(), found.len() + usize::from(fits));
    }
    let each = found.iter().map(|one| (one, payload));
    match verify_any_signature(each, &[*PUBLIC], &image, NAME) {
        Ok(claim) => {
            assert!(claim.digest == image && claim.is_about(NAME));
            let signed = Claim::new(NAME, image).expect("a name").to_payload();
            assert_eq!(payload, signed, "nothing else was ever signed");
        }
        Err(error) => drop((error.to_string(), error.hint())),
    }
}

pub(crate) fn signature_seeds() -> Vec<Vec<u8>> {
    let file = KeyFile::parse(&fixture(&format!("{FOLDER}/cosign.key"))).expect("cosign's own");
    let key = SigningKey::from_key_file(&file, b"pass").expect("its password");
    let image = Digest::hash_bytes(IMAGE);
    let claim = Claim::new(NAME, image).expect("a name");
    let signed = sign_claim(&key, &claim).expect("it signs");
    let other = Claim {
        creator: Some("me".to_owned()),
        signed_s: Some(1),
        ..Claim::new("h/other", image).expect("a name")
    };
    let one = attach_signature(&image, None, &signed).expect("it attaches");
    let two = attach_signature(&image, Some(&one.manifest), &signed).expect("it attaches");
    vec![
        joined(&[&one.manifest, &one.payload]),
        joined(&[&two.manifest, &two.payload]),
        joined(&[&one.manifest, &other.to_payload()]),
        joined(&[&to_json(&sconce_oci::ImageIndex::new(Vec::new())), b"{}"]),
    ]
}

/// Two package lists.
pub(crate) fn packages(data: &[u8]) {
    let [before, after] = parts::<2>(data).map(sbom::parse);
    if let Err(error) = &before {
        drop((error.to_string(), error.hint()));
    }
    let (Ok(before), Ok(after)) = (before, after) else {
        return;
    };
    assert!(diff_packages(&before, &before).is_empty());
    let (there, back) = (
        diff_packages(&before, &after),
        diff_packages(&after, &before),
    );
    assert_eq!(
        before.len() + there.added.len(),
        after.len() + there.removed.len()
    );
    assert_eq!(
        there.changed.len() + there.added.len(),
        back.changed.len() + back.removed.len()
    );
    let _ = (there.growth_bytes(), back.growth_bytes());
}

pub(crate) fn package_seeds() -> Vec<Vec<u8>> {
    let lock = fixture(LOCK);
    let lock = Lock::parse(text(&lock).expect("text")).expect("our own");
    let subject = sbom::SbomSubject {
        name: "digits",
        manifest: None,
        lock: &lock,
        facts: &std::collections::BTreeMap::new(),
        created_s: 0,
    };
    let (spdx, cyclonedx) = (sbom::spdx(&subject), sbom::cyclonedx(&subject));
    vec![joined(&[&spdx, &cyclonedx]), joined(&[&cyclonedx, &spdx])]
}
