//! The core of the experiment: the CTA of the program, with its CPF and UPF at the distance of a build.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Prf, UpfId};
use whimbrel_ids::Instant;
use whimbrel_link::{LinkId, Links, Spin};
use whimbrel_node::clock;
use whimbrel_resilience::link::{CpfCommand, CpfReport, ToCpf, ToCta};
use whimbrel_resilience::region::{Region, Regions};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, Cta, Input, Outbox, ReplicatedCpf};
use whimbrel_security::HomeNetworkKeys;
use whimbrel_shm::create;
use whimbrel_sim::{SimSubscribers, upf_config};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::super::fabric::pin;
use super::EPOCH;
use super::ends::{Came, End, settings, sleep};
use super::function::{Part, Started, start};
use super::functions::{Functions, FunctionsAt, KINDS, control_config};
use super::upf::UpfNode;

/// The one CPF.
const CPF: CpfId = CpfId(1);
const UPF: UpfId = UpfId(0);
/// How long the links to the functions may take to stand.
const LINKED_WITHIN: Duration = Duration::from_secs(60);

/// Where the CPF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpfAt {
    /// A part of the CTA, which calls it: one process.
    Call,
    /// A CPF of a region whose messages are handed over as values: what the CTA's log and assignments take.
    Values,
    /// The same, with messages written and read: what their forms take.
    Octets,
    /// The CPF is a process.
    Process,
}

/// Where the UPF is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpfAt {
    Call,
    /// A process, over a link.
    Process,
    /// A process, by PFCP over UDP.
    Udp,
}

/// A way to build the core.
#[derive(Clone, Copy, Debug)]
pub(super) struct Build {
    pub(super) cpf: CpfAt,
    pub(super) upf: UpfAt,
    pub(super) functions: FunctionsAt,
    /// Whether links go through shared memory, and not over sealed sockets.
    pub(super) shared: bool,
    /// The processors of the CTA and of the other functions.
    pub(super) processors: [usize; 2],
    /// How long a function looks for the next message before it sleeps.
    pub(super) spin: Duration,
}

/// What has passed since the core began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Passed {
    /// NGAP messages to gNBs.
    pub(super) ngap: u64,
    /// PFCP messages from the UPF.
    pub(super) pfcp: u64,
    /// Inputs for the CPF that it has run.
    pub(super) ran: u64,
    /// NGAP messages from gNBs.
    pub(super) heard: u64,
}

impl Passed {
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            ngap: self.ngap - earlier.ngap,
            pfcp: self.pfcp - earlier.pfcp,
            ran: self.ran - earlier.ran,
            heard: self.heard - earlier.heard,
        }
    }

    /// Whether all of this has passed.
    pub(super) fn has(self, all: Self) -> bool {
        self.ngap >= all.ngap && self.pfcp >= all.pfcp && self.ran >= all.ran && self.heard >= all.heard
    }
}

/// What went between CTA and CPF.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crossings {
    pub(super) to_cpf: u64,
    pub(super) from_cpf: u64,
    pub(super) octets: u64,
}

enum Upf {
    Call(UpfNode),
    Process(LinkId),
    Udp(UdpSocket),
}

pub(super) struct Core {
    cta: Cta<SimSubscribers, (Prf, u64), ()>,
    out: Outbox,
    now: Instant,
    cpf: Option<Box<ReplicatedCpf>>,
    cpf_out: CpfOutbox,
    upf: Upf,
    end: Option<End>,
    cpf_link: Option<LinkId>,
    frame: Vec<u8>,
    answers: Vec<Vec<u8>>,
    at: CpfAt,
    /// Messages for gNBs.
    pub(super) ngap: Vec<(AssociationId, u16, Vec<u8>)>,
    pub(super) passed: Passed,
    /// Inputs that the CPF was sent.
    asked: u64,
    /// PFCP requests that the UPF was sent and has not answered.
    unanswered: u64,
    pub(super) crossings: Crossings,
    functions: Functions,
    /// A failure that ended the core's work.
    failure: Option<io::Error>,
    spin: Spin,
    begun: Clock,
    /// They end when this core does.
    processes: Vec<Started>,
}

