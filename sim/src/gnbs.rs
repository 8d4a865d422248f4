//! The gNBs, their associations with the AMF, and Xn.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use whimbrel_control::AssociationId;
use whimbrel_ids::{GlobalGnbId, Instant, STmsi};
use whimbrel_ngap::{ProcedureCode, TransferSyntax};
use whimbrel_ran::{Outbox, gnb};
use whimbrel_resilience::Input;
use whimbrel_resilience::cta_replica::LocalAssociation;

use crate::peer_amf::PEER_AMF_HOST;
use crate::queue::InFlight;
use crate::timer_queue::TimerOwner;
use crate::{GnbIndex, Sim, UeIndex, ue};

pub(crate) struct GnbNode {
    pub(crate) gnb: gnb::Gnb,
    /// It is the peer AMF's.
    pub(crate) peer_amf: bool,
    /// Its association while it is up; a restart takes the next identifier.
    pub(crate) association: Option<AssociationId>,
    /// The number of the CTA's host at its other end; see `CtaPair::host`.
    pub(crate) host: u64,
    /// Its association with the CTA replica's host.
    pub(crate) further: Option<LocalAssociation>,
    /// It opens no second association.
    pub(crate) single: bool,
    /// Messages arrive in order: the next one no earlier than this.
    pub(crate) ordered: Instant,
    /// Its processing time for a message of the core.
    pub(crate) per_message: Duration,
    /// When it has processed the messages that have arrived.
    pub(crate) free_at: Instant,
    /// The messages of the core, if a test drives it.
    pub(crate) by_hand: Option<Vec<whimbrel_ngap::Message>>,
    /// Likewise those of other gNBs.
    pub(crate) ordered_xn: Instant,
    /// Streams of its association, both ways.
    pub(crate) streams: u16,
    /// Its addresses; it connects from the first one.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its host is gone, and its association does not know it: nothing comes back, not even from SCTP.
    pub(crate) silent: bool,
}

/// SCTP streams of an association, in each direction, unless a test sets another number.
const STREAMS: u16 = 16;

/// The address of a gNB, unless a test gives it others.
fn address(index: GnbIndex) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 1, 0, 1)) + index.0 as u32).into()
}

impl Sim {
    /// A gNB that sets up at once.
    pub fn add_gnb(&mut self, config: gnb::GnbConfig) -> GnbIndex {
        self.add_gnb_of(config, false)
    }

    /// A gNB that connects from the first of these addresses, and whose other ones SCTP confirms.
    pub fn add_gnb_at(&mut self, config: gnb::GnbConfig, addresses: Vec<IpAddr>) -> GnbIndex {
        self.add_node(config, false, addresses)
    }

    pub(crate) fn add_gnb_of(&mut self, config: gnb::GnbConfig, peer_amf: bool) -> GnbIndex {
        let address = address(GnbIndex(self.ran.gnbs.len()));
        self.add_node(config, peer_amf, vec![address])
    }

    fn add_node(&mut self, config: gnb::GnbConfig, peer_amf: bool, addresses: Vec<IpAddr>) -> GnbIndex {
        let index = GnbIndex(self.ran.gnbs.len());
        let gnb = gnb::Gnb::new(config);
        self.ran.gnbs.push(GnbNode {
            gnb,
            peer_amf,
            association: None,
            host: 0,
            further: None,
            single: false,
            ordered: self.now,
            ordered_xn: self.now,
            per_message: Duration::ZERO,
            free_at: self.now,
            by_hand: None,
            streams: STREAMS,
            addresses,
            silent: false,
        });
        self.connect(index);
        index
    }

    /// The address that a gNB connects from.
    pub fn gnb_address(&self, index: GnbIndex) -> IpAddr {
        self.ran.gnbs[index.0].addresses[0]
    }

    /// A gNB's host is gone: its association stands, as SCTP has not found that out yet, and nothing comes back over it.
    pub fn silence_gnb(&mut self, index: GnbIndex) {
        let node = &mut self.ran.gnbs[index.0];
        (node.silent, node.by_hand) = (true, Some(Vec::new()));
    }

    /// The core asks an association's peer for a sign of life: SCTP of a host that is there answers.
    pub(crate) fn probe(&mut self, host: u64, association: AssociationId) {
        let Some(index) = self.ran.by_association.get(&association) else { return };
        let node = &self.ran.gnbs[index.0];
        if !node.silent {
            let at = self.now + self.faults.n2_latency(&mut self.rng);
            self.send(at, InFlight::ProbeAnswer { association, host });
        }
    }

    /// A test drives a gNB from now on: it answers nothing by itself, and messages of the core are kept for [`Sim::take_ngap`].
    pub fn take_over(&mut self, index: GnbIndex) {
        self.ran.gnbs[index.0].by_hand = Some(Vec::new());
    }

