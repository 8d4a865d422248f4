//! Packets that wait for a UE: until their FAR forwards (TS 29.244 §5.2.4), as many and as long as [`Buffering`] says.

use std::collections::VecDeque;
use std::time::Duration;

use whimbrel_ids::{Instant, Teid};
use whimbrel_pfcp::ie::ApplyAction;

use super::inner::mark_congestion;
use super::packet::Packet;
use super::session::SessionState;
use super::shared::PipelineContext;
use super::slice::is_marked;
use super::stages::{Ingress, Pdu, flow_of};
use super::{DropReason, PacketVerdict};
use crate::buffering::Buffering;
use crate::exchange::UserPlaneReport;
use crate::limits::{HELD_FREE_SHARE, HELD_PER_SESSION_GUARANTEED};
use crate::rules::{Far, Pdr, Qer, SessionRules};

/// The unit of a BAR's notification delay (TS 29.244 §8.2.28).
const DELAY_UNIT: Duration = Duration::from_millis(50);
/// A full buffer, in parts.
const FULL: i64 = 65_536;

/// A packet that waits.
pub(super) struct BufferedPacket {
    pub(super) since: Instant,
    /// It is of a flow of guaranteed rate.
    guaranteed: bool,
    /// Where a successor finds it.
    place: Option<u32>,
    pub(super) ingress: Ingress,
    pub(super) packet: Packet,
}

/// The packets of a session that wait, the oldest first.
#[derive(Default)]
pub(super) struct BufferedPackets {
    packets: VecDeque<BufferedPacket>,
    octets: usize,
}

impl BufferedPackets {
    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    fn push(&mut self, waiting: BufferedPacket) {
        self.octets += waiting.packet.len();
        self.packets.push_back(waiting);
    }

    /// The oldest, if it has waited since then or longer.
    fn pop_since(&mut self, since: Instant) -> Option<(Packet, Option<u32>)> {
        self.packets.front().filter(|w| w.since <= since)?;
        let waiting = self.packets.pop_front()?;
        self.octets -= waiting.packet.len();
        Some((waiting.packet, waiting.place))
    }

    /// The newest that nothing is promised to.
    fn pop_unpromised(&mut self) -> Option<(Packet, Option<u32>)> {
        let at = self.packets.iter().rposition(|w| !w.guaranteed)?;
        let waiting = self.packets.remove(at)?;
        self.octets -= waiting.packet.len();
        Some((waiting.packet, waiting.place))
    }

    /// When the oldest has waited for so long.
    fn aged(&self, age: Duration) -> Option<Instant> {
        self.packets.front().map(|w| w.since + age)
    }
}

/// When a packet has waited for too long.
pub(super) fn deadline(state: &SessionState, age: Duration) -> Option<Instant> {
    let aged = state.held.aged(age)?;
    // The SMF may have asked to wait longer.
    Some(state.quiet_until.map_or(aged, |until| until.max(aged)))
}

/// Drops the packets that have waited for too long.
pub(super) fn expire(state: &mut SessionState, shared: &mut PipelineContext, now: Instant) {
    let age = shared.buffering.age;
    while deadline(state, age).is_some_and(|at| at <= now) {
        let Some((packet, place)) = state.held.pop_since(now) else { return };
        shared.forget_held(place);
        let octets = packet.len();
        shared.released(1, octets);
        shared.counters.drop(DropReason::BufferAge);
        state.counters.dropped += 1;
        shared.recycle(packet);
        if state.held.is_empty() {
            // The packet that was reported to the SMF is gone; the next one is reported again.
            (state.notified, state.notice) = (false, None);
        }
    }
}

/// Takes all packets out, to meet new rules or to be dropped.
pub(super) fn take(state: &mut SessionState, shared: &mut PipelineContext) -> VecDeque<BufferedPacket> {
    let held = std::mem::take(&mut state.held);
    shared.released(held.packets.len(), held.octets);
    held.packets.iter().for_each(|waiting| shared.forget_held(waiting.place));
    held.packets
}

