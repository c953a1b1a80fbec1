//! The terminal: taken, and given back in whatever way the program ends.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sconce_report::live::{App, KeyPress};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};

/// A terminal that shows a view. Dropping it gives the terminal back; a panic does so before it is
/// printed (ratatui's own hook), and signals end the loop that holds it.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    /// The signal that came, 0 for none.
    signal: Arc<AtomicUsize>,
}

impl Screen {
    /// Takes the terminal. `Err(None)` where standard input or output is none.
    pub(super) fn open() -> Result<Self, Option<io::Error>> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(None);
        }
        let signal = Arc::new(AtomicUsize::new(0));
        // Not SIGHUP, which ends the program at once: there is no terminal to be given back any more, and
        // crossterm would go on to read from it for ever.
        for number in [SIGINT, SIGQUIT, SIGTERM] {
            let flag = Arc::clone(&signal);
            // A signal's number is small and positive.
            signal_hook::flag::register_usize(number, flag, number as usize).map_err(Some)?;
        }
        Ok(Self {
            terminal: ratatui::try_init().map_err(Some)?,
            signal,
        })
    }

    pub(super) fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| app.draw(frame)).map(|_| ())
    }

    /// The next key, if one comes in time.
    pub(super) fn poll_key(&self, wait: Duration) -> io::Result<Option<KeyPress>> {
        match event::poll(wait) {
            Ok(true) => Ok(match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => translated(key),
                _ => None,
            }),
            Ok(false) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The signal that asks the program to end.
    pub(super) fn received_signal(&self) -> Option<i32> {
        let number = self.signal.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number > 0)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The hook did so; a second time would put the cursor into the panic's text.
        if std::thread::panicking() {
            return;
        }
        // What cannot be given back, as the terminal is gone, needs no word.
        let _ = ratatui::try_restore();
    }
}

fn translated(key: KeyEvent) -> Option<KeyPress> {
    Some(match key.code {
        KeyCode::Char(letter) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            KeyPress::Control(letter)
        }
        KeyCode::Char(letter) => KeyPress::Char(letter),
        KeyCode::F(number) => KeyPress::F(number),
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Escape,
        _ => return None,
    })
}
