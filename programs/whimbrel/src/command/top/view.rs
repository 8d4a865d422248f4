//! How `top` looks.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, Wrap};

use super::model::{Answers, Model};
use whimbrel_node::observation::Condition;

/// gNBs shown; the rest is counted.
const GNB_ROWS: usize = 6;

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let Some(answers) = &model.newest else { return };
    let trouble = trouble(answers, model.error.as_deref());
    let gnb_rows = answers.gnbs.len().clamp(1, GNB_ROWS) + usize::from(answers.gnbs.len() > GNB_ROWS);
    let procedures = answers.status.procedures.iter().filter(|p| p.completed + p.refused > 0).count().max(1);
    let [head, bad, figures, ran, table, refused] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines_of(&trouble, frame.area().width)),
        Constraint::Length(4),
        Constraint::Length(gnb_rows as u16 + 2),
        Constraint::Length(procedures as u16 + 2),
        Constraint::Min(0),
    ])
    .areas(frame.area());
    header(frame, head, answers);
    frame.render_widget(Paragraph::new(trouble).wrap(Wrap { trim: true }), bad);
    network(frame, figures, model, answers);
    gnbs(frame, ran, answers);
    procedure_table(frame, table, model, answers);
    refusals(frame, refused, answers);
}

/// One frame as plain text, for pipes and tests.
pub(super) fn text(model: &Model, width: u16, height: u16) -> Result<String, String> {
    let backend = ratatui::backend::TestBackend::new(width, height);
    let mut terminal = ratatui::Terminal::new(backend).map_err(|e| e.to_string())?;
    terminal.draw(|frame| draw(frame, model)).map_err(|e| e.to_string())?;
    let cells = terminal.backend().buffer().content();
    let rows = cells.chunks(usize::from(width.max(1)));
    let lines: Vec<String> =
        rows.map(|row| row.iter().map(|c| c.symbol()).collect::<String>().trim_end().to_string()).collect();
    Ok(lines.join("\n").trim_end().to_string() + "\n")
}

fn header(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let s = &answers.status;
    let (d, h, m, sec) = (s.uptime_s / 86_400, s.uptime_s / 3600 % 24, s.uptime_s / 60 % 60, s.uptime_s % 60);
    let condition = match s.condition {
        Condition::Up => " up ".black().on_green(),
        Condition::Limited => " limited ".black().on_yellow(),
        Condition::Down => " down ".white().on_red(),
    };
    let line = Line::from(vec![
        format!("whimbrel {}  ", s.version).bold(),
        format!("AMF {}  PLMN {}  ", s.amf, s.plmn).into(),
        condition,
        format!("  {d}d {h:02}:{m:02}:{sec:02}   q quits").into(),
    ]);
    frame.render_widget(line, area);
}

fn trouble<'a>(answers: &'a Answers, error: Option<&'a str>) -> Vec<Line<'a>> {
    let parts = answers.status.components.iter().filter(|c| c.condition != Condition::Up);
    let mut lines: Vec<Line<'_>> = parts
        .map(|c| {
            let color = if c.condition == Condition::Down { Color::Red } else { Color::Yellow };
            Line::from(vec![
                Span::styled(format!("{}: ", c.name), Style::new().fg(color).bold()),
                c.detail.as_str().into(),
            ])
        })
        .collect();
    if let Some(error) = error {
        lines.insert(0, Line::from(error.red()));
    }
    lines
}

fn lines_of(lines: &[Line<'_>], width: u16) -> u16 {
    // Word wrap may need a line more than the characters alone.
    let of = |l: &Line<'_>| {
        1 + l.width() / usize::from(width.max(20)) + usize::from(l.width() > usize::from(width))
    };
    lines.iter().map(of).sum::<usize>().min(12) as u16
}

fn network(frame: &mut Frame<'_>, area: Rect, model: &Model, answers: &Answers) {
    let s = &answers.status;
    let idle = s.ues_registered.saturating_sub(s.ues_connected);
    let ues = format!(
        "UEs {:>8} registered  {:>8} connected  {:>8} idle  {:>8} known   sessions {:>8}   gNBs {}",
        s.ues_registered, s.ues_connected, idle, s.ues, s.pdu_sessions, s.gnbs
    );
    let traffic = format!(
        "N3 up {:>10} {:>8}  down {:>10} {:>8}   N2 in {:>8}  out {:>8}",
        bits(model.per_second(|s| s.throughput.ul_octets * 8)),
        packets(model.per_second(|s| s.throughput.ul_packets)),
        bits(model.per_second(|s| s.throughput.dl_octets * 8)),
        packets(model.per_second(|s| s.throughput.dl_packets)),
        format!("{:.0}/s", model.per_second(|s| s.throughput.n2_received)),
        format!("{:.0}/s", model.per_second(|s| s.throughput.n2_sent)),
    );
    let block = Block::new().borders(Borders::TOP).title(" network ".bold());
    let block = block.border_style(Style::new().dark_gray());
    frame.render_widget(Paragraph::new(vec![ues.into(), traffic.into()]).block(block), area);
}

fn gnbs(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let mut rows: Vec<Row<'_>> = answers
        .gnbs
        .iter()
        .take(GNB_ROWS)
        .map(|g| {
            let name = g.name.clone().unwrap_or_default();
            Row::new([
                g.id.clone(),
                name,
                g.address.clone(),
                g.tais.join(" "),
                g.slices.join(" "),
                g.connected_ues.to_string(),
            ])
        })
        .collect();
    match answers.gnbs.len() {
        0 => rows.push(Row::new(["none is up"])),
        n if n > GNB_ROWS => rows.push(Row::new([format!("and {} more", n - GNB_ROWS)])),
        _ => {}
    }
    let widths = [18, 20, 24, 18, 12, 8].map(Constraint::Length);
    frame.render_widget(
        titled("gNBs", Table::new(rows, widths), ["GNB", "NAME", "ADDRESS", "TAI", "SLICES", "UES"]),
        area,
    );
}

