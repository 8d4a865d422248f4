//! Checkpoints of version 2: without markings, reflective QoS and application rules.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::Deserialize;
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Qfi, SNssai, Seid};
use whimbrel_nas::ie::{PacketFilter, PduSessionType, SscMode};
use whimbrel_nas::sm::Pti;

use crate::config::UpSecurity;
use crate::envelope::UeId;
use crate::policy::{FlowGate, FlowName, Gbr};
use crate::state::{self, Ambr, AmfContext, Arp, Counted, Marks, Tunnel, UpState};
use crate::upf::UpfId;

#[derive(Deserialize)]
pub(super) struct UeContext {
    id: UeId,
    clock: u64,
    terms: (u32, u32),
    amf: AmfContext,
    sessions: BTreeMap<PduSessionId, SmContext>,
}

#[derive(Deserialize)]
struct SmContext {
    psi: PduSessionId,
    s_nssai: SNssai,
    dnn: Dnn,
    session_type: PduSessionType,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    interface_id: [u8; 8],
    five_qi: FiveQi,
    arp: Arp,
    ambr: Ambr,
    flows: Vec<QosFlow>,
    pending_change: Option<Box<PendingChange>>,
    filters_max: u16,
    upf: UpfId,
    cp_seid: Seid,
    up_seid: Option<Seid>,
    n3: Option<Tunnel>,
    an: Option<Box<Tunnel>>,
    forwarding: Option<u8>,
    up: UpState,
    awaited: bool,
    ssc_mode: SscMode,
    until: Instant,
    always_on: bool,
    full_rate_integrity: bool,
    pti: Pti,
    usage: (u64, u64),
    counted: Option<Box<Counted>>,
    secondary_usage: Option<Box<(u64, u64)>>,
    emergency: bool,
    up_security: Option<UpSecurity>,
}

#[derive(Deserialize)]
struct QosFlow {
    qfi: Qfi,
    name: FlowName,
    five_qi: FiveQi,
    arp: Arp,
    gbr: Option<Gbr>,
    gate: FlowGate,
    rules: Vec<FlowRule>,
    of_ue: bool,
    fulfilled: bool,
}

#[derive(Deserialize)]
struct FlowRule {
    id: u8,
    precedence: u8,
    filters: Vec<PacketFilter>,
}

#[derive(Deserialize)]
struct PendingChange {
    flows: Vec<QosFlow>,
    ambr: Ambr,
    five_qi: FiveQi,
    arp: Arp,
    leaving: bool,
}

impl From<FlowRule> for state::FlowRule {
    fn from(r: FlowRule) -> Self {
        Self { id: r.id, precedence: r.precedence, filters: r.filters, application: None }
    }
}

impl From<QosFlow> for state::QosFlow {
    fn from(f: QosFlow) -> Self {
        Self {
            qfi: f.qfi,
            name: f.name,
            five_qi: f.five_qi,
            arp: f.arp,
            gbr: f.gbr,
            gate: f.gate,
            rules: f.rules.into_iter().map(Into::into).collect(),
            mark: 0,
            reflective: false,
            of_ue: f.of_ue,
            fulfilled: f.fulfilled,
        }
    }
}

impl From<PendingChange> for state::PendingChange {
    fn from(w: PendingChange) -> Self {
        let flows = w.flows.into_iter().map(Into::into).collect();
        Self { flows, ambr: w.ambr, five_qi: w.five_qi, arp: w.arp, leaving: w.leaving }
    }
}

impl From<UeContext> for crate::UeContext {
    fn from(p: UeContext) -> Self {
        let sessions = p.sessions.into_iter().map(|(psi, s)| (psi, Box::new(s.into()))).collect();
        Self { clock: p.clock, terms: p.terms, amf: p.amf, sessions, ..Self::new(p.id) }
    }
}

impl From<SmContext> for state::SmContext {
    fn from(s: SmContext) -> Self {
        Self {
            psi: s.psi,
            s_nssai: s.s_nssai,
            dnn: s.dnn,
            session_type: s.session_type,
            ipv4: s.ipv4,
            ipv6: s.ipv6,
            interface_id: s.interface_id,
            five_qi: s.five_qi,
            arp: s.arp,
            ambr: s.ambr,
            flows: s.flows.into_iter().map(Into::into).collect(),
            marks: Marks::default(),
            pending_change: s.pending_change.map(|w| Box::new((*w).into())),
            filters_max: s.filters_max,
            upf: s.upf,
            cp_seid: s.cp_seid,
            up_seid: s.up_seid,
            n3: s.n3,
            an: s.an,
            forwarding: s.forwarding,
            up: s.up,
            awaited: s.awaited,
            ssc_mode: s.ssc_mode,
            until: s.until,
            always_on: s.always_on,
            reflects: false,
            full_rate_integrity: s.full_rate_integrity,
            pti: s.pti,
            usage: s.usage,
            counted: s.counted,
            secondary_usage: s.secondary_usage,
            emergency: s.emergency,
            up_security: s.up_security,
            departing: false,
        }
    }
}
