//! Many wheels at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use sconce_schema::Progress;
use sconce_schema::lock::Wheel;

use super::error::{WheelError, ZipError};
use super::input::{BufferedInput, ByteStream};
use super::layout::WheelLayout;
use super::partial_wheel::{self, PartialWheel, SlowThreshold};
use super::stream::{ReadFailure, WheelLimits, unpack_archive};
use super::tree::WheelTree;
use super::{KIND, zip};
use crate::blob::verify_size_and_hash;
use crate::item_access;
use crate::{Store, StoreError};
use sconce_base::direct_io::DirectWriter;
use sconce_fetch::{FetchBody, Fetcher, file_url, redact_url};

/// The layout of the trees. Part of their keys, so that trees of an older one are not used.
const LAYOUT: u32 = 1;
/// A wheel larger than this is not read to its end only to say how it is wrong.
const MAX_WHEEL_BYTES: u64 = 64 << 30;

/// How to install.
#[derive(Debug, Clone, Copy, Default)]
pub struct InstallOptions {
    /// How many wheels at once; by default twice the cores, 2 to 6. Each takes about 2 MiB.
    pub threads: Option<NonZero<usize>>,
    /// What one wheel may unpack to.
    pub limits: WheelLimits,
    /// Which downloads are kept against a kill.
    pub slow: SlowThreshold,
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
    /// Bytes that an earlier process kept were wrong. They are gone now.
    Kept,
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
    layout: WheelLayout,
    python: &'a str,
    limits: WheelLimits,
    slow: SlowThreshold,
    progress: &'a dyn Progress,
    stop: AtomicBool,
}

impl Store {
    /// The tree of a wheel that is in the store: rootfs-relative, `opt/venv/lib/…`.
    #[must_use]
    pub fn wheel_tree(&self, wheel: &Wheel, python: &str) -> Option<PathBuf> {
        self.find_tree(KIND, &key(wheel, python))
    }

    /// The tree of each wheel, in the order of `wheels`, fetched and installed where it is not in
    /// the store. A wheel whose file is a blob of the store is read from there. `python` is a major
    /// and minor version, `3.13`.
    ///
    /// # Errors
    /// The first failure of any wheel; the others are stopped. [`StoreError::Fetch`],
    /// [`StoreError::Hash`] and [`StoreError::Size`] for bytes that cannot be had or are not the
    /// lock's, [`StoreError::Damaged`] for a blob with others than its name says, which is removed,
    /// [`StoreError::Wheel`] for an archive that cannot be installed,
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
            layout: WheelLayout::new(python),
            python,
            limits: options.limits,
            slow: options.slow,
            progress,
            stop: AtomicBool::new(false),
        };
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut writer = DirectWriter::new();
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
                let place = self.item_paths(KIND, &key(wheel, python))?;
                Ok(place.content_path())
            })
            .collect()
    }
}

fn key(wheel: &Wheel, python: &str) -> String {
    format!("{}-{python}-{LAYOUT}", wheel.sha256)
}

