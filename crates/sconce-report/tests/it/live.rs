//! The live view, drawn on a screen that is none. `ranks-made-by-hand` was not recorded on cards.

use std::path::Path;

use insta::assert_snapshot;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use sconce_record::RecordReader;
use sconce_report::RunRow;
use sconce_report::live::{App, AppAction, KeyPress, LiveRun, Signal, SignalRecipient};

use crate::made;

const RANKS: &str = include_str!("../records/ranks-made-by-hand.jsonl");
const DIGITS: &str = include_str!("../records/digits.jsonl");

/// A run that goes on, from all of a record but its last line.
fn running(text: &str) -> LiveRun {
    let all = text.trim_end();
    let text = &all[..=all.rfind('\n').expect("more than one line")];
    let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).expect("a record");
    let mut run = LiveRun::new(record.started.clone(), true);
    record.for_each(|line| run.add_line(line));
    run
}

fn row(run: &LiveRun) -> RunRow {
    RunRow {
        id: run.start_event().id.clone(),
        name: None,
        unix_ms: run.start_event().unix_ms,
        command: run.start_event().command.clone(),
        wall_us: Some(run.t_us()),
        end: sconce_report::RunEnd::Running,
        out_of_memory: None,
        peak_memory: None,
    }
}

fn app(text: &str) -> App {
    let run = running(text);
    let mut app = App::new(true);
    app.set_runs(vec![row(&run)]);
    app.show_run(run);
    app
}

fn drawn(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal");
    terminal
        .draw(|frame| app.draw(frame))
        .expect("nothing fails");
    terminal.backend().to_string()
}

#[test]
fn two_ranks_in_80_by_24() {
    assert_snapshot!(drawn(&mut app(RANKS), 80, 24));
}

#[test]
fn a_run_without_cards() {
    assert_snapshot!(drawn(&mut app(DIGITS), 100, 30));
}

#[test]
fn the_list_of_runs_and_the_way_to_one() {
    let run = running(RANKS);
    let mut app = App::new(false);
    assert!(drawn(&mut app, 80, 24).contains("No run has been recorded"));
    app.set_runs(vec![row(&run)]);
    assert_snapshot!(drawn(&mut app, 80, 8));
    let open = AppAction::Open("resnet-20261121-0034-7f3a".to_owned());
    assert_eq!(app.handle_key(KeyPress::Enter), Some(open));
    app.show_run(run);
    assert!(drawn(&mut app, 80, 24).contains("TRAINING"));
    assert_eq!(app.handle_key(KeyPress::F(2)), None);
    assert!(drawn(&mut app, 80, 24).contains("Runs: 1, running: 1"));
}

#[test]
fn a_process_is_ended_after_a_clear_yes_alone() {
    let mut app = app(RANKS);
    assert_eq!(app.handle_key(KeyPress::F(9)), None);
    assert!(drawn(&mut app, 80, 24).contains("choose a process first"));
    app.handle_key(KeyPress::Char('N'));
    app.handle_key(KeyPress::Down);
    let target = SignalRecipient::Process {
        pid: 4123,
        name: "python".to_owned(),
    };
    for (answer, kill) in [
        (KeyPress::Enter, None),
        (KeyPress::Char('n'), None),
        (KeyPress::F(9), None),
        (KeyPress::Char('y'), Some(AppAction::Kill(Signal::Term))),
        (KeyPress::Char('9'), Some(AppAction::Kill(Signal::Kill))),
    ] {
        assert_eq!(
            app.handle_key(KeyPress::F(9)),
            Some(AppAction::Aim(target.clone()))
        );
        assert!(drawn(&mut app, 80, 24).contains("End process 4123, python?"));
        assert_eq!(app.handle_key(answer), kill, "{answer:?}");
        assert!(!drawn(&mut app, 80, 24).contains("End process"));
    }
    // What cannot be found is not asked about.
    app.handle_key(KeyPress::F(9));
    app.show_message("process 4123 has ended".to_owned());
    assert_eq!(app.handle_key(KeyPress::Char('y')), None);
}

/// The first ten readings have a speed too, and a process that begins to train while others do.
#[test]
fn samples_are_counted_from_the_first_reading_on() {
    let text = made::Made::of(vec![made::Rank::healthy()]).record();
    let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).expect("a record");
    let mut run = LiveRun::new(record.started.clone(), true);
    let mut lines = record;
    let mut app = App::new(false);
    // `setup`, and then one reading after the other.
    run.add_line(lines.next().expect("a setup"));
    app.show_run(run);
    for reading in 1..=4 {
        let line = lines.next().expect("a reading");
        app.run_mut().expect("it was opened").add_line(line);
        let screen = drawn(&mut app, 80, 24);
        let row = screen.lines().find(|line| line.contains(" data "));
        let words: Vec<&str> = row.expect("a process trains").split_whitespace().collect();
        // 32 samples in 46.5 ms.
        assert!(words[3].starts_with("68"), "{reading}: {words:?}");
    }
}

/// A record with some seconds of nothing after its training, as of a script that saves and cleans up.
fn with_an_idle_end(text: &str, seconds: u64) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let ended = lines.pop().expect("an end");
    let time = |line: &str| -> u64 {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        value["t_us"].as_u64().expect("a time")
    };
    let end_us = time(&ended);
    lines.extend((1..=seconds).map(|second| {
        let t_us = end_us + second * 1_000_000;
        format!(r#"{{"t_us":{t_us},"event":"sample","cpu-us":1}}"#)
    }));
    let t_us = end_us + (seconds + 1) * 1_000_000;
    lines.push(ended.replacen(
        &format!("\"t_us\":{end_us}"),
        &format!("\"t_us\":{t_us}"),
        1,
    ));
    lines.join("\n") + "\n"
}

