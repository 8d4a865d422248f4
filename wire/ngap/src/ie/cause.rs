//! Causes (TS 38.413 §9.3.1.2).

choice! {
    /// Cause: why something happens, or failed to.
    pub enum Cause {
        /// `radioNetwork`.
        RadioNetwork(CauseRadioNetwork),
        /// `transport`.
        Transport(CauseTransport),
        /// `nas`.
        Nas(CauseNas),
        /// `protocol`.
        Protocol(CauseProtocol),
        /// `misc`.
        Misc(CauseMisc),
    }
}

enumerated! {
    /// `CauseRadioNetwork` (TS 38.413 §9.4.5).
    pub enum CauseRadioNetwork {
        Unspecified "unspecified", TxnrelocoverallExpiry "txnrelocoverall-expiry",
        SuccessfulHandover "successful-handover",
        ReleaseDueToNgranGeneratedReason "release-due-to-ngran-generated-reason",
        ReleaseDueTo5gcGeneratedReason "release-due-to-5gc-generated-reason",
        HandoverCancelled "handover-cancelled", PartialHandover "partial-handover",
        HoFailureInTarget5GcNgranNodeOrTargetSystem "ho-failure-in-target-5GC-ngran-node-or-target-system",
        HoTargetNotAllowed "ho-target-not-allowed", TngrelocoverallExpiry "tngrelocoverall-expiry",
        TngrelocprepExpiry "tngrelocprep-expiry", CellNotAvailable "cell-not-available",
        UnknownTargetId "unknown-targetID",
        NoRadioResourcesAvailableInTargetCell "no-radio-resources-available-in-target-cell",
        UnknownLocalUeNgapId "unknown-local-UE-NGAP-ID",
        InconsistentRemoteUeNgapId "inconsistent-remote-UE-NGAP-ID",
        HandoverDesirableForRadioReason "handover-desirable-for-radio-reason",
        TimeCriticalHandover "time-critical-handover",
        ResourceOptimisationHandover "resource-optimisation-handover",
        ReduceLoadInServingCell "reduce-load-in-serving-cell", UserInactivity "user-inactivity",
        RadioConnectionWithUeLost "radio-connection-with-ue-lost",
        RadioResourcesNotAvailable "radio-resources-not-available",
        InvalidQosCombination "invalid-qos-combination",
        FailureInRadioInterfaceProcedure "failure-in-radio-interface-procedure",
        InteractionWithOtherProcedure "interaction-with-other-procedure",
        UnknownPduSessionId "unknown-PDU-session-ID", UnkownQosFlowId "unkown-qos-flow-ID",
        MultiplePduSessionIdInstances "multiple-PDU-session-ID-instances",
        MultipleQosFlowIdInstances "multiple-qos-flow-ID-instances",
        EncryptionAndOrIntegrityProtectionAlgorithmsNotSupported "encryption-and-or-integrity-protection-algorithms-not-supported",
        NgIntraSystemHandoverTriggered "ng-intra-system-handover-triggered",
        NgInterSystemHandoverTriggered "ng-inter-system-handover-triggered",
        XnHandoverTriggered "xn-handover-triggered", NotSupported5qiValue "not-supported-5QI-value",
        UeContextTransfer "ue-context-transfer",
        ImsVoiceEpsFallbackOrRatFallbackTriggered "ims-voice-eps-fallback-or-rat-fallback-triggered",
        UpIntegrityProtectionNotPossible "up-integrity-protection-not-possible",
        UpConfidentialityProtectionNotPossible "up-confidentiality-protection-not-possible",
        SliceNotSupported "slice-not-supported",
        UeInRrcInactiveStateNotReachable "ue-in-rrc-inactive-state-not-reachable",
        Redirection "redirection",
        ResourcesNotAvailableForTheSlice "resources-not-available-for-the-slice",
        UeMaxIntegrityProtectedDataRateReason "ue-max-integrity-protected-data-rate-reason",
        ReleaseDueToCnDetectedMobility "release-due-to-cn-detected-mobility",
    } + {
        N26InterfaceNotAvailable "n26-interface-not-available",
        ReleaseDueToPreEmption "release-due-to-pre-emption",
        MultipleLocationReportingReferenceIdInstances "multiple-location-reporting-reference-ID-instances",
        RsnNotAvailableForTheUp "rsn-not-available-for-the-up", NpnAccessDenied "npn-access-denied",
        CagOnlyAccessDenied "cag-only-access-denied",
        InsufficientUeCapabilities "insufficient-ue-capabilities",
        RedcapUeNotSupported "redcap-ue-not-supported", UnknownMbsSessionId "unknown-MBS-Session-ID",
        IndicatedMbsSessionAreaInformationNotServedByTheGnb "indicated-MBS-session-area-information-not-served-by-the-gNB",
        InconsistentSliceInfoForTheSession "inconsistent-slice-info-for-the-session",
        MisalignedAssociationForMulticastUnicast "misaligned-association-for-multicast-unicast",
        EredcapUeNotSupported "eredcap-ue-not-supported",
        TwoRxXrUeNotSupported "two-rx-xr-ue-not-supported",
    }
}

