//! What the SMF asks for, and packets between.

use std::time::Duration;

use super::super::common::*;
use super::super::model::{Action, Awaited, Enforced, FLOW_PORT, FLOW_QER, Flow, PORTS, Tunnel};
use super::{Pair, SEATS, TARGET, total};
use whimbrel_ids::{Instant, Qfi, Teid};
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;

/// Kinds of steps; half of them are packets.
const KINDS: u8 = 24;

/// Whether a step changes rules, or the time, and never is packets instead.
#[allow(dead_code, reason = "of captures")]
pub(crate) fn is_change(step: &(u8, u8, u16)) -> bool {
    matches!(step.0 % KINDS, 0..=7 | 9 | 10)
}

impl<U: Plane> Pair<U> {
    pub(crate) fn step(&mut self, (what, which, n): (u8, u8, u16)) {
        let at = usize::from(which) % SEATS;
        let now = self.net.now;
        let Some((_, seat)) = &mut self.seats[at] else { return self.establish(at, n) };
        match what % KINDS {
            0 if n % 4 == 0 => self.delete(at),
            0..=3 => {
                let marker = n & 0x8 != 0;
                let tos = if self.scope.wide { [0, 0xb8, 0x28, 0][usize::from(n >> 4) % 4] } else { 0 };
                let tunnel = Tunnel { teid: Teid(u32::from(n % 3) + 1), gnb: GNB, tos };
                let end = seat.set_action(Action::Forward(tunnel), marker);
                self.change_behind(at, end, switch(tunnel, marker));
            }
            4 => {
                let (action, apply) = if n & 1 == 0 {
                    (Action::Buffer { notify: true }, ApplyAction::BUFF | ApplyAction::NOCP)
                } else {
                    (Action::Drop, ApplyAction::DROP)
                };
                seat.set_action(action, false);
                let update_fars = vec![UpdateFar { apply_action: Some(apply), ..UpdateFar::new(FarId(2)) }];
                self.change(at, SessionModificationRequest { update_fars, ..Default::default() });
            }
            5 => {
                let gate = |closed| if closed { Gate::Closed } else { Gate::Open };
                let which = usize::from(n >> 4) % seat.qers.len();
                let closed = [n & 3 == 1, n & 12 == 4];
                let mbr = [u64::from(n) * 100, 100_000];
                let enforced = &mut seat.qers[which];
                enforced.closed = closed;
                let mbr = Some(mbr).filter(|_| self.scope.times);
                mbr.into_iter().for_each(|mbr| enforced.set_mbr(now, mbr));
                let qer = UpdateQer {
                    gate_status: Some(GateStatus { ul: gate(closed[0]), dl: gate(closed[1]) }),
                    mbr: mbr.map(rates),
                    ..UpdateQer::new(QerId(enforced.id))
                };
                let update_qers = vec![qer];
                self.change(at, SessionModificationRequest { update_qers, ..Default::default() });
            }
            6 => {
                let which = usize::from(n) % seat.accounts.len();
                let account = &mut seat.accounts[which];
                let mut urr = UpdateUrr::new(UrrId(account.id));
                if account.silence.is_some() {
                    let quota = u32::from(n) % 8 + 1;
                    (urr.event_quota, account.quota_events) = (Some(EventQuota(quota)), Some(quota as usize));
                } else if account.timed {
                    let quota = u32::from(n) % 16 + 1;
                    (urr.time_quota, account.quota_s) = (Some(TimeQuota(quota)), Some(quota.into()));
                } else {
                    let quota = total(u64::from(n) * 2);
                    (urr.volume_quota, account.quota) = (Some(quota), Some(quota));
                }
                account.renew(now);
                let update_urrs = vec![urr];
                self.change(at, SessionModificationRequest { update_urrs, ..Default::default() });
            }
            7 => {
                // Long enough now and then for sessions to be folded again.
                let folded_again = if self.scope.mostly_plain { 2 } else { 8 };
                let passed = if n % folded_again == 0 { 61_000_000 } else { u64::from(n) * 10 };
                let to = now + Duration::from_micros(if self.scope.times { passed } else { 0 });
                self.pass_until(to);
            }
            8 if seat.signalling.is_some() => {
                let port = PORTS[usize::from(n >> 2) % 2];
                seat.signalling = Some(port);
                let pdis = pdis(seat.teid, filters(port, n));
                let update = |(id, pdi)| UpdatePdr { pdi: Some(pdi), ..UpdatePdr::new(PdrId(id)) };
                let update_pdrs = [3, 4].into_iter().zip(pdis).map(update).collect();
                self.change(at, SessionModificationRequest { update_pdrs, ..Default::default() });
            }
            9 if !self.scope.mostly_plain || n % 4 == 0 => self.flow(at, n),
            10 if !self.scope.mostly_plain || n % 4 == 0 => self.relay(at),
            11 if self.scope.predicts => {
                let tunnel = Tunnel { teid: Teid(0x6000_0000 | at as u32), gnb: TARGET, tos: 0 };
                let marker = n & 1 == 0;
                seat.awaited = Some(Awaited { tunnel, marker, since: now });
                let on_arrival = Some(OnArrival);
                let m = SessionModificationRequest { on_arrival, ..switch(tunnel, marker) };
                self.modify(at, m);
            }
            12 if self.scope.wide => {
                seat.uplink_dropped = n % 3 == 0;
                let action = if seat.uplink_dropped { ApplyAction::DROP } else { ApplyAction::FORW };
                let update_fars = vec![UpdateFar { apply_action: Some(action), ..UpdateFar::new(FarId(1)) }];
                self.change(at, SessionModificationRequest { update_fars, ..Default::default() });
            }
            _ => self.burst(at, u64::from(n) | u64::from(which) << 16),
        }
        self.compare_reports();
    }

