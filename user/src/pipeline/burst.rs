//! The way of a burst: each step for all its packets, so that what one step asks of memory comes while it still asks for more.
//!
//! What has an effect is done in one step ([`Stage::Rules`]), packet by packet, in the order in which they came.

use whimbrel_gtpu::{GpduHeader, Gtpu, message_type};
use whimbrel_ids::{Instant, Teid};
use whimbrel_prefetch::prefetch;

use super::flows::{FlowKey, Flows, Hash};
use super::guard::UeIsolation;
use super::inner::InnerPacket;
use super::plain::{Decision, Hot, Second};
use super::session::SessionU;
use super::stages::{Ingress, Pdu};
use super::survey::SessionTable;
use super::{BurstPacket, Origin, PacketVerdict, SessionKey, UpfU, is_link_scope};

/// Packets whose memory is loaded together: twice the line fill buffers of a core, as many as drivers receive at once.
const TOGETHER: usize = 32;
/// Octets of a packet that its headers usually have.
const HEADERS_OCTETS: usize = 52;
/// Mark of a packet without a session.
pub(super) const NO_SESSION: u32 = u32::MAX;

/// A step of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Headers are read.
    Parse,
    /// Sessions are found, and loaded.
    Session,
    /// Of one packet of a plain session: its rule, what that does, and gates.
    Classify,
    /// Of such a packet: its rates.
    Meter,
    /// Likewise: what it has used.
    Account,
    /// What is left of the verdicts: of plain sessions' packets, and of others' all of it.
    Rules,
    /// Outer headers are written.
    Rewrite,
}

/// Called at the end of each step: a measurement reads the clock.
pub trait StageObserver {
    /// The step is over.
    fn done(&mut self, stage: Stage);

    /// What the next lines read is being loaded from memory for the whole burst: time for other work, which may read the sessions.
    #[inline]
    fn loading(&mut self, _sessions: SessionTable<'_>) {}

    /// A packet was decided on. Returns the time of the next one: a measurement makes it depend on that verdict, so that the processor
    /// cannot overlap the cache misses of two packets.
    #[inline]
    fn decided(&mut self, now: Instant, _verdict: &PacketVerdict) -> Instant {
        now
    }
}

/// The observer of a burst that nothing observes.
impl StageObserver for () {
    #[inline]
    fn done(&mut self, _: Stage) {}
}

/// What is known of a packet between the steps.
#[derive(Clone, Copy)]
struct BurstItem {
    /// Of a packet that may be decided on here: its headers. The others are left to the stages, headers and all.
    inner: Option<InnerPacket>,
    /// Of a packet from a UE.
    ingress: Ingress,
    payload_at: u16,
    session: u32,
    /// What is to be written before it.
    outer: Option<GpduHeader>,
}

const NOTHING: BurstItem =
    BurstItem { inner: None, ingress: Ingress::NETWORK, payload_at: 0, session: NO_SESSION, outer: None };

impl UpfU {
    /// Decides on every packet of a burst. Packets that the pipeline itself sends wait in
    /// [`Self::next_output`]; what it has to tell in [`Self::take_reports`].
    pub fn burst(&mut self, now: Instant, slots: &mut [BurstPacket]) {
        self.burst_observed(now, slots, &mut ());
    }

    /// [`Self::burst`] with an observer of its steps.
    pub fn burst_observed(
        &mut self,
        now: Instant,
        slots: &mut [BurstPacket],
        observer: &mut impl StageObserver,
    ) {
        for slots in slots.chunks_mut(TOGETHER) {
            let mut items = [NOTHING; TOGETHER];
            prefetch_headers(slots);
            observer.loading(self.session_table());
            for (item, slot) in items.iter_mut().zip(&*slots) {
                parse(item, slot, &self.shared.guard);
            }
            observer.done(Stage::Parse);
            self.find_sessions(now, slots, &mut items, observer);
            observer.done(Stage::Session);
            let mut now = now;
            for (item, slot) in items.iter_mut().zip(&mut *slots) {
                slot.verdict = self.decide(now, item, slot, observer);
                if let PacketVerdict::Drop(reason) = slot.verdict {
                    self.shared.counters.drop(reason);
                }
                now = observer.decided(now, &slot.verdict);
            }
            observer.done(Stage::Rules);
            if self.shared.common.paths_in_doubt() {
                self.look_for_signs_of_life(now, slots);
            }
            for (item, slot) in items.iter().zip(slots) {
                let Some(outer) = &item.outer else { continue };
                let octets = slot.packet.len();
                let written = outer.write_before(octets, slot.packet.headroom());
                // There is room, or it would not have been decided on here.
                debug_assert!(written.is_some());
                slot.packet.pushed(written.unwrap_or(0));
            }
            observer.done(Stage::Rewrite);
        }
    }