/// Keeps a packet until its FAR forwards; the first one is reported, after the BAR's delay.
#[allow(clippy::too_many_arguments, reason = "a stage's view of one packet")]
pub(super) fn hold<C: Pdu>(
    state: &mut SessionState,
    shared: &mut PipelineContext,
    rules: &SessionRules,
    now: Instant,
    (pdr, far): (&Pdr, &Far),
    ingress: Ingress,
    pdu: &C,
    packet: &mut Packet,
) -> PacketVerdict {
    let bar = rules.bars.iter().find(|b| Some(b.bar_id) == far.bar_id);
    let bounds = shared.buffering;
    let own = usize::from(bounds.packets_per_session);
    let packets = bar.and_then(|b| b.packets).map_or(own, usize::from).clamp(1, own);
    let octets = packet.len();
    let guaranteed = is_guaranteed(rules, pdr);
    let fill = loop {
        let reason = match room(&state.held, shared, packets, octets) {
            Ok(fill) => {
                let early = bounds.early_drop && !pdu.knows_ecn() && !guaranteed;
                let early = early && shared.waited_since.is_none();
                if early && is_marked(FULL - fill, FULL, &mut shared.random) {
                    return PacketVerdict::Drop(DropReason::EarlyDrop);
                }
                match shared.hold(octets) {
                    Ok(()) => break fill,
                    Err(reason) => reason,
                }
            }
            Err(reason) => reason,
        };
        // What is promised to a flow holds here too: others of its session give way, the newest first, so that the rest stays in order.
        if !guaranteed || !gives_way(state, shared, reason) {
            return PacketVerdict::Drop(reason);
        }
    };
    if state.quiet_until.is_some_and(|until| until <= now) {
        (state.quiet_until, state.notified) = (None, false);
    }
    if far.action.has(ApplyAction::NOCP) && !std::mem::replace(&mut state.notified, true) {
        let report = UserPlaneReport::DownlinkData {
            session: state.id(),
            pdr_id: pdr.pdr_id,
            qfi: flow_of(rules, pdr).map(|(qfi, ..)| qfi),
            dscp: pdu.dscp(),
            octets: u16::try_from(octets).unwrap_or(u16::MAX),
        };
        match bar.map_or(0, |b| b.delay) {
            0 => shared.report(report),
            units => {
                let at = now + DELAY_UNIT * u32::from(units);
                state.notice = Some(Box::new((at, report)));
                state.rearm = true;
            }
        }
    }
    if pdu.knows_ecn() && fill >= FULL / 2 && shared.waited_since.is_none() {
        // Its ends slow down before packets find no room.
        mark_congestion(packet.octets_mut());
        shared.counters.ecn_marked += 1;
    }
    shared.counters.buffered += u64::from(shared.waited_since.is_none());
    state.rearm |= state.held.is_empty();
    let packet = std::mem::replace(packet, shared.fresh());
    let since = shared.waited_since.unwrap_or(now);
    // What came by a tunnel is a relayed packet of a handover, which its sender repeats.
    let place =
        if ingress.teid == Teid(0) { shared.keep_held(state.id(), since, packet.octets()) } else { None };
    state.held.push(BufferedPacket { since, guaranteed, place, ingress, packet });
    PacketVerdict::Taken
}

/// Whether a rate is guaranteed to what a PDR detects.
fn is_guaranteed(rules: &SessionRules, pdr: &Pdr) -> bool {
    let rate = |q: &Qer| if pdr.is_uplink() { q.gbr_ul_kbps } else { q.gbr_dl_kbps };
    pdr.qers().filter_map(|i| rules.qers.get(i)).any(|q| rate(q) > 0)
}

/// How full a session's buffer is, of [`FULL`], if its own bounds and its share of the rest leave room for one packet more.
fn room(
    held: &BufferedPackets,
    shared: &PipelineContext,
    packets: usize,
    octets: usize,
) -> Result<i64, DropReason> {
    let bounds = &shared.buffering;
    if held.packets.len() >= packets {
        return Err(DropReason::BufferFull);
    }
    if held.octets + octets > bounds.octets_per_session as usize {
        return Err(DropReason::BufferOctets);
    }
    let share = (shared.common.free_to_hold() / HELD_FREE_SHARE).max(HELD_PER_SESSION_GUARANTEED);
    if held.packets.len() >= share {
        return Err(DropReason::BuffersExhausted);
    }
    Ok(fill(held, packets.min(share), bounds))
}

/// A packet to which nothing is promised gives way, and is dropped by the bound that another one has met; whether there was one.
#[cold]
fn gives_way(state: &mut SessionState, shared: &mut PipelineContext, reason: DropReason) -> bool {
    let Some((packet, place)) = state.held.pop_unpromised() else { return false };
    shared.forget_held(place);
    shared.released(1, packet.len());
    shared.counters.drop(reason);
    state.counters.dropped += 1;
    shared.recycle(packet);
    true
}

/// How full a session's buffer is, of [`FULL`], by packets or octets.
fn fill(held: &BufferedPackets, packets: usize, bounds: &Buffering) -> i64 {
    let part = |of: usize, most: usize| (of as u64).saturating_mul(FULL as u64) / (most as u64).max(1);
    let fill = part(held.packets.len(), packets).max(part(held.octets, bounds.octets_per_session as usize));
    i64::try_from(fill).unwrap_or(FULL).min(FULL)
}
