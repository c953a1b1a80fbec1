//! The version that a setup.py takes from a file of its project, by whatever means: a regular expression over a module,
//! a module that is executed or imported, a text file. What `version=` depends on is followed through the file, and
//! nothing is run.

use std::collections::BTreeSet;

use crate::python::{
    ConstantTable, LogicalLine, PythonToken, bracketed, split_commas, split_logical_lines,
};

/// Names that are followed.
const MAX_NAMES: usize = 200;
/// Lines that are looked at, all together.
const MAX_LINES: usize = 2000;
/// Parts of a path.
const MAX_PARTS: usize = 6;
/// What shows that a version is more than what a file says: a commit, a day.
const COMPUTED: [&str; 12] = [
    "subprocess",
    "check_output",
    "Popen",
    "popen",
    "system",
    "git",
    "Repo",
    "datetime",
    "strftime",
    "time",
    "versioneer",
    "bump",
];
/// The same of texts that become a part of it.
const SUFFIXES: [&str; 3] = [".dev", ".post", "nightly"];

/// Where a version may stand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct VersionSources {
    /// Files of the project that are there.
    pub(super) files: BTreeSet<String>,
    /// Modules that something is imported from, or that are imported.
    pub(super) modules: BTreeSet<String>,
}

/// Returns what the `version=` of a setup.py depends on; `None` where it has none, or computes it. `exists` says whether
/// a path below the project's folder is a file.
pub(super) fn find_version_sources(
    text: &str,
    exists: &dyn Fn(&str) -> bool,
) -> Option<VersionSources> {
    let lines = split_logical_lines(text);
    let (table, _) = ConstantTable::read_calls(text, "setup");
    let mut trace = Trace {
        lines: &lines,
        names: BTreeSet::new(),
        taken: BTreeSet::new(),
        open: Vec::new(),
        modules: BTreeSet::new(),
    };
    let expression = lines
        .iter()
        .find_map(|line| version_argument(&line.tokens))?;
    trace.open_names(expression);
    trace.follow();
    let mut followed: Vec<&[PythonToken<'_>]> = vec![expression];
    let taken = trace.taken.iter().map(|at| lines[*at].tokens.as_slice());
    followed.extend(taken);
    if followed.iter().any(|tokens| is_computed(tokens)) {
        return None;
    }
    let mut modules = trace.modules;
    let below = search_path(&lines)
        .flat_map(|folder| {
            modules
                .iter()
                .map(move |module| format!("{folder}.{module}"))
        })
        .collect::<Vec<_>>();
    modules.extend(below);
    Some(VersionSources {
        files: find_paths(&followed, &table, exists),
        modules,
    })
}

/// The expression of `version=` in a line that calls setup().
fn version_argument<'t, 'a>(tokens: &'t [PythonToken<'a>]) -> Option<&'t [PythonToken<'a>]> {
    if tokens.first()?.as_name() == Some("def") {
        return None;
    }
    let is_call =
        |pair: &[PythonToken<'_>]| pair[0].as_name() == Some("setup") && pair[1].is_sign('(');
    let at = tokens.windows(2).position(is_call)?;
    let (arguments, _) = bracketed(&tokens[at + 1..]);
    let mut arguments = split_commas(arguments).into_iter();
    arguments.find_map(|argument| match argument {
        [
            PythonToken::Name("version"),
            PythonToken::Sign('='),
            value @ ..,
        ] => Some(value),
        _ => None,
    })
}

/// The folders that modules are imported from, `sys.path.insert(0, os.path.join(here, 'net'))`.
fn search_path<'t>(lines: &'t [LogicalLine<'_>]) -> impl Iterator<Item = &'t str> {
    let is_it = |line: &&LogicalLine<'_>| {
        let mut names = line.tokens.iter().filter_map(PythonToken::as_name);
        names.next() == Some("sys") && names.next() == Some("path")
    };
    let tokens = lines.iter().filter(is_it).flat_map(|line| &line.tokens);
    tokens.filter_map(|token| match token {
        PythonToken::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

/// The lines that a value depends on.
struct Trace<'t, 'a> {
    lines: &'t [LogicalLine<'a>],
    names: BTreeSet<&'a str>,
    /// Which lines.
    taken: BTreeSet<usize>,
    /// Names that are still to be followed.
    open: Vec<&'a str>,
    modules: BTreeSet<String>,
}

impl<'a> Trace<'_, 'a> {
    fn open_names(&mut self, tokens: &[PythonToken<'a>]) {
        for (at, token) in tokens.iter().enumerate() {
            // An attribute is none of the file's names.
            let is_attribute = at > 0 && tokens[at - 1].is_sign('.');
            let Some(name) = token.as_name().filter(|_| !is_attribute) else {
                continue;
            };
            if self.names.len() < MAX_NAMES && self.names.insert(name) {
                self.open.push(name);
            }
        }
    }

    fn follow(&mut self) {
        while let Some(name) = self.open.pop() {
            let mut is_set = false;
            for at in 0..self.lines.len() {
                let tokens = &self.lines[at].tokens;
                if let Some(module) = imported_module(tokens, name) {
                    self.modules.insert(module);
                    is_set = true;
                } else if defines(tokens, name) {
                    is_set = true;
                    self.take(at);
                    self.take_body(at);
                } else if sets(tokens, name) || executes(tokens) && mentions(tokens, name) {
                    is_set = true;
                    self.take(at);
                }
            }
            // What nothing sets is set by what is executed: `exec(open('net/version.py').read())`.
            if !is_set && name.contains("version") {
                for at in 0..self.lines.len() {
                    if executes(&self.lines[at].tokens) {
                        self.take(at);
                    }
                }
            }
        }
    }

    fn take(&mut self, at: usize) {
        if self.taken.len() < MAX_LINES && self.taken.insert(at) {
            let lines = self.lines;
            self.open_names(&lines[at].tokens);
        }
    }

    /// The lines of a function.
    fn take_body(&mut self, at: usize) {
        let lines = self.lines;
        let indent = lines[at].indent;
        let below = (at + 1..lines.len()).take_while(|next| lines[*next].indent > indent);
        below.for_each(|next| self.take(next));
    }
}

fn mentions(tokens: &[PythonToken<'_>], name: &str) -> bool {
    tokens.iter().any(|token| token.as_name() == Some(name))
}

fn executes(tokens: &[PythonToken<'_>]) -> bool {
    mentions(tokens, "exec") || mentions(tokens, "execfile")
}

fn defines(tokens: &[PythonToken<'_>], name: &str) -> bool {
    matches!(tokens, [PythonToken::Name("def"), PythonToken::Name(of), ..] if *of == name)
}

/// `name = …`, `name: str = …`, `name += …`, `with … as name`, `for name in …`
fn sets(tokens: &[PythonToken<'_>], name: &str) -> bool {
    match tokens {
        [PythonToken::Name(of), PythonToken::Sign('='), next, ..] if *of == name => {
            !next.is_sign('=')
        }
        [PythonToken::Name(of), PythonToken::Sign('+' | ':'), ..] => *of == name,
        [PythonToken::Name("with"), ..] => tokens
            .windows(2)
            .any(|pair| pair[0].as_name() == Some("as") && pair[1].as_name() == Some(name)),
        [PythonToken::Name("for"), PythonToken::Name(of), ..] => *of == name,
        _ => false,
    }
}

/// `from net.version import name`, `import name`
fn imported_module(tokens: &[PythonToken<'_>], name: &str) -> Option<String> {
    let dotted = |tokens: &[PythonToken<'_>]| -> String {
        let parts = tokens.iter().filter_map(PythonToken::as_name);
        parts.collect::<Vec<_>>().join(".")
    };
    match tokens {
        [PythonToken::Name("from"), rest @ ..] => {
            let import = |token: &PythonToken<'_>| token.as_name() == Some("import");
            let at = rest.iter().position(import)?;
            mentions(&rest[at..], name).then(|| dotted(&rest[..at]))
        }
        [PythonToken::Name("import"), PythonToken::Name(module)] => {
            (*module == name).then(|| name.to_owned())
        }
        _ => None,
    }
}

/// Whether something is added to what a file says.
fn is_computed(tokens: &[PythonToken<'_>]) -> bool {
    let is_path = |token: Option<&PythonToken<'_>>| matches!(token, Some(PythonToken::Text(text)) if text.contains('/') || text.ends_with(".py"));
    tokens.iter().enumerate().any(|(at, token)| match token {
        PythonToken::Name(name) => COMPUTED.contains(name),
        PythonToken::Text(text) => SUFFIXES.iter().any(|suffix| text.contains(suffix)),
        PythonToken::Sign('+') => {
            !is_path(tokens.get(at + 1))
                && !is_path(at.checked_sub(1).map(|before| &tokens[before]))
        }
        _ => false,
    })
}

/// The files that are there under paths which the lines name, in one text or in parts.
fn find_paths(
    lines: &[&[PythonToken<'_>]],
    table: &ConstantTable,
    exists: &dyn Fn(&str) -> bool,
) -> BTreeSet<String> {
    let is_file = |path: &str| path != "setup.py" && exists(path);
    let runs: Vec<Vec<String>> = lines
        .iter()
        .flat_map(|line| split_runs(line, table))
        .collect();
    let mut found = BTreeSet::new();
    for run in &runs {
        let lengths = (1..=run.len().min(MAX_PARTS)).rev();
        let longest = lengths
            .flat_map(|length| run.windows(length))
            .map(|parts| parts.join("/"))
            .find(|path| is_file(path));
        found.extend(longest);
    }
    if found.is_empty() {
        // A function that is given the folder.
        let parts = || runs.iter().flatten();
        let folders = parts().filter(|part| !part.contains('.'));
        found = folders
            .flat_map(|folder| {
                let files = parts().filter(|part| part.ends_with(".py"));
                files.map(move |file| format!("{folder}/{file}"))
            })
            .filter(|path| is_file(path))
            .collect();
    }
    found
}

/// Texts, and names that stand for some, with a comma or a slash between them.
fn split_runs(tokens: &[PythonToken<'_>], table: &ConstantTable) -> Vec<Vec<String>> {
    let mut runs = vec![Vec::new()];
    for (at, token) in tokens.iter().enumerate() {
        let part = match token {
            PythonToken::Text(text) => Some(table.fill_in(text)),
            PythonToken::Name(name) => table.text_of(name).map(str::to_owned),
            _ => None,
        };
        let is_between = token.is_sign(',') || token.is_sign('/');
        match (part, runs.last_mut()) {
            (Some(part), Some(run)) if !part.is_empty() && part.len() < 200 => {
                let part = part.trim_start_matches("./").trim_matches('/');
                run.push(part.to_owned());
            }
            (None, _) if is_between && at > 0 => {}
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}
