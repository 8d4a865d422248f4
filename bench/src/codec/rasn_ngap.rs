//! NGAP messages as a conventional codec has them: the PDU, its list of IEs, and the value of each IE, decoded one in
//! the other into values of their own.

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
    ies: Vec<(u16, Criticality, Ie)>,
}

/// The IEs that the messages of the experiments have.
macro_rules! ies {
    ($($name:ident($t:ty) = $($id:literal)|+),* $(,)?) => {
        /// The value of an IE.
        #[derive(Debug)]
        pub(crate) enum Ie {
            $( $name($t), )*
            /// One for which no type was written here: it stays octets, which costs `rasn` less than it would.
            Untyped(Vec<u8>),
        }

        fn decode_ie(id: u16, octets: &[u8]) -> Result<Ie, DecodeError> {
            match id {
                $( $($id)|+ => decode(octets).map(Ie::$name), )*
                _ => Ok(Ie::Untyped(octets.to_vec())),
            }
        }

        fn encode_ie(ie: &Ie) -> Result<Vec<u8>, EncodeError> {
            match ie {
                $( Ie::$name(v) => encode(v), )*
                Ie::Untyped(octets) => Ok(octets.clone()),
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
    Octets(OctetString) = 38 | 101 | 117,
    SetupListCxtReq(SetupListCxtReq) = 71,
    SetupListHoReq(SetupListHoReq) = 73,
    Sessions(SessionList) = 72 | 76 | 77,
    RanUeNgapId(U32) = 85,
    RrcEstablishmentCause(RrcEstablishmentCause) = 90,
    SecurityContext(SecurityContext) = 93,
    SecurityKey(rasn::types::FixedBitString<256>) = 94,
    Ambr(Ambr) = 110,
    UeContextRequest(UeContextRequest) = 112,
    UeNgapIds(UeNgapIds) = 114,
    SecurityCapabilities(SecurityCapabilities) = 119,
    Location(UserLocationInformation) = 121,
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
    let body: Body = decode(&content.value)?;
    let ies = body
        .protocol_ies
        .iter()
        .map(|field| Ok((field.id, field.criticality, decode_ie(field.id, &field.value)?)));
    Ok(Message {
        outcome,
        procedure_code: content.procedure_code,
        criticality: content.criticality,
        ies: ies.collect::<Result<_, DecodeError>>()?,
    })
}

/// Writes a message.
///
/// Errors: those of `rasn`, for values outside their constraints.
pub(crate) fn write(message: &Message) -> Result<Vec<u8>, EncodeError> {
    let fields = message.ies.iter().map(|(id, criticality, ie)| {
        Ok(ProtocolIeField { id: *id, criticality: *criticality, value: encode_ie(ie)?.into() })
    });
    let body = Body { protocol_ies: fields.collect::<Result<_, EncodeError>>()? };
    encode(&(message.outcome)(Outcome {
        procedure_code: message.procedure_code,
        criticality: message.criticality,
        value: encode(&body)?.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::messages;

    #[test]
    fn rasn_reads_our_messages_and_writes_the_same_octets() {
        for (name, message) in messages::all() {
            let octets = message.to_vec();
            let read = read(&octets).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(write(&read).unwrap(), octets, "{name}");
        }
    }
}
