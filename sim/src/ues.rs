//! The UEs and the radio between them and their gNBs.

use std::time::Duration;

use whimbrel_ids::{Instant, STmsi};
use whimbrel_ran::ue::{self, Ue, UeCommand};
use whimbrel_ran::{DownlinkMessage, Outbox, UplinkMessage, gnb};

use crate::queue::InFlight;
use crate::timer_queue::TimerOwner;
use crate::{GnbIndex, Sim, UeIndex};

pub(crate) struct UeNode {
    pub(crate) ue: Ue,
    pub(crate) gnb: GnbIndex,
    /// The number of its radio connection: messages of an earlier one never arrive.
    pub(crate) connection: u64,
    /// The last connection from which its gNB has received something: the gNB sends on this one.
    pub(crate) known_to_gnb: u64,
    pub(crate) ordered: Instant,
    /// The radio loses its NAS messages until then, and other messages wait.
    pub(crate) cut_until: Instant,
    /// Out of coverage, or without power: it cannot be paged.
    pub(crate) away: bool,
    /// Its 5G-S-TMSI as entered in `SimulatedRan::by_s_tmsi`.
    pub(crate) s_tmsi: Option<STmsi>,
    pub(crate) events: Vec<(Instant, ue::Event)>,
}

impl Sim {
    /// A UE that camps at a gNB, with a subscription.
    pub fn add_ue(&mut self, gnb: GnbIndex, config: ue::UeConfig) -> UeIndex {
        let index = UeIndex(self.ran.ues.len());
        let terminal = UeNode {
            ue: Ue::new(config),
            gnb,
            connection: 0,
            known_to_gnb: 0,
            ordered: self.now,
            cut_until: Instant::ZERO,
            away: false,
            s_tmsi: None,
            events: Vec::new(),
        };
        self.ran.ues.push(terminal);
        let tai = self.ran.gnbs[gnb.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
        index
    }

    /// A command for a UE.
    pub fn command(&mut self, index: UeIndex, command: UeCommand) {
        self.ue(index, ue::Input::Command(command));
    }

    /// A UE goes out of coverage, where it cannot be paged.
    pub fn leave_coverage(&mut self, index: UeIndex) {
        self.ran.ues[index.0].away = true;
    }

    /// A UE loses its power: it sends nothing, and loses all state but its USIM.
    pub fn lose_power(&mut self, index: UeIndex) {
        let config = self.ran.ues[index.0].ue.without_power();
        self.replace_ue(index, config);
    }

    /// The same, and its gNB detects at once that it is gone.
    pub(crate) fn lose_power_at_gnb(&mut self, index: UeIndex) {
        let connected = self.ran.ues[index.0].ue.is_connected();
        self.lose_power(index);
        if connected {
            self.release(index, whimbrel_ngap::ie::CauseRadioNetwork::RadioConnectionWithUeLost.into());
        }
    }

    /// Another UE in its place, or the same after a loss of power. It is not switched on.
    pub(crate) fn replace_ue(&mut self, index: UeIndex, config: ue::UeConfig) {
        let terminal = &mut self.ran.ues[index.0];
        terminal.ue = Ue::new(config);
        terminal.connection += 1;
        terminal.away = true;
        if let Some(s_tmsi) = terminal.s_tmsi.take() {
            self.ran.by_s_tmsi.remove(&(s_tmsi, index));
        }
        self.queue.timers.set(TimerOwner::Ue(index), None);
    }

    /// A UE without power is in another cell when it is switched on.
    pub(crate) fn carry_to(&mut self, index: UeIndex, gnb: GnbIndex) {
        self.ran.ues[index.0].gnb = gnb;
    }

    /// The radio between a UE and its gNB passes nothing for a while.
    pub(crate) fn cut_radio(&mut self, index: UeIndex, time: Duration) {
        self.ran.ues[index.0].cut_until = self.now + time;
    }

    /// Whether it is out of coverage or has no power.
    pub fn is_away(&self, index: UeIndex) -> bool {
        self.ran.ues[index.0].away
    }

    /// A UE returns to coverage, or has power again, in the cell that it left.
    pub fn switch_on(&mut self, index: UeIndex) {
        self.ran.ues[index.0].away = false;
        let tai = self.ran.gnbs[self.ran.ues[index.0].gnb.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
    }

    /// A UE moves to another cell without handover: its connection is lost, and its gNB detects that.
    pub fn move_ue(&mut self, index: UeIndex, to: GnbIndex) {
        if self.ran.ues[index.0].gnb == to {
            return;
        }
        let connected = self.ran.ues[index.0].ue.is_connected();
        let from = std::mem::replace(&mut self.ran.ues[index.0].gnb, to);
        self.ran.ues[index.0].connection += 1;
        if connected {
            let ue = whimbrel_ran::UeId(index.0 as u32);
            let cause = whimbrel_ngap::ie::CauseRadioNetwork::RadioConnectionWithUeLost;
            self.gnb(from, gnb::Input::Release(ue, cause.into()));
            self.ue(index, ue::Input::Radio(DownlinkMessage::Released));
        }
        let tai = self.ran.gnbs[to.0].gnb.config().tai();
        self.ue(index, ue::Input::Cell(tai));
    }

    /// A radio link failure that the gNB does not detect: the UE opens another connection while the former one is up.
    pub fn lose_radio(&mut self, index: UeIndex) {
        self.ran.ues[index.0].connection += 1;
        self.ue(index, ue::Input::Radio(DownlinkMessage::Released));
    }

    /// The UE of this index.
    pub fn ue_ref(&self, index: UeIndex) -> &Ue {
        &self.ran.ues[index.0].ue
    }

    /// A UE, to configure its faults.
    pub fn ue_mut(&mut self, index: UeIndex) -> &mut Ue {
        &mut self.ran.ues[index.0].ue
    }

    /// The events of a UE, oldest first.
    pub fn ue_events(&self, index: UeIndex) -> &[(Instant, ue::Event)] {
        &self.ran.ues[index.0].events
    }

    /// How many UEs there are.
    pub fn ues(&self) -> usize {
        self.ran.ues.len()
    }

    pub(crate) fn down(&mut self, ue: UeIndex, down: DownlinkMessage) {
        let copies = if matches!(down, DownlinkMessage::Nas(_)) { self.copies(ue) } else { 1 };
        for _ in 0..copies {
            let at = self.radio_time(ue, matches!(down, DownlinkMessage::Nas(_)));
            let connection = self.ran.ues[ue.0].known_to_gnb;
            self.send(at, InFlight::Down { ue, connection, down: down.clone() });
        }
    }

    pub(crate) fn ue(&mut self, index: UeIndex, input: ue::Input) {
        let mut out = Outbox::new();
        let terminal = &mut self.ran.ues[index.0];
        terminal.ue.handle(self.now, input, &mut out);
        self.queue.timers.set(TimerOwner::Ue(index), terminal.ue.next_deadline());
        let s_tmsi = terminal.ue.s_tmsi();
        if s_tmsi != terminal.s_tmsi {
            let before = std::mem::replace(&mut terminal.s_tmsi, s_tmsi);
            before.map(|t| self.ran.by_s_tmsi.remove(&(t, index)));
            s_tmsi.map(|t| self.ran.by_s_tmsi.insert((t, index)));
        }
        for output in out.drain() {
            match output {
                ue::Output::Radio(up) => self.up(index, up),
                ue::Output::Event(event) => {
                    if let ue::Event::Violation(_) = event {
                        self.observer.violated(&event);
                    }
                    if !self.observer.quiet {
                        self.ran.ues[index.0].events.push((self.now, event));
                    }
                }
            }
        }
    }

    pub(crate) fn up(&mut self, ue: UeIndex, up: UplinkMessage) {
        if let UplinkMessage::HandoverComplete { to, .. } = &up
            && let Some(gnb) = self.gnb_by_id(*to)
        {
            self.ran.ues[ue.0].gnb = gnb;
        }
        if matches!(up, UplinkMessage::Connect(_) | UplinkMessage::HandoverComplete { .. }) {
            self.ran.ues[ue.0].connection += 1;
            self.ran.ues[ue.0].ordered = self.now;
        }
        let copies = if matches!(up, UplinkMessage::Nas(_)) { self.copies(ue) } else { 1 };
        for _ in 0..copies {
            let at = self.radio_time(ue, matches!(up, UplinkMessage::Nas(_)));
            let connection = self.ran.ues[ue.0].connection;
            self.send(at, InFlight::Up { ue, connection, up: up.clone() });
        }
    }

    /// How often a NAS message of or to a UE arrives.
    fn copies(&mut self, ue: UeIndex) -> u32 {
        if self.ran.ues[ue.0].cut_until > self.now { 0 } else { self.faults.copies(&mut self.rng) }
    }

    /// The arrival time of a message that is sent over the radio now: in order, unless the radio reorders.
    pub(crate) fn radio_time(&mut self, ue: UeIndex, may_reorder: bool) -> Instant {
        let latency = self.faults.radio_latency(&mut self.rng);
        let at = self.now.max(self.ran.ues[ue.0].cut_until) + latency;
        if may_reorder && self.faults.reorders(&mut self.rng) {
            return at;
        }
        let terminal = &mut self.ran.ues[ue.0];
        terminal.ordered = terminal.ordered.max(at);
        terminal.ordered
    }
}