fn ended(text: &str) -> LiveRun {
    let record = RecordReader::new(text.as_bytes(), Path::new("events.jsonl")).expect("a record");
    let mut run = LiveRun::new(record.started.clone(), false);
    record.for_each(|line| run.add_line(line));
    run.update_verdicts();
    run
}

/// Of a run that has ended, the same is told as in the report, however long it did nothing after training.
#[test]
fn an_ended_run_trained_as_its_report_says() {
    let ranks = [0, 1].map(|rank| made::Rank::healthy().of(rank, 2));
    let made = made::Made::of(ranks.to_vec());
    let text = with_an_idle_end(&made.record(), 30);
    let mut app = App::new(false);
    app.show_run(ended(&text));
    let screen = drawn(&mut app, 100, 30);
    for rank in &made.report().training {
        let row = (screen.lines()).find(|line| line.contains(&format!("{} ", rank.name())));
        let words: Vec<&str> = row.expect(&screen).split_whitespace().collect();
        let samples = rank.samples_per_s().expect("samples were counted");
        assert_eq!(words[4], format!("{samples:.0}"), "{words:?}");
        // Batches of 32.
        let ms: f64 = words[3].parse().expect("a number");
        assert!((32e3 / ms - samples).abs() < samples / 100.0, "{words:?}");
    }
}

#[test]
fn too_few_steps_are_told_from_nothing_wrong() {
    let mut made = made::Made::of(vec![made::Rank::healthy()]);
    made.steps = 20;
    let mut app = App::new(false);
    app.show_run(ended(&made.record()));
    let screen = drawn(&mut app, 100, 30);
    assert!(screen.contains("not judged yet: "), "{screen}");
    app.handle_key(KeyPress::Char('v'));
    let screen = drawn(&mut app, 100, 30);
    assert!(
        screen.contains("nothing found so far; not judged yet")
            && screen.contains("too few steps: 20, where it takes 50"),
        "{screen}"
    );
    made.steps = 400;
    app.show_run(ended(&made.record()));
    app.handle_key(KeyPress::Char('v'));
    let screen = drawn(&mut app, 100, 30);
    assert!(screen.contains("nothing is known to be wrong"), "{screen}");
    assert!(!screen.contains("not judged"), "{screen}");
}

#[test]
fn what_is_wrong_is_a_line_and_a_screen() {
    let mut rank = made::Rank::healthy();
    rank.phases.data_us = 35_000;
    rank.phases.other_us = 110_000;
    rank.empty = 89;
    let mut app = app(&made::Made::of(vec![rank]).record());
    assert_eq!(app.handle_key(KeyPress::Char('v')), None);
    assert!(drawn(&mut app, 80, 24).contains("nothing has been judged yet"));
    app.run_mut().expect("it was opened").update_verdicts();
    assert_snapshot!(drawn(&mut app, 80, 24));
    app.handle_key(KeyPress::Char('v'));
    let all = drawn(&mut app, 80, 24);
    assert!(
        all.contains("waiting for the next batch") && all.contains("num_workers"),
        "{all}"
    );
    // A short screen is moved, and no further than there is something to see.
    app.handle_key(KeyPress::Home);
    let top = drawn(&mut app, 80, 10);
    for _ in 0..60 {
        app.handle_key(KeyPress::Down);
    }
    let bottom = drawn(&mut app, 80, 10);
    assert!(top != bottom && bottom.lines().count() == top.lines().count());
    app.handle_key(KeyPress::Up);
    assert_ne!(drawn(&mut app, 80, 10), bottom);
    app.handle_key(KeyPress::Escape);
    assert!(drawn(&mut app, 80, 24).contains("TRAINING"));
}

#[test]
fn processes_are_sorted() {
    let mut app = app(RANKS);
    let first = |app: &mut App| {
        let screen = drawn(app, 80, 24);
        let rows = screen
            .lines()
            .skip_while(|line| !line.contains("ROLE"))
            .nth(1);
        let row = rows.unwrap().trim_matches(['"', ' ']).to_owned();
        row.split(' ').next().unwrap().to_owned()
    };
    for (key, pid) in [
        ('P', "4123"),
        ('M', "4123"),
        ('N', "4123"),
        ('I', "4202"),
        ('G', "4123"),
    ] {
        app.handle_key(KeyPress::Char(key));
        assert_eq!(first(&mut app), pid, "{key}");
    }
}

#[test]
fn nothing_of_a_record_steers_the_terminal() {
    let hostile = RANKS
        .replace("train.py", "\\u001b]0;x\\u0007\\u202e")
        .replace("pt_data_worker", "a\\u001b[2J");
    assert!(hostile.contains("\\u001b"));
    let screen = drawn(&mut app(&hostile), 80, 24);
    assert!(
        !screen.contains(|c: char| c.is_control() && c != '\n'),
        "{screen:?}"
    );
}

fn any_key() -> impl Strategy<Value = KeyPress> {
    prop_oneof![
        Just(KeyPress::Up),
        Just(KeyPress::Down),
        Just(KeyPress::PageUp),
        Just(KeyPress::PageDown),
        Just(KeyPress::Home),
        Just(KeyPress::End),
        Just(KeyPress::Enter),
        Just(KeyPress::Escape),
        (1_u8..13).prop_map(KeyPress::F),
        any::<char>().prop_map(KeyPress::Char),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_size_and_no_key_panics(
        keys in proptest::collection::vec((any_key(), 1_u16..200, 1_u16..70), 1..30),
        cards in any::<bool>(),
    ) {
        let mut app = app(if cards { RANKS } else { DIGITS });
        for (key, width, height) in keys {
            app.handle_key(key);
            drawn(&mut app, width, height);
        }
    }
}
