//! `whimbrel top`: the live view of gNBs, UEs, procedures, throughput and refusals.

mod model;
mod view;

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use whimbrel_cli::Done;
use whimbrel_node::client::Client;

/// How often the program is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the view until q, Esc or Ctrl-C. `once` prints one frame as text instead.
pub(crate) fn run(client: Client, once: bool) -> Done {
    let mut model = model::Model::default();
    model.update(model::fetch(&client));
    if let Some(error) = &model.error {
        return Err(error.clone());
    }
    if once {
        std::thread::sleep(EVERY);
        model.update(model::fetch(&client));
        return whimbrel_cli::print(&view::text(&model, 110, 40)?);
    }
    let cannot =
        |e: std::io::Error| format!("this terminal cannot show the view: {e}; try `whimbrel top --once`");
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let shown = show(&mut terminal, &client, &mut model);
    ratatui::restore();
    shown.map_err(cannot)
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    model: &mut model::Model,
) -> std::io::Result<()> {
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| view::draw(frame, model))?;
        let wait = EVERY.saturating_sub(asked.elapsed());
        if event::poll(wait)? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                let interrupt =
                    key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
                if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
        } else {
            asked = Instant::now();
            model.update(model::fetch(client));
        }
    }
}
