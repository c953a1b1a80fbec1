//! The documents of an image, byte for byte, in `tests/golden`: digests are of these bytes.

use std::collections::BTreeMap;

use sconce_testkit::golden_files::Goldens;
use sconce_testkit::golden_files::HeldBy::{self, Golden};

use crate::{
    Descriptor, Digest, ExecutionDefaults, History, ImageConfiguration, ImageIndex, ImageManifest,
    Platform, RootFs, media, to_json,
};

const CONFIG: HeldBy = Golden("config.json");
const MANIFEST: HeldBy = Golden("manifest.json");
const INDEX: HeldBy = Golden("index.json");

const TYPES: &[(&str, HeldBy)] = &[
    ("config::ImageConfiguration", CONFIG),
    ("config::ExecutionDefaults", CONFIG),
    ("config::RootFs", CONFIG),
    ("config::History", CONFIG),
    ("manifest::Descriptor", MANIFEST),
    ("manifest::Platform", INDEX),
    ("manifest::ImageManifest", MANIFEST),
    ("manifest::ImageIndex", INDEX),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    pairs.map(owned).into()
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

const LAYER_BYTES: &[u8] = b"layer";

fn config() -> ImageConfiguration {
    let when = || Some("1970-01-01T00:00:00Z".to_owned());
    ImageConfiguration {
        created: when(),
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        config: Some(ExecutionDefaults {
            user: Some("1000:1000".to_owned()),
            exposed_ports: Some([("8888/tcp".to_owned(), serde_json::Map::new())].into()),
            env: Some(texts(["PATH=/usr/bin"])),
            entrypoint: Some(texts(["/entry"])),
            cmd: Some(texts(["python"])),
            working_dir: Some("/workspace".to_owned()),
            labels: Some(map([("dev.sconce.lock", "sha256:0")])),
            stop_signal: Some("SIGTERM".to_owned()),
        }),
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: vec![Digest::hash_bytes(LAYER_BYTES)],
        },
        history: Some(vec![History {
            created: when(),
            created_by: Some("sconce".to_owned()),
            comment: Some("base".to_owned()),
            empty_layer: Some(false),
        }]),
    }
}

fn descriptor() -> Descriptor {
    Descriptor {
        artifact_type: Some("application/spdx+json".to_owned()),
        platform: Some(Platform {
            architecture: "arm64".to_owned(),
            os: "linux".to_owned(),
            variant: Some("v8".to_owned()),
        }),
        annotations: Some(map([("org.opencontainers.image.ref.name", "a:1")])),
        ..Descriptor::for_bytes(media::MANIFEST, b"manifest")
    }
}

fn manifest() -> ImageManifest {
    let layer = Descriptor {
        annotations: Some(map([("a", "b")])),
        ..Descriptor::for_bytes(media::LAYER, LAYER_BYTES)
    };
    let config = Descriptor::for_bytes(media::CONFIG, &to_json(&config()));
    ImageManifest {
        artifact_type: Some("application/spdx+json".to_owned()),
        subject: Some(descriptor()),
        annotations: Some(map([("c", "d")])),
        ..ImageManifest::new(config, vec![layer])
    }
}

#[test]
fn documents_of_an_image_are_as_before() {
    goldens().assert_same("config.json", to_json(&config()));
    let text = goldens().read_text("config.json");
    assert_eq!(
        ImageConfiguration::from_json(text.as_bytes()).unwrap(),
        config()
    );
    goldens().assert_same("manifest.json", to_json(&manifest()));
    let text = goldens().read_text("manifest.json");
    assert_eq!(
        ImageManifest::from_json(text.as_bytes()).unwrap(),
        manifest()
    );
    let index = ImageIndex {
        annotations: Some(map([("c", "d")])),
        ..ImageIndex::new(vec![descriptor()])
    };
    goldens().assert_same("index.json", to_json(&index));
    let text = goldens().read_text("index.json");
    assert_eq!(ImageIndex::from_json(text.as_bytes()).unwrap(), index);
}
