//! From the text of a Dockerfile to its instructions:
//! <https://docs.docker.com/reference/dockerfile/>.

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    /// Where it begins, from 1.
    pub(super) line: usize,
    /// In capitals: `RUN`.
    pub(super) keyword: String,
    /// `--from=builder`: name and value.
    pub(super) flags: Vec<(String, String)>,
    /// What follows, with continuation lines joined.
    pub(super) rest: String,
    /// Where in `rest` each of its lines begins.
    places: Vec<(usize, usize)>,
    /// The here-documents, in their order.
    pub(super) heredocs: Vec<Heredoc>,
}

/// `<<EOF` and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heredoc {
    /// The line after the instruction's.
    pub(super) line: usize,
    pub(super) text: String,
}

impl Instruction {
    pub(super) fn flag_value(&self, name: &str) -> Option<&str> {
        let flag = self.flags.iter().find(|(flag, _)| flag == name)?;
        Some(&flag.1)
    }

    /// The line in the file of a place in `rest`.
    pub(super) fn line_at(&self, place: usize) -> usize {
        let after = self.places.partition_point(|(start, _)| *start <= place);
        self.places[..after]
            .last()
            .map_or(self.line, |(_, line)| *line)
    }
}

/// More instructions than any Dockerfile has.
const MAX_INSTRUCTIONS: usize = 20_000;

/// Never fails: what is no instruction gets a keyword that is none.
pub(super) fn parse_instructions(text: &str) -> Vec<Instruction> {
    let lines: Vec<&str> = text.lines().collect();
    let escape = escape(&lines);
    let mut instructions = Vec::new();
    let mut at = 0;
    while at < lines.len() && instructions.len() < MAX_INSTRUCTIONS {
        if is_comment(lines[at]) || lines[at].trim().is_empty() {
            at += 1;
            continue;
        }
        let line = at + 1;
        let mut whole = String::new();
        let mut places = Vec::new();
        loop {
            let part = lines[at];
            at += 1;
            // Comments and empty lines between continued ones are passed over.
            if is_comment(part) || (!whole.is_empty() && part.trim().is_empty()) {
                if at < lines.len() {
                    continue;
                }
                break;
            }
            places.push((whole.len(), at));
            match part.trim_end().strip_suffix(escape) {
                Some(part) => whole.push_str(part),
                None => {
                    whole.push_str(part);
                    break;
                }
            }
            if at == lines.len() {
                break;
            }
        }
        let mut instruction = take_apart(line, &whole, &places);
        if matches!(instruction.keyword.as_str(), "RUN" | "COPY" | "ADD") {
            for (end, strip) in heredocs(&instruction.rest) {
                let first = at + 1;
                let mut text = String::new();
                while let Some(line) = lines.get(at) {
                    at += 1;
                    let line = if strip {
                        line.trim_start_matches('\t')
                    } else {
                        line
                    };
                    if line == end {
                        break;
                    }
                    text.push_str(line);
                    text.push('\n');
                }
                instruction.heredocs.push(Heredoc { line: first, text });
            }
        }
        instructions.push(instruction);
    }
    instructions
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// `# escape=` among the directives at the very beginning.
fn escape(lines: &[&str]) -> char {
    for line in lines {
        let Some((name, value)) = line
            .trim()
            .strip_prefix('#')
            .and_then(|comment| comment.split_once('='))
        else {
            break;
        };
        if name.trim().eq_ignore_ascii_case("escape") && value.trim() == "`" {
            return '`';
        }
    }
    '\\'
}

fn take_apart(line: usize, whole: &str, places: &[(usize, usize)]) -> Instruction {
    let begin = whole.len() - whole.trim_start().len();
    let text = &whole[begin..];
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let keyword = text[..end].to_ascii_uppercase();
    let mut start = begin + end;
    let mut flags = Vec::new();
    loop {
        start += whole[start..].len() - whole[start..].trim_start().len();
        let Some(flag) = whole[start..].strip_prefix("--") else {
            break;
        };
        let known = matches!(
            keyword.as_str(),
            "FROM" | "RUN" | "COPY" | "ADD" | "HEALTHCHECK"
        );
        if !known {
            break;
        }
        let length = flag.find(char::is_whitespace).unwrap_or(flag.len());
        let (name, value) = flag[..length]
            .split_once('=')
            .unwrap_or((&flag[..length], ""));
        flags.push((name.to_owned(), value.to_owned()));
        start += 2 + length;
    }
    Instruction {
        line,
        keyword,
        flags,
        rest: whole[start..].trim_end().to_owned(),
        places: places
            .iter()
            .map(|(place, line)| (place.saturating_sub(start), *line))
            .collect(),
        heredocs: Vec::new(),
    }
}

/// The ends of the here-documents that a line opens, and whether tabs before their lines go.
fn heredocs(line: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("<<") {
        rest = &rest[at + 2..];
        if let Some(more) = rest.strip_prefix('<') {
            rest = more;
            continue;
        }
        let (strip, name) = match rest.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, rest),
        };
        let name = name.trim_start_matches(['"', '\'']);
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &name[..name.find(|c| !word(c)).unwrap_or(name.len())];
        if !name.is_empty() && found.len() < 16 {
            found.push((name, strip));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_keep_their_numbers() {
        let text = "# escape=\\\n\nFROM a AS b\nrun --mount=type=cache,target=/x --network=none one && \\\n  # why\n\n  two \\\n  three\nCMD [\"x\"]";
        let all = parse_instructions(text);
        assert_eq!(all.len(), 3);
        let run = &all[1];
        assert_eq!((run.line, run.keyword.as_str()), (4, "RUN"));
        assert_eq!(run.flag_value("mount"), Some("type=cache,target=/x"));
        assert_eq!(run.rest, "one &&   two   three");
        let line = |word: &str| run.line_at(run.rest.find(word).unwrap());
        assert_eq!((line("one"), line("two"), line("three")), (4, 7, 8));
        assert_eq!(all[2].rest, "[\"x\"]");
    }

    #[test]
    fn here_documents_belong_to_their_instruction() {
        let all = parse_instructions(
            "FROM a\nRUN <<EOF\npip install x\n# not a comment\nEOF\nCOPY <<-\"A\" <<B /x\n\tone\n\tA\ntwo\nB\nCMD y\n",
        );
        assert_eq!(all[1].heredocs[0].text, "pip install x\n# not a comment\n");
        assert_eq!(all[1].heredocs[0].line, 3);
        let texts: Vec<&str> = all[2].heredocs.iter().map(|h| h.text.as_str()).collect();
        assert_eq!(texts, ["one\n", "two\n"]);
        assert_eq!(all[3].keyword, "CMD");
        assert_eq!(parse_instructions("RUN <<EOF\nnever ended").len(), 1);
    }

    #[test]
    fn another_escape() {
        let all = parse_instructions("# escape=`\nFROM a\nRUN x `\n  y\n");
        assert_eq!(all[1].rest, "x   y");
        assert_eq!(
            parse_instructions("FROM a \\"),
            parse_instructions("FROM a \\")
        );
    }
}
