//! 5GMM cause (TS 24.501 §9.11.3.2, Annex A) and 5GSM cause (§9.11.4.2, Annex B).

use core::fmt;

use whimbrel_ids::{DecodeError, Reader};

use crate::codec::Ie;

macro_rules! causes {
    ( $(#[$meta:meta])* $name:ident { $( $code:literal $variant:ident $text:literal, )* } ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $( #[doc = concat!("#", stringify!($code), ": ", $text, ".")] $variant = $code, )* }

        impl $name {
            /// All causes, in the order of their values.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// From the value; `None` if the clause defines no cause of this value.
            pub const fn from_u8(value: u8) -> Option<Self> {
                match value { $( $code => Some(Self::$variant), )* _ => None }
            }

            /// The code of the cause.
            pub const fn value(self) -> u8 {
                self as u8
            }
        }

        /// The cause in the standard's words.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $( Self::$variant => $text, )* })
            }
        }

        impl Ie for $name {
            /// An undefined value is taken as "protocol error, unspecified", by its clause.
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self::from_u8(r.u8(stringify!($name))?).unwrap_or(Self::ProtocolErrorUnspecified))
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.push(self.value());
            }
        }
    };
}

causes! {
    /// 5GMM cause (TS 24.501 §9.11.3.2).
    MmCause {
        3 IllegalUe "Illegal UE",
        5 PeiNotAccepted "PEI not accepted",
        6 IllegalMe "Illegal ME",
        7 FiveGsServicesNotAllowed "5GS services not allowed",
        9 UeIdentityCannotBeDerived "UE identity cannot be derived by the network",
        10 ImplicitlyDeregistered "Implicitly de-registered",
        11 PlmnNotAllowed "PLMN not allowed",
        12 TrackingAreaNotAllowed "Tracking area not allowed",
        13 RoamingNotAllowedInTrackingArea "Roaming not allowed in this tracking area",
        15 NoSuitableCellsInTrackingArea "No suitable cells in tracking area",
        20 MacFailure "MAC failure",
        21 SynchFailure "Synch failure",
        22 Congestion "Congestion",
        23 UeSecurityCapabilitiesMismatch "UE security capabilities mismatch",
        24 SecurityModeRejectedUnspecified "Security mode rejected, unspecified",
        26 Non5gAuthenticationUnacceptable "Non-5G authentication unacceptable",
        27 N1ModeNotAllowed "N1 mode not allowed",
        28 RestrictedServiceArea "Restricted service area",
        31 RedirectionToEpcRequired "Redirection to EPC required",
        36 IabNodeOperationNotAuthorized "IAB-node operation not authorized",
        43 LadnNotAvailable "LADN not available",
        62 NoNetworkSlicesAvailable "No network slices available",
        65 MaximumNumberOfPduSessionsReached "Maximum number of PDU sessions reached",
        67 InsufficientResourcesForSliceAndDnn "Insufficient resources for specific slice and DNN",
        69 InsufficientResourcesForSlice "Insufficient resources for specific slice",
        71 NgKsiAlreadyInUse "ngKSI already in use",
        72 Non3gppAccessTo5gcnNotAllowed "Non-3GPP access to 5GCN not allowed",
        73 ServingNetworkNotAuthorized "Serving network not authorized",
        74 TemporarilyNotAuthorizedForSnpn "Temporarily not authorized for this SNPN",
        75 PermanentlyNotAuthorizedForSnpn "Permanently not authorized for this SNPN",
        76 NotAuthorizedForCag "Not authorized for this CAG or authorized for CAG cells only",
        77 WirelineAccessAreaNotAllowed "Wireline access area not allowed",
        78 PlmnNotAllowedAtUeLocation "PLMN not allowed to operate at the present UE location",
        79 UasServicesNotAllowed "UAS services not allowed",
        80 DisasterRoamingNotAllowed "Disaster roaming for the determined PLMN with disaster condition not allowed",
        90 PayloadWasNotForwarded "Payload was not forwarded",
        91 DnnNotSupportedOrNotSubscribed "DNN not supported or not subscribed in the slice",
        92 InsufficientUserPlaneResources "Insufficient user-plane resources for the PDU session",
        95 SemanticallyIncorrectMessage "Semantically incorrect message",
        96 InvalidMandatoryInformation "Invalid mandatory information",
        97 MessageTypeNonExistent "Message type non-existent or not implemented",
        98 MessageTypeNotCompatible "Message type not compatible with the protocol state",
        99 InformationElementNonExistent "Information element non-existent or not implemented",
        100 ConditionalIeError "Conditional IE error",
        101 MessageNotCompatible "Message not compatible with the protocol state",
        111 ProtocolErrorUnspecified "Protocol error, unspecified",
    }
}

