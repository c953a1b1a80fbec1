//! Whether what stands around a text speaks of a GPU.
//!
//! `xid 79` is the driver's word for a fault, and that of databases for a transaction, of DHCP for an exchange and
//! of RPC for a call. It counts as the driver's
//!
//! - never, where its line speaks of one of those;
//! - where its line speaks of a GPU;
//! - else only in a person's words, with nothing around them that programs write (`xid=79`, `[12]`): where the
//!   line before or after speaks of a GPU, or where these few words are all that was given.

/// A line with its neighbours.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Surroundings<'a> {
    pub(super) before: &'a [u8],
    pub(super) line: &'a [u8],
    pub(super) after: &'a [u8],
    /// The whole text is a few lines, that somebody asks about.
    pub(super) is_short: bool,
}

/// Words of those who have numbers of the same name.
const OTHERS: [&str; 20] = [
    "transaction",
    "sql",
    "postgres",
    "database",
    "commit",
    "rollback",
    "vacuum",
    "replica",
    "tuple",
    "xmin",
    "oldest",
    "binlog",
    "snapshot",
    "sharelock",
    "dhcp",
    "nfs",
    "rpc",
    "iscsi",
    "x11",
    "x window",
];

/// Words that a GPU is spoken of with.
const OF_GPUS: [&str; 9] = [
    "nvidia",
    "nvrm",
    "cuda",
    "dcgm",
    "nvml",
    "nvlink",
    "nccl",
    "graphics card",
    "video card",
];

impl Surroundings<'_> {
    /// Whether a text on this line is one about a GPU.
    pub(super) fn speak_of_gpu(&self) -> bool {
        let line = lower(self.line);
        let of_neighbour = |line: &[u8]| names_gpu(&lower(line));
        !names_others(&line)
            && (names_gpu(&line)
                || (is_prose(&line)
                    && (self.is_short || of_neighbour(self.before) || of_neighbour(self.after))))
    }

    /// Whether the line by itself says that.
    pub(super) fn line_speaks_of_gpu(&self) -> bool {
        let line = lower(self.line);
        !names_others(&line) && names_gpu(&line)
    }
}

fn names_others(line: &str) -> bool {
    OTHERS.iter().any(|word| line.contains(word))
}

fn lower(line: &[u8]) -> String {
    String::from_utf8_lossy(line).to_ascii_lowercase()
}

/// Whether a line in lower case has a word for a GPU. `gpu-node3` is a machine's name, and in every line of its log.
fn names_gpu(line: &str) -> bool {
    let mut at = line.match_indices("gpu");
    let is_gpu = |(at, word): (usize, &str)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + word.len()..];
        let is_part = before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
        let of_host = match rest.as_bytes() {
            [b'-', uuid @ ..] => {
                uuid.iter()
                    .take(8)
                    .filter(|byte| byte.is_ascii_hexdigit())
                    .count()
                    < 8
            }
            [b'.', next, ..] => next.is_ascii_alphanumeric(),
            _ => false,
        };
        !is_part && !of_host
    };
    OF_GPUS.iter().any(|word| line.contains(word)) || at.any(is_gpu)
}

/// Whether a line is made of words and signs that a person writes.
fn is_prose(line: &str) -> bool {
    let of_prose =
        |c: char| c.is_alphanumeric() || c.is_whitespace() || ".,:;?!'\"()#-’“”".contains(c);
    line.chars().all(of_prose)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaks(before: &str, line: &str, after: &str, is_short: bool) -> bool {
        let around = Surroundings {
            before: before.as_bytes(),
            line: line.as_bytes(),
            after: after.as_bytes(),
            is_short,
        };
        around.speak_of_gpu()
    }

    #[test]
    fn the_line_itself_decides_first() {
        for line in [
            "GPU 3: Xid 94",
            "gpu=3 xid=79",
            "device GPU-34d7319c-5b19-1e75: xid=79",
            "nvidia: xid 79",
            "Jan 1 00:00:00 gpu-node3 kernel: NVRM: xid 79",
        ] {
            assert!(speaks("", line, "", false), "{line}");
        }
        for line in [
            "xid=79",
            "app: xid=79 on gpu-node3",
            "gpu.example.org app xid=79",
            "x.gpu app xid=79",
            "GPU table: transaction xid 79",
            "nvidia postgres[7]: LOG: xid 79",
        ] {
            assert!(!speaks("", line, "", true), "{line}");
        }
    }

    #[test]
    fn a_persons_words_count_by_what_is_beside_them() {
        assert!(speaks("", "it died with Xid 79, again", "", true));
        assert!(!speaks("", "it died with Xid 79, again", "", false));
        assert!(speaks("we lost a GPU", "it died with Xid 79", "", false));
        assert!(speaks(
            "",
            "it died with Xid 79",
            "the NVIDIA driver",
            false
        ));
        assert!(!speaks(
            "we lost a GPU",
            "xid=79",
            "the NVIDIA driver",
            false
        ));
    }
}
