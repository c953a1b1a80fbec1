//! A README's code blocks (CommonMark, reStructuredText), with the headings that they stand under.

mod alternatives;
mod install;
mod links;
mod programs;
mod purpose;

pub(super) use install::{InstallLines, read_install_lines, read_install_page, read_scripts};
pub(super) use links::find_install_pages;
pub(super) use programs::find_programs;

use super::requirement::{self, Requirement};

/// Code that a README shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadmeBlock {
    /// Of its first line, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// From the outermost to the nearest.
    pub(crate) headings: Vec<String>,
    /// The line of text right before it, in lower case; empty where a heading or another block is there.
    pub(crate) lead: String,
}

/// Blocks that are read of one file.
const MAX_BLOCKS: usize = 400;
/// Below every heading.
const SUMMARY_LEVEL: usize = 7;

/// The blocks of shell commands, by the kind of text that the file's name says.
pub(crate) fn find_blocks(path: &str, text: &str) -> Vec<ReadmeBlock> {
    let mut reader = BlockReader::default();
    let lines: Vec<&str> = text.lines().collect();
    if path.ends_with(".rst") {
        reader.read_rst(&lines);
    } else {
        reader.read_markdown(&lines);
    }
    reader.blocks
}

/// Versions that the text names in code of its own, as in "based on `timm==0.3.2`", each with its line.
pub(crate) fn find_pins(text: &str) -> Vec<(usize, Requirement)> {
    let mut pins = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for code in line.split('`').skip(1).step_by(2).take(20) {
            if code.len() < 60
                && code.contains("==")
                && pins.len() < MAX_BLOCKS
                && let Ok(one) = requirement::parse(code)
            {
                pins.push((at + 1, one));
            }
        }
    }
    pins
}

#[derive(Default)]
struct BlockReader {
    blocks: Vec<ReadmeBlock>,
    headings: Vec<(usize, String)>,
}

impl BlockReader {
    fn open_heading(&mut self, level: usize, title: &str) {
        self.headings.retain(|(above, _)| *above < level);
        if self.headings.len() < 20 {
            let title = title.chars().take(200).collect::<String>();
            self.headings.push((level, title.to_ascii_lowercase()));
        }
    }

    /// A block, with its first line's number and the lines of the file before it.
    fn add_block(&mut self, line: usize, text: String, before: &[&str]) {
        if self.blocks.len() < MAX_BLOCKS && !text.trim().is_empty() {
            self.blocks.push(ReadmeBlock {
                line,
                text,
                headings: self
                    .headings
                    .iter()
                    .map(|(_, title)| title.clone())
                    .collect(),
                lead: find_lead(before),
            });
        }
    }

