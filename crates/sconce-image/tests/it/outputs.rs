//! An image, written to what a path can lead to.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests, with helpers that clippy does not know as such"
)]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::thread;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sconce_base::output::{OutputDestination, OutputError, OutputForm};
use sconce_image::layer::Compression;
use sconce_image::local_image::{LayerContents, LocalImage};
use sconce_image::{docker_archive, layout, squashfs};
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageManifest, media};
use sconce_schema::{Hint as _, NoProgress, exit};
use sconce_store::Store;

/// No descriptor is handed on.
fn none(_: i32) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::NotFound.into())
}

fn to(path: &Path, form: OutputForm) -> OutputDestination {
    OutputDestination::for_path(path, form, none).unwrap()
}

/// An image without layers: where it goes is what counts.
fn image(store: &Store) -> LocalImage {
    image_of(store, &[])
}

/// An image of plain archives, or what pass for them.
fn image_of(store: &Store, layers: &[&[u8]]) -> LocalImage {
    let digests = layers.iter().map(|layer| Digest::hash_bytes(layer));
    for layer in layers {
        let digest = Digest::hash_bytes(layer);
        store.put_blob(layer, &digest.0).unwrap();
    }
    let config = oci::to_json(&oci::ImageConfiguration {
        created: None,
        architecture: "amd64".to_owned(),
        os: "linux".to_owned(),
        config: None,
        rootfs: oci::RootFs {
            kind: "layers".to_owned(),
            diff_ids: digests.collect(),
        },
        history: None,
    });
    let descriptors = layers
        .iter()
        .map(|layer| Descriptor::for_bytes(media::LAYER, layer));
    let manifest = ImageManifest::new(
        Descriptor::for_bytes(media::CONFIG, &config),
        descriptors.collect(),
    );
    let contents = layers.iter().map(|layer| LayerContents {
        layer: "a".to_owned(),
        packages: Vec::new(),
        unpacked_bytes: Some(layer.len() as u64),
    });
    let contents = contents.collect();
    LocalImage::store_image(store, oci::to_json(&manifest), config, contents).unwrap()
}

type Archive =
    fn(&LocalImage, &[String], &Store, OutputDestination) -> Result<(), layout::LayoutError>;

#[test]
fn archives_are_streamed_and_replace_files_whole() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let (image, names) = (image(&store), ["demo:1".to_owned()]);
    let at = |name: &str| folder.path().join(name);
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let archives: [Archive; 2] = [
        |image, names, store, to| {
            docker_archive::write_archive(image, names, store, to, &NoProgress)
        },
        |image, names, store, to| layout::write_tar(image, names, store, to, &NoProgress),
    ];
    for archive in archives {
        fs::write(at("file"), "before").unwrap();
        archive(&image, &names, &store, to(&at("file"), OutputForm::Binary)).unwrap();
        let bytes = fs::read(at("file")).unwrap();
        assert!(bytes.len() > 1024 && bytes[257..262] == *b"ustar");
        let from = at("fifo");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            File::open(from).unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        });
        archive(&image, &names, &store, to(&at("fifo"), OutputForm::Binary)).unwrap();
        assert!(reader.join().unwrap() == bytes);
        assert!(at("fifo").metadata().unwrap().file_type().is_fifo());
        // What reads it ends in the middle of it.
        let from = at("fifo");
        let reader = thread::spawn(move || drop(File::open(from).unwrap()));
        let output = to(&at("fifo"), OutputForm::Binary);
        let told = archive(&image, &names, &store, output).map_err(|error| error.to_string());
        reader.join().unwrap();
        // All of it may have been in the pipe by then.
        assert!(told.is_ok() || told.unwrap_err().contains("fifo"));
    }
}

#[test]
fn a_layout_is_written_into_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let image = image(&store);
    let place = folder.path().join("a/layout");
    layout::check_folder(&place).unwrap();
    assert!(!folder.path().join("a").exists());
    for name in ["one:1", "two:1", "two:1"] {
        layout::write_folder(&image, Some(name), &store, &place).unwrap();
        layout::check_folder(&place).unwrap();
    }
    let index = fs::read_to_string(place.join("index.json")).unwrap();
    assert!(
        index.contains("two:1") && !index.contains("one:1"),
        "{index}"
    );
    let blobs = fs::read_dir(place.join("blobs/sha256")).unwrap();
    assert_eq!(blobs.count(), 2);
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "").unwrap();
    for tried in [
        layout::check_folder(&other).map(drop),
        layout::write_folder(&image, None, &store, &other),
    ] {
        assert!(matches!(tried, Err(layout::LayoutError::Occupied { .. })));
    }
    // What a build leaves that a signal ended, where a file system keeps a name for a file that is open.
    let left = folder.path().join("left");
    fs::create_dir_all(left.join("blobs/sha256")).unwrap();
    layout::check_folder(&left).unwrap();
    layout::write_folder(&image, None, &store, &left).unwrap();
    let foreign = folder.path().join("foreign");
    fs::create_dir_all(foreign.join("blobs/sha256")).unwrap();
    fs::write(foreign.join("blobs/sha256/file"), "").unwrap();
    let tried = layout::check_folder(&foreign);
    assert!(matches!(tried, Err(layout::LayoutError::Occupied { .. })));
}

type Shipper<'a> = dyn Fn(&LocalImage) -> Result<(), layout::LayoutError> + 'a;