    /// A gNB is loaded from now on: it processes one message of the core at a time, and each takes so long.
    pub fn slow_down(&mut self, index: GnbIndex, per_message: Duration) {
        self.ran.gnbs[index.0].per_message = per_message;
    }

    /// Takes what the core has sent to a gNB that is driven by hand.
    pub fn take_ngap(&mut self, index: GnbIndex) -> Vec<whimbrel_ngap::Message> {
        self.ran.gnbs[index.0].by_hand.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A gNB's association ends and none follows.
    pub fn disconnect(&mut self, index: GnbIndex) {
        if let Some(association) = self.ran.gnbs[index.0].association.take() {
            self.ran.by_association.remove(&association);
            self.amf_input_at(index, Input::AssociationDown(association));
        }
    }

    /// An input of the core to which a gNB is connected.
    pub(crate) fn amf_input_at(&mut self, gnb: GnbIndex, input: Input<'_>) {
        if self.ran.gnbs[gnb.0].peer_amf { self.peer_amf_input(input) } else { self.cta_input(input) }
    }

    /// The gNB's association ends, and a new one begins: it was restarted, with or without its UEs.
    pub fn restart_gnb(&mut self, index: GnbIndex) {
        if let Some(association) = self.ran.gnbs[index.0].association.take() {
            self.ran.by_association.remove(&association);
            self.amf_input_at(index, Input::AssociationDown(association));
        }
        self.end_associations(index);
        self.connect(index);
    }

    pub(crate) fn connect(&mut self, index: GnbIndex) {
        let fastwire = self.ran.gnbs[index.0].gnb.config().fastwire;
        let syntax = if fastwire { TransferSyntax::Fastwire } else { TransferSyntax::Per };
        let association = AssociationId::new(self.ran.associations, syntax);
        self.ran.associations += 1;
        let host = if self.ran.gnbs[index.0].peer_amf { PEER_AMF_HOST } else { self.control.pair.host() };
        (self.ran.gnbs[index.0].association, self.ran.gnbs[index.0].host) = (Some(association), host);
        self.ran.by_association.insert(association, index);
        let streams = self.ran.gnbs[index.0].streams;
        let (first, further) = self.ran.gnbs[index.0].addresses.split_first().expect("an address");
        let (addresses, further) = (vec![*first], further.to_vec());
        self.amf_input_at(index, Input::AssociationUp { association, outbound_streams: streams, addresses });
        for address in further {
            self.amf_input_at(index, Input::AddressConfirmed(association, address));
        }
        self.gnb(index, gnb::Input::AssociationUp { streams, syntax });
    }

    /// A gNB opens no second association from now on.
    pub fn keep_to_one_association(&mut self, index: GnbIndex) {
        self.ran.gnbs[index.0].single = true;
    }

    /// All associations of a gNB end.
    pub(crate) fn end_associations(&mut self, index: GnbIndex) {
        self.end_further(index);
        self.gnb(index, gnb::Input::AssociationDown);
    }

    /// A gNB is restarted with so many streams, both ways.
    pub fn restart_with_streams(&mut self, index: GnbIndex, streams: u16) {
        self.ran.gnbs[index.0].streams = streams;
        self.restart_gnb(index);
    }

    /// Has a UE's gNB hand it over to another one.
    pub fn hand_over(&mut self, index: UeIndex, to: GnbIndex, via: gnb::Via) {
        let ue = whimbrel_ran::UeId(index.0 as u32);
        let to = self.ran.gnbs[to.0].gnb.as_neighbour();
        self.gnb(self.ran.ues[index.0].gnb, gnb::Input::HandOver { ue, to, via });
    }

    /// The gNB on whose cell a UE is.
    pub fn gnb_of(&self, index: UeIndex) -> GnbIndex {
        self.ran.ues[index.0].gnb
    }

    /// A gNB, to configure its faults.
    pub fn gnb_mut(&mut self, index: GnbIndex) -> &mut gnb::Gnb {
        &mut self.ran.gnbs[index.0].gnb
    }

    /// The gNB of this index.
    pub fn gnb_ref(&self, index: GnbIndex) -> &gnb::Gnb {
        &self.ran.gnbs[index.0].gnb
    }

    /// N2 of a gNB passes nothing for a while: what is sent waits, as SCTP repeats it.
    pub(crate) fn cut_n2(&mut self, index: GnbIndex, time: Duration) {
        let node = &mut self.ran.gnbs[index.0];
        node.ordered = node.ordered.max(self.now + time);
    }

    /// How many gNBs there are.
    pub fn gnbs(&self) -> usize {
        self.ran.gnbs.len()
    }

    /// An input of a gNB.
    pub fn gnb_input(&mut self, index: GnbIndex, input: gnb::Input<'_>) {
        self.gnb(index, input);
    }

    /// Octets on a gNB's association, which need not be a message.
    pub fn inject(&mut self, index: GnbIndex, octets: &[u8]) {
        if let Some(association) = self.ran.gnbs[index.0].association {
            self.amf_input_at(index, Input::Ngap(association, 0, octets));
        }
    }

    /// Has a gNB ask for the release of a UE.
    pub fn release(&mut self, index: UeIndex, cause: whimbrel_ngap::ie::Cause) {
        let ue = whimbrel_ran::UeId(index.0 as u32);
        self.gnb(self.ran.ues[index.0].gnb, gnb::Input::Release(ue, cause));
    }

    pub(crate) fn gnb(&mut self, index: GnbIndex, input: gnb::Input<'_>) {
        if let Some(heard) = &mut self.ran.gnbs[index.0].by_hand {
            if let gnb::Input::Ngap { octets, .. } = input {
                heard.push(whimbrel_ngap::Message::decode(octets).expect("the core writes what can be read"));
            }
            return;
        }
        let mut out = Outbox::new();
        let node = &mut self.ran.gnbs[index.0];
        node.gnb.handle(self.now, input, &mut out);
        self.queue.timers.set(TimerOwner::Gnb(index), node.gnb.next_deadline());
        for output in out.drain() {
            match output {
                gnb::Output::Ngap { stream, octets } => {
                    let node = &mut self.ran.gnbs[index.0];
                    let Some(association) = node.association else { continue };
                    assert_eq!(TransferSyntax::of(&octets), association.syntax(), "and says it");
                    node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
                    let (at, host) = (node.ordered, node.host);
                    let first = whimbrel_ngap::peek(&octets)
                        .is_some_and(|p| p.procedure_code == ProcedureCode::INITIAL_UE_MESSAGE);
                    if first && self.rng.chance(self.faults.first_repeated_per_mille) {
                        let octets = octets.clone();
                        self.send(at, InFlight::ToCore { association, host, stream, octets });
                    }
                    self.send(at, InFlight::ToCore { association, host, stream, octets });
                }
                // A UE that has moved does not receive its former gNB any more.
                gnb::Output::Radio(ue, down) if self.ran.ues[ue.0 as usize].gnb == index => {
                    self.down(UeIndex(ue.0 as usize), down);
                }
                gnb::Output::Radio(..) => {}
                gnb::Output::Page(s_tmsi) => self.page(index, s_tmsi),
                gnb::Output::Event(event) => {
                    if let gnb::Event::Violation { .. } = event {
                        self.observer.violated(&event);
                    }
                    self.trace(|| format!("gNB {}: {event:?}", index.0));
                    if !self.observer.quiet {
                        self.events.gnbs.push((index, event));
                    }
                }
                gnb::Output::Xn { to, message } => {
                    let from = self.ran.gnbs[index.0].gnb.config().id;
                    if let Some(to) = self.gnb_by_id(to) {
                        // Xn has an association of its own, in order like N2.
                        let node = &mut self.ran.gnbs[to.0];
                        node.ordered_xn =
                            node.ordered_xn.max(self.now + self.faults.n2_latency(&mut self.rng));
                        let at = node.ordered_xn;
                        self.send(at, InFlight::Xn { to, from, message });
                    }
                }
                gnb::Output::Associate(_) => self.associate(index),
                gnb::Output::Dissociate(_) => self.dissociate(index),
                gnb::Output::FurtherNgap { stream, octets } => {
                    let node = &mut self.ran.gnbs[index.0];
                    let (Some(over), Some(&from)) = (node.further, node.addresses.first()) else { continue };
                    node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
                    let at = node.ordered;
                    self.send(at, InFlight::FurtherToCore { over, from, stream, octets });
                }
                gnb::Output::Gtpu { to, datagram } => {
                    let from = self.ran.gnbs[index.0].gnb.config().gtp_address;
                    self.gnb_sends(from, to.0, datagram);
                }
                gnb::Output::Packet { ue, packet, .. } => {
                    let there = self.ran.ues[ue.0 as usize].gnb == index;
                    self.gnb_delivers(ue, there, &packet);
                }
            }
        }
    }

    pub(crate) fn page(&mut self, gnb: GnbIndex, s_tmsi: STmsi) {
        let named = self.ran.by_s_tmsi.range((s_tmsi, UeIndex(0))..=(s_tmsi, UeIndex(usize::MAX)));
        for ue in named.map(|&(_, ue)| ue).collect::<Vec<_>>() {
            let terminal = &self.ran.ues[ue.0];
            if terminal.gnb == gnb && !terminal.away {
                self.ue(ue, ue::Input::Paged);
            }
        }
    }

    pub(crate) fn gnb_by_id(&self, id: GlobalGnbId) -> Option<GnbIndex> {
        self.ran.gnbs.iter().position(|n| n.gnb.config().id == id).map(GnbIndex)
    }
}
