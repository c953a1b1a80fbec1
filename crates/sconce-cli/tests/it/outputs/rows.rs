//! The table of outputs, and how each is asked for where that needs no packages.

use std::collections::BTreeSet;

const TABLE: &str = include_str!("table.txt");

/// What an argument is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text from beginning to end.
    Text,
    /// Bytes from beginning to end.
    Binary,
    /// TensorBoard's: a stream, or a file in a folder.
    Events,
    /// Its beginning is written last.
    Seekable,
    Folder,
    /// Files that replace nothing.
    New,
}

/// An output.
#[derive(Debug)]
pub(crate) struct Row {
    /// The verb and its argument.
    pub(crate) argument: String,
    pub(crate) kind: Kind,
    /// How it is asked for, `{}` in place of the path. `None` where that needs packages, cards or a network.
    pub(crate) words: Option<String>,
    /// A command of the user's has standard output.
    pub(crate) beside_command: bool,
}

impl Row {
    fn new(argument: &str, kind: Kind, words: Option<&str>) -> Self {
        Self {
            argument: argument.to_owned(),
            kind,
            words: words.map(str::to_owned),
            beside_command: argument == "run --json",
        }
    }

    /// The words of a call that writes to `path`.
    pub(crate) fn to(&self, path: &str) -> Vec<String> {
        let words = self.words.as_deref().unwrap().split(' ');
        words
            .map(|word| word.replace("{}", path).replace('~', " "))
            .collect()
    }

    /// The same for a shell, which takes any end that is one.
    pub(crate) fn shell(&self, path: &str) -> String {
        let words = self.to(path);
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        format!(
            "{{ \"$sconce\" {} >/dev/null || [ $? = 1 ]; }}",
            words.join(" ")
        )
    }

    /// 1 is an answer: the snapshots differ, something is wrong with the machine.
    pub(crate) fn is_done(&self, code: i32) -> bool {
        code == 0 || (code == 1 && !self.argument.starts_with("export"))
    }
}

/// Says that it began, and what a training script says of its steps.
const SCRIPT: &str = r#"echo>>began;mkdir~"$SCONCE_FIT/7";cp~snapshot.pickle~"$SCONCE_FIT/7/";echo~'{"format":1,"torch":"2.15.0+cu132","cuda":"13.2","python":"3.12.1","ended":"steps","wanted-steps":3,"steps":[{"optimizer":0,"begin-us":1,"end-us":2}],"optimizers":1,"used-cuda":true,"error":null,"devices":[{"name":"A","total-bytes":1,"outside-bytes":1,"stats":{"allocated_bytes.all.peak":1,"reserved_bytes.all.peak":1,"num_alloc_retries":0,"num_ooms":0}}],"holds":[],"dnn-plans":1}'>"$SCONCE_FIT/7/fit.json""#;

/// Outputs that no call here asks for, and why.
const NOT_DRIVEN: [(&str, &str); 7] = [
    ("build --docker-archive", "an image needs packages"),
    ("build --oci", "an image needs packages"),
    ("build --squashfs", "an image needs packages"),
    ("cdi write --output", "it describes cards"),
    ("init SOURCE", "it replaces nothing: `refused`"),
    ("keygen NAME", "it replaces nothing: `refused`"),
    ("lock SPEC", "a lock needs an index of packages"),
];

/// Calls for an output.
fn calls(argument: &str) -> Vec<String> {
    let calls: &[&str] = match argument {
        "run --json" => &["run --host -q --json {} -- touch began"],
        "report --html" => &["report -q --html {}"],
        "doctor --facts" => &["doctor -q --facts {}"],
        "doctor --bundle" => &["doctor -q --bundle {}"],
        "memory report --html" => &["memory report -q snapshot.pickle --html {}"],
        "memory diff --html" => &["memory diff -q snapshot.pickle other.pickle --html {}"],
        "memory what-if --html" => {
            &["memory what-if -q snapshot.pickle --conf expandable_segments:True --html {}"]
        }
        "export FILE" => &[
            "export -q last --to csv {}",
            "export -q last --to json {}",
            "export -q last --to perfetto {}",
            "export -q last --to parquet {}",
            "export -q last --to tensorboard {}",
        ],
        "fit --html" => &["fit -q --gpu 4090 --no-plans --html {} --host -- sh -c SCRIPT"],
        "fit --snapshot" => &["fit -q --gpu 4090 --no-plans --snapshot {} --host -- sh -c SCRIPT"],
        _ => &[],
    };
    calls.iter().map(|call| (*call).to_owned()).collect()
}

/// What verbs read, in the table.
pub(crate) fn inputs() -> Vec<String> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let words = lines.filter_map(|line| line.rsplit_once(' '));
    let inputs = words.filter(|(_, kind)| ["input", "record"].contains(kind));
    inputs.map(|(name, _)| name.trim().to_owned()).collect()
}

/// All outputs of the table, one row a way to ask for it.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let Some((argument, kind)) = line.rsplit_once(' ') else {
            continue;
        };
        let argument = argument.trim();
        let kind = match kind {
            "text" => Kind::Text,
            "binary" => Kind::Binary,
            "seekable" => Kind::Seekable,
            "folder" => Kind::Folder,
            "new" => Kind::New,
            // What is read, and what is no file.
            "input" | "record" | "mount" | "state" | "value" => continue,
            kind => panic!("table.txt: {argument} is {kind}"),
        };
        let calls = calls(argument);
        if calls.is_empty() {
            rows.push(Row::new(argument, kind, None));
        }
        for call in calls {
            let kind = match call.split(' ').nth(4) {
                Some("parquet") => Kind::Binary,
                Some("tensorboard") => Kind::Events,
                _ => kind,
            };
            rows.push(Row::new(
                argument,
                kind,
                Some(&call.replace("SCRIPT", SCRIPT)),
            ));
        }
    }
    assert!(rows.len() > 10);
    rows
}

#[test]
fn every_output_is_driven_or_said_not_to_be() {
    let rows = rows();
    let left_out = rows.iter().filter(|row| row.words.is_none());
    let left_out: BTreeSet<&str> = left_out.map(|row| row.argument.as_str()).collect();
    assert_eq!(left_out, NOT_DRIVEN.map(|(argument, _)| argument).into());
}
