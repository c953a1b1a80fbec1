//! The files that a verb reads, as far as the user named them: no output takes their place.

use std::path::{Path, PathBuf};

use sconce_image::open::{ImageFormat, ImageSource};
use sconce_schema::spec::{FILE_NAME, Spec};

use crate::input;
use crate::project::{is_lock, source_files};

/// Of a spec or the folder of one: itself, its lock, which may be made yet, and the files that it names one by one.
pub fn of_spec(path: &Path) -> Vec<PathBuf> {
    let file = match path.is_dir() {
        true => path.join(FILE_NAME),
        false => path.to_owned(),
    };
    let lock = file.with_extension("lock");
    // What is wrong with a spec is said by whoever opens it; a FIFO is read once.
    let text = file.is_file().then(|| input::read_text(&file).ok());
    let spec = text.flatten().and_then(|text| Spec::parse(&text).ok());
    let mut files = spec.map_or_else(Vec::new, |spec| source_files(&file, &spec));
    files.extend([file, lock]);
    files
}

/// Of an image in a file or a folder.
pub fn of_image(source: &ImageSource) -> Vec<PathBuf> {
    let path = &source.path;
    match source.kind {
        ImageFormat::Layout => ["oci-layout", "index.json", "blobs"]
            .map(|name| path.join(name))
            .to_vec(),
        ImageFormat::LayoutArchive | ImageFormat::DockerArchive | ImageFormat::Archive => {
            vec![path.clone()]
        }
    }
}

/// Of what is judged: a spec, a lock, an image, or a folder of installed packages, in which there is place for more.
pub fn of_subject(what: &str) -> Vec<PathBuf> {
    let path = Path::new(what);
    let named = || ImageSource::parse(what).filter(|_| !path.exists());
    if path.join(FILE_NAME).is_file() {
        return of_spec(path);
    }
    if let Some(source) = ImageSource::detect_at(path).ok().flatten().or_else(named) {
        return of_image(&source);
    }
    match path.is_file() {
        true if is_lock(path) => vec![path.to_owned()],
        true => of_spec(path),
        false => Vec::new(),
    }
}

/// Of a run's record: the folder that it lies in.
pub fn of_record(file: &Path) -> Vec<PathBuf> {
    vec![file.parent().unwrap_or(file).to_owned()]
}
