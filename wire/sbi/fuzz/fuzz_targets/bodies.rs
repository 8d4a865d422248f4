//! A body that is understood is understood the same when it is written again. The first octet chooses its type.
#![no_main]

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_sbi_types::common::{PatchItem, ProblemDetails};
use whimbrel_sbi_types::{BoundedList, from_slice, namf_comm, nausf, nchf, nnrf, npcf_am, npcf_sm, nsmf_pdu_session, to_vec};
use whimbrel_sbi_types::{nudm_sdm, nudm_ueau, nudm_uecm};

fn check<T: DeserializeOwned + Serialize + PartialEq + core::fmt::Debug>(octets: &[u8]) {
    match from_slice::<T>(octets) {
        Ok(body) => assert_eq!(from_slice(&to_vec(&body)).as_ref(), Ok(&body)),
        Err(e) => assert!(e.pointer.len() <= 200 && e.reason.len() <= 200),
    }
}

macro_rules! checks {
    ($($body:ty,)*) => { &[$(check::<$body>),*] };
}

const CHECKS: &[fn(&[u8])] = checks![
    BoundedList<PatchItem>,
    ProblemDetails,
    namf_comm::N1N2MessageTransferError,
    namf_comm::N1N2MessageTransferReqData,
    namf_comm::N1N2MessageTransferRspData,
    namf_comm::N1N2MsgTxfrFailureNotification,
    nausf::AuthenticationInfo,
    nausf::ConfirmationData,
    nausf::ConfirmationDataResponse,
    nausf::DeregistrationInfo,
    nausf::EapSession,
    nausf::UEAuthenticationCtx,
    nchf::ChargingDataRequest,
    nchf::ChargingDataResponse,
    nchf::ChargingNotifyRequest,
    nchf::ChargingNotifyResponse,
    nnrf::AccessTokenClaims,
    nnrf::AccessTokenErr,
    nnrf::AccessTokenRsp,
    nnrf::NfProfile,
    nnrf::NotificationData,
    nnrf::SearchResult,
    nnrf::SubscriptionData,
    npcf_am::AmTerminationNotification,
    npcf_am::PolicyAssociation,
    npcf_am::PolicyAssociationRequest,
    npcf_am::PolicyAssociationUpdateRequest,
    npcf_am::PolicyUpdate,
    npcf_sm::ErrorReport,
    npcf_sm::PartialSuccessReport,
    npcf_sm::SmPolicyContextData,
    npcf_sm::SmPolicyControl,
    npcf_sm::SmPolicyDecision,
    npcf_sm::SmPolicyDeleteData,
    npcf_sm::SmPolicyNotification,
    npcf_sm::SmPolicyUpdateContextData,
    npcf_sm::SmTerminationNotification,
    nsmf_pdu_session::SmContextCreateData,
    nsmf_pdu_session::SmContextCreateError,
    nsmf_pdu_session::SmContextCreatedData,
    nsmf_pdu_session::SmContextReleaseData,
    nsmf_pdu_session::SmContextStatusNotification,
    nsmf_pdu_session::SmContextUpdateData,
    nsmf_pdu_session::SmContextUpdatedData,
    nudm_sdm::AccessAndMobilitySubscriptionData,
    nudm_sdm::IdTranslationResult,
    nudm_sdm::ModificationNotification,
    nudm_sdm::Nssai,
    nudm_sdm::SdmSubscription,
    nudm_sdm::SmSubsData,
    nudm_sdm::SmfSelectionSubscriptionData,
    nudm_sdm::SubscriptionDataSets,
    nudm_sdm::UeContextInAmfData,
    nudm_sdm::UeContextInSmfData,
    nudm_ueau::AuthEvent,
    nudm_ueau::AuthenticationInfoRequest,
    nudm_ueau::AuthenticationInfoResult,
    nudm_uecm::Amf3GppAccessRegistration,
    nudm_uecm::Amf3GppAccessRegistrationModification,
    nudm_uecm::AmfDeregInfo,
    nudm_uecm::AmfNon3GppAccessRegistration,
    nudm_uecm::DeregistrationData,
    nudm_uecm::PeiUpdateInfo,
    nudm_uecm::SmfRegistration,
    nudm_uecm::SmfRegistrationInfo,
];

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let Some((kind, body)) = octets.split_first() else { return };
    CHECKS[usize::from(*kind) % CHECKS.len()](body);
});
