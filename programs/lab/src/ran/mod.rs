//! `whimbrel-lab ran`: emulated gNBs and UEs that use a running core over real SCTP and GTP-U.

mod gnbs;
mod program;
pub(crate) mod scenario;
mod summary;
mod ues;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use whimbrel_cli::print;
use whimbrel_ran::UeId;
use whimbrel_ran::cells::{Cells, GnbId};
use whimbrel_ran::edge::{self, Mode, Namespace, RunError, RunnerConfig, Watch};
use whimbrel_ran::scenario::Scenario;
use whimbrel_ran::{gnb, ue};

use self::program::Program;

/// Up to this many UEs, the progress of each one is printed.
const PRINTED_UES_MAX: usize = 10;
/// After this long without an answer a note is printed; an AMF answers in milliseconds.
const WAIT_NOTED_AFTER: Duration = Duration::from_secs(2);
/// Our own UDP port of encapsulated SCTP: the AMF on the same host has 9899.
const SCTP_UDP_PORT: u16 = 9900;

#[derive(Args)]
pub(crate) struct Options {
    /// Scenario, a YAML file; - reads standard input. Default: the UEs register, establish a session and deregister.
    scenario: Option<PathBuf>,
    /// Number of UEs, instead of the scenario's.
    #[arg(long, value_name = "N")]
    ues: Option<u32>,
    /// Only write the subscribers of the UEs, for `whimbrel subscriber import`.
    #[arg(long, value_name = "FILE.csv")]
    write_subscribers: Option<PathBuf>,
    /// Print each event of gNBs and UEs, and the state of the UE and its gNB after it.
    #[arg(long, short)]
    verbose: bool,
    /// Microseconds of busy polling before the loop sleeps: more precise times for a loaded core.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 20)]
    spin: u64,
    /// Time that each message and packet takes between a gNB and the core, as 500us or 1ms.
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = whimbrel_cli::short_time)]
    hop_delay: Duration,
    #[command(flatten)]
    amf: CoreOptions,
    #[command(flatten)]
    gnb: gnbs::GnbOptions,
    #[command(flatten)]
    ue: ues::UeOptions,
    #[command(flatten)]
    session: SessionOptions,
    /// A program that uses the UE's PDU session, such as `-- ping -c 3 1.1.1.1`. It starts when the session is ready, in a network
    /// namespace with the session's addresses, default routes and DNS servers. Its exit status becomes that of this command (125:
    /// there was no session). When it ends, the UE is switched off.
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// The core to connect to.
#[derive(Args)]
#[command(next_help_heading = "Core")]
struct CoreOptions {
    /// Address of the AMF; repeat it for a multi-homed AMF.
    #[arg(long = "amf", value_name = "ADDRESS", default_value = "127.0.0.1")]
    addresses: Vec<IpAddr>,
    /// SCTP port of the AMF.
    #[arg(long = "amf-port", value_name = "PORT", default_value_t = 38412)]
    port: u16,
    /// SCTP implementation of the gNBs.
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

/// Options of sessions.
#[derive(Args)]
#[command(next_help_heading = "Sessions")]
struct SessionOptions {
    /// DNN of sessions whose step names none.
    #[arg(long)]
    dnn: Option<String>,
    /// Give each session a TUN device that any program can use, and keep it after the scenario until interrupted. On the
    /// core's own host, use --netns too, because a host drops packets from its own addresses.
    #[arg(long)]
    tun: bool,
    /// Create the TUN devices in this network namespace, with default routes, and write the session's DNS servers to
    /// /etc/netns/NAME/resolv.conf, for `ip netns exec NAME`. A namespace that does not exist is created, and removed at the end.
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
}

/// Runs it; what it ends with is the program's exit status, if there is a program. Errors: one sentence.
pub(crate) fn run(options: &Options) -> Result<ExitCode, String> {
    match play(options) {
        Err(sentence) if !options.program.is_empty() => {
            eprintln!("{sentence}");
            Ok(ExitCode::from(program::NO_SESSION))
        }
        ended => ended,
    }
}

fn play(options: &Options) -> Result<ExitCode, String> {
    let scenario = scenario(options)?;
    let ues = ues::ues(&options.ue, options.gnb.plmn(), scenario.count(), options.gnb.slices())?;
    if let Some(file) = &options.write_subscribers {
        ues::write(file, &ues, &scenario, options.ue.slices(options.gnb.slices()))?;
        let file = file.display();
        print(&format!(
            "{} subscribers were written to {file}: import them with `whimbrel subscriber import {file}`\n",
            ues.len()
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !options.program.is_empty() && ues.len() != 1 {
        return Err(format!(
            "a program uses the session of one UE, but there are {}: give --ues 1",
            ues.len()
        ));
    }
    let first = options.gnb.first_amf().or(options.amf.addresses.first().copied());
    let amf = first.unwrap_or(IpAddr::V4([127, 0, 0, 1].into()));
    let gnbs = gnbs::places(&options.gnb, amf, scenario.gnbs)?;
    let namespace = namespace(options)?;
    let interrupted = interrupts()?;
    let mut observer = RunObserver {
        names: ues.iter().map(|p| p.config.supi.to_string()).collect(),
        of: scenario.count(),
        verbose: options.verbose,
        shown: false,
        interrupted: interrupted.clone(),
        set_up: BTreeSet::new(),
        waiting: Some((Instant::now(), format!("{amf} port {}", options.amf.port))),
        refused: None,
        namespace: namespace.clone(),
        program: (!options.program.is_empty()).then(|| Program::new(options.program.clone())),
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
        ues: ues.into_iter().map(|p| p.config).collect(),
        scenario,
        seed: options.ue.seed(),
        namespace,
        hold: options.uses_devices(),
        spin: Duration::from_micros(options.spin),
        hop_delay: options.hop_delay,
    };
    let reports = edge::run(&config, &mut observer);
    observer.end_line();
    let reports = match observer.refused.take() {
        Some(refused) => Err(start_error(&refused, &config)),
        None => reports.map_err(|e| start_error(&e, &config)),
    }?;
    let verdict = summary::verdict(&reports, interrupted.load(Ordering::Relaxed));
    let Some(program) = &observer.program else {
        summary::print_all(&reports)?;
        return verdict.map(|()| ExitCode::SUCCESS);
    };
    // Standard output is the program's.
    if let Err(sentence) = &verdict {
        reports.iter().for_each(|report| eprint!("{}", summary::text(report)));
        eprintln!("{sentence}");
    }
    program.exit_code().ok_or_else(|| "the UE had no PDU session for the program, or lost it".into())
}

impl Options {
    /// Whether sessions have TUN devices that stay when the scenario is done.
    fn uses_devices(&self) -> bool {
        self.session.tun || self.session.netns.is_some() || !self.program.is_empty()
    }
}

/// Where the TUN devices are: in the namespace that is named, or in one without a name if a program is to use them.
fn namespace(options: &Options) -> Result<Option<Arc<Namespace>>, String> {
    let made = match (&options.session.netns, options.program.is_empty()) {
        (Some(name), _) => Namespace::named(name),
        (None, false) => Namespace::private(),
        (None, true) => return Ok(None),
    };
    made.map(|namespace| Some(Arc::new(namespace))).map_err(|e| e.to_string())
}

/// The scenario, with the options of the command line applied.
fn scenario(options: &Options) -> Result<Scenario, String> {
    let mut scenario = match &options.scenario {
        Some(file) => scenario::read(file)?,
        None => scenario::default(options.uses_devices()),
    };
    if let Some(ues) = options.ues.or_else(|| options.ue.lone().then_some(1)) {
        scenario.ues = ues;
    }
    if let Some(gnbs) = options.gnb.count() {
        scenario.gnbs = gnbs;
    }
    scenario.tun |= options.uses_devices();
    if let Some(dnn) = &options.session.dnn {
        scenario::use_dnn(&mut scenario, dnn);
    }
    scenario.check().map_err(|e| format!("the scenario is not possible: {e}"))?;
    Ok(scenario)
}

/// Becomes true at the first SIGINT or SIGTERM; the second one ends this process as usual.
fn interrupts() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let cannot = |e: std::io::Error| format!("signals cannot be awaited: {e}");
        signal_hook::flag::register_conditional_default(signal, flag.clone()).map_err(cannot)?;
        signal_hook::flag::register(signal, flag.clone()).map_err(cannot)?;
    }
    // The signal ends the loop's sleep, so that the end of the program is noticed at once.
    let child = signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::default());
    child.map_err(|e| format!("signals cannot be awaited: {e}"))?;
    Ok(flag)
}

/// Why the run did not start, with the fix.
fn start_error(e: &RunError, config: &RunnerConfig) -> String {
    let name = |g: &GnbId| {
        let place = config.gnbs.get(usize::from(g.0));
        place.map_or_else(|| format!("gNB {}", g.0), |p| format!("gnb-{}", p.config.id))
    };
    match e {
        RunError::NoAssociation(g, why) => {
            let amf: Vec<String> = config.amf.iter().map(ToString::to_string).collect();
            format!(
                "{} has no association with the AMF at {} port {}: {why}; start the core with `whimbrel run`, or give its \
                 N2 address with --amf and its SCTP implementation with --sctp",
                name(g),
                amf.join(", "),
                config.amf_port
            )
        }
        RunError::Refused(g, cause) => {
            format!("the AMF refused {0}: {cause}; `whimbrel why {0}` shows what it expects", name(g))
        }
        RunError::NoAnswer(g) => format!(
            "the AMF did not answer the NG SETUP REQUEST of {0}; `whimbrel why {0}` may show why",
            name(g)
        ),
        e if is_address_in_use(e) => {
            let address = config.gnbs.first().map(|place| place.address.to_string()).unwrap_or_default();
            format!(
                "another program on this host has the gNB's address {address}, probably another `whimbrel-lab ran`; give this one an address and an \
                 identifier of its own, such as --gnb-address 127.0.1.2 --gnb-id 2 ({e})"
            )
        }
        e => e.to_string(),
    }
}

/// Whether a gNB's address on N2 or N3 is taken.
fn is_address_in_use(e: &RunError) -> bool {
    match e {
        RunError::Sctp(e) => {
            let in_use = rustix::io::Errno::ADDRINUSE.raw_os_error();
            e.obstacles.iter().any(|obstacle| obstacle.errno == Some(in_use))
        }
        RunError::Gtp(_, e) => e.kind() == std::io::ErrorKind::AddrInUse,
        _ => false,
    }
}

/// Prints the progress on a terminal, and events if requested or if there are few UEs.
struct RunObserver {
    names: Vec<String>,
    of: u32,
    verbose: bool,
    shown: bool,
    interrupted: Arc<AtomicBool>,
    /// gNBs whose NG Setup has succeeded once.
    set_up: BTreeSet<GnbId>,
    /// Since when an answer of the AMF is awaited, until that was printed.
    waiting: Option<(Instant, String)>,
    /// A gNB whose first NG Setup was refused. It would retry for ever, so the run ends instead.
    refused: Option<RunError>,
    /// Namespace of the TUN devices, if not this process's own.
    namespace: Option<Arc<Namespace>>,
    program: Option<Program>,
}

impl RunObserver {
    fn end_line(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }

