//! `whimbrel-lab demo --scenario veil`: veiled users of one broker move between two operators, send traffic, are billed, while a CPF of each
//! operator is killed. Then the knowledge ledger is computed from all that the parties recorded.

mod agency;
mod ledger;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_cli::{Done, print, table};
use whimbrel_node::observation::Metric;
use whimbrel_privacy::msg::{ClaimAnswer, ClaimRefusal};
use whimbrel_privacy::token::TokenHash;
use whimbrel_ran::UeId;
use whimbrel_ran::cells::Cells;
use whimbrel_ran::edge::{self, RunnerConfig, Watch};
use whimbrel_ran::report::ScenarioReport;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, SessionType, Step};
use whimbrel_ran::ue;
use whimbrel_sctp_io::Mode;

use self::agency::{Found, LOCATED_WITHIN};
use self::ledger::{Leak, Seen, SeenOfOrdinary, recorded};
use super::Options;
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
    ordinary: SeenOfOrdinary,
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
        if !matches!(ue.config().suci, ue::SuciSource::Veil(_)) {
            self.ordinary.gutis.extend(ue.guti());
            return self.ordinary.addresses.extend(ue.sessions().filter_map(|s| s.ipv4));
        }
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

/// The user that an agency has intercepted.
const INTERCEPTED: usize = 0;
/// The user that calls emergency.
const EMERGENCY: usize = 1;
/// Pages of an attach.
const PAGES: u64 = 2;
/// Veiled UEs by default.
const UES: u32 = 40;
/// Veiled UEs for each ordinary one.
const VEILED_PER_ORDINARY: u32 = 4;

pub(super) fn run(options: &Options) -> Done {
    super::announce_demonstration_build("cores and a broker that record all that passes")?;
    let gnbs = options.gnbs.div_ceil(OPERATORS as u8).max(2);
    print(&format!(
        "starting {OPERATORS} operators with {gnbs} gNBs each, a broker, a relay and a gateway in a network namespace of their own\n"
    ))?;
    let veiled = options.ues.unwrap_or(UES);
    let ordinary = veiled.div_ceil(VEILED_PER_ORDINARY);
    let mut playground = VeilPlayground::start((veiled, ordinary), gnbs, options.direct)?;
    let servers =
        playground.operators.iter().map(|o| Servers::start(o.gateway)).collect::<Result<Vec<_>, _>>()?;
    print(&format!(
        "{veiled} veiled UEs, and {ordinary} ordinary ones of the same broker: attach, session, DNS, page, deregister, again at the same tower, then \
         at the other operator; a CPF of each operator is killed in the second round\n"
    ))?;
    let names = |n: usize| playground.users.get(n).map(|user| user.name.clone()).unwrap_or_default();
    let targets = (names(INTERCEPTED), names(EMERGENCY));
    let played = play_all(&mut playground, &targets);
    let Played { reports, seen, ordinary: seen_of_ordinary, shown, found } =
        played.map_err(|e| format!("{e}\n{}", playground.logged()))?;
    let of_each = (ROUNDS * ATTACHES) as u64;
    let expected = u64::from(veiled + ordinary) * of_each;
    let counted = counts(&playground, expected)?;
    let billed = playground.billed()?;
    let settled = settle(&mut playground, billed.iter().map(|b| b.units).sum());
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
    let mut recorded = recorded(&playground, &seen, seen_of_ordinary, shown)?;
    recorded.add_agency(&found);
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
        "operators": OPERATORS, "ues": veiled, "ordinary_ues": ordinary, "attaches": summary.attaches, "failed": summary.failed,
        "violations": summary.violated, "grants": counted.grants, "challenges": counted.challenges, "tokens_spent": counted.groups,
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
    if counted.grants != u64::from(veiled) * of_each
        || sessions != expected
        || pages != expected * PAGES
        || settled.sessions != expected
    {
        return Err(format!(
            "{} grants, {sessions} sessions billed, {} claimed and {pages} pages, but {expected} attaches were due\n{logged}",
            counted.grants, settled.sessions
        ));
    }
    judge_services(&playground, &found, &seen)?;
    if taken_over == 0.0 {
        return Err(format!("no UE was taken over from a CPF that was killed\n{logged}"));
    }
    ledgers.judge()?;
    print(&format!(
        "the sums are those of LOCA in Table 4.1: the operators know places, the broker users, and no party both; an operator knows an ordinary UE \
         again by the 5G-GUTI that it gave it, and a UE under order by the order; {} leaks that were planted in copies of the recordings were found\n",
        Leak::ALL.len()
    ))
}

/// What came of the claims.
struct Settled {
    sessions: u64,
    units: u64,
    text: String,
}

