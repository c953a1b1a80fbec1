//! What a program imports without a condition: The Python Language Reference, "The import statement".

use std::collections::BTreeSet;

use super::lines::{LogicalLine, PythonToken, split_logical_lines};

/// Blocks in each other that are told apart.
const MAX_DEPTH: usize = 100;
/// Imports of one file that are read.
const MAX_IMPORTS: usize = 2000;

/// `import a.b`, `from .a import b`: one module each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportStatement {
    /// From 1.
    pub(crate) line: usize,
    /// As it is written, without leading points; empty for `from . import a`.
    pub(crate) module: String,
    /// Leading points: the number of packages to go up from the file's own, and one.
    pub(crate) level: usize,
    /// What is imported from it, where that is said.
    pub(crate) names: Vec<String>,
    /// It stands in a function, so that importing the file does not need it.
    pub(crate) in_function: bool,
}

/// What an indented block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Function,
    /// It is run under a condition, or where an import failed.
    Conditional,
    /// The place of its first import.
    Try(usize),
    /// What is imported where an import failed: the places of the first import of `try`, and of its own.
    Handler(usize, usize),
    Plain,
}

#[derive(Debug, Clone, Copy)]
struct CodeBlock {
    indent: usize,
    kind: BlockKind,
}

struct FoundImport {
    statement: ImportStatement,
    /// The program does without.
    optional: bool,
    /// It stands in a `try` that catches its failure, not only in what is done then.
    caught: bool,
}

/// The imports that are there, with a mark for those that the program does without.
#[derive(Default)]
struct ImportScan {
    found: Vec<FoundImport>,
    blocks: Vec<CodeBlock>,
    /// The `try` that ended last: its indentation and the place of its first and behind its last import.
    tried: Option<(usize, usize, usize)>,
}

/// The imports that `text` needs: not those below `if`, nor those whose failure it catches.
pub(crate) fn find_imports(text: &str) -> Vec<ImportStatement> {
    let mut scan = ImportScan::default();
    for line in split_logical_lines(text) {
        scan.close_blocks(line.indent);
        scan.read_line(&line);
        if scan.found.len() >= MAX_IMPORTS {
            break;
        }
    }
    scan.close_blocks(0);
    let needed = scan.found.into_iter().filter(|found| !found.optional);
    needed.map(|found| found.statement).collect()
}

impl ImportScan {
    /// Ends the blocks that a line at `indent` is not in.
    fn close_blocks(&mut self, indent: usize) {
        while let Some(block) = self.blocks.pop_if(|block| block.indent >= indent) {
            let end = self.found.len();
            match block.kind {
                BlockKind::Try(start) => self.tried = Some((block.indent, start, end)),
                BlockKind::Handler(start, own) => self.keep_what_both_import(start, own, end),
                _ => {}
            }
        }
    }

    /// Where `try` and its handler import the same package, one of the two is needed.
    fn keep_what_both_import(&mut self, start: usize, own: usize, end: usize) {
        let package = |statement: &ImportStatement| match statement.level {
            0 => statement.module.split('.').next().map(str::to_owned),
            _ => None,
        };
        let handled: BTreeSet<String> = self.found[own..end]
            .iter()
            .filter(|found| !found.caught)
            .filter_map(|found| package(&found.statement))
            .collect();
        for found in &mut self.found[start..own] {
            if package(&found.statement).is_some_and(|name| handled.contains(&name)) {
                found.optional = false;
            }
        }
    }

