//! Many wheels at once.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sconce_schema::Progress;
use sconce_schema::lock::Wheel;

use super::error::{WheelError, ZipError};
use super::input::{Input, Source};
use super::layout::Layout;
use super::stream::{Limits, Stop, unpack};
use super::tree::Tree;
use super::write::Writer;
use super::{KIND, zip};
use crate::blob::check;
use crate::fetch::{Body, Fetcher, shown};
use crate::{Store, StoreError};

/// The layout of the trees. Part of their keys, so that trees of an older one are not used.
const LAYOUT: u32 = 1;
/// A wheel larger than this is not read to its end only to say how it is wrong.
const LARGEST: u64 = 64 << 30;

/// How to install.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallOptions {
    /// How many wheels at once; by default twice the cores, 2 to 6. Each takes about 2 MiB.
    pub threads: Option<NonZero<usize>>,
    /// What one wheel may unpack to.
    pub limits: Limits,
}

impl InstallOptions {
    fn threads(self, wheels: usize) -> usize {
        // Twice the cores, because a thread that waits for the disk or the network uses none.
        let default = || {
            std::thread::available_parallelism().map_or(2, |cores| (2 * cores.get()).clamp(2, 6))
        };
        self.threads.map_or_else(default, NonZero::get).min(wheels)
    }
}

/// Why one wheel was not installed.
enum Failure {
    Store(StoreError),
    /// Another wheel failed, which is what the caller is told.
    Given,
}

impl From<StoreError> for Failure {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

/// What all threads share.
struct Job<'a> {
    store: &'a Store,
    fetcher: &'a Fetcher,
    layout: Layout,
    python: &'a str,
    limits: Limits,
    progress: &'a dyn Progress,
    stop: AtomicBool,
}

impl Store {
    /// The tree of a wheel that is in the store: rootfs-relative, `opt/venv/lib/…`.
    #[must_use]
    pub fn wheel_tree(&self, wheel: &Wheel, python: &str) -> Option<PathBuf> {
        self.tree(KIND, &key(wheel, python))
    }

    /// The tree of each wheel, in the order of `wheels`, fetched and installed where it is not in
    /// the store. `python` is a major and minor version, `3.13`.
    ///
    /// # Errors
    /// The first failure of any wheel; the others are stopped. [`StoreError::Fetch`],
    /// [`StoreError::Hash`] and [`StoreError::Size`] for bytes that cannot be had or are not the
    /// lock's, [`StoreError::Wheel`] for an archive that cannot be installed,
    /// [`StoreError::Disk`]. Wheels that were complete by then stay in the store.
    pub fn ensure_wheels(
        &self,
        fetcher: &Fetcher,
        wheels: &[Wheel],
        python: &str,
        progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, StoreError> {
        self.ensure_wheels_with(fetcher, wheels, python, progress, InstallOptions::default())
    }

    /// As [`Store::ensure_wheels`], with options.
    ///
    /// # Errors
    /// As [`Store::ensure_wheels`].
    pub fn ensure_wheels_with(
        &self,
        fetcher: &Fetcher,
        wheels: &[Wheel],
        python: &str,
        progress: &dyn Progress,
        options: InstallOptions,
    ) -> Result<Vec<PathBuf>, StoreError> {
        let mut missing: Vec<&Wheel> = wheels
            .iter()
            .filter(|wheel| self.wheel_tree(wheel, python).is_none())
            .collect();
        // The largest first: what begins last decides when all is done.
        missing.sort_by_key(|wheel| std::cmp::Reverse(wheel.size.unwrap_or(u64::MAX)));
        let job = Job {
            store: self,
            fetcher,
            layout: Layout::new(python),
            python,
            limits: options.limits,
            progress,
            stop: AtomicBool::new(false),
        };
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut writer = Writer::new();
            while let Some(wheel) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(failure) = job.install(wheel, &mut writer) {
                    job.stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(|e| e.into_inner());
                    if let Failure::Store(e) = failure {
                        failed.get_or_insert(e);
                    }
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..options.threads(missing.len()) {
                scope.spawn(work);
            }
        });
        if let Some(e) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(e);
        }
        wheels
            .iter()
            .map(|wheel| {
                let place = self.place(KIND, &key(wheel, python))?;
                Ok(place.content())
            })
            .collect()
    }
}

fn key(wheel: &Wheel, python: &str) -> String {
    format!("{}-{python}-{LAYOUT}", wheel.sha256)
}

