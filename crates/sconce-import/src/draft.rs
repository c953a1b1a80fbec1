//! A spec in the making, with its notes.

use std::collections::BTreeSet;

use sconce_formats::normalize_project_name;
use sconce_formats::torch_builds::find_plain_build;
use sconce_schema::Spec;

use super::note::{ImportNote, NoteKind, redacted_line};
use super::release::{BaseRelease, PYTHONS};
use super::requirement::{self, FOLDER, LOGIN, Requirement, note_isolation};
use super::specifier::evaluate_specifiers;
use super::{ImportedSpec, torch_builds};
use sconce_base::text::redact_url_credentials;

/// No file that a person reads has more to say.
const MAX_NOTES: usize = 400;
/// The most requirements and variables each.
const MAX_REQUIREMENTS_OR_VARIABLES: usize = 5000;
/// The most folders of projects.
const MAX_EDITABLE: usize = 50;
/// The most Debian packages.
const MAX_SYSTEM_PACKAGES: usize = 1000;

pub(super) const EXTRA_INDEX: &str = "a package comes from the first index that has it, and these \
     are asked before the machine's own";
const SECRET: &str =
    "it looks like a secret, and the spec is shared: pass it from the shell with `-e NAME`";
const TOO_MANY: &str = "beyond what is read";
/// Of the main index's torch since 2.3.
const CUDA_OF_WHEELS: &str = "12";
const OUT_OF_REACH: &str = "out of reach";

/// A spec in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) spec: Spec,
    notes: Vec<ImportNote>,
    unsaid: usize,
    requirements: Vec<Requirement>,
    /// Of the requirements.
    names: BTreeSet<String>,
    /// The file that the spec refers to names indexes itself.
    pub(super) indexed: bool,
    /// A CUDA that is asked for besides torch.
    cuda: Option<CudaRequest>,
    /// Packages that no index is known to have, normalised.
    unknown: BTreeSet<String>,
    offers: Vec<(Option<usize>, Requirement)>,
    /// Projects that come with folders, normalised.
    brought: BTreeSet<String>,
    /// The major version of CUDA that wheels are taken for; none where nothing names one.
    cuda_of_wheels: Option<String>,
}

/// A CUDA that a file asks for besides torch.
#[derive(Debug)]
struct CudaRequest {
    line: Option<usize>,
    /// As written.
    text: String,
    /// `11.3`
    version: String,
    /// What to say where nothing is known of torch.
    otherwise: &'static str,
}

impl Draft {
    pub(super) fn note_decision(
        &mut self,
        line: impl Into<Option<usize>>,
        what: &str,
        why: String,
    ) {
        self.note(ImportNote::new(NoteKind::Decided, line.into(), what, why));
    }

    pub(super) fn left_out(
        &mut self,
        line: impl Into<Option<usize>>,
        what: &str,
        why: impl Into<String>,
    ) {
        self.note(ImportNote::new(
            NoteKind::LeftOut,
            line.into(),
            what,
            why.into(),
        ));
    }

    /// A package that is asked for by a name that no index is known to have.
    pub(super) fn note_unknown(&mut self, name: &str) {
        self.unknown.extend(normalize_project_name(name));
    }

    /// Those of [`Self::note_unknown`], but for what an offer stands for.
    pub(super) fn unknown_names(&self) -> impl Iterator<Item = &str> {
        let names = self.unknown.iter().map(String::as_str);
        names.filter(|name| self.offers().all(|offer| offer.name != *name))
    }

    /// A project that a folder or a file of this machine brings.
    pub(super) fn bring(&mut self, name: &str) {
        if self.brought.len() < MAX_REQUIREMENTS_OR_VARIABLES {
            self.brought.extend(normalize_project_name(name));
        }
    }

