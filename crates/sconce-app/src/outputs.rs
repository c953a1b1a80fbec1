//! Files that the user names to be written: all verbs come here, and [`sconce_base::output`] does it.
//!
//! A verb looks at all of its outputs before its work ([`find`]), and writes them after it. What may not be
//! written by any other way is held by `tests/it/outputs`.

use std::path::{Path, PathBuf};

pub use sconce_base::output::{
    DirectoryDestination, NewFile, OutputDestination, OutputDirectory, OutputError, OutputForm,
};
use sconce_schema::{Hint, exit};

use crate::context::AppContext;
use crate::failure::Result;
use crate::folder_conflict::OwnFolderConflict;
use crate::reporter::AppEvent;

pub mod inputs;
pub mod own_places;
pub mod signals;

/// Standard output's number.
const STDOUT: i32 = 1;
/// Standard error's, the last that every process has.
const STDERR: i32 = 2;

/// Why outputs that could each be written are not.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each is what its message says")]
pub enum OutputsError {
    #[error("standard output takes one thing, and more than one is to go there")]
    Shared,
    #[error("standard output is the command's own")]
    OfTheCommand,
    #[error("descriptor {number} is let go when the run goes into the background")]
    LetGo { number: i32 },
    #[error("{} is named for two outputs, and would have the last one alone", path.display())]
    SameFile { path: PathBuf },
    #[error("{} lies in the folder of another output, or where that is to be", path.display())]
    OfFolder { path: PathBuf },
    #[error("{} is what this reads, and would be replaced by what it writes", path.display())]
    IsInput { path: PathBuf },
    #[error("cannot write {}: it {conflict}", path.display())]
    InOwnFolder {
        path: PathBuf,
        conflict: OwnFolderConflict,
    },
    #[error("{} is where a project has its spec or its lock", path.display())]
    IsProjectFile { path: PathBuf },
    #[error("{} is a private key", path.display())]
    IsPrivateKey { path: PathBuf },
    #[error("{} leads out of the project's folder", path.display())]
    OutOfProject { path: PathBuf },
    #[error("{} is no name that two files can be called by", path.display())]
    NoStem { path: PathBuf },
}

impl OutputsError {
    fn is_input(path: &Path) -> Self {
        Self::IsInput {
            path: path.to_owned(),
        }
    }
}

impl Hint for OutputsError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Shared => "name a file for all but one of them".to_owned(),
            Self::OfTheCommand | Self::LetGo { .. } => {
                "name a file; or /dev/fd/3, with 3>FILE".to_owned()
            }
            Self::SameFile { .. } => "name a file for each of them".to_owned(),
            Self::OfFolder { .. } => "name a file outside of that folder".to_owned(),
            Self::NoStem { .. } => {
                "give one such as `release`: release.key and release.pub are made".to_owned()
            }
            Self::IsInput { .. } => "name another file to write".to_owned(),
            Self::InOwnFolder { .. } => {
                "name a place elsewhere: what lies there is Sconce's own".to_owned()
            }
            Self::IsProjectFile { .. } => {
                "name another file: `sconce init` and `sconce lock` write these".to_owned()
            }
            Self::IsPrivateKey { .. } => {
                "name another file; nothing replaces a key, and nobody else has it".to_owned()
            }
            Self::OutOfProject { .. } => {
                "a run may have made this link; look where it leads, remove it, and do it once more"
                    .to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::OutOfProject { .. } => exit::BAD_INPUT,
            Self::Shared
            | Self::OfTheCommand
            | Self::LetGo { .. }
            | Self::SameFile { .. }
            | Self::OfFolder { .. }
            | Self::NoStem { .. }
            | Self::InOwnFolder { .. }
            | Self::IsProjectFile { .. }
            | Self::IsPrivateKey { .. }
            | Self::IsInput { .. } => exit::USAGE,
        }
    }
}

/// Looks at where a path leads, before anything else is done.
///
/// # Errors
/// [`OutputError`], where it is known beforehand that it cannot be written.
pub fn find(path: &Path, form: OutputForm) -> Result<OutputDestination> {
    Ok(find_with_output_error(path, form)?)
}

/// [`find`], for who can do something about an error.
pub fn find_with_output_error(
    path: &Path,
    form: OutputForm,
) -> Result<OutputDestination, OutputError> {
    OutputDestination::for_path(path, form, sconce_run::duplicate_inherited_fd)
}

/// The same for a file of a project's own, its spec or its lock, of which nobody says where it is to be: a run may
/// have left a link of that name.
///
/// # Errors
/// [`OutputsError::OutOfProject`], [`OutputsError::InOwnFolder`], and those of [`find`].
pub fn find_in_project(path: &Path, project: &Path) -> Result<OutputDestination> {
    let found = find(path, OutputForm::Text)?;
    own_places::refuse_own_folders(&found)?;
    match found.lies_in(project) {
        true => Ok(found),
        false => Err(OutputsError::OutOfProject {
            path: path.to_owned(),
        }
        .into()),
    }
}

/// The same for a flag that may not be there.
pub fn find_some(path: Option<&Path>, form: OutputForm) -> Result<Option<OutputDestination>> {
    path.map(|path| find(path, form)).transpose()
}