    fn name(&self, ue: UeId) -> &str {
        self.names.get(ue.0 as usize).map_or("a UE", String::as_str)
    }

    fn print(&mut self, text: &str) {
        self.end_line();
        eprintln!("{text}");
    }
}

impl Watch for RunObserver {
    fn progress(&mut self, completed: u64, failed: u64, playing: u64) {
        use std::io::{IsTerminal, Write};
        if let Some((_, at)) =
            self.waiting.take_if(|(since, _)| self.set_up.is_empty() && since.elapsed() > WAIT_NOTED_AFTER)
        {
            self.print(&format!(
                "no answer yet from an AMF at {at}; is it running there, with the same SCTP implementation?"
            ));
        }
        let mut err = std::io::stderr();
        if err.is_terminal() && self.program.is_none() {
            self.shown = true;
            let _ = write!(err, "\r{completed} of {} done, {failed} failed, {playing} running ", self.of);
        }
    }

    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        if self.verbose {
            self.print(&format!("gNB {}: {event:?}", gnb.0));
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

    fn ue(&mut self, ue: UeId, event: &ue::Event) {
        if self.verbose {
            self.print(&format!("{}: {event:?}", self.name(ue)));
        } else if self.names.len() <= PRINTED_UES_MAX
            && let Some(text) = summary_of(event)
        {
            self.print(&format!("{} {text}", self.name(ue)));
        }
    }

    fn stands(&mut self, ue: UeId, cells: &Cells) {
        if let Some(holds) = cells.holds(ue).filter(|_| self.verbose) {
            self.print(&format!("{}: {holds}", self.name(ue)));
        }
    }

    fn attached(&mut self, ue: UeId, device: &str, dns: &[IpAddr]) {
        self.print(&format!("{} uses device {device}", self.name(ue)));
        let Some(namespace) = self.namespace.clone() else { return };
        if !dns.is_empty()
            && let Err(e) = namespace.set_dns(dns)
        {
            self.print(&format!("the DNS servers of the session cannot be set for programs: {e}"));
        }
        self.end_line();
        if let Some(Err(e)) = self.program.as_mut().map(|p| p.start(&namespace)) {
            self.print(&e);
        }
    }

    fn stop(&mut self) -> bool {
        let interrupted = self.interrupted.load(Ordering::Relaxed);
        let ended = self.program.as_mut().map_or(interrupted, |p| p.has_ended(interrupted));
        self.refused.is_some() || ended
    }
}

/// The events that are printed if there are few UEs.
fn summary_of(event: &ue::Event) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use whimbrel_sctp_io::{Obstacle, OpenError};

    use super::*;

    #[test] // two `whimbrel-lab ran` on one host: the second one says which options help
    fn a_gnbs_address_that_is_taken_is_found_on_n2_and_n3() {
        let obstacle = |errno: rustix::io::Errno| {
            let (cause, effect, fix) = (String::new(), "", "");
            let errno = Some(errno.raw_os_error());
            RunError::Sctp(OpenError {
                obstacles: vec![Obstacle { mode: Mode::Raw, cause, effect, fix, errno }],
            })
        };
        let gtp = |kind: std::io::ErrorKind| {
            RunError::Gtp(([127, 0, 1, 1], 2152).into(), std::io::Error::from(kind))
        };
        assert!(is_address_in_use(&obstacle(rustix::io::Errno::ADDRINUSE)));
        assert!(is_address_in_use(&gtp(std::io::ErrorKind::AddrInUse)));
        assert!(!is_address_in_use(&obstacle(rustix::io::Errno::PERM)));
        assert!(!is_address_in_use(&gtp(std::io::ErrorKind::PermissionDenied)));
    }
}