    fn read_markdown(&mut self, lines: &[&str]) {
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at];
            let bare = without_quote(line);
            if let Some(fence) = opening_fence(bare) {
                let info = bare[fence.len()..].trim_start();
                let is_end = |line: &&str| ends_fence(without_quote(line), fence);
                let end = lines[at + 1..].iter().position(is_end);
                let end = end.map_or(lines.len(), |length| at + 1 + length);
                if is_shell(info) {
                    self.add_block(at + 2, without_quotes(&lines[at + 1..end]), &lines[..at]);
                }
                at = end + 1;
                continue;
            }
            let level = bare.bytes().take_while(|b| *b == b'#').count();
            if (1..=6).contains(&level) && bare[level..].starts_with([' ', '\t']) {
                self.open_heading(level, bare[level..].trim().trim_end_matches('#'));
            } else if let Some((level, title)) = html_heading(bare) {
                self.open_heading(level, &title);
            } else if bare.contains("</details>") {
                self.headings.retain(|(level, _)| *level < SUMMARY_LEVEL);
            } else if let Some(level) = lines.get(at + 1).and_then(|next| setext_level(next))
                && !bare.trim().is_empty()
            {
                self.open_heading(level, bare.trim());
                at += 1;
            } else if let Some(code) = lone_code(bare) {
                self.add_block(at + 1, code.to_owned(), &lines[..at]);
            } else if line.starts_with("    ") || line.starts_with('\t') {
                let block = indented(&lines[at..]);
                if block.lines().any(begins_with_installer) {
                    self.add_block(at + 1, block.clone(), &lines[..at]);
                }
                at += block.matches('\n').count();
                continue;
            } else {
                self.add_inline(at + 1, bare);
            }
            at += 1;
        }
    }

    /// Code within a sentence that installs something: "the libraries: `pip install click tqdm`".
    fn add_inline(&mut self, line: usize, prose: &str) {
        for code in inline_code(prose).into_iter().take(20) {
            if INLINE_INSTALLERS
                .iter()
                .any(|begin| code.starts_with(begin))
            {
                self.add_block(line, code.to_owned(), &[]);
            }
        }
    }

    fn read_rst(&mut self, lines: &[&str]) {
        let mut marks: Vec<char> = Vec::new();
        let mut at = 0;
        while at < lines.len() {
            let line = lines[at].trim_end();
            if let Some(mark) = lines.get(at + 1).and_then(|next| underline(next))
                && !line.trim().is_empty()
                && underline(line).is_none()
            {
                let level = marks.iter().position(|known| *known == mark);
                let level = level.unwrap_or_else(|| {
                    marks.push(mark);
                    marks.len() - 1
                });
                self.open_heading(level + 1, line.trim());
                at += 2;
                continue;
            }
            let bare = line.trim();
            let directive = bare.strip_prefix(".. ").and_then(|rest| {
                let (name, language) = rest.split_once("::")?;
                let code = matches!(name.trim(), "code" | "code-block" | "sourcecode" | "prompt");
                code.then(|| language.trim())
            });
            let literal = bare.ends_with("::") && !bare.starts_with("..");
            self.add_inline(at + 1, bare);
            let before = match literal {
                true => &lines[..=at],
                false => &lines[..at],
            };
            at += 1;
            if directive.is_some_and(is_shell) || literal {
                // Options of a directive, and empty lines, come before it.
                while lines
                    .get(at)
                    .is_some_and(|l| l.trim().is_empty() || l.trim().starts_with(':'))
                {
                    at += 1;
                }
                let block = indented(&lines[at.min(lines.len())..]);
                self.add_block(at + 1, block.clone(), before);
                at += block.matches('\n').count();
            }
        }
    }
}

fn without_quote(line: &str) -> &str {
    line.trim_start().trim_start_matches(['>', ' '])
}

/// The last line of text before a block; other items of a list that are code alone are passed over.
fn find_lead(before: &[&str]) -> String {
    let is_text = |line: &&&str| !line.trim().is_empty() && lone_code(line).is_none();
    let last = before.iter().rev().take(20).find(is_text);
    let bare = last.map_or("", |line| without_quote(line).trim_end());
    let is_other = bare.starts_with(['#', '|', '<']) || opening_fence(bare).is_some();
    match is_other || setext_level(bare).is_some() {
        true => String::new(),
        false => bare.chars().take(400).collect::<String>().to_lowercase(),
    }
}

/// The backticks or tildes that a block begins with. Backticks with others behind them on the line are code
/// within a sentence (CommonMark, 4.5).
fn opening_fence(line: &str) -> Option<&str> {
    let sign = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let info = line.trim_start_matches(sign);
    let fence = &line[..line.len() - info.len()];
    let is_inline = sign == '`' && info.contains('`');
    (fence.len() >= 3 && !is_inline).then_some(fence)
}

/// Whether a line ends the block that `fence` began: it has as many of the sign at least, and nothing else.
fn ends_fence(line: &str, fence: &str) -> bool {
    let rest = line.strip_prefix(fence);
    let sign = fence.chars().next().unwrap_or('`');
    rest.is_some_and(|rest| rest.trim_start_matches(sign).trim().is_empty())
}