/// Closes the period; each operator claims it by `whimbrel-broker settle`. Then two that collude claim a session twice. Errors: one sentence.
fn settle(playground: &mut VeilPlayground, units: u64) -> Result<Settled, String> {
    let secrets: Vec<_> = playground.operators.iter().map(Operator::claim_secrets).collect();
    let head = playground.close_period(&mut playground.period_witness()?)?;
    let begin = Instant::now();
    playground.claim()?;
    let took = begin.elapsed();
    let paid = playground.paid(units)?;
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

/// The emergency location is a gNB's, and comes in time; the copies are of the intercepted user alone.
fn judge_services(playground: &VeilPlayground, found: &Found, seen: &[Seen]) -> Done {
    let own = seen.iter().filter(|s| s.user == INTERCEPTED).filter_map(|s| s.address).collect();
    let slowest = found.places.iter().map(|(took, _)| *took).max().unwrap_or(Duration::MAX);
    let cells = ledger::cells(playground);
    let elsewhere =
        found.places.iter().filter(|(_, place)| !cells.iter().any(|cell| place.ends_with(cell))).count();
    let (places, foreign) = (found.places.len(), found.foreign(&own));
    print(&format!(
        "lawful intercept: {} sessions of one user, {} packets opened by the agency, {foreign} of them another's; emergency: {places} places of one \
         user, the slowest after {} ms; {} orders came when the session had ended\n",
        found.interceptions,
        found.packets.len(),
        slowest.as_millis(),
        found.too_late
    ))?;
    let good = !found.packets.is_empty() && foreign == 0 && places > 0 && elsewhere == 0;
    match good && slowest <= LOCATED_WITHIN {
        true => Ok(()),
        false => Err(format!(
            "the agency's orders were not carried out as they should: {elsewhere} places are no cell of a gNB"
        )),
    }
}

/// What the broker has counted.
struct Counted {
    grants: u64,
    /// Of ordinary UEs, each with a grant.
    challenges: u64,
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
        challenges: read("challenges")?,
        groups: read("groups")?,
        double_spent: read("double_spent")?,
        reports: read("reports")?,
    })
}

#[derive(Default)]
struct Played {
    reports: Vec<ScenarioReport>,
    seen: Vec<Seen>,
    ordinary: SeenOfOrdinary,
    /// What the cores' API showed while UEs were attached.
    shown: Vec<(&'static str, Vec<u8>)>,
    /// What the agency has found.
    found: Found,
}

/// Plays all rounds while the agency works.
fn play_all(playground: &mut VeilPlayground, targets: &(String, String)) -> Result<Played, String> {
    let over = AtomicBool::new(false);
    let storage = playground.broker_storage()?;
    let keys = playground.agency.clone();
    std::thread::scope(|scope| {
        let agency = scope.spawn(|| agency::work(&keys, storage, (&targets.0, &targets.1), &over));
        let played = play_rounds(playground);
        over.store(true, Ordering::Relaxed);
        let found = agency.join().map_err(|_| "the agency ended in a panic".to_owned())??;
        Ok(Played { found, ..played? })
    })
}

fn play_rounds(playground: &mut VeilPlayground) -> Result<Played, String> {
    let mut played = Played::default();
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
                    let director = Director {
                        file,
                        looked: None,
                        heard: None,
                        users,
                        seen: Vec::new(),
                        ordinary: SeenOfOrdinary::default(),
                    };
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
        for (report, seen, ordinary) in ended {
            played.reports.push(report);
            played.seen.extend(seen);
            played.ordinary.addresses.extend(ordinary.addresses);
            played.ordinary.gutis.extend(ordinary.gutis);
        }
    }
    Ok(played)
}

fn at(
    mut director: Director,
    (amf, gnbs): (std::net::IpAddr, Vec<edge::GnbPlace>),
    ues: Vec<ue::UeConfig>,
    seed: u64,
) -> Result<(ScenarioReport, Vec<Seen>, SeenOfOrdinary), String> {
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
        hop_delay: Duration::ZERO,
    };
    let reports = edge::run(&config, &mut director).map_err(|e| format!("at operator {amf}: {e}"))?;
    let report = reports.into_iter().next().ok_or_else(|| format!("no UE arrived at operator {amf}"))?;
    Ok((report, director.seen, director.ordinary))
}

/// Between the pages the UE waits, so that UEs are attached at the same time and orders find them.
fn scenario(ues: u32, gnbs: u16) -> Scenario {
    let attach = || {
        let session =
            SessionStep { dnn: Some("internet".into()), s_nssai: None, pdu_session_type: SessionType::Ipv4 };
        [
            Step::Register,
            Step::Session(session),
            Step::Fetch(format!("http://{NAME}/")),
            Step::Wait(0.8),
            Step::Fetch(format!("http://{NAME}/")),
            Step::Wait(0.2),
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
    fn of(reports: &[ScenarioReport]) -> Self {
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
