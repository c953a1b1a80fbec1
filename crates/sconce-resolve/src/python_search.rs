//! Which Python an environment gets where its spec names none: the release's own where everything
//! resolves for it, else the next lower one that does. No index is asked beforehand: uv says what has
//! no wheels, and sometimes for which Pythons there are some.

use std::ops::ControlFlow;

use sconce_formats::tags::{CpuArchitecture, WheelTarget};
use sconce_schema::Progress;
use sconce_schema::lock::StandalonePython;
use tracing::info;

use crate::ResolveError;
use crate::python::compile_error::CompileError;
use crate::python::download_table::{DownloadTable, DownloadTableError};
use crate::python::downloads::{HIGHEST_MINOR, LOWEST_MINOR};
use crate::python::obstacle::PythonObstacle;
use crate::python::python_bounds::PythonBound;

/// A Python that packages may be resolved for, and the release that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CandidatePython {
    /// 13 for 3.13.
    pub(crate) minor: u32,
    /// As uv takes it, `3.13.5`.
    pub(crate) full: String,
    /// `debian/trixie`.
    pub(crate) release: String,
    /// glibc's minor version.
    pub(crate) glibc_minor: u32,
    /// Where it is none of the release's.
    pub(crate) standalone: Option<StandalonePython>,
}

impl CandidatePython {
    /// What its wheels have to run on.
    pub(crate) fn wheel_target(&self, machine: CpuArchitecture) -> WheelTarget {
        WheelTarget {
            python_minor: self.minor,
            glibc_minor: self.glibc_minor,
            machine,
        }
    }
}

/// The Python of a release: its minor version, its full one, and glibc's minor version.
const OF_RELEASES: [(&str, u32, &str, u32); 2] = [
    ("debian/trixie", 13, "3.13.5", 41),
    ("debian/bookworm", 11, "3.11.2", 36),
];

/// The release that has this Python.
pub(crate) fn release_with(minor: u32) -> Option<&'static str> {
    let found = OF_RELEASES.iter().find(|(_, of, ..)| *of == minor);
    found.map(|(release, ..)| *release)
}

/// The minor version of a release's own Python.
pub(crate) fn python_of(release: &str) -> Option<u32> {
    let found = OF_RELEASES.iter().find(|(name, ..)| *name == release);
    found.map(|(_, minor, ..)| *minor)
}

/// The minor version that bounds allow: `first`, else the nearest lower one, else the nearest higher one.
///
/// # Errors
/// They allow none.
pub(crate) fn nearest_allowed(first: u32, bounds: &[PythonBound]) -> Result<u32, ResolveError> {
    let lower = (LOWEST_MINOR..=first).rev();
    let mut all = lower.chain(first + 1..=HIGHEST_MINOR);
    all.find(|minor| bounds.iter().all(|bound| bound.allows(*minor)))
        .ok_or_else(|| ResolveError::PythonBound {
            file: bounds[0].file.clone(),
            said: said(bounds),
        })
}

/// Looks for a Python.
pub(crate) struct PythonSearch<'a> {
    /// Whether another Python than the first may be taken.
    pub(crate) is_open: bool,
    /// Whether another release may.
    pub(crate) is_release_open: bool,
    /// The minor version of the lock that is replaced, where its versions are to stay.
    pub(crate) kept: Option<u32>,
    /// What projects say.
    pub(crate) bounds: Vec<PythonBound>,
    /// Standalone ones.
    pub(crate) table: &'a DownloadTable<'a>,
    /// Whether a standalone one can be had from here.
    pub(crate) can_fetch: &'a dyn Fn(&StandalonePython) -> bool,
}

/// A Python for which nothing resolved.
struct FailedAttempt {
    minor: u32,
    obstacle: Option<PythonObstacle>,
    error: CompileError,
}

