use std::fs;
use std::os::unix::fs::symlink;

use super::ring::tests::{made, made_with};
use super::*;

fn reader() -> (tempfile::TempDir, TrainingReader) {
    let folder = tempfile::tempdir().unwrap();
    let proc = folder.path().join("proc");
    for (pid, inner) in [(4001, "4001\t7"), (4002, "4002\t8")] {
        let of = proc.join(pid.to_string());
        fs::create_dir_all(&of).unwrap();
        let status = format!("Name:\tpython\nNSpid:\t{inner}\nThreads:\t1\n");
        fs::write(of.join("status"), status).unwrap();
    }
    let told = folder.path().join("told");
    fs::create_dir(&told).unwrap();
    let roots = Roots {
        proc,
        ..Roots::default()
    };
    let mut reader = TrainingReader::new(told, &roots);
    reader.began_ns = 5_000_000;
    (folder, reader)
}

#[test]
fn a_process_is_read_under_the_hosts_number_and_its_steps_once() {
    let (folder, mut reader) = reader();
    let ring = folder.path().join("told/7-100.ring");
    fs::write(&ring, made(7, 3)).unwrap();
    let told = reader.read(&[4002, 4001], false);
    assert_eq!(told.training.len(), 1);
    assert_eq!(told.training[0].pid, 4001);
    let numbers = |training: &TrainingSample| -> Vec<u64> {
        training.recent.iter().map(|step| step.step).collect()
    };
    assert_eq!(numbers(&told.training[0]), [1, 2, 3]);
    assert_eq!(told.training[0].recent[0].t_us, 1000);

    fs::write(&ring, made(7, 5)).unwrap();
    let told = reader.read(&[], false);
    assert_eq!(told.training[0].pid, 4001);
    assert_eq!(numbers(&told.training[0]), [4, 5]);

    fs::write(&ring, made(7, 3000)).unwrap();
    let told = reader.read(&[], false);
    // Of the 2,046 that are still there, all of the first ones and two in three of the later.
    let later = numbers(&told.training[0]);
    assert_eq!((later.len(), later.last()), (1744, Some(&3000)));
    assert!(
        later
            .windows(2)
            .all(|two| (1..=2).contains(&(two[1] - two[0])))
    );
    let heap = &told.training[0].heap;
    assert!(
        heap.iter()
            .all(|(step, bytes)| later.contains(step) && bytes.0 == 1000 * step)
    );
    assert_eq!(
        heap.len(),
        later.iter().filter(|step| *step % 2 == 0).count()
    );
    fs::write(&ring, made(7, 3001)).unwrap();
    assert_eq!(numbers(&reader.read(&[], false).training[0]), [3001]);
    assert!(reader.read(&[], true).training[0].recent.is_empty());
}

/// What grows is seen by steps, not by time: fast steps have as many in each part of the run as slow ones.
#[test]
fn a_long_run_has_many_steps_in_every_part() {
    let (folder, mut reader) = reader();
    let ring = folder.path().join("told/7-100.ring");
    let mut all = Vec::new();
    // 400 steps in each reading.
    for steps in (0..=40_000).step_by(400).skip(1) {
        fs::write(&ring, made(7, steps)).unwrap();
        let told = reader.read(&[4001], false);
        all.extend(told.training[0].recent.iter().map(|step| step.step));
    }
    assert!(all.len() < 9_000, "{}", all.len());
    // Many times the 96 values after the first fifth that growth.rs asks for.
    for end in [2_000, 5_000, 10_000, 40_000] {
        let after = all.iter().filter(|step| (end / 5..=end).contains(*step));
        assert!(after.count() >= 96 * 16, "{end}");
    }
    // Slow ones have four in each reading.
    fs::write(&ring, made(7, 40_010)).unwrap();
    assert_eq!(reader.read(&[4001], false).training[0].recent.len(), 4);
}

