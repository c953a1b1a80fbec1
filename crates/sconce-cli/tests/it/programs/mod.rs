//! Every program that a test or a script starts stands in `scripts/programs.tsv`, by which `scripts/test`
//! installs. What is found here is what the sources say: first words of commands in shell scripts,
//! `Command::new` in Rust, lists of words in Python.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod shell;
mod sources;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sconce_testkit::table::{PROGRAMS, parse_programs};

/// Scripts that run in an emulated machine or a container, with what is there.
const ELSEWHERE: [&str; 8] = [
    "scripts/test-v2.d/checks",
    "scripts/test-v2.d/init",
    "scripts/test-v2.d/mounts",
    "scripts/test-v2.d/nfs-init",
    "scripts/test-v2.d/no-walls-init",
    "scripts/test-v2.d/reboot-init",
    "scripts/test-v2.d/slurm-checks",
    "scripts/test-v2.d/systemd-checks",
];

/// A program that a source starts.
#[derive(Debug)]
struct Start {
    file: PathBuf,
    line: usize,
    program: String,
    /// Words of the list's third column, of which a row has to have one; none: any row will do.
    users: Vec<String>,
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
}

/// What the sources start, without what scripts define themselves.
fn starts() -> Vec<Start> {
    let texts = sources::texts(top(), &["bench", "crates", "python", "scripts", ".ci"]);
    let mut found = Vec::new();
    let mut functions = BTreeSet::new();
    for (file, text) in &texts {
        let kind = sources::kind(file, text);
        let elsewhere = ELSEWHERE.iter().any(|inside| file == Path::new(inside));
        if elsewhere || file.starts_with(sources::SELF) {
            continue;
        }
        match kind {
            Some(sources::Kind::Shell) => {
                let script = shell::read(text);
                functions.extend(script.functions.iter().cloned());
                found.extend(sources::of_shell(file, &script));
            }
            Some(sources::Kind::Rust) => found.extend(sources::of_rust(file, text)),
            Some(sources::Kind::Python) => found.extend(sources::of_python(file, text)),
            None => {}
        }
    }
    found.retain(|start| !functions.contains(&start.program));
    found
}

/// What the list lacks.
fn unlisted<'a>(starts: &'a [Start], list: &str) -> Vec<&'a Start> {
    let rows: Vec<_> = parse_programs(list).flatten().collect();
    let fits = |start: &Start| {
        let row = rows.iter().find(|row| row.name == start.program);
        row.is_some_and(|row| {
            let users: Vec<&str> = row.users.split(',').collect();
            let general = ["base", "toolchain", "maybe"];
            start.users.is_empty()
                || users.iter().any(|user| general.contains(user))
                || start
                    .users
                    .iter()
                    .any(|user| users.contains(&user.as_str()))
        })
    };
    starts.iter().filter(|start| !fits(start)).collect()
}

#[test]
fn every_program_that_is_started_stands_in_the_list() {
    let starts = starts();
    let lacking: Vec<String> = unlisted(&starts, PROGRAMS)
        .iter()
        .map(|start| {
            let file = start.file.display();
            let users = start.users.join(" or ");
            format!("{file}:{}: {} (for {users})", start.line, start.program)
        })
        .collect();
    assert!(
        lacking.is_empty(),
        "scripts/programs.tsv lacks these (program, package, who needs it):\n{}",
        lacking.join("\n")
    );
}

/// That the test above can fail: each row but those that only sometimes count is found somewhere.
#[test]
fn a_row_that_is_taken_away_is_missed() {
    let starts = starts();
    for gone in [
        "unsquashfs",
        "umoci",
        "qemu-system-x86_64",
        "mkfs.ext4",
        "sshpass",
        "tar",
    ] {
        let row = format!("{gone}\t");
        let list: Vec<&str> = PROGRAMS
            .lines()
            .filter(|line| !line.starts_with(&row))
            .collect();
        assert!(
            list.len() < PROGRAMS.lines().count(),
            "{gone} is in the list"
        );
        let missed = unlisted(&starts, &list.join("\n"));
        assert!(missed.iter().any(|start| start.program == gone), "{gone}");
    }
    // A row for somebody else does not do.
    let other = PROGRAMS.replace(
        "unsquashfs\tsquashfs-tools\t",
        "unsquashfs\tsquashfs-tools\tx-",
    );
    let missed = unlisted(&starts, &other);
    assert!(
        missed.iter().any(|start| start.program == "unsquashfs"),
        "{missed:?}"
    );
}

