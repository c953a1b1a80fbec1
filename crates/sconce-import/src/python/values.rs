//! Values that a setup.py builds from constants. What is not understood is [`PythonValue::Unknown`].

use std::collections::BTreeMap;

use super::brackets::{bracketed, split_commas, top_level_name};
use super::branches::Branches;
use super::conditions::{Pythons, evaluate_condition};
use super::lines::{PythonToken, split_logical_lines};

/// Expressions in each other that are read.
const MAX_DEPTH: usize = 40;
/// Lists under unknown conditions that are kept, and texts of each.
const MAX_UNDECIDED: usize = 100;
const MAX_TEXTS: usize = 50;
/// Values that one file may come to, all together.
const MAX_VALUES: usize = 100_000;

/// What an expression comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonValue {
    Text(String),
    List(Vec<PythonValue>),
    Map(Vec<(String, PythonValue)>),
    /// The lines of this file.
    File(String),
    Unknown,
}

impl PythonValue {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&PythonValue> {
        match self {
            PythonValue::Map(pairs) => {
                let found = pairs.iter().rev().find(|(name, _)| name == key);
                found.map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// Whether all of it is known.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            PythonValue::Text(_) | PythonValue::File(_) => true,
            PythonValue::List(list) => list.iter().all(Self::is_known),
            PythonValue::Map(pairs) => pairs.iter().all(|(_, value)| value.is_known()),
            PythonValue::Unknown => false,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            PythonValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value where it holds under a condition: requirements in a list get its marker, or are not all that is
    /// known where the condition is not.
    fn under(self, condition: Option<Pythons>) -> PythonValue {
        let PythonValue::List(mut list) = self else {
            return self;
        };
        match condition.map(Pythons::to_marker) {
            Some(None) => {}
            Some(Some(marker)) => {
                for one in &mut list {
                    if let PythonValue::Text(text) = one {
                        add_marker(text, &marker);
                    }
                }
            }
            None => {
                let is_text = |one: &PythonValue| matches!(one, PythonValue::Text(_));
                if !list.is_empty() && list.iter().all(is_text) {
                    list.push(PythonValue::Unknown);
                }
            }
        }
        PythonValue::List(list)
    }

    /// A long text counts as several.
    fn count_values(&self) -> usize {
        match self {
            PythonValue::Text(text) | PythonValue::File(text) => 1 + text.len() / 64,
            PythonValue::List(list) => list.iter().map(Self::count_values).sum::<usize>() + 1,
            PythonValue::Map(pairs) => {
                pairs.iter().map(|(_, v)| v.count_values()).sum::<usize>() + 1
            }
            PythonValue::Unknown => 1,
        }
    }
}

/// The names of a file and what they stand for.
#[derive(Debug, Default)]
pub(crate) struct ConstantTable {
    values: BTreeMap<String, PythonValue>,
    /// The file that a function reads.
    functions: BTreeMap<String, String>,
    /// The Pythons that come to the line that is read; `None` where something else decides.
    reached_by: Option<Pythons>,
    budget: usize,
    /// The line that is read.
    line: usize,
    /// Lists that were taken under a condition that something else decides.
    undecided: Vec<UndecidedList>,
}

/// A list that a file has under a condition which is not known without running it, and that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndecidedList {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// Its texts.
    pub(crate) texts: Vec<String>,
}

impl ConstantTable {
    /// Follows the assignments of `text` in their order, and returns the arguments of each call of `function` with
    /// them. What a condition about Python or the system keeps out does not count; under any other, all does.
    pub(crate) fn read_calls(text: &str, function: &str) -> (Self, Vec<PythonValue>) {
        let mut table = Self {
            budget: MAX_VALUES,
            ..Self::default()
        };
        let mut branches = Branches::default();
        let lines = split_logical_lines(text);
        let mut open_function: Option<(usize, &str)> = None;
        let mut calls = Vec::new();
        for line in &lines {
            let tokens = branches.enter(line);
            table.reached_by = branches.reached_by();
            table.line = line.line;
            if table.reached_by == Some(Pythons::NONE) {
                continue;
            }
            if open_function.is_some_and(|(indent, _)| line.indent <= indent) {
                open_function = None;
            }
            if let [PythonToken::Name("def"), PythonToken::Name(name), ..] = line.tokens.as_slice()
                && open_function.is_none()
            {
                open_function = Some((line.indent, name));
            }
            if let Some((_, name)) = open_function
                && let Some(file) = find_file(&line.tokens)
            {
                table.functions.entry(name.to_owned()).or_insert(file);
            }
            table.read_line(tokens);
            let called = tokens
                .windows(2)
                .position(|pair| pair[0].as_name() == Some(function) && pair[1].is_sign('('));
            if let Some(at) = called
                && !matches!(tokens.first(), Some(PythonToken::Name("def")))
                && calls.len() < 20
            {
                let (arguments, _) = bracketed(&tokens[at + 1..]);
                calls.push(table.keyword_arguments(arguments, 0));
            }
        }
        (table, calls)
    }

