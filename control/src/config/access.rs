//! Access policies of the AMF: admission, authentication, and rejection under congestion.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, FiveQi, Pei, SNssai, Tac, Tai};
use whimbrel_nas::ie::SscMode;

use crate::state::{Ambr, Arp, SessionTypes, SubscribedDnn};

/// The policies; by default the mandatory parts of the standard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AccessPolicies {
    /// How often a UE is authenticated again.
    pub authentication: AuthenticationPolicy,
    /// Equipment that gets no service, by the first digits of its IMEI (TS 23.501 §6.2.16, the 5G-EIR's list).
    pub refused_equipment: Vec<EquipmentPrefix>,
    /// Tracking areas in which a slice is available; a slice without an entry is available everywhere (TS 23.501
    /// §5.15.5.2.1).
    pub slice_areas: BTreeMap<SNssai, BTreeSet<Tac>>,
    /// Most UEs registered for a slice at once (network slice admission control, TS 23.501 §5.15.11).
    pub slice_ues_max: BTreeMap<SNssai, u32>,
    /// Emergency service, if there is one.
    pub emergency: Option<Emergency>,
    /// What is rejected under congestion.
    pub congestion: Congestion,
    /// UEs may use MICO mode (TS 23.501 §5.4.1.3).
    pub mico: bool,
    /// UEs may use eDRX (TS 23.501 §5.31.7.2).
    pub edrx: bool,
    /// The longest periodic registration timer that a UE may ask for.
    pub t3512_max: Duration,
    /// gNBs get RRC Inactive Assistance Information (TS 23.501 §5.3.3.2.5).
    pub rrc_inactive: bool,
    /// gNBs are asked whether a UE's radio carries IMS voice (TS 23.502 §4.2.8a).
    pub voice_match: bool,
    /// gNBs report each change of a UE's RRC state (TS 23.502 §4.8.3).
    pub rrc_reports: bool,
    /// A UE that was seen within this time is paged first in that cell, then in its whole registration area (TS 23.501
    /// §5.4.3.2).
    pub paging_near: Duration,
}

impl Default for AccessPolicies {
    fn default() -> Self {
        Self {
            authentication: AuthenticationPolicy::default(),
            refused_equipment: Vec::new(),
            slice_areas: BTreeMap::new(),
            slice_ues_max: BTreeMap::new(),
            emergency: None,
            congestion: Congestion::default(),
            mico: true,
            edrx: true,
            t3512_max: Duration::from_secs(3 * 24 * 3600), // an absent UE keeps its context for so long
            rrc_inactive: true,
            voice_match: false,                       // it costs a message for each UE
            rrc_reports: false,                       // each is a message that only the operator reads
            paging_near: Duration::from_secs(5 * 60), // most UEs stay in one cell for minutes; those in cars do not
        }
    }
}

impl AccessPolicies {
    /// Whether a slice is available in a tracking area.
    pub fn offers(&self, s_nssai: SNssai, tai: Tai) -> bool {
        self.slice_areas.get(&s_nssai).is_none_or(|tacs| tacs.contains(&tai.tac))
    }

    /// Whether equipment is on the list of those that get no service.
    pub fn refuses(&self, pei: Pei) -> bool {
        self.refused_equipment.iter().any(|prefix| prefix.begins(pei))
    }
}

/// When the AMF authenticates a UE although the standard does not demand it (TS 33.501 §6.1.2, §6.12.1: the operator's
/// policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthenticationPolicy {
    /// After this number of registrations under one key; `None`: unlimited.
    pub every_registrations: Option<u32>,
    /// At the next registration once the key is this old; `None`: unlimited.
    pub after: Option<Duration>,
}

/// The first digits of an IMEI: 8 name a type of equipment, 14 one UE (TS 23.003 §6.2.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EquipmentPrefix(Vec<u8>);

impl EquipmentPrefix {
    /// From 8 to 14 digits as text; `None` for anything else.
    pub fn new(digits: &str) -> Option<Self> {
        let own: Vec<u8> = digits.bytes().filter(u8::is_ascii_digit).map(|c| c - b'0').collect();
        ((8..=14).contains(&own.len()) && own.len() == digits.len()).then_some(Self(own))
    }

    fn begins(&self, pei: Pei) -> bool {
        let mut digits = pei.digits();
        self.0.iter().all(|d| digits.next() == Some(*d))
    }
}

/// Emergency configuration data of the AMF, used instead of the subscription (TS 23.501 §5.16.4.3).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Emergency {
    /// UEs that cannot be authenticated get it too, with null integrity and null ciphering (TS 33.501 §5.5.2, §10.2.2).
    pub unauthenticated: bool,
    /// Slice of emergency sessions.
    pub s_nssai: SNssai,
    /// Its data network.
    pub dnn: Dnn,
    /// Allocation and retention priority: reserved for emergency (TS 23.501 §5.16.4.1).
    pub arp: Arp,
    /// 5QI of its default QoS flow.
    pub five_qi: FiveQi,
    /// Its bit rate, of the UE and of the session.
    pub ambr: Ambr,
}

impl Emergency {
    /// The terms of an emergency session.
    pub fn terms(&self) -> SubscribedDnn {
        SubscribedDnn {
            dnn: self.dnn.clone(),
            default: true,
            session_types: SessionTypes { ipv4: true, ipv6: true, ..SessionTypes::NONE },
            five_qi: self.five_qi,
            arp: self.arp,
            session_ambr: self.ambr,
            static_ipv4: None,
            static_ipv6: None,
            up_security: None,
            ssc_mode: SscMode::One,
            flows: Default::default(),
            framed_routes: Vec::new(),
        }
    }
}

/// NAS level congestion control (TS 23.501 §5.19.7, TS 24.501 §5.3.9, §6.2.7, §6.2.8). Emergency and high priority are
/// exempt.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Congestion {
    /// New registrations and service requests are rejected (T3346).
    pub general: bool,
    /// New sessions of these data networks are rejected (T3396).
    pub dnns: BTreeSet<Dnn>,
    /// New sessions in these slices are rejected (T3585).
    pub slices: BTreeSet<SNssai>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.003 §6.2.1
    fn equipment_by_its_first_digits() {
        let pei = Pei::from_digits("3560920400000101".bytes().map(|c| c - b'0')).unwrap();
        let begins = |digits: &str| EquipmentPrefix::new(digits).unwrap().begins(pei);
        assert!(begins("35609204") && begins("35609204000001"));
        assert!(!begins("35609205") && !begins("35609204000002"));
        for wrong in ["3560920", "356092040000011", "3560920x", ""] {
            assert_eq!(EquipmentPrefix::new(wrong), None, "{wrong}");
        }
    }
}
