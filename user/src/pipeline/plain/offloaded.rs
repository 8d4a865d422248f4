//! What a fast path needs of a plain session, and what it did.

use std::net::Ipv4Addr;
use std::sync::atomic::Ordering::Relaxed;

use whimbrel_gtpu::GpduHeader;
use whimbrel_ids::Instant;

use super::super::fast::FastEntry;
use super::{CounterState, Hot, flag};
use crate::config::DnIndex;

/// Time in which the buckets of a session fill that may be offloaded: a fast path sees time in steps of a kernel's tick, 10 ms at most.
const WINDOW_MS_MIN: u16 = 40;

impl Hot {
    /// Whether what packets change is in the fast path's memory.
    pub(in crate::pipeline) fn is_offloaded(&self) -> bool {
        self.flags & flag::OFFLOADED != 0
    }

    /// Whether it is about to be.
    pub(in crate::pipeline) fn is_watched(&self) -> bool {
        self.flags & flag::WATCHED != 0
    }

    pub(in crate::pipeline) fn set_offloaded(&mut self, is: bool) {
        self.flags = self.flags & !flag::OFFLOADED | if is { flag::OFFLOADED } else { 0 };
    }

    pub(in crate::pipeline) fn set_watched(&mut self, is: bool) {
        self.flags = self.flags & !flag::WATCHED | if is { flag::WATCHED } else { 0 };
        self.decided = 0;
    }

    /// Packets that were decided on here since the session is watched, in as many bits as there are.
    pub(in crate::pipeline) fn decided(&self) -> u16 {
        self.decided
    }

    /// The UE's address and its prefix.
    pub(in crate::pipeline) fn addresses(&self) -> (Option<Ipv4Addr>, Option<u64>) {
        let has = |family| self.flags & family != 0;
        (
            has(flag::IPV4).then_some(Ipv4Addr::from_bits(self.ue_ipv4)),
            has(flag::IPV6).then_some(self.ue_ipv6),
        )
    }

    /// The network and the gNB's address, if a fast path can decide on packets of it: with addresses of its own, to a gNB by IPv4, forwarded
    /// both ways, with rates of one QER at most, averaged over some ticks.
    pub(in crate::pipeline) fn offload_target(&self) -> Option<(DnIndex, Ipv4Addr)> {
        let both = flag::FORWARDS | flag::FORWARDS << flag::DOWNLINK_SHIFT;
        let needed = flag::PLAIN | both;
        let addressed = self.flags & (flag::IPV4 | flag::IPV6) != 0;
        let gnb = self.gnb.to_ipv4_mapped()?;
        let container = GpduHeader::new(self.gnb_teid, self.container).octets_len() <= 16;
        let once_metered = self.flags & flag::TWICE_METERED == 0;
        let ticks = self.window_ms == 0 || self.window_ms >= WINDOW_MS_MIN;
        (self.flags & needed == needed && addressed && container && once_metered && ticks)
            .then_some((self.data_network, gnb))
    }

    /// Writes what its packets read, but for addresses and hops.
    pub(in crate::pipeline) fn write_rules(&self, entry: &FastEntry) {
        let closed = |shift, bit| if self.flags >> shift & flag::CLOSED != 0 { bit } else { 0 };
        let gates = closed(0, FastEntry::UL_CLOSED) | closed(flag::DOWNLINK_SHIFT, FastEntry::DL_CLOSED);
        let mut header = [0; 16];
        GpduHeader::new(self.gnb_teid, self.container).write_before(0, &mut header);
        let container =
            if self.container.is_some() { *header.last_chunk().unwrap_or(&[0; 4]) } else { [0; 4] };
        entry.teid.store(self.teid.0, Relaxed);
        entry.gnb_teid.store(u32::from_ne_bytes(self.gnb_teid.0.to_be_bytes()), Relaxed);
        entry.ul_kbps.store(self.ul_kbps, Relaxed);
        entry.dl_kbps.store(self.dl_kbps, Relaxed);
        entry.window_us.store(u32::from(self.window_ms) * 1000, Relaxed);
        entry.container.store(u32::from_ne_bytes(container), Relaxed);
        entry.gates.store(gates, Relaxed);
        entry.ul_flow.store(self.ul_flow, Relaxed);
        entry.tos.store(self.tos, Relaxed);
    }

    /// Writes what packets change.
    pub(in crate::pipeline) fn write(&self, entry: &FastEntry) {
        let w = &self.written;
        entry.dropped.store(w.dropped, Relaxed);
        entry.room.store(w.room, Relaxed);
        entry.ul_tokens.store(w.ul_tokens, Relaxed);
        entry.dl_tokens.store(w.dl_tokens, Relaxed);
        entry.filled.store(w.filled.0, Relaxed);
        entry.first_packet.store(w.first_packet.0, Relaxed);
        entry.last_packet.store(w.last_packet.0, Relaxed);
        entry.ul_octets.store(w.ul_octets, Relaxed);
        entry.dl_octets.store(w.dl_octets, Relaxed);
        entry.ul_packets.store(w.ul_packets, Relaxed);
        entry.dl_packets.store(w.dl_packets, Relaxed);
    }

    /// Reads the entry of the driver.
    pub(in crate::pipeline) fn read(&mut self, entry: &FastEntry) {
        self.written = CounterState {
            ul_tokens: entry.ul_tokens.load(Relaxed),
            dl_tokens: entry.dl_tokens.load(Relaxed),
            filled: Instant(entry.filled.load(Relaxed)),
            first_packet: Instant(entry.first_packet.load(Relaxed)),
            last_packet: Instant(entry.last_packet.load(Relaxed)),
            room: entry.room.load(Relaxed),
            ul_octets: entry.ul_octets.load(Relaxed),
            dl_octets: entry.dl_octets.load(Relaxed),
            ul_packets: entry.ul_packets.load(Relaxed),
            dl_packets: entry.dl_packets.load(Relaxed),
            dropped: entry.dropped.load(Relaxed),
        };
    }
}
