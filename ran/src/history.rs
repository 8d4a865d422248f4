//! The state that a UE and its gNB have from the core: its history shows whether a core has gone back to an older state.

use core::fmt;

use whimbrel_ids::{Guti, PduSessionId, Qfi};

use crate::cells::Cells;
use crate::gnb::Gnb;
use crate::radio::UeId;
use crate::ue::SessionInfo;

/// The state that a UE and its gNB hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    /// The UE's last 5G-GUTI.
    pub guti: Option<Guti>,
    /// The UE's sessions.
    pub sessions: Vec<HeldSession>,
    /// The active sessions, as last received by the gNB.
    pub at_gnb: Vec<HeldQos>,
}

/// A session as the UE has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// Its address, or a substitute.
    pub address: String,
    /// QoS of the session.
    pub qos: HeldQos,
}

/// The QoS of a session, which both UE and gNB have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldQos {
    /// Identity of the session.
    pub id: PduSessionId,
    /// Its flows, in their order.
    pub flows: Vec<Qfi>,
    /// Session AMBR, downlink and uplink, kbit/s.
    pub ambr_kbps: (u64, u64),
}

impl HeldSession {
    fn of(info: &SessionInfo) -> Self {
        let mut flows: Vec<Qfi> = info.rules.iter().filter_map(|r| Some(r.binding.as_ref()?.qfi)).collect();
        flows.sort_unstable();
        flows.dedup();
        let address = info
            .ipv4
            .map(|a| a.to_string())
            .or(info.interface_id.map(|id| format!("{id:02x?}").replace(", ", "")));
        let address = address.unwrap_or_else(|| "none".into());
        Self { address, qos: HeldQos { id: info.id, flows, ambr_kbps: info.ambr_kbps } }
    }
}

impl Cells {
    /// The present state of a UE and its gNB.
    pub fn holds(&self, id: UeId) -> Option<Holds> {
        let ue = self.ue(id)?;
        let gnb = self.gnb_of(id).and_then(|gnb| self.gnb(gnb));
        Some(Holds {
            guti: ue.guti(),
            sessions: ue.sessions().map(HeldSession::of).collect(),
            at_gnb: gnb.map(|gnb| at(gnb, id)).unwrap_or_default(),
        })
    }
}

fn at(gnb: &Gnb, ue: UeId) -> Vec<HeldQos> {
    let mut held: Vec<HeldQos> = gnb.qos_of(ue).collect();
    held.iter_mut().for_each(|qos| qos.flows.sort_unstable());
    held
}

/// `1,9:1000000/1000000`: flows, and AMBR.
impl fmt::Display for HeldQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, qfi) in self.flows.iter().enumerate() {
            write!(f, "{}{}", if at == 0 { "" } else { "," }, qfi.value())?;
        }
        write!(f, ":{}/{}", self.ambr_kbps.0, self.ambr_kbps.1)
    }
}

/// One line of `NAME=VALUE`: `guti`; for session 1 the UE's `address1` and `qos1`, and the gNB's `gnb1`.
impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holds")?;
        if let Some(Guti { guami, tmsi }) = self.guti {
            let [region, set, pointer] = guami.amf_id.octets();
            write!(f, " guti={}-{region:02x}{set:02x}{pointer:02x}-{tmsi:?}", guami.plmn)?;
        }
        for HeldSession { address, qos } in &self.sessions {
            write!(f, " address{0}={address} qos{0}={qos}", qos.id)?;
        }
        self.at_gnb.iter().try_for_each(|qos| write!(f, " gnb{}={qos}", qos.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_each_value_by_its_name() {
        let id = PduSessionId::new(2).unwrap();
        let qfi = |n| Qfi::new(n).unwrap();
        let qos = HeldQos { id, flows: vec![qfi(1), qfi(9)], ambr_kbps: (1000, 200) };
        let sessions = vec![HeldSession { address: "10.45.0.7".into(), qos: qos.clone() }];
        let holds = Holds { guti: None, sessions, at_gnb: vec![qos] };
        assert_eq!(holds.to_string(), "Holds address2=10.45.0.7 qos2=1,9:1000/200 gnb2=1,9:1000/200");
    }
}
