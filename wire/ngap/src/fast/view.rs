//! A view of a message in its buffer.

use whimbrel_fastwire::{Form, Inline, ReceivedBuffer, Table};
use whimbrel_ids::{DecodeError, DecodeErrorKind};

use super::{Fast, optional};
use crate::aper::codec::Own;
use crate::ie::{TriggeringMessage, UeNgapIds};
use crate::message::{Message, ProcedureCode};
use crate::peek::{
    ID_AMF_UE_NGAP_ID, ID_FIVE_G_S_TMSI, ID_RAN_UE_NGAP_ID, ID_SOURCE_AMF_UE_NGAP_ID, ID_UE_NGAP_IDS, Peek,
};

/// The protocol IE id of `NAS-PDU`.
const ID_NAS_PDU: u16 = 38;

/// A received message in the fast form: fields are read on access, octet strings in place.
#[derive(Debug)]
pub struct View<'a> {
    octets: &'a [u8],
    form: Form,
    number: u8,
}

impl<'a> View<'a> {
    /// Over a received message.
    ///
    /// Errors: [`DecodeError`] where there is no message, or of kind `Unknown` for one that is not known here.
    pub fn new(octets: &'a [u8], form: Form) -> Result<Self, DecodeError> {
        let all = ReceivedBuffer::new(octets, form);
        let slot = Message::body(&all)?;
        let number = slot.tag();
        Message::places(number).ok_or_else(|| slot.error(DecodeErrorKind::Unknown))?;
        Ok(Self { octets, form, number })
    }

    /// The code of the message's procedure.
    pub fn procedure_code(&self) -> ProcedureCode {
        ProcedureCode((self.number - 1) / 3)
    }

    /// Which message of its procedure this is.
    pub fn kind(&self) -> TriggeringMessage {
        match (self.number - 1) % 3 {
            0 => TriggeringMessage::InitiatingMessage,
            1 => TriggeringMessage::SuccessfulOutcome,
            _ => TriggeringMessage::UnsuccessfulOutcome,
        }
    }

    /// The NAS message in it, if it has one at its top level.
    pub fn nas_pdu(&self) -> Option<&'a [u8]> {
        self.field(ID_NAS_PDU, |table, slot| {
            table.field(slot, Inline::Vector, "NAS-PDU").ok()??.octets().ok()
        })
    }

    /// The identities of its UE, as [`crate::peek`] does for PER.
    pub fn peek(&self) -> Peek {
        let mut found = Peek {
            procedure_code: self.procedure_code(),
            kind: self.kind(),
            amf_ue_ngap_id: None,
            ran_ue_ngap_id: None,
            five_g_s_tmsi: None,
        };
        let all = ReceivedBuffer::new(self.octets, self.form);
        let Ok(table) = Message::body(&all).and_then(|body| body.table()) else { return found };
        for (id, slot) in self.places() {
            match *id {
                ID_AMF_UE_NGAP_ID | ID_SOURCE_AMF_UE_NGAP_ID => found.amf_ue_ngap_id = own(&table, *slot),
                ID_RAN_UE_NGAP_ID => found.ran_ue_ngap_id = own(&table, *slot),
                ID_FIVE_G_S_TMSI => found.five_g_s_tmsi = own(&table, *slot),
                ID_UE_NGAP_IDS => match own(&table, *slot) {
                    Some(UeNgapIds::UeNgapIdPair(pair)) => {
                        found.amf_ue_ngap_id = Some(pair.amf_ue_ngap_id);
                        found.ran_ue_ngap_id = Some(pair.ran_ue_ngap_id);
                    }
                    Some(UeNgapIds::AmfUeNgapId(id)) => found.amf_ue_ngap_id = Some(id),
                    None => {}
                },
                _ => {}
            }
        }
        found
    }

    /// The whole message, as a value.
    ///
    /// Errors: as [`Message::decode_fast`].
    pub fn to_message(&self) -> Result<Message, DecodeError> {
        Message::decode_fast(self.octets, self.form)
    }

    /// The slots of the message's fields, by protocol IE id.
    fn places(&self) -> &'static [(u16, usize)] {
        Message::places(self.number).unwrap_or_default()
    }

    /// Reads from the slot of a protocol IE id.
    fn field<T>(&self, id: u16, read: impl FnOnce(Table<'_, 'a>, usize) -> Option<T>) -> Option<T> {
        let (_, slot) = self.places().iter().find(|(of, _)| *of == id)?;
        let all = ReceivedBuffer::new(self.octets, self.form);
        read(Message::body(&all).and_then(|body| body.table()).ok()?, *slot)
    }
}

/// Reads the field of a slot; what cannot be read is not there.
fn own<T>(table: &Table<'_, '_>, slot: usize) -> Option<T>
where
    Own: Fast<T>,
{
    optional::<T, Own>(table, slot, "field").ok()?
}