/// Memory is read at few steps of many: no reading is lost where others have none.
#[test]
fn late_steps_are_those_of_which_memory_was_read() {
    let memory = |step: u64| {
        let read = |every| [u64::MAX, step][usize::from(step.is_multiple_of(every))];
        [read(200), read(10)]
    };
    let (folder, mut reader) = reader();
    let ring = folder.path().join("told/7-100.ring");
    let [mut all, mut resident, mut allocated] = [0, 0, 0];
    for steps in (0..=40_000).step_by(400).skip(1) {
        fs::write(&ring, made_with(7, steps, memory)).unwrap();
        let told = reader.read(&[4001], false);
        for step in told.training[0].recent.iter().filter(|it| it.step > 20_000) {
            all += 1;
            resident += usize::from(step.rss.is_some());
            allocated += usize::from(step.allocated.is_some());
        }
    }
    // Of 100 of the process and 2,000 of the card: some 25 of each 400 steps are kept.
    assert!((1_000..2_000).contains(&all), "{all}");
    assert_eq!((resident, allocated), (100, all));
}

#[test]
fn many_processes_share_what_a_reading_has_of_steps() {
    let (folder, mut reader) = reader();
    for pid in 0..32 {
        let path = folder.path().join(format!("told/{pid}-1.ring"));
        fs::write(path, made(pid, 100)).unwrap();
    }
    let told = reader.read(&[], false);
    let counts = |told: &ProbeUpdate| -> Vec<usize> {
        told.training.iter().map(|one| one.recent.len()).collect()
    };
    assert_eq!(counts(&told), [64; 32]);
    let told = reader.read(&[], false);
    assert_eq!(counts(&told), [36; 32]);
    assert_eq!(told.training[0].recent[0].step, 65);
}