    fn read_line(&mut self, line: &LogicalLine<'_>) {
        let mut tokens = line.tokens.as_slice();
        if tokens.first().and_then(PythonToken::as_name) == Some("async") {
            tokens = &tokens[1..];
        }
        let Some(first) = tokens.first().and_then(PythonToken::as_name) else {
            return;
        };
        let handler = matches!(first, "except" | "else" | "finally" | "elif");
        let tried = match handler {
            true => self.tried.filter(|(indent, ..)| *indent == line.indent),
            false => None,
        };
        // What stands in a handler's own block does not end its `try`.
        if !handler && self.tried.is_some_and(|(indent, ..)| line.indent <= indent) {
            self.tried = None;
        }
        let kind = match first {
            "import" | "from" => {
                self.read_import(tokens, line.line);
                return;
            }
            "def" => BlockKind::Function,
            "class" | "for" | "while" | "match" | "case" | "finally" => BlockKind::Plain,
            "with" if tokens.iter().any(is_import_error) => BlockKind::Conditional,
            "with" => BlockKind::Plain,
            "if" if is_main_guard(tokens) => BlockKind::Plain,
            "if" | "elif" | "else" => BlockKind::Conditional,
            "try" => BlockKind::Try(self.found.len()),
            "except" => self.open_handler(tokens, tried),
            _ => return,
        };
        if self.blocks.len() >= MAX_DEPTH {
            return;
        }
        self.blocks.push(CodeBlock {
            indent: line.indent,
            kind,
        });
        // The body may stand on the same line.
        if let Some(at) = body_start(tokens)
            && let body = &tokens[at..]
            && let Some(PythonToken::Name("import" | "from")) = body.first()
        {
            self.read_import(body, line.line);
        }
    }

