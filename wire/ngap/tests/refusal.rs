//! TS 38.413 §10: what is not comprehended, missing, out of order or broken gets the standard's answer.

use whimbrel_ids::{AmfUeNgapId, RanUeNgapId};
use whimbrel_ngap::*;

const REJECT: u8 = 0x00;
const IGNORE: u8 = 0x40;
const NOTIFY: u8 = 0x80;

type Ie<'a> = (u16, u8, &'a [u8]);

/// A message of short IEs, as octets.
fn message(choice: u8, procedure_code: u8, criticality: u8, ies: &[Ie]) -> Vec<u8> {
    let mut content = vec![0, 0, ies.len() as u8];
    for (id, criticality, value) in ies {
        content.extend(id.to_be_bytes());
        content.extend([*criticality, value.len() as u8]);
        content.extend(*value);
    }
    let mut out = vec![choice, procedure_code, criticality, content.len() as u8];
    out.extend(content);
    out
}

const AMF_UE: Ie = (10, REJECT, &[0x00, 0x07]);
const RAN_UE: Ie = (85, REJECT, &[0x00, 0x09]);
const NAS: Ie = (38, REJECT, &[2, 0x7e, 0x00]);

fn uplink(ies: &[Ie]) -> Vec<u8> {
    message(0, 46, IGNORE, ies)
}

fn diagnostics(refusal: &Refusal) -> Vec<(u16, Criticality, TypeOfError)> {
    refusal.ies.iter().map(|e| (e.ie_id, e.ie_criticality, e.type_of_error)).collect()
}

#[test] // TS 38.413 §10.3.5: a mandatory IE with criticality "ignore" may be missing
fn missing_ignore_is_tolerated() {
    let Message::UplinkNasTransport(m) = Message::decode(&uplink(&[AMF_UE, RAN_UE, NAS])).unwrap() else {
        panic!()
    };
    assert_eq!(m.user_location_information, None);
    assert_eq!(m.nas_pdu, [0x7e, 0x00]);

    let failure = Message::decode(&message(0x40, 21, REJECT, &[])).unwrap();
    let Message::NgSetupFailure(failure) = failure else { panic!() };
    assert_eq!(failure.cause, Cause::Misc(CauseMisc::Unspecified));
}

#[test] // TS 38.413 §10.3.5: one with criticality "reject" may not; all missing ones are reported
fn missing_reject_is_refused() {
    let refusal = Message::decode(&uplink(&[AMF_UE])).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::AbstractSyntaxReject);
    assert_eq!(refusal.cause(), Some(CauseProtocol::AbstractSyntaxErrorReject.into()));
    assert_eq!(
        diagnostics(&refusal),
        [(85, Criticality::Reject, TypeOfError::Missing), (38, Criticality::Reject, TypeOfError::Missing)]
    );
    assert_eq!(refusal.amf_ue_ngap_id, AmfUeNgapId::new(7));
    assert_eq!(refusal.ran_ue_ngap_id, None);
    let answer = refusal.error_indication().unwrap();
    let d = answer.criticality_diagnostics.unwrap();
    assert_eq!(
        (d.procedure_code, d.triggering_message),
        (Some(46), Some(TriggeringMessage::InitiatingMessage))
    );
    assert_eq!(d.procedure_criticality, Some(Criticality::Ignore));
    assert_eq!(answer.amf_ue_ngap_id, AmfUeNgapId::new(7));
}

