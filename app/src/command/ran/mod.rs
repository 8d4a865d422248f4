//! `whimbrel ran`: emulated gNBs and phones, over real SCTP and GTP-U, use a core that runs somewhere.

mod gnbs;
mod phones;
pub(crate) mod scenario;
mod summary;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use whimbrel_ran::PhoneId;
use whimbrel_ran::cells::{Cells, GnbId};
use whimbrel_ran::edge::{self, Mode, RunError, RunnerConfig, Watch};
use whimbrel_ran::scenario::Scenario;
use whimbrel_ran::{gnb, ue};

use super::{Done, print};

/// Phones of which each session is told by itself.
const TOLD_PHONES_MAX: usize = 10;
/// After so long without an answer it is told that one is awaited; an AMF answers in milliseconds.
const WAIT_TOLD_AFTER: Duration = Duration::from_secs(2);
/// Our own UDP port of encapsulated SCTP: the AMF on the same host has 9899.
const SCTP_UDP_PORT: u16 = 9900;

#[derive(Args)]
pub(crate) struct Options {
    /// What the phones do, a YAML file; - reads standard input. Without it they register, open a session, and leave.
    scenario: Option<PathBuf>,
    /// Phones, in place of the scenario's number.
    #[arg(long, value_name = "N")]
    phones: Option<u32>,
    /// Write the subscribers that the phones are, for `whimbrel subscriber import`, and do nothing else.
    #[arg(long, value_name = "FILE.csv")]
    write_subscribers: Option<PathBuf>,
    /// Tell each event of gNBs and phones, and what the phone and its gNB hold then.
    #[arg(long, short)]
    verbose: bool,
    /// Keep the loop awake for so many microseconds before it sleeps: finer times for a busy core.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20)]
    spin: u64,
    #[command(flatten)]
    amf: CoreOptions,
    #[command(flatten)]
    gnb: gnbs::GnbOptions,
    #[command(flatten)]
    phone: phones::PhoneOptions,
    #[command(flatten)]
    session: SessionOptions,
}