impl Job<'_> {
    fn install(&self, wheel: &Wheel, writer: &mut DirectWriter) -> Result<(), Failure> {
        let file = &wheel.file;
        let place = self.store.item_paths(KIND, &key(wheel, self.python))?;
        let turn = item_access::MakeJob {
            name: file,
            work: &format!("installs {file}"),
            progress: self.progress,
        };
        let made = self.store.make_item(&place, turn, &|_| true, |work| {
            let content = work.join("content");
            let make = || {
                crate::store::make_folder(&content, 0o755)
                    .map_err(StoreError::from_io("create", &content))
            };
            make()?;
            let mut streamed = self.stream(wheel, &content, writer);
            if let Err(ReadFailure::Source(Failure::Kept)) = streamed {
                // A power loss can spoil kept bytes: start over without them.
                sconce_base::tree::remove_tree(&content)
                    .map_err(StoreError::from_io("remove", &content))?;
                make()?;
                streamed = self.stream(wheel, &content, writer);
            }
            match streamed {
                Err(ReadFailure::Source(failure)) => Err(failure),
                Err(ReadFailure::Wheel(WheelError::Zip(ZipError::SizeBehind { .. }))) => {
                    sconce_base::tree::remove_tree(&content)
                        .map_err(StoreError::from_io("remove", &content))?;
                    make()?;
                    self.spool(wheel, work, &content, writer)
                }
                Err(ReadFailure::Wheel(source)) => Err(self.wheel_error(wheel, source)),
                Ok(()) => Ok(()),
            }
        });
        made.map_err(|failure| self.blame_blob(wheel, failure))?;
        tracing::debug!(file, url = redact_url(&wheel.url), "the wheel is installed");
        let _ = self.remove_part(wheel);
        self.progress.done(file);
        Ok(())
    }

    /// Where bytes of a slow download are kept; nowhere where no lock says whose they are, or where all of them are in
    /// the store.
    fn part(&self, wheel: &Wheel) -> Option<PathBuf> {
        let name = format!("{KIND}~{}", key(wheel, self.python));
        let partial = self.store.root().join("partial");
        let is_kept = self.store.has_locks() && self.store.find_blob(&wheel.sha256).is_none();
        is_kept.then(|| partial.join(name))
    }

    /// Where a wheel is read from: its file in the store, or else its address.
    fn url<'w>(&self, wheel: &'w Wheel) -> Cow<'w, str> {
        match self.store.find_blob(&wheel.sha256) {
            Some(file) => file_url(&file).into(),
            None => wheel.url.as_str().into(),
        }
    }

    fn remove_part(&self, wheel: &Wheel) -> std::io::Result<()> {
        match self.part(wheel) {
            Some(part) => partial_wheel::remove_if_present(&part),
            None => Ok(()),
        }
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
        writer: &mut DirectWriter,
    ) -> Result<(), ReadFailure<Failure>> {
        let part = (self.part(wheel)).and_then(|path| PartialWheel::open_existing(&path));
        let kept = part.is_some();
        if kept {
            self.progress
                .note(&format!("going on with {} where it broke off", wheel.file));
        }
        let mut download = self.open(wheel).map_err(ReadFailure::Source)?;
        download.part = part;
        let mut input = BufferedInput::new_hashing(download);
        let mut tree = WheelTree::new(content, &self.layout, &wheel.name, writer);
        let unpacked = unpack_archive(&mut input, &mut tree, self.limits, &HashMap::new());
        let listed = match unpacked {
            Ok(listed) => Some(listed),
            // Bytes that are not the lock's are the better explanation, so read on and see.
            Err(ReadFailure::Wheel(WheelError::Zip(e)))
                if !matches!(e, ZipError::SizeBehind { .. }) =>
            {
                self.verify(wheel, input)
                    .map_err(|failure| self.blame(wheel, kept, failure))?;
                return Err(ReadFailure::Wheel(e.into()));
            }
            Err(e) => return Err(e),
        };
        self.verify(wheel, input)
            .map_err(|failure| self.blame(wheel, kept, failure))?;
        if let Some(listed) = listed {
            tree.finish(&listed)?;
        }
        Ok(())
    }

    /// Bytes that are not the lock's may come from what an earlier process kept, and are then
    /// nobody's fault.
    fn blame(&self, wheel: &Wheel, kept: bool, failure: Failure) -> ReadFailure<Failure> {
        let wrong = matches!(
            failure,
            Failure::Store(StoreError::Hash { .. } | StoreError::Size { .. })
        );
        if wrong && kept && self.remove_part(wheel).is_ok() {
            return ReadFailure::Source(Failure::Kept);
        }
        ReadFailure::Source(failure)
    }

    /// Bytes that are not the lock's and came from the store are the store's: they are taken out of it.
    fn blame_blob(&self, wheel: &Wheel, failure: Failure) -> Failure {
        match failure {
            Failure::Store(StoreError::Hash { .. } | StoreError::Size { .. }) => {
                match self.store.verify_blob(&wheel.sha256) {
                    Err(damaged) => damaged.into(),
                    Ok(()) => failure,
                }
            }
            other => other,
        }
    }

    /// Opens the wheel at its beginning.
    fn open<'j>(&'j self, wheel: &'j Wheel) -> Result<Download<'j>, Failure> {
        let url = self.url(wheel);
        let body = self.fetcher.open(&url, 0).map_err(StoreError::from)?;
        if let (Some(expected), Some(found)) = (wheel.size, body.total_bytes())
            && expected != found
        {
            return Err(Failure::Store(StoreError::Size {
                what: redact_url(&wheel.url),
                expected,
                found,
            }));
        }
        Ok(Download {
            job: self,
            wheel,
            url,
            size: wheel.size.or(body.total_bytes()),
            body: Some(body),
            at: 0,
            began: Instant::now(),
            part: None,
        })
    }

    /// Reads what is left and compares all of it with the lock.
    fn verify<S: ByteStream<Error = Failure>>(
        &self,
        wheel: &Wheel,
        input: BufferedInput<S>,
    ) -> Result<(), Failure> {
        let most = wheel.size.unwrap_or(MAX_WHEEL_BYTES);
        let Some((got, hash)) = input.drain_to_end(most)? else {
            return Err(Failure::Store(StoreError::Size {
                what: redact_url(&wheel.url),
                expected: most,
                found: most + 1,
            }));
        };
        verify_size_and_hash(
            &redact_url(&wheel.url),
            &wheel.sha256,
            wheel.size,
            got,
            hash,
        )?;
        Ok(())
    }

    /// The slower way, for archives whose entries tell their sizes only at the end: the file is
    /// kept, verified, and read from its directory.
    fn spool(
        &self,
        wheel: &Wheel,
        work: &Path,
        content: &Path,
        writer: &mut DirectWriter,
    ) -> Result<(), Failure> {
        let path = work.join("wheel");
        let disk = |what| StoreError::from_io(what, &path);
        tracing::debug!(wheel.file, "cannot be unpacked while it arrives");
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(disk("create"))?;
        let mut input = BufferedInput::new_hashing(self.open(wheel)?);
        loop {
            let bytes = input.peek(1)?;
            let n = bytes.len();
            if n == 0 {
                break;
            }
            file.write_all(bytes).map_err(disk("write"))?;
            input.consume(n);
            if wheel.size.is_some_and(|size| input.offset() > size) {
                break;
            }
        }
        self.verify(wheel, input)?;
        let sizes = directory_sizes(&mut file)
            .map_err(disk("read"))?
            .map_err(|e| self.wheel_error(wheel, e.into()))?;
        file.rewind().map_err(disk("read"))?;
        let mut tree = WheelTree::new(content, &self.layout, &wheel.name, writer);
        let mut input = BufferedInput::new_without_hash(SpooledWheel(&file));
        let listed = unpack_archive(&mut input, &mut tree, self.limits, &sizes);
        let installed = match listed {
            Ok(listed) => tree.finish(&listed),
            Err(ReadFailure::Source(e)) => return Err(Failure::Store(disk("read")(e))),
            Err(ReadFailure::Wheel(e)) => Err(e),
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
    let end = match zip::parse_end_records(&tail[at..], length - tail_length + at as u64) {
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
    job: &'a Job<'a>,
    wheel: &'a Wheel,
    url: Cow<'a, str>,
    /// Bytes, where somebody tells.
    size: Option<u64>,
    /// The connection, at the offset `at`; absent while kept bytes are read.
    body: Option<FetchBody>,
    at: u64,
    began: Instant,
    part: Option<PartialWheel>,
}

impl Download<'_> {
    fn read_kept(&mut self, buffer: &mut [u8]) -> usize {
        let read = self.part.as_ref().map(|part| part.read(self.at, buffer));
        match read {
            Some(Ok(n)) => n,
            // What cannot be read is fetched.
            Some(Err(_)) => {
                self.forget();
                0
            }
            None => 0,
        }
    }

    fn fetch(&mut self, buffer: &mut [u8]) -> Result<usize, StoreError> {
        let body = match &mut self.body {
            Some(body) => body,
            closed => closed.insert(self.job.fetcher.open(&self.url, self.at)?),
        };
        // What is kept is not fetched.
        let most = match &self.part {
            Some(part) if part.start_offset() > self.at => part.start_offset() - self.at,
            _ => u64::MAX,
        };
        let room = buffer
            .len()
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        let n = body.read_some(&mut buffer[..room])?;
        self.keep(&buffer[..n]);
        Ok(n)
    }

    /// Keeps what came, once the download is slow. That it cannot be kept is no failure: a full
    /// disk also stops the unpacking, which says so.
    fn keep(&mut self, bytes: &[u8]) {
        if self.part.is_none()
            && let Some(size) = self.size
            && self.job.slow.is_slow(self.began.elapsed(), self.at, size)
        {
            let path = self.job.part(self.wheel);
            self.part = path.and_then(|path| PartialWheel::create(&path, self.at).ok());
        }
        if let Some(part) = &mut self.part
            && part.append(self.at, bytes).is_err()
        {
            self.forget();
        }
    }

    fn forget(&mut self) {
        if let Some(part) = self.part.take() {
            let _ = part.remove();
        }
    }
}

impl ByteStream for Download<'_> {
    type Error = Failure;

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failure> {
        if self.job.stop.load(Ordering::Relaxed) {
            return Err(Failure::Given);
        }
        let mut n = self.read_kept(buffer);
        if n > 0 {
            self.body = None;
        } else {
            n = self.fetch(buffer)?;
        }
        self.at += n as u64;
        self.job.progress.advance(&self.wheel.file, n as u64);
        Ok(n)
    }
}

/// A verified wheel on disk.
struct SpooledWheel<'a>(&'a File);

impl ByteStream for SpooledWheel<'_> {
    type Error = std::io::Error;

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}