causes! {
    /// 5GSM cause (TS 24.501 §9.11.4.2).
    SmCause {
        8 OperatorDeterminedBarring "Operator determined barring",
        26 InsufficientResources "Insufficient resources",
        27 MissingOrUnknownDnn "Missing or unknown DNN",
        28 UnknownPduSessionType "Unknown PDU session type",
        29 UserAuthenticationOrAuthorizationFailed "User authentication or authorization failed",
        31 RequestRejectedUnspecified "Request rejected, unspecified",
        32 ServiceOptionNotSupported "Service option not supported",
        33 RequestedServiceOptionNotSubscribed "Requested service option not subscribed",
        35 PtiAlreadyInUse "PTI already in use",
        36 RegularDeactivation "Regular deactivation",
        37 FiveGsQosNotAccepted "5GS QoS not accepted",
        38 NetworkFailure "Network failure",
        39 ReactivationRequested "Reactivation requested",
        41 SemanticErrorInTftOperation "Semantic error in the TFT operation",
        42 SyntacticalErrorInTftOperation "Syntactical error in the TFT operation",
        43 InvalidPduSessionIdentity "Invalid PDU session identity",
        44 SemanticErrorsInPacketFilters "Semantic errors in packet filter(s)",
        45 SyntacticalErrorInPacketFilters "Syntactical error in packet filter(s)",
        46 OutOfLadnServiceArea "Out of LADN service area",
        47 PtiMismatch "PTI mismatch",
        50 PduSessionTypeIpv4OnlyAllowed "PDU session type IPv4 only allowed",
        51 PduSessionTypeIpv6OnlyAllowed "PDU session type IPv6 only allowed",
        54 PduSessionDoesNotExist "PDU session does not exist",
        57 PduSessionTypeIpv4v6OnlyAllowed "PDU session type IPv4v6 only allowed",
        58 PduSessionTypeUnstructuredOnlyAllowed "PDU session type Unstructured only allowed",
        59 Unsupported5qiValue "Unsupported 5QI value",
        61 PduSessionTypeEthernetOnlyAllowed "PDU session type Ethernet only allowed",
        67 InsufficientResourcesForSliceAndDnn "Insufficient resources for specific slice and DNN",
        68 NotSupportedSscMode "Not supported SSC mode",
        69 InsufficientResourcesForSlice "Insufficient resources for specific slice",
        70 MissingOrUnknownDnnInSlice "Missing or unknown DNN in a slice",
        81 InvalidPtiValue "Invalid PTI value",
        82 IntegrityProtectionDataRateTooLow
            "Maximum data rate per UE for user-plane integrity protection is too low",
        83 SemanticErrorInQosOperation "Semantic error in the QoS operation",
        84 SyntacticalErrorInQosOperation "Syntactical error in the QoS operation",
        85 InvalidMappedEpsBearerIdentity "Invalid mapped EPS bearer identity",
        86 UasServicesNotAllowed "UAS services not allowed",
        95 SemanticallyIncorrectMessage "Semantically incorrect message",
        96 InvalidMandatoryInformation "Invalid mandatory information",
        97 MessageTypeNonExistent "Message type non-existent or not implemented",
        98 MessageTypeNotCompatible "Message type not compatible with the protocol state",
        99 InformationElementNonExistent "Information element non-existent or not implemented",
        100 ConditionalIeError "Conditional IE error",
        101 MessageNotCompatible "Message not compatible with the protocol state",
        111 ProtocolErrorUnspecified "Protocol error, unspecified",
    }
}