/// Where the core is.
#[derive(Args)]
#[command(next_help_heading = "Core")]
struct CoreOptions {
    /// Address of the AMF; several are those of one multi-homed AMF.
    #[arg(long = "amf", value_name = "ADDRESS", default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    /// Its SCTP port.
    #[arg(long = "amf-port", value_name = "PORT", default_value_t = 38412)]
    port: u16,
    /// Which way SCTP goes.
    #[arg(long, default_value = "auto")]
    sctp: Sctp,
    /// The AMF's UDP port for --sctp udp.
    #[arg(long = "amf-udp-port", value_name = "PORT", default_value_t = 9899)]
    udp_port: u16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Sctp {
    Auto,
    Kernel,
    Raw,
    Udp,
}

/// What sessions are like.
#[derive(Args)]
#[command(next_help_heading = "Sessions")]
struct SessionOptions {
    /// Data network of the sessions whose step names none.
    #[arg(long)]
    dnn: Option<String>,
    /// Give each session a TUN device, so that any program can use it, and hold it until interrupted. On the core's own
    /// host, name --netns too: one host does not take packets from its own addresses.
    #[arg(long)]
    tun: bool,
    /// Make the TUN devices in this network namespace.
    #[arg(long, value_name = "NAME", requires = "tun")]
    netns: Option<String>,
}

pub(crate) fn run(options: &Options) -> Done {
    let scenario = scenario(options)?;
    let phones = phones::phones(&options.phone, options.gnb.plmn(), scenario.count(), options.gnb.slices())?;
    if let Some(file) = &options.write_subscribers {
        phones::write(file, &phones, &scenario, options.phone.slices(options.gnb.slices()))?;
        let file = file.display();
        return print(&format!(
            "{} subscribers were written to {file}: import them with `whimbrel subscriber import {file}`\n",
            phones.len()
        ));
    }
    let amf = options.amf.addresses.first().copied().unwrap_or(IpAddr::V4([127, 0, 0, 1].into()));
    let gnbs = gnbs::places(&options.gnb, amf, scenario.gnbs)?;
    let interrupted = interrupts()?;
    let mut onlooker = Onlooker {
        names: phones.iter().map(|p| p.config.supi.to_string()).collect(),
        of: scenario.count(),
        verbose: options.verbose,
        shown: false,
        interrupted: interrupted.clone(),
        set_up: BTreeSet::new(),
        waiting: Some((Instant::now(), format!("{amf} port {}", options.amf.port))),
        refused: None,
    };
    let config = RunnerConfig {
        amf: options.amf.addresses.clone(),
        amf_port: options.amf.port,
        sctp: match options.amf.sctp {
            Sctp::Auto => Mode::Auto,
            Sctp::Kernel => Mode::Kernel,
            Sctp::Raw => Mode::Raw,
            Sctp::Udp => Mode::Udp,
        },
        sctp_udp_ports: (SCTP_UDP_PORT, options.amf.udp_port),
        gnbs,
        phones: phones.into_iter().map(|p| p.config).collect(),
        scenario,
        seed: options.phone.seed(),
        netns: options.session.netns.clone(),
        spin: Duration::from_micros(options.spin),
    };
    let reports = edge::run(&config, &mut onlooker);
    onlooker.end_line();
    let reports = match onlooker.refused.take() {
        Some(refused) => Err(told(&refused, &config)),
        None => reports.map_err(|e| told(&e, &config)),
    }?;
    summary::print_all(&reports)?;
    summary::verdict(&reports, interrupted.load(Ordering::Relaxed))
}

/// The scenario, with what the command line says in its place.
fn scenario(options: &Options) -> Result<Scenario, String> {
    let mut scenario = match &options.scenario {
        Some(file) => scenario::read(file)?,
        None => scenario::default(options.session.tun),
    };
    if let Some(phones) = options.phones.or_else(|| options.phone.lone().then_some(1)) {
        scenario.phones = phones;
    }
    if let Some(gnbs) = options.gnb.count() {
        scenario.gnbs = gnbs;
    }
    scenario.tun |= options.session.tun;
    if let Some(dnn) = &options.session.dnn {
        scenario::use_dnn(&mut scenario, dnn);
    }
    scenario.check().map_err(|e| format!("this cannot be played: {e}"))?;
    Ok(scenario)
}

/// Becomes true at the first SIGINT or SIGTERM; the second one ends the program as usual.
fn interrupts() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let cannot = |e: std::io::Error| format!("signals cannot be awaited: {e}");
        signal_hook::flag::register_conditional_default(signal, flag.clone()).map_err(cannot)?;
        signal_hook::flag::register(signal, flag.clone()).map_err(cannot)?;
    }
    Ok(flag)
}

/// Why nothing was run, with the fix.
fn told(e: &RunError, config: &RunnerConfig) -> String {
    let name = |g: &GnbId| {
        let place = config.gnbs.get(usize::from(g.0));
        place.map_or_else(|| format!("gNB {}", g.0), |p| format!("gnb-{}", p.config.id))
    };
    match e {
        RunError::NoAssociation(g, why) => {
            let amf: Vec<String> = config.amf.iter().map(ToString::to_string).collect();
            format!(
                "{} has no association with the AMF at {} port {}: {why}; start the core with `whimbrel run`, or name its \
                 N2 address with --amf and its kind of SCTP with --sctp",
                name(g),
                amf.join(", "),
                config.amf_port
            )
        }
        RunError::Refused(g, cause) => {
            format!("the AMF refused {0}: {cause}; `whimbrel why {0}` says what it expects", name(g))
        }
        RunError::NoAnswer(g) => format!(
            "the AMF did not answer the NG SETUP REQUEST of {0}; `whimbrel why {0}` may say why",
            name(g)
        ),
        e => e.to_string(),
    }
}

