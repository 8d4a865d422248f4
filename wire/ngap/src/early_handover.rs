//! A source gNB that hands its container over early, so that the target of a predicted handover can be prepared (Synergy §III-C).
//!
//! NGAP has no message for it: HANDOVER REQUIRED begins a handover (TS 38.413 §8.4.1). These PDUs are ours. They travel in NRPPa transport of
//! the UE (§8.10.2, §8.10.3) under a Routing ID of ours, so that a gNB that does not know them drops them.

use whimbrel_ids::{GlobalGnbId, PlmnId, Tac, Tai};

use crate::ie::{GlobalRanNodeId, TargetId};
use crate::msg::HandoverRequired;

/// Marks the PDUs, and their version.
const MAGIC: [u8; 4] = *b"WHE1";
const ASK: u8 = 1;
const REQUIRED: u8 = 2;

/// One of the PDUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EarlyHandover {
    /// To the serving gNB: what HANDOVER REQUIRED would say for this target.
    Ask {
        /// The target gNB.
        gnb: GlobalGnbId,
        /// The tracking area there.
        tai: Tai,
    },
    /// Its answer: an NGAP message HANDOVER REQUIRED, which does not begin the handover.
    Required(Vec<u8>),
}

impl EarlyHandover {
    /// The Routing ID of these PDUs (TS 38.413 §9.3.3.13).
    pub const ROUTING_ID: [u8; 14] = *b"early-handover";

    /// The encoded form, as it is sent.
    #[must_use]
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match self {
            Self::Ask { gnb, tai } => {
                out.push(ASK);
                out.extend(gnb.plmn.ngap_octets());
                out.push(gnb.bits());
                out.extend(gnb.gnb_id.to_be_bytes());
                out.extend(tai.plmn.ngap_octets());
                out.extend(tai.tac.octets());
            }
            Self::Required(octets) => {
                out.push(REQUIRED);
                out.extend(octets);
            }
        }
        out
    }

    /// Reads a PDU; `None` if it is none of these.
    #[must_use]
    pub fn read(octets: &[u8]) -> Option<Self> {
        match octets.strip_prefix(&MAGIC)?.split_first()? {
            (&ASK, rest) => {
                let (plmn, rest) = rest.split_first_chunk()?;
                let (&[bits], rest) = rest.split_first_chunk()?;
                let (id, rest) = rest.split_first_chunk()?;
                let (tai_plmn, rest) = rest.split_first_chunk()?;
                let tac: [u8; 3] = rest.try_into().ok()?;
                let gnb = GlobalGnbId::new(PlmnId::from_ngap_octets(*plmn)?, u32::from_be_bytes(*id), bits)?;
                let tai = Tai { plmn: PlmnId::from_ngap_octets(*tai_plmn)?, tac: Tac::from_octets(tac) };
                Some(Self::Ask { gnb, tai })
            }
            (&REQUIRED, rest) => Some(Self::Required(rest.to_vec())),
            _ => None,
        }
    }

    /// The gNB that HANDOVER REQUIRED names.
    #[must_use]
    pub fn target(m: &HandoverRequired) -> Option<GlobalGnbId> {
        let TargetId::TargetRanNodeId(target) = &m.target_id else { return None };
        match target.global_ran_node_id {
            GlobalRanNodeId::GlobalGnbId(gnb) => Some(gnb),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pdus_are_read_as_written_and_nothing_else_is_read() {
        let gnb = GlobalGnbId::new(PlmnId::TEST, 0x1234, 28).unwrap();
        let tai = Tai { plmn: "310/410".parse().unwrap(), tac: Tac::new(7).unwrap() };
        for pdu in [EarlyHandover::Ask { gnb, tai }, EarlyHandover::Required(vec![1, 2, 3])] {
            assert_eq!(EarlyHandover::read(&pdu.to_octets()), Some(pdu));
        }
        let ask = EarlyHandover::Ask { gnb, tai }.to_octets();
        (0..ask.len()).for_each(|n| assert_eq!(EarlyHandover::read(&ask[..n]), None));
        let changed = |at: usize, octet: u8| {
            let mut octets = ask.clone();
            octets[at] = octet;
            EarlyHandover::read(&octets)
        };
        assert_eq!(changed(0, b'X'), None);
        assert_eq!(changed(4, 9), None, "a kind of a later version");
        assert_eq!(changed(8, 21), None, "a gNB ID has 22 bits at least");
        assert_eq!(EarlyHandover::read(&[ask, vec![0]].concat()), None);
    }
}
