//! Wheels, through the store's own door: read once, front to back, and installed.

use std::fs;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::OnceLock;
use std::time::Duration;

use arbitrary::Unstructured;
use sconce_fetch::{FetchConfig, Fetcher};
use sconce_schema::lock::Wheel;
use sconce_schema::{Hint as _, NoProgress, Sha256};
use sconce_store::Store;
use sconce_store::wheel::{InstallOptions, SlowThreshold, WheelLimits};
use sha2::Digest as _;

use crate::bytes::{flag, noise, pick, some_bytes};
use crate::scratch::{Pen, names, walk};
use crate::zip::{Entry, entry, zip};

const OPTIONS: InstallOptions = InstallOptions {
    threads: NonZero::new(1),
    limits: WheelLimits {
        bytes: 1 << 20,
        entries: 100,
    },
    // No file arrives slowly: nothing is kept.
    slow: SlowThreshold {
        after: Duration::MAX,
        remaining: Duration::MAX,
    },
};

/// Any bytes whose digest is the lock's.
pub(crate) fn raw(data: &[u8]) {
    install(data);
}

pub(crate) fn raw_seeds() -> Vec<Vec<u8>> {
    let mut deflated = demo();
    deflated.iter_mut().for_each(|entry| entry.deflated = true);
    let mut behind = demo();
    behind
        .iter_mut()
        .for_each(|entry| entry.sizes_behind = true);
    let mut both = demo();
    both.iter_mut()
        .for_each(|entry| (entry.deflated, entry.sizes_behind) = (true, true));
    [demo(), deflated, behind, both]
        .map(|entries| zip(&entries))
        .to_vec()
}

/// Sound archives of odd entries.
pub(crate) fn entries(data: &[u8]) {
    let mut from = Unstructured::new(data);
    let mut entries = Vec::new();
    while !from.is_empty() && entries.len() < 12 {
        let name = name(&mut from);
        // Odd entries are rare enough that most archives get further than their first one.
        let is_odd = from.ratio(1, 16).unwrap_or(false);
        if !is_odd && entries.iter().any(|other: &Entry| other.name == name) {
            continue;
        }
        let data = match pick(&mut from, &[0, 1, 1, 2, 3]) {
            0 => b"Wheel-Version: 1.0\nTag: py3-none-any\n".to_vec(),
            1 => entry_points(&mut from),
            2 => [b"#!python", some_bytes(&mut from, 40)].concat(),
            _ => some_bytes(&mut from, 200).to_vec(),
        };
        entries.push(Entry {
            deflated: flag(&mut from),
            sizes_behind: flag(&mut from) && flag(&mut from),
            mode: match is_odd {
                true => pick(&mut from, &[0o120_777, 0o40_755, 0, 0o104_755]),
                false => pick(&mut from, &[0o100_644, 0o100_755]),
            },
            ..entry(&name, &data)
        });
    }
    for (name, data) in [("WHEEL", &b"Wheel-Version: 1.0\n"[..]), ("RECORD", b"")] {
        let name = format!("demo-1.0.dist-info/{name}");
        if !entries.iter().any(|other| other.name == name) {
            entries.push(entry(&name, data));
        }
    }
    install(&zip(&entries));
}

pub(crate) fn entry_seeds() -> Vec<Vec<u8>> {
    noise()
}