/// Whether a block of this language may hold commands; Python has those of notebooks.
fn is_shell(info: &str) -> bool {
    let language = info.split([' ', '{', ',', ':']).next().unwrap_or_default();
    let known = [
        "",
        "bash",
        "sh",
        "shell",
        "zsh",
        "console",
        "shell-session",
        "shellsession",
        "text",
        "txt",
        "plain",
        "plaintext",
        "terminal",
        "none",
        "commandline",
        "python",
        "python3",
        "py",
        "ipython",
    ];
    known.contains(&language.to_ascii_lowercase().as_str())
}

/// Lines of a block that stands in a quotation.
fn without_quotes(lines: &[&str]) -> String {
    lines
        .iter()
        .flat_map(|line| {
            let plain = line.trim_start().strip_prefix("> ").unwrap_or(line);
            [plain, "\n"]
        })
        .collect()
}

/// The indented lines that `lines` begin with, one line end each.
fn indented(lines: &[&str]) -> String {
    let inside = |line: &&&str| line.starts_with([' ', '\t']) && !line.trim().is_empty();
    let mut text: String = lines
        .iter()
        .take_while(inside)
        .flat_map(|line| [line.trim(), "\n"])
        .collect();
    if text.is_empty() {
        text.push('\n');
    }
    text
}

