//! `whimbrel demo --scenario veil`: veiled users of one broker move between two operators, send traffic, are billed, while a CPF of each
//! operator is killed. Then the knowledge ledger is computed from all that the parties recorded.

mod ledger;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_ran::UeId;
use whimbrel_ran::cells::Cells;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::Report;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};
use whimbrel_ran::ue;
use whimbrel_sctp_io::Mode;
use whimbrel_veil::msg::{ClaimAnswer, ClaimRefusal};
use whimbrel_veil::token::TokenHash;

use self::ledger::{Leak, Seen, recorded};
use super::super::{Done, print, table};
use super::Options;
use crate::console::Metric;
use crate::playground::veil::{OPERATORS, Operator, VeilPlayground, token_in};
use crate::playground::{NAME, Servers};

/// Rounds: each UE is at each operator twice.
const ROUNDS: usize = 2 * OPERATORS;
/// Attaches of a UE in a round.
const ATTACHES: usize = 2;
/// How often the gNBs' O&M looks for another token.
const TOKEN_EVERY: Duration = Duration::from_millis(50);
/// How long the last reports may take to come, which wait a random time.
const REPORTS_WITHIN: Duration = Duration::from_secs(15);
/// When a CPF of each operator is killed, after the beginning of the second round, if it serves UEs by then.
const KILL_AFTER: Duration = Duration::from_millis(100);

/// What gNBs and UEs do, seen from above: it passes the tokens to the gNBs, and notes which session is whose.
struct Director {
    file: PathBuf,
    looked: Option<Instant>,
    heard: Option<TokenHash>,
    users: Vec<usize>,
    seen: Vec<Seen>,
}

impl Watch for Director {
    fn token(&mut self) -> Option<Option<TokenHash>> {
        if self.looked.is_some_and(|at| at.elapsed() < TOKEN_EVERY) {
            return None;
        }
        let first = self.looked.replace(Instant::now()).is_none();
        let token = token_in(&self.file);
        let changed = first || token != self.heard;
        self.heard = token;
        changed.then_some(token)
    }

    fn stands(&mut self, ue: UeId, cells: &Cells) {
        let (Some(user), Some(ue)) = (self.users.get(ue.0 as usize), cells.ue(ue)) else { return };
        let Some(session) = ue.veil_session() else { return };
        let grant = &session.grant;
        let address = ue.sessions().find_map(|s| s.ipv4);
        match self.seen.iter_mut().find(|s| s.request == grant.request) {
            Some(seen) => seen.address = seen.address.or(address),
            None => self.seen.push(Seen {
                user: *user,
                request: grant.request,
                group: grant.group.0,
                pseudonym: grant.pseudonym.0,
                address,
            }),
        }
    }
}

/// UEs by default.
const UES: u32 = 40;

