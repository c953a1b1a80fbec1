//! The programs of the repository that a README runs.

use super::super::{dockerfile, inside};
use super::ReadmeBlock;

/// Programs that are looked for.
const MAX_PROGRAMS: usize = 50;
/// What starts a program that is given by its path.
const STARTERS: [&str; 5] = ["python", "torchrun", "accelerate", "deepspeed", "jupyter"];

/// Paths that end in `.py`, each once; with the folder that a `cd` of the block leads to, and without.
pub(crate) fn find_programs(blocks: &[ReadmeBlock]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for block in blocks {
        let mut folder = String::new();
        for (_, words) in dockerfile::script_words(&super::install::plain_script(&block.text)) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let words = dockerfile::without_prefix(&words);
            let Some((first, rest)) = words.split_first() else {
                continue;
            };
            if *first == "cd" {
                let joined = format!("{folder}/{}", rest.first().unwrap_or(&""));
                folder = inside(joined.trim_start_matches('/')).unwrap_or_default();
                continue;
            }
            if !STARTERS.iter().any(|starter| first.starts_with(starter)) {
                continue;
            }
            let Some(program) = rest.iter().find(|word| word.ends_with(".py")) else {
                continue;
            };
            for path in [format!("{folder}/{program}"), (*program).to_owned()] {
                if found.len() >= MAX_PROGRAMS {
                    return found;
                }
                let path = inside(path.trim_start_matches('/'));
                found.extend(path.filter(|path| !found.contains(path)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::find_blocks;
    use super::*;

    #[test]
    fn programs_are_known_by_what_starts_them() {
        let text = "# Net\n## Use\n```\nCUDA_VISIBLE_DEVICES=0 python training/train.py --x a.py\n\
                    torchrun --nproc 2 ./b.py\n./c.py\ncat d.py\npython ../e.py\n```\n\
                    ```\n$ cd exp/x\n$ python3 -u f.py\n```\n";
        let found = find_programs(&find_blocks("README.md", text));
        assert_eq!(found, ["training/train.py", "b.py", "exp/x/f.py", "f.py"]);
    }
}
