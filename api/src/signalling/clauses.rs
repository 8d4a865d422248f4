//! The names of messages in the standards' words, and the clauses that define them.

/// NGAP messages by the names of their types: name, clause of TS 38.413.
pub(super) const NGAP: &[(&str, &str, &str)] = &[
    ("AmfConfigurationUpdate", "AMF CONFIGURATION UPDATE", "9.2.6.7"),
    ("AmfConfigurationUpdateAcknowledge", "AMF CONFIGURATION UPDATE ACKNOWLEDGE", "9.2.6.8"),
    ("AmfConfigurationUpdateFailure", "AMF CONFIGURATION UPDATE FAILURE", "9.2.6.9"),
    ("AmfStatusIndication", "AMF STATUS INDICATION", "9.2.6.10"),
    ("CellTrafficTrace", "CELL TRAFFIC TRACE", "9.2.10.4"),
    ("DownlinkNasTransport", "DOWNLINK NAS TRANSPORT", "9.2.5.2"),
    ("DownlinkNonUeAssociatedNrppaTransport", "DOWNLINK NON UE ASSOCIATED NRPPA TRANSPORT", "9.2.9.3"),
    ("DownlinkRanConfigurationTransfer", "DOWNLINK RAN CONFIGURATION TRANSFER", "9.2.7.2"),
    ("DownlinkRanEarlyStatusTransfer", "DOWNLINK RAN EARLY STATUS TRANSFER", "9.2.3.17"),
    ("DownlinkRanStatusTransfer", "DOWNLINK RAN STATUS TRANSFER", "9.2.3.14"),
    ("DownlinkUeAssociatedNrppaTransport", "DOWNLINK UE ASSOCIATED NRPPA TRANSPORT", "9.2.9.1"),
    ("ErrorIndication", "ERROR INDICATION", "9.2.6.13"),
    ("HandoverCancel", "HANDOVER CANCEL", "9.2.3.11"),
    ("HandoverCancelAcknowledge", "HANDOVER CANCEL ACKNOWLEDGE", "9.2.3.12"),
    ("HandoverCommand", "HANDOVER COMMAND", "9.2.3.2"),
    ("HandoverFailure", "HANDOVER FAILURE", "9.2.3.6"),
    ("HandoverNotify", "HANDOVER NOTIFY", "9.2.3.7"),
    ("HandoverPreparationFailure", "HANDOVER PREPARATION FAILURE", "9.2.3.3"),
    ("HandoverRequest", "HANDOVER REQUEST", "9.2.3.4"),
    ("HandoverRequestAcknowledge", "HANDOVER REQUEST ACKNOWLEDGE", "9.2.3.5"),
    ("HandoverRequired", "HANDOVER REQUIRED", "9.2.3.1"),
    ("HandoverSuccess", "HANDOVER SUCCESS", "9.2.3.15"),
    ("InitialContextSetupFailure", "INITIAL CONTEXT SETUP FAILURE", "9.2.2.3"),
    ("InitialContextSetupRequest", "INITIAL CONTEXT SETUP REQUEST", "9.2.2.1"),
    ("InitialContextSetupResponse", "INITIAL CONTEXT SETUP RESPONSE", "9.2.2.2"),
    ("InitialUeMessage", "INITIAL UE MESSAGE", "9.2.5.1"),
    ("LocationReport", "LOCATION REPORT", "9.2.11.3"),
    ("LocationReportingControl", "LOCATION REPORTING CONTROL", "9.2.11.1"),
    ("LocationReportingFailureIndication", "LOCATION REPORTING FAILURE INDICATION", "9.2.11.2"),
    ("NasNonDeliveryIndication", "NAS NON DELIVERY INDICATION", "9.2.5.4"),
    ("NgReset", "NG RESET", "9.2.6.11"),
    ("NgResetAcknowledge", "NG RESET ACKNOWLEDGE", "9.2.6.12"),
    ("NgSetupFailure", "NG SETUP FAILURE", "9.2.6.3"),
    ("NgSetupRequest", "NG SETUP REQUEST", "9.2.6.1"),
    ("NgSetupResponse", "NG SETUP RESPONSE", "9.2.6.2"),
    ("OverloadStart", "OVERLOAD START", "9.2.6.14"),
    ("OverloadStop", "OVERLOAD STOP", "9.2.6.15"),
    ("Paging", "PAGING", "9.2.4.1"),
    ("PathSwitchRequest", "PATH SWITCH REQUEST", "9.2.3.8"),
    ("PathSwitchRequestAcknowledge", "PATH SWITCH REQUEST ACKNOWLEDGE", "9.2.3.9"),
    ("PathSwitchRequestFailure", "PATH SWITCH REQUEST FAILURE", "9.2.3.10"),
    ("PduSessionResourceModifyConfirm", "PDU SESSION RESOURCE MODIFY CONFIRM", "9.2.1.9"),
    ("PduSessionResourceModifyIndication", "PDU SESSION RESOURCE MODIFY INDICATION", "9.2.1.8"),
    ("PduSessionResourceModifyRequest", "PDU SESSION RESOURCE MODIFY REQUEST", "9.2.1.5"),
    ("PduSessionResourceModifyResponse", "PDU SESSION RESOURCE MODIFY RESPONSE", "9.2.1.6"),
    ("PduSessionResourceNotify", "PDU SESSION RESOURCE NOTIFY", "9.2.1.7"),
    ("PduSessionResourceReleaseCommand", "PDU SESSION RESOURCE RELEASE COMMAND", "9.2.1.3"),
    ("PduSessionResourceReleaseResponse", "PDU SESSION RESOURCE RELEASE RESPONSE", "9.2.1.4"),
    ("PduSessionResourceSetupRequest", "PDU SESSION RESOURCE SETUP REQUEST", "9.2.1.1"),
    ("PduSessionResourceSetupResponse", "PDU SESSION RESOURCE SETUP RESPONSE", "9.2.1.2"),
    ("PwsCancelRequest", "PWS CANCEL REQUEST", "9.2.8.3"),
    ("PwsCancelResponse", "PWS CANCEL RESPONSE", "9.2.8.4"),
    ("PwsFailureIndication", "PWS FAILURE INDICATION", "9.2.8.6"),
    ("PwsRestartIndication", "PWS RESTART INDICATION", "9.2.8.5"),
    ("RanConfigurationUpdate", "RAN CONFIGURATION UPDATE", "9.2.6.4"),
    ("RanConfigurationUpdateAcknowledge", "RAN CONFIGURATION UPDATE ACKNOWLEDGE", "9.2.6.5"),
    ("RanConfigurationUpdateFailure", "RAN CONFIGURATION UPDATE FAILURE", "9.2.6.6"),
    ("RerouteNasRequest", "REROUTE NAS REQUEST", "9.2.5.5"),
    ("RrcInactiveTransitionReport", "RRC INACTIVE TRANSITION REPORT", "9.2.2.10"),
    ("SecondaryRatDataUsageReport", "SECONDARY RAT DATA USAGE REPORT", "9.2.14.1"),
    ("UeContextModificationFailure", "UE CONTEXT MODIFICATION FAILURE", "9.2.2.9"),
    ("UeContextModificationRequest", "UE CONTEXT MODIFICATION REQUEST", "9.2.2.7"),
    ("UeContextModificationResponse", "UE CONTEXT MODIFICATION RESPONSE", "9.2.2.8"),
    ("UeContextReleaseCommand", "UE CONTEXT RELEASE COMMAND", "9.2.2.5"),
    ("UeContextReleaseComplete", "UE CONTEXT RELEASE COMPLETE", "9.2.2.6"),
    ("UeContextReleaseRequest", "UE CONTEXT RELEASE REQUEST", "9.2.2.4"),
    ("UeContextResumeFailure", "UE CONTEXT RESUME FAILURE", "9.2.2.16"),
    ("UeContextResumeRequest", "UE CONTEXT RESUME REQUEST", "9.2.2.14"),
    ("UeContextSuspendFailure", "UE CONTEXT SUSPEND FAILURE", "9.2.2.19"),
    ("UeContextSuspendRequest", "UE CONTEXT SUSPEND REQUEST", "9.2.2.17"),
    ("UeRadioCapabilityCheckRequest", "UE RADIO CAPABILITY CHECK REQUEST", "9.2.13.2"),
    ("UeRadioCapabilityCheckResponse", "UE RADIO CAPABILITY CHECK RESPONSE", "9.2.13.3"),
    ("UeRadioCapabilityIdMappingRequest", "UE RADIO CAPABILITY ID MAPPING REQUEST", "9.2.13.4"),
    ("UeRadioCapabilityIdMappingResponse", "UE RADIO CAPABILITY ID MAPPING RESPONSE", "9.2.13.5"),
    ("UeRadioCapabilityInfoIndication", "UE RADIO CAPABILITY INFO INDICATION", "9.2.13.1"),
    ("UeTnlaBindingReleaseRequest", "UE TNLA BINDING RELEASE REQUEST", "9.2.12.1"),
    ("UplinkNasTransport", "UPLINK NAS TRANSPORT", "9.2.5.3"),
    ("UplinkNonUeAssociatedNrppaTransport", "UPLINK NON UE ASSOCIATED NRPPA TRANSPORT", "9.2.9.4"),
    ("UplinkRanConfigurationTransfer", "UPLINK RAN CONFIGURATION TRANSFER", "9.2.7.1"),
    ("UplinkRanEarlyStatusTransfer", "UPLINK RAN EARLY STATUS TRANSFER", "9.2.3.16"),
    ("UplinkRanStatusTransfer", "UPLINK RAN STATUS TRANSFER", "9.2.3.13"),
    ("UplinkUeAssociatedNrppaTransport", "UPLINK UE ASSOCIATED NRPPA TRANSPORT", "9.2.9.2"),
    ("WriteReplaceWarningRequest", "WRITE-REPLACE WARNING REQUEST", "9.2.8.1"),
    ("WriteReplaceWarningResponse", "WRITE-REPLACE WARNING RESPONSE", "9.2.8.2"),
];