impl Job<'_> {
    fn install(&self, wheel: &Wheel, writer: &mut Writer) -> Result<(), Failure> {
        let file = &wheel.file;
        let place = self.store.place(KIND, &key(wheel, self.python))?;
        let waiting = || {
            self.progress
                .note(&format!("another process is installing {file}; waiting"));
        };
        self.store.make(&place, waiting, |work| {
            let content = work.join("content");
            let make = || {
                crate::store::make_folder(&content, 0o755)
                    .map_err(StoreError::disk("create", &content))
            };
            make()?;
            match self.stream(wheel, &content, writer) {
                Err(Stop::Source(failure)) => Err(failure),
                Err(Stop::Wheel(WheelError::Zip(ZipError::SizeBehind { .. }))) => {
                    crate::item::remove(&content).map_err(StoreError::disk("remove", &content))?;
                    make()?;
                    self.spool(wheel, work, &content, writer)
                }
                Err(Stop::Wheel(source)) => Err(self.wheel_error(wheel, source)),
                Ok(()) => Ok(()),
            }
        })?;
        self.progress.done(file);
        Ok(())
    }

    fn wheel_error(&self, wheel: &Wheel, source: WheelError) -> Failure {
        Failure::Store(StoreError::Wheel {
            file: wheel.file.clone(),
            source,
        })
    }

    /// The one pass.
    fn stream(
        &self,
        wheel: &Wheel,
        content: &Path,
        writer: &mut Writer,
    ) -> Result<(), Stop<Failure>> {
        let mut input = Input::hashed(self.open(wheel).map_err(Stop::Source)?);
        let mut tree = Tree::new(content, &self.layout, &wheel.name, writer);
        let unpacked = unpack(&mut input, &mut tree, self.limits, &HashMap::new());
        let listed = match unpacked {
            Ok(listed) => Some(listed),
            // Bytes that are not the lock's are the better explanation, so read on and see.
            Err(Stop::Wheel(WheelError::Zip(e))) if !matches!(e, ZipError::SizeBehind { .. }) => {
                self.verify(wheel, input).map_err(Stop::Source)?;
                return Err(Stop::Wheel(e.into()));
            }
            Err(e) => return Err(e),
        };
        self.verify(wheel, input).map_err(Stop::Source)?;
        if let Some(listed) = listed {
            tree.finish(&listed)?;
        }
        Ok(())
    }

    fn open(&self, wheel: &Wheel) -> Result<Download<'_>, Failure> {
        let body = self.fetcher.open(&wheel.url, 0).map_err(StoreError::from)?;
        if let (Some(expected), Some(found)) = (wheel.size, body.total())
            && expected != found
        {
            return Err(Failure::Store(StoreError::Size {
                what: shown(&wheel.url),
                expected,
                found,
            }));
        }
        Ok(Download {
            body,
            name: wheel.file.clone(),
            progress: self.progress,
            stop: &self.stop,
        })
    }

    /// Reads what is left and compares all of it with the lock.
    fn verify<S: Source<Error = Failure>>(
        &self,
        wheel: &Wheel,
        input: Input<S>,
    ) -> Result<(), Failure> {
        let most = wheel.size.unwrap_or(LARGEST);
        let Some((got, hash)) = input.drain(most)? else {
            return Err(Failure::Store(StoreError::Size {
                what: shown(&wheel.url),
                expected: most,
                found: most + 1,
            }));
        };
        check(&shown(&wheel.url), &wheel.sha256, wheel.size, got, hash)?;
        Ok(())
    }

    /// The slower way, for archives whose entries tell their sizes only at the end: the file is
    /// kept, verified, and read from its directory.
    fn spool(
        &self,
        wheel: &Wheel,
        work: &Path,
        content: &Path,
        writer: &mut Writer,
    ) -> Result<(), Failure> {
        let path = work.join("wheel");
        let disk = |what| StoreError::disk(what, &path);
        self.progress.note(&format!(
            "{} cannot be unpacked while it arrives",
            wheel.file
        ));
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(disk("create"))?;
        let mut input = Input::hashed(self.open(wheel)?);
        loop {
            let bytes = input.peek(1)?;
            let n = bytes.len();
            if n == 0 {
                break;
            }
            file.write_all(bytes).map_err(disk("write"))?;
            input.take(n);
            if wheel.size.is_some_and(|size| input.offset() > size) {
                break;
            }
        }
        self.verify(wheel, input)?;
        let sizes = directory_sizes(&mut file)
            .map_err(disk("read"))?
            .map_err(|e| self.wheel_error(wheel, e.into()))?;
        file.rewind().map_err(disk("read"))?;
        let mut tree = Tree::new(content, &self.layout, &wheel.name, writer);
        let mut input = Input::plain(Spooled(&file));
        let listed = unpack(&mut input, &mut tree, self.limits, &sizes);
        let installed = match listed {
            Ok(listed) => tree.finish(&listed),
            Err(Stop::Source(e)) => return Err(Failure::Store(disk("read")(e))),
            Err(Stop::Wheel(e)) => Err(e),
        };
        installed.map_err(|e| self.wheel_error(wheel, e))?;
        std::fs::remove_file(&path).map_err(disk("remove"))?;
        Ok(())
    }
}

/// The compressed size of every entry by its offset, from the directory at the file's end.
fn directory_sizes(file: &mut File) -> std::io::Result<Result<HashMap<u64, u64>, ZipError>> {
    let length = file.metadata()?.len();
    // The end records and the longest comment.
    let tail_length = length.min(56 + 20 + 22 + u64::from(u16::MAX));
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(length - tail_length))?;
    file.take(tail_length).read_to_end(&mut tail)?;
    let Some(at) = zip::find_end(&tail) else {
        return Ok(Err(ZipError::CutOff { at: length }));
    };
    let end = match zip::end(&tail[at..], length - tail_length + at as u64) {
        Ok(end) => end,
        Err(e) => return Ok(Err(e)),
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(end.offset))?;
    file.take(end.length).read_to_end(&mut bytes)?;
    Ok(zip::central_all(&bytes).map(|all| {
        all.into_iter()
            .map(|one| (one.offset, one.entry.packed))
            .collect()
    }))
}

/// A wheel on its way.
struct Download<'a> {
    body: Body,
    name: String,
    progress: &'a dyn Progress,
    stop: &'a AtomicBool,
}

impl Source for Download<'_> {
    type Error = Failure;

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::Given);
        }
        let n = self.body.read_some(buffer).map_err(StoreError::from)?;
        self.progress.advance(&self.name, n as u64);
        Ok(n)
    }
}

/// A verified wheel on disk.
struct Spooled<'a>(&'a File);

impl Source for Spooled<'_> {
    type Error = std::io::Error;

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}
