//! Packets that no session here has, kept while UPF-C is asked whether one is on its way (Synergy §III-C, figure 8: what is no
//! prediction's goes the slow way).
//!
//! UPF-C answers an SMF when it has decided, not when each pipeline has heard of it: behind a flood of changes a gNB's or a server's first packet can come
//! before the session. If UPF-C has the session, the packet waits for it, and goes before those that come later; if not, it is dropped as it
//! would have been at once. Only where the operator configures it (`Buffering::strays`): packets of unknown senders then cost a buffer and a query each.

use std::collections::VecDeque;

use whimbrel_ids::Instant;

use super::packet::Packet;
use super::{DropReason, Origin, PacketVerdict, UpfU};
use crate::buffering::Buffering;
use crate::exchange::{SessionKey, UserPlaneReport};
use crate::rules::SessionRules;

/// One that is led to the same place may have as many as one part in so many of all.
const SHARE: usize = 4;

struct Stray {
    lead: SessionKey,
    since: Instant,
    origin: Origin,
    packet: Packet,
}

/// All of a pipeline, the oldest first.
pub(super) struct Strays {
    most: usize,
    waiting: VecDeque<Stray>,
}

impl Strays {
    /// As many as a pipeline of so many may keep.
    pub(super) fn new(bounds: &Buffering, pipelines: u8) -> Self {
        Self { most: (bounds.strays as usize).div_ceil(pipelines.into()), waiting: VecDeque::new() }
    }

    pub(super) fn are_kept(&self) -> bool {
        self.most > 0
    }

    /// Takes out those that are led so, in order.
    fn take(&mut self, is_led: impl Fn(SessionKey) -> bool) -> VecDeque<Stray> {
        if self.waiting.is_empty() {
            return VecDeque::new();
        }
        let (taken, stay) = std::mem::take(&mut self.waiting).into_iter().partition(|s| is_led(s.lead));
        self.waiting = stay;
        taken
    }
}

impl UpfU {
    /// Keeps a packet that no session has, and asks about it.
    #[cold]
    pub(super) fn keep_stray(
        &mut self,
        now: Instant,
        lead: SessionKey,
        origin: Origin,
        packet: &mut Packet,
    ) -> PacketVerdict {
        let of_lead = self.strays.waiting.iter().filter(|s| s.lead == lead).count();
        let share = (self.strays.most / SHARE).max(1);
        if self.strays.waiting.len() >= self.strays.most || of_lead >= share {
            return PacketVerdict::Drop(DropReason::StraysFull);
        }
        if of_lead == 0 {
            self.shared.report(UserPlaneReport::Stray { lead, shard: self.shard.number() });
        }
        self.shared.counters.strays += 1;
        let packet = std::mem::replace(packet, self.shared.fresh());
        self.strays.waiting.push_back(Stray { lead, since: now, origin, packet });
        PacketVerdict::Taken
    }

    /// A session stands: its packets go before later ones.
    pub(super) fn welcome_strays(&mut self, now: Instant, rules: &SessionRules) {
        for stray in self.strays.take(|lead| rules.is_led_to(lead)) {
            self.decide_on_stray(now, stray, true);
        }
    }

    /// UPF-C has no session for these.
    pub(super) fn turn_away_strays(&mut self, now: Instant, lead: SessionKey) {
        for stray in self.strays.take(|l| l == lead) {
            self.decide_on_stray(now, stray, false);
        }
    }

    fn decide_on_stray(
        &mut self,
        now: Instant,
        Stray { lead, origin, mut packet, .. }: Stray,
        has_session: bool,
    ) {
        let verdict = match origin {
            Origin::N3 { peer, local } if has_session => self.datagram(now, peer, local, 0, &mut packet),
            Origin::N6 { dn } if has_session => self.network_packet(now, dn, 0, &mut packet),
            Origin::N3 { peer, local } => {
                let SessionKey::Tunnel(teid) = lead else { return };
                self.unknown_tunnel(now, (peer, local), teid)
            }
            Origin::N6 { .. } | Origin::Frames { .. } => PacketVerdict::Drop(DropReason::UnknownUeAddress),
        };
        match verdict {
            // It was asked for here because no other shard has it.
            PacketVerdict::Hand { .. } => {
                self.shared.counters.drop(DropReason::UnknownUeAddress);
                self.shared.recycle(packet);
            }
            PacketVerdict::Send(to) => self.shared.send(to, packet),
            PacketVerdict::Drop(reason) => {
                self.shared.counters.drop(reason);
                self.shared.recycle(packet);
            }
            PacketVerdict::Taken | PacketVerdict::Pending => self.shared.recycle(packet),
        }
    }

    /// When the oldest has waited for as long as strays may.
    pub(super) fn strays_deadline(&self) -> Option<Instant> {
        self.strays.waiting.front().map(|s| s.since + Buffering::STRAY_AGE)
    }

    /// Drops those that have waited for too long: their session has not come.
    pub(super) fn expire_strays(&mut self, now: Instant) {
        while self.strays_deadline().is_some_and(|at| at <= now)
            && let Some(stray) = self.strays.waiting.pop_front()
        {
            self.shared.counters.drop(DropReason::StrayAge);
            self.shared.recycle(stray.packet);
        }
    }
}