impl<'a> PythonSearch<'a> {
    /// The same with other bounds.
    pub(crate) fn with_bounds(&self, bounds: Vec<PythonBound>) -> PythonSearch<'a> {
        PythonSearch { bounds, ..*self }
    }

    /// Takes the first Python for which `attempt` succeeds, and says which one and why where that is
    /// not `first`.
    ///
    /// # Errors
    /// That of the attempt that got furthest, with what was tried.
    pub(crate) fn find<T>(
        &self,
        first: &CandidatePython,
        progress: &dyn Progress,
        mut attempt: impl FnMut(&CandidatePython) -> Result<T, CompileError>,
    ) -> Result<(CandidatePython, T), ResolveError> {
        if !self.is_open {
            return Ok((first.clone(), attempt(first)?));
        }
        if let Some(kept) = self.find_kept(first, &mut attempt) {
            return Ok(kept);
        }
        let mut failed: Vec<FailedAttempt> = Vec::new();
        let mut without_table = None;
        let mut untried = Vec::new();
        let mut next = self.begin(first.minor)?;
        let mut is_upward = next > first.minor;
        let mut out_of_reach: Option<(CandidatePython, T, String)> = None;
        loop {
            match self.candidate(next, first) {
                Ok(Some(candidate)) if out_of_reach.is_some() && !self.is_here(&candidate) => {
                    untried.push(next);
                }
                Ok(Some(candidate)) => match attempt(&candidate) {
                    Ok(found) if !self.is_here(&candidate) => {
                        let reason = reason(&failed, &untried, candidate.minor, &self.bounds);
                        let note = format!("{}: {reason}", describe(&candidate));
                        out_of_reach.get_or_insert((candidate, found, note));
                        untried.push(next);
                    }
                    Ok(found) => {
                        if let Some((newer, ..)) = &out_of_reach {
                            progress.note(&format!(
                                "{} would do as well, and cannot be fetched from here",
                                describe(newer)
                            ));
                        }
                        if candidate != *first {
                            let reason = reason(&failed, &untried, candidate.minor, &self.bounds);
                            let note = format!("{}: {reason}", describe(&candidate));
                            info!(note, "another Python than the release's");
                            progress.note(&note);
                        }
                        return Ok((candidate, found));
                    }
                    Err(error) => failed.push(FailedAttempt {
                        minor: next,
                        obstacle: PythonObstacle::of_error(&error),
                        error,
                    }),
                },
                Ok(None) => untried.push(next),
                Err(error) => {
                    untried.push(next);
                    without_table = Some(error);
                }
            }
            match self.following(next, first.minor, &failed, &mut is_upward) {
                ControlFlow::Continue(minor) => next = minor,
                ControlFlow::Break(()) => break,
            }
        }
        if let Some((candidate, found, note)) = out_of_reach {
            progress.note(&note);
            return Ok((candidate, found));
        }
        match (failed.is_empty(), without_table) {
            (true, Some(error)) => Err(error.into()),
            // Without bounds the release's own would have been tried.
            (true, None) => Err(ResolveError::UnknownPython {
                said: said(&self.bounds),
                release: first.release.clone(),
                has: format!("3.{}", first.minor),
                standalone: self.table.list_versions().unwrap_or_default(),
            }),
            (_, without_table) => {
                if let Some(error) = without_table {
                    progress.note(&format!("standalone Pythons were not tried: {error}"));
                }
                Err(furthest(failed, &untried))
            }
        }
    }

    /// Whether it can be had from here.
    pub(crate) fn is_here(&self, candidate: &CandidatePython) -> bool {
        candidate.standalone.as_ref().is_none_or(self.can_fetch)
    }

    /// The Python of the lock that is replaced, where all resolves for it still.
    fn find_kept<T>(
        &self,
        first: &CandidatePython,
        attempt: &mut impl FnMut(&CandidatePython) -> Result<T, CompileError>,
    ) -> Option<(CandidatePython, T)> {
        let kept = self.kept.filter(|minor| self.allows(*minor))?;
        let candidate = self.candidate(kept, first).ok()??;
        let found = attempt(&candidate).ok()?;
        Some((candidate, found))
    }

    /// The minor version to begin with: that of the release, or the nearest that projects allow.
    fn begin(&self, first: u32) -> Result<u32, ResolveError> {
        nearest_allowed(first, &self.bounds)
    }

    /// Whether projects allow a Python.
    pub(crate) fn allows(&self, minor: u32) -> bool {
        self.bounds.iter().all(|bound| bound.allows(minor))
    }

    /// What to try after `minor`: lower ones, unless the first attempt wanted a higher one.
    fn following(
        &self,
        minor: u32,
        first: u32,
        failed: &[FailedAttempt],
        is_upward: &mut bool,
    ) -> ControlFlow<(), u32> {
        let mut wanted: &[u32] = &[];
        if let Some(last) = failed.last().filter(|last| last.minor == minor) {
            match &last.obstacle {
                None => return ControlFlow::Break(()),
                Some(PythonObstacle::TooOld { .. }) if minor < first => {
                    return ControlFlow::Break(());
                }
                Some(PythonObstacle::TooOld { .. }) => *is_upward = true,
                Some(PythonObstacle::TooNew { .. }) if minor > first => {
                    return ControlFlow::Break(());
                }
                Some(PythonObstacle::TooNew { .. }) => {}
                Some(PythonObstacle::NoWheels { minors, .. }) => {
                    let is_newer = !minors.is_empty() && minors.iter().all(|has| *has > minor);
                    *is_upward |= is_newer && minor >= first;
                    wanted = minors;
                }
            }
        }
        let lower = (LOWEST_MINOR..minor).rev();
        let higher = minor + 1..=HIGHEST_MINOR;
        let all: Vec<u32> = match is_upward {
            true => higher.collect(),
            false => lower.collect(),
        };
        let mut allowed = all.into_iter().filter(|minor| self.allows(*minor));
        let known = allowed.clone().find(|minor| wanted.contains(minor));
        match known.or_else(|| allowed.next()) {
            Some(next) => ControlFlow::Continue(next),
            None => ControlFlow::Break(()),
        }
    }

    /// The Python `3.minor`; `None` where there is none.
    fn candidate(
        &self,
        minor: u32,
        first: &CandidatePython,
    ) -> Result<Option<CandidatePython>, DownloadTableError> {
        if minor == first.minor {
            return Ok(Some(first.clone()));
        }
        let mut known = OF_RELEASES.iter().filter(|_| self.is_release_open);
        if let Some((release, _, full, glibc_minor)) = known.find(|(_, of, ..)| *of == minor) {
            return Ok(Some(CandidatePython {
                minor,
                full: (*full).to_owned(),
                release: (*release).to_owned(),
                glibc_minor: *glibc_minor,
                standalone: None,
            }));
        }
        let python = self.table.newest(minor)?;
        Ok(python.map(|python| CandidatePython {
            minor,
            full: python.version.clone(),
            standalone: Some(python),
            ..first.clone()
        }))
    }
}

