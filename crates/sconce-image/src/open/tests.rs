use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use sconce_schema::{Hint as _, NoProgress, exit};

use super::*;
use crate::unpack::testing::TarBuilder;
use sconce_oci::{Descriptor, ImageIndex, RootFs};

/// The files of a layout or an archive, by name.
type Written = BTreeMap<String, Vec<u8>>;

fn amd64() -> Platform {
    machine("amd64")
}

fn machine(architecture: &str) -> Platform {
    Platform {
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        variant: None,
    }
}

fn layer(text: &str) -> Vec<u8> {
    TarBuilder::default().with_file("a", text).into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn config(architecture: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    oci::to_json(&oci::ImageConfiguration {
        created: None,
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        config: None,
        rootfs: RootFs {
            kind: "layers".to_owned(),
            diff_ids: layers
                .iter()
                .map(|layer| Digest::hash_bytes(layer))
                .collect(),
        },
        history: None,
    })
}

/// Puts a blob into a layout and describes it.
fn put(written: &mut Written, media_type: &str, bytes: &[u8]) -> Descriptor {
    let descriptor = Descriptor::for_bytes(media_type, bytes);
    let name = format!("blobs/sha256/{}", descriptor.digest.to_hex());
    written.insert(name, bytes.to_vec());
    descriptor
}

/// Puts an image of one compressed layer into a layout.
fn put_image(written: &mut Written, architecture: &str, text: &str) -> Descriptor {
    let plain = layer(text);
    let config = config(architecture, std::slice::from_ref(&plain));
    let manifest = ImageManifest::new(
        put(written, media::CONFIG, &config),
        vec![put(written, media::LAYER_GZIP, &gzip(&plain))],
    );
    put(written, media::MANIFEST, &oci::to_json(&manifest))
}

fn named(mut descriptor: Descriptor, name: &str) -> Descriptor {
    let key = "org.opencontainers.image.ref.name".to_owned();
    descriptor.annotations = Some([(key, name.to_owned())].into());
    descriptor
}

fn for_machine(mut descriptor: Descriptor, os: &str, architecture: &str) -> Descriptor {
    descriptor.platform = Some(Platform {
        os: os.to_owned(),
        ..machine(architecture)
    });
    descriptor
}

fn layout(written: &mut Written, manifests: Vec<Descriptor>) {
    written.insert("oci-layout".to_owned(), b"{}".to_vec());
    let index = oci::to_json(&ImageIndex::new(manifests));
    written.insert("index.json".to_owned(), index);
}

/// What `docker save` wrote before it wrote layouts.
fn docker(images: &[(&str, &[Vec<u8>])]) -> Written {
    let mut written = Written::new();
    let mut list = Vec::new();
    for (tag, layers) in images {
        let plain: Vec<Vec<u8>> = layers.iter().map(|layer| unpacked(layer)).collect();
        let config = config("amd64", &plain);
        let file = format!("{}.json", Digest::hash_bytes(&config).to_hex());
        let mut names = Vec::new();
        for layer in *layers {
            let name = format!("{}/layer.tar", Digest::hash_bytes(layer).to_hex());
            written.insert(name.clone(), layer.clone());
            names.push(name);
        }
        list.push(serde_json::json!({"Config": file, "RepoTags": [tag], "Layers": names}));
        written.insert(file, config);
    }
    let list = serde_json::Value::Array(list).to_string();
    written.insert("manifest.json".to_owned(), list.into_bytes());
    written
}

fn unpacked(layer: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = flate2::read::GzDecoder::new(layer).read_to_end(&mut out);
    read.map_or_else(|_| layer.to_vec(), |_| out)
}

fn tar(written: &Written) -> Vec<u8> {
    let archive = written
        .iter()
        .fold(TarBuilder::default(), |made, (name, bytes)| {
            made.with_entry(format!("./{name}").as_bytes(), b'0', b"", bytes)
        });
    archive.into_bytes()
}

/// A store, and a place for what is read.
struct Bench {
    folder: tempfile::TempDir,
    store: Store,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store")).unwrap();
        Self { folder, store }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn folder(&self, name: &str, written: &Written) -> PathBuf {
        for (file, bytes) in written {
            self.write(&format!("{name}/{file}"), bytes);
        }
        self.folder.path().join(name)
    }

    fn open(&self, path: &Path, name: Option<&str>) -> Result<LocalImage, OpenError> {
        let mut source = ImageSource::detect_at(path).unwrap().unwrap();
        source.name = name.map(str::to_owned);
        load_image(&source, &amd64(), &self.store, &NoProgress)
    }

    /// The text in the image's layers.
    fn texts(&self, image: &LocalImage) -> Vec<String> {
        let limits = crate::unpack::UnpackLimits::default();
        let trees = crate::unpack::ensure_trees(image, "x", &self.store, limits, &NoProgress);
        let read = |layer: &sconce_schema::environment_layers::LayerTree| {
            fs::read_to_string(layer.path.join("a")).unwrap()
        };
        trees.unwrap().iter().map(read).collect()
    }
}

#[test]
fn a_layout_is_read_as_a_folder_and_as_an_archive() {
    let mut written = Written::new();
    let one = named(put_image(&mut written, "amd64", "one"), "team/one:1");
    let two = named(put_image(&mut written, "amd64", "two"), "two");
    layout(&mut written, vec![one.clone(), two]);
    for what in ["folder", "tar", "gzip", "zstd"] {
        let bench = Bench::new();
        let path = match what {
            "folder" => bench.folder("lay", &written),
            "tar" => bench.write("a.tar", &tar(&written)),
            "gzip" => bench.write("a.tar.gz", &gzip(&tar(&written))),
            _ => bench.write(
                "a.tar.zst",
                &zstd::encode_all(&tar(&written)[..], 1).unwrap(),
            ),
        };
        let image = bench.open(&path, Some("team/one:1")).unwrap();
        assert_eq!(image.digest, one.digest, "{what}");
        assert_eq!(bench.texts(&image), ["one"]);
        let two = bench.open(&path, Some("two")).unwrap();
        assert_eq!(bench.texts(&two), ["two"]);
        assert_eq!(LocalImage::load(&bench.store, one.digest).unwrap(), image);
        let error = bench.open(&path, None).unwrap_err();
        assert!(matches!(&error, OpenError::Ambiguous { names, .. } if names.len() == 2));
        let error = bench.open(&path, Some("three")).unwrap_err();
        assert!(matches!(&error, OpenError::Unknown { .. }), "{error}");
        assert!(error.hint().unwrap().contains("oci:"));
        // Nothing took a name.
        assert!(
            crate::local_image::list_names(&bench.store)
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn an_image_for_several_machines_gives_this_ones() {
    let mut written = Written::new();
    let ours = put_image(&mut written, "amd64", "ours");
    let other = put_image(&mut written, "arm64", "other");
    let attestation = for_machine(other.clone(), "unknown", "unknown");
    let index = ImageIndex::new(vec![
        attestation,
        for_machine(other.clone(), "linux", "arm64"),
        for_machine(ours.clone(), "linux", "amd64"),
    ]);
    let inner = put(&mut written, media::DOCKER_LIST, &oci::to_json(&index));
    let outer = put(
        &mut written,
        media::INDEX,
        &oci::to_json(&ImageIndex::new(vec![inner])),
    );
    layout(&mut written, vec![outer.clone()]);
    let bench = Bench::new();
    let image = bench.open(&bench.folder("lay", &written), None).unwrap();
    assert_eq!(image.digest, ours.digest);
    let get = |d: &Descriptor| Ok(written[&format!("blobs/sha256/{}", d.digest.to_hex())].clone());
    assert_eq!(
        select_manifest(&outer, &machine("arm64"), &get)
            .unwrap()
            .digest,
        other.digest
    );
    let error = select_manifest(&outer, &machine("riscv64"), &get).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("linux/riscv64") && text.contains("linux/arm64, linux/amd64"),
        "{text}"
    );

    let deep = (0..MAX_INDEX_DEPTH).fold(outer, |inner, _| {
        put(
            &mut written,
            media::INDEX,
            &oci::to_json(&ImageIndex::new(vec![inner])),
        )
    });
    layout(&mut written, vec![deep]);
    let error = bench
        .open(&bench.folder("deep", &written), None)
        .unwrap_err();
    assert!(matches!(error, OpenError::TooDeep));
    // An image that says in its configuration alone what machine it is for.
    layout(&mut written, vec![other]);
    let error = bench
        .open(&bench.folder("other", &written), None)
        .unwrap_err();
    assert!(matches!(error, OpenError::Platform { .. }), "{error}");
}

#[test]
fn what_docker_saves_is_read() {
    let (one, two) = (layer("one"), layer("two"));
    let packed = gzip(&two);
    let bench = Bench::new();
    let images: &[(&str, &[Vec<u8>])] = &[
        (
            "registry.example.org/library/base:1",
            std::slice::from_ref(&one),
        ),
        (
            "registry.example.org:5000/both:2",
            &[one.clone(), packed.clone()],
        ),
    ];
    let written = docker(images);
    let path = bench.write("saved.tar", &tar(&written));
    let base = bench.open(&path, Some("base:1")).unwrap();
    assert_eq!(base.manifest.layers[0].digest, Digest::hash_bytes(&one));
    let both = bench.open(&path, Some("both:2")).unwrap();
    assert_eq!(bench.texts(&both), ["one", "two"]);
    assert_eq!(both.manifest.layers[1].digest, Digest::hash_bytes(&packed));
    assert_eq!(both.manifest.layers[1].media_type, media::LAYER_GZIP);
    for name in [None, Some("ase:1"), Some("other")] {
        assert!(bench.open(&path, name).is_err(), "{name:?}");
    }

    // Layers that several images share are links, in the way of older versions and of skopeo.
    let config = config("amd64", std::slice::from_ref(&one));
    let list = br#"[{"Config":"c.json","RepoTags":null,"Layers":["x/layer.tar"]}]"#;
    let linked = TarBuilder::default()
        .with_file("c.json", std::str::from_utf8(&config).unwrap())
        .with_symlink("x/layer.tar", "../y/layer.tar")
        .with_hard_link("y/layer.tar", "z.tar")
        .with_entry(b"z.tar", b'0', b"", &one)
        .with_entry(b"manifest.json", b'0', b"", list)
        .into_bytes();
    let image = bench
        .open(&bench.write("linked.tar", &linked), None)
        .unwrap();
    assert_eq!(bench.texts(&image), ["one"]);
    // Newer versions write both; the layout's manifest is the one that was pushed.
    let mut both = written;
    let pushed = put_image(&mut both, "amd64", "pushed");
    layout(&mut both, vec![pushed.clone()]);
    let path = bench.write("both.tar", &tar(&both));
    assert_eq!(bench.open(&path, None).unwrap().digest, pushed.digest);
    let source = ImageSource {
        kind: ImageFormat::DockerArchive,
        path,
        name: Some("base:1".to_owned()),
    };
    assert_eq!(
        load_image(&source, &amd64(), &bench.store, &NoProgress).unwrap(),
        base
    );
}

#[test]
fn what_is_not_what_it_says_is_refused() {
    let mut sound = Written::new();
    let image = put_image(&mut sound, "amd64", "text");
    layout(&mut sound, vec![image.clone()]);
    let open_changed = |change: &dyn Fn(&mut Written)| {
        let mut written = sound.clone();
        change(&mut written);
        let bench = Bench::new();
        let folder = bench.open(&bench.folder("lay", &written), None);
        let archive = bench.open(&bench.write("a.tar", &tar(&written)), None);
        let (folder, archive) = (folder.unwrap_err(), archive.unwrap_err());
        assert_eq!(
            std::mem::discriminant(&folder),
            std::mem::discriminant(&archive),
            "{folder} and {archive}"
        );
        folder
    };
    // Every blob, changed or missing.
    let blobs: Vec<&String> = sound.keys().filter(|n| n.starts_with("blobs")).collect();
    assert_eq!(blobs.len(), 3);
    for name in blobs {
        let error = open_changed(&|written| written.get_mut(name).unwrap()[3] ^= 1);
        assert!(
            matches!(&error, OpenError::Store(StoreError::Hash { .. })),
            "{error}"
        );
        assert_eq!(error.exit_code(), exit::VERIFY);
        let error = open_changed(&|written| written.get_mut(name).unwrap().push(b' '));
        assert_eq!(error.exit_code(), exit::VERIFY, "{error}");
        let error = open_changed(&|written| drop(written.remove(name)));
        assert!(matches!(error, OpenError::Missing { .. }), "{error}");
        assert!(error.hint().unwrap().contains("get it again"), "{error}");
    }
    let error = open_changed(&|written| layout(written, Vec::new()));
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    let error = open_changed(&|written| {
        written.insert("index.json".to_owned(), b"[]".to_vec());
    });
    assert!(matches!(error, OpenError::Document { .. }), "{error}");
    let error = open_changed(&|written| {
        written.insert(
            "index.json".to_owned(),
            vec![b' '; oci::MAX_DOCUMENT_BYTES + 1],
        );
    });
    assert!(matches!(error, OpenError::Document { .. }), "{error}");
    let error = open_changed(&|written| {
        let odd = Descriptor::new("text/plain", image.digest, image.size);
        layout(written, vec![odd]);
    });
    assert!(matches!(error, OpenError::Unsupported { .. }), "{error}");
    for (config_type, layer_type) in [
        (
            "application/vnd.cncf.helm.config.v1+json",
            media::LAYER_GZIP,
        ),
        (media::CONFIG, "application/vnd.sylabs.sif.layer.v1.sif"),
    ] {
        let error = open_changed(&|written| {
            let plain = layer("x");
            let config = config("amd64", std::slice::from_ref(&plain));
            let manifest = ImageManifest::new(
                put(written, config_type, &config),
                vec![put(written, layer_type, &gzip(&plain))],
            );
            let image = put(written, media::MANIFEST, &oci::to_json(&manifest));
            layout(written, vec![image]);
        });
        assert!(matches!(error, OpenError::Unsupported { .. }), "{error}");
    }
    let bench = Bench::new();
    let noise = [&b"\x1f\x8b"[..], &[7; 100]].concat();
    let error = bench.open(&bench.write("noise", &noise), None).unwrap_err();
    assert!(matches!(error, OpenError::File { .. }), "{error}");
    let empty = TarBuilder::default().with_file("x", "").into_bytes();
    let error = bench
        .open(&bench.write("empty.tar", &empty), None)
        .unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

#[test]
fn links_of_a_layout_stay_in_it() {
    let mut written = Written::new();
    let image = put_image(&mut written, "amd64", "text");
    layout(&mut written, vec![image]);
    let bench = Bench::new();
    let index = written.remove("index.json").unwrap();
    let outside = bench.write("outside/index.json", &index);
    let folder = bench.folder("lay", &written);
    std::os::unix::fs::symlink(outside, folder.join("index.json")).unwrap();
    let error = bench.open(&folder, None).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
    // The same in an archive: members that lead out of it are none.
    written.insert("../../index.json".to_owned(), index);
    let path = bench.write("a.tar", &tar(&written));
    let source = ImageSource {
        kind: ImageFormat::LayoutArchive,
        path,
        name: None,
    };
    let error = load_image(&source, &amd64(), &bench.store, &NoProgress).unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}
