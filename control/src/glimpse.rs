//! A phone as an operator sees it: no keys, no procedures.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, PduSessionId, Pei, SNssai, Seid, Supi, Tai, Tmsi};

use crate::envelope::PhoneId;
use crate::phone::{Connection, Phone, Seen};
use crate::smf::{SmContext, UpState};
use crate::upf::UpfId;

/// What is shown of a phone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glimpse {
    /// Whose.
    pub id: PhoneId,
    /// The subscriber, once authenticated.
    pub supi: Option<Supi>,
    /// The equipment, once told under protection.
    pub pei: Option<Pei>,
    /// 5GMM-REGISTERED.
    pub registered: bool,
    /// The 5G-TMSI in force.
    pub tmsi: Option<Tmsi>,
    /// The N2 connection.
    pub connection: Option<Connection>,
    /// Where the phone was last seen.
    pub tai: Option<Tai>,
    /// The cell there, and when that was.
    pub seen: Option<Seen>,
    /// The slices that the phone may use.
    pub allowed_nssai: Vec<SNssai>,
    /// Its PDU sessions, by identity.
    pub sessions: Vec<SessionGlimpse>,
}

/// What is shown of a PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGlimpse {
    /// Its identity.
    pub psi: PduSessionId,
    /// Its data network.
    pub dnn: Dnn,
    /// Its slice.
    pub s_nssai: SNssai,
    /// The phone's IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// The phone's /64 prefix.
    pub ipv6: Option<Ipv6Addr>,
    /// Whether packets can flow to and from the gNB.
    pub active: bool,
    /// The UPF that has it, and its name there.
    pub upf: (UpfId, Option<Seid>),
    /// Octets uplink and downlink that the UPF has reported.
    pub usage: (u64, u64),
    /// Of these, over a secondary radio as gNBs reported (TS 38.413 §9.3.1.142).
    pub secondary_usage: (u64, u64),
}

impl Glimpse {
    /// Of a phone, whatever it is at.
    pub fn of(phone: &Phone) -> Self {
        let amf = &phone.amf;
        Self {
            id: phone.id,
            supi: amf.supi,
            pei: amf.pei,
            registered: amf.registered,
            tmsi: amf.tmsi,
            connection: amf.connection.as_deref().cloned(),
            tai: amf.tai,
            seen: amf.seen.clone(),
            allowed_nssai: amf.allowed_nssai.clone(),
            sessions: phone.sessions.values().map(|s| SessionGlimpse::of(s)).collect(),
        }
    }
}

impl SessionGlimpse {
    fn of(session: &SmContext) -> Self {
        Self {
            psi: session.psi,
            dnn: session.dnn.clone(),
            s_nssai: session.s_nssai,
            ipv4: session.ipv4,
            ipv6: session.ipv6,
            active: session.up == UpState::Active,
            upf: (session.upf, session.up_seid),
            usage: session.usage,
            secondary_usage: session.secondary_usage.as_deref().copied().unwrap_or_default(),
        }
    }
}
