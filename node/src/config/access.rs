//! Access policies of the AMF: authentication, slices, emergency services, congestion.

use std::time::Duration;

use whimbrel_control::config as control;
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_ids::{Dnn, FiveQi, SNssai, Tac};
use whimbrel_store::BitRate;

use super::section::Section;
use super::value::{Value, words};

/// The UEs that get emergency services (TS 23.501 §5.16.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmergencyFor {
    /// No UE gets emergency services.
    None,
    /// UEs that are authenticated.
    Authenticated,
    /// All UEs, also without a SIM.
    All,
}

words! { EmergencyFor {
    EmergencyFor::None = "none",
    EmergencyFor::Authenticated = "authenticated",
    EmergencyFor::All = "all",
} }

/// The access policies of the AMF.
#[derive(Clone, Debug)]
pub struct AccessConfig {
    pub authenticate_every: u32,
    pub authenticate_after: Duration,
    pub refused_equipment: Vec<Equipment>,
    pub slice_areas: Vec<At<Tac>>,
    pub slice_limits: Vec<At<u32>>,
    pub mico: bool,
    pub edrx: bool,
    pub rrc_inactive: bool,
    pub rrc_reports: bool,
    pub voice_match: bool,
    pub paging_near: Duration,
    pub emergency: Emergency,
    pub congestion: Congestion,
}

/// Emergency services and the UEs that get them.
#[derive(Clone, Debug)]
pub struct Emergency {
    pub service: EmergencyFor,
    pub slice: SNssai,
    pub dnn: Dnn,
    pub five_qi: u8,
    pub arp_priority: u8,
    pub rate: Rate,
}

/// Congestion control by the operator.
#[derive(Clone, Debug)]
pub struct Congestion {
    pub general: bool,
    pub dnns: Vec<Dnn>,
    pub slices: Vec<SNssai>,
}

/// The first digits of IMEIs.
#[derive(Clone, Debug)]
pub struct Equipment(control::EquipmentPrefix, String);

impl Value for Equipment {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let expected = "8 to 14 digits of an IMEI in quotation marks, such as \"35609204\"";
        control::EquipmentPrefix::new(text).map(|p| Self(p, text.into())).ok_or(expected.into())
    }

    fn show(&self) -> String {
        format!("\"{}\"", self.1)
    }
}

/// Something about a slice: `SLICE@VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At<T>(pub SNssai, pub T);

impl<T: Value> Value for At<T> {
    fn read(text: &str) -> Result<Self, String> {
        let (slice, value) = text.split_once('@').ok_or("a slice, @ and a number, such as 2-0000ab@7")?;
        Ok(Self(SNssai::read(slice)?, T::read(value)?))
    }

    fn show(&self) -> String {
        format!("{}@{}", self.0, self.1.show())
    }
}

/// A bit rate with its unit.
#[derive(Clone, Copy, Debug)]
pub struct Rate(BitRate);

