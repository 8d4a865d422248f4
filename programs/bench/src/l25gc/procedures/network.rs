//! The gNBs and UEs of the experiment, and the time that the core takes while they do a procedure.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant as Clock};

use whimbrel_control::AssociationId;
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Tac};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::{CauseRadioNetwork, TransferSyntax};
use whimbrel_ran::gnb::{self, GnbConfig, Via};
use whimbrel_ran::ue::{self, SessionRequest, Ue, UeCommand};
use whimbrel_ran::{Outbox, UeId, UplinkMessage};
use whimbrel_sim::ue_config;

use super::EPOCH;
use super::core::{Build, Core, Crossings, Passed};
use crate::upf::smf::udp4;

/// How long a procedure may take.
const DONE_WITHIN: Duration = Duration::from_secs(20);
/// A host of the data network.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// What a UE does, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Registration,
    Session,
    Handover,
    ServiceRequest,
    Paging,
}

impl Step {
    pub(super) const ALL: [Self; 5] =
        [Self::Registration, Self::Session, Self::Handover, Self::ServiceRequest, Self::Paging];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Registration => "registration",
            Self::Session => "PDU session establishment",
            Self::Handover => "N2 handover",
            Self::ServiceRequest => "service request",
            Self::Paging => "paging, service request",
        }
    }

    /// UDM, PCF or CHF have a part in it.
    pub(super) fn has_service_operations(self) -> bool {
        matches!(self, Self::Registration | Self::Session)
    }

    /// The UE is idle before.
    fn begins_idle(self) -> bool {
        matches!(self, Self::ServiceRequest | Self::Paging)
    }
}

/// What one procedure took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Took {
    /// The core's part: all but what gNBs and UEs took.
    pub(super) us: f64,
    pub(super) crossings: Crossings,
    /// How often the CTA has slept.
    pub(super) sleeps: u64,
}

/// A network with a core of one build.
pub(super) struct Network {
    core: Core,
    gnbs: Vec<gnb::Gnb>,
    ue: Ue,
    n: UeId,
    /// The UE's gNB.
    at: usize,
    up: VecDeque<(usize, u16, Vec<u8>)>,
    radio: Duration,
    /// What passes in each step, as a rehearsal has shown.
    expected: [Passed; Step::ALL.len()],
}

impl Network {
    /// `expected`: what [`Self::rehearse`] of a core of one process has returned.
    pub(super) fn new(build: Build, expected: [Passed; Step::ALL.len()], folder: &Path) -> io::Result<Self> {
        let gnbs = (1..=2).map(|n| {
            let id = GlobalGnbId::new(PlmnId::TEST, n.into(), 28).expect("28 bits");
            let tac = Tac::new(1).expect("24 bits");
            gnb::Gnb::new(GnbConfig::new(id, tac, vec![SNssai::sst(1)], [127, 0, 1, n].into()))
        });
        let mut network = Self {
            core: Core::new(build, folder)?,
            gnbs: gnbs.collect(),
            ue: Ue::new(ue_config(0)),
            n: UeId(0),
            at: 0,
            up: VecDeque::new(),
            radio: Duration::ZERO,
            expected,
        };
        network.core.advance(Duration::ZERO);
        network.settle()?;
        for n in 0..network.gnbs.len() {
            let association = association(n);
            network.core.associate(association);
            network.gnb(n, gnb::Input::AssociationUp { streams: 16, syntax: association.syntax() });
        }
        network.settle()?;
        Ok(network)
    }

    /// Another UE is switched on at the first gNB.
    pub(super) fn next_ue(&mut self, n: u32) {
        (self.ue, self.n, self.at) = (Ue::new(ue_config(n)), UeId(n), 0);
        let tai = self.gnbs[0].config().tai();
        self.say(ue::Input::Cell(tai));
    }

    /// What passes in each step, where each is over when nothing is left to do.
    pub(super) fn rehearse(&mut self) -> io::Result<[Passed; Step::ALL.len()]> {
        self.next_ue(0);
        let mut all = [Passed::default(); Step::ALL.len()];
        for (step, passed) in Step::ALL.into_iter().zip(&mut all) {
            self.prepare(step)?;
            let before = self.core.passed;
            self.begin(step)?;
            self.settle()?;
            *passed = self.core.passed.since(before);
        }
        Ok(all)
    }

    /// The UE does what comes before a step, and timers expire; this is not measured.
    pub(super) fn prepare(&mut self, step: Step) -> io::Result<()> {
        // What ends a handover waits for a timer.
        let rounds = if step == Step::ServiceRequest { 30 } else { 1 };
        for _ in 0..rounds {
            self.core.advance(Duration::from_millis(100));
            self.settle()?;
        }
        if step.begins_idle() {
            let cause = CauseRadioNetwork::UserInactivity;
            self.gnb(self.at, gnb::Input::Release(self.n, cause.into()));
            self.settle()?;
        }
        Ok(())
    }

