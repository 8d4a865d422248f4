//! Virtual time: the messages in flight and the timers, in the order in which they are due.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use whimbrel_control::{AssociationId, UpfId};
use whimbrel_ids::{GlobalGnbId, Instant};
use whimbrel_ran::{DownlinkMessage, UplinkMessage, gnb};
use whimbrel_resilience::Input;
use whimbrel_resilience::cta_replica::LocalAssociation;

use crate::chf::ChfMessage;
use crate::cta_replica::ReplicaLink;
use crate::n3::N3Datagram;
use crate::open::OverSap;
use crate::pcf::PcfMessage;
use crate::peer_amf::N14Message;
use crate::region::RegionMessage;
use crate::timer_queue::{TimerOwner, TimerQueue};
use crate::udm::UdmMessage;
use crate::unit::UnitEvent;
use crate::{GnbIndex, Sim, UeIndex, ue};

/// A message in flight.
#[derive(Debug)]
pub(crate) enum InFlight {
    ToCore {
        association: AssociationId,
        /// The host at the other end; see [`GnbNode::host`].
        host: u64,
        stream: u16,
        octets: Vec<u8>,
    },
    ToGnb {
        gnb: GnbIndex,
        association: AssociationId,
        host: u64,
        stream: u16,
        octets: Vec<u8>,
    },
    Up {
        ue: UeIndex,
        connection: u64,
        up: UplinkMessage,
    },
    Down {
        ue: UeIndex,
        connection: u64,
        down: DownlinkMessage,
    },
    Xn {
        to: GnbIndex,
        from: GlobalGnbId,
        message: gnb::XnMessage,
    },
    Link(RegionMessage),
    CtaReplica(ReplicaLink),
    N14(N14Message),
    Sap(OverSap),
    Charging(ChfMessage),
    Policy(PcfMessage),
    Udm(UdmMessage),
    N3(N3Datagram),
    Unit(UnitEvent),
    /// Over a gNB's association with the CTA replica's host.
    FurtherToCore {
        over: LocalAssociation,
        /// Where its gNB connected from.
        from: IpAddr,
        stream: u16,
        octets: Vec<u8>,
    },
    FurtherToGnb {
        over: LocalAssociation,
        stream: u16,
        octets: Vec<u8>,
    },
    /// SCTP of a gNB's host has answered a probe.
    ProbeAnswer {
        association: AssociationId,
        /// The host that probed it.
        host: u64,
    },
}

/// What is due, and when.
#[derive(Default)]
pub(crate) struct Queue {
    /// Messages by their time of arrival, and in the order of sending where that is the same.
    pub(crate) messages: BTreeMap<(Instant, u64), InFlight>,
    /// How many messages have been sent.
    pub(crate) sequence: u64,
    /// Timers of UEs and gNBs.
    pub(crate) timers: TimerQueue,
}

impl Sim {
    /// The virtual time of the simulation.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs until no message is in flight and no timer is due within `patience`, or until that time is over.
    pub fn settle(&mut self, patience: Duration) {
        let until = self.now + patience;
        while let Some(at) = self.next_event()
            && at <= until
        {
            self.step(at);
        }
    }

