//! Signatures and keys, byte for byte, in `tests/golden`.
//!
//! Held elsewhere: what registries are asked, in `tests/it/model.rs`. Logins are only read, and tried with real texts
//! where they are.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sconce_oci::Digest;
use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use crate::sign::{self, Claim, KeyFile, Signature, SigningKey};

const CLAIM: HeldBy = Golden("claim.json");
const KEY: HeldBy = Golden("key.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("sign/claim::Payload", CLAIM),
    ("sign/claim::Critical", CLAIM),
    ("sign/claim::Identity", CLAIM),
    ("sign/claim::Image", CLAIM),
    ("sign/keyfile::KeyFileJson", KEY),
    ("sign/keyfile::Kdf", KEY),
    ("sign/keyfile::Scrypt", KEY),
    ("sign/keyfile::Cipher", KEY),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

#[test]
fn signature_of_an_image_is_as_before() {
    let name = "registry.example.org/team/digits:1";
    let claim = Claim {
        creator: Some("sconce".to_owned()),
        signed_s: Some(1_763_894_537),
        ..Claim::new(name, Digest::hash_bytes(b"manifest")).unwrap()
    };
    goldens().assert_same("claim.json", claim.to_payload());
    let payload = goldens().read_text("claim.json").into_bytes();
    assert_eq!(Claim::parse(&payload).unwrap(), claim);
    let der = b"der".to_vec();
    let made = sign::attach_signature(&claim.digest, None, &Signature { payload, der }).unwrap();
    let (manifest, config) = (made.manifest, made.config);
    let texts = [made.tag.into_bytes(), manifest, config].map(|b| String::from_utf8(b).unwrap());
    goldens().assert_same("signature.txt", texts.join("\n") + "\n");
}

/// What is in the PEM block; of what is random in it the length.
#[test]
fn key_file_is_as_before() {
    let texts = SigningKey::generate_pem_pair(b"password").unwrap();
    let (label, block) = texts.private.split_once('\n').unwrap();
    let lines = block.lines().take_while(|line| !line.starts_with('-'));
    let mut text = String::from_utf8(STANDARD.decode(lines.collect::<String>()).unwrap()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for pointer in ["/kdf/salt", "/cipher/nonce", "/ciphertext"] {
        let random = json
            .pointer(pointer)
            .and_then(|value| value.as_str())
            .unwrap();
        text = text.replace(random, &format!("{} letters", random.len()));
    }
    goldens().assert_same("key.json", format!("{label}\n{text}\n"));
    assert!(KeyFile::parse(texts.private.as_bytes()).is_ok());
}
