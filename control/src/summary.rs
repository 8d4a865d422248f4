//! A UE as shown to an operator: without keys and procedures.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Pei, Qfi, SNssai, Seid, Supi, Tai, Tmsi};

use crate::envelope::UeId;
use crate::policy::Gbr;
use crate::procedure::Lane;
use crate::smf;
use crate::state::{Ambr, Arp, Connection, DEFAULT_QFI, LastSeenCell, SmContext, Tunnel, UeContext, UpState};
use crate::upf::UpfId;

/// The summary of a UE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeSummary {
    /// The UE, by its slot.
    pub id: UeId,
    /// The subscriber, once authenticated.
    pub supi: Option<Supi>,
    /// The equipment, once received under protection.
    pub pei: Option<Pei>,
    /// True in 5GMM-REGISTERED.
    pub registered: bool,
    /// The 5G-TMSI in force.
    pub tmsi: Option<Tmsi>,
    /// The N2 connection.
    pub connection: Option<Connection>,
    /// Where the UE was last seen.
    pub tai: Option<Tai>,
    /// The cell, and when.
    pub seen: Option<LastSeenCell>,
    /// The slices that the UE may use.
    pub allowed_nssai: Vec<SNssai>,
    /// Identities of its NAS algorithms in force, integrity and ciphering (TS 33.501 §5.11.1).
    pub algorithms: Option<(u8, u8)>,
    /// UE-AMBR: as subscribed, and as used for the active sessions (TS 23.501 §5.7.2.6).
    pub ue_ambr: Option<(Ambr, Ambr)>,
    /// The running timers.
    pub timers: Vec<RunningTimer>,
    /// Its PDU sessions, by identity.
    pub sessions: Vec<SessionSummary>,
}

/// A running timer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningTimer {
    /// Its name: the standard's where it has one (TS 24.501 §10.2, §10.3).
    pub name: String,
    /// Its PDU session; `None`: the UE as a whole.
    pub session: Option<PduSessionId>,
    /// When it expires.
    pub until: Instant,
}

/// The summary of a PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Identity of the session.
    pub psi: PduSessionId,
    /// Its data network.
    pub dnn: Dnn,
    /// Slice of the session.
    pub s_nssai: SNssai,
    /// The UE's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The UE's /64 prefix.
    pub ipv6: Option<Ipv6Addr>,
    /// Whether its user plane is active.
    pub active: bool,
    /// Its UPF and UP SEID.
    pub upf: (UpfId, Option<Seid>),
    /// The UPF's end of its N3 tunnel.
    pub n3: Option<Tunnel>,
    /// The gNB's end, while there is a user plane.
    pub an: Option<Tunnel>,
    /// Session AMBR in both directions.
    pub ambr: Ambr,
    /// SSC mode, 1 to 3.
    pub ssc_mode: u8,
    /// Its QoS flows, the default one first.
    pub flows: Vec<FlowSummary>,
    /// A change of it is in progress, or waits for the UE.
    pub changing: bool,
    /// Octets uplink and downlink that the UPF has reported.
    pub usage: (u64, u64),
    /// The part of these over a secondary RAT, as reported by gNBs (TS 38.413 §9.3.1.142).
    pub secondary_usage: (u64, u64),
}

/// The summary of a QoS flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Identifier of the QoS flow.
    pub qfi: Qfi,
    /// The name of its policy; empty for the default flow, and for one that the UE requested.
    pub name: String,
    /// 5QI of the flow.
    pub five_qi: FiveQi,
    /// Allocation and retention priority.
    pub arp: Arp,
    /// The rates of a GBR flow.
    pub gbr: Option<Gbr>,
    /// Whether packets pass uplink and downlink.
    pub gate: (bool, bool),
    /// The gNB fulfils its guarantee, as last reported (TS 23.501 §5.7.2.4).
    pub fulfilled: bool,
}

impl UeSummary {
    /// The summary of a UE in any state.
    pub fn of(ue: &UeContext) -> Self {
        let amf = &ue.amf;
        Self {
            id: ue.id,
            supi: amf.supi,
            pei: amf.pei,
            registered: amf.registered,
            tmsi: amf.tmsi,
            connection: amf.connection.as_deref().cloned(),
            tai: amf.location.tai,
            seen: amf.location.seen.clone(),
            allowed_nssai: amf.slices.allowed.clone(),
            algorithms: amf
                .security
                .current
                .as_ref()
                .map(|s| (s.integrity().identity(), s.ciphering().identity())),
            ue_ambr: amf.subscription.as_ref().map(|s| s.ue_ambr).zip(smf::aggregate(ue, &[])),
            timers: timers(ue),
            sessions: ue.sessions.values().map(|s| SessionSummary::of(s)).collect(),
        }
    }
}

fn timers(ue: &UeContext) -> Vec<RunningTimer> {
    let timer = |name: &str, session, until| RunningTimer { name: name.into(), session, until };
    let awaited = ue.lanes.timers().map(|(lane, name, until)| {
        let session = match lane {
            Lane::Session(psi) | Lane::PendingSetup(psi) | Lane::Charging(psi) | Lane::Policy(psi) => {
                Some(psi)
            }
            Lane::Mobility | Lane::Handover => None,
        };
        timer(name, session, until)
    });
    let of_ue = [
        ("mobile reachable and implicit deregistration", ue.amf.implicit_deregistration_at),
        ("T3324", ue.amf.reach().pageable_until.filter(|_| ue.amf.connection.is_none())),
        ("connection idle", ue.amf.inactivity_deadline),
    ];
    let of_ue = of_ue.into_iter().filter_map(|(name, until)| Some(timer(name, None, until?)));
    let leaving = ue.sessions.values().filter(|s| s.is_leaving());
    let lifetimes = leaving.map(|s| timer("PDU session address lifetime", Some(s.psi), s.until));
    awaited.chain(of_ue).chain(lifetimes).collect()
}

impl SessionSummary {
    fn of(session: &SmContext) -> Self {
        Self {
            psi: session.psi,
            dnn: session.dnn.clone(),
            s_nssai: session.s_nssai,
            ipv4: session.address.ipv4,
            ipv6: session.address.ipv6,
            active: session.up == UpState::Active,
            upf: (session.upf, session.up_seid),
            n3: session.n3,
            an: session.an.as_deref().copied(),
            ambr: session.qos.ambr,
            ssc_mode: session.ssc_mode as u8,
            flows: flows(session),
            changing: session.qos.pending_change.is_some(),
            usage: session.usage.octets,
            secondary_usage: session.usage.secondary.as_deref().copied().unwrap_or_default(),
        }
    }
}

fn flows(session: &SmContext) -> Vec<FlowSummary> {
    let default = FlowSummary {
        qfi: DEFAULT_QFI,
        name: String::new(),
        five_qi: session.qos.five_qi,
        arp: session.qos.arp,
        gbr: None,
        gate: (true, true),
        fulfilled: true,
    };
    let others = session.qos.flows.iter().map(|f| FlowSummary {
        qfi: f.qfi,
        name: f.name.to_string(),
        five_qi: f.five_qi,
        arp: f.arp,
        gbr: f.gbr,
        gate: (f.gate.uplink, f.gate.downlink),
        fulfilled: f.fulfilled,
    });
    std::iter::once(default).chain(others).collect()
}
