//! A destination that is being written.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, ioctl_ficlone};

use super::error::OutputError;
use super::stream::BlockingWriter;
use super::unnamed_file::UnnamedFile;
use super::{Kind, OutputDestination, OutputForm, attributes, reopened};
use crate::direct_io;

/// Bytes that are handed to a descriptor, a device or a FIFO at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// A destination that is being written. Dropped without [`OutputFile::finish`], a file that would have been
/// replaced is as it was, and a new one is not there.
#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    sink: Sink,
    /// A closed pipe is the reader's wish: text that goes to standard output.
    may_close: bool,
    closed: bool,
    for_everybody: bool,
}

#[derive(Debug)]
enum Sink {
    Stream(BufWriter<BlockingWriter<File>>),
    /// Large pieces go past the page cache.
    File {
        writer: Box<direct_io::DirectWriter>,
        file: File,
        place: Option<PendingName>,
    },
}

/// The name that a new file gets.
#[derive(Debug)]
struct PendingName {
    fresh: UnnamedFile,
    name: OsString,
    present: Option<File>,
}

impl PendingName {
    fn of(folder: &OwnedFd, name: OsString, present: Option<File>) -> io::Result<Self> {
        // Until it has the old one's permissions nobody else reads it.
        let mode = if present.is_some() { 0o600 } else { 0o666 };
        Ok(Self {
            fresh: UnnamedFile::create_in(folder, Mode::from_raw_mode(mode))?,
            name,
            present,
        })
    }
}

impl OutputFile {
    pub(super) fn open(output: OutputDestination) -> Result<Self, OutputError> {
        let OutputDestination {
            path,
            form,
            kind,
            for_everybody,
        } = output;
        let standard = matches!(kind, Kind::Descriptor(1, _));
        let stream = |file| {
            let out = BlockingWriter::new(file);
            Ok(Sink::Stream(BufWriter::with_capacity(CHUNK_BYTES, out)))
        };
        let sink = match kind {
            Kind::Descriptor(_, file) | Kind::Device(file) => stream(file),
            Kind::Fifo(thing) => reopened(&thing, OFlags::empty()).and_then(stream),
            Kind::New { folder, name } => PendingName::of(&folder, name, None).and_then(placed),
            Kind::Replaced {
                folder,
                name,
                present,
            } => PendingName::of(&folder, name, Some(present)).and_then(placed),
            Kind::InPlace(file) => file.set_len(0).and_then(|()| in_file(file, None)),
        };
        Ok(Self {
            sink: sink.map_err(OutputError::io_error(&path))?,
            path,
            may_close: standard && form == OutputForm::Text,
            closed: false,
            for_everybody,
        })
    }

    /// Writes over the first bytes, once all others are written.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin_with(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stream(out) => {
                out.flush()?;
                out.get_ref().get_ref().write_all_at(bytes, 0)
            }
            Sink::File { writer, file, .. } => {
                writer.finish_file()?;
                // Which takes whole blocks only.
                let flags = fcntl_getfl(&*file)?;
                fcntl_setfl(&*file, flags - OFlags::DIRECT)?;
                file.write_all_at(bytes, 0)
            }
        }
    }

    /// Has a file that nothing was written to yet share the blocks of `source`, which neither can change for the
    /// other (ioctl_ficlone(2)). False where the file systems cannot do that.
    #[must_use]
    pub fn share_blocks(&mut self, source: &File) -> bool {
        match &self.sink {
            Sink::File { file, .. } => ioctl_ficlone(file, source).is_ok(),
            Sink::Stream(_) => false,
        }
    }

    /// Completes it: from now on the file is there under its name.
    ///
    /// # Errors
    /// [`OutputError::Io`].
    pub fn finish(self) -> Result<(), OutputError> {
        let (path, forgiven) = (self.path.clone(), self.may_close);
        match self.end() {
            Err(error) if forgiven && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            ended => ended.map_err(OutputError::io_error(&path)),
        }
    }

    fn end(self) -> io::Result<()> {
        match self.sink {
            Sink::Stream(mut out) => {
                if self.closed {
                    // Nobody reads what is left in it.
                    let _ = out.into_parts();
                    return Ok(());
                }
                out.flush()
            }
            Sink::File {
                mut writer,
                file,
                place,
            } => {
                writer.finish_file()?;
                let Some(place) = place else {
                    return attributes::flush_remote(&file);
                };
                match &place.present {
                    Some(present) => attributes::copy_metadata(&file, present)?,
                    None if self.for_everybody => attributes::make_world_readable(&file)?,
                    None => {}
                }
                if self.for_everybody {
                    file.sync_all()?;
                }
                attributes::flush_remote(&file)?;
                place.fresh.persist_as(&place.name)
            }
        }
    }
}

fn placed(place: PendingName) -> io::Result<Sink> {
    let file = place.fresh.file().try_clone()?;
    in_file(file, Some(place))
}

fn in_file(file: File, place: Option<PendingName>) -> io::Result<Sink> {
    let mut writer = Box::new(direct_io::DirectWriter::new());
    writer.begin_open(file.try_clone()?);
    Ok(Sink::File {
        writer,
        file,
        place,
    })
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let written = match &mut self.sink {
            Sink::Stream(out) => out.write(bytes),
            Sink::File { writer, .. } => writer.write(bytes),
        };
        match written {
            Err(error) if self.may_close && error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(bytes.len())
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stream(out) if !self.closed => match out.flush() {
                Err(error) if self.may_close && error.kind() == io::ErrorKind::BrokenPipe => {
                    self.closed = true;
                    Ok(())
                }
                flushed => flushed,
            },
            Sink::Stream(_) => Ok(()),
            Sink::File { writer, .. } => writer.flush(),
        }
    }
}
