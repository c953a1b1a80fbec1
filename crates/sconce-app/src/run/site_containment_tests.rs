use super::*;

fn mount(source: &str, target: &str) -> Mount {
    Mount {
        source: source.into(),
        target: target.into(),
        read_only: false,
    }
}

fn uncontained(tree: &Path) -> SiteContainment {
    let node = [("HOME", "/home/ada"), ("CUDA_VISIBLE_DEVICES", "1")];
    SiteContainment {
        kind: JobContainment::None,
        tree: Some(tree.to_owned()),
        program: None,
        path: String::new(),
        node: BTreeMap::from(node.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        _guards: Vec::new(),
    }
}

fn request() -> RunRequest {
    let image = EnvironmentLayers {
        layers: Vec::new(),
        env: BTreeMap::new(),
    };
    let env = [
        ("PATH", "/opt/venv/bin:/usr/local/bin:/opt/venvs"),
        ("VIRTUAL_ENV", "/opt/venv"),
        ("WORDS", "/opt/venv"),
    ];
    RunRequest {
        workdir: "/workspace/src".into(),
        mounts: vec![mount("/home/ada/digits", "/workspace")],
        network: NetworkMode::None,
        user: ContainerUser::Root,
        address: Some([10, 0, 0, 1].into()),
        env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value.to_owned()))),
        ..RunRequest::new("a", RunRoot::Image(image), vec!["python".to_owned()])
    }
}

#[test]
fn without_a_container_the_locks_python_is_first() {
    let folder = tempfile::tempdir().unwrap();
    let (mut request, tree) = (request(), folder.path());
    let site = tree.join("opt/venv/lib/python3.12/site-packages");
    std::fs::create_dir_all(&site).unwrap();
    std::fs::write(site.join("__editable__.digits.pth"), "/workspace/src\n").unwrap();
    std::fs::write(site.join("other.pth"), "/workspace/no\n").unwrap();
    uncontained(tree).apply_to(&mut request);
    let at = |path: &str| format!("{}{path}", tree.display());
    let env = |name: &str| request.env[name].clone();
    assert_eq!(request.root, RunRoot::Host);
    assert_eq!(request.workdir, Path::new("/home/ada/digits/src"));
    assert_eq!(
        env("PATH"),
        format!("{}:/usr/local/bin:/opt/venvs", at("/opt/venv/bin"))
    );
    assert_eq!(env("VIRTUAL_ENV"), at("/opt/venv"));
    assert_eq!(env("WORDS"), "/opt/venv");
    assert_eq!(env("HOME"), "/home/ada");
    assert_eq!(env("CUDA_VISIBLE_DEVICES"), "1");
    assert_eq!(env("PYTHONPATH"), "/home/ada/digits/src");
    assert_eq!(env("PYTHONNOUSERSITE"), "1");
    assert_eq!(env("PIP_REQUIRE_VIRTUALENV"), "1");
    assert!(request.mounts.is_empty() && request.address.is_none());
    assert_eq!(request.network, NetworkMode::Host);
}

#[test]
fn what_a_node_has_of_other_pythons_is_left_out() {
    for name in [
        "PYTHONPATH",
        "PYTHONHOME",
        "CONDA_PREFIX",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "PATH",
        "SLURM_NTASKS",
    ] {
        assert!(!NODE_VARIABLES.contains(&name), "{name}");
    }
}

#[test]
fn a_path_inside_is_that_of_the_mount_it_lies_in() {
    let mounts = [
        mount("/home/ada/digits", "/workspace"),
        mount("/scratch", "/workspace/data"),
    ];
    for (inside, outside) in [
        ("/workspace", "/home/ada/digits"),
        ("/workspace/src", "/home/ada/digits/src"),
        ("/workspace/data/x", "/scratch/x"),
        ("/workspaces", "/workspaces"),
        ("/tmp", "/tmp"),
    ] {
        assert_eq!(outside_of(Path::new(inside), &mounts), Path::new(outside));
    }
}

#[test]
fn a_node_that_started_no_container_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let put = |root: &str, text: &str| {
        let venv = folder.path().join(root).join("opt/venv");
        std::fs::create_dir_all(&venv).unwrap();
        std::fs::write(venv.join("pyvenv.cfg"), text).unwrap();
    };
    put("system", "home = /usr/bin\nversion = 3.13\n");
    put("inside", "home = /usr/bin\nversion = 3.13\n");
    put("others", "home = /usr/bin\n");
    let layer = sconce_schema::environment_layers::LayerTree {
        name: "debian/trixie".to_owned(),
        path: folder.path().join("system"),
    };
    let image = EnvironmentLayers {
        layers: vec![layer],
        env: BTreeMap::new(),
    };
    for (root, is_inside) in [("inside", true), ("others", false), ("nothing", false)] {
        assert_eq!(
            is_root_of(&image, &folder.path().join(root)),
            is_inside,
            "{root}"
        );
    }
}