/// NAS messages by the names of their types: clause of TS 24.501. Their names are those of the message type.
pub(super) const NAS: &[(&str, &str)] = &[
    ("AuthenticationFailure", "8.2.4"),
    ("AuthenticationReject", "8.2.5"),
    ("AuthenticationRequest", "8.2.1"),
    ("AuthenticationResponse", "8.2.2"),
    ("AuthenticationResult", "8.2.3"),
    ("ConfigurationUpdateCommand", "8.2.19"),
    ("ConfigurationUpdateComplete", "8.2.20"),
    ("ControlPlaneServiceRequest", "8.2.30"),
    ("DeregistrationAcceptUeOriginating", "8.2.13"),
    ("DeregistrationAcceptUeTerminated", "8.2.15"),
    ("DeregistrationRequestUeOriginating", "8.2.12"),
    ("DeregistrationRequestUeTerminated", "8.2.14"),
    ("DlNasTransport", "8.2.11"),
    ("EstablishmentAccept", "8.3.2"),
    ("EstablishmentReject", "8.3.3"),
    ("EstablishmentRequest", "8.3.1"),
    ("IdentityRequest", "8.2.21"),
    ("IdentityResponse", "8.2.22"),
    ("MmStatus", "8.2.29"),
    ("ModificationCommand", "8.3.9"),
    ("ModificationCommandReject", "8.3.11"),
    ("ModificationComplete", "8.3.10"),
    ("ModificationReject", "8.3.8"),
    ("ModificationRequest", "8.3.7"),
    ("Notification", "8.2.23"),
    ("NotificationResponse", "8.2.24"),
    ("RegistrationAccept", "8.2.7"),
    ("RegistrationComplete", "8.2.8"),
    ("RegistrationReject", "8.2.9"),
    ("RegistrationRequest", "8.2.6"),
    ("ReleaseCommand", "8.3.14"),
    ("ReleaseComplete", "8.3.15"),
    ("ReleaseReject", "8.3.13"),
    ("ReleaseRequest", "8.3.12"),
    ("SecurityModeCommand", "8.2.25"),
    ("SecurityModeComplete", "8.2.26"),
    ("SecurityModeReject", "8.2.27"),
    ("ServiceAccept", "8.2.17"),
    ("ServiceReject", "8.2.18"),
    ("ServiceRequest", "8.2.16"),
    ("SessionAuthenticationCommand", "8.3.4"),
    ("SessionAuthenticationComplete", "8.3.5"),
    ("SessionAuthenticationResult", "8.3.6"),
    ("SliceAuthenticationCommand", "8.2.31"),
    ("SliceAuthenticationComplete", "8.2.32"),
    ("SliceAuthenticationResult", "8.2.33"),
    ("SmStatus", "8.3.16"),
    ("UlNasTransport", "8.2.10"),
];