pub(super) fn run(options: &Options) -> Done {
    let gnbs = options.gnbs.div_ceil(OPERATORS as u8).max(2);
    print(&format!(
        "starting {OPERATORS} operators with {gnbs} gNBs each, a broker, a relay and a gateway in a network namespace of their own\n"
    ))?;
    let ues = options.ues.unwrap_or(UES);
    let mut playground = VeilPlayground::start(ues, gnbs, options.direct)?;
    let servers =
        playground.operators.iter().map(|o| Servers::start(o.gateway)).collect::<Result<Vec<_>, _>>()?;
    print(&format!(
        "{} veiled UEs: attach, session, DNS, page, deregister, again at the same tower, then at the other operator; a CPF of each operator is \
         killed in the second round\n",
        ues
    ))?;
    let played = play_all(&mut playground);
    let Played { reports, seen, shown } = played.map_err(|e| format!("{e}\n{}", playground.logged()))?;
    let expected = u64::from(ues) * (ROUNDS * ATTACHES) as u64;
    let counted = counts(&playground, expected)?;
    let billed = playground.billed()?;
    let settled = settle(&playground, billed.iter().map(|b| b.units).sum());
    let settled = settled.map_err(|e| format!("{e}\n{}", playground.logged()))?;
    let pages: u64 = servers.iter().map(|s| s.served().1).sum();
    let left = playground.operators.iter().map(Operator::left).sum::<Result<u64, String>>()?;
    let taken_over = playground
        .operators
        .iter()
        .map(|o| o.reading(Metric::UesTakenOver.name()).unwrap_or(0.0))
        .sum::<f64>();
    let logged = playground.logged();
    playground.stop_operators()?;
    let recorded = recorded(&playground, &seen, shown)?;
    let ledgers = recorded.ledgers(&playground, &seen);
    Leak::ALL.into_iter().try_for_each(|leak| recorded.find(leak, &playground, &seen))?;
    playground.stop()?;
    let summary = Summary::of(&reports);
    let units: u64 = billed.iter().map(|b| b.units).sum();
    let sessions: u64 = billed.iter().map(|b| b.sessions).sum();
    let rows: Vec<_> = billed
        .iter()
        .take(5)
        .map(|b| vec![b.user.clone(), b.sessions.to_string(), b.units.to_string()])
        .collect();
    print(&table(&["user, as the broker bills", "sessions", "MB"], &rows))?;
    print(&format!("{} users are billed {units} MB in {sessions} sessions\n\n", billed.len(),))?;
    print(&settled.text)?;
    print(&format!("{}\n", ledgers.tables()))?;
    for failure in reports.iter().flat_map(|r| &r.failures).take(10) {
        print(&format!("failed: {} in {}: {}\n", failure.supi, failure.step, failure.reason))?;
    }
    let line = json!({"bench": "veil", "figures": {
        "operators": OPERATORS, "ues": options.ues, "attaches": summary.attaches, "failed": summary.failed,
        "violations": summary.violated, "grants": counted.grants, "tokens_spent": counted.groups,
        "double_spent": counted.double_spent, "reports": counted.reports, "pages": pages, "taken_over": taken_over,
        "sessions_claimed": settled.sessions, "units_paid": settled.units,
        "attach_us_p50": summary.attach_us_p50, "attach_us_p99": summary.attach_us_p99,
    }});
    print(&format!("{line}\n"))?;
    if summary.failed > 0 || summary.violated > 0 || left > 0 || counted.double_spent > 0 {
        let (failed, violated, twice) = (summary.failed, summary.violated, counted.double_spent);
        return Err(format!(
            "{failed} UEs failed, {violated} violations, {left} UEs are left in the cores, {twice} tokens were spent twice\n{logged}"
        ));
    }
    if counted.grants != expected || sessions != expected || pages != expected || settled.sessions != expected
    {
        return Err(format!(
            "{} grants, {sessions} sessions billed, {} claimed and {pages} pages, but {expected} attaches were due\n{logged}",
            counted.grants, settled.sessions
        ));
    }
    if taken_over == 0.0 {
        return Err(format!("no UE was taken over from a CPF that was killed\n{logged}"));
    }
    ledgers.judge()?;
    print(&format!(
        "the sums are those of LOCA in Table 4.1: the operators know places, the broker users, and no party both; {} leaks that were \
         planted in copies of the recordings were found\n",
        Leak::ALL.len()
    ))
}

/// What came of the claims.
struct Settled {
    sessions: u64,
    units: u64,
    text: String,
}

/// Closes the period; the operators claim it by themselves. Then two that collude claim a session twice. Errors: one sentence.
fn settle(playground: &VeilPlayground, units: u64) -> Result<Settled, String> {
    let secrets: Vec<_> = playground.operators.iter().map(Operator::claim_secrets).collect();
    let head = playground.close_period(&mut playground.period_witness()?)?;
    let begin = Instant::now();
    let paid = playground.until_paid(units)?;
    let took = begin.elapsed();
    let rows: Vec<Vec<String>> = paid
        .iter()
        .map(|p| vec![p.operator.clone(), p.period.to_string(), p.claims.to_string(), p.units.to_string()])
        .collect();
    let mut text = table(&["operator, as the broker pays", "period", "claims", "MB"], &rows);
    text += &format!(
        "{} sessions are in the table; each operator has proved the sum of its own and was paid {} ms after the witness signed the root\n",
        head.rows,
        took.as_millis()
    );
    let shared = secrets.first().and_then(|of_first| of_first.first());
    let answer = playground.collude(shared.ok_or("the first operator had no session")?, &head)?;
    if answer != ClaimAnswer::Refused(ClaimRefusal::Claimed) {
        return Err(format!("a session was claimed twice: the broker answered {answer:?}"));
    }
    text += &format!(
        "the second operator, with the secret of a session of the first, is refused: {}\n\n",
        ClaimRefusal::Claimed
    );
    let sessions = secrets.iter().map(|of_one| of_one.len() as u64).sum();
    Ok(Settled { sessions, units: paid.iter().map(|p| p.units).sum(), text })
}

/// What the broker has counted.
struct Counted {
    grants: u64,
    groups: u64,
    double_spent: u64,
    reports: u64,
}