    /// What is due on the way is seen to when it is.
    fn pass_until(&mut self, to: Instant) {
        let next = |it: &Self| it.seats.iter().flatten().filter_map(|(_, seat)| seat.next()).min();
        while let Some(at) = next(self).filter(|at| *at < to) {
            self.advance(at);
        }
        self.advance(to);
    }

    /// Adds a QoS flow with rates of its own, one of them guaranteed, or takes it away.
    fn flow(&mut self, at: usize, n: u16) {
        let Some((_, seat)) = &mut self.seats[at] else { return };
        let mut m = SessionModificationRequest::default();
        if seat.flow.take().is_some() {
            seat.qers.retain(|q| q.id != FLOW_QER);
            m.remove_pdrs = [5, 6].map(|id| RemovePdr { pdr_id: PdrId(id) }).into();
            m.remove_qers = vec![RemoveQer { qer_id: QerId(FLOW_QER) }];
            return self.change(at, m);
        }
        let mbr = [None, Some([1_000_000_000; 2]), Some([400, 40_000])][usize::from(n) % 3];
        let (mbr, gbr) = (mbr.filter(|_| self.scope.times), [100, 1_000]);
        seat.qers.push(Enforced::new(self.net.now, FLOW_QER, mbr, gbr));
        let mut qer_ids = vec![QerId(FLOW_QER)];
        // Under the session's rate too: of our SMF's two QERs, the one that is of no flow.
        let ours = seat.qers.iter().any(|q| q.id == 2);
        qer_ids.extend(Some(QerId(1)).filter(|_| ours && n & 4 != 0));
        let counted = n & 8 != 0;
        let urr_ids: Vec<_> = seat.accounts.iter().filter(|_| counted).map(|a| UrrId(a.id)).collect();
        seat.flow = Some(Flow { qers: qer_ids.iter().map(|q| q.0).collect(), counted });
        let [mut up, down] = pdis(seat.teid, filters(FLOW_PORT, n >> 4));
        let qfi = Qfi::new(2);
        up.qfis = qfi.into_iter().collect();
        let pdr = |(id, pdi, far)| CreatePdr {
            qer_ids: qer_ids.clone(),
            urr_ids: urr_ids.clone(),
            ..CreatePdr::new(PdrId(id), Precedence(50), pdi, FarId(far))
        };
        m.create_pdrs = [(5, up, 1), (6, down, 2)].map(pdr).into();
        let qer = CreateQer::new(QerId(FLOW_QER));
        m.create_qers = vec![CreateQer { qfi, mbr: mbr.map(rates), gbr: Some(rates(gbr)), ..qer }];
        self.change(at, m);
    }