impl Core {
    /// `folder`: that of the functions' store.
    pub(super) fn new(build: Build, folder: &Path) -> io::Result<Self> {
        let config = Arc::new(control_config(build.functions));
        let directory = Directory::new(config.amf.plmn, HomeNetworkKeys::new());
        let entropy = (Prf::new(&[9; 16]), 0);
        let cta = if build.cpf == CpfAt::Call {
            Cta::new(config.clone(), directory, SimSubscribers::default(), entropy, (), EPOCH)
        } else {
            let region: Region = "coast/home".parse().map_err(io::Error::other)?;
            let mut regions = Regions::new([region.clone()]).map_err(io::Error::other)?;
            regions.join(CPF, &region).map_err(io::Error::other)?;
            let rings = regions.rings(&region, 0).map_err(io::Error::other)?;
            Cta::of_region(config.clone(), directory, SimSubscribers::default(), entropy, (), rings, EPOCH)
        };
        let here = matches!(build.cpf, CpfAt::Values | CpfAt::Octets);
        let mut core = Self {
            cta,
            out: Outbox::default(),
            now: EPOCH,
            cpf: here.then(|| Box::new(ReplicatedCpf::new(config))),
            cpf_out: CpfOutbox::default(),
            upf: Upf::Call(UpfNode::new(upf_config(7))?),
            end: None,
            cpf_link: None,
            frame: Vec::new(),
            answers: Vec::new(),
            at: build.cpf,
            ngap: Vec::new(),
            passed: Passed::default(),
            asked: 0,
            unanswered: 0,
            crossings: Crossings::default(),
            functions: Functions::Embedded,
            failure: None,
            spin: Spin::new(build.spin),
            begun: Clock::now(),
            processes: Vec::new(),
        };
        core.start_functions(build, folder)?;
        Ok(core)
    }

