//! `sconce check`.

use std::fs;

use std::process::Command;

use insta::assert_snapshot;
use sconce_schema::Sha256;
use sha2::Digest as _;

use super::home::{Home, codes, with_site};

#[test]
fn check_draws_every_torch_on_nine_cards() {
    let home = Home::new();
    let cards = "p100 v100 t4 a100 3090 4090 h100 b200 5090";
    let mut words = vec!["check", "--torch", "all"];
    cards
        .split(' ')
        .for_each(|card| words.extend(["--gpu", card]));
    assert_snapshot!(home.said(&words), @r"
    exit code 1
    -- standard output
                             P100    V100  T4      A100  RTX 3090  RTX 4090  H100  B200   RTX 5090
    torch 2.0.1, CUDA 11.7   yes a   yes   yes     yes   yes       yes       no b  no c   no d
    torch 2.1.2, CUDA 12.1   yes a   yes   yes     yes   yes       yes       yes   no e   no f
    torch 2.2.2, CUDA 12.1   yes a   yes   yes     yes   yes       yes       yes   no e   no f
    torch 2.3.1, CUDA 12.1   yes a   yes   yes     yes   yes       yes       yes   no e   no f
    torch 2.4.1, CUDA 12.1   yes a   yes   yes     yes   yes       yes       yes   no e   no f
    torch 2.5.1, CUDA 12.4   yes~ a  yes~  yes~    yes~  yes~      yes~      yes~  no~ e  no~ f
    torch 2.6.0, CUDA 12.4   yes a   yes   yes     yes   yes       yes       yes   no e   no f
    torch 2.7.1, CUDA 12.6   yes~ a  yes~  yes~    yes~  yes~      yes~      yes~  no~ g  no~ h
    torch 2.8.0, CUDA 12.8   no i    yes   yes     yes   yes       yes       yes   yes    yes
    torch 2.9.1, CUDA 12.8   no i    yes   yes     yes   yes       yes       yes   yes    yes
    torch 2.10.0, CUDA 12.8  no i    yes   yes     yes   yes       yes       yes   yes    yes
    torch 2.11.0, CUDA 13.0  no j    no k  yes l   yes   yes       yes       yes   yes    yes
    torch 2.12.1, CUDA 13.0  no j    no k  yes~ l  yes   yes       yes       yes   yes    yes
    torch 2.13.0, CUDA 13.0  no j    no k  yes~ l  yes   yes       yes       yes   yes    yes
    torch 2.14.1, CUDA 13.0  no j    no k  yes~ l  yes   yes       yes       yes   yes    yes
    torch 2.15.0, CUDA 13.2  no m    no n  yes l   yes   yes       yes       yes   yes    yes

    a  no torch.compile below 7.0
    b  no code for 9.0, ends at 8.6; built with CUDA 11.8 it runs
    c  no code for 10.0, ends at 8.6
    d  no code for 12.0, ends at 8.6
    e  no code for 10.0, ends at 9.0
    f  no code for 12.0, ends at 9.0
    g  no code for 10.0, ends at 9.0; built with CUDA 12.8 it runs
    h  no code for 12.0, ends at 9.0; built with CUDA 12.8 it runs
    i  no code for 6.0, begins at 7.0; built with CUDA 12.6 it runs
    j  no code for 6.0, begins at 7.5; built with CUDA 12.6 it runs
    k  no code for 7.0, begins at 7.5; built with CUDA 12.6 it runs
    l  no code in parts of torch.linalg
    m  no code for 6.0, begins at 7.5
    n  no code for 7.0, begins at 7.5
    ~  inferred, not measured

    no torch that is known runs on all of them
    -- standard error
    ");
    // Without a note, and with a reason why it is the newest.
    let words = ["check", "--torch", "2.8", "--gpu", "h100", "--gpu", "3090"];
    assert_snapshot!(home.said(&words), @r"
    exit code 0
    -- standard output
                          H100  RTX 3090
    torch 2.8, CUDA 12.8  yes   yes

    newest for all of them: torch 2.15.0 built with CUDA 13.2
    -- standard error
    ");
    let said = home.sconce(&[&words[..], &["--json"]].concat()).json();
    assert_eq!(said["rows"][0]["cells"][0]["verdict"], "runs");
}

#[test]
fn check_judges_a_folder_of_packages() {
    let home = Home::new();
    with_site(&home);
    assert_snapshot!(home.said(&["check", "venv", "--gpu", "V100"]), @r#"
    exit code 1
    -- standard output
    fails  torch 2.15.0 has no code for the Tesla V100 (compute capability 7.0) [no-kernel-image]
             seen   metadata of the wheels and every entry of their libtorch_cuda.so: machine code for 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0
             error  CUDA error: no kernel image is available for execution on the device
             mend   Take the newest that runs on this machine: torch 2.14.1 built with CUDA 12.6, from PyTorch's own index cu126 (python.extra-index): in sconce.toml, beside what else is there, python.packages = ["torch==2.14.1+cu126"]

    fails  torchvision 0.15.2 was built for another torch; 2.15.0 goes with torchvision 0.29 [torchvision-mismatch]
             seen   package, torchvision: 0.15.2
             seen   package, torch: 2.15.0
             error  RuntimeError: operator torchvision::nms does not exist
             mend   Ask for the torchvision that goes with this torch: `python -m pip install 'torchvision==0.29.*'`

    notes  the Tesla V100 (7.0) has no bfloat16 in hardware: it is slow there, float16 is not [bf16-emulated]
             seen   the card that was named, compute capability: 7.0
    -- standard error
    venv on Tesla V100: it will not run (2 failures, 1 note)
    "#);
    assert_snapshot!(home.said(&["check", "venv", "--gpu", "V100", "--gpu", "H100"]), @r"
    exit code 1
    -- standard output
                     V100  H100
    venv, CUDA 13.2  no a  no b

    a  torch 2.15.0 has no code for the Tesla V100 (compute capability 7.0)
    b  torchvision 0.15.2 was built for another torch; 2.15.0 goes with torchvision 0.29

    newest for all of them: torch 2.14.1 built with CUDA 12.6, from PyTorch's own index cu126 (python.extra-index)
    -- standard error
    ");
    let done = home.sconce(&["check", "venv", "--gpu", "H100", "--no-notes", "--json"]);
    let said = done.json();
    assert_eq!((done.code, done.err.as_str()), (1, ""));
    assert_eq!(codes(&said), ["torchvision-mismatch"]);
    assert_eq!(said["runs"], false);
    assert_eq!(said["host"], "NVIDIA H100");
    // Once mended, nothing is left. The folder may be the packages' own.
    let site = home.project().join("venv/lib/python3.13/site-packages");
    fs::rename(
        site.join("torchvision-0.15.2.dist-info"),
        site.join("torchvision-0.29.0.dist-info"),
    )
    .unwrap();
    let words = [
        "check",
        "venv/lib/python3.13/site-packages",
        "--gpu",
        "H100",
    ];
    assert_snapshot!(home.said(&words), @r"
    exit code 0
    -- standard output
    -- standard error
    venv/lib/python3.13/site-packages on NVIDIA H100: nothing that was judged stands in its way. Not judged: whether its Python packages go together (`python -m pip check` there tells)
    ");
    // What Python loads by itself, with nothing in it; and a library that ends too soon.
    fs::write(site.join("torch/_C.cpython-313-x86_64-linux-gnu.so"), "").unwrap();
    let elf = fs::read(env!("CARGO_BIN_EXE_sconce")).unwrap();
    fs::write(site.join("torch/lib/libcut.so"), &elf[..4096]).unwrap();
    assert_snapshot!(home.said(&["check", "venv", "--gpu", "H100"]), @r"
    exit code 1
    -- standard output
    fails  [home]/project/venv/lib/python3.13/site-packages/torch/_C.cpython-313-x86_64-linux-gnu.so is not a library (file too short), and the loader looks no further [library-unreadable]
             seen   [home]/project/venv/lib/python3.13/site-packages/torch/_C.cpython-313-x86_64-linux-gnu.so, ELF header: file too short
             error  ImportError: [home]/project/venv/lib/python3.13/site-packages/torch/_C.cpython-313-x86_64-linux-gnu.so: file too short
             mend   Install torch again: `python -m pip install --force-reinstall --no-deps torch==2.15.0`

    warns  1 library could not be read and is not judged [not-read]
             seen   lib/python3.13/site-packages/torch/lib/libcut.so: the section headers lie outside of the file
    -- standard error
    venv on NVIDIA H100: it will not run (1 failure, 1 warning)
    ");
}

#[test]
fn check_judges_a_lock_by_its_versions() {
    let home = Home::new();
    let lock = include_str!("../../../../sconce-app/src/inspect/testdata/lock.toml");
    home.write("other.lock", lock);
    assert_snapshot!(home.said(&["check", "other.lock", "--gpu", "P100"]), @r#"
    exit code 1
    -- standard output
    fails  torch 2.15.0 has no code for the Tesla P100 (compute capability 6.0) [no-kernel-image]
             seen   metadata of the wheels and every entry of their libtorch_cuda.so: machine code for 7.5, 8.0, 8.6, 9.0, 10.0 and 12.0
             error  CUDA error: no kernel image is available for execution on the device
             mend   Take the newest that runs on this machine: torch 2.14.1 built with CUDA 12.6, from PyTorch's own index cu126 (python.extra-index): in sconce.toml, beside what else is there, python.packages = ["torch==2.14.1+cu126"]

    warns  torch.compile does not work on the Tesla P100: it needs compute capability 7.0 [triton-unsupported]
             seen   Tesla P100, compute capability: 6.0
             error  Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used as the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.0
             mend   Run without it: `export TORCHDYNAMO_DISABLE=1`

    notes  the Tesla P100 (6.0) has no bfloat16 in hardware: it is slow there [bf16-emulated]
             seen   the card that was named, compute capability: 6.0
    -- standard error
    2 of its packages are not in the store: of these the versions are judged, not the bytes (`sconce run` or `build` fetches them)
    other.lock on Tesla P100: it will not run (1 failure, 1 warning, 1 note)
    "#);
    // A project's lock is found, and said to be old where the spec has changed.
    home.write("sconce.toml", "name = \"digits\"\n");
    assert_snapshot!(home.said(&["check", "--gpu", "H100"]), @r"
    exit code 3
    -- standard output
    -- standard error
    error: there is no lock at [home]/project/sconce.lock
    hint: `sconce lock` makes one
    ");
    home.write("sconce.lock", lock);
    let words = ["check", "--gpu", "H100", "--json"];
    let done = home.sconce(&words);
    assert!(
        done.err
            .starts_with("the spec has changed since it was locked"),
        "{}",
        done.err
    );
    let done = home.sconce(&[&words[..], &["-q"]].concat());
    assert_eq!(done.err, "");
    let said = done.json();
    assert_eq!(
        (done.code, &said["subject"]),
        (0, &"digits".into()),
        "{}",
        done.text()
    );
    assert_ne!(said["not-in-the-store"].as_array().map(Vec::len), Some(0));
}

#[test]
fn check_names_what_it_does_not_know() {
    let home = Home::new();
    with_site(&home);
    home.write("broken.json", "{\"version\":");
    home.write("deep.json", &"[".repeat(100_000));
    home.write("newer.json", "{\"version\": 99}");
    home.write("nobody.json", "[]");
    home.write("empty/nothing", "");
    for name in ["endless.lock", "endless.toml"] {
        std::os::unix::fs::symlink("/dev/zero", home.project().join(name)).unwrap();
    }
    let mut said = String::new();
    for words in [
        "venv --gpu gtx9999",
        "venv --gpu 65xH100",
        "venv --gpu v100 --driver banana",
        "venv --driver 535.104.05",
        "--torch 9.9 --gpu v100",
        "--torch banana --gpu v100",
        "nowhere --gpu v100",
        "nowhere:1 --gpu v100",
        "nowhere.lock --gpu v100",
        "endless.lock --gpu v100",
        "endless.toml --gpu v100",
        "empty --gpu v100",
        "venv --facts nowhere.json",
        "venv --facts broken.json",
        "venv --facts deep.json",
        "venv --facts newer.json",
        "venv --facts nobody.json",
        "venv --facts /dev/zero",
        "venv --gpu v100 --set colour=green",
        "venv --gpu v100 --set driver.version=banana",
        "venv --gpu v100 --set cards.4000000000.memory=1GiB",
    ] {
        let arguments: Vec<&str> = ["check"].into_iter().chain(words.split(' ')).collect();
        let done = home.sconce(&arguments);
        assert_eq!(done.out, "", "{words}");
        said += &format!("# {words}: exit code {}\n{}", done.code, done.err);
    }
    assert_snapshot!(said, @r"
    # venv --gpu gtx9999: exit code 3
    error: no card is known as `gtx9999`
    hint: did you mean GeForce GTX 950, GeForce GTX 960, GeForce GTX 970?
    # venv --gpu 65xH100: exit code 3
    error: `65xH100` asks for 65 cards; a machine has up to 64
    # venv --gpu v100 --driver banana: exit code 3
    error: `banana` is not a driver version such as 580.65.06
    hint: write the whole version, as nvidia-smi shows it: 535.104.05
    # venv --driver 535.104.05: exit code 2
    error: the following required arguments were not provided:
      --gpu <CARD>

    Usage: sconce check --gpu <CARD> --driver <VERSION> <SUBJECT>

    For more information, try '--help'.
    # --torch 9.9 --gpu v100: exit code 3
    error: nothing is known of torch 9.9
    hint: known are 2.0.0 to 2.15.0; write `2.8`, or `all`
    # --torch banana --gpu v100: exit code 3
    error: nothing is known of torch banana
    hint: known are 2.0.0 to 2.15.0; write `2.8`, or `all`
    # nowhere --gpu v100: exit code 3
    error: there is no file, folder or local image `nowhere`
    hint: `sconce images` lists local images, `sconce pull` fetches one
    # nowhere:1 --gpu v100: exit code 3
    error: there is no file, folder or local image `nowhere:1`
    hint: `sconce images` lists local images, `sconce pull` fetches one
    # nowhere.lock --gpu v100: exit code 3
    error: there is no file, folder or local image `nowhere.lock`
    hint: `sconce images` lists local images, `sconce pull` fetches one
    # endless.lock --gpu v100: exit code 3
    error: cannot read endless.lock: it is a device, not a regular file
    hint: write it to a file of its own, and name that
    # endless.toml --gpu v100: exit code 3
    error: endless.toml is no regular file, which a spec is
    hint: write it to a file in a folder of its own: its lock lies beside it
    # empty --gpu v100: exit code 3
    error: empty has no Python packages and no libraries
    hint: name a spec, a lock, an image, or the folder of an environment
    # venv --facts nowhere.json: exit code 3
    error: cannot read nowhere.json: No such file or directory (os error 2)
    # venv --facts broken.json: exit code 3
    error: broken.json has no facts of a machine: EOF while parsing a value at line 1 column 11
    hint: `sconce doctor --facts FILE` writes them
    # venv --facts deep.json: exit code 3
    error: deep.json has no facts of a machine: invalid type: sequence, expected u32 at line 1 column 2
    hint: `sconce doctor --facts FILE` writes them
    # venv --facts newer.json: exit code 3
    error: cannot use newer.json: the facts have format 99; this Sconce reads up to 1
    hint: update Sconce
    # venv --facts nobody.json: exit code 3
    error: nobody.json has no facts of a machine: the list is empty
    hint: `sconce doctor --facts FILE` writes them
    # venv --facts /dev/zero: exit code 3
    error: cannot read /dev/zero: it is a device that has no end
    hint: name a file, or a part of the device: <(head -c 1M DEVICE) instead of its name
    # venv --gpu v100 --set colour=green: exit code 3
    error: there is no fact `colour`
    hint: facts are named as in a saved facts file, with dots between: `driver.version=535.104.05`, `cards.0.memory=24GiB`
    # venv --gpu v100 --set driver.version=banana: exit code 3
    error: the facts cannot be read with `driver.version=banana`: `banana` is not a driver version such as 580.65.06
    # venv --gpu v100 --set cards.4000000000.memory=1GiB: exit code 3
    error: there is no fact `cards.4000000000.memory`
    hint: facts are named as in a saved facts file, with dots between: `driver.version=535.104.05`, `cards.0.memory=24GiB`
    ");
}

#[test]
fn check_takes_saved_facts_and_changes_them() {
    let Some(home) = Home::playing("rtx3070") else {
        return;
    };
    let done = home.sconce(&["doctor", "--facts", "desktop.json"]);
    assert_eq!(done.err, "written: desktop.json\n");
    with_site(&home);
    // A driver that is too old, and one that is new enough.
    let words = ["check", "--torch", "2.8", "--facts", "desktop.json"];
    let name = "name=desktop";
    assert_snapshot!(home.said(&[&words[..], &["--set", name]].concat()), @r"
    exit code 1
    -- standard output
                          desktop
    torch 2.8, CUDA 12.8  no a

    a  CUDA 12.8 needs driver 525.60.13

    newest for all of them: torch 2.7.1 built with CUDA 11.8, from PyTorch's own index cu118 (python.extra-index)
    -- standard error
    ");
    let newer = ["--set", name, "--set", "driver.version=580.65.06"];
    assert_snapshot!(home.said(&[&words[..], &newer].concat()), @r"
    exit code 0
    -- standard output
                          desktop
    torch 2.8, CUDA 12.8  yes

    newest for all of them: torch 2.15.0 built with CUDA 13.2
    -- standard error
    ");
    // A fleet is a list.
    let one = home.read("desktop.json");
    home.write("fleet.json", &format!("[{one}, {one}]"));
    let said = home.sconce(&["check", "--torch", "2.8", "--facts", "fleet.json", "--json"]);
    assert_eq!(said.json()["machines"].as_array().map(Vec::len), Some(2));
    let words = ["check", "venv", "--facts", "desktop.json", "--json"];
    let done = home.sconce(&words);
    assert!(
        codes(&done.json()).contains(&"driver-too-old"),
        "{}",
        done.text()
    );
}

/// `run` then takes the CPU, unless it is to have cards.
#[test]
fn check_says_what_runs_where_there_is_no_card() {
    let home = Home::new();
    home.write(
        "sconce.lock",
        include_str!("../../../../sconce-app/src/inspect/testdata/lock.toml"),
    );
    home.write(
        "no-card.json",
        r#"{"version": 1, "name": "laptop", "pci-cards": []}"#,
    );
    for (gpus, verdict) in [
        (
            "",
            "it will not run on a card, as there is none; `sconce run` takes the CPU",
        ),
        (
            "gpus = \"all\"",
            "it will not run on a card, as there is none; `sconce run` takes the CPU",
        ),
        ("gpus = 2", "it will not run (1 failure"),
    ] {
        home.write(
            "sconce.toml",
            &format!("name = \"digits\"\n[run]\n{gpus}\n"),
        );
        let done = home.sconce(&["check", "--facts", "no-card.json"]);
        assert_eq!(done.code, 1, "{}", done.text());
        assert!(done.out.contains("[no-driver]"), "{}", done.text());
        let said = format!("digits on laptop: {verdict}");
        assert!(done.err.contains(&said), "{}", done.text());
    }
}

#[test]
fn check_judges_an_image_in_a_file_and_a_system_s_root() {
    let home = Home::new();
    with_site(&home);
    let project = home.project();
    for folder in ["root/etc", "root/usr/bin", "root/usr/lib", "root/opt"] {
        std::fs::create_dir_all(project.join(folder)).unwrap();
    }
    std::fs::rename(project.join("venv"), project.join("root/opt/venv")).unwrap();
    let tar = |words: &str| {
        let mut command = Command::new("tar");
        let status = command
            .args(words.split(' '))
            .current_dir(&project)
            .status();
        assert!(status.unwrap().success(), "{words}");
    };
    tar("-cf layer.tar -C root .");
    let layer = std::fs::read(project.join("layer.tar")).unwrap();
    let digest = Sha256(sha2::Sha256::digest(layer).into());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        _ => "arm64",
    };
    let config = format!(
        r#"{{"architecture":"{architecture}","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{digest}"]}}}}"#
    );
    home.write("config.json", &config);
    let manifest = r#"[{"Config":"config.json","RepoTags":["a:1"],"Layers":["layer.tar"]}]"#;
    home.write("manifest.json", manifest);
    tar("-cf image.tar manifest.json config.json layer.tar");
    for subject in ["image.tar", "docker-archive:image.tar:a:1", "root"] {
        let done = home.sconce(&["check", subject, "--gpu", "h100", "--json"]);
        let said = done.json();
        assert_eq!(
            (done.code, codes(&said)),
            (1, vec!["torchvision-mismatch"]),
            "{subject}: {}",
            done.text()
        );
    }
    // What is in no image is said, and how an image would look.
    let mut said = String::new();
    for subject in ["layer.tar", "docker-archive:image.tar:b:2", "oci:root"] {
        let done = home.sconce(&["check", subject, "--gpu", "h100", "-q"]);
        said += &format!("# {subject}: exit code {}\n{}", done.code, done.err);
    }
    assert_snapshot!(said, @r"
    # layer.tar: exit code 3
    error: layer.tar has no `manifest.json`
    hint: an image is a folder or a tar archive that has `index.json` (an OCI layout) or `manifest.json` (`docker save`)
    # docker-archive:image.tar:b:2: exit code 3
    error: image.tar has no image `b:2`; it has a:1
    hint: say which: oci:FOLDER:NAME, oci-archive:FILE:NAME or docker-archive:FILE:NAME
    # oci:root: exit code 3
    error: root has no `index.json`
    hint: an image is a folder or a tar archive that has `index.json` (an OCI layout) or `manifest.json` (`docker save`)
    ");
}

#[test]
fn check_says_what_it_does_not_know() {
    let home = Home::new();
    for (version, code) in [
        ("2.10.0+cu130", 1),
        ("2.8.0+cu118", 10),
        ("2.8.0+cpu", 1),
        ("2.8.0+abc", 10),
        ("2.10.1", 10),
        ("2.8.0+cu128.mycorp1", 10),
        ("2.9.0", 0),
        ("2.16.0.dev20261101", 10),
        ("2.8.0", 0),
        ("9.9", 3),
    ] {
        let done = home.sconce(&["check", "--torch", version, "--gpu", "v100"]);
        assert_eq!(done.code, code, "{version}: {}{}", done.out, done.err);
        assert!(
            code != 10 || !done.out.contains("  yes"),
            "{version}: {}",
            done.out
        );
    }
    // Of a lock whose torch is not here, and whose build is in no table.
    let lock = include_str!("../../../../sconce-app/src/inspect/testdata/lock.toml");
    let other = lock.replace("2.15.0", "2.15.0+cu118");
    assert_ne!(lock, other);
    home.write("other.lock", &other);
    let done = home.sconce(&["check", "other.lock", "--gpu", "H100", "--json"]);
    let said = done.json();
    assert_eq!((done.code, said["runs"].as_bool()), (10, None), "{said}");
    assert_eq!(said["not-judged"], serde_json::json!(["torch-code"]));
    let done = home.sconce(&["check", "other.lock", "--gpu", "H100"]);
    assert!(
        done.err.contains("whether it runs is not known"),
        "{}",
        done.err
    );
}
