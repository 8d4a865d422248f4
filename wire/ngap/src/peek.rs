//! Whose message is this? Read from a few octets, without decoding the message.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, STmsi, Tmsi};

use crate::fast::{Form, View};
use crate::ie::TriggeringMessage;
use crate::message::ProcedureCode;
use crate::syntax::TransferSyntax;

/// The most IEs that are looked at: the longest message of TS 38.413 has fewer than 64.
const IES_MAX: usize = 64;

/// The parts of a message that are found without decoding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peek {
    /// Code of the procedure.
    pub procedure_code: ProcedureCode,
    /// Which message of the procedure.
    pub kind: TriggeringMessage,
    /// The AMF's name of the UE, if the message has one at its top level.
    pub amf_ue_ngap_id: Option<AmfUeNgapId>,
    /// The RAN's name of the UE, if the message has one at its top level.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
    /// The UE's short temporary identity, if the message has one at its top level.
    pub five_g_s_tmsi: Option<STmsi>,
}

/// Finds the UE of a message in either transfer syntax; `None` if it is no NGAP message. It stops at the first
/// unreadable part and returns what it has found: the decoder judges the message.
pub fn peek(octets: &[u8]) -> Option<Peek> {
    match TransferSyntax::of(octets) {
        TransferSyntax::Per => peek_per(octets),
        TransferSyntax::Fastwire => View::new(octets, Form::SingleValue).ok().map(|view| view.peek()),
    }
}

fn peek_per(octets: &[u8]) -> Option<Peek> {
    let (&[choice, procedure_code, _criticality], rest) = octets.split_first_chunk()?;
    let kind = match choice >> 5 {
        0 => TriggeringMessage::InitiatingMessage,
        1 => TriggeringMessage::SuccessfulOutcome,
        2 => TriggeringMessage::UnsuccessfulOutcome,
        _ => return None,
    };
    let mut found = Peek {
        procedure_code: ProcedureCode(procedure_code),
        kind,
        amf_ue_ngap_id: None,
        ran_ue_ngap_id: None,
        five_g_s_tmsi: None,
    };
    // The content may be truncated. In fragments, the first one has the UE's AP IDs.
    let content =
        rest.get(if rest.first().is_some_and(|o| o >> 6 == 2) { 2 } else { 1 }..).unwrap_or_default();
    let Some((&[_, high, low], mut ies)) = content.split_first_chunk() else { return Some(found) };
    let count = usize::from(u16::from_be_bytes([high, low])).min(IES_MAX);
    for _ in 0..count {
        let Some((&[high, low, _], rest)) = ies.split_first_chunk() else { break };
        let Some((value, rest)) = open_type(rest) else { break };
        ies = rest;
        match u16::from_be_bytes([high, low]) {
            ID_AMF_UE_NGAP_ID | ID_SOURCE_AMF_UE_NGAP_ID => {
                found.amf_ue_ngap_id = number(value, 5).and_then(AmfUeNgapId::new);
            }
            ID_RAN_UE_NGAP_ID => {
                found.ran_ue_ngap_id = number(value, 6).and_then(|v| u32::try_from(v).ok()).map(RanUeNgapId);
            }
            ID_UE_NGAP_IDS => ue_ngap_ids(value, &mut found),
            ID_FIVE_G_S_TMSI => {
                found.five_g_s_tmsi = s_tmsi(value);
            }
            _ => {}
        }
        if found.amf_ue_ngap_id.is_some() && found.ran_ue_ngap_id.is_some() {
            break;
        }
    }
    Some(found)
}

pub(crate) const ID_AMF_UE_NGAP_ID: u16 = 10;
pub(crate) const ID_FIVE_G_S_TMSI: u16 = 26;
pub(crate) const ID_RAN_UE_NGAP_ID: u16 = 85;
pub(crate) const ID_SOURCE_AMF_UE_NGAP_ID: u16 = 100;
pub(crate) const ID_UE_NGAP_IDS: u16 = 114;