/// PFCP messages by the names of their types: name, clause of TS 29.244.
pub(super) const PFCP: &[(&str, &str, &str)] = &[
    ("HeartbeatRequest", "PFCP Heartbeat Request", "7.4.2.1"),
    ("HeartbeatResponse", "PFCP Heartbeat Response", "7.4.2.2"),
    ("PfdManagementRequest", "PFCP Pfd Management Request", "7.4.3.1"),
    ("PfdManagementResponse", "PFCP Pfd Management Response", "7.4.3.2"),
    ("AssociationSetupRequest", "PFCP Association Setup Request", "7.4.4.1"),
    ("AssociationSetupResponse", "PFCP Association Setup Response", "7.4.4.2"),
    ("AssociationUpdateRequest", "PFCP Association Update Request", "7.4.4.3"),
    ("AssociationUpdateResponse", "PFCP Association Update Response", "7.4.4.4"),
    ("AssociationReleaseRequest", "PFCP Association Release Request", "7.4.4.5"),
    ("AssociationReleaseResponse", "PFCP Association Release Response", "7.4.4.6"),
    ("VersionNotSupportedResponse", "PFCP Version Not Supported Response", "7.4.4.7"),
    ("NodeReportRequest", "PFCP Node Report Request", "7.4.5.1"),
    ("NodeReportResponse", "PFCP Node Report Response", "7.4.5.2"),
    ("SessionEstablishmentRequest", "PFCP Session Establishment Request", "7.5.2"),
    ("SessionEstablishmentResponse", "PFCP Session Establishment Response", "7.5.3"),
    ("SessionModificationRequest", "PFCP Session Modification Request", "7.5.4"),
    ("SessionModificationResponse", "PFCP Session Modification Response", "7.5.5"),
    ("SessionDeletionRequest", "PFCP Session Deletion Request", "7.5.6"),
    ("SessionDeletionResponse", "PFCP Session Deletion Response", "7.5.7"),
    ("SessionReportRequest", "PFCP Session Report Request", "7.5.8"),
    ("SessionReportResponse", "PFCP Session Report Response", "7.5.9"),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_message_has_its_name_and_clause() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let mut found = 0;
        for line in read("wire/ngap/src/message.rs").lines() {
            for outcome in ["initiating ", "successful ", "unsuccessful "] {
                for rest in line.split(outcome).skip(1) {
                    let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
                    if name.chars().next().is_some_and(|c| c.is_ascii_uppercase()) {
                        found += 1;
                        assert!(NGAP.iter().any(|(n, ..)| *n == name), "{name}");
                    }
                }
            }
        }
        for file in ["wire/nas/src/mm.rs", "wire/nas/src/sm.rs"] {
            for line in read(file).lines().filter(|l| l.trim().starts_with("0x") && l.contains('"')) {
                let name = line.rsplit('"').next().unwrap_or_default().trim().trim_end_matches(',');
                found += 1;
                assert!(NAS.iter().any(|(n, _)| *n == name), "{name}");
            }
        }
        assert!(found > 120, "{found}");
    }
}