    /// Adds a tunnel for what a gNB forwards, or takes it away.
    fn relay(&mut self, at: usize) {
        let Some((_, seat)) = &mut self.seats[at] else { return };
        let mut m = SessionModificationRequest::default();
        if let Some((teid, _)) = seat.relay.take() {
            seat.was_relay = Some(teid);
            m.remove_pdrs = vec![RemovePdr { pdr_id: PdrId(9) }];
            m.remove_fars = vec![RemoveFar { far_id: FarId(9) }];
            return self.change(at, m);
        }
        let to = Tunnel { teid: Teid(0x7000_0000 | at as u32), gnb: GNB, tos: 0 };
        let pdi = Pdi {
            f_teid: Some(FTeid::Choose { ipv4: true, ipv6: false, choose_id: None }),
            source_interface_type: Some(InterfaceType::N3_FORWARDING),
            ..Pdi::from(SourceInterface::Access)
        };
        let parameters = ForwardingParameters {
            outer_header_creation: Some(OuterHeaderCreation::gtpu(to.teid, to.gnb.ip())),
            ..ForwardingParameters::to(DestinationInterface::Access)
        };
        m.create_fars = vec![CreateFar::forward(FarId(9), parameters)];
        m.create_pdrs = vec![CreatePdr {
            outer_header_removal: Some(OuterHeaderRemovalDescription::GtpuUdpIp.into()),
            ..CreatePdr::new(PdrId(9), Precedence(1), pdi, FarId(9))
        }];
        let created = self.change_behind(at, None, m).created_pdrs;
        let Some(FTeid::Given { teid, .. }) = created.iter().find_map(|p| p.local_f_teid) else {
            panic!("{created:?}")
        };
        if let Some((_, seat)) = &mut self.seats[at] {
            seat.relay = Some((teid, to));
        }
    }
}

/// Packets to the UE go by this tunnel from now on; the former one gets an end marker, if requested.
fn switch(tunnel: Tunnel, marker: bool) -> SessionModificationRequest {
    let mut m = activation(tunnel.teid, tunnel.gnb.ip());
    if let Some(parameters) = &mut m.update_fars[0].update_forwarding_parameters {
        parameters.transport_level_marking = Some(TransportLevelMarking { value: tunnel.tos, mask: 0xfc });
        parameters.pfcpsmreq_flags = marker.then_some(SessionModificationFlags::SNDEM);
    }
    m
}

fn rates([ul_kbps, dl_kbps]: [u64; 2]) -> QerBitRate {
    QerBitRate { ul_kbps, dl_kbps }
}

/// Of either way, for these filters.
fn pdis(teid: Teid, sdf_filters: Vec<SdfFilter>) -> [Pdi; 2] {
    let up = FTeid::given(teid, UPF.into());
    [(SourceInterface::Access, Some(up)), (SourceInterface::Core, None)].map(|(from, f_teid)| Pdi {
        f_teid,
        sdf_filters: sdf_filters.clone(),
        ..Pdi::from(from)
    })
}

/// Filters of a port of the server: one, or one among several, of which there are now more than are asked one after the other.
pub(super) fn filters(port: u16, n: u16) -> Vec<SdfFilter> {
    let ports = (20_000..20_000 + [0, 1, 15, 15][usize::from(n) % 4]).chain([port]);
    ports.map(|p| SdfFilter::flow(&format!("permit out 17 from any {p} to assigned"))).collect()
}