impl Value for Rate {
    fn read(text: &str) -> Result<Self, String> {
        text.trim().parse().map(Self).map_err(|e: whimbrel_ids::ParseIdError| e.expected.into())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Default bit rate of an emergency session: a video call and its signalling.
const EMERGENCY_RATE: &str = "2 Mbps";

pub(super) fn read(root: &mut Section<'_, '_>) -> AccessConfig {
    root.section("access", "Access policies: authentication, slices, idle mode, emergency services, congestion.", |s| AccessConfig {
        authenticate_every: s.value(
            "authenticate_every",
            0u32,
            "A UE is authenticated again after this many registrations under one key (TS 33.501 §6.1.2). 0: only when the key \
             ends.",
        ),
        authenticate_after: s.value(
            "authenticate_after",
            Duration::ZERO,
            "A UE is authenticated again at its next registration when its key is this old. 0s: only when the key ends.",
        ),
        refused_equipment: s.list(
            "refused_equipment",
            vec![],
            "Equipment that is refused, by the first 8 to 14 digits of its IMEI: [\"35609204\"] (TS 23.501 §6.2.16).",
        ),
        slice_areas: s.list(
            "slice_areas",
            vec![],
            "Slices that are available in some tracking areas only: [2@7, 2@8] (TS 23.501 §5.15.5.2.1).",
        ),
        slice_limits: s.list(
            "slice_limits",
            vec![],
            "Most UEs registered for a slice: [2@100] (TS 23.501 §5.15.11). With `store.postgres` in the whole network (docs/postgres.md).",
        ),
        mico: s.value("mico", true, "Allow MICO mode, in which idle UEs are not paged (TS 23.501 §5.4.1.3)."),
        edrx: s.value("edrx", true, "Allow extended DRX, that is, long paging cycles (TS 23.501 §5.31.7.2)."),
        rrc_inactive: s.value(
            "rrc_inactive",
            true,
            "Send gNBs the assistance information for RRC_INACTIVE (TS 23.501 §5.3.3.2.5).",
        ),
        rrc_reports: s.value(
            "rrc_reports",
            false,
            "Request reports of RRC_INACTIVE transitions from gNBs; `whimbrel ue show` shows the state (TS 23.502 §4.8.3).",
        ),
        voice_match: s.value(
            "voice_match",
            false,
            "Ask gNBs whether a UE's radio capabilities support IMS voice; if not, the UE learns it at its next \
             registration. Only with `amf.ims_voice_over_ps` (TS 23.502 §4.2.8a).",
        ),
        paging_near: s.value(
            "paging_near",
            Duration::from_secs(300),
            "A UE that was seen within this time is paged in its last cell first, and in its registration area if it does not answer in 2s \
             (TS 23.501 §5.4.3.2). 0s: in the registration area at once.",
        ),
        emergency: emergency(s),
        congestion: s.section("congestion", "Congestion control: requests to reject, except emergency and high priority ones.", |s| Congestion {
            general: s.value("general", false, "Reject registrations and service requests (T3346, TS 24.501 §5.3.9)."),
            dnns: s.list("dnns", vec![], "Reject new sessions of these data networks (T3396, TS 24.501 §6.2.7)."),
            slices: s.list("slices", vec![], "Reject new sessions in these slices (T3585, TS 24.501 §6.2.8)."),
        }),
    })
}

fn emergency(s: &mut Section<'_, '_>) -> Emergency {
    s.section("emergency", "Emergency services (TS 23.501 §5.16.4).", |s| {
        let emergency = Emergency {
            service: s.value(
                "service",
                EmergencyFor::None,
                "none, authenticated or all: the UEs that get emergency services. all: also UEs without a SIM, whose NAS has then neither \
                 integrity protection nor ciphering (TS 33.501 §10.2.2).",
            ),
            slice: s.value("slice", SNssai::sst(1), "Slice of emergency sessions."),
            dnn: match "sos".parse() {
                Ok(default) => s.value("dnn", default, "DNN of emergency sessions, one of `data_networks`."),
                Err(_) => unreachable!("the default name is valid"),
            },
            five_qi: s.value("five_qi", 5u8, "5QI of the default QoS flow: IMS signalling (TS 23.501 §5.7.4)."),
            arp_priority: s.value(
                "arp_priority",
                1u8,
                "Allocation and retention priority, 1 (highest) to 15: give it to no other session (TS 23.501 §5.16.4.1).",
            ),
            rate: match Rate::read(EMERGENCY_RATE) {
                Ok(default) => s.value("rate", default, "Session AMBR, in each direction."),
                Err(_) => unreachable!("the default rate is valid"),
            },
        };
        let is_priority = (1..=15).contains(&emergency.arp_priority);
        s.bound("arp_priority", is_priority, "the priority is out of bounds", "1 to 15");
        emergency
    })
}

impl AccessConfig {
    /// The policies for the control plane.
    pub(super) fn control(&self) -> control::AccessPolicies {
        let e = &self.emergency;
        let ambr = Ambr { ul_kbps: e.rate.0.kbps(), dl_kbps: e.rate.0.kbps() };
        let mut access = control::AccessPolicies {
            authentication: control::AuthenticationPolicy {
                every_registrations: Some(self.authenticate_every).filter(|n| *n > 0),
                after: Some(self.authenticate_after).filter(|d| !d.is_zero()),
            },
            refused_equipment: self.refused_equipment.iter().map(|e| e.0.clone()).collect(),
            slice_ues_max: self.slice_limits.iter().map(|At(s, n)| (*s, *n)).collect(),
            emergency: (e.service != EmergencyFor::None).then(|| control::Emergency {
                unauthenticated: e.service == EmergencyFor::All,
                s_nssai: e.slice,
                dnn: e.dnn.clone(),
                arp: Arp { priority: e.arp_priority, may_preempt: true, preemptable: false },
                five_qi: FiveQi(e.five_qi),
                ambr,
            }),
            congestion: control::Congestion {
                general: self.congestion.general,
                dnns: self.congestion.dnns.iter().cloned().collect(),
                slices: self.congestion.slices.iter().copied().collect(),
            },
            mico: self.mico,
            edrx: self.edrx,
            rrc_inactive: self.rrc_inactive,
            rrc_reports: self.rrc_reports,
            voice_match: self.voice_match,
            paging_near: self.paging_near,
            ..control::AccessPolicies::default()
        };
        for At(s, tac) in &self.slice_areas {
            access.slice_areas.entry(*s).or_default().insert(*tac);
        }
        access
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn the_policies_reach_the_control_plane() {
        let text = "access:\n  authenticate_every: 5\n  refused_equipment: [\"35609204\"]\n  slice_areas: [2@7, 2@8]\n  \
                    slice_limits: [1@10]\n  emergency:\n    service: all\n    dnn: internet\n  congestion:\n    \
                    dnns: [internet]\n";
        let access = parse(text, std::path::Path::new("w.yaml")).unwrap().control().amf.access;
        assert_eq!(access.authentication.every_registrations, Some(5));
        assert_eq!((access.refused_equipment.len(), access.slice_ues_max.len()), (1, 1));
        assert_eq!(access.slice_areas.values().next().map(|t| t.len()), Some(2));
        let emergency = access.emergency.unwrap();
        assert!(emergency.unauthenticated && emergency.ambr.ul_kbps == 2000 && emergency.arp.priority == 1);
        assert_eq!(access.congestion.dnns.len(), 1);
        let none = super::super::default().control().amf.access;
        assert!(none.emergency.is_none() && none.authentication == Default::default());
    }

    #[test]
    fn emergency_needs_its_data_network() {
        let text = "access:\n  emergency:\n    service: authenticated\n";
        let problems = parse(text, std::path::Path::new("w.yaml")).unwrap_err().to_string();
        assert!(problems.contains("`sos`"), "{problems}");
    }
}
