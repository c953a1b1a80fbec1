use proptest::prelude::*;

use super::*;

/// What a log says at its end.
fn read(text: &str) -> Option<NcclNetwork> {
    let mut log = NcclLog::default();
    log.add(text.as_bytes());
    log.network(7)
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_network_of_each_version_is_read() {
    let expected = [
        (
            include_str!("../../tests/captured/nccl/ib-2.14.log"),
            NcclNetwork {
                inner_pid: 7,
                rank: Some(0),
                ranks: Some(2),
                multi_node_nvlink: None,
                version: some("2.14.3+cuda11.7"),
                network: "IB".to_owned(),
                devices: words(&["mlx5_0:1/IB", "mlx5_1:1/IB"]),
                gpu_direct: Some(true),
                settings: settings(&[("NCCL_SOCKET_IFNAME", "eth0")]),
            },
        ),
        (
            include_str!("../../tests/captured/nccl/socket-2.18.log"),
            NcclNetwork {
                inner_pid: 7,
                rank: Some(1),
                ranks: Some(2),
                multi_node_nvlink: None,
                version: None,
                network: "Socket".to_owned(),
                devices: words(&["eth0", "ib0"]),
                gpu_direct: Some(false),
                settings: settings(&[("NCCL_IB_DISABLE", "1")]),
            },
        ),
        (
            include_str!("../../tests/captured/nccl/efa-2.21.log"),
            NcclNetwork {
                inner_pid: 7,
                rank: Some(11),
                ranks: Some(16),
                multi_node_nvlink: Some(false),
                version: None,
                network: "AWS Libfabric".to_owned(),
                devices: words(&["efa"]),
                gpu_direct: Some(true),
                settings: BTreeMap::new(),
            },
        ),
        (
            include_str!("../../tests/captured/nccl/roce-2.30.log"),
            NcclNetwork {
                inner_pid: 7,
                rank: Some(5),
                ranks: Some(8),
                multi_node_nvlink: Some(true),
                version: some("2.30.7+cuda13.2"),
                network: "IB".to_owned(),
                devices: words(&["mlx5_0:1:0:2/RoCE", "mlx5_1:1/RoCE"]),
                gpu_direct: None,
                settings: settings(&[("NCCL_IB_HCA", "mlx5_0,mlx5_1")]),
            },
        ),
    ];
    for (text, network) in expected {
        assert_eq!(read(text), Some(network));
        // However the file grows, the same is read of it.
        let mut log = NcclLog::default();
        text.as_bytes().iter().for_each(|byte| log.add(&[*byte]));
        assert_eq!(log.network(7), read(text));
    }
}

#[test]
fn sockets_beside_nvlink_of_several_nodes_are_not_what_ranks_use() {
    let socket = "n:1:1 [0] NCCL INFO Using network Socket\n";
    let joined =
        "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 1\n";
    assert!(read(socket).unwrap().uses_sockets());
    assert!(!read(&format!("{socket}{joined}")).unwrap().uses_sockets());
}

#[test]
fn what_is_no_line_of_nccls_or_not_whole_says_nothing() {
    let long = format!("n:1:1 [0] NCCL INFO Using network {}\n", "x".repeat(5000));
    for text in [
        "",
        "Using network IB\n",
        "n:1:1 [0] NCCL INFO Using network \n",
        "n:1:1 [0] NCCL INFO Using network IB",
        "n:1:1 [0] NCCL WARN Using network IB\n",
        &long,
    ] {
        assert_eq!(read(text), None, "{text:.80}");
    }
    // The line after one that is too long is read.
    let after = format!("{long}n:1:1 [0] NCCL INFO Using network IB\n");
    assert_eq!(read(&after).unwrap().network, "IB");
}

#[test]
fn ranks_that_cannot_be_are_none() {
    let of = |said: &str| {
        let text =
            format!("n:1:1 [0] NCCL INFO Using network IB\nn:1:1 [0] NCCL INFO comm 0x1 {said}\n");
        let network = read(&text).unwrap();
        (network.rank, network.ranks)
    };
    assert_eq!(of("rank 1 nranks 2"), (Some(1), Some(2)));
    for said in [
        "rank 2 nranks 2",
        "rank -1 nranks 2",
        "rank nranks",
        "rank 1",
        "rank 1 nranks 4294967296",
    ] {
        assert_eq!(of(said), (None, None), "{said}");
    }
}

#[test]
fn nothing_that_a_terminal_would_obey_comes_of_a_name() {
    let network = read("n:1:1 [0] NCCL INFO Using network I\u{1b}[2JB\u{202e}x\n").unwrap();
    assert_eq!(network.network, "I [2JB x");
    let many = (0..1000).map(|n| format!("[{n}]d{n}:1/IB "));
    let many: String = many.take(200).collect();
    let text = format!(
        "n:1:1 [0] NCCL INFO NET/IB : Using {many}; OOB x\nn:1:1 [0] NCCL INFO Using network IB\n"
    );
    assert_eq!(read(&text).unwrap().devices.len(), MAX_DEVICES);
}

proptest! {
    #[test]
    fn any_text_and_any_change_of_a_log_are_read_without_a_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0usize..1400,
        which in 0usize..4,
    ) {
        let logs = [
            include_str!("../../tests/captured/nccl/ib-2.14.log"),
            include_str!("../../tests/captured/nccl/socket-2.18.log"),
            include_str!("../../tests/captured/nccl/efa-2.21.log"),
            include_str!("../../tests/captured/nccl/roce-2.30.log"),
        ];
        let mut bytes = logs[which].as_bytes().to_vec();
        let at = at.min(bytes.len());
        let end = (at + noise.len()).min(bytes.len());
        bytes.splice(at..end, noise);
        let mut log = NcclLog::default();
        log.add(&bytes);
        if let Some(network) = log.network(1) {
            let text = serde_json::to_string(&network).unwrap();
            let is_harmless = !text.contains('\u{1b}') && text.len() < 16 << 10;
            prop_assert!(is_harmless);
            prop_assert!(network.devices.len() <= MAX_DEVICES);
        }
    }
}