/// Waits for the last reports. Errors: one sentence.
fn counts(playground: &VeilPlayground, expected: u64) -> Result<Counted, String> {
    let read = |what: &str| playground.broker_reading(&format!("whimbrel_broker_veil_{what}_total"));
    let begin = Instant::now();
    while read("reports")? < expected && begin.elapsed() < REPORTS_WITHIN {
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(Counted {
        grants: read("grants")?,
        groups: read("groups")?,
        double_spent: read("double_spent")?,
        reports: read("reports")?,
    })
}

struct Played {
    reports: Vec<Report>,
    seen: Vec<Seen>,
    /// What the cores' API showed while UEs were attached.
    shown: Vec<(&'static str, Vec<u8>)>,
}

fn play_all(playground: &mut VeilPlayground) -> Result<Played, String> {
    let mut played = Played { reports: Vec::new(), seen: Vec::new(), shown: Vec::new() };
    for round in 0..ROUNDS {
        let mut runs = Vec::new();
        for n in 0..OPERATORS {
            let users = playground.users_at(n, round);
            let ues = playground.ues(&users, round)?;
            runs.push((users, ues));
        }
        let operators = &mut playground.operators;
        let places: Vec<_> = operators.iter().map(|o| (o.amf, o.gnb_places(), o.token_source())).collect();
        let ended = std::thread::scope(|scope| {
            let runs: Vec<_> = runs
                .into_iter()
                .zip(places)
                .enumerate()
                .filter(|(_, ((users, _), _))| !users.is_empty())
                .map(|(n, ((users, ues), (amf, gnbs, file)))| {
                    let director = Director { file, looked: None, heard: None, users, seen: Vec::new() };
                    let seed = (round * OPERATORS + n) as u64;
                    scope.spawn(move || at(director, (amf.into(), gnbs), ues, seed))
                })
                .collect();
            std::thread::sleep(KILL_AFTER);
            if round == 1 {
                operators.iter_mut().try_for_each(Operator::lose_cpf)?;
            }
            played.shown.extend(operators.iter().flat_map(|o| o.shown()));
            let joined = runs
                .into_iter()
                .map(|run| run.join().map_err(|_| "the UEs of an operator ended in a panic".to_owned())?);
            joined.collect::<Result<Vec<_>, String>>()
        })?;
        for (report, seen) in ended {
            played.reports.push(report);
            played.seen.extend(seen);
        }
    }
    Ok(played)
}

fn at(
    mut director: Director,
    (amf, gnbs): (std::net::IpAddr, Vec<edge::GnbPlace>),
    ues: Vec<ue::UeConfig>,
    seed: u64,
) -> Result<(Report, Vec<Seen>), String> {
    let config = RunnerConfig {
        amf: vec![amf],
        amf_port: 38412,
        sctp: Mode::Auto,
        sctp_udp_ports: (9900, 9899),
        scenario: scenario(ues.len() as u32, gnbs.len() as u16),
        gnbs,
        ues,
        seed,
        namespace: None,
        hold: false,
        spin: Duration::from_micros(20),
    };
    let reports = edge::run(&config, &mut director).map_err(|e| format!("at operator {amf}: {e}"))?;
    let report = reports.into_iter().next().ok_or_else(|| format!("no UE arrived at operator {amf}"))?;
    Ok((report, director.seen))
}

/// After the page the UE waits, so that UEs are attached at the same time.
fn scenario(ues: u32, gnbs: u16) -> Scenario {
    let attach = || {
        let session =
            SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type: SessionType::Ipv4 };
        [
            Step::Register,
            Step::Session(session),
            Step::Fetch(format!("http://{NAME}/")),
            Step::Wait(0.4),
            Step::Deregister,
            Step::Wait(0.3),
        ]
    };
    Scenario {
        ues,
        gnbs,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::AtOnce,
        steps: (0..ATTACHES).flat_map(|_| attach()).collect(),
        groups: Vec::new(),
        seconds: 0.0,
        patience_s: 30.0,
        again: false,
        tun: false,
    }
}

/// What came of all rounds.
struct Summary {
    attaches: u64,
    failed: u64,
    violated: u64,
    attach_us_p50: u64,
    attach_us_p99: u64,
}

impl Summary {
    fn of(reports: &[Report]) -> Self {
        let register = || reports.iter().filter_map(|r| r.steps.get("register"));
        // The slowest run's: an upper bound of the percentile over all.
        let quantile = |q| register().map(|s| s.wire.quantile_micros(q)).max().unwrap_or(0);
        Self {
            attaches: register().map(|s| s.begun).sum(),
            failed: reports.iter().map(|r| r.failed).sum(),
            violated: reports.iter().map(|r| r.violated).sum(),
            attach_us_p50: quantile(0.5),
            attach_us_p99: quantile(0.99),
        }
    }
}
