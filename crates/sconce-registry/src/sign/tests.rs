//! From a key to a verified image, and every way in which it must not be.

use sconce_schema::{Hint as _, exit};

use super::*;
use sconce_oci::{Descriptor, Digest, ImageConfiguration, ImageManifest, media};

const NAME: &str = "registry.example.org/team/digits:1";

struct Signed {
    key: SigningKey,
    image: Digest,
    made: SignatureAttachment,
}

fn signed() -> Signed {
    let (key, image) = (
        SigningKey::generate_temporary(),
        Digest::hash_bytes(b"image"),
    );
    let signature = sign_claim(&key, &Claim::new(NAME, image).unwrap()).unwrap();
    let made = attach_signature(&image, None, &signature).unwrap();
    Signed { key, image, made }
}

impl Signed {
    fn check(
        &self,
        payload: &[u8],
        image: &Digest,
        name: &str,
    ) -> Result<Claim, VerificationFailure> {
        let found = parse_signatures(&self.made.manifest).unwrap();
        let with_payload = found.iter().map(|one| (one, payload));
        verify_any_signature(with_payload, &[self.key.public_key()], image, name)
    }

    fn refused(&self, payload: &[u8], image: &Digest, name: &str) -> SignatureRejection {
        let mut unverified = self.check(payload, image, name).unwrap_err();
        assert_eq!(unverified.exit_code(), exit::VERIFY);
        assert_eq!(unverified.refusals.len(), 1);
        unverified.refusals.remove(0)
    }
}

#[test]
fn the_documents_fit_together() {
    let Signed { image, made, .. } = signed();
    let manifest = ImageManifest::from_json(&made.manifest).unwrap();
    assert_eq!(
        manifest.config,
        Descriptor::for_bytes(media::CONFIG, &made.config)
    );
    let config = ImageConfiguration::from_json(&made.config).unwrap();
    assert_eq!(config.rootfs.diff_ids, [Digest::hash_bytes(&made.payload)]);
    assert_eq!(manifest.layers[0].digest, Digest::hash_bytes(&made.payload));
    assert_eq!(made.tag, format!("sha256-{}.sig", image.to_hex()));
}

#[test]
fn the_right_image_is_verified_and_no_other() {
    let signed = signed();
    let Signed { image, made, .. } = &signed;
    let claim = signed.check(&made.payload, image, NAME).unwrap();
    assert_eq!((claim.reference.as_str(), claim.digest), (NAME, *image));
    let other = Digest::hash_bytes(b"another image");
    let refusal = signed.refused(&made.payload, &other, NAME);
    assert!(matches!(refusal, SignatureRejection::Digest { signed } if signed == *image));
    let refusal = signed.refused(&made.payload, image, "registry.example.org/team/other:1");
    assert!(matches!(refusal, SignatureRejection::Reference { .. }));
    let changed = String::from_utf8(made.payload.clone()).unwrap();
    let changed = changed.replace("digits", "otters");
    let refusal = signed.refused(changed.as_bytes(), image, NAME);
    assert!(matches!(refusal, SignatureRejection::Payload));
}

#[test]
fn a_changed_payload_with_its_own_digest_is_by_no_key() {
    let mut signed = signed();
    let text = String::from_utf8(signed.made.payload.clone()).unwrap();
    let changed = text.replace("digits", "otters").into_bytes();
    let mut manifest = ImageManifest::from_json(&signed.made.manifest).unwrap();
    let annotations = manifest.layers[0].annotations.take();
    manifest.layers[0] = Descriptor::for_bytes(PAYLOAD, &changed);
    manifest.layers[0].annotations = annotations;
    signed.made.manifest = sconce_oci::to_json(&manifest);
    let refusal = signed.refused(&changed, &signed.image, NAME);
    assert!(matches!(refusal, SignatureRejection::Key));
}