/// The content of an open type that came in one piece, and what follows it.
fn open_type(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = octets.split_first()?;
    let (n, rest) = match first >> 6 {
        0 | 1 => (usize::from(first), rest),
        2 => {
            let (&second, rest) = rest.split_first()?;
            (usize::from(first & 0x3f) << 8 | usize::from(second), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(n)
}

/// A constrained number at the start of a value: its length less one above bit `shift`, then its octets.
fn number(value: &[u8], shift: u32) -> Option<u64> {
    let (&length, digits) = value.split_first()?;
    let digits = digits.get(..usize::from(length >> shift) + 1)?;
    (digits.len() <= 5).then(|| digits.iter().fold(0, |v, d| v << 8 | u64::from(*d)))
}

/// UE NGAP IDs of the UE CONTEXT RELEASE COMMAND (TS 38.413 §9.2.2.5): the pair, or the AMF's name alone.
fn ue_ngap_ids(value: &[u8], found: &mut Peek) {
    let Some(&first) = value.first() else { return };
    match first >> 6 {
        // The pair: choice (2 bits), extension, iE-Extensions, then 3 bits of length.
        0 => {
            let n = usize::from(first >> 1 & 7) + 1;
            let Some(amf) = value.get(1..1 + n) else { return };
            found.amf_ue_ngap_id = AmfUeNgapId::new(amf.iter().fold(0, |v, d| v << 8 | u64::from(*d)));
            found.ran_ue_ngap_id = value
                .get(1 + n..)
                .and_then(|rest| number(rest, 6))
                .and_then(|v| u32::try_from(v).ok())
                .map(RanUeNgapId);
        }
        // The AMF's name alone: choice (2 bits), then 3 bits of length.
        1 => {
            let n = usize::from(first >> 3 & 7) + 1;
            let Some(amf) = value.get(1..1 + n) else { return };
            found.amf_ue_ngap_id = AmfUeNgapId::new(amf.iter().fold(0, |v, d| v << 8 | u64::from(*d)));
        }
        _ => {}
    }
}

/// 5G-S-TMSI (TS 38.413 §9.3.3.20): two leading bits, 10 bits of set, 6 of pointer, then aligned octets.
fn s_tmsi(value: &[u8]) -> Option<STmsi> {
    let &[a, b, c, d, e, f, g] = value.first_chunk()?;
    if a & 0xc0 != 0 {
        return None;
    }
    let id = u32::from_be_bytes([0, a, b, c]) >> 6 & 0xffff;
    let tmsi = Tmsi(u32::from_be_bytes([d, e, f, g]));
    Some(STmsi { set: (id >> 6) as u16, pointer: (id & 0x3f) as u8, tmsi })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::*;

    const AMF: [u64; 4] = [0, 255, 256, AmfUeNgapId::MAX];
    const RAN: [u32; 4] = [0, 255, 256, u32::MAX];

    #[test]
    fn finds_both_names_of_any_length() {
        for amf in AMF.map(|v| AmfUeNgapId::new(v).unwrap()) {
            for ran in RAN.map(RanUeNgapId) {
                let both = |m: Message| {
                    for syntax in [TransferSyntax::Per, TransferSyntax::Fastwire] {
                        let mut octets = Vec::new();
                        m.encode_in(syntax, &mut octets);
                        let found = peek(&octets).unwrap();
                        assert_eq!(
                            (found.amf_ue_ngap_id, found.ran_ue_ngap_id),
                            (Some(amf), Some(ran)),
                            "{m:?}"
                        );
                        assert_eq!((found.procedure_code, found.kind), (m.procedure_code(), m.kind()));
                    }
                };
                both(UplinkNasTransport::new(amf, ran, vec![1; 200]).into());
                both(HandoverCancelAcknowledge::new(amf, ran).into());
                let pair = UeNgapIds::UeNgapIdPair(UeNgapIdPair::new(amf, ran));
                both(UeContextReleaseCommand::new(pair, CauseNas::NormalRelease.into()).into());
                // Fragments of 16 K: the names are in the first.
                both(UplinkNasTransport::new(amf, ran, vec![1; 40_000]).into());
            }
        }
    }

    #[test]
    fn finds_the_name_that_stands_alone() {
        for amf in AMF.map(|v| AmfUeNgapId::new(v).unwrap()) {
            let ids = UeNgapIds::AmfUeNgapId(amf);
            let m = Message::from(UeContextReleaseCommand::new(ids, CauseNas::NormalRelease.into()));
            let found = peek(&m.to_vec()).unwrap();
            assert_eq!((found.amf_ue_ngap_id, found.ran_ue_ngap_id), (Some(amf), None));
        }
    }

    #[test] // The source AMF UE NGAP ID follows the RAN UE NGAP ID in PATH SWITCH REQUEST
    fn agrees_with_the_decoder() {
        let mut s = crate::aper::sample::Source::new(38_413);
        for _ in 0..3000 {
            let m = Message::sample(&mut s);
            let found = peek(&m.to_vec()).unwrap();
            let mut fast = Vec::new();
            m.encode_in(TransferSyntax::Fastwire, &mut fast);
            let same = peek(&fast).unwrap();
            assert_eq!((same.procedure_code, same.kind), (found.procedure_code, found.kind));
            assert_eq!(
                (same.amf_ue_ngap_id, same.ran_ue_ngap_id),
                (found.amf_ue_ngap_id, found.ran_ue_ngap_id)
            );
            match &m {
                Message::PathSwitchRequest(m) => {
                    assert_eq!(found.amf_ue_ngap_id, Some(m.source_amf_ue_ngap_id));
                    assert_eq!(found.ran_ue_ngap_id, Some(m.ran_ue_ngap_id));
                }
                Message::InitialUeMessage(m) => {
                    assert_eq!(found.ran_ue_ngap_id, Some(m.ran_ue_ngap_id));
                    assert_eq!(found.five_g_s_tmsi, m.five_g_s_tmsi);
                }
                Message::ErrorIndication(m) => {
                    assert_eq!(found.amf_ue_ngap_id, m.amf_ue_ngap_id);
                    assert_eq!(found.ran_ue_ngap_id, m.ran_ue_ngap_id);
                }
                Message::NgSetupRequest(_) => {
                    assert_eq!((found.amf_ue_ngap_id, found.ran_ue_ngap_id), (None, None));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn gives_what_it_has() {
        assert_eq!(peek(&[]), None);
        assert_eq!(peek(&[0x80, 46, 0]), None);
        let m = Message::from(UplinkNasTransport::new(AmfUeNgapId::new(7).unwrap(), RanUeNgapId(9), vec![1]));
        let octets = m.to_vec();
        for n in 3..octets.len() {
            assert_eq!(peek(&octets[..n]).unwrap().procedure_code, ProcedureCode::UPLINK_NAS_TRANSPORT);
        }
        // The length exceeds the octets: the CTA still finds the UE, the decoder refuses.
        assert_eq!(peek(&octets[..octets.len() - 1]).unwrap().ran_ue_ngap_id, Some(RanUeNgapId(9)));
    }
}