/// Lines of an `entry_points.txt`, most of them sound.
fn entry_points(from: &mut Unstructured<'_>) -> Vec<u8> {
    const NAMES: [&str; 8] = ["x", "y", "z", "y+", "x.y", "ü.z", "-c", "python"];
    const TARGETS: [&str; 8] = [
        "m:f", "m.n:f.g", "m:f [e]", "m.n:f", "m:f.g", "ü:ü", "m", "m:1",
    ];
    let mut text = "[console_scripts]\n".to_owned();
    for _ in 0..from.int_in_range(0..=4).unwrap_or(0) {
        let line = match from.ratio(1, 8) {
            Ok(true) => String::from_utf8_lossy(some_bytes(from, 20)).into_owned(),
            _ => format!("{} = {}", pick(from, &NAMES), pick(from, &TARGETS)),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text.into_bytes()
}

/// A path that wheels have; now and then one that they must not.
fn name(from: &mut Unstructured<'_>) -> String {
    const FOLDERS: [&str; 8] = [
        "",
        "a/",
        "demo-1.0.dist-info/",
        "demo-1.0.dist-info/",
        "demo-1.0.data/scripts/",
        "demo-1.0.data/data/",
        "demo-1.0.data/purelib/",
        "demo-1.0.data/headers/",
    ];
    const FILES: [&str; 8] = [
        "entry_points.txt",
        "entry_points.txt",
        "RECORD",
        "WHEEL",
        "INSTALLER",
        "b.py",
        "c,\"d",
        "bin/python3",
    ];
    const ODD: [&str; 8] = [
        "..",
        ".",
        "",
        "x\\y",
        "e-2.dist-info",
        "e-2.data",
        "pyvenv.cfg",
        "scripts",
    ];
    if !from.ratio(1, 24).unwrap_or(false) {
        return format!("{}{}", pick(from, &FOLDERS), pick(from, &FILES));
    }
    let mut parts = vec![pick(from, &FOLDERS).to_owned()];
    for _ in 0..from.int_in_range(1..=3).unwrap_or(1) {
        parts.push(match flag(from) {
            true => pick(from, &ODD).to_owned(),
            false => String::from_utf8_lossy(some_bytes(from, 8)).into_owned(),
        });
    }
    parts.join("/")
}

fn demo() -> Vec<Entry> {
    let mut program = entry("demo/bin/program", b"\x7fELF");
    program.mode = 0o100_755;
    vec![
        entry("demo/__init__.py", b"value = 1\n"),
        program,
        entry("demo-1.0.data/scripts/tool", b"#!python\nprint('tool')\n"),
        entry("demo-1.0.data/data/share/demo.txt", b"shared\n"),
        entry(
            "demo-1.0.dist-info/METADATA",
            b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        ),
        entry(
            "demo-1.0.dist-info/WHEEL",
            b"Wheel-Version: 1.0\nTag: py3-none-any\n",
        ),
        entry(
            "demo-1.0.dist-info/entry_points.txt",
            b"[console_scripts]\ndemo = demo.main:run\n",
        ),
        entry(
            "demo-1.0.dist-info/RECORD",
            b"demo/__init__.py,sha256=WFyTZm_LBGt7Jk0_pzICqio4JUroKks7oZ6HPC1amIY,10\n\
              demo-1.0.dist-info/RECORD,,\n",
        ),
    ]
}

fn install(bytes: &[u8]) {
    static FETCHER: OnceLock<Fetcher> = OnceLock::new();
    let fetcher = FETCHER.get_or_init(|| {
        Fetcher::new(FetchConfig {
            offline: true,
            retries: 0,
            ..FetchConfig::default()
        })
        .expect("a fetcher can be made")
    });
    let pen = Pen::new();
    let file = pen.tree.join("wheel");
    fs::write(&file, bytes).expect("a file can be written");
    let store = Store::open(&pen.tree.join("store")).expect("a store can be made");
    let wheel = Wheel {
        name: "demo".to_owned(),
        version: "1.0".to_owned(),
        file: "demo-1.0-py3-none-any.whl".to_owned(),
        url: format!("file://{}", file.display()),
        size: Some(bytes.len() as u64),
        sha256: Sha256(sha2::Sha256::digest(bytes).into()),
        build: None,
    };
    let made = store.ensure_wheels_with(fetcher, &[wheel], "3.13", &NoProgress, OPTIONS);
    pen.assert_closed();
    assert_eq!(
        names(&store.root().join("tmp")),
        [""; 0],
        "something is left"
    );
    let tree = match made {
        Ok(mut trees) => trees.remove(0),
        Err(error) => {
            let (_, _) = (error.to_string(), error.hint());
            assert_eq!(
                store.measure_usage().expect("the store reads").kinds.len(),
                0
            );
            return;
        }
    };
    let (mut files, mut record) = (0, None);
    walk(&tree, &mut |path, meta| {
        let mode = meta.permissions().mode() & 0o7777;
        assert!(path.starts_with(tree.join("opt")), "{}", path.display());
        if meta.is_dir() {
            assert_eq!(mode, 0o755, "{}", path.display());
            return;
        }
        assert!(
            meta.is_file() && matches!(mode, 0o644 | 0o755),
            "{mode:o} {}",
            path.display()
        );
        files += 1;
        let in_info = path
            .parent()
            .is_some_and(|p| p.to_string_lossy().ends_with(".dist-info"));
        if path.ends_with("RECORD") && in_info {
            record = Some(fs::read_to_string(path).expect("the record is text"));
        }
        assert!(
            path != tree.join("opt/venv/bin/python3"),
            "the interpreter was replaced"
        );
    });
    let record = record.expect("an installed wheel has a RECORD");
    assert_eq!(
        record.lines().count(),
        files,
        "the RECORD names every file once:\n{record}"
    );
}
