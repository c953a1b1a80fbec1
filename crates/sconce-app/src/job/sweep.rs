//! Many runs by one submission: the elements of an array, and what each has of a file.

use std::path::{Path, PathBuf};

use sconce_base::words::split_words;
use sconce_schema::job::{JobArray, MAX_ELEMENTS, PLACEHOLDER};
use sconce_schema::{Hint, exit};

use crate::failure::{AppError, Result};
use crate::input;

/// Which elements a caller wants.
#[derive(Debug, Clone, Default)]
pub struct ArrayOptions {
    /// Their indices, with how many run at once.
    pub array: Option<JobArray>,
    /// A file with the words of each.
    pub sweep: Option<PathBuf>,
    /// How many run at once.
    pub at_once: Option<u32>,
}

/// A file that is no sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A line that no shell would take.
    #[error("{}, line {line}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: sconce_base::words::WordError,
    },
    /// No line has anything.
    #[error("{} has no line with words for a run", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Too many lines.
    #[error("{} has more than {MAX_ELEMENTS} runs", path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
    },
    /// An index beyond the file's end.
    #[error("{} has {lines} runs, 0 to {}, and none with index {index}", path.display(), lines - 1)]
    NoLine {
        /// The file.
        path: PathBuf,
        /// Its runs.
        lines: usize,
        /// The index.
        index: u32,
    },
    /// A limit on nothing.
    #[error("a limit of how many run at once, and no array")]
    NoArray,
    /// Two limits that are not the same.
    #[error("`--array` lets {of_array} run at once (`%{of_array}`), and `--at-once` {at_once}")]
    TwoLimits {
        /// The array's.
        of_array: u32,
        /// The other one.
        at_once: u32,
    },
}

impl Hint for SweepError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Line { .. } | Self::Empty { .. } => {
                "each line has the words that one run's command has beside: `--lr 0.1 --seed 1`"
                    .to_owned()
            }
            Self::TooMany { .. } => "split it into several files".to_owned(),
            Self::NoLine { .. } => "lines that are empty or begin with `#` do not count".to_owned(),
            Self::TwoLimits { .. } => "say it once".to_owned(),
            Self::NoArray => "`--array 0-7` or `--sweep FILE` says what there is of".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

impl ArrayOptions {
    /// The array that is wanted, with its file read; `None` where none is.
    ///
    /// # Errors
    /// The file is no sweep, or has no such line.
    pub(super) fn read(&self) -> Result<Option<JobArray>> {
        let array = match &self.sweep {
            Some(path) => Some(self.read_sweep(path)?),
            None => self.array.clone(),
        };
        match (array, self.at_once) {
            (None, Some(_)) => Err(SweepError::NoArray.into()),
            (Some(array), Some(at_once)) if array.at_once.is_some_and(|own| own != at_once) => {
                Err(SweepError::TwoLimits {
                    of_array: array.at_once.unwrap_or_default(),
                    at_once,
                }
                .into())
            }
            (Some(array), Some(_)) => Ok(Some(JobArray {
                at_once: self.at_once,
                ..array
            })),
            (array, None) => Ok(array),
        }
    }

    fn read_sweep(&self, path: &Path) -> Result<JobArray> {
        let text = input::read_text(path).map_err(AppError::unreadable(path))?;
        let lines = parse_sweep(path, &text)?;
        let Some(wanted) = &self.array else {
            let indices = (0..).take(lines.len()).collect();
            return Ok(JobArray {
                indices,
                at_once: None,
                arguments: lines,
            });
        };
        let line = |index: &u32| {
            let line = lines
                .get(usize::try_from(*index).unwrap_or(usize::MAX))
                .cloned();
            line.ok_or_else(|| SweepError::NoLine {
                path: path.to_owned(),
                lines: lines.len(),
                index: *index,
            })
        };
        let arguments = wanted
            .indices
            .iter()
            .map(line)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(JobArray {
            arguments,
            ..wanted.clone()
        })
    }
}

/// What is said of words of a command that look as if a sweep's were to be put into them; `None` where there are none, or
/// the array is no sweep.
pub(super) fn describe_unused(array: &JobArray, command: &[String]) -> Option<String> {
    let is_sweep = !array.arguments.is_empty();
    let word = command
        .iter()
        .find(|word| is_sweep && has_name_in_braces(word))?;
    let place = match command.iter().any(|word| word == PLACEHOLDER) {
        true => "where the command says `{}`",
        false => "at the command's end",
    };
    Some(format!(
        "`{word}` stays as it is: a line's words stand {place}, and `{{}}` is a word of its own"
    ))
}

