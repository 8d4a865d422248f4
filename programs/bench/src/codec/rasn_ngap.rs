//! NGAP messages as a conventional codec has them: the PDU, its list of IEs, and the value of each IE, decoded one in
//! the other into values of their own; and then the transfers that the lists of sessions carry as octets.

use rasn::Codec;
use rasn::aper::{decode, encode};
use rasn::error::{DecodeError, EncodeError};
use rasn::types::OctetString;

use super::rasn_types::*;

/// A message, all of whose IEs are values.
#[derive(Debug)]
pub(crate) struct Message {
    outcome: fn(Outcome) -> NgapPdu,
    procedure_code: u8,
    criticality: Criticality,
    ies: Ies,
}

/// The IEs of a container, in their order.
type Ies = Vec<(u16, Criticality, Ie)>;

/// The IEs that the messages of the experiments have.
macro_rules! ies {
    ($($name:ident($t:ty) = $($id:literal)|+),* $(,)?) => {
        /// The value of an IE.
        #[derive(Debug)]
        pub(crate) enum Ie {
            $( $name($t), )*
            /// RANStatusTransfer-TransparentContainer, which the core passes on unread.
            Unread(Vec<u8>),
        }

        fn decode_ie(id: u16, octets: &[u8]) -> Result<Ie, DecodeError> {
            match id {
                $( $($id)|+ => decode(octets).map(Ie::$name), )*
                84 => Ok(Ie::Unread(octets.to_vec())),
                _ => Err(DecodeError::parser_fail(format!("no type was written here for IE {id}"), Codec::Aper)),
            }
        }

        fn encode_ie(ie: &Ie) -> Result<Vec<u8>, EncodeError> {
            match ie {
                $( Ie::$name(v) => encode(v), )*
                Ie::Unread(octets) => Ok(octets.clone()),
            }
        }
    };
}
ies! {
    AllowedNssai(AllowedNssai) = 0,
    AmfUeNgapId(AmfUeNgapId) = 10 | 100,
    Cause(Cause) = 15,
    FiveGSTmsi(FiveGSTmsi) = 26,
    Guami(Guami) = 28,
    HandoverType(HandoverType) = 29,
    MaskedImeisv(rasn::types::FixedBitString<64>) = 34,
    AmfSetId(rasn::types::FixedBitString<10>) = 3,
    CoreAssistance(CoreAssistance) = 18,
    DirectPath(OneOf1) = 22,
    Octets(OctetString) = 38 | 101 | 106 | 117,
    Sessions(SessionList) = 53 | 59 | 61 | 70 | 72 | 75 | 76 | 77 | 79,
    SessionIds(SessionIds) = 60 | 133,
    SetupListCxtReq(SetupListCxtReq) = 71 | 74,
    SetupListHoReq(SetupListHoReq) = 73,
    RanUeNgapId(U32) = 85,
    RrcEstablishmentCause(RrcEstablishmentCause) = 90,
    SecurityContext(SecurityContext) = 93,
    SecurityKey(rasn::types::FixedBitString<256>) = 94,
    TargetId(TargetId) = 105,
    Ambr(Ambr) = 110 | 130,
    UeContextRequest(UeContextRequest) = 112,
    UeNgapIds(UeNgapIds) = 114,
    SecurityCapabilities(SecurityCapabilities) = 119,
    Location(UserLocationInformation) = 121,
    PduSessionType(PduSessionType) = 134,
    QosFlowSetupRequests(QosFlowSetupRequests) = 136,
    SecurityIndication(SecurityIndication) = 138,
    Tunnel(Tunnel) = 139,
}

/// Reads a message.
///
/// Errors: those of `rasn`.
pub(crate) fn read(octets: &[u8]) -> Result<Message, DecodeError> {
    let (outcome, content): (fn(Outcome) -> NgapPdu, Outcome) = match decode(octets)? {
        NgapPdu::Initiating(v) => (NgapPdu::Initiating, v),
        NgapPdu::Successful(v) => (NgapPdu::Successful, v),
        NgapPdu::Unsuccessful(v) => (NgapPdu::Unsuccessful, v),
    };
    Ok(Message {
        outcome,
        procedure_code: content.procedure_code,
        criticality: content.criticality,
        ies: read_ies(&content.value)?,
    })
}

/// Writes a message.
///
/// Errors: those of `rasn`, for values outside their constraints.
pub(crate) fn write(message: &Message) -> Result<Vec<u8>, EncodeError> {
    encode(&(message.outcome)(Outcome {
        procedure_code: message.procedure_code,
        criticality: message.criticality,
        value: write_ies(&message.ies)?.into(),
    }))
}

fn read_ies(octets: &[u8]) -> Result<Ies, DecodeError> {
    let body: Body = decode(octets)?;
    let ies = body
        .protocol_ies
        .iter()
        .map(|field| Ok((field.id, field.criticality, decode_ie(field.id, &field.value)?)));
    ies.collect()
}

