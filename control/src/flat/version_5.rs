//! Checkpoints of version 5: the fields of a UE and of a session were not grouped, and no veiled UE was intercepted.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::Deserialize;
use whimbrel_ids::{Dnn, FiveQi, Instant, PduSessionId, Pei, SNssai, Seid, Supi, Tai, Tmsi};
use whimbrel_nas::ie::{NgKsi, PduSessionType, SscMode, UeSecurityCapability};
use whimbrel_nas::sm::Pti;
use whimbrel_privacy::msg::SignedGrant;
use whimbrel_security::{KAmf, NasCount, NasSecurityContext};

use super::octets;
use crate::config::UpSecurity;
use crate::envelope::UeId;
use crate::state::{
    self, Ambr, Arp, Connection, Counted, LocationRequests, Marks, Mobility, NextHop, PagingAid,
    PendingChange, QosFlow, Reach, RecentlyReleased, Seen, SessionGrant, SessionQos, SessionUsage, Source,
    Subscription, Target, Tunnel, UeAddress, UeLocation, UeRadio, UeSecurity, UeSlices, UpState, VoiceMatch,
};
use crate::upf::UpfId;

#[derive(Deserialize)]
pub(super) struct UeContext {
    id: UeId,
    clock: u64,
    terms: (u32, u32),
    amf: AmfContext,
    sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    grant: Option<Box<SessionGrant>>,
    veil: Option<Box<VeilSession>>,
}

#[derive(Deserialize)]
struct VeilSession {
    grant: SignedGrant,
    used: (u64, u64),
}

impl From<VeilSession> for state::VeilSession {
    fn from(v: VeilSession) -> Self {
        Self { grant: v.grant, used: v.used, copies_to: None }
    }
}

#[derive(Deserialize)]
struct AmfContext {
    supi: Option<Supi>,
    pei: Option<Pei>,
    registered: bool,
    tmsi: Option<Tmsi>,
    former_tmsi: Option<Tmsi>,
    security: Option<Box<NasSecurityContext>>,
    proposed: Option<Box<NasSecurityContext>>,
    ue_security_capability: Option<UeSecurityCapability>,
    connection: Option<Box<Connection>>,
    tai: Option<Tai>,
    seen: Option<Seen>,
    locating: Option<Box<LocationRequests>>,
    moved: bool,
    registration_area: Box<[Tai]>,
    allowed_nssai: Vec<SNssai>,
    requested_nssai: Box<[SNssai]>,
    emergency: bool,
    authenticated_at: Option<Instant>,
    registrations: u32,
    subscription_stale: bool,
    slicing_changed: bool,
    reach: Option<Box<Reach>>,
    subscription: Option<Arc<Subscription>>,
    #[serde(with = "octets::shared_or_none")]
    radio_capability: Option<Arc<[u8]>>,
    voice_match: VoiceMatch,
    reachable_until: Option<Instant>,
    connection_until: Option<Instant>,
    initial_nas_digest: u64,
    claimed: Option<Supi>,
    k_amf: Option<KAmf>,
    ng_ksi: Option<NgKsi>,
    next_hop: Option<Box<NextHop>>,
    target: Option<Box<Target>>,
    source: Option<Box<Source>>,
    recently_released: Option<Box<RecentlyReleased>>,
    paging_aid: Option<Box<PagingAid>>,
    deregistration_requested: bool,
    reachability_requested: bool,
    as_count: Option<NasCount>,
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
    marks: Marks,
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
    reflects: bool,
    full_rate_integrity: bool,
    pti: Pti,
    usage: (u64, u64),
    counted: Option<Box<Counted>>,
    secondary_usage: Option<Box<(u64, u64)>>,
    emergency: bool,
    up_security: Option<UpSecurity>,
}

impl From<UeContext> for crate::UeContext {
    fn from(p: UeContext) -> Self {
        let sessions = p.sessions.into_iter().map(|(psi, s)| (psi, Box::new((*s).into()))).collect();
        let (clock, terms, amf) = (p.clock, p.terms, p.amf.into());
        let veil = p.veil.map(|veil| Box::new((*veil).into()));
        Self { clock, terms, amf, sessions, grant: p.grant, veil, ..Self::new(p.id) }
    }
}

impl From<AmfContext> for state::AmfContext {
    fn from(a: AmfContext) -> Self {
        Self {
            supi: a.supi,
            pei: a.pei,
            registered: a.registered,
            emergency: a.emergency,
            tmsi: a.tmsi,
            former_tmsi: a.former_tmsi,
            claimed: a.claimed,
            initial_nas_digest: a.initial_nas_digest,
            ue_security_capability: a.ue_security_capability,
            security: UeSecurity {
                current: a.security,
                proposed: a.proposed,
                k_amf: a.k_amf,
                ng_ksi: a.ng_ksi,
                as_count: a.as_count,
                next_hop: a.next_hop,
                authenticated_at: a.authenticated_at,
                registrations: a.registrations,
            },
            connection: a.connection,
            connection_until: a.connection_until,
            recently_released: a.recently_released,
            location: UeLocation {
                tai: a.tai,
                seen: a.seen,
                moved: a.moved,
                registration_area: a.registration_area,
                requests: a.locating,
            },
            slices: UeSlices {
                allowed: a.allowed_nssai,
                requested: a.requested_nssai,
                changed: a.slicing_changed,
            },
            radio: UeRadio {
                capability: a.radio_capability,
                voice_match: a.voice_match,
                paging_aid: a.paging_aid,
            },
            mobility: Mobility { target: a.target, source: a.source, ..Mobility::default() },
            reach: a.reach,
            reachable_until: a.reachable_until,
            reachability_requested: a.reachability_requested,
            subscription: a.subscription,
            subscription_stale: a.subscription_stale,
            deregistration_requested: a.deregistration_requested,
        }
    }
}

impl From<SmContext> for state::SmContext {
    fn from(s: SmContext) -> Self {
        Self {
            psi: s.psi,
            s_nssai: s.s_nssai,
            dnn: s.dnn,
            session_type: s.session_type,
            address: UeAddress { ipv4: s.ipv4, ipv6: s.ipv6, interface_id: s.interface_id },
            qos: SessionQos {
                five_qi: s.five_qi,
                arp: s.arp,
                ambr: s.ambr,
                flows: s.flows,
                marks: s.marks,
                pending_change: s.pending_change,
                filters_max: s.filters_max,
                reflects: s.reflects,
            },
            upf: s.upf,
            cp_seid: s.cp_seid,
            up_seid: s.up_seid,
            n3: s.n3,
            an: s.an,
            forwarding: s.forwarding,
            up: s.up,
            departing: false,
            awaited: s.awaited,
            ssc_mode: s.ssc_mode,
            until: s.until,
            always_on: s.always_on,
            full_rate_integrity: s.full_rate_integrity,
            pti: s.pti,
            usage: SessionUsage { octets: s.usage, counted: s.counted, secondary: s.secondary_usage },
            emergency: s.emergency,
            up_security: s.up_security,
        }
    }
}
