use proptest::prelude::*;

use super::*;

fn expand(list: &str) -> Vec<String> {
    expand_node_list(list).unwrap_or_else(|error| panic!("{list}: {error}"))
}

/// What `scontrol show hostnames` of 22.05 said of the same lists.
#[test]
fn lists_are_expanded_as_slurm_does() {
    for (list, names) in [
        ("", ""),
        ("n1", "n1"),
        ("login", "login"),
        (
            "n[1-3,7],gpu-a[08-11],login",
            "n1 n2 n3 n7 gpu-a08 gpu-a09 gpu-a10 gpu-a11 login",
        ),
        ("n[1,01]", "n1 n01"),
        ("r[1-2]n[01-02]", "r1n01 r1n02 r2n01 r2n02"),
        ("n[3,1,2]", "n3 n1 n2"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[9-10]", "n9 n10"),
        ("n2,n1,n2", "n2 n1 n2"),
    ] {
        let names: Vec<&str> = names.split_whitespace().collect();
        assert_eq!(expand(list), names, "{list}");
    }
}

/// Slurm 22.05 writes such nodes one by one and takes no brackets with something behind them.
#[test]
fn names_may_go_on_after_their_brackets() {
    assert_eq!(expand("gpu-a[09-10]-ib"), ["gpu-a09-ib", "gpu-a10-ib"]);
    assert_eq!(expand("a.b-c_d[0-1].e"), ["a.b-c_d0.e", "a.b-c_d1.e"]);
}

#[test]
fn texts_that_are_no_lists_are_refused() {
    for list in [
        ",", "n1,", ",n1", "n[", "n]", "n[]", "n[1", "n[1-]", "n[-1]", "n[a]", "n[2-1]", "n[1,,2]",
        "n[1-2-3]", "[1-2]", "n[[1]]", "n [1]", "n1 n2", "n\n", "-n1", "--help", "n[1]x]", "é",
        "n[１]", "(null)", "n[1-2",
    ] {
        let error = expand_node_list(list).unwrap_err();
        assert!(
            matches!(error, NodeListError::Malformed { .. }),
            "{list}: {error}"
        );
    }
}

#[test]
fn hostile_lists_cost_nothing() {
    let limit = format!("n[1-{MAX_NODES}]");
    assert_eq!(expand(&limit).len(), MAX_NODES);
    for list in [
        format!("n[0-{MAX_NODES}]"),
        "n[0-999999999999999999]".to_owned(),
        "n[1-99999]x[1-99999]x[1-99999]x[1-99999]x[1-99999]".to_owned(),
        format!("{limit},m"),
    ] {
        assert_eq!(
            expand_node_list(&list),
            Err(NodeListError::TooMany),
            "{list}"
        );
    }
    let long_number = "n[0-9999999999999999999]";
    let long_name = format!("{}[1-60000]", "n".repeat(256));
    let many_groups = "n[1]".repeat(6);
    for list in [long_number, &long_name, &many_groups] {
        assert!(matches!(
            expand_node_list(list),
            Err(NodeListError::Malformed { .. })
        ));
    }
    assert_eq!(
        expand_node_list(&"n,".repeat(1 << 20)),
        Err(NodeListError::TooLong)
    );
}

/// Writes numbers as Slurm compresses them, in their order.
fn compress(prefix: &str, width: usize, numbers: &[u64], suffix: &str) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let ranges = ranges.iter().map(|(first, last)| match first == last {
        true => format!("{first:0width$}"),
        false => format!("{first:0width$}-{last:0width$}"),
    });
    let ranges: Vec<String> = ranges.collect();
    format!("{prefix}[{}]{suffix}", ranges.join(","))
}

proptest! {
    #[test]
    fn what_was_compressed_is_expanded(
        groups in proptest::collection::vec(
            ("[a-z][a-z-]{0,5}", 0_usize..5, proptest::collection::vec(0_u64..2000, 1..20), "(-[a-z]{1,3})?"),
            1..5,
        ),
    ) {
        let mut expected = Vec::new();
        let mut items = Vec::new();
        for (prefix, width, numbers, suffix) in &groups {
            items.push(compress(prefix, *width, numbers, suffix));
            expected.extend(numbers.iter().map(|number| format!("{prefix}{number:0width$}{suffix}", width = *width)));
        }
        prop_assert_eq!(expand(&items.join(",")), expected);
    }

    #[test]
    fn any_text_is_expanded_or_refused(list in "[a-c0-9,\\[\\] -]{0,30}") {
        if let Ok(names) = expand_node_list(&list) {
            prop_assert!(names.iter().all(|name| !name.is_empty() && !name.starts_with('-')));
        }
    }
}