/// Whether a word has `{}` or `{name}` beside other characters, and is no text of a program.
fn has_name_in_braces(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_text = word.contains(|c: char| c.is_whitespace() || matches!(c, '$' | '"'));
    let mut inner = word
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}'));
    word != PLACEHOLDER && !is_text && inner.any(|(name, _)| name.chars().all(is_part))
}

/// The words of each run, one a line; empty lines and those that begin with `#` are none.
fn parse_sweep(path: &Path, text: &str) -> Result<Vec<Vec<String>>, SweepError> {
    // A file of Windows' may begin with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let path = || path.to_owned();
    let mut runs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = split_words(line).map_err(|source| SweepError::Line {
            path: path(),
            line: at + 1,
            source,
        })?;
        if runs.len() == MAX_ELEMENTS {
            return Err(SweepError::TooMany { path: path() });
        }
        runs.push(words);
    }
    match runs.is_empty() {
        true => Err(SweepError::Empty { path: path() }),
        false => Ok(runs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Vec<String>>, String> {
        parse_sweep(Path::new("sweep.txt"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_is_a_run() {
        let runs =
            parse("# learning rates\n--lr 0.1\r\n\n  --lr 0.01 --note 'two words'\n").unwrap();
        assert_eq!(
            runs,
            [
                vec!["--lr", "0.1"],
                vec!["--lr", "0.01", "--note", "two words"]
            ]
        );
        let of_windows = parse("\u{feff}# a note\r\n--lr 0.1\r\n").unwrap();
        assert_eq!(of_windows, [["--lr", "0.1"]]);
        assert_eq!(parse("\u{feff}--lr 1\n").unwrap(), [["--lr", "1"]]);
        assert_eq!(
            parse("--lr 'a\n").unwrap_err(),
            // What is wrong with it is its source.
            "sweep.txt, line 1"
        );
        assert!(parse("\n# none\n").unwrap_err().contains("has no line"));
        let many = "x\n".repeat(MAX_ELEMENTS + 1);
        assert!(parse(&many).unwrap_err().contains("more than 10000"));
    }

    #[test]
    fn braces_that_nothing_is_put_into_are_said() {
        let array = |arguments: &[&str]| JobArray {
            arguments: arguments
                .iter()
                .map(|word| vec![(*word).to_owned()])
                .collect(),
            ..JobArray::parse("0").unwrap()
        };
        let say = |sweep: bool, command: &str| {
            let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
            describe_unused(&array(if sweep { &["a"] } else { &[] }), &command)
        };
        for word in ["--out=run-{}", "{lr}", "a{x}b{}"] {
            let said = say(true, &format!("train {word}")).unwrap();
            assert!(
                said.contains(&format!("`{word}` stays")) && said.contains("end"),
                "{said}"
            );
        }
        let said = say(true, "train {} --out={}").unwrap();
        assert!(said.contains("where the command says `{}`"), "{said}");
        for command in [
            "train {}",
            "train --a={\"b\":1}",
            "sh ${x}",
            "train {a,b}",
            "train a}b{",
        ] {
            assert_eq!(say(true, command), None, "{command}");
        }
        assert_eq!(say(false, "train {lr}"), None);
    }

    #[test]
    fn both_limits_of_an_array_have_to_agree() {
        let read = |text: &str, at_once| {
            let options = ArrayOptions {
                array: Some(JobArray::parse(text).unwrap()),
                sweep: None,
                at_once: Some(at_once),
            };
            options.read().map_err(|failure| failure.message())
        };
        assert_eq!(read("0-7%2", 2).unwrap().unwrap().at_once, Some(2));
        let said = read("0-7%2", 3).unwrap_err();
        assert!(
            said.contains("`%2`") && said.contains("`--at-once` 3"),
            "{said}"
        );
    }

    #[test]
    fn some_lines_are_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweep.txt");
        std::fs::write(&path, "a\nb\nc\n").unwrap();
        let read = |array: Option<&str>, sweep: bool, at_once| {
            let options = ArrayOptions {
                array: array.map(|text| JobArray::parse(text).unwrap()),
                sweep: sweep.then(|| path.clone()),
                at_once,
            };
            options.read().map_err(|failure| failure.message())
        };
        let all = read(None, true, Some(2)).unwrap().unwrap();
        assert_eq!((all.indices.len(), all.at_once), (3, Some(2)));
        let some = read(Some("0,2%1"), true, None).unwrap().unwrap();
        assert_eq!((&*some.indices, some.at_once), (&[0, 2][..], Some(1)));
        assert_eq!(some.arguments, [["a"], ["c"]]);
        assert!(
            read(Some("3"), true, None)
                .unwrap_err()
                .contains("none with index 3")
        );
        assert!(read(None, false, Some(2)).is_err());
        assert_eq!(read(None, false, None).unwrap(), None);
    }
}