    /// The lists that are taken under conditions that are not known.
    pub(crate) fn undecided_lists(&self) -> &[UndecidedList] {
        &self.undecided
    }

    /// A value under a condition. That a list is taken where the condition is not known is kept.
    fn hold(&mut self, value: PythonValue, condition: Option<Pythons>) -> PythonValue {
        if let (None, PythonValue::List(list)) = (condition, &value)
            && self.undecided.len() < MAX_UNDECIDED
        {
            let texts = list.iter().filter_map(PythonValue::as_text);
            let texts: Vec<String> = texts.take(MAX_TEXTS).map(str::to_owned).collect();
            let line = self.line;
            if !texts.is_empty() {
                self.undecided.push(UndecidedList { line, texts });
            }
        }
        value.under(condition)
    }

    /// The text that a name stands for at the end of the file.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_text()
    }

    /// A text with what names in braces stand for, as an f-string has them; what is not known goes.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                break;
            };
            filled += before;
            filled += self.text_of(name).unwrap_or_default();
            rest = after;
        }
        filled + rest
    }

    fn read_line(&mut self, tokens: &[PythonToken<'_>]) {
        // `with open(…) as f:`
        if let [PythonToken::Name("with"), rest @ ..] = tokens
            && let Some(at) = rest.iter().position(|token| token.as_name() == Some("as"))
            && let Some(name) = rest.get(at + 1).and_then(PythonToken::as_name)
        {
            let value = self.evaluate(&rest[..at], 0);
            self.set(name, value);
            return;
        }
        let (name, rest) = match tokens {
            [PythonToken::Name(name), rest @ ..] => (*name, rest),
            _ => return,
        };
        match rest {
            [PythonToken::Sign('='), value @ ..]
                if !value.first().is_some_and(|t| t.is_sign('=')) =>
            {
                let value = self.evaluate(value, 0);
                self.assign(name, value);
            }
            [PythonToken::Sign('+'), PythonToken::Sign('='), value @ ..] => {
                let more = self.evaluate(value, 0);
                let more = self.hold(more, self.reached_by);
                self.extend(name, more);
            }
            [
                PythonToken::Sign('.'),
                PythonToken::Name(method),
                arguments @ ..,
            ] => {
                let (inner, _) = bracketed(arguments);
                match *method {
                    "append" => {
                        let one = PythonValue::List(vec![self.evaluate(inner, 0)]);
                        let one = self.hold(one, self.reached_by);
                        self.extend(name, one);
                    }
                    "extend" => {
                        let more = self.evaluate(inner, 0);
                        let more = self.hold(more, self.reached_by);
                        self.extend(name, more);
                    }
                    "update" => {
                        if let PythonValue::Map(pairs) = self.evaluate(inner, 0) {
                            for (key, value) in pairs {
                                let value = self.hold(value, self.reached_by);
                                self.set_key(name, key, value);
                            }
                        }
                    }
                    _ => {}
                }
            }
            [
                PythonToken::Sign('['),
                PythonToken::Text(key),
                PythonToken::Sign(']'),
                PythonToken::Sign('='),
                value @ ..,
            ] => {
                let value = self.evaluate(value, 0);
                let value = self.hold(value, self.reached_by);
                self.set_key(name, key.clone(), value);
            }
            // `name: list = […]`
            [PythonToken::Sign(':'), rest @ ..] => {
                if let Some(at) = rest.iter().position(|token| token.is_sign('=')) {
                    let value = self.evaluate(&rest[at + 1..], 0);
                    self.assign(name, value);
                }
            }
            _ => {}
        }
    }

    fn copy_value(&mut self, name: &str) -> PythonValue {
        let Some(value) = self.values.get(name) else {
            return PythonValue::Unknown;
        };
        match self.budget.checked_sub(value.count_values()) {
            Some(left) => {
                self.budget = left;
                value.clone()
            }
            None => PythonValue::Unknown,
        }
    }

    /// An assignment where it stands: for the other Pythons a list stays what it was. Where the condition is not
    /// known the last one that is not empty counts.
    fn assign(&mut self, name: &str, value: PythonValue) {
        let value = self.hold(value, self.reached_by);
        let is_list = |value: &PythonValue| matches!(value, PythonValue::List(_));
        let stays = self.reached_by != Some(Pythons::ALL) && is_list(&value);
        let old = match self.values.get(name) {
            Some(old) if stays && is_list(old) => self.copy_value(name),
            _ => PythonValue::Unknown,
        };
        if !is_list(&old) {
            return self.set(name, value);
        }
        match (self.reached_by, &value) {
            (Some(pythons), _) => {
                let old = old.under(Some(pythons.others()));
                self.set(name, add(old, value));
            }
            (None, PythonValue::List(new)) if new.is_empty() => {
                let old = self.hold(old, None);
                self.set(name, old);
            }
            (None, _) => self.set(name, value),
        }
    }

    fn set(&mut self, name: &str, value: PythonValue) {
        if let Some(left) = self.budget.checked_sub(value.count_values()) {
            self.budget = left;
            self.values.insert(name.to_owned(), value);
        }
    }

    fn set_key(&mut self, name: &str, key: String, value: PythonValue) {
        let Some(left) = self.budget.checked_sub(value.count_values()) else {
            return;
        };
        self.budget = left;
        match self.values.get_mut(name) {
            Some(PythonValue::Map(pairs)) => pairs.push((key, value)),
            _ => self.set(name, PythonValue::Map(vec![(key, value)])),
        }
    }

    fn extend(&mut self, name: &str, more: PythonValue) {
        let old = self.values.remove(name);
        let sum = add(old.unwrap_or(PythonValue::Unknown), more);
        self.set(name, sum);
    }

    /// `a, b + c, [d for d in e]`: the value of an expression.
    fn evaluate(&mut self, tokens: &[PythonToken<'_>], depth: usize) -> PythonValue {
        if depth > MAX_DEPTH || tokens.is_empty() {
            return PythonValue::Unknown;
        }
        let (mut value, mut rest) = self.term(tokens, depth);
        while let [PythonToken::Sign('+'), more @ ..] = rest {
            let (next, after) = self.term(more, depth);
            value = add(value, next);
            rest = after;
        }
        match (value, rest) {
            (PythonValue::Unknown, _) => {
                find_file(tokens).map_or(PythonValue::Unknown, PythonValue::File)
            }
            (value, []) => value,
            // A condition: `x if y else z`.
            (value, [PythonToken::Name("if"), rest @ ..]) => {
                let end = top_level_name(rest, "else").unwrap_or(rest.len());
                let condition = evaluate_condition(&rest[..end]);
                match condition {
                    Some(Pythons::ALL) => value,
                    None => self.hold(value, None),
                    Some(Pythons::NONE) => {
                        self.evaluate(&rest[rest.len().min(end + 1)..], depth + 1)
                    }
                    Some(pythons) => {
                        let other = self.evaluate(&rest[rest.len().min(end + 1)..], depth + 1);
                        match (value.under(condition), other.under(Some(pythons.others()))) {
                            (value @ PythonValue::List(_), other @ PythonValue::List(_)) => {
                                add(value, other)
                            }
                            (value, _) => value,
                        }
                    }
                }
            }
            (_, _) => find_file(tokens).map_or(PythonValue::Unknown, PythonValue::File),
        }
    }

    fn term<'t, 'a>(
        &mut self,
        tokens: &'t [PythonToken<'a>],
        depth: usize,
    ) -> (PythonValue, &'t [PythonToken<'a>]) {
        let (value, rest) = match tokens {
            [PythonToken::Text(first), rest @ ..] => {
                let mut text = first.clone();
                let mut rest = rest;
                // Literals side by side are one.
                while let [PythonToken::Text(more), after @ ..] = rest {
                    text += more;
                    rest = after;
                }
                (PythonValue::Text(text), rest)
            }
            [PythonToken::Sign('['), ..] => {
                let (inner, rest) = bracketed(tokens);
                (self.list(inner, depth), rest)
            }
            [PythonToken::Sign('('), ..] => {
                let (inner, rest) = bracketed(tokens);
                let parts = split_commas(inner);
                let value = match parts.as_slice() {
                    [one] if inner.len() == one.len() => self.evaluate(one, depth + 1),
                    _ => self.list(inner, depth),
                };
                (value, rest)
            }
            [PythonToken::Sign('{'), ..] => {
                let (inner, rest) = bracketed(tokens);
                (self.map(inner, depth), rest)
            }
            [PythonToken::Name(name), PythonToken::Sign('('), ..] => {
                let (inner, rest) = bracketed(&tokens[1..]);
                (self.call(name, inner, depth), rest)
            }
            [PythonToken::Name(name), rest @ ..] => (self.copy_value(name), rest),
            _ => (PythonValue::Unknown, &tokens[tokens.len().min(1)..]),
        };
        self.trailers(value, rest, depth)
    }

    /// `.read()`, `["key"]` and what else stands behind a value.
    fn trailers<'t, 'a>(
        &mut self,
        mut value: PythonValue,
        mut rest: &'t [PythonToken<'a>],
        depth: usize,
    ) -> (PythonValue, &'t [PythonToken<'a>]) {
        loop {
            match rest {
                [
                    PythonToken::Sign('.'),
                    PythonToken::Name(method),
                    PythonToken::Sign('('),
                    ..,
                ] => {
                    let (inner, after) = bracketed(&rest[2..]);
                    value = self.method(value, method, inner, depth);
                    rest = after;
                }
                [PythonToken::Sign('.'), PythonToken::Name(_), after @ ..] => {
                    value = PythonValue::Unknown;
                    rest = after;
                }
                [
                    PythonToken::Sign('['),
                    PythonToken::Text(key),
                    PythonToken::Sign(']'),
                    after @ ..,
                ] => {
                    value = value.get(key).cloned().unwrap_or(PythonValue::Unknown);
                    rest = after;
                }
                [PythonToken::Sign('['), ..] => {
                    let (_, after) = bracketed(rest);
                    // A part of a file's lines is as good as all.
                    if !matches!(value, PythonValue::File(_)) {
                        value = PythonValue::Unknown;
                    }
                    rest = after;
                }
                // `Path(…) / "requirements.txt"`
                [PythonToken::Sign('/'), PythonToken::Text(name), after @ ..] => {
                    value = PythonValue::Text(name.clone());
                    rest = after;
                }
                [PythonToken::Sign('('), ..] => {
                    value = PythonValue::Unknown;
                    rest = bracketed(rest).1;
                }
                _ => return (value, rest),
            }
        }
    }

    fn method(
        &mut self,
        value: PythonValue,
        method: &str,
        arguments: &[PythonToken<'_>],
        depth: usize,
    ) -> PythonValue {
        match (value, method) {
            (file @ PythonValue::File(_), _) => file,
            (PythonValue::Text(path), "open" | "read_text" | "read_bytes")
                if is_file_name(&path) =>
            {
                PythonValue::File(path)
            }
            (PythonValue::Text(text), "split" | "splitlines") => {
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                let lines = lines.map(|line| PythonValue::Text(line.to_owned()));
                PythonValue::List(lines.collect())
            }
            (PythonValue::Text(text), "strip" | "rstrip" | "lstrip" | "lower") => {
                PythonValue::Text(text.trim().to_owned())
            }
            (map @ PythonValue::Map(_), "copy") => map,
            (PythonValue::Map(pairs), "values") => {
                PythonValue::List(pairs.into_iter().map(|(_, value)| value).collect())
            }
            (PythonValue::Unknown, method) => self.call(method, arguments, depth),
            _ => PythonValue::Unknown,
        }
    }

    /// What a function gives, as far as that can be told by its name or by a file that it is about.
    fn call(&mut self, name: &str, arguments: &[PythonToken<'_>], depth: usize) -> PythonValue {
        match name {
            "dict" => return self.keyword_arguments(arguments, depth + 1),
            "list" | "sorted" | "set" | "tuple" | "filter" | "map" | "str" => {
                let parts = split_commas(arguments);
                return match parts.last() {
                    Some(last) => self.evaluate(last, depth + 1),
                    None => PythonValue::List(Vec::new()),
                };
            }
            "find_packages" | "find_namespace_packages" => return PythonValue::Unknown,
            _ => {}
        }
        let file = split_commas(arguments)
            .into_iter()
            .filter(|part| depth < MAX_DEPTH && !part.is_empty())
            .find_map(|part| match self.evaluate(part, depth + 1) {
                PythonValue::Text(path) | PythonValue::File(path) if is_file_name(&path) => {
                    Some(path)
                }
                _ => None,
            });
        let file = file.or_else(|| self.functions.get(name).cloned());
        match (file, name) {
            (Some(file), "join" | "Path" | "resolve") => PythonValue::Text(file),
            (Some(file), _) => PythonValue::File(file),
            (None, _) => PythonValue::Unknown,
        }
    }

    fn list(&mut self, inner: &[PythonToken<'_>], depth: usize) -> PythonValue {
        // `[line.strip() for line in lines if line]` is the lines.
        let keyword =
            |word: &str, from: usize| top_level_name(&inner[from..], word).map(|at| at + from);
        if let Some(at) = keyword("for", 0)
            && let Some(start) = keyword("in", at)
        {
            let end = keyword("if", start).unwrap_or(inner.len());
            return self.evaluate(&inner[start + 1..end], depth + 1);
        }
        let parts = split_commas(inner);
        let mut list = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            match part {
                [PythonToken::Sign('*'), rest @ ..] => match self.evaluate(rest, depth + 1) {
                    PythonValue::List(more) => list.extend(more),
                    other => list.push(other),
                },
                part => list.push(self.evaluate(part, depth + 1)),
            }
        }
        PythonValue::List(list)
    }

    fn map(&mut self, inner: &[PythonToken<'_>], depth: usize) -> PythonValue {
        let mut pairs = Vec::new();
        for part in split_commas(inner) {
            match part {
                [PythonToken::Text(key), PythonToken::Sign(':'), value @ ..] => {
                    let value = self.evaluate(value, depth + 1);
                    pairs.push((key.clone(), value));
                }
                [PythonToken::Sign('*'), PythonToken::Sign('*'), rest @ ..] => {
                    if let PythonValue::Map(more) = self.evaluate(rest, depth + 1) {
                        pairs.extend(more);
                    }
                }
                _ => {}
            }
        }
        PythonValue::Map(pairs)
    }

    /// `a=…, **more` as a map.
    fn keyword_arguments(&mut self, inner: &[PythonToken<'_>], depth: usize) -> PythonValue {
        let mut pairs = Vec::new();
        for part in split_commas(inner) {
            match part {
                [PythonToken::Name(key), PythonToken::Sign('='), value @ ..] => {
                    let value = self.evaluate(value, depth + 1);
                    pairs.push(((*key).to_owned(), value));
                }
                [PythonToken::Sign('*'), PythonToken::Sign('*'), rest @ ..] => {
                    match self.evaluate(rest, depth + 1) {
                        PythonValue::Map(more) => pairs.extend(more),
                        _ => pairs.push((UNKNOWN_ARGUMENTS.to_owned(), PythonValue::Unknown)),
                    }
                }
                _ => {}
            }
        }
        PythonValue::Map(pairs)
    }
}

/// The key of arguments whose names are not known, `**load()`.
pub(crate) const UNKNOWN_ARGUMENTS: &str = "**";

/// A requirement that holds for some Pythons only.
fn add_marker(text: &mut String, marker: &str) {
    if text.ends_with(&format!(" ; {marker}")) {
        return;
    }
    *text = match text.split_once(';') {
        Some((requirement, own)) => {
            format!("{} ; ({}) and ({marker})", requirement.trim(), own.trim())
        }
        None => format!("{text} ; {marker}"),
    };
}

/// Lists become one; a file beside a list is one of its elements.
fn add(left: PythonValue, right: PythonValue) -> PythonValue {
    match (left, right) {
        (PythonValue::Text(left), PythonValue::Text(right)) => PythonValue::Text(left + &right),
        (PythonValue::List(mut left), PythonValue::List(right)) => {
            left.extend(right);
            PythonValue::List(left)
        }
        (PythonValue::List(mut left), right) => {
            left.push(right);
            PythonValue::List(left)
        }
        (left, PythonValue::List(mut right)) => {
            right.insert(0, left);
            PythonValue::List(right)
        }
        _ => PythonValue::Unknown,
    }
}

/// The first requirements file that is named.
fn find_file(tokens: &[PythonToken<'_>]) -> Option<String> {
    tokens.iter().find_map(|token| match token {
        PythonToken::Text(text) if is_file_name(text) => Some(text.clone()),
        _ => None,
    })
}

/// By its end; a sentence has spaces.
fn is_file_name(text: &str) -> bool {
    let ends = text.ends_with(".txt") || text.ends_with(".in");
    ends && text.len() < 200 && !text.contains([' ', '\n', '*'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(value: &PythonValue) -> String {
        match value {
            PythonValue::Text(text) => text.clone(),
            PythonValue::List(list) => {
                let shown: Vec<String> = list.iter().map(show).collect();
                format!("[{}]", shown.join(" "))
            }
            PythonValue::Map(pairs) => {
                let shown = pairs
                    .iter()
                    .map(|(key, value)| format!("{key}:{}", show(value)));
                format!("{{{}}}", shown.collect::<Vec<_>>().join(" "))
            }
            PythonValue::File(path) => format!("<{path}>"),
            PythonValue::Unknown => "?".to_owned(),
        }
    }

    fn argument(text: &str) -> String {
        let (_, calls) = ConstantTable::read_calls(text, "setup");
        calls.iter().map(show).collect()
    }

    #[test]
    fn values_are_built_from_constants() {
        for (text, expected) in [
            ("setup(a=['x', 'y' 'z',])", "{a:[x yz]}"),
            (
                "R = ['x']\nR += ['y']\nR.append('z')\nsetup(a=R + [\"w\"])",
                "{a:[x y z w]}",
            ),
            (
                "e = {}\ne['a'] = ['x']\ne['b'] = e['a'] + ['y']\nsetup(e=e)",
                "{e:{a:[x] b:[x y]}}",
            ),
            ("setuptools.setup(**dict(a='x', b=('y',)))", "{a:x b:[y]}"),
            (
                "kw = {'a': 'x', **{'b': 'y'}}\nsetup(c='z', **kw)",
                "{c:z a:x b:y}",
            ),
            (
                "if __name__ == '__main__':\n  setup(a='''x\ny'''.split())",
                "{a:[x y]}",
            ),
            (
                "setup(a=f(1), b=x.y, c=-1, d=lambda: 1)",
                "{a:? b:? c:? d:?}",
            ),
            ("def setup(a): pass", ""),
        ] {
            assert_eq!(argument(text), expected, "{text}");
        }
    }

    #[test]
    fn conditions_choose_what_counts() {
        for (text, expected) in [
            (
                "if sys.version_info[0] >= 3:\n  a = ['x']\nelse:\n  a = ['y']\nsetup(a=a)",
                "{a:[x]}",
            ),
            (
                "a = []\nif sys.platform == 'win32': a.append('w'); a.append('v')\na.append('x')\nsetup(a=a)",
                "{a:[x]}",
            ),
            (
                "a = ['x']\nif sys.version_info < (3, 14): a.append('y')\nsetup(a=a)",
                "{a:[x y ; python_version < \"3.14\"]}",
            ),
            (
                "if sys.version_info < (3, 9):\n  a = ['x']\nelif os.name == 'nt':\n  a = ['w']\nelse:\n  a = ['y; z']\nsetup(a=a)",
                "{a:[x ; python_version < \"3.9\" y ; (z) and (python_version >= \"3.9\")]}",
            ),
            (
                "setup(a=['x'] if sys.version_info < (3, 9) else [], b='1' if PY2 else '2')",
                "{a:[x ; python_version < \"3.9\"] b:2}",
            ),
            // Not all of it is known.
            (
                "if CUDA:\n  a = ['x']\nelse:\n  a = []\nif CPU:\n  v = '1'\nsetup(a=a, v=v)",
                "{a:[x ?] v:1}",
            ),
            (
                "e = []\nif CUDA:\n  e = []\nsetup(a=e, **load())",
                "{a:[] **:?}",
            ),
            ("for a in b:\n  pass\nelse:\n  c = 'x'\nsetup(a=c)", "{a:x}"),
        ] {
            assert_eq!(argument(text), expected, "{text}");
        }
    }

    #[test]
    fn a_file_that_is_read_is_named() {
        for text in [
            "setup(a=open('r.txt').read().splitlines())",
            "setup(a=open(os.path.join(here, 'r.txt')).read().strip().split('\\n'))",
            "with open('r.txt') as f:\n  required = f.read().splitlines()\nsetup(a=required)",
            "with open('r.txt', 'r') as f:\n  a = [l.strip() for l in f.readlines() if l]\nsetup(a=a)",
            "def reqs():\n  with open('r.txt') as f:\n    return list(f)\nsetup(a=reqs())",
            "def parse(path):\n  return open(path)\nsetup(a=parse('r.txt'))",
            "setup(a=[str(r) for r in pkg_resources.parse_requirements(Path(__file__).with_name('r.txt').open())])",
            "setup(a=(HERE / 'r.txt').read_text().splitlines())",
            "p = Path(__file__).parent / 'r.txt'\nsetup(a=list(map(str, parse_requirements(p.open()))))",
        ] {
            assert_eq!(argument(text), "{a:<r.txt>}", "{text}");
        }
    }

    #[test]
    fn values_do_not_grow_without_end() {
        let mut text = "a = ['x', 'y']\n".to_owned();
        for _ in 0..60 {
            text += "a = a + a\n";
        }
        argument(&(text + "setup(a=a)"));
        argument(&format!("a = {}", "[".repeat(5000)));
        argument(&format!("setup(a={}", "(".repeat(5000)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((setup|a|open|'r.txt'|with|as|def|for|in|if|elif|else|not|or|sys.version_info|<|3|dict|=|\\(|\\)|\\[|\\]|\\{|\\}|:|\\+|\\.|\\*|,|/|\n) ?){0,60}") {
            argument(&text);
        }
    }
}
