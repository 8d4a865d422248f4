//! The change of a session's rules at the UPF from one set of QoS flows to another: TS 23.502 §4.3.3.2 steps 2a and 12.

use std::net::IpAddr;

use whimbrel_pfcp::ie::{Choice, FTeid, Rqi, UeIpAddress};
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::{CreatePdr, RemovePdr, RemoveQer, UpdatePdr, UpdateQer};

use super::rules::{Pdrs, SESSION_QER, create_qer, gate, qer_id, rates, rules_of};
use crate::config::RuleForm;
use crate::policy::{FlowGate, Gbr};
use crate::state::{Ambr, QosFlow, SmContext, Tunnel};

impl Pdrs<'_> {
    /// PDRs of an existing session, with the UPF's tunnel and address.
    fn standing(s: &SmContext, form: RuleForm) -> Option<Pdrs<'_>> {
        let Tunnel { teid, address } = s.n3?;
        let (ipv4, ipv6) = match address {
            IpAddr::V4(a) => (Some(a), None),
            IpAddr::V6(a) => (None, Some(a)),
        };
        let address = (s.address.ipv4.is_some() || s.address.ipv6.is_some()).then(|| UeIpAddress {
            destination: true,
            ipv4: s.address.ipv4.map(Choice::Given),
            ipv6: s.address.ipv6.map(Choice::Given),
            ..UeIpAddress::default()
        });
        let f_teid = FTeid::Given { teid, ipv4, ipv6 };
        Some(Pdrs { session: s, f_teid, address, form })
    }
}

/// The change, in two halves, so that no packet uses a flow that its receiver does not know: first new uplink rules are
/// added and old downlink rules removed, then the reverse.
pub(super) struct RuleChange<'a> {
    /// The session with its present flows.
    pub(super) session: &'a SmContext,
    /// The new flows.
    pub(super) flows: &'a [QosFlow],
    /// The new AMBR.
    pub(super) ambr: Ambr,
    /// The form of its rules.
    pub(super) form: RuleForm,
}

impl RuleChange<'_> {
    /// Before gNB and UE change: adds uplink rules of new flows, removes downlink rules of old ones.
    pub(super) fn before(&self) -> SessionModificationRequest {
        let mut m = SessionModificationRequest::default();
        self.add(true, &mut m);
        self.remove(false, &mut m);
        for flow in self.flows {
            match self.session.flow(flow.qfi) {
                None => m.create_qers.push(create_qer(flow)),
                Some(old) if enforced(old) != enforced(flow) => m.update_qers.push(update(flow)),
                Some(_) => {}
            }
        }
        if self.ambr != self.session.qos.ambr {
            m.update_qers.push(session_rate(self.ambr));
        }
        m
    }

    /// After their answers: adds downlink rules of new flows, removes uplink rules of old ones.
    pub(super) fn after(&self) -> SessionModificationRequest {
        let mut m = SessionModificationRequest::default();
        self.add(false, &mut m);
        self.remove(true, &mut m);
        let gone = self.session.qos.flows.iter().filter(|f| self.flows.iter().all(|g| g.qfi != f.qfi));
        m.remove_qers = gone.map(|f| RemoveQer { qer_id: qer_id(f.qfi) }).collect();
        m
    }

    /// The request that undoes the change, back to `before`.
    pub(super) fn undo(&self) -> SessionModificationRequest {
        let mut m = SessionModificationRequest::default();
        let Some(pdrs) = Pdrs::standing(self.session, self.form) else { return m };
        for (flow, rule) in rules_of(self.flows) {
            let Some(now) = pdrs.dedicated(flow, rule, true) else { continue };
            match self.standing_pdr(&pdrs, rule.id, true) {
                None => m.remove_pdrs.push(RemovePdr { pdr_id: now.pdr_id }),
                Some(old) if old != now => m.update_pdrs.push(updated(old)),
                Some(_) => {}
            }
        }
        for (flow, rule) in rules_of(&self.session.qos.flows).filter(|(_, r)| !self.keeps(&pdrs, r.id, false))
        {
            m.create_pdrs.extend(pdrs.dedicated(flow, rule, false));
        }
        for flow in self.flows {
            match self.session.flow(flow.qfi) {
                None => m.remove_qers.push(RemoveQer { qer_id: qer_id(flow.qfi) }),
                Some(old) if enforced(old) != enforced(flow) => m.update_qers.push(update(old)),
                Some(_) => {}
            }
        }
        if self.ambr != self.session.qos.ambr {
            m.update_qers.push(session_rate(self.session.qos.ambr));
        }
        m
    }

    fn add(&self, uplink: bool, m: &mut SessionModificationRequest) {
        let Some(pdrs) = Pdrs::standing(self.session, self.form) else { return };
        for (flow, rule) in rules_of(self.flows) {
            let Some(new) = pdrs.dedicated(flow, rule, uplink) else { continue };
            match self.standing_pdr(&pdrs, rule.id, uplink) {
                None => m.create_pdrs.push(new),
                Some(old) if old != new => m.update_pdrs.push(updated(new)),
                Some(_) => {}
            }
        }
    }

    fn remove(&self, uplink: bool, m: &mut SessionModificationRequest) {
        let Some(pdrs) = Pdrs::standing(self.session, self.form) else { return };
        for (flow, rule) in
            rules_of(&self.session.qos.flows).filter(|(_, r)| !self.keeps(&pdrs, r.id, uplink))
        {
            if let Some(pdr) = pdrs.dedicated(flow, rule, uplink) {
                m.remove_pdrs.push(RemovePdr { pdr_id: pdr.pdr_id });
            }
        }
    }

    /// The PDR identifier of a rule.
    fn standing_pdr(&self, pdrs: &Pdrs<'_>, rule: u8, uplink: bool) -> Option<CreatePdr> {
        let (flow, rule) = rules_of(&self.session.qos.flows).find(|(_, r)| r.id == rule)?;
        pdrs.dedicated(flow, rule, uplink)
    }

    /// Whether the rule has a PDR of this direction after the change.
    fn keeps(&self, pdrs: &Pdrs<'_>, rule: u8, uplink: bool) -> bool {
        rules_of(self.flows).any(|(f, r)| r.id == rule && pdrs.dedicated(f, r, uplink).is_some())
    }
}

fn session_rate(ambr: Ambr) -> UpdateQer {
    let mut qer = UpdateQer::new(SESSION_QER);
    qer.mbr = Some(rates(ambr));
    qer
}

/// Whether a modification has content.
pub(super) fn is_empty(m: &SessionModificationRequest) -> bool {
    *m == SessionModificationRequest::default()
}

/// The part of a flow that its QER has.
fn enforced(flow: &QosFlow) -> (FlowGate, Option<Gbr>, bool) {
    (flow.gate, flow.gbr, flow.reflective)
}

fn updated(new: CreatePdr) -> UpdatePdr {
    let mut pdr = UpdatePdr::new(new.pdr_id);
    pdr.far_id = new.far_id;
    (pdr.precedence, pdr.pdi, pdr.qer_ids) = (Some(new.precedence), Some(new.pdi), new.qer_ids);
    pdr
}

fn update(flow: &QosFlow) -> UpdateQer {
    let mut qer = UpdateQer::new(qer_id(flow.qfi));
    qer.gate_status = Some(gate(flow.gate));
    qer.rqi = Some(if flow.reflective { Rqi::RQI } else { Rqi::default() });
    qer.mbr = flow.gbr.map(|g| rates(g.maximum));
    qer.gbr = flow.gbr.map(|g| rates(g.guaranteed));
    qer
}