fn write_ies(ies: &Ies) -> Result<Vec<u8>, EncodeError> {
    let fields = ies.iter().map(|(id, criticality, ie)| {
        Ok(ProtocolIeField { id: *id, criticality: *criticality, value: encode_ie(ie)?.into() })
    });
    encode(&Body { protocol_ies: fields.collect::<Result<_, EncodeError>>()? })
}

/// What SMF and RAN say to one another of a session: octets within a message.
macro_rules! transfers {
    ($($name:ident($t:ty) = $($id:literal)|+),* $(,)?) => {
        /// A transfer container of NGAP.
        #[derive(Debug)]
        pub(crate) enum Transfer {
            /// PDU Session Resource Setup Request Transfer, a container of IEs.
            SetupRequest(Ies),
            $( $name($t), )*
        }

        fn read_transfer(list: u16, octets: &[u8]) -> Result<Transfer, DecodeError> {
            match list {
                71 | 73 | 74 => read_ies(octets).map(Transfer::SetupRequest),
                $( $($id)|+ => decode(octets).map(Transfer::$name), )*
                _ => Err(DecodeError::parser_fail(format!("no type was written here for transfers in {list}"), Codec::Aper)),
            }
        }

        /// Writes a transfer.
        ///
        /// Errors: those of `rasn`, for values outside their constraints.
        pub(crate) fn write_transfer(transfer: &Transfer) -> Result<Vec<u8>, EncodeError> {
            match transfer {
                Transfer::SetupRequest(ies) => write_ies(ies),
                $( Transfer::$name(v) => encode(v), )*
            }
        }
    };
}
transfers! {
    HandoverRequestAcknowledge(HandoverRequestAcknowledgeTransfer) = 53,
    HandoverCommand(HandoverCommandTransfer) = 59,
    HandoverRequired(HandoverRequiredTransfer) = 61,
    SetupResponse(SetupResponseTransfer) = 72 | 75,
    PathSwitchRequest(PathSwitchRequestTransfer) = 76,
    PathSwitchRequestAcknowledge(PathSwitchRequestAcknowledgeTransfer) = 77,
    ReleaseCommand(ReleaseCommandTransfer) = 79,
    ReleaseResponse(ReleaseResponseTransfer) = 70,
}

impl Message {
    /// The octets of its transfers, and the list in which each stands.
    pub(crate) fn transfers(&self) -> impl Iterator<Item = (u16, &OctetString)> {
        self.ies.iter().flat_map(|(id, _, ie)| {
            let all: Vec<&OctetString> = match ie {
                Ie::SetupListCxtReq(list) => list.0.iter().map(|i| &i.transfer).collect(),
                Ie::SetupListHoReq(list) => list.0.iter().map(|i| &i.transfer).collect(),
                Ie::Sessions(list) => list.0.iter().map(|i| &i.transfer).collect(),
                _ => Vec::new(),
            };
            all.into_iter().map(|octets| (*id, octets))
        })
    }

    /// Reads its transfers.
    ///
    /// Errors: those of `rasn`.
    pub(crate) fn read_transfers(&self) -> Result<Vec<Transfer>, DecodeError> {
        self.transfers().map(|(list, octets)| read_transfer(list, octets)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::messages;

    /// What ends a session, which the experiments meet with where a CPF is lost.
    fn release() -> [(&'static str, whimbrel_ngap::Message); 2] {
        use whimbrel_ngap::*;
        let amf = whimbrel_ids::AmfUeNgapId::new(7).unwrap();
        let (ran, session) = (whimbrel_ids::RanUeNgapId(8), whimbrel_ids::PduSessionId::new(1).unwrap());
        let item = |transfer| vec![PduSessionResourceItem::new(session, transfer)];
        let cause = whimbrel_ngap::Cause::Nas(whimbrel_ngap::CauseNas::NormalRelease);
        let command = PduSessionResourceReleaseCommandTransfer::new(cause).to_vec();
        let command = PduSessionResourceReleaseCommand::new(amf, ran, item(command));
        let mut response = PduSessionResourceReleaseResponse::new(amf, ran);
        response.pdu_session_resource_released_list_rel_res =
            item(PduSessionResourceReleaseResponseTransfer::new().to_vec());
        [("release command", command.into()), ("release response", response.into())]
    }

    #[test]
    fn rasn_reads_our_messages_and_writes_the_same_octets() {
        for (name, message) in messages::all().into_iter().chain(release()) {
            let octets = message.to_vec();
            let read = read(&octets).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(write(&read).unwrap(), octets, "{name}");
            for (transfer, (list, octets)) in read.read_transfers().unwrap().iter().zip(read.transfers()) {
                assert_eq!(write_transfer(transfer).unwrap(), octets[..], "{name}, list {list}");
            }
        }
    }
}
