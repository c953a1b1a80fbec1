use std::fs;
use std::os::unix::fs::symlink;

use sconce_schema::environment_layers::LayerTree;
use sconce_schema::request::RunRoot;

use super::*;

/// A node's directory with one plugin, which is this test's own program: a file that ld.so would load, and which needs
/// a C library. It lies outside of what an image may have at the same path.
struct Node {
    dir: tempfile::TempDir,
    plugin: FabricPlugin,
}

fn node(file: &str) -> Node {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("ofi-nccl");
    let library = root.join("lib").join(file);
    fs::create_dir_all(root.join("lib")).unwrap();
    symlink(std::env::current_exe().unwrap(), &library).unwrap();
    let plugin = FabricPlugin {
        name: "aws-ofi-nccl".to_owned(),
        library_directories: vec![root.join("lib")],
        directories: vec![root],
        library,
        is_optional: false,
        own_nccl: None,
    };
    Node { dir, plugin }
}

/// An image that has what the node's plugin needs of a C library.
fn image(node: &Node) -> EnvironmentLayers {
    let path = node.dir.path().join("image");
    let lib = path.join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&lib).unwrap();
    for name in read_library(&node.plugin.library).unwrap().needed {
        // As Debian's links of libraries, which lead to paths inside.
        symlink(format!("/usr/lib/nowhere/{name}"), lib.join(name)).unwrap();
    }
    let name = "debian/trixie".to_owned();
    EnvironmentLayers {
        layers: vec![LayerTree { name, path }],
        env: Default::default(),
    }
}

fn request(image: &EnvironmentLayers) -> RunRequest {
    RunRequest::new("a", RunRoot::Image(image.clone()), vec!["true".to_owned()])
}

fn bring(node: &Node, glibc: &str, request: &mut RunRequest) -> Vec<HostPlugin> {
    let image = image(node);
    let plugins = std::slice::from_ref(&node.plugin);
    bring_plugins(plugins, &image, Some(glibc), request)
}

#[test]
fn a_plugin_comes_read_only_behind_what_the_spec_says() {
    let node = node("libnccl-net.so");
    let mut request = request(&image(&self::node("x.so")));
    let lib = node.plugin.library_directories[0].display().to_string();
    let set = |request: &mut RunRequest, value: &str| {
        request
            .env
            .insert("LD_LIBRARY_PATH".to_owned(), value.to_owned());
    };
    set(&mut request, "/workspace/lib");
    let [plugin] = &*bring(&node, "2.999-1", &mut request) else {
        panic!("one plugin");
    };
    assert_eq!(plugin.obstacle, None);
    assert_eq!(
        request.env["LD_LIBRARY_PATH"],
        format!("/workspace/lib:{lib}")
    );
    assert!(!request.env.contains_key("NCCL_NET_PLUGIN"));
    let [mount] = &*request.mounts else {
        panic!("one mount");
    };
    assert!(mount.read_only && mount.source == mount.target);
    assert_eq!(plugin.directory, mount.target.display().to_string());
}

#[test]
fn a_name_that_nccl_does_not_look_for_is_told_unless_somebody_tells_another() {
    let node = node("libnccl-net-ofi.so");
    let mut told = request(&image(&self::node("x.so")));
    bring(&node, "2.999", &mut told);
    assert_eq!(told.env["NCCL_NET_PLUGIN"], "ofi");
    let node = self::node("libnccl-net-ofi.so");
    let mut own = request(&image(&self::node("x.so")));
    own.env
        .insert("NCCL_NET_PLUGIN".to_owned(), "none".to_owned());
    bring(&node, "2.999", &mut own);
    assert_eq!(own.env["NCCL_NET_PLUGIN"], "none");
}

#[test]
fn what_the_environment_lacks_is_named() {
    let obstacle = |node: &Node, glibc: &str, remove: Option<&str>| {
        let image = image(node);
        if let Some(name) = remove {
            let lib = image.layers[0].path.join("usr/lib/x86_64-linux-gnu");
            fs::remove_file(lib.join(name)).unwrap();
        }
        find_obstacle(&node.plugin, &image, Some(glibc))
    };
    let said = obstacle(&node("libnccl-net.so"), "2.999", Some("libc.so.6")).unwrap();
    assert_eq!(
        said,
        "the environment has no libc.so.6, which libnccl-net.so needs"
    );
    let said = obstacle(&node("libnccl-net.so"), "2.1-3", None).unwrap();
    assert!(
        said.starts_with("libnccl-net.so needs glibc 2.") && said.ends_with("has 2.1-3"),
        "{said}"
    );
    // What is cut off is never loaded in silence.
    let broken = node("libnccl-net.so");
    let image = image(&broken);
    fs::remove_file(&broken.plugin.library).unwrap();
    fs::write(&broken.plugin.library, b"\x7fELF and no more").unwrap();
    let said = find_obstacle(&broken.plugin, &image, Some("2.999")).unwrap();
    assert!(said.ends_with("is no library that can be read"), "{said}");
}

#[test]
fn a_libnccl_beside_a_plugin_takes_no_place_of_the_locks() {
    let mut node = node("libnccl-net.so");
    node.plugin.own_nccl = Some(node.plugin.library_directories[0].join("libnccl.so.2"));
    let mut request = request(&image(&self::node("x.so")));
    let [plugin] = &*bring(&node, "2.999", &mut request) else {
        panic!("one plugin");
    };
    assert!(
        plugin
            .obstacle
            .as_ref()
            .unwrap()
            .contains("LD_LIBRARY_PATH = ")
    );
    assert!(!request.env.contains_key("LD_LIBRARY_PATH"));
    assert_eq!(request.mounts.len(), 1);
}

#[test]
fn what_the_spec_mounts_at_the_same_place_counts() {
    let node = node("libnccl-net.so");
    let mut request = request(&image(&self::node("x.so")));
    request.mounts.push(Mount {
        source: "/elsewhere".into(),
        target: node.plugin.directories[0].clone(),
        read_only: false,
    });
    assert!(bring(&node, "2.999", &mut request).is_empty());
    assert_eq!(request.mounts.len(), 1);
}

#[test]
fn plugins_that_nccl_can_do_without_come_where_they_are_asked_for() {
    let needed = node("libnccl-net.so").plugin;
    let optional = FabricPlugin {
        is_optional: true,
        ..needed.clone()
    };
    let selected = |asked| select_plugins(vec![needed.clone(), optional.clone()], asked).len();
    assert_eq!([None, Some(true), Some(false)].map(selected), [1, 2, 0]);
}