/// `Python 3.10.13, standalone`, `Python 3.11 of debian/bookworm`.
fn describe(candidate: &CandidatePython) -> String {
    match &candidate.standalone {
        Some(python) => format!("Python {}, standalone", python.version),
        None => format!("Python 3.{} of {}", candidate.minor, candidate.release),
    }
}

/// Why no Python before `taken` would do: `torch==1.13.1 has no wheels for 3.13 or 3.12`.
fn reason(failed: &[FailedAttempt], untried: &[u32], taken: u32, bounds: &[PythonBound]) -> String {
    let mut reasons: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(one) = failed.get(at) {
        let Some(obstacle) = &one.obstacle else { break };
        let same = failed[at..].iter().take_while(|other| {
            other.obstacle.as_ref().map(PythonObstacle::pin) == Some(obstacle.pin())
        });
        let count = same.count();
        let last = failed.get(at + count).map_or(taken, |next| next.minor);
        // What was passed over has none either.
        let mut minors: Vec<u32> = match last < one.minor {
            true => (last + 1..=one.minor).rev().collect(),
            false => (one.minor..last).collect(),
        };
        minors.retain(|minor| !untried.contains(minor));
        let of = list_minors(&minors);
        reasons.push(match obstacle {
            PythonObstacle::NoWheels { pin, .. } => format!("{pin} has no wheels for {of}"),
            PythonObstacle::TooOld { pin } => format!("{pin} wants a newer one than {of}"),
            PythonObstacle::TooNew { pin } => format!("{pin} wants an older one than {of}"),
        });
        at += count;
    }
    if reasons.is_empty() {
        return said(bounds);
    }
    reasons.join("; ")
}

/// `pyproject.toml asks for >=3.8,<3.11`.
fn said(bounds: &[PythonBound]) -> String {
    let said: Vec<String> = bounds.iter().map(PythonBound::describe).collect();
    said.join(", ")
}

/// `3.13, 3.12 or 3.11`.
fn list_minors(minors: &[u32]) -> String {
    let names: Vec<String> = minors.iter().map(|minor| format!("3.{minor}")).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.join(""),
    }
}

/// The error to tell: of the newest Python from which on all fail for one and the same reason. There
/// another Python does not help any more.
fn furthest(mut failed: Vec<FailedAttempt>, untried: &[u32]) -> ResolveError {
    let is_too_old =
        |one: &FailedAttempt| matches!(one.obstacle, Some(PythonObstacle::TooOld { .. }));
    // A lowest Python that is too old for something says nothing of the others.
    let tried: Vec<u32> = failed.iter().map(|one| one.minor).collect();
    while failed.len() > 1 && failed.last().is_some_and(is_too_old) {
        failed.pop();
    }
    let pin = |one: &FailedAttempt| one.obstacle.as_ref().map(|it| it.pin().to_owned());
    let last = failed.last().and_then(pin);
    let at = failed.iter().rposition(|one| pin(one) != last);
    let at = at.map_or(0, |at| at + 1);
    let minor = failed[at].minor;
    // What keeps the newer ones out is as likely what is to be loosened.
    let before = match reason(&failed[..at], untried, minor, &[]) {
        none if none.is_empty() => none,
        reason => format!(" ({reason})"),
    };
    let best = failed.swap_remove(at);
    match tried.len() {
        1 => best.error.into(),
        _ => ResolveError::NoPython {
            tried: list_minors(&tried),
            before,
            best: format!("3.{}", best.minor),
            source: Box::new(best.error),
        },
    }
}

#[cfg(test)]
#[path = "python_search_tests.rs"]
mod tests;