    /// Finds the sessions of all packets, and loads what packets need of them.
    fn find_sessions(
        &self,
        now: Instant,
        slots: &[BurstPacket],
        items: &mut [BurstItem; TOGETHER],
        observer: &mut impl StageObserver,
    ) {
        for (item, slot) in items.iter().zip(slots) {
            if let (Some(inner), Origin::N6 { dn }) = (&item.inner, slot.origin)
                && let Some(network) = self.networks.get(usize::from(dn.0))
            {
                network.addresses.prefetch(inner.destination);
            }
            if let (Some(teids), Origin::N3 { .. }) = (&self.smf_teids, slot.origin) {
                teids.prefetch(item.ingress.teid);
            }
        }
        observer.loading(self.session_table());
        for (item, slot) in items.iter_mut().zip(slots) {
            let Some(inner) = &item.inner else { continue };
            item.session = match slot.origin {
                Origin::N3 { .. } => {
                    let Ok(index) = self.index_of(item.ingress.teid, 0) else {
                        item.inner = None; // the stages hand it over
                        continue;
                    };
                    index
                }
                Origin::N6 { dn } => {
                    let network = self.networks.get(usize::from(dn.0));
                    network.and_then(|n| n.addresses.find(inner.destination)).unwrap_or(NO_SESSION)
                }
                Origin::Frames { .. } => NO_SESSION,
            };
            self.sessions.prefetch(item.session);
        }
        observer.loading(self.session_table());
        let items = &items[..slots.len()];
        self.touch_full(items);
        if !self.predictions.is_empty(now) {
            self.prefetch_predictions(slots, items);
        }
    }

    /// Begins to load what says of packets without a session whether their UE is awaited.
    #[cold]
    fn prefetch_predictions(&self, slots: &[BurstPacket], items: &[BurstItem]) {
        for (item, slot) in items.iter().zip(slots) {
            let Some(inner) = &item.inner else { continue };
            match slot.origin {
                Origin::N6 { dn } if item.session == NO_SESSION => {
                    self.predictions.prefetch(SessionKey::Ue(dn, inner.destination));
                }
                Origin::N3 { .. } if self.sessions.generation(item.session).is_none() => {
                    self.predictions.prefetch(SessionKey::Tunnel(item.ingress.teid));
                }
                _ => {}
            }
        }
    }

    /// Loads what the stages read of sessions that are not plain, one step of indirection at a time for all.
    fn touch_full(&self, items: &[BurstItem]) {
        // Of a plain one not even that is looked at where it would be.
        let full = || {
            let others = items.iter().filter(|i| !self.sessions.is_plain(i.session));
            others.filter_map(|i| self.sessions.full(i.session))
        };
        if full().next().is_none() {
            return;
        }
        let state = full().fold(0, |sum, s| sum ^ s.state.generation);
        let rules = full().fold(0, |sum, s| sum ^ s.rules.fars.len() ^ s.rules.tunnels[0].0 as usize);
        let lists = full().fold(0, |sum, s| {
            let pdr = s.rules.pdrs.last().map_or(0, |p| p.precedence);
            let far = s.rules.fars.last().map_or(0, |f| f.far_id.0);
            let qer = s.rules.qers.first().map_or(0, |q| q.qer_id.0);
            let urr = s.rules.urrs.first().map_or(0, |u| u.urr_id.0);
            let usage = s.state.usage.first().map_or(0, |u| u.urr_id.0);
            let meter = s.state.meters.first().map_or(0, |m| m.touch());
            sum ^ pdr ^ far ^ qer ^ urr ^ usage ^ meter
        });
        std::hint::black_box((state, rules, lists));
        self.prefetch_flows(items);
    }

    /// Begins to load what is remembered of packets' flows.
    fn prefetch_flows(&self, items: &[BurstItem]) {
        let Some(flows) = &self.shared.flows else { return };
        let mut hashes = [None; TOGETHER];
        for (hash, item) in hashes.iter_mut().zip(items) {
            *hash = self.sessions.full(item.session).and_then(|s| hash_of(flows, s, item));
        }
        for hash in hashes.into_iter().flatten() {
            flows.prefetch_sets(hash);
        }
        for hash in hashes.into_iter().flatten() {
            flows.prefetch_entry(hash);
        }
    }