enumerated! {
    /// `CauseTransport` (TS 38.413 §9.4.5).
    pub enum CauseTransport {
        TransportResourceUnavailable "transport-resource-unavailable", Unspecified "unspecified",
    } + {}
}

enumerated! {
    /// `CauseNas` (TS 38.413 §9.4.5).
    pub enum CauseNas {
        NormalRelease "normal-release", AuthenticationFailure "authentication-failure",
        Deregister "deregister", Unspecified "unspecified",
    } + {
        UeNotInPlmnServingArea "uE-not-in-PLMN-serving-area",
        MobileIabNotAuthorized "mobile-IAB-not-authorized", IabNotAuthorized "iAB-not-authorized",
    }
}

enumerated! {
    /// `CauseProtocol` (TS 38.413 §9.4.5).
    pub enum CauseProtocol {
        TransferSyntaxError "transfer-syntax-error",
        AbstractSyntaxErrorReject "abstract-syntax-error-reject",
        AbstractSyntaxErrorIgnoreAndNotify "abstract-syntax-error-ignore-and-notify",
        MessageNotCompatibleWithReceiverState "message-not-compatible-with-receiver-state",
        SemanticError "semantic-error",
        AbstractSyntaxErrorFalselyConstructedMessage "abstract-syntax-error-falsely-constructed-message",
        Unspecified "unspecified",
    } + {}
}

enumerated! {
    /// `CauseMisc` (TS 38.413 §9.4.5).
    pub enum CauseMisc {
        ControlProcessingOverload "control-processing-overload",
        NotEnoughUserPlaneProcessingResources "not-enough-user-plane-processing-resources",
        HardwareFailure "hardware-failure", OmIntervention "om-intervention",
        UnknownPlmnOrSNpn "unknown-PLMN-or-SNPN", Unspecified "unspecified",
    } + {}
}

/// Stands for the cause that a peer left out, though it had to give one.
impl Default for Cause {
    fn default() -> Self {
        Cause::Misc(CauseMisc::Unspecified)
    }
}

impl Cause {
    /// Group, name and number of the value in its group (TS 38.413 §9.3.1.2, §9.4.5): `radioNetwork radio-resources-not-available (22)`.
    pub fn in_words(&self) -> String {
        let number = match self {
            Cause::RadioNetwork(c) => *c as u8,
            Cause::Transport(c) => *c as u8,
            Cause::Nas(c) => *c as u8,
            Cause::Protocol(c) => *c as u8,
            Cause::Misc(c) => *c as u8,
        };
        format!("{self} ({number})")
    }
}

impl core::fmt::Display for Cause {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Cause::RadioNetwork(c) => write!(f, "radioNetwork {c}"),
            Cause::Transport(c) => write!(f, "transport {c}"),
            Cause::Nas(c) => write!(f, "nas {c}"),
            Cause::Protocol(c) => write!(f, "protocol {c}"),
            Cause::Misc(c) => write!(f, "misc {c}"),
        }
    }
}

impl From<CauseRadioNetwork> for Cause {
    fn from(c: CauseRadioNetwork) -> Self {
        Cause::RadioNetwork(c)
    }
}

impl From<CauseTransport> for Cause {
    fn from(c: CauseTransport) -> Self {
        Cause::Transport(c)
    }
}

impl From<CauseNas> for Cause {
    fn from(c: CauseNas) -> Self {
        Cause::Nas(c)
    }
}

impl From<CauseProtocol> for Cause {
    fn from(c: CauseProtocol) -> Self {
        Cause::Protocol(c)
    }
}

impl From<CauseMisc> for Cause {
    fn from(c: CauseMisc) -> Self {
        Cause::Misc(c)
    }
}