    /// Runs for so long.
    pub fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle(time);
        self.now = until;
    }

    /// Whether no message is in flight; timers may be running.
    pub(crate) fn is_quiet(&self) -> bool {
        let waits = |t: &InFlight| matches!(t, InFlight::CtaReplica(ReplicaLink::Grace));
        self.queue.messages.values().all(waits) && self.region_rests() && self.pair_rests()
    }

    pub(crate) fn next_event(&self) -> Option<Instant> {
        let in_flight = self.queue.messages.first_key_value().map(|((at, _), _)| *at);
        let core = Some(self.cta().next_deadline());
        let core = core.filter(|&t| t != Instant::FAR_FUTURE && !self.has_no_cta());
        let peer_amf = self.peer_amf.as_ref().map(|a| a.cta.next_deadline());
        let core = core.into_iter().chain(peer_amf.filter(|&t| t != Instant::FAR_FUTURE));
        let all = self.queue.timers.next().into_iter().chain(in_flight).chain(core);
        let alive = (0u8..).map(UpfId).zip(&self.user_plane.upfs).filter(|(id, _)| !self.is_dead(*id));
        let all = all.chain(alive.filter_map(|(_, u)| u.upf.next_deadline()));
        all.min().map(|at| at.max(self.now))
    }

    pub(crate) fn step(&mut self, at: Instant) {
        self.now = at;
        while let Some(((due, _), _)) = self.queue.messages.first_key_value()
            && *due <= at
        {
            let Some((_, message)) = self.queue.messages.pop_first() else { break };
            self.arrive(message);
        }
        for owner in self.queue.timers.due(at) {
            match owner {
                TimerOwner::Ue(i) => self.ue(i, ue::Input::Tick),
                TimerOwner::Gnb(i) => self.gnb(i, gnb::Input::Tick),
            }
        }
        if self.cta().next_deadline() <= at && !self.has_no_cta() {
            self.cta_input(Input::Tick);
        }
        if self.peer_amf.as_ref().is_some_and(|a| a.cta.next_deadline() <= at) {
            self.peer_amf_input(Input::Tick);
        }
        for id in (0u8..).map(UpfId).take(self.user_plane.upfs.len()) {
            if self.is_dead(id) {
                continue;
            }
            let upf = self.nth_upf(id);
            if upf.next_deadline().is_some_and(|t| t <= at) {
                let mut out = whimbrel_user::Outbox::default();
                upf.tick(at, &mut out);
                self.n4(id, out);
            }
        }
        self.upfs_send();
        self.check();
    }

    pub(crate) fn arrive(&mut self, message: InFlight) {
        match message {
            InFlight::ToCore { association, stream, octets, .. }
                if self
                    .ran
                    .by_association
                    .get(&association)
                    .is_some_and(|gnb| self.ran.gnbs[gnb.0].peer_amf) =>
            {
                self.peer_amf_input(Input::Ngap(association, stream, &octets));
            }
            InFlight::N14(message) => self.n14_arrives(message),
            InFlight::Sap(message) => self.sap_arrives(message),
            InFlight::Udm(message) => self.udm_arrives(message),
            InFlight::Charging(message) => self.charging_arrives(message),
            InFlight::Policy(message) => self.policy_arrives(message),
            InFlight::N3(datagram) => self.datagram_arrives(datagram),
            InFlight::Unit(event) => self.unit_event(event),
            InFlight::ToCore { association, host, stream, octets } => {
                self.ngap_from_gnb(association, host, stream, octets);
            }
            InFlight::ToGnb { gnb, association, host, stream, octets } => {
                let node = &self.ran.gnbs[gnb.0];
                if node.association != Some(association) || host < node.host {
                    return;
                }
                let octets = octets.as_slice();
                self.gnb(
                    gnb,
                    match host > node.host && node.further.is_some() {
                        true => gnb::Input::FurtherNgap { stream, octets },
                        false => gnb::Input::Ngap { stream, octets },
                    },
                );
            }
            InFlight::Up { ue, connection, up } => {
                if self.ran.ues[ue.0].connection == connection {
                    self.ran.ues[ue.0].known_to_gnb = connection;
                    let context = whimbrel_ran::UeId(ue.0 as u32);
                    self.gnb(self.ran.ues[ue.0].gnb, gnb::Input::Radio(context, up));
                }
            }
            InFlight::Link(link) => self.link_arrives(link),
            InFlight::CtaReplica(message) => self.cta_replica_arrives(message),
            InFlight::FurtherToCore { over, from, stream, octets } => {
                self.further_to_core((over, from), stream, &octets);
            }
            InFlight::FurtherToGnb { over, stream, octets } => self.further_to_gnb(over, stream, &octets),
            InFlight::ProbeAnswer { association, host } => {
                if host == self.control.pair.host() {
                    self.cta_input(Input::AssociationAnswered(association));
                }
            }
            InFlight::Xn { to, from, message } => self.gnb(to, gnb::Input::Xn { from, message }),
            InFlight::Down { ue, connection, down } => {
                if self.ran.ues[ue.0].connection == connection {
                    self.ue(ue, ue::Input::Radio(down));
                }
            }
        }
    }

    pub(crate) fn send(&mut self, at: Instant, message: InFlight) {
        self.queue.sequence += 1;
        self.queue.messages.insert((at, self.queue.sequence), message);
    }
}
