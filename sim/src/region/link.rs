//! The links of the region: their latencies, and what happens when a message arrives.

use std::time::Duration;

use whimbrel_control::Envelope;
use whimbrel_resilience::link::{CpfCommand, CpfReport, PeerMessage, ToCpf, ToCta, ToPeer};
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CpfOutbox, Input, TrialOutcome};

use super::faults::changed;
use super::{CanaryStep, CpfLoss};
use crate::{InFlight, Sim};

/// Least and greatest latency of a link, in microseconds.
const LINK_LATENCY_MICROS: (u64, u64) = (10, 60);
/// The duration of a trial in the replay sandbox, and of one that ends the sandbox.
const TRIED_AFTER: Duration = Duration::from_micros(200);
const GIVEN_UP_AFTER: Duration = Duration::from_millis(500);
/// How long a poisoned input hangs before its CPF is ended; later messages wait there meanwhile.
const HANGS_FOR: Duration = Duration::from_millis(250);
/// From a loss to its detection by the CTA: a connection that closes.
const DETECTED_AFTER: Duration = Duration::from_micros(500);
/// From the end of a link between two CPFs to the next one.
const REACHED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A message on a link of the region.
#[derive(Debug)]
pub(crate) enum RegionMessage {
    /// With the number of its messages that need not be sent again.
    Down {
        to: CpfId,
        taken: u64,
        message: CpfCommand,
    },
    /// With the number of messages that it has received.
    Up {
        from: CpfId,
        has: u64,
        message: CpfReport,
    },
    Peer(CpfId, CpfId, PeerMessage),
    /// The CTA detects the loss of a CPF.
    Lost(CpfId),
    /// A CPF gets the outcome of a trial.
    Tried(CpfId, u64, TrialOutcome),
    /// A link between two CPFs has ended, and a new one is there.
    Reached(CpfId, CpfId),
    /// One has not answered the CTA for too long.
    Excluded(CpfId),
}

impl RegionMessage {
    /// The message as it arrives: decoded from its octets.
    fn through_octets(self) -> Self {
        let mut octets = Vec::new();
        match self {
            Self::Down { to, taken, message } => {
                ToCpf::Command(message).write(&mut octets);
                let Ok(ToCpf::Command(message)) = ToCpf::read(&octets) else {
                    unreachable!("it was written so")
                };
                Self::Down { to, taken, message }
            }
            Self::Up { from, has, message } => {
                ToCta::Report(message).write(&mut octets);
                let Ok(ToCta::Report(message)) = ToCta::read(&octets) else {
                    unreachable!("it was written so")
                };
                Self::Up { from, has, message }
            }
            Self::Peer(from, to, message) => {
                ToPeer { life: 0, from, message }.write(&mut octets);
                let ToPeer { from, message, .. } = ToPeer::read(&octets).expect("it was written so");
                Self::Peer(from, to, message)
            }
            inner @ (Self::Lost(_) | Self::Tried(..) | Self::Reached(..) | Self::Excluded(_)) => inner,
        }
    }

    /// Its kind, for the report.
    fn name(&self) -> &'static str {
        match self {
            Self::Down { message, .. } => match message {
                CpfCommand::Run(_) | CpfCommand::RunLogged(_) => "input",
                CpfCommand::RunAfterTrial { .. } => "inputs to try",
                CpfCommand::Serve { .. } => "assignment",
                CpfCommand::Outdated { .. } => "notice of an outdated state",
                CpfCommand::Released(_) => "notice of released outputs",
                CpfCommand::Forget { .. } => "notice that a UE is gone",
                CpfCommand::Configure(_) => "configuration",
                CpfCommand::Hold { .. } => "restored state",
                CpfCommand::Store { .. } => "order to store UEs",
            },
            Self::Peer(_, _, message) => match message {
                PeerMessage::State(_) => "state",
                PeerMessage::Delta { .. } => "delta",
                PeerMessage::Fetch { .. } => "request of a state",
            },
            Self::Tried(..) => "outcome of a trial",
            Self::Reached(..) => "new link to another",
            Self::Up { .. } | Self::Lost(_) | Self::Excluded(_) => "message to the CTA",
        }
    }

    /// The two ends: the CTA has no number.
    fn ends(&self) -> (Option<CpfId>, Option<CpfId>) {
        match *self {
            Self::Down { to, .. } => (None, Some(to)),
            Self::Up { from, .. } => (Some(from), None),
            Self::Peer(from, to, _) => (Some(from), Some(to)),
            Self::Lost(cpf) | Self::Excluded(cpf) => (Some(cpf), None),
            Self::Tried(cpf, ..) | Self::Reached(cpf, _) => (Some(cpf), Some(cpf)),
        }
    }
}