fn begins_with_installer(line: &str) -> bool {
    let line = line.trim_start_matches(['$', ' ']);
    [
        "pip ",
        "pip3 ",
        "python -m pip",
        "python3 -m pip",
        "conda ",
        "sudo apt",
        "apt ",
        "apt-get ",
        "uv ",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
}

/// How code within a sentence begins that is read as a block of its own.
const INLINE_INSTALLERS: [&str; 4] = [
    "pip install ",
    "pip3 install ",
    "python -m pip install ",
    "python3 -m pip install ",
];
/// What a sentence says of a command that is not for everyone.
const EXCEPTIONS: [&str; 10] = [
    "if ",
    "instead",
    "optional",
    "alternativ",
    "error",
    "issue",
    "problem",
    "upgrade",
    "troubl",
    "don't",
];

/// The code between backticks of a line, but of a sentence that makes exceptions.
fn inline_code(prose: &str) -> Vec<&str> {
    let lower = prose.to_ascii_lowercase();
    if !lower.contains("pip") || EXCEPTIONS.iter().any(|word| lower.contains(word)) {
        return Vec::new();
    }
    let mut codes = Vec::new();
    let mut rest = prose;
    while let Some(start) = rest.find('`') {
        let after = rest[start..].trim_start_matches('`');
        let fence = &rest[start..rest.len() - after.len()];
        let Some(end) = after.find(fence) else { break };
        codes.push(after[..end].trim().trim_start_matches(['$', '!', ' ']));
        rest = after[end..].trim_start_matches('`');
    }
    codes
}

/// `- ` and code, and nothing else.
fn lone_code(line: &str) -> Option<&str> {
    let item = line.trim().trim_start_matches(|c: char| c.is_ascii_digit());
    let item = ["- ", "* ", "+ ", ". ", ") "]
        .iter()
        .find_map(|sign| item.strip_prefix(sign))?;
    let code = item.trim().strip_prefix('`')?.strip_suffix('`')?;
    (!code.contains('`')).then_some(code)
}

/// `<h2 …>Title</h2>` and `<summary>Title</summary>`.
fn html_heading(line: &str) -> Option<(usize, String)> {
    let at = line.find('<')?;
    let after = &line[at + 1..];
    let level = match after.find("summary") {
        Some(place) if place < 60 => SUMMARY_LEVEL,
        _ => {
            let digit = after.strip_prefix(['h', 'H'])?.bytes().next()?;
            usize::from(digit.checked_sub(b'0')?)
        }
    };
    if !(1..=SUMMARY_LEVEL).contains(&level) {
        return None;
    }
    let mut title = String::new();
    let mut tag = false;
    for c in line.chars().take(400) {
        match c {
            '<' => tag = true,
            '>' => tag = false,
            c if !tag => title.push(c),
            _ => {}
        }
    }
    Some((level, title.trim().to_owned()))
}

fn setext_level(line: &str) -> Option<usize> {
    let line = line.trim();
    match line.bytes().next()? {
        b'=' if line.len() > 2 && line.bytes().all(|b| b == b'=') => Some(1),
        b'-' if line.len() > 2 && line.bytes().all(|b| b == b'-') => Some(2),
        _ => None,
    }
}

fn underline(line: &str) -> Option<char> {
    let line = line.trim_end();
    let mark = line.chars().next()?;
    let all = line.len() > 2 && line.chars().all(|c| c == mark);
    (all && "=-~^\"'*+#<>`:.".contains(mark)).then_some(mark)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(path: &str, text: &str) -> Vec<String> {
        let shown = |block: ReadmeBlock| {
            let text = block.text.trim().replace('\n', "|");
            format!("{} {} [{}]", block.line, text, block.headings.join("/"))
        };
        find_blocks(path, text).into_iter().map(shown).collect()
    }

    #[test]
    fn blocks_of_markdown_have_their_headings() {
        let text = "# Net\n```\na\n```\n## Install\n```bash\npip x\n  y\n```\n### From source\n\n    $ pip z\n\nUse\n---\n\
                    - `pip install q`\n- `a` and `b`\n```yaml\nno: 1\n```\n<details><summary>More</summary>\n~~~sh\nr\n~~~\n\
                    </details>\n```\nopen\n";
        assert_eq!(
            show("README.md", text),
            [
                "3 a [net]",
                "7 pip x|  y [net/install]",
                "12 $ pip z [net/install/from source]",
                "16 pip install q [net/use]",
                "23 r [net/use/more]",
                "27 open [net/use]",
            ]
        );
    }

    #[test]
    fn blocks_of_restructured_text() {
        let text = "Net\n===\n\nInstall\n-------\n\n.. code-block:: bash\n   :caption: x\n\n   pip install a\n   pip install b\n\n\
                    Or::\n\n  pip c\n\n.. code-block:: yaml\n\n   no\n\nUse\n---\n::\n\n    d\n";
        assert_eq!(
            show("README.rst", text),
            [
                "10 pip install a|pip install b [net/install]",
                "15 pip c [net/install]",
                "25 d [net/use]",
            ]
        );
    }

    #[test]
    fn code_within_a_sentence_that_installs_is_a_block() {
        let text = "## Requirements\n* Libraries: `pip install click ninja==1`.  We use `x`.\n\
                    Or ``pip3 install a`` and `python -m pip install b`, `pip`\n\
                    If it fails, `pip install c`. \nOptional: `pip install d`\n`pip install open\n";
        assert_eq!(
            show("README.md", text),
            [
                "2 pip install click ninja==1 [requirements]",
                "3 pip3 install a [requirements]",
                "3 python -m pip install b [requirements]",
            ]
        );
        let text = "Install\n-------\n\nUse ``pip install a`` for it.\n";
        assert_eq!(show("README.rst", text), ["4 pip install a [install]"]);
    }

    #[test]
    fn backticks_on_one_line_are_no_fence() {
        let text = "## Install\n```pip install a==1```\n```bash\npip install b\n```\nand\n````\n```\npip c\n```` \n\
                    Then ```pip install d```.\n";
        assert_eq!(
            show("README.md", text),
            [
                "2 pip install a==1 [install]",
                "4 pip install b [install]",
                "8 ```|pip c [install]",
                "11 pip install d [install]",
            ]
        );
    }

    #[test]
    fn versions_in_the_text_are_found() {
        let pins = find_pins("# `a`\nBased on [`timm==0.3.2`](x), `a == b`, `a == 2` and\n`x`.\n");
        let shown: Vec<_> = pins
            .iter()
            .map(|(line, one)| (*line, one.text.as_str()))
            .collect();
        assert_eq!(shown, [(2, "timm==0.3.2"), (2, "a == 2")]);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((```|~~~|#|=|-|::|<h2>|<summary>|</|>|`|pip |    |a|é|\\. code::|\n) ?){0,60}") {
            for path in ["README.md", "README.rst"] {
                for block in find_blocks(path, &text) {
                    prop_assert!(block.line >= 1);
                }
            }
        }
    }
}
