use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;

fn watch(change: impl FnOnce(&mut JobNetwork)) -> NetworkWatch {
    let mut network = JobNetwork {
        node: "n2".to_owned(),
        nodes: 2,
        joins_ranks: true,
        strict: false,
        active_ports: vec!["mlx5_0/1".to_owned()],
        plugins: Vec::new(),
        obstacle: None,
    };
    change(&mut network);
    NetworkWatch::new(network)
}

fn request(env: &[(&str, &str)]) -> RunRequest {
    let mut request = RunRequest::new("a", RunRoot::Host, vec!["true".to_owned()]);
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    request.env = env.collect();
    request
}

/// The directory that ranks are told to write to.
fn directory(request: &RunRequest) -> PathBuf {
    let file = Path::new(&request.env["NCCL_DEBUG_FILE"]);
    assert_eq!(file.file_name().unwrap(), "%p.log");
    file.parent().unwrap().to_owned()
}

const SOCKET: &str = "n2:7:7 [0] NCCL INFO Using network Socket\n\
    n2:7:7 [0] NCCL INFO comm 0x1 rank 3 nRanks 16 nNodes 2 localRanks 8 localRank 3 MNNVL 0\n";

/// What is said where process 7 has written `log`.
fn said(mut watch: NetworkWatch, log: &str, env: &[(&str, &str)]) -> Option<String> {
    let scratch = tempfile::tempdir().unwrap();
    let mut request = request(env);
    assert_eq!(watch.listen(&mut request, scratch.path()).unwrap(), None);
    std::fs::write(directory(&request).join("7.log"), log).unwrap();
    let said = watch.read().slow;
    assert_eq!(watch.read().slow, None, "it is said once");
    said
}

#[test]
fn sockets_are_said_with_who_took_them_and_what_to_do() {
    let plain = said(watch(|_| ()), SOCKET, &[]).unwrap();
    assert!(
        plain.starts_with("node n2: NCCL took TCP (Socket) in rank 3 of 16, and port mlx5_0/1 is up: NCCL says why"),
        "{plain}"
    );
    let refused = said(watch(|_| ()), SOCKET, &[("NCCL_IB_DISABLE", "1")]).unwrap();
    assert!(
        refused.ends_with("is up: NCCL_IB_DISABLE=1 is set: take it away"),
        "{refused}"
    );
    let obstacle = "node n2: the environment has no libibverbs";
    let kept = watch(|network| network.obstacle = Some(obstacle.to_owned()));
    let kept = said(kept, SOCKET, &[]).unwrap();
    assert!(
        kept.ends_with("is up: the environment has no libibverbs"),
        "{kept}"
    );
    let mut not_loaded = watch(|_| ());
    not_loaded.host_plugins = vec![HostPlugin {
        name: "aws-ofi-nccl".to_owned(),
        directory: String::new(),
        obstacle: Some("the environment has no libefa.so.1".to_owned()),
    }];
    let not_loaded = said(not_loaded, SOCKET, &[]).unwrap();
    assert!(not_loaded.contains("no libefa.so.1"), "{not_loaded}");
}

#[test]
fn nothing_is_said_of_ranks_that_need_no_fabric() {
    let fabric = SOCKET.replace("Socket", "IB");
    assert_eq!(said(watch(|_| ()), &fabric, &[]), None);
    assert_eq!(said(watch(|network| network.nodes = 1), SOCKET, &[]), None);
    assert_eq!(
        said(watch(|network| network.active_ports.clear()), SOCKET, &[]),
        None
    );
    let joined = SOCKET.replace("MNNVL 0", "MNNVL 1");
    assert_eq!(said(watch(|_| ()), &joined, &[]), None);
}

#[test]
fn who_says_what_nccl_writes_keeps_their_word() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"] {
        let mut own = request(&[(name, "mine")]);
        let mut watch = watch(|network| network.strict = true);
        let remark = watch.listen(&mut own, scratch.path()).unwrap().unwrap();
        assert!(
            remark.contains(name) && remark.contains("--strict"),
            "{remark}"
        );
        assert_eq!(
            own.env,
            BTreeMap::from([(name.to_owned(), "mine".to_owned())])
        );
        assert!(watch.read().networks.is_empty());
    }
    // One rank alone joins nobody.
    let mut alone = request(&[]);
    let mut watch = watch(|network| network.joins_ranks = false);
    assert_eq!(watch.listen(&mut alone, scratch.path()).unwrap(), None);
    assert!(alone.env.is_empty());
}

#[test]
fn a_record_says_nothing_of_a_network_where_there_is_one_node() {
    assert_eq!(
        watch(|_| ()).node_network().unwrap().active_ports,
        ["mlx5_0/1"]
    );
    assert_eq!(watch(|network| network.nodes = 1).node_network(), None);
}

#[test]
fn a_job_that_wants_its_fabric_ends_on_this_node() {
    let error = SocketsChosen("node n2: NCCL took TCP".to_owned());
    assert_eq!(error.exit_code(), 11);
    assert!(error.hint().unwrap().contains("--strict"));
}

#[test]
fn a_run_without_a_container_of_its_own_gets_no_plugin() {
    let plugin = sconce_host::fabric_plugins::FabricPlugin {
        name: "aws-ofi-nccl".to_owned(),
        directories: vec!["/opt/amazon/ofi-nccl".into()],
        library_directories: vec!["/opt/amazon/ofi-nccl/lib".into()],
        library: "/opt/amazon/ofi-nccl/lib/libnccl-net.so".into(),
        is_optional: false,
        own_nccl: None,
    };
    let mut watch = watch(|network| network.plugins = vec![plugin]);
    let mut outside = request(&[]);
    assert!(watch.add_plugins(&mut outside, Some("2.41")).is_empty());
    assert!(outside.mounts.is_empty() && outside.env.is_empty());
    let image = sconce_schema::EnvironmentLayers {
        layers: Vec::new(),
        env: BTreeMap::new(),
    };
    let mut inside = request(&[]);
    inside.root = RunRoot::Image(image);
    let [remark] = &*watch.add_plugins(&mut inside, Some("2.41")) else {
        panic!("one remark");
    };
    let begin = "node n2: the node's own aws-ofi-nccl (/opt/amazon/ofi-nccl) comes into the container; \
         it is not of the lock, and will not be loaded: ";
    assert!(remark.starts_with(begin), "{remark}");
    assert_eq!(watch.node_network().unwrap().host_plugins.len(), 1);
}