/// What a verb writes and reads of what the user named.
#[derive(Debug, Default)]
pub struct VerbFiles<'a> {
    /// Files that it writes, those of flags that were not given among them.
    pub outputs: &'a [Option<&'a OutputDestination>],
    /// A folder that it writes.
    pub folder: Option<&'a DirectoryDestination>,
    /// Files that it reads, and folders of which it reads everything.
    pub inputs: &'a [PathBuf],
    /// It prints data for a program, which nobody would look for on standard error.
    pub prints_json: bool,
}

impl VerbFiles<'_> {
    /// Refuses outputs that take the place of another, of what is read, of a project's spec or lock or of what is
    /// Sconce's own, and gives standard output to the one of
    /// them that goes there: whatever else the verb prints is seen on standard error then.
    ///
    /// # Errors
    /// [`OutputsError`].
    pub fn claim(&self) -> Result<()> {
        let outputs: Vec<&OutputDestination> = self.outputs.iter().copied().flatten().collect();
        let taken = outputs
            .iter()
            .filter(|output| output.descriptor_number() == Some(STDOUT))
            .count();
        if taken + usize::from(self.prints_json && taken > 0) > 1 {
            return Err(OutputsError::Shared.into());
        }
        for (number, output) in outputs.iter().enumerate() {
            let mut before = outputs[..number].iter();
            let is_same = before.any(|other| other.is_same_file(output));
            if is_same || self.folder.is_some_and(|folder| folder.overlaps(output)) {
                let path = output.path().to_owned();
                return Err(match is_same {
                    true => OutputsError::SameFile { path },
                    false => OutputsError::OfFolder { path },
                }
                .into());
            }
            refuse_inputs(output, self.inputs)?;
            own_places::refuse_own_folders(output)?;
            own_places::refuse_project_files(output)?;
        }
        let mut inputs = self.inputs.iter();
        let in_input = |path: &&PathBuf| self.folder.is_some_and(|folder| folder.lies_in(path));
        if let Some(path) = inputs.find(in_input) {
            return Err(OutputsError::is_input(path).into());
        }
        if let Some(folder) = self.folder {
            own_places::refuse_in_own_folders(folder)?;
            own_places::refuse_project_names(folder)?;
        }
        if taken == 1 {
            let moved = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
            moved.map_err(|error| {
                OutputError::io_error(Path::new("standard output"))(error.into())
            })?;
        }
        Ok(())
    }
}

/// Refuses an output that takes the place of a file that is read, or lies in a folder that is.
///
/// # Errors
/// [`OutputsError::IsInput`].
pub fn refuse_inputs(output: &OutputDestination, inputs: &[PathBuf]) -> Result<()> {
    let taken = inputs.iter().find(|input| output.would_overwrite(input));
    match taken {
        Some(input) => Err(OutputsError::is_input(input).into()),
        None => Ok(()),
    }
}

/// Refuses what several files cannot be called by, with an ending each: a stream, a folder, a name of dots.
///
/// # Errors
/// [`OutputsError::NoStem`].
pub fn validate_name_stem(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let ends_in_name = path
        .file_name()
        .is_some_and(|name| bytes.ends_with(name.as_encoded_bytes()));
    let leads_to_file = match find_with_output_error(path, OutputForm::Text) {
        Ok(found) => found.is_file(),
        // Whatever else is wrong there is nothing to files of other names.
        Err(error) => !matches!(
            error,
            OutputError::Closed { .. } | OutputError::Foreign { .. } | OutputError::Socket { .. }
        ),
    };
    match ends_in_name && leads_to_file {
        true => Ok(()),
        false => Err(OutputsError::NoStem {
            path: path.to_owned(),
        }
        .into()),
    }
}

/// Looks at where a path leads while a command of the user's writes to standard output.
///
/// # Errors
/// [`OutputsError::OfTheCommand`], and those of [`find`].
pub fn find_beside_command(path: &Path, form: OutputForm) -> Result<OutputDestination> {
    let found = find(path, form)?;
    match found.descriptor_number() {
        Some(STDOUT) => Err(OutputsError::OfTheCommand.into()),
        _ => Ok(found),
    }
}

/// The same of a run that goes into the background, where it has the first three descriptors no longer.
///
/// # Errors
/// [`OutputsError::LetGo`], and those of [`find_beside_command`].
pub fn find_in_background(path: &Path, form: OutputForm) -> Result<OutputDestination> {
    let found = find_beside_command(path, form)?;
    match found.descriptor_number() {
        Some(number @ ..=STDERR) => Err(OutputsError::LetGo { number }.into()),
        _ => Ok(found),
    }
}

/// Writes a whole output, and says so where a file is there now.
///
/// # Errors
/// [`OutputError`].
pub fn write(output: OutputDestination, bytes: &[u8], context: &AppContext) -> Result<()> {
    let file = output.is_file().then(|| output.path().to_owned());
    output.write(bytes)?;
    if let Some(path) = file {
        context.report(&AppEvent::OutputWritten(&path));
    }
    Ok(())
}