impl Sim {
    pub(crate) fn link(&mut self, link: RegionMessage) {
        self.trace(|| format!("{:?} to {:?}: {}", link.ends().0, link.ends().1, link.name()));
        let (least, greatest) = LINK_LATENCY_MICROS;
        let latency = least + self.rng.below(greatest - least);
        let Some(cluster) = &mut self.control.cluster else { return };
        let link = match link {
            RegionMessage::Peer(from, to, message) => {
                cluster.exchanged[match message {
                    PeerMessage::State(_) => 0,
                    PeerMessage::Delta { .. } => 1,
                    PeerMessage::Fetch { .. } => 2,
                }] += 1;
                let cut = cluster.passes_at((Some(from), Some(to)), self.now) > self.now;
                if cut || cluster.loses > 0 && self.rng.chance(cluster.loses) {
                    if cluster.broken.insert((from, to)) {
                        self.link(RegionMessage::Reached(from, to));
                    }
                    return;
                }
                match cluster.stuck.get_mut(&(from, to)) {
                    Some(stuck) => return stuck.push(message),
                    None => RegionMessage::Peer(from, to, message),
                }
            }
            link => link,
        };
        if let (Some(poison), RegionMessage::Down { message: CpfCommand::RunLogged(input), .. }) =
            (&mut cluster.poison, &link)
        {
            poison.handed(&Envelope::from_flat(input.octets()).expect("it comes from a CTA"));
        }
        let passes_at = cluster.passes_at(link.ends(), self.now);
        let at = match link {
            RegionMessage::Lost(_) => self.now + DETECTED_AFTER,
            RegionMessage::Tried(_, _, TrialOutcome::Passed) => self.now + TRIED_AFTER,
            RegionMessage::Tried(_, _, TrialOutcome::CrashedAfter(_)) => self.now + GIVEN_UP_AFTER,
            RegionMessage::Reached(from, to) => {
                cluster.passes_at((Some(from), Some(to)), self.now).max(self.now + REACHED_AGAIN_AFTER)
            }
            _ => {
                let ordered = cluster.ordered.entry(link.ends()).or_insert(self.now);
                *ordered = (*ordered).max(passes_at + Duration::from_micros(latency));
                *ordered
            }
        };
        cluster.under_way += 1;
        self.send(at, InFlight::Link(link.through_octets()));
    }