#[test] // TS 38.413 §10.3.4, §10.3.4.2: unknown IEs by their criticality
fn unknown_ies_by_criticality() {
    let known = [AMF_UE, RAN_UE, NAS];
    let with = |criticality| {
        let mut ies = known.to_vec();
        ies.insert(1, (60_000, criticality, &[1, 2, 3]));
        Message::decode_with_notices(&uplink(&ies))
    };
    let plain = Message::decode(&uplink(&known)).unwrap();
    assert_eq!(with(IGNORE), Ok((plain.clone(), vec![])));
    let (message, notices) = with(NOTIFY).unwrap();
    assert_eq!(message, plain);
    assert_eq!(
        notices,
        [IeDiagnostic {
            ie_criticality: Criticality::Notify,
            ie_id: 60_000,
            type_of_error: TypeOfError::NotUnderstood
        }]
    );
    let refusal = with(REJECT).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::AbstractSyntaxReject);
    assert_eq!(diagnostics(&refusal), [(60_000, Criticality::Reject, TypeOfError::NotUnderstood)]);
    assert_eq!((refusal.amf_ue_ngap_id, refusal.ran_ue_ngap_id), (AmfUeNgapId::new(7), Some(RanUeNgapId(9))));
}

#[test] // TS 38.413 §10.3.4: a value of a later release makes its IE one that is not understood
fn unknown_values_by_criticality() {
    // Cause, misc, extension 9.
    let later: &[u8] = &[0b1001_0001, 0b0010_0000];
    let cause =
        |criticality| Message::decode(&message(0, 42, IGNORE, &[AMF_UE, RAN_UE, (15, criticality, later)]));
    let Ok(Message::UeContextReleaseRequest(m)) = cause(IGNORE) else { panic!() };
    assert_eq!(m.cause, Cause::default());
    assert_eq!(cause(REJECT).unwrap_err().kind, RefusalKind::AbstractSyntaxReject);
}

#[test] // TS 38.413 §10.3.6
fn another_order_is_taken() {
    let ordered = Message::decode(&uplink(&[AMF_UE, RAN_UE, NAS])).unwrap();
    for ies in [[RAN_UE, AMF_UE, NAS], [NAS, AMF_UE, RAN_UE], [NAS, RAN_UE, AMF_UE]] {
        let octets = uplink(&ies);
        assert_eq!(Message::decode(&octets).as_ref(), Ok(&ordered));
        let found = peek(&octets).unwrap();
        assert_eq!((found.amf_ue_ngap_id, found.ran_ue_ngap_id), (AmfUeNgapId::new(7), Some(RanUeNgapId(9))));
    }
}

#[test] // TS 38.413 §10.3.6
fn repetition_is_falsely_constructed() {
    for ies in [[AMF_UE, AMF_UE, RAN_UE, NAS], [AMF_UE, RAN_UE, NAS, AMF_UE], [NAS, AMF_UE, RAN_UE, NAS]] {
        let ies = ies.as_slice();
        let refusal = Message::decode(&uplink(ies)).unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::FalselyConstructed);
        assert_eq!(refusal.cause(), Some(CauseProtocol::AbstractSyntaxErrorFalselyConstructedMessage.into()));
    }
}

#[test] // TS 38.413 §10.3.4.1, §10.3.4.1A: unknown procedures by the criticality that their sender gave
fn unknown_procedures_by_criticality() {
    let refuse = |criticality| Message::decode(&message(0, 200, criticality, &[AMF_UE])).unwrap_err();
    assert_eq!(refuse(IGNORE).error_indication(), None);
    let notify = refuse(NOTIFY);
    assert_eq!(notify.cause(), Some(CauseProtocol::AbstractSyntaxErrorIgnoreAndNotify.into()));
    let reject = refuse(REJECT);
    assert_eq!(reject.cause(), Some(CauseProtocol::AbstractSyntaxErrorReject.into()));
    assert_eq!(reject.procedure_code, Some(ProcedureCode(200)));
    assert_eq!(reject.amf_ue_ngap_id, AmfUeNgapId::new(7));
    // Nor is there an unsuccessful outcome of NAS transport.
    assert!(Message::decode(&message(0x40, 46, REJECT, &[AMF_UE])).is_err());
}

