//! Items of the lists of PDU sessions in messages.

use whimbrel_ids::{PduSessionId, SNssai};

use crate::aper::codec::Octets;
use crate::ie::ExpectedUeActivityBehaviour;

sequence! {
    /// `PDUSessionResourceSetupItemCxtReq`.
    pub struct PduSessionResourceSetupItemCxtReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `nAS-PDU`.
        opt nas_pdu: Vec<u8> as Octets,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `pDUSessionResourceSetupRequestTransfer`.
        req pdu_session_resource_setup_request_transfer: Vec<u8> as Octets,
        ;
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceItemCxtRelCpl`.
    pub struct PduSessionResourceItemCxtRelCpl {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        ;
        /// `PDUSessionResourceReleaseResponseTransfer`.
        145 ignore opt pdu_session_resource_release_response_transfer: Vec<u8> as Octets,
    }
}

sequence! {
    /// `PDUSessionResourceSetupItemSUReq`.
    pub struct PduSessionResourceSetupItemSuReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `pDUSessionNAS-PDU`.
        opt pdu_session_nas_pdu: Vec<u8> as Octets,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `pDUSessionResourceSetupRequestTransfer`.
        req pdu_session_resource_setup_request_transfer: Vec<u8> as Octets,
        ;
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceModifyItemModReq`.
    pub struct PduSessionResourceModifyItemModReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `nAS-PDU`.
        opt nas_pdu: Vec<u8> as Octets,
        /// `pDUSessionResourceModifyRequestTransfer`.
        req pdu_session_resource_modify_request_transfer: Vec<u8> as Octets,
        ;
        /// `S-NSSAI`.
        148 reject opt s_nssai: SNssai,
        /// `PduSessionExpectedUEActivityBehaviour`.
        281 ignore opt pdu_session_expected_ue_activity_behaviour: ExpectedUeActivityBehaviour,
    }
}

sequence! {
    /// `PDUSessionResourceSetupItemHOReq`.
    pub struct PduSessionResourceSetupItemHoReq {
        /// `pDUSessionID`.
        req pdu_session_id: PduSessionId,
        /// `s-NSSAI`.
        req s_nssai: SNssai,
        /// `handoverRequestTransfer`.
        req handover_request_transfer: Vec<u8> as Octets,
    }
}

sequence! {
    /// A session and an N2 SM transfer: the item of most lists of PDU sessions.
    pub struct PduSessionResourceItem {
        /// The session.
        req pdu_session_id: PduSessionId,
        /// The transfer that belongs to the list, encoded.
        req transfer: Vec<u8> as Octets,
    }
}