    pub(crate) fn link_arrives(&mut self, link: RegionMessage) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.under_way -= 1;
        let to = match link {
            RegionMessage::Up { from, has, message } => {
                self.control.cta.confirmed(from, has);
                return self.cta_input(Input::Cpf(from, message));
            }
            RegionMessage::Excluded(cpf) => return self.exclude(cpf),
            RegionMessage::Lost(cpf) => {
                self.trace(|| format!("{cpf:?} is lost"));
                let Some(cluster) = &mut self.control.cluster else { return };
                cluster.vacant.extend(cluster.regions.region_of(cpf).cloned());
                cluster.gone.insert(cpf, self.now);
                let broken = cluster.broken.len();
                cluster.broken.retain(|(from, _)| *from != cpf);
                if cluster.broken.len() < broken {
                    cluster.reached = Some(self.now);
                }
                cluster.regions.leave(cpf);
                let rings = cluster.rings();
                self.cta_input(Input::Rings(rings));
                return self.cta_input(Input::CpfLost(cpf));
            }
            RegionMessage::Down { to, .. }
            | RegionMessage::Peer(_, to, _)
            | RegionMessage::Tried(to, ..)
            | RegionMessage::Reached(to, _) => to,
        };
        if !cluster.members.contains_key(&to) {
            return;
        }
        cluster.taken += 1;
        let loss = cluster.losses.iter().find(|(at, _)| *at == cluster.taken).map(|(_, how)| *how);
        let cut_off = cluster.cuts_at.iter().find(|(at, ..)| *at == cluster.taken).copied();
        let restless = cluster.unrest.is_some_and(|every| cluster.taken.is_multiple_of(every));
        let is_input = matches!(link, RegionMessage::Down { message: CpfCommand::Run(_), .. });
        cluster.ran += u64::from(is_input);
        let upgrade = cluster.upgrade.take_if(|(at, _)| *at == cluster.taken);
        let taken = cluster.taken;
        let canary: Vec<CanaryStep> =
            cluster.canary_steps.extract_if(.., |(at, _)| *at == taken).map(|(_, step)| step).collect();
        let turnover = cluster.turnover.is_some_and(|every| is_input && cluster.ran.is_multiple_of(every));
        if loss.is_some() {
            *cluster.lost_at.entry(link.name()).or_default() += 1;
        }
        let mut out = CpfOutbox::default();
        let changes = cluster.changes_to(to);
        let Some(member) = cluster.members.get_mut(&to) else { return };
        let end = cluster.ends.entry(to).or_default();
        if loss != Some(CpfLoss::BeforeInput) {
            match (link, changes) {
                (RegionMessage::Down { taken, message, .. }, _) => {
                    end.took();
                    end.confirmed(taken);
                    member.handle(message, &mut out);
                }
                (RegionMessage::Peer(from, _, PeerMessage::State(state)), Some(change)) => {
                    member.peer(from, PeerMessage::State(changed(state, change)), &mut out);
                }
                (RegionMessage::Peer(from, _, PeerMessage::Delta { delta, .. }), Some(_)) => {
                    let whole = PeerMessage::Fetch { ue: delta.ue_id(), clock: delta.clock() };
                    out.peers.push((from, whole));
                }
                (RegionMessage::Peer(from, _, message), _) => member.peer(from, message, &mut out),
                (RegionMessage::Tried(_, trial, became), _) => member.tried(trial, became, &mut out),
                (RegionMessage::Reached(from, to), _) => {
                    cluster.broken.remove(&(from, to));
                    cluster.reached = Some(self.now);
                    let mut last_sent = None;
                    while let Some(last) = member.peer_reconnected(to, last_sent, &mut out) {
                        last_sent = Some(last);
                    }
                }
                (RegionMessage::Up { .. } | RegionMessage::Lost(_) | RegionMessage::Excluded(_), _) => {}
            }
        }
        if cluster.forger == Some(to) {
            let ran = out.up.iter_mut().filter_map(|up| match up {
                CpfReport::Ran { batch, .. } => Some(batch),
                _ => None,
            });
            let mut counts = ran.flat_map(|b| &mut b.outputs).filter_map(|o| o.downlink_count.as_mut());
            if let Some(count) = counts.next() {
                (*count, cluster.forger) = (0, None);
            }
        }
        out.up.iter().for_each(|message| end.sent(message.clone()));
        let has = end.taken();
        if cluster.ran_poison(&out) {
            self.kill_cpf(to, false, HANGS_FOR);
            return;
        }
        let tried = std::mem::take(&mut out.trials).into_iter().map(|t| (t.id, cluster.try_inputs(t)));
        for (trial, became) in tried.collect::<Vec<_>>() {
            self.link(RegionMessage::Tried(to, trial, became));
        }
        if loss != Some(CpfLoss::BeforeOutput) {
            out.up.into_iter().for_each(|message| self.link(RegionMessage::Up { from: to, has, message }));
            out.peers
                .into_iter()
                .for_each(|(peer, message)| self.link(RegionMessage::Peer(to, peer, message)));
        }
        match loss {
            Some(CpfLoss::FalseAlarm) => self.link(RegionMessage::Lost(to)),
            Some(how) => self.kill_cpf(to, how == CpfLoss::AfterOutput, Duration::ZERO),
            None => {}
        }
        if let Some((_, what, time)) = cut_off {
            self.cut_off(to, what, time);
        }
        if restless {
            self.move_contexts();
        }
        if let Some((_, code)) = upgrade {
            self.upgrade_cpfs(code);
        }
        canary.into_iter().for_each(|step| self.canary(step));
        if turnover {
            self.add_cpf();
            let oldest = self.control.cluster.as_ref().and_then(|c| c.rings().members().next());
            oldest.into_iter().for_each(|cpf| self.drain_cpf(cpf));
        }
    }

    /// A CPF stops, and its loss is detected after a while.
    pub(super) fn kill_cpf(&mut self, cpf: CpfId, output_arrives: bool, after: Duration) {
        let Some(cluster) = &mut self.control.cluster else { return };
        cluster.members.remove(&cpf);
        cluster.ends.remove(&cpf);
        if !output_arrives {
            let of_it = |t: &InFlight| matches!(t, InFlight::Link(l) if l.ends().0 == Some(cpf));
            let before = self.queue.messages.len();
            self.queue.messages.retain(|_, t| !of_it(t));
            cluster.under_way -= before - self.queue.messages.len();
        }
        cluster.under_way += 1;
        self.send(self.now + after + DETECTED_AFTER, InFlight::Link(RegionMessage::Lost(cpf)));
    }
}
