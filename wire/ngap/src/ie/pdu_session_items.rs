//! Items of the lists of PDU sessions in messages.

use whimbrel_ids::{PduSessionId, SNssai};

use crate::aper::codec::Octets;
use crate::ie::{Cause, ExpectedUeActivityBehaviour};

sequence! {
    /// `PDUSessionResourceSetupItemCxtReq` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceSetupItemCxtReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `nAS-PDU`. A NAS message.
        opt nas_pdu: Vec<u8> as Octets,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `pDUSessionResourceSetupRequestTransfer`. A `PduSessionResourceSetupRequestTransfer`, encoded.
        req pdu_session_resource_setup_request_transfer: Vec<u8> as Octets,
        ;
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceItemCxtRelCpl` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceItemCxtRelCpl {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        ;
        /// `PDUSessionResourceReleaseResponseTransfer`. A `PduSessionResourceReleaseResponseTransfer`, encoded.
        145 ignore opt pdu_session_resource_release_response_transfer: Vec<u8> as Octets,
    }
}

sequence! {
    /// `PDUSessionResourceSetupItemSUReq` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceSetupItemSuReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `pDUSessionNAS-PDU`. A NAS message of the session.
        opt pdu_session_nas_pdu: Vec<u8> as Octets,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `pDUSessionResourceSetupRequestTransfer`. A `PduSessionResourceSetupRequestTransfer`, encoded.
        req pdu_session_resource_setup_request_transfer: Vec<u8> as Octets,
        ;
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceModifyItemModReq` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceModifyItemModReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `nAS-PDU`. A NAS message.
        opt nas_pdu: Vec<u8> as Octets,
        /// `pDUSessionResourceModifyRequestTransfer`. A `PduSessionResourceModifyRequestTransfer`, encoded.
        req pdu_session_resource_modify_request_transfer: Vec<u8> as Octets,
        ;
        /// `S-NSSAI`.
        148 reject opt s_nssai: SNssai,
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceSetupItemHOReq` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceSetupItemHoReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `handoverRequestTransfer`. A `PduSessionResourceSetupRequestTransfer`, encoded.
        req handover_request_transfer: Vec<u8> as Octets,
    }
}

sequence! {
    /// `PDUSessionResourceFailedToResumeItemRESReq` (TS 38.413 §9.4.5).
    pub struct PduSessionResourceFailedToResumeItem {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `cause`.
        req cause: Cause,
    }
}

sequence! {
    /// A session and an N2 SM transfer: the item of most lists of PDU sessions.
    pub struct PduSessionResourceItem {
        /// Identity of the session.
        req pdu_session_id: PduSessionId,
        /// The transfer that belongs to the list, encoded.
        req transfer: Vec<u8> as Octets,
    }
}