    /// The UE does it. Errors: it did not come to its end, or a function ended.
    pub(super) fn measure(&mut self, step: Step) -> io::Result<Took> {
        let (before, crossings, sleeps) = (self.core.passed, self.core.crossings, self.core.sleeps());
        self.radio = Duration::ZERO;
        let begun = Clock::now();
        self.begin(step)?;
        while !self.core.passed.since(before).has(self.expected[step as usize]) || !self.core.is_at_rest() {
            if !self.turn()? {
                self.core.wait();
                if begun.elapsed() > DONE_WITHIN {
                    return Err(io::Error::other(format!("{}: it does not end", step.name())));
                }
            }
        }
        let took = begun.elapsed().saturating_sub(self.radio);
        let now = self.core.crossings;
        let took = Took {
            us: took.as_nanos() as f64 / 1000.0,
            crossings: Crossings {
                to_cpf: now.to_cpf - crossings.to_cpf,
                from_cpf: now.from_cpf - crossings.from_cpf,
                octets: now.octets - crossings.octets,
            },
            sleeps: self.core.sleeps() - sleeps,
        };
        self.settle()?;
        Ok(took)
    }

    fn begin(&mut self, step: Step) -> io::Result<()> {
        match step {
            Step::Registration => self.say(ue::Input::Command(UeCommand::Register)),
            Step::Session => {
                let pdu_session_type = PduSessionType::Ipv4;
                let request = SessionRequest { dnn: None, s_nssai: None, pdu_session_type };
                self.say(ue::Input::Command(UeCommand::EstablishSession(request)));
            }
            Step::Handover => {
                let to = self.gnbs[(self.at + 1) % self.gnbs.len()].as_neighbour();
                self.gnb(self.at, gnb::Input::HandOver { ue: self.n, to, via: Via::N2 });
            }
            Step::ServiceRequest => self.say(ue::Input::Command(UeCommand::ServiceRequest)),
            Step::Paging => {
                let address = self.ue.sessions().find_map(|session| session.ipv4);
                let address = address.ok_or_else(|| io::Error::other("the UE has no session"))?;
                self.core.downlink(&udp4(SERVER, address, (5000, 5000), 64))?;
            }
        }
        Ok(())
    }

    /// Until nothing is under way. Errors: it does not end, or a function has ended.
    fn settle(&mut self) -> io::Result<()> {
        let begun = Clock::now();
        loop {
            if self.turn()? {
                continue;
            }
            if self.core.is_at_rest() {
                return Ok(());
            }
            self.core.wait();
            if begun.elapsed() > DONE_WITHIN {
                return Err(io::Error::other("a function does not answer"));
            }
        }
    }

    /// Carries what waits. Returns whether there was anything.
    fn turn(&mut self) -> io::Result<bool> {
        let mut busy = false;
        while let Some((gnb, stream, octets)) = self.up.pop_front() {
            self.core.hear(association(gnb), stream, &octets);
            busy = true;
        }
        busy |= self.core.turn()?;
        for (association, stream, octets) in std::mem::take(&mut self.core.ngap) {
            let gnb = AssociationId::new(association.0, TransferSyntax::Per).0 as usize;
            self.gnb(gnb, gnb::Input::Ngap { stream, octets: &octets });
            busy = true;
        }
        Ok(busy)
    }

    fn gnb(&mut self, n: usize, input: gnb::Input<'_>) {
        let begun = Clock::now();
        self.gnb_does(n, input);
        self.radio += begun.elapsed();
    }

    fn say(&mut self, input: ue::Input) {
        let begun = Clock::now();
        self.ue_does(input);
        self.radio += begun.elapsed();
    }

    fn gnb_does(&mut self, n: usize, input: gnb::Input<'_>) {
        let mut out = Outbox::new();
        self.gnbs[n].handle(RADIO_TIME, input, &mut out);
        let outputs: Vec<_> = out.drain().collect();
        for output in outputs {
            match output {
                gnb::Output::Ngap { stream, octets } => self.up.push_back((n, stream, octets)),
                gnb::Output::Radio(ue, down) if (ue, n) == (self.n, self.at) => {
                    self.ue_does(ue::Input::Radio(down))
                }
                gnb::Output::Page(_) if n == self.at => self.ue_does(ue::Input::Paged),
                _ => {}
            }
        }
    }

    fn ue_does(&mut self, input: ue::Input) {
        let mut out = Outbox::new();
        self.ue.handle(RADIO_TIME, input, &mut out);
        let outputs: Vec<_> = out.drain().collect();
        for output in outputs {
            let ue::Output::Radio(up) = output else { continue };
            if let UplinkMessage::HandoverComplete { to, .. } = &up
                && let Some(to) = self.gnbs.iter().position(|gnb| gnb.config().id == *to)
            {
                self.at = to;
            }
            self.gnb_does(self.at, gnb::Input::Radio(self.n, up));
        }
    }
}

/// No timer of a gNB or a UE expires within the experiment.
const RADIO_TIME: Instant = EPOCH;

fn association(gnb: usize) -> AssociationId {
    AssociationId::new(gnb as u32, TransferSyntax::Per)
}