    /// An `except`, which makes what was tried optional where it catches that it is missing.
    fn open_handler(
        &mut self,
        tokens: &[PythonToken<'_>],
        tried: Option<(usize, usize, usize)>,
    ) -> BlockKind {
        let bare = tokens.get(1).is_some_and(|token| token.is_sign(':'));
        let caught = bare || tokens.iter().any(is_import_error);
        let Some((_, start, end)) = tried.filter(|_| caught) else {
            return BlockKind::Conditional;
        };
        for found in &mut self.found[start..end] {
            (found.optional, found.caught) = (true, true);
        }
        BlockKind::Handler(start, self.found.len())
    }

    fn read_import(&mut self, tokens: &[PythonToken<'_>], line: usize) {
        let within = |kind: &dyn Fn(BlockKind) -> bool| self.blocks.iter().any(|b| kind(b.kind));
        let optional =
            within(&|kind| matches!(kind, BlockKind::Conditional | BlockKind::Handler(..)));
        let in_function = within(&|kind| kind == BlockKind::Function);
        let mut tokens = tokens.iter().peekable();
        let from = tokens.next().and_then(PythonToken::as_name) == Some("from");
        let mut level = 0;
        while from && tokens.next_if(|token| token.is_sign('.')).is_some() {
            level += 1;
        }
        let mut statements = Vec::new();
        loop {
            let mut module = String::new();
            while let Some(token) = tokens.peek() {
                match token {
                    // `from . import a`
                    PythonToken::Name("import" | "as") => break,
                    PythonToken::Name(name) if module.is_empty() || module.ends_with('.') => {
                        module += name;
                    }
                    PythonToken::Sign('.') => module.push('.'),
                    _ => break,
                }
                tokens.next();
            }
            statements.push(module);
            if tokens
                .next_if(|token| token.as_name() == Some("as"))
                .is_some()
            {
                tokens.next();
            }
            if from || tokens.next_if(|token| token.is_sign(',')).is_none() {
                break;
            }
        }
        let names = match from {
            true => imported_names(tokens),
            false => Vec::new(),
        };
        for module in statements {
            let module = module.trim_end_matches('.').to_owned();
            if (module.is_empty() && level == 0) || module.len() > 200 {
                continue;
            }
            let statement = ImportStatement {
                line,
                module,
                level,
                names: names.clone(),
                in_function,
            };
            self.found.push(FoundImport {
                statement,
                optional,
                caught: false,
            });
        }
    }
}

/// What stands behind `import` in `from a import b as c, (d)`.
fn imported_names<'t, 'a: 't>(tokens: impl Iterator<Item = &'t PythonToken<'a>>) -> Vec<String> {
    let mut names = Vec::new();
    let mut takes = true;
    for token in tokens.skip(1) {
        match token {
            PythonToken::Name("as") => takes = false,
            PythonToken::Name(name) if takes && names.len() < 200 => names.push((*name).to_owned()),
            PythonToken::Sign(',') => takes = true,
            _ => {}
        }
    }
    names
}

fn is_import_error(token: &PythonToken<'_>) -> bool {
    let caught = [
        "ImportError",
        "ModuleNotFoundError",
        "Exception",
        "BaseException",
    ];
    token.as_name().is_some_and(|name| caught.contains(&name))
}

/// `if __name__ == "__main__":`
fn is_main_guard(tokens: &[PythonToken<'_>]) -> bool {
    let main =
        |token: &PythonToken<'_>| matches!(token, PythonToken::Text(text) if text == "__main__");
    tokens
        .iter()
        .any(|token| token.as_name() == Some("__name__"))
        && tokens.iter().any(main)
}

/// Where the body of a compound statement begins on its own line.
fn body_start(tokens: &[PythonToken<'_>]) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            PythonToken::Sign('(' | '[' | '{') => depth += 1,
            PythonToken::Sign(')' | ']' | '}') => depth = depth.saturating_sub(1),
            PythonToken::Sign(':') if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(text: &str) -> Vec<String> {
        let shown = |one: ImportStatement| {
            let points = ".".repeat(one.level);
            let place = if one.in_function {
                " in a function"
            } else {
                ""
            };
            format!(
                "{} {points}{} {}{place}",
                one.line,
                one.module,
                one.names.join(",")
            )
        };
        find_imports(text).into_iter().map(shown).collect()
    }

    #[test]
    fn every_form_is_read() {
        for (text, expected) in [
            ("import a.b as c, d", &["1 a.b ", "1 d "][..]),
            ("from a.b import (c as x,\n  d)", &["1 a.b c,d"]),
            (
                "from . import a\nfrom ..b.c import *",
                &["1 . a", "2 ..b.c "],
            ),
            (
                "def f():\n  import a\nimport b",
                &["2 a  in a function", "3 b "],
            ),
            ("async def f(x: int): import a", &["1 a  in a function"]),
            ("class A:\n  import a", &["2 a "]),
            ("if __name__ == '__main__':\n  import a", &["2 a "]),
            ("x = 'import a'\n'''\nimport b\n'''", &[]),
            ("important = 1\nfrom_ = 2", &[]),
            ("import a; import b", &["1 a ", "1 b "]),
            (
                "lazy import a.b as c\nlazy from d import e",
                &["1 a.b ", "2 d e"],
            ),
            ("import", &[]),
            ("from", &[]),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    #[test]
    fn what_a_program_does_without_is_no_need_of_it() {
        for text in [
            "try:\n  import a\nexcept ImportError:\n  pass",
            "try:\n  import a\nexcept (OSError, ModuleNotFoundError) as e:\n  a = None",
            "try: import a\nexcept: a = None",
            "try:\n  x = 1\n  import a\nexcept ImportError:\n  import b\nelse:\n  import c",
            "try:\n  import a\nexcept ImportError:\n  try:\n    from a import b\n  except ImportError:\n    pass",
            "if TYPE_CHECKING:\n  import a\n  from b import c",
            "if typing.TYPE_CHECKING: import a",
            "if x:\n  def f():\n    import a\nelif y:\n  import b\nelse:\n  import c",
            "with suppress(ImportError):\n  import a",
            "def f():\n  try:\n    import a\n  except Exception as e:\n    raise",
        ] {
            assert_eq!(show(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn another_error_or_two_names_of_one_package_leave_the_need() {
        for (text, expected) in [
            (
                "try:\n  import a\nexcept KeyError:\n  import b",
                &["2 a "][..],
            ),
            (
                "try:\n  import a\nexcept KeyError:\n  x = 1\nexcept ImportError:\n  y = 2\nimport b",
                &["7 b "],
            ),
            (
                "try:\n  import a\nfinally:\n  pass\nimport b",
                &["2 a ", "5 b "],
            ),
            (
                "try:\n  import a.b as c\n  import d\nexcept ImportError:\n  import a as c\nimport e",
                &["2 a.b ", "6 e "],
            ),
        ] {
            assert_eq!(show(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((import|from|try|except|if|else|def|a|\\.|:|,|\n|  |\\(|ImportError) ?){0,40}") {
            for one in find_imports(&text) {
                prop_assert!(one.line >= 1);
            }
        }
    }
}