#[test]
fn a_setup_is_told_when_it_changes() {
    let (folder, mut reader) = reader();
    fs::write(folder.path().join("told/7-100.ring"), made(7, 3)).unwrap();
    let path = folder.path().join("told/7-100.setup.json");
    fs::write(
        &path,
        r#"{"python":"3.11.7","torch":"2.15.0","modules":41}"#,
    )
    .unwrap();
    let told = reader.read(&[4001], false);
    assert_eq!(told.setups[0].modules, Some(41));
    assert_eq!(told.setups[0].pid, 4001);
    assert!(reader.read(&[4001], false).setups.is_empty());
    fs::write(&path, "{").unwrap();
    assert!(reader.read(&[4001], false).setups.is_empty());
    fs::write(&path, r#"{"torch":"2.15.0+cu132","modules":42}"#).unwrap();
    assert_eq!(reader.read(&[4001], true).setups[0].modules, Some(42));
}

#[test]
fn operations_of_a_step_are_told_with_its_figures() {
    let (folder, mut reader) = reader();
    fs::write(folder.path().join("told/7-100.ring"), made(7, 3)).unwrap();
    let path = folder.path().join("told/7-100.setup.json");
    let long = "x".repeat(10_000);
    let text = format!(
        r#"{{"flops-per-step":12,"flops":{{"half":12}},"flops-without":["{long}"],"peak":{{"half-per-s":1}}}}"#
    );
    fs::write(&path, text).unwrap();
    let told = reader.read(&[4001], false);
    assert_eq!(told.training[0].flops_per_step, Some(12));
    let setup = &told.setups[0];
    assert_eq!(setup.flops.unwrap().half, 12);
    assert_eq!(setup.flops_without[0].len(), MAX_TEXT_BYTES);
    assert_eq!(setup.peak, None);
    // What is not a number of operations is nothing that was told.
    fs::write(&path, r#"{"flops-per-step":-1}"#).unwrap();
    assert!(reader.read(&[4001], false).setups.is_empty());
}

#[test]
fn what_a_program_keeps_is_told_with_an_end() {
    let (folder, mut reader) = reader();
    fs::write(folder.path().join("told/7-100.ring"), made(7, 3)).unwrap();
    let path = folder.path().join("told/7-100.setup.json");
    let long = "x".repeat(10_000);
    let kept = format!(r#"{{"name":"{long}","adds":["{long}"],"holds":"{long}","graph":true}}"#);
    fs::write(&path, format!(r#"{{"kept":[{kept}]}}"#)).unwrap();
    let told = reader.read(&[4001], false);
    let kept = &told.setups[0].kept[0];
    let name = kept.name.as_ref().unwrap();
    for text in [name, &kept.adds[0], &kept.holds] {
        assert_eq!(text.len(), MAX_TEXT_BYTES);
    }
    let many = vec!["{}"; 1000].join(",");
    fs::write(&path, format!(r#"{{"kept":[{many}]}}"#)).unwrap();
    assert_eq!(
        reader.read(&[4001], false).setups[0].kept.len(),
        MAX_LIST_ITEMS
    );
    // Less than nothing cannot be kept.
    fs::write(&path, r#"{"kept":[{"grown":-1}]}"#).unwrap();
    assert!(reader.read(&[4001], false).setups.is_empty());
}

#[test]
fn memory_that_ran_out_is_told_once_and_complete() {
    let (folder, mut reader) = reader();
    fs::write(folder.path().join("told/7-100.ring"), made(7, 3)).unwrap();
    let path = folder.path().join("told/7-100.oom.json");
    fs::write(&path, r#"{"step":3,"snapshot":"/etc/passwd"}"#).unwrap();
    assert!(reader.read(&[4001], false).out_of_memory.is_empty());
    let long = "x".repeat(10_000);
    let text = format!(r#"{{"step":4,"message":"{long}","stack":["a","b"]}}"#);
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("told/7-100.snapshot.pickle"), "pickle").unwrap();
    assert!(reader.read(&[4001], false).out_of_memory.is_empty());
    let told = reader.read(&[4001], false).out_of_memory;
    let (oom, snapshot) = &told[0];
    assert_eq!((oom.step, oom.pid), (4, 4001));
    assert_eq!(oom.message.as_ref().unwrap().len(), MAX_TEXT_BYTES);
    assert_eq!(oom.snapshot, None);
    assert!(snapshot.is_some());
    assert!(reader.read(&[4001], true).out_of_memory.is_empty());
}

#[test]
fn links_pipes_and_wrong_files_are_passed_over() {
    let (folder, mut reader) = reader();
    let told = folder.path().join("told");
    let elsewhere = folder.path().join("elsewhere");
    fs::write(&elsewhere, made(7, 3)).unwrap();
    symlink(&elsewhere, told.join("7-1.ring")).unwrap();
    fs::create_dir(told.join("7-2.ring")).unwrap();
    fs::write(told.join("7-3.ring"), "short").unwrap();
    fs::write(told.join("seven-4.ring"), made(7, 3)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        told.join("7-5.ring"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    assert!(reader.read(&[4001], true).training.is_empty());
    // A ring that shrinks later is no reason to stop.
    fs::write(told.join("7-6.ring"), made(7, 3)).unwrap();
    assert_eq!(reader.read(&[4001], false).training.len(), 1);
    fs::write(told.join("7-6.ring"), "short").unwrap();
    assert!(reader.read(&[4001], false).training.is_empty());
    assert!(
        TrainingReader::new(folder.path().join("none"), &Roots::default())
            .read(&[], true)
            .training
            .is_empty()
    );
}

#[test]
fn no_more_processes_than_that() {
    let (folder, mut reader) = reader();
    for pid in 0..300 {
        let path = folder.path().join(format!("told/{pid}-1.ring"));
        fs::write(path, made(pid, 1)).unwrap();
    }
    assert_eq!(reader.read(&[], true).training.len(), MAX_PROCESSES);
}

#[test]
fn who_ended_is_told_once_more_and_makes_room() {
    let (folder, mut reader) = reader();
    let told = folder.path().join("told");
    fs::write(told.join("7-100.ring"), made(7, 3)).unwrap();
    fs::write(told.join("8-100.ring"), made(8, 3)).unwrap();
    assert_eq!(reader.read(&[4001, 4002], false).training.len(), 2);
    fs::write(told.join("7-100.ring"), made(7, 5)).unwrap();
    fs::write(told.join("7-100.oom.json"), r#"{"step":5}"#).unwrap();
    fs::write(told.join("7-100.setup.json"), r#"{"modules":5}"#).unwrap();
    // One of them is gone, the other has only lost its parent.
    fs::remove_dir_all(folder.path().join("proc/4001")).unwrap();
    let last = reader.read(&[4009], false);
    assert_eq!((last.training[0].pid, last.training[0].steps), (4001, 5));
    assert_eq!(last.training.len(), 2);
    assert_eq!((last.setups.len(), last.out_of_memory.len()), (1, 1));
    let names: Vec<_> = told
        .read_dir()
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
    assert_eq!(names, ["8-100.ring"]);
    let then = reader.read(&[4009], false);
    assert_eq!(
        then.training.iter().map(|it| it.pid).collect::<Vec<_>>(),
        [4002]
    );
    // What nobody has waited for has ended all the same.
    let status = "Name:\tpython\nState:\tZ (zombie)\nNSpid:\t4002\t8\n";
    fs::write(folder.path().join("proc/4002/status"), status).unwrap();
    assert_eq!(reader.read(&[4009], false).training.len(), 1);
    assert!(reader.read(&[4009], false).training.is_empty());
}

#[test]
fn who_was_never_found_ends_once_it_tells_nothing_new() {
    let (folder, mut reader) = reader();
    let ring = folder.path().join("told/90-100.ring");
    for steps in 1..=30 {
        fs::write(&ring, made(90, steps)).unwrap();
        assert_eq!(reader.read(&[4001], false).training[0].steps, steps);
    }
    let more = (0..20).take_while(|_| !reader.read(&[4001], false).training.is_empty());
    assert_eq!(more.count(), MAX_UNSEEN_READINGS as usize + 1);
    assert!(!ring.exists());
    // Where it is not known who is there, nobody has ended.
    fs::write(&ring, made(90, 1)).unwrap();
    assert!((0..20).all(|_| reader.read(&[], false).training.len() == 1));
}

#[test]
fn those_without_a_place_are_counted_and_get_one() {
    let (folder, mut reader) = reader();
    for pid in 100..400 {
        let path = folder.path().join(format!("told/{pid}-1.ring"));
        fs::write(path, made(pid, 1)).unwrap();
    }
    let mut told = BTreeSet::new();
    let mut left_out = Vec::new();
    for _ in 0..2 * (MAX_UNSEEN_READINGS + 2) {
        let now = reader.read(&[4001], false);
        assert!(now.training.len() <= MAX_PROCESSES);
        told.extend(now.training.iter().map(|it| it.pid));
        left_out.push(now.left_out);
    }
    assert_eq!((left_out[0], left_out.last()), (Some(44), Some(&None)));
    assert_eq!(told.len(), 300);
    assert_eq!(folder.path().join("told").read_dir().unwrap().count(), 0);
}

#[test]
fn cells_of_a_notebook_are_told_apart_and_let_go_as_they_end() {
    let (folder, mut reader) = reader();
    let cell = |number: u32, ended: u32| {
        let mut bytes = made(7, 3);
        bytes[24..28].copy_from_slice(&number.to_le_bytes());
        bytes[28..32].copy_from_slice(&ended.to_le_bytes());
        fs::write(folder.path().join(format!("told/7-{number}.ring")), bytes).unwrap();
    };
    cell(2, 0);
    fs::write(folder.path().join("told/7-2.setup.json"), r#"{"cell":9}"#).unwrap();
    let told = reader.read(&[4001], false);
    assert_eq!(told.training[0].process_label(), "process 4001, cell 2");
    assert_eq!(told.setups[0].cell, Some(2), "the ring says which");
    cell(2, 1);
    cell(3, 1);
    let told = reader.read(&[4001], false);
    let names: Vec<_> = (told.training.iter())
        .map(|it| (it.cell, it.group, it.recent.len()))
        .collect();
    assert_eq!(names, [(Some(2), None, 0), (Some(3), Some(2), 3)]);
    // The process lives, and its cells are over.
    assert!(reader.read(&[4001], false).training.is_empty());
    assert_eq!(folder.path().join("told").read_dir().unwrap().count(), 0);
    cell(4, 0);
    assert_eq!(reader.read(&[4001], false).training[0].group, Some(3));
}

#[test]
fn a_setup_that_changes_without_end_is_told_sixteen_times() {
    let (folder, mut reader) = reader();
    fs::write(folder.path().join("told/7-100.ring"), made(7, 3)).unwrap();
    let path = folder.path().join("told/7-100.setup.json");
    let mut times = 0;
    for modules in 0..40 {
        let text = format!(
            r#"{{"modules":{}}}"#,
            10_u64.pow(modules % 10) + u64::from(modules)
        );
        fs::write(&path, text + &" ".repeat(modules as usize)).unwrap();
        times += reader.read(&[4001], false).setups.len();
    }
    assert_eq!(times, 16);
    reader.setups = MAX_SETUPS_PER_RUN;
    fs::write(folder.path().join("told/8-100.ring"), made(8, 3)).unwrap();
    fs::write(
        folder.path().join("told/8-100.setup.json"),
        r#"{"modules":1}"#,
    )
    .unwrap();
    assert!(reader.read(&[4001, 4002], true).setups.is_empty());
}

/// A process's file with a rank and a parent.
fn ranked(inner: u32, parent: u32, rank: u64) -> Vec<u8> {
    let mut bytes = made(inner, 3);
    bytes[20..24].copy_from_slice(&parent.to_le_bytes());
    for at in [1024, 1536] {
        bytes[at + 34 * 8..at + 35 * 8].copy_from_slice(&rank.to_le_bytes());
    }
    bytes
}

#[test]
fn processes_of_the_same_rank_are_of_different_groups() {
    let (folder, mut reader) = reader();
    let put = |inner: u32, parent: u32, rank: u64| {
        let path = folder.path().join(format!("told/{inner}-1.ring"));
        fs::write(path, ranked(inner, parent, rank)).unwrap();
    };
    let groups = |reader: &mut TrainingReader| -> BTreeMap<u32, (Option<u32>, Option<u32>)> {
        let told = reader.read(&[], false).training;
        told.iter()
            .map(|it| (it.pid, (it.rank, it.group)))
            .collect()
    };
    // Two launchers, their ranks in any order; then one that trains alone.
    for (inner, parent, rank) in [
        (10, 1, 0),
        (11, 2, 1),
        (12, 2, 0),
        (13, 1, 1),
        (14, 3, u64::MAX),
    ] {
        put(inner, parent, rank);
    }
    let wanted = BTreeMap::from([
        (10, (Some(0), None)),
        (11, (Some(1), Some(2))),
        (12, (Some(0), Some(2))),
        (13, (Some(1), None)),
        (14, (None, Some(3))),
    ]);
    assert_eq!(groups(&mut reader), wanted);
    assert_eq!(groups(&mut reader), wanted);
    // They keep them, whoever comes later and tells whatever; and any number of the same are apart.
    (20..50).for_each(|inner| put(inner, 1, 0));
    let later = groups(&mut reader);
    assert!(wanted.iter().all(|(pid, it)| later.get(pid) == Some(it)));
    let apart: BTreeSet<_> = later
        .values()
        .map(|(rank, group)| (rank.unwrap_or(0), group))
        .collect();
    assert_eq!(apart.len(), later.len());
    put(14, 3, 5);
    assert_eq!(groups(&mut reader)[&14], (Some(5), Some(3)));
}

#[test]
fn a_launcher_after_another_one_is_a_group_of_its_own() {
    let (folder, mut reader) = reader();
    let mut then = |inner: u32, parent: u32| {
        let path = folder.path().join(format!("told/{inner}-1.ring"));
        fs::write(path, ranked(inner, parent, 0)).unwrap();
        let group = reader.read(&[4009], false).training[0].group;
        (0..=MAX_UNSEEN_READINGS).for_each(|_| drop(reader.read(&[4009], false)));
        group
    };
    assert_eq!(
        (then(10, 1), then(11, 2), then(12, 2), then(13, 1)),
        (None, Some(2), Some(2), None)
    );
}