const LAYER: &[u8] = b"bytes of a layer";

#[test]
fn nothing_of_a_layout_is_the_stores_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let image = image_of(&store, &[LAYER]);
    let digest = Digest::hash_bytes(LAYER);
    let own = store.find_blob(&digest.0).unwrap();
    let place = folder.path().join("layout");
    let copy = place.join("blobs/sha256").join(digest.to_hex());
    let write = || layout::write_folder(&image, None, &store, &place).unwrap();
    write();
    let inode = |path: &Path| path.symlink_metadata().unwrap().ino();
    assert!(inode(&copy) != inode(&own) && own.metadata().unwrap().nlink() == 1);
    // A good file is taken as it is; what else has the name makes room.
    let before = inode(&copy);
    write();
    assert_eq!(inode(&copy), before);
    let spoil: [&dyn Fn(); 5] = [
        &|| fs::write(&copy, "other bytes here").unwrap(),
        &|| fs::write(&copy, "").unwrap(),
        // As Sconce 0.1 wrote it.
        &|| fs::hard_link(&own, &copy).unwrap(),
        &|| std::os::unix::fs::symlink(&own, &copy).unwrap(),
        &|| mknodat(CWD, &copy, FileType::Fifo, Mode::RUSR, 0).unwrap(),
    ];
    for spoil in spoil {
        fs::remove_file(&copy).unwrap();
        spoil();
        write();
        assert!(copy.symlink_metadata().unwrap().is_file() && inode(&copy) != inode(&own));
        assert_eq!(fs::read(&copy).unwrap(), LAYER);
        assert_eq!(fs::read(&own).unwrap(), LAYER);
    }
}

#[test]
fn a_blob_that_is_not_what_its_name_says_is_not_shipped() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let own = |bytes: &[u8]| store.find_blob(&Digest::hash_bytes(bytes).0);
    let at = |name: &str| folder.path().join(name);
    let shippers: [&Shipper<'_>; 3] = [
        &|image| layout::write_folder(image, None, &store, &at("layout")),
        &|image| {
            let output = to(&at("tar"), OutputForm::Binary);
            layout::write_tar(image, &[], &store, output, &NoProgress)
        },
        &|image| {
            let output = to(&at("docker"), OutputForm::Binary);
            docker_archive::write_archive(image, &[], &store, output, &NoProgress)
        },
    ];
    for ship in shippers {
        for damage in [
            &b"evil"[..],
            b"",
            b"evil of a layer!",
            b"more than a layer ever had",
        ] {
            let image = image_of(&store, &[LAYER]);
            let path = own(LAYER).unwrap();
            fs::remove_file(&path).unwrap();
            fs::write(&path, damage).unwrap();
            let error = ship(&image).unwrap_err();
            let (said, hint) = (error.to_string(), error.hint().unwrap());
            let named = said.contains("is damaged") && said.contains(&path.display().to_string());
            assert!(named, "{said}: {error:?}");
            assert!(hint.starts_with("it was removed; "), "{hint}");
            assert_eq!((error.exit_code(), own(LAYER)), (exit::VERIFY, None));
        }
        ship(&image_of(&store, &[LAYER])).unwrap();
    }
    // A compressed one that no decoder takes.
    let mut gzip = image_of(&store, &[LAYER]);
    gzip.manifest.layers[0].media_type = media::LAYER_ZSTD.to_owned();
    gzip.contents.clear();
    let path = own(LAYER).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "evil").unwrap();
    let error = shippers[2](&gzip).unwrap_err();
    assert_eq!((error.exit_code(), own(LAYER)), (exit::VERIFY, None));
}

#[test]
fn a_layout_that_is_not_completed_leaves_no_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("store")).unwrap();
    let image = image(&store);
    let manifest = ImageManifest {
        layers: vec![Descriptor::for_bytes(
            media::LAYER_ZSTD,
            b"not in the store",
        )],
        ..image.manifest.clone()
    };
    let without_layer = LocalImage {
        manifest,
        ..image.clone()
    };
    let place = folder.path().join("a/layout");
    layout::write_folder(&without_layer, None, &store, &place).unwrap_err();
    assert!(!folder.path().join("a").exists());
    // One that was there stays, with all that it had.
    layout::write_folder(&image, Some("one:1"), &store, &place).unwrap();
    let before = fs::read(place.join("index.json")).unwrap();
    layout::write_folder(&without_layer, None, &store, &place).unwrap_err();
    assert!(fs::read(place.join("index.json")).unwrap() == before);
    assert_eq!(fs::read_dir(place.join("blobs/sha256")).unwrap().count(), 2);
}

#[test]
fn a_squashfs_file_needs_one_that_is_sought() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for path in [path.as_path(), Path::new("-"), Path::new("/dev/stdout")] {
        let error = OutputDestination::for_path(path, OutputForm::Seekable, none).unwrap_err();
        assert!(matches!(error, OutputError::NotSeekable { .. }), "{error}");
    }
    let file = folder.path().join("file");
    let output = to(&file, OutputForm::Seekable);
    let written = squashfs::write(&[], &[], Compression::Zstd, output, &NoProgress).unwrap();
    let bytes = fs::read(file).unwrap();
    assert_eq!(
        (bytes.len() as u64, &bytes[..4]),
        (written.size_bytes, &b"hsqs"[..])
    );
}