    fn start_functions(&mut self, build: Build, folder: &Path) -> io::Result<()> {
        // Threads of what is called have any processor.
        release();
        match build.functions {
            FunctionsAt::Embedded | FunctionsAt::Process => {}
            FunctionsAt::Call => self.functions = Functions::call(folder)?,
            FunctionsAt::Http => {
                let offering = start(Part::Http, build.processors[1], build.spin, None, folder)?;
                self.functions = Functions::http(folder, offering.at)?;
                self.processes.push(offering);
            }
        }
        pin(build.processors[0]);
        let of_link = [
            (Part::Cpf, build.cpf == CpfAt::Process),
            (Part::Upf, build.upf == UpfAt::Process),
            (Part::Udm, build.functions == FunctionsAt::Process),
            (Part::Pcf, build.functions == FunctionsAt::Process),
            (Part::Chf, build.functions == FunctionsAt::Process),
        ];
        let parts: Vec<Part> =
            of_link.into_iter().filter(|(_, is_process)| *is_process).map(|(part, _)| part).collect();
        if build.upf == UpfAt::Udp {
            let function = start(Part::UpfOverUdp, build.processors[1], build.spin, None, folder)?;
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(function.at)?;
            socket.set_nonblocking(true)?;
            self.upf = Upf::Udp(socket);
            self.processes.push(function);
        }
        if parts.is_empty() {
            return Ok(());
        }
        let mut links = Links::open(settings()).map_err(io::Error::other)?;
        let made = if build.shared { Some(create()?) } else { None };
        if let Some(made) = &made {
            links.share(made.open(0).map_err(io::Error::other)?)?;
        }
        let mut end = End::new(links, build.spin);
        let mut linked = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let pool = made.as_ref().map(|made| (made, n + 1));
            let function = start(*part, build.processors[1], build.spin, pool, folder)?;
            let link = end.links.connect(end.now(), function.at);
            match part {
                Part::Cpf => self.cpf_link = Some(link),
                Part::Upf => self.upf = Upf::Process(link),
                // These have no link.
                Part::UpfOverUdp | Part::Http => {}
                Part::Udm | Part::Pcf | Part::Chf => linked.push(link),
            }
            self.processes.push(function);
        }
        if build.functions == FunctionsAt::Process {
            self.functions = Functions::process(KINDS.into_iter().zip(linked).collect());
        }
        let expected = if build.shared { parts.len() } else { 0 };
        let since = Clock::now();
        while end.links.counters().up < parts.len() as u64 || end.links.shared() < expected {
            let came = end.receive(|_, _, _| Ok(()))?;
            if since.elapsed() > LINKED_WITHIN || came == Came::Ended {
                return Err(io::Error::other("the link to a function does not stand"));
            }
            end.links.flush();
            // The kernel carries the greetings, perhaps on this processor.
            std::thread::sleep(Duration::from_micros(100));
        }
        self.end = Some(end);
        Ok(())
    }

    /// How often it has slept.
    pub(super) fn sleeps(&self) -> u64 {
        self.end.as_ref().map_or(0, |end| end.sleeps)
    }

    /// Lets the time pass.
    pub(super) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
        self.handle(Input::Tick);
        self.deliver();
    }

    /// A gNB has connected.
    pub(super) fn associate(&mut self, association: AssociationId) {
        self.handle(Input::AssociationUp { association, outbound_streams: 16, addresses: Vec::new() });
        self.deliver();
    }

    /// A message of a gNB has come.
    pub(super) fn hear(&mut self, association: AssociationId, stream: u16, octets: &[u8]) {
        self.passed.heard += 1;
        self.handle(Input::Ngap(association, stream, octets));
        self.deliver();
    }

    /// A packet for a UE has come to the UPF.
    pub(super) fn downlink(&mut self, packet: &[u8]) -> io::Result<()> {
        self.send_to_upf(packet)?;
        self.deliver();
        Ok(())
    }

    fn handle(&mut self, input: Input<'_>) {
        self.cta.handle(self.now, input, &mut self.out);
    }

    /// Takes what functions have sent. Returns whether anything came; if not, it has slept or will be asked again soon.
    pub(super) fn turn(&mut self) -> io::Result<bool> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut came = Came::Nothing;
        if let Some(mut end) = self.end.take() {
            let outcome = end.receive(|_, link, octets| self.frame_came(link, octets));
            self.end = Some(end);
            came = outcome?;
        }
        if came == Came::Ended {
            return Err(io::Error::other("a function has ended"));
        }
        let mut busy = came == Came::Something;
        if let Upf::Udp(socket) = &self.upf {
            let mut octets = [0; 4096];
            while let Some(length) = received(socket, &mut octets)? {
                self.answers.push(octets[..length].to_vec());
            }
        }
        busy |= !self.answers.is_empty();
        for input in self.functions.turn(clock::now())? {
            busy = true;
            self.handle(input);
        }
        self.deliver();
        if busy {
            self.spin.came(self.since_begin());
        }
        if busy && let Some(end) = &mut self.end {
            end.busy();
        }
        Ok(busy)
    }

    /// Looks again, or sleeps.
    pub(super) fn wait(&mut self) {
        let now = self.since_begin();
        let socket = match &self.upf {
            Upf::Udp(socket) => Some(socket),
            Upf::Call(_) | Upf::Process(_) => None,
        };
        match (&mut self.end, socket) {
            (Some(end), socket) => end.wait(socket),
            (None, socket) if self.spin.looks_again(now) => {
                // The thread of a function that is called may have no other processor.
                if socket.is_none() { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            (None, socket) => sleep(self.functions.wake().into_iter().chain(socket.map(AsFd::as_fd))),
        }
    }

    fn since_begin(&self) -> Instant {
        Instant(1) + self.begun.elapsed()
    }

    fn frame_came(&mut self, link: LinkId, octets: &[u8]) -> io::Result<()> {
        if let Some(inputs) = self.functions.frame(link, octets)? {
            inputs.into_iter().for_each(|input| self.handle(input));
            return Ok(());
        }
        if self.cpf_link != Some(link) {
            self.answers.push(octets.to_vec());
            return Ok(());
        }
        self.crossings.octets += octets.len() as u64;
        match ToCta::read(octets) {
            Ok(ToCta::Report(report)) => self.report(report),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }

    fn report(&mut self, report: CpfReport) {
        self.crossings.from_cpf += 1;
        self.passed.ran += u64::from(matches!(report, CpfReport::Ran { .. }));
        self.handle(Input::Cpf(CPF, report));
    }

    /// Whether the CPF has run all that it was asked to, and the UPF has answered.
    pub(super) fn is_at_rest(&self) -> bool {
        self.asked == self.passed.ran && self.unanswered == 0 && self.functions.is_at_rest()
    }

    /// Takes what the CTA has for others to them, and what they answer by a call back to it.
    fn deliver(&mut self) {
        loop {
            for (_, octets) in std::mem::take(&mut self.out.pfcp) {
                // A socket that takes nothing shows when no answer comes.
                let _ = self.send_to_upf(&octets);
            }
            for octets in std::mem::take(&mut self.answers) {
                self.passed.pfcp += 1;
                self.unanswered = self.unanswered.saturating_sub(is_response(&octets).into());
                self.handle(Input::Pfcp(UPF, &octets));
            }
            for (_, command) in std::mem::take(&mut self.out.cpfs) {
                self.send_to_cpf(command);
            }
            let links = self.end.as_mut().map(|end| &mut end.links);
            match self.functions.ask(clock::now(), &mut self.out, links) {
                Ok(inputs) => inputs.into_iter().for_each(|input| self.handle(input)),
                Err(e) => self.failure = Some(e),
            }
            let asks =
                !(self.out.udm.is_empty() && self.out.policy.is_empty() && self.out.charging.is_empty());
            if self.out.pfcp.is_empty() && self.out.cpfs.is_empty() && self.answers.is_empty() && !asks {
                break;
            }
        }
        self.passed.ngap += self.out.ngap.len() as u64;
        self.ngap.append(&mut self.out.ngap);
        self.out.events.clear();
        self.out.ran_events.clear();
        self.out.upfs.clear();
        if let Some(end) = &mut self.end {
            end.links.flush();
        }
    }

    fn send_to_upf(&mut self, octets: &[u8]) -> io::Result<()> {
        self.unanswered += u64::from(is_request(octets));
        match (&mut self.upf, &mut self.end) {
            (Upf::Call(upf), _) => upf.handle(octets, |answer| self.answers.push(answer.to_vec())),
            (Upf::Process(link), Some(end)) => end.links.send(*link, octets),
            (Upf::Process(_), None) => {}
            (Upf::Udp(socket), _) => _ = socket.send(octets)?,
        }
        Ok(())
    }

    fn send_to_cpf(&mut self, command: CpfCommand) {
        self.crossings.to_cpf += 1;
        self.asked += u64::from(matches!(command, CpfCommand::Run(_) | CpfCommand::RunLogged(_)));
        if self.at == CpfAt::Values {
            return self.run(command);
        }
        self.frame.clear();
        ToCpf::Command(command).write(&mut self.frame);
        self.crossings.octets += self.frame.len() as u64;
        match (self.cpf_link, &mut self.end) {
            (Some(link), Some(end)) => end.links.send(link, &self.frame),
            _ => match ToCpf::read(&self.frame) {
                Ok(ToCpf::Command(command)) => self.run(command),
                _ => unreachable!("it was written so"),
            },
        }
    }

    /// The CPF of this process runs a command.
    fn run(&mut self, command: CpfCommand) {
        let Some(cpf) = &mut self.cpf else { return };
        cpf.handle(command, &mut self.cpf_out);
        for report in std::mem::take(&mut self.cpf_out.up) {
            if self.at == CpfAt::Values {
                self.report(report);
                continue;
            }
            self.frame.clear();
            ToCta::Report(report).write(&mut self.frame);
            self.crossings.octets += self.frame.len() as u64;
            match ToCta::read(&self.frame) {
                Ok(ToCta::Report(report)) => self.report(report),
                _ => unreachable!("it was written so"),
            }
        }
    }
}

/// Lets this thread, and those that it starts, run on any processor.
fn release() {
    let mut set = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| set.set(processor));
    // Where that is forbidden, they stay where they are.
    let _ = sched_setaffinity(None, &set);
}

/// Whether it is a request of an SMF (TS 29.244 §7.3).
fn is_request(octets: &[u8]) -> bool {
    matches!(octets, [0x20..0x40, 1 | 3 | 5 | 7 | 9 | 14 | 50 | 52 | 54, ..])
}

/// Whether it answers one.
fn is_response(octets: &[u8]) -> bool {
    matches!(octets, [0x20..0x40, 2 | 4 | 6 | 8 | 10 | 15 | 51 | 53 | 55, ..])
}

/// What waits at a socket.
fn received(socket: &UdpSocket, into: &mut [u8]) -> io::Result<Option<usize>> {
    match socket.recv(into) {
        Ok(length) => Ok(Some(length)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}