#[test] // TS 38.413 §10.2
fn broken_octets_are_a_transfer_syntax_error() {
    let good = uplink(&[AMF_UE, RAN_UE, NAS]);
    for n in 0..good.len() {
        let refusal = Message::decode(&good[..n]).unwrap_err();
        assert!(matches!(refusal.kind, RefusalKind::TransferSyntax(_)), "{n}: {refusal:?}");
        assert_eq!(refusal.cause(), Some(CauseProtocol::TransferSyntaxError.into()));
    }
    // An alternative of NGAP-PDU that does not exist.
    assert!(matches!(Message::decode(&[0x60, 0, 0, 0]).unwrap_err().kind, RefusalKind::TransferSyntax(_)));
}

/// UserLocationInformation, NR, with one extension of the given id and criticality.
fn location(id: u8, criticality: u8) -> Vec<u8> {
    let plmn = [0x99, 0xf9, 0x07];
    // Alternative 1 of 4; no additions, no time stamp, extensions; two leading bits of NR-CGI.
    let mut v = vec![0b0100_1000];
    v.extend(plmn);
    v.extend([0, 0, 0, 0x01, 0x00]); // 36 bits of cell, then the two leading bits of TAI and padding
    v.extend(plmn);
    v.extend([0, 0, 1]);
    v.extend([0, 0]); // one extension
    v.extend([0xea, id, criticality, 2, 1, 2]);
    v
}

#[test] // TS 38.413 §10.3.4: unknown extensions by their criticality
fn unknown_extensions_by_criticality() {
    let decode = |criticality| {
        Message::decode(&uplink(&[AMF_UE, RAN_UE, NAS, (121, IGNORE, &location(1, criticality))]))
    };
    let Ok(Message::UplinkNasTransport(m)) = decode(IGNORE) else { panic!("{:?}", decode(IGNORE)) };
    assert!(matches!(
        m.user_location_information,
        Some(UserLocationInformation::UserLocationInformationNr(ref nr)) if nr.tai.tac.value() == 1
    ));
    let refusal = decode(REJECT).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::AbstractSyntaxReject);
    assert_eq!(diagnostics(&refusal), [(0xea01, Criticality::Reject, TypeOfError::NotUnderstood)]);
}

#[test] // An alternative of a later release is kept as it came where an AMF can serve without it
fn unknown_alternatives_are_kept() {
    // GlobalRANNodeID: choice-Extensions (3 of 4), id 240 (TNGF), reject, three octets.
    let other: &[u8] = &[0xc0, 0x00, 0xf0, 0x00, 3, 1, 2, 3];
    let octets = message(0, 33, IGNORE, &[(27, REJECT, other)]);
    let refusal = Message::decode(&octets).unwrap_err(); // PWSFailedCellIDList is missing, not the node
    assert_eq!(diagnostics(&refusal), [(81, Criticality::Reject, TypeOfError::Missing)]);

    let update = message(0, 35, REJECT, &[(27, IGNORE, other)]);
    let Ok(Message::RanConfigurationUpdate(m)) = Message::decode(&update) else { panic!() };
    let Some(GlobalRanNodeId::Other(kept)) = &m.global_ran_node_id else { panic!() };
    assert_eq!((kept.id, kept.value.as_slice()), (240, [1, 2, 3].as_slice()));
    assert_eq!(Message::from(m.clone()).to_vec(), update);
}

#[test] // The diagnostics are bounded by maxnoofErrors, whatever comes
fn diagnostics_are_bounded() {
    let mut content = vec![0, 0x40, 0x00];
    for id in 0..0x4000u16 {
        content.extend((40_000u16 + id % 20_000).to_be_bytes());
        content.extend([REJECT, 0]);
    }
    content[1..3].copy_from_slice(&0x4000u16.to_be_bytes());
    // As one open type of four fragments.
    let mut octets = vec![0, 46, IGNORE];
    let (whole, rest) = content.split_at(65_536);
    octets.push(0xc4);
    octets.extend(whole);
    octets.extend((rest.len() as u16 | 0x8000).to_be_bytes());
    octets.extend(rest);
    let refusal = Message::decode(&octets).unwrap_err();
    assert_eq!(refusal.ies.len(), 256);
    assert_eq!(refusal.error_indication().unwrap().criticality_diagnostics.unwrap().ies.len(), 256);
}
