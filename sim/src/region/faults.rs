//! Faults of the region: CPFs that are lost or cut off, inputs that end them, states and messages that are spoilt on their way.

use std::time::Duration;

use whimbrel_control::{Checkpoint, Envelope, Payload, UeContext, UeId};
use whimbrel_ids::{PlmnId, Tac, Tai};
use whimbrel_resilience::Input;
use whimbrel_resilience::link::{CpfReport, PeerMessage, UeCheckpoint};
use whimbrel_resilience::replication::CpfId;

use super::RegionMessage;
use crate::partition::{Cut, Survivor};
use crate::{CtaLoss, Sim};

/// An input that ends every process that runs it.
#[derive(Debug)]
pub(super) struct Poison {
    /// It is the n-th input that a CPF gets.
    pub(super) nth: u64,
    pub(super) handed: u64,
    pub(super) input: Option<(UeId, u64)>,
    /// It is an INITIAL UE MESSAGE, which may be of another UE.
    pub(super) first: bool,
}

impl Poison {
    pub(super) fn handed(&mut self, input: &Envelope) {
        self.handed += 1;
        if self.handed == self.nth {
            self.input = Some((input.ue, input.clock));
            self.first = matches!(input.payload, Payload::InitialUeMessage { .. });
        }
    }
}

/// How a CPF is lost, at the n-th message that one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpfLoss {
    /// It dies before it has taken the message.
    BeforeInput,
    /// It dies right after it has taken the message, and its output is lost.
    BeforeOutput,
    /// It dies right after; its output arrives.
    AfterOutput,
    /// It is alive and taken for dead. Nothing that it does from then on may have an effect.
    FalseAlarm,
}

/// What a CPF is cut off from, at the n-th message that one takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpfCut {
    /// From the CTA.
    FromCta,
    /// From all other CPFs.
    FromCpfs,
    /// From all of them.
    FromAll,
}

impl CpfCut {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::FromCta, Self::FromCpfs, Self::FromAll];
}

impl CpfLoss {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::BeforeInput, Self::BeforeOutput, Self::AfterOutput, Self::FalseAlarm];
}

/// More tracking areas than a list can name.
pub(super) fn spoil(ue: &mut UeContext) {
    ue.amf.location.registration_area =
        vec![Tai { plmn: PlmnId::TEST, tac: Tac::new(1).expect("24 bits") }; 17].into();
}

/// A state that was changed on its way.
pub(super) fn changed(state: UeCheckpoint, change: fn(&mut UeContext)) -> UeCheckpoint {
    let mut ue = state.state.context().expect("it came from a member");
    change(&mut ue);
    UeCheckpoint { state: Checkpoint::of(&ue).expect("it rests"), ..state }
}

impl Sim {
    /// No process is lost or cut off any more.
    pub fn stop_losses(&mut self) {
        self.lose_cpfs_at(&[]);
        self.lose_cta_at(0, CtaLoss::BeforeInput);
        self.cut_cta_at(0, Survivor::Cta, Duration::ZERO);
        self.stop_upf_losses();
        self.end_partitions();
    }

    /// The CPF that takes the n-th message from the beginning on is lost in this way.
    pub fn lose_cpf_at(&mut self, message: u64, how: CpfLoss) {
        self.lose_cpfs_at(&[(message, how)]);
    }

    /// The CPFs that take these messages are lost in these ways, one after the other.
    pub fn lose_cpfs_at(&mut self, losses: &[(u64, CpfLoss)]) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.losses = losses.to_vec();
        }
    }

    /// The CPF that takes the n-th message from the beginning on is cut off for a while.
    pub fn cut_cpfs_at(&mut self, cuts: &[(u64, CpfCut, Duration)]) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.cuts_at = cuts.to_vec();
        }
    }

    /// A CPF is cut off for a while.
    pub fn cut_off(&mut self, cpf: CpfId, what: CpfCut, time: Duration) {
        if what != CpfCut::FromCpfs {
            self.cut(Cut::CtaCpf(cpf), time);
        }
        if what != CpfCut::FromCta {
            for other in self.members().filter(|other| *other != cpf).collect::<Vec<_>>() {
                self.cut(Cut::CpfCpf(cpf, other), time);
            }
        }
    }

    /// A CPF dies now; what it has sent arrives.
    pub fn lose_cpf(&mut self, cpf: CpfId) {
        self.kill_cpf(cpf, true, Duration::ZERO);
    }

    /// A message from a CPF to the CTA, which it did not send by itself.
    pub fn inject_from_cpf(&mut self, from: CpfId, message: CpfReport) {
        self.cta_input(Input::Cpf(from, message));
    }

    /// CPFs may be faulty: their UEs may be in any state, and are not checked after each step.
    pub fn has_faulty_cpfs(&mut self) {
        self.observer.has_faulty_cpfs = true;
        self.recorder().has_faulty_cpfs = true;
    }

    /// A message from a CPF to another one, which it did not send by itself.
    pub fn inject_between_cpfs(&mut self, from: CpfId, to: CpfId, message: PeerMessage) {
        self.link(RegionMessage::Peer(from, to, message));
    }

    /// The n-th input from the beginning on that a CPF gets ends every process that runs it.
    pub fn poison(&mut self, nth: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.poison = Some(Poison { nth, handed: 0, input: None, first: false });
        }
    }

    /// The states that arrive at this CPF from now on have the right UE and clock, and cannot be read.
    pub fn spoil_states_to(&mut self, cpf: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.spoilt.push(cpf);
        }
    }

    /// A fault for tests of the simulation: states that CPFs send each other change in this way from now on.
    pub(crate) fn plant_in_states(&mut self, change: fn(&mut UeContext)) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.planted = Some(change);
        }
    }

    /// Messages of a CPF to another one are held from now on.
    pub fn hold_between_cpfs(&mut self, from: CpfId, to: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.stuck.entry((from, to)).or_default();
        }
    }

    /// The next protected answer of a CPF uses the first COUNT again.
    pub fn repeat_a_count(&mut self, cpf: CpfId) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.forger = Some(cpf);
        }
    }

    /// So many in a thousand messages of CPFs to others are lost.
    pub fn lose_between_cpfs(&mut self, permille: u64) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.loses = permille;
        }
    }

    /// How many whole states CPFs have sent each other, how many deltas, and how often one asked for a state.
    pub fn exchanged(&self) -> [u64; 3] {
        self.control.cluster.as_ref().map_or([0; 3], |c| c.exchanged)
    }

    /// The messages that were held are delivered. Gives their number.
    pub fn release_between_cpfs(&mut self, from: CpfId, to: CpfId) -> usize {
        let Some(cluster) = &mut self.control.cluster else { return 0 };
        let late = cluster.stuck.remove(&(from, to)).unwrap_or_default();
        let number = late.len();
        late.into_iter().for_each(|message| self.link(RegionMessage::Peer(from, to, message)));
        number
    }

    /// How many inputs CPFs have got since [`Sim::poison`], replays included.
    pub fn handed(&self) -> u64 {
        self.control.cluster.as_ref().and_then(|c| c.poison.as_ref()).map_or(0, |p| p.handed)
    }

    /// Whether the poisoned input was an INITIAL UE MESSAGE, which may be of another UE than the one whose context is looked up.
    pub fn poison_is_initial_message(&self) -> bool {
        self.control.cluster.as_ref().and_then(|c| c.poison.as_ref()).is_some_and(|p| p.first)
    }

    /// CPFs run suspect inputs without a trial.
    pub fn without_replay_sandboxes(&mut self) {
        if let Some(cluster) = &mut self.control.cluster {
            cluster.sandbox = None;
        }
    }
}