/// Shows how far the phones are, on a terminal, and what happens, if that is wanted or rare.
struct Onlooker {
    names: Vec<String>,
    of: u32,
    verbose: bool,
    shown: bool,
    interrupted: Arc<AtomicBool>,
    /// gNBs that the AMF has taken once.
    set_up: BTreeSet<GnbId>,
    /// Since when it is awaited, until that was told.
    waiting: Option<(Instant, String)>,
    /// A gNB that it has never taken. A gNB would try again for ever; who runs this wants to know.
    refused: Option<RunError>,
}

impl Onlooker {
    fn end_line(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }

    fn name(&self, phone: PhoneId) -> &str {
        self.names.get(phone.0 as usize).map_or("a phone", String::as_str)
    }

    fn tell(&mut self, text: &str) {
        self.end_line();
        eprintln!("{text}");
    }
}

impl Watch for Onlooker {
    fn progress(&mut self, completed: u64, failed: u64, playing: u64) {
        use std::io::{IsTerminal, Write};
        if let Some((_, at)) =
            self.waiting.take_if(|(since, _)| self.set_up.is_empty() && since.elapsed() > WAIT_TOLD_AFTER)
        {
            self.tell(&format!(
                "no answer yet from an AMF at {at}; does it run there, with the same kind of SCTP?"
            ));
        }
        let mut err = std::io::stderr();
        if err.is_terminal() {
            self.shown = true;
            let _ = write!(err, "\r{completed} of {} done, {failed} failed, {playing} at it ", self.of);
        }
    }

    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        if self.verbose {
            self.tell(&format!("gNB {}: {event:?}", gnb.0));
        }
        match event {
            gnb::Event::SetUp { .. } => {
                self.set_up.insert(gnb);
            }
            gnb::Event::SetupFailed(m) if !self.set_up.contains(&gnb) => {
                self.refused = Some(RunError::Refused(gnb, gnb::cause_text(&m.cause)));
            }
            _ => {}
        }
    }

    fn phone(&mut self, phone: PhoneId, event: &ue::Event) {
        if self.verbose {
            self.tell(&format!("{}: {event:?}", self.name(phone)));
        } else if self.names.len() <= TOLD_PHONES_MAX
            && let Some(text) = remarkable(event)
        {
            self.tell(&format!("{} {text}", self.name(phone)));
        }
    }

    fn stands(&mut self, phone: PhoneId, cells: &Cells) {
        if let Some(holds) = cells.holds(phone).filter(|_| self.verbose) {
            self.tell(&format!("{}: {holds}", self.name(phone)));
        }
    }

    fn tun(&mut self, phone: PhoneId, name: &str) {
        self.tell(&format!("{} is at device {name}", self.name(phone)));
    }

    fn stop(&mut self) -> bool {
        self.refused.is_some() || self.interrupted.load(Ordering::Relaxed)
    }
}

/// What one wants to know of a single phone.
fn remarkable(event: &ue::Event) -> Option<String> {
    match event {
        ue::Event::Registered { .. } => Some("is registered".into()),
        ue::Event::SessionUp { session, .. } => {
            let dnn = session.dnn.as_ref().map(|d| format!(" of {d}")).unwrap_or_default();
            let mut facts: Vec<String> = session.ipv4.iter().map(|a| format!("address {a}")).collect();
            facts.extend(session.interface_id.map(|_| "IPv6 by router advertisement".into()));
            let dns: Vec<String> = session.dns_ipv4.iter().map(ToString::to_string).collect();
            facts.extend((!dns.is_empty()).then(|| format!("DNS {}", dns.join(" "))));
            Some(format!("has PDU session {}{dnn}: {}", session.id, facts.join(", ")))
        }
        ue::Event::Refused { procedure, reason, .. } => Some(format!("was refused in {procedure}: {reason}")),
        ue::Event::Deregistered { cause, .. } => Some(match cause {
            Some(cause) => format!("is deregistered: 5GMM cause #{} {cause}", cause.value()),
            None => "is deregistered".into(),
        }),
        _ => None,
    }
}
