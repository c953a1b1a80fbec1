//! Files that the user names to be written: all verbs come here, and [`sconce_base::output`] does it.
//!
//! A verb looks at all of its outputs before its work ([`find`]), and writes them after it. What may not be
//! written by any other way is held by `tests/it/outputs`.

use std::path::{Path, PathBuf};

pub(crate) use sconce_base::output::{
    NewFile, OutputDestination, OutputDirectory, OutputError, OutputForm,
};
use sconce_schema::{Hint, exit};

use crate::args::GlobalArgs;
use crate::failure::Result;
use crate::output;

/// Standard output's number.
const STDOUT: i32 = 1;
/// Standard error's, the last that every process has.
const STDERR: i32 = 2;

/// Why outputs that could each be written are not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputsError {
    #[error("standard output takes one thing, and more than one is to go there")]
    Shared,
    #[error("standard output is the command's own")]
    OfTheCommand,
    #[error("descriptor {number} is let go when the run goes into the background")]
    LetGo { number: i32 },
    #[error("{} is named for two outputs, and would have the last one alone", path.display())]
    SameFile { path: PathBuf },
    #[error("{} is what this reads, and would be replaced by what it writes", path.display())]
    IsInput { path: PathBuf },
}

impl Hint for OutputsError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Shared => "name a file for all but one of them".to_owned(),
            Self::OfTheCommand | Self::LetGo { .. } => {
                "name a file; or /dev/fd/3, with 3>FILE".to_owned()
            }
            Self::SameFile { .. } => "name a file for each of them".to_owned(),
            Self::IsInput { .. } => "name another file to write".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::USAGE
    }
}

/// Looks at where a path leads, before anything else is done.
///
/// # Errors
/// [`OutputError`], where it is known beforehand that it cannot be written.
pub(crate) fn find(path: &Path, form: OutputForm) -> Result<OutputDestination> {
    Ok(find_with_output_error(path, form)?)
}

/// [`find`], for who can do something about an error.
pub(crate) fn find_with_output_error(
    path: &Path,
    form: OutputForm,
) -> Result<OutputDestination, OutputError> {
    OutputDestination::for_path(path, form, sconce_run::duplicate_inherited_fd)
}

/// The same for a flag that may not be there.
pub(crate) fn find_some(
    path: Option<&Path>,
    form: OutputForm,
) -> Result<Option<OutputDestination>> {
    path.map(|path| find(path, form)).transpose()
}

/// Gives standard output to the one of these that goes there: whatever else the verb prints is seen on
/// standard error then. `json` says that the verb prints data for a program, which nobody would look for there.
///
/// # Errors
/// [`OutputsError::Shared`] where two things go there, [`OutputsError::SameFile`] where two go into one file.
pub(crate) fn claim_stdout(outputs: &[Option<&OutputDestination>], json: bool) -> Result<()> {
    let given: Vec<&OutputDestination> = outputs.iter().copied().flatten().collect();
    let taken = given
        .iter()
        .filter(|output| output.descriptor_number() == Some(STDOUT))
        .count();
    if taken + usize::from(json && taken > 0) > 1 {
        return Err(OutputsError::Shared.into());
    }
    for (number, output) in given.iter().enumerate() {
        let mut before = given[..number].iter();
        if before.any(|other| other.is_same_file(output)) {
            let path = output.path().to_owned();
            return Err(OutputsError::SameFile { path }.into());
        }
    }
    if taken == 1 {
        let moved = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
        moved.map_err(|error| OutputError::io_error(Path::new("standard output"))(error.into()))?;
    }
    Ok(())
}

/// [`find_some`] for a verb that reads files, none of which it may take the place of.
///
/// # Errors
/// [`OutputsError::IsInput`], and those of [`find`].
pub(crate) fn find_beside(
    path: Option<&Path>,
    form: OutputForm,
    inputs: &[&Path],
) -> Result<Option<OutputDestination>> {
    let found = find_some(path, form)?;
    let taken = found
        .iter()
        .find_map(|output| inputs.iter().find(|input| output.would_overwrite(input)));
    match taken {
        Some(input) => Err(OutputsError::IsInput {
            path: (*input).to_owned(),
        }
        .into()),
        None => Ok(found),
    }
}

/// Looks at where a path leads while a command of the user's writes to standard output.
///
/// # Errors
/// [`OutputsError::OfTheCommand`], and those of [`find`].
pub(crate) fn find_beside_command(path: &Path, form: OutputForm) -> Result<OutputDestination> {
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
pub(crate) fn find_in_background(path: &Path, form: OutputForm) -> Result<OutputDestination> {
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
pub(crate) fn write(output: OutputDestination, bytes: &[u8], global: &GlobalArgs) -> Result<()> {
    let file = output.is_file().then(|| output.path().to_owned());
    output.write(bytes)?;
    if let (Some(path), false) = (file, global.quiet) {
        output::print_message(&format!("written: {}", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod listed;