fn procedure_table(frame: &mut Frame<'_>, area: Rect, model: &Model, answers: &Answers) {
    let ran = answers.status.procedures.iter().filter(|p| p.completed + p.refused > 0);
    let mut rows: Vec<Row<'_>> = ran
        .map(|p| {
            let refused = Span::from(p.refused.to_string());
            Row::new([
                Span::from(p.name.replace('_', " ")),
                format!("{:.1}", model.procedure_per_second(&p.name)).into(),
                p.completed.to_string().into(),
                if p.refused > 0 { refused.red() } else { refused },
                time(p.p50_us).into(),
                time(p.p99_us).into(),
                time(p.p999_us).into(),
            ])
        })
        .collect();
    if rows.is_empty() {
        rows.push(Row::new(["none yet"]));
    }
    let widths = [32, 10, 12, 10, 10, 10, 10].map(Constraint::Length);
    let heads = ["PROCEDURE", "PER SECOND", "COMPLETED", "REFUSED", "P50", "P99", "P99.9"];
    frame.render_widget(titled("procedures", Table::new(rows, widths), heads), area);
}

fn refusals(frame: &mut Frame<'_>, area: Rect, answers: &Answers) {
    let lines: Vec<Line<'_>> = match answers.refusals.is_empty() {
        true => vec!["none".into()],
        false => answers.refusals.iter().map(|r| Line::from(r.sentence())).collect(),
    };
    let block = Block::new().borders(Borders::TOP).title(" last refusals ".bold());
    let block = block.border_style(Style::new().dark_gray());
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), area);
}

fn titled<'a, const N: usize>(title: &'a str, table: Table<'a>, heads: [&'a str; N]) -> Table<'a> {
    let block = Block::new().borders(Borders::TOP).title(Line::from(format!(" {title} ").bold()));
    table.header(Row::new(heads).dark_gray()).block(block.border_style(Style::new().dark_gray()))
}

fn bits(per_second: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    match units.iter().find(|(scale, _)| per_second >= *scale) {
        Some((scale, unit)) => format!("{:.1} {unit}", per_second / scale),
        None => format!("{per_second:.0} bit/s"),
    }
}

fn packets(per_second: f64) -> String {
    if per_second >= 1e4 { format!("{:.0}k/s", per_second / 1e3) } else { format!("{per_second:.0}/s") }
}

fn time(us: u64) -> String {
    match us {
        0 => "-".into(),
        1..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use whimbrel_api::{CoreStatus, ProcedureStatus, Throughput};
    use whimbrel_node::observation::{Component, GnbView, RefusalRecord};

    fn answers(at: Instant, registrations: u64, ul_octets: u64) -> Answers {
        let status = CoreStatus {
            version: "0.1.0".into(),
            amf: "whimbrel".into(),
            plmn: "999/70".into(),
            started: "2026-01-01T00:00:00.000Z".into(),
            now: String::new(),
            uptime_s: 90_061,
            condition: Condition::Limited,
            components: vec![Component {
                name: "n6".into(),
                condition: Condition::Limited,
                detail: "no TUN device could be made, so UEs have no way out; run as root".into(),
            }],
            gnbs: 1,
            ues: 100,
            ues_registered: 90,
            ues_connected: 30,
            pdu_sessions: 88,
            procedures: vec![ProcedureStatus {
                name: "registration".into(),
                completed: registrations,
                refused: 2,
                p50_us: 240,
                p99_us: 1900,
                p999_us: 2_100_000,
                core_p50_us: 90,
                core_p99_us: 200,
                core_p999_us: 400,
            }],
            throughput: Throughput { ul_octets, ..Throughput::default() },
            last_event: 0,
        };
        let gnb = GnbView { id: "999/70-1".into(), name: Some("cell".into()), ..GnbView::default() };
        let refusal = RefusalRecord {
            subjects: vec!["imsi-999700000000002".into()],
            procedure: "registration".into(),
            why: "the subscriber is not in the store".into(),
            fix: "add it".into(),
            ..RefusalRecord::default()
        };
        Answers { at, status, gnbs: vec![gnb], refusals: vec![refusal] }
    }

    #[test]
    fn a_frame_shows_ues_rates_latencies_and_refusals() {
        let begun = Instant::now();
        let mut model = Model::default();
        model.update(Ok(answers(begun, 1000, 0)));
        model.update(Ok(answers(begun + Duration::from_secs(2), 3000, 25_000_000)));
        let frame = text(&model, 110, 40).unwrap();
        for part in [
            "limited",
            "1d 01:01:01",
            "n6: no TUN device",
            "90 registered",
            "60 idle",
            "100.0 Mbit/s",
            "999/70-1",
            "registration",
            "1000.0",
            "240 µs",
            "1.9 ms",
            "2.1 s",
            "the subscriber is not in the store",
        ] {
            assert!(frame.contains(part), "{part}\n{frame}");
        }
    }

    #[test]
    fn a_restart_and_a_silence_are_survived_at_any_size() {
        let mut model = Model::default();
        model.update(Ok(answers(Instant::now(), 1000, 0)));
        model.update(Err("the core does not answer".into()));
        assert!(text(&model, 110, 40).unwrap().contains("the core does not answer"));
        let mut restarted = answers(Instant::now(), 5, 0);
        restarted.status.started = "later".into();
        model.update(Ok(restarted));
        assert_eq!(model.procedure_per_second("registration"), 0.0);
        for (w, h) in [(1, 1), (20, 5), (80, 24), (300, 3)] {
            text(&model, w, h).unwrap();
        }
    }
}
