use std::io;

use indicatif::TermLike;

use super::*;

/// A terminal that records what is done to it.
#[derive(Debug, Clone, Default)]
struct Terminal(Arc<Mutex<Vec<String>>>);

impl Terminal {
    fn record(&self, what: &str) -> io::Result<()> {
        held(&self.0).push(what.to_owned());
        Ok(())
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        80
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.record(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.record(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.record("(cleared)")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_log_line_has_the_live_line_out_of_its_way() {
    let terminal = Terminal::default();
    let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template("fetch").unwrap());
    *held(&LIVE_LINE) = Some(bar.downgrade());
    bar.tick();
    above_live_line(|| terminal.record("a log line").unwrap());
    let done = held(&terminal.0).clone();
    let words: Vec<&str> = done.iter().map(|text| text.trim()).collect();
    let words: Vec<&str> = words.into_iter().filter(|text| !text.is_empty()).collect();
    assert_eq!(words, ["fetch", "(cleared)", "a log line", "fetch"]);

    // Its owner alone keeps it: an error that comes next is not drawn over.
    drop(bar);
    held(&terminal.0).clear();
    above_live_line(|| terminal.record("another").unwrap());
    assert_eq!(*held(&terminal.0), ["another"]);
}