    fn note(&mut self, note: ImportNote) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        } else {
            self.unsaid += 1;
        }
    }

    /// The name, where the source has a usable one.
    pub(super) fn set_name(&mut self, text: &str) {
        let fit = |c: char| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        };
        let name: String = text.trim().chars().take(63).map(fit).collect();
        let name = name.trim_start_matches(['.', '_', '-']);
        if !name.is_empty() {
            self.spec.name = Some(name.to_owned());
        }
    }

    /// Requirements that one place names. A later place replaces what an earlier one said of a
    /// project, as a later `pip install` does; one place may name a project twice, with markers.
    /// A package of which only the sources are to be had, as a requirement by their address: for where the code
    /// imports it, since building it can take long.
    pub(super) fn offer(&mut self, line: Option<usize>, text: &str) {
        if let Ok(requirement) = requirement::parse(text) {
            self.offers.push((line, requirement));
        }
    }

    /// What [`Draft::offer`] was told.
    pub(super) fn offers(&self) -> impl Iterator<Item = &Requirement> {
        self.offers.iter().map(|(_, requirement)| requirement)
    }

    pub(super) fn add_requirements(&mut self, line: Option<usize>, batch: Vec<Requirement>) {
        let replaced: BTreeSet<&str> = batch
            .iter()
            .filter(|new| new.versioned && self.names.contains(&new.name))
            .map(|new| new.name.as_str())
            .collect();
        if !replaced.is_empty() {
            let old = |new: &Requirement| {
                let mut known = self.requirements.iter();
                let old = known.find(|old| old.name == new.name)?;
                (old.text != new.text).then(|| (new.text.clone(), redacted_line(&old.text)))
            };
            let taken: Vec<_> = batch.iter().filter_map(old).collect();
            for (new, old) in taken {
                self.note_decision(line, &new, format!("takes the place of {old}"));
            }
            self.requirements
                .retain(|old| !replaced.contains(old.name.as_str()));
            self.names.retain(|name| !replaced.contains(name.as_str()));
        }
        let mut here = BTreeSet::new();
        let mut names = Vec::new();
        for new in batch {
            note_isolation(&new, &mut self.spec);
            if new.had_login {
                self.note_decision(line, &new.text, LOGIN.to_owned());
            }
            if self.names.contains(&new.name) || !here.insert(new.text.clone()) {
                continue;
            }
            if self.requirements.len() >= MAX_REQUIREMENTS_OR_VARIABLES {
                self.left_out(line, &new.text, TOO_MANY);
            } else {
                names.push(new.name.clone());
                self.requirements.push(new);
            }
        }
        self.names.extend(names);
    }

    /// What is required so far.
    pub(super) fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// A folder of a project, `.`, `./lib[gpu]`: its dependencies come with it.
    pub(super) fn add_editable(&mut self, line: Option<usize>, text: &str) {
        let (path, extras) = match text.split_once('[') {
            Some((path, extras)) => (path, format!("[{}", extras.trim())),
            None => (text, String::new()),
        };
        let path = path.trim();
        let folder = match path.trim_end_matches('/') {
            "." | "" => Some(".".to_owned()),
            path => super::inside(path),
        };
        let named = folder.map(|folder| format!("{folder}{extras}"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-[], ".contains(c);
        let usable = named.filter(|named| {
            let closed = extras.is_empty() || extras.ends_with(']');
            closed && !path.is_empty() && !named.starts_with('-') && named.chars().all(plain)
        });
        let Some(named) = usable.filter(|named| is_spec_folder(named)) else {
            self.left_out(line, text, FOLDER);
            return;
        };
        let folder = |named: &str| named.split('[').next().map(str::to_owned);
        let known = &mut self.spec.python.editable;
        let same = known
            .iter()
            .position(|known| folder(known) == folder(&named));
        match same {
            // The one with extras says more.
            Some(at) if known[at].len() < named.len() => known[at] = named,
            Some(_) => {}
            None if known.len() < MAX_EDITABLE => known.push(named),
            None => self.left_out(line, text, TOO_MANY),
        }
    }

    /// Debian packages.
    pub(super) fn add_system_package(&mut self, line: Option<usize>, name: &str) {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"+-.".contains(&b);
        let packages = &mut self.spec.system.packages;
        if name.len() < 2 || !name.bytes().all(plain) {
            self.left_out(line, name, "not the name of a Debian package");
        } else if packages.len() >= MAX_SYSTEM_PACKAGES {
            self.left_out(line, name, TOO_MANY);
        } else if !packages.iter().any(|known| known == name) {
            packages.push(name.to_owned());
        }
    }

    /// A variable of the run.
    pub(super) fn add_variable(&mut self, line: Option<usize>, name: &str, value: &str) {
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let env = &mut self.spec.run.env;
        if !begins || !name.bytes().all(plain) || value.contains('\0') {
            self.left_out(line, name, "not a variable's name");
        } else if is_secret(name) {
            self.left_out(line, name, SECRET);
        } else if env.len() >= MAX_REQUIREMENTS_OR_VARIABLES {
            self.left_out(line, name, TOO_MANY);
        } else {
            env.insert(name.to_owned(), value.to_owned());
        }
    }

    /// An index to ask beside the others.
    pub(super) fn extra_index(&mut self, line: Option<usize>, url: &str) {
        let Some(clean) = self.clean_index(line, url) else {
            return;
        };
        let known = &mut self.spec.python.extra_index;
        if !known.contains(&clean) && known.len() < 20 {
            known.push(clean.clone());
            self.note_decision(line, &clean, EXTRA_INDEX.to_owned());
        }
    }

    /// A CUDA that the source asks for besides torch: what that means is known with torch's version. The first counts.
    pub(super) fn request_cuda(
        &mut self,
        line: Option<usize>,
        text: &str,
        version: &str,
        otherwise: &'static str,
    ) {
        self.cuda.get_or_insert_with(|| CudaRequest {
            line,
            text: text.to_owned(),
            version: version.to_owned(),
            otherwise,
        });
    }

    /// The major version of the CUDA that wheels of NVIDIA's libraries are for.
    pub(super) fn set_cuda_of_wheels(&mut self, major: &str) {
        self.cuda_of_wheels = Some(major.to_owned());
    }

    /// The project with the wheel for that CUDA of a library of which there is one for each: `cudf-cu12`.
    pub(super) fn cuda_wheel(&self, library: &str) -> String {
        let major = self.cuda_of_wheels.as_deref().unwrap_or(CUDA_OF_WHEELS);
        format!("{library}-cu{major}")
    }

    /// Says what became of the CUDA that is asked for.
    fn note_cuda(&mut self) {
        let Some(cuda) = self.cuda.take() else {
            return;
        };
        let torch = self.requirements.iter().find(|r| r.name == "torch");
        let pin = torch.and_then(|torch| torch.pinned_version());
        let (line, text) = (cuda.line, cuda.text.as_str());
        let plain = pin.and_then(find_plain_build);
        match (pin, plain) {
            (Some(pin), Some(plain)) => {
                match torch_builds::explain_other_build(pin, &cuda.version) {
                    Some(why) => self.left_out(line, text, why),
                    None => {
                        let why =
                            format!("torch {pin} of the main index is built for it ({plain})");
                        self.note_decision(line, text, why);
                    }
                }
            }
            _ => self.left_out(line, text, cuda.otherwise),
        }
    }

    /// The index to ask instead of the machine's own.
    pub(super) fn set_index(&mut self, line: Option<usize>, url: &str) {
        if let Some(clean) = self.clean_index(line, url) {
            self.spec.python.index = Some(clean);
        }
    }

    fn clean_index(&mut self, line: Option<usize>, url: &str) -> Option<String> {
        let known = ["https://", "http://", "file://"]
            .iter()
            .any(|scheme| url.starts_with(scheme));
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '$';
        if !known || url.contains(odd) || url.len() > 2000 {
            self.left_out(line, url, "not an index's address that is understood");
            return None;
        }
        let clean = redact_url_credentials(url);
        if clean != url {
            self.note_decision(line, &clean, LOGIN.to_owned());
        }
        Some(clean)
    }

    /// The Python that the source names, `3.10` or `3.11.8`.
    pub(super) fn set_python(&mut self, line: Option<usize>, version: &str) {
        match BaseRelease::with_python(version) {
            Some(release) => self.set_release(release),
            None => {
                let why = format!("{OUT_OF_REACH}: {PYTHONS}; so it is left out");
                self.left_out(line, &format!("Python {version}"), why);
            }
        }
    }

    /// The Pythons that the source allows, as specifiers, where `lock` does not read them itself. Silent where
    /// they do not end below the newest.
    pub(super) fn requires_python(&mut self, line: Option<usize>, specifiers: &str) {
        let what = format!("Python {specifiers}");
        match BaseRelease::newest_that_meets(specifiers) {
            // What is newer than all is met too, so `lock` chooses.
            Ok(Some(_)) if evaluate_specifiers(&[3, 99], specifiers) == Some(true) => {}
            Ok(Some(_)) => {
                let why = "`lock` takes the newest of them that everything resolves for";
                self.note_decision(line, &what, why.to_owned());
                self.spec.python.version = Some(specifiers.trim().to_owned());
            }
            Ok(None) => {
                let why = format!("{OUT_OF_REACH}: {PYTHONS}; so it is left out");
                self.left_out(line, &what, why);
            }
            Err(()) => self.left_out(line, &what, "not understood"),
        }
    }

    /// This release and its Python.
    pub(super) fn set_release(&mut self, release: &BaseRelease) {
        self.spec.system.release = release.name.to_owned();
        self.spec.python.version = Some(release.python.to_owned());
    }

    /// The spec, with `[python] packages`.
    pub(super) fn finish(mut self) -> ImportedSpec {
        self.drop_plain_build();
        let packages = self.requirements.iter().map(|r| r.text.clone());
        self.spec.python.packages = packages.collect();
        self.end()
    }

    /// Goes without an index of torch's builds where the main index has the build.
    pub(super) fn drop_plain_build(&mut self) {
        let python = &self.spec.python;
        let mut needed = python.extra_index.clone();
        needed.extend(python.index.clone());
        for (what, why) in torch_builds::drop_plain_build(&mut self.requirements, &mut needed) {
            self.note_decision(None, &what, why);
        }
        let python = &mut self.spec.python;
        python.extra_index.retain(|url| needed.contains(url));
        python.index.take_if(|url| !needed.contains(url));
    }

    /// The spec, with `[python]` as it is: the requirements stand in a file that it names.
    pub(super) fn finish_referring(self) -> ImportedSpec {
        self.end()
    }

    fn end(mut self) -> ImportedSpec {
        self.note_cuda();
        self.note_torch_index();
        if self.unsaid > 0 {
            let more = format!("{} more", self.unsaid);
            self.notes.push(ImportNote::new(
                NoteKind::LeftOut,
                None,
                &more,
                "too many to say".to_owned(),
            ));
        }
        ImportedSpec {
            spec: self.spec,
            notes: self.notes,
            provided: (self.requirements.into_iter().map(|r| r.name))
                .chain(self.brought)
                .collect(),
            origins: Vec::new(),
            unknown: self.unknown,
            offers: self.offers,
            unprovided: Vec::new(),
        }
    }

    /// The index that torch's own version asks for.
    fn note_torch_index(&mut self) {
        let torch = self.requirements.iter().find(|r| r.name == "torch");
        let Some(pin) = torch
            .and_then(|torch| torch.pinned_version())
            .map(str::to_owned)
        else {
            return;
        };
        let python = &self.spec.python;
        let index = self.indexed || python.index.is_some() || !python.extra_index.is_empty();
        if let Some((_, local)) = pin.split_once('+')
            && !index
            && find_plain_build(&pin).as_deref() != Some(local)
        {
            let why = format!(
                "`+{local}` is on PyTorch's own index alone: add its address, which ends in /whl/{local}, as `[python] extra-index`"
            );
            self.note_decision(None, &format!("torch {pin}"), why);
        }
    }
}

/// Whether a spec can name the folder: its own rules decide.
fn is_spec_folder(named: &str) -> bool {
    let mut spec = Spec::default();
    spec.python.editable = vec![named.to_owned()];
    Spec::parse(&spec.to_text()).is_ok()
}

/// Whether a spec can name the extra: its own rules decide.
pub(super) fn is_spec_name(extra: &str) -> bool {
    let mut spec = Spec::default();
    spec.python.editable = vec![".".to_owned()];
    spec.python.extras = vec![extra.to_owned()];
    Spec::parse(&spec.to_text()).is_ok()
}

/// By its name.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "ACCESS_KEY",
        "SECRET_KEY",
    ];
    ends.iter().any(|end| name.ends_with(end))
}