#[test]
fn rows_that_nothing_starts_are_no_rows() {
    let starts = starts();
    let named: BTreeSet<&str> = starts.iter().map(|start| start.program.as_str()).collect();
    let idle: Vec<&str> = parse_programs(PROGRAMS)
        .flatten()
        .filter(|row| !named.contains(row.name))
        .filter(|row| {
            !row.users
                .split(',')
                .any(|user| ["indirect", "maybe"].contains(&user))
        })
        .filter(|row| !row.name.starts_with('/'))
        .map(|row| row.name)
        .collect();
    assert_eq!(
        idle,
        Vec::<&str>::new(),
        "say `indirect` where another program starts it, `maybe` where no source has its name in full"
    );
}

#[test]
fn commands_of_a_shell_script_are_found() {
    let script = r#"
need images
first "$x" | second -v >"$(third)" 2>&1 && ! fourth || fifth & # not-this
a=1 b=$(sixth --flag) seventh <<<eighth
if [ -e x ]; then ninth; else tenth; fi
case $1 in
  not-this | nor-this) eleventh ;;
  (*) twelfth "${x:-$(thirteenth)}" ;;
esac
list=(not-this $(fourteenth))
made() { fifteenth; }
cat <<'END' | sixteenth
not-this
END
exec env A=1 seventeenth
timeout 600 eighteenth
check "a name" nineteenth not-this
for program in twentieth:package docker; do command -v "$program"; done
[[ $x =~ ^(not|this)$ ]] && made
echo 'not-this' "$(
  twenty-first
)" $((2 * (3 + 4))) `twenty-second`
while read -r line; do :; done < <(twenty-third)
"#;
    let read = shell::read(script);
    let mut names: Vec<String> = sources::of_shell(Path::new("x"), &read)
        .map(|start| start.program)
        .collect();
    names.sort();
    names.dedup();
    let mut expected: Vec<&str> = "first second third fourth fifth sixth seventh ninth tenth \
        eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth \
        nineteenth twentieth docker cat env timeout twenty-first twenty-second twenty-third need check made"
        .split_whitespace()
        .collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    assert!(read.functions.contains("made") && read.functions.len() == 1);
    assert_eq!(sources::needs(&read), ["images"]);
}

#[test]
fn programs_of_rust_and_python_are_found() {
    let text = "fn a() { Command::new(\"one\"); Command::new(\n  \"two\"); testkit::find_program(\"three\");\n\
                has_programs(&[\"four\", \"five\"]); Command::new(\"/bin/six\"); }";
    let names = |starts: Vec<Start>| -> Vec<String> {
        starts.into_iter().map(|start| start.program).collect()
    };
    let found = names(sources::of_rust(Path::new("crates/x/tests/x.rs"), text));
    assert_eq!(found, ["one", "two", "six", "three", "four", "five"]);
    let text = "subprocess.run([\"one\", x])\nPopen(\n  [\"two\"])\nshutil.which(\"three\")\nSSH = [\"four\", \"-x\"]\n";
    let found = names(sources::of_python(Path::new("x.py"), text));
    assert_eq!(found, ["one", "two", "three", "four"]);
}

/// In a test what is started is a literal, or its kind is known.
#[test]
fn no_test_starts_what_only_a_variable_names() {
    let unknown: Vec<String> = sources::texts(top(), &["crates"])
        .iter()
        .filter(|(file, _)| sources::is_test(file))
        .flat_map(|(file, text)| {
            let unknown = sources::unknown_arguments(text);
            unknown
                .into_iter()
                .map(move |what| format!("{}: Command::new({what})", file.display()))
        })
        .collect();
    assert_eq!(unknown, Vec::<String>::new());
    assert_eq!(
        sources::unknown_arguments("Command::new(whatever(1))"),
        ["whatever(1)"]
    );
}

/// What is left out is counted where it is told to `sconce_testkit`, and nowhere else.
#[test]
fn no_test_leaves_itself_out_by_a_line_that_nobody_counts() {
    let texts = sources::texts(top(), &["crates"]);
    let told = |text: &str| {
        ["\"skipped:", "\"skipped as", "\"skipped for"]
            .iter()
            .any(|said| text.contains(said))
    };
    let silent: Vec<&PathBuf> = texts
        .iter()
        .filter(|(file, text)| sources::is_test(file) && told(text))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(silent, Vec::<&PathBuf>::new());
}