    /// The verdict on one packet.
    #[inline]
    fn decide(
        &mut self,
        now: Instant,
        item: &mut BurstItem,
        slot: &mut BurstPacket,
        observer: &mut impl StageObserver,
    ) -> PacketVerdict {
        let (Some(inner), Some(hot)) = (&item.inner, self.sessions.hot(item.session)) else {
            return self.by_stages(now, slot);
        };
        let mut reaches = Ok(());
        let uplink = match slot.origin {
            Origin::N3 { peer, .. } => {
                // By another gNB, a UE may have arrived where it was expected.
                let placed = hot.is_gnb(peer.ip())
                    || hot.is_plain()
                        && !self.predictions.awaits(item.session)
                        && !self.unplaced.has_any_from(item.session, peer.ip())
                        && self.shared.is_peer(now, peer.ip(), hot.names_no_gnb());
                if !placed {
                    return self.by_stages(now, slot);
                }
                let at = usize::from(item.payload_at);
                reaches = self.shared.guard(inner, slot.packet.octets().get(at..).unwrap_or_default());
                true
            }
            Origin::N6 { .. } | Origin::Frames { .. } => false,
        };
        // Where it goes and what is written before it, if it passes.
        let mut ask = |hot: &mut Hot, second: Option<&mut Second>| {
            let decision = if uplink {
                hot.uplink(now, item.ingress, inner, reaches, second, observer)
            } else {
                hot.downlink(now, inner, second, observer)
            };
            match decision {
                Decision::Forward if uplink => Ok((hot.to_network(), None)),
                Decision::Forward => {
                    let (to, outer) = hot.to_gnb();
                    Ok((to, Some(outer)))
                }
                other => Err(other),
            }
        };
        let answer = match ask(hot, None) {
            Err(Decision::Offloaded) => self.sessions.with_reclaimed(item.session, |hot| ask(hot, None)),
            Err(Decision::TwiceMetered) => {
                self.sessions.with_second(item.session, |hot, second| ask(hot, Some(second)))
            }
            answer => Some(answer),
        };
        let answer = answer.unwrap_or(Err(Decision::Full));
        match answer {
            Ok((to, outer)) => {
                let counters = &mut self.shared.counters;
                let (packets, octets) = if uplink {
                    slot.packet.pull(item.payload_at.into());
                    (&mut counters.ul_packets, &mut counters.ul_octets)
                } else {
                    (&mut counters.dl_packets, &mut counters.dl_octets)
                };
                *packets += 1;
                *octets += inner.octets as u64;
                slot.packet.truncate(inner.octets);
                item.outer = outer;
                PacketVerdict::Send(to)
            }
            Err(Decision::Drop(reason)) => PacketVerdict::Drop(reason),
            Err(Decision::Due) => {
                let session = item.session;
                let verdict = self.by_stages(now, slot);
                self.sessions.fold(session);
                verdict
            }
            Err(Decision::Forward | Decision::Full | Decision::Offloaded | Decision::TwiceMetered) => {
                self.by_stages(now, slot)
            }
        }
    }

    /// The verdict of the stages, headers and all.
    fn by_stages(&mut self, now: Instant, slot: &mut BurstPacket) -> PacketVerdict {
        let hops = match slot.verdict {
            PacketVerdict::Hand { hops, .. } => hops,
            _ => 0,
        };
        match slot.origin {
            Origin::N3 { peer, local } => self.datagram(now, peer, local, hops, &mut slot.packet),
            Origin::N6 { dn } => self.network_packet(now, dn, hops, &mut slot.packet),
            Origin::Frames { dn } => self.network_frame(now, dn, &mut slot.packet),
        }
    }
}

/// Of the flow of a packet, if it is remembered.
fn hash_of(flows: &Flows, session: &SessionU, item: &BurstItem) -> Option<Hash> {
    let (compared, inner) = (session.rules.compared, item.inner.as_ref()?);
    // Of a flow that may be known by a name it is not known yet which it is.
    if !compared.worth || compared.named {
        return None;
    }
    let flow = inner.flow(item.ingress.teid != Teid(0))?;
    Some(flows.hash(&FlowKey::new(session.state.rules_number, compared, item.ingress, &flow, 0)))
}

/// Begins to load the headers of all packets: a driver has just written them, by way of memory.
fn prefetch_headers(slots: &[BurstPacket]) {
    for slot in slots {
        let octets = slot.packet.octets();
        let ends = [octets.first(), octets.get(HEADERS_OCTETS)];
        ends.into_iter().flatten().for_each(prefetch);
    }
}

/// Reads the headers of what may be a UE's packet.
#[inline]
fn parse(item: &mut BurstItem, slot: &BurstPacket, guard: &UeIsolation) {
    match slot.origin {
        Origin::N3 { .. } => {
            let Ok(m) = Gtpu::parse(slot.packet.octets()) else { return };
            let Ok(payload_at) = u16::try_from(m.payload_at) else { return };
            if m.message_type == message_type::G_PDU {
                item.inner = InnerPacket::parse(m.payload);
                item.ingress = Ingress { teid: m.teid, container: m.pdu_session };
                item.payload_at = payload_at;
            }
        }
        Origin::N6 { .. } => {
            // Without headroom the stages say that it is too long.
            let room = slot.packet.headroom_octets() >= whimbrel_gtpu::HEADER_OCTETS_MAX;
            item.inner = InnerPacket::parse(slot.packet.octets())
                .filter(|i| room && !is_link_scope(i.destination) && !guard.is_foreign_ue_source(i.source));
        }
        Origin::Frames { .. } => {}
    }
}