#[test]
fn one_good_signature_among_several_is_enough() {
    let signed = signed();
    let mine = SigningKey::generate_temporary();
    let signature = sign_claim(&mine, &Claim::new(NAME, signed.image).unwrap()).unwrap();
    let both = attach_signature(&signed.image, Some(&signed.made.manifest), &signature).unwrap();
    let found = parse_signatures(&both.manifest).unwrap();
    assert_eq!(found.len(), 2, "the first signature stays");
    // Both say the same, so it is one blob.
    assert_eq!(found[0].layer.digest, found[1].layer.digest);
    assert_eq!(
        ImageConfiguration::from_json(&both.config)
            .unwrap()
            .rootfs
            .diff_ids
            .len(),
        2
    );
    let asked = |keys: &[PublicKey]| {
        let with_payload = found.iter().map(|one| (one, both.payload.as_slice()));
        verify_any_signature(with_payload, keys, &signed.image, NAME)
    };
    asked(&[mine.public_key()]).unwrap();
    asked(&[signed.key.public_key()]).unwrap();
    asked(&[
        SigningKey::generate_temporary().public_key(),
        mine.public_key(),
    ])
    .unwrap();
    let unverified = asked(&[SigningKey::generate_temporary().public_key()]).unwrap_err();
    assert_eq!(unverified.refusals.len(), 2);
    assert!(unverified.hint().unwrap().contains("by another key"));
    assert_eq!(asked(&[]).unwrap_err().refusals.len(), 2);
}

#[test]
fn no_signature_is_no_yes() {
    let unverified = verify_any_signature(
        [],
        &[SigningKey::generate_temporary().public_key()],
        &Digest::hash_bytes(b""),
        NAME,
    )
    .unwrap_err();
    assert!(unverified.refusals.is_empty());
    assert!(unverified.hint().unwrap().contains("nobody has signed"));
}

#[test]
fn hostile_manifests() {
    for wrong in [&b""[..], b"{}", b"[", br#"{"schemaVersion":2}"#] {
        assert!(parse_signatures(wrong).is_err());
        assert!(
            attach_signature(&Digest::hash_bytes(b""), Some(wrong), &signature_of(b"")).is_err()
        );
    }
    let Signed { key, image, made } = signed();
    let manifest = ImageManifest::from_json(&made.manifest).unwrap();
    let layer = manifest.layers[0].clone();
    let with = |layers: Vec<Descriptor>| {
        let manifest = ImageManifest::new(manifest.config.clone(), layers);
        parse_signatures(&sconce_oci::to_json(&manifest))
    };
    let changed = |change: fn(&mut Descriptor)| {
        let mut layer = layer.clone();
        change(&mut layer);
        layer
    };
    let passed_over = vec![
        changed(|layer| layer.annotations = None),
        changed(|layer| layer.annotations.as_mut().unwrap().clear()),
        changed(|layer| layer.media_type = media::LAYER.to_owned()),
        changed(|layer| layer.size = MAX_PAYLOAD_BYTES as u64 + 1),
        layer.clone(),
    ];
    assert_eq!(with(passed_over).unwrap().len(), 1);
    let many = vec![layer.clone(); MAX_SIGNATURES + 1];
    assert!(matches!(with(many), Err(AttachmentError::TooMany { .. })));
    for wrong in ["", "%", "AAAA", &"A".repeat(1 << 20)] {
        let mut layer = layer.clone();
        let annotations = layer.annotations.as_mut().unwrap();
        *annotations.values_mut().next().unwrap() = wrong.to_owned();
        let found = with(vec![layer]).unwrap();
        let refusal = found[0].verify_payload(&made.payload, &[key.public_key()], &image, NAME);
        let refusal = refusal.unwrap_err();
        assert!(
            matches!(
                refusal,
                SignatureRejection::Malformed | SignatureRejection::Key
            ),
            "{refusal}"
        );
    }
}

fn signature_of(payload: &[u8]) -> Signature {
    Signature {
        payload: payload.to_vec(),
        der: Vec::new(),
    }
}

/// A signed text that is no claim about an image counts for none.
#[test]
fn signed_nonsense() {
    let (key, image) = (
        SigningKey::generate_temporary(),
        Digest::hash_bytes(b"image"),
    );
    let der = key.sign(b"nonsense").unwrap();
    let signature = Signature {
        der,
        ..signature_of(b"nonsense")
    };
    let made = attach_signature(&image, None, &signature).unwrap();
    let signed = Signed { key, image, made };
    let refusal = signed.refused(b"nonsense", &image, NAME);
    assert!(matches!(refusal, SignatureRejection::Claim(_)));
}
