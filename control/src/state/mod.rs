//! The plain data of a UE: the content of a checkpoint. Procedures read and write it; the code here neither sends nor
//! waits.
//!
//! | file | what |
//! | --- | --- |
//! | `ue_context` | the whole UE context |
//! | `amf_context`, `connection`, `handover`, `context_transfer` | the AMF's part |
//! | `sm_context`, `qos_flow` | the SMF's part, one per PDU session |
//! | `remote_session` | sessions of another vendor's SMF, as the AMF knows them |
//! | `intermediate_upf` | UPFs between gNB and anchor |
//! | `session_policy` | policies of a PCF for a session, and the flows that follow from them |
//! | `session_charging` | what the CHF granted for a session, and what it does not know yet |
//! | `remote_amf` | the AMF of another vendor that serves the UE, if one does |
//! | `session_grant`, `veil_session` | the broker's grant, if the UE is a broker's user |
//! | `subscription` | the subscription, from the UDM |

mod amf_context;
mod another;
mod connection;
mod context_transfer;
mod handover;
mod intermediate_upf;
mod qos_flow;
mod remote_amf;
mod remote_session;
mod session_charging;
mod session_grant;
mod session_policy;
mod sm_context;
mod subscription;
mod ue_context;
mod veil_session;

pub use amf_context::{AmfContext, LastSeenCell, Mobility, UeLocation, UeRadio, UeSecurity, UeSlices};
pub use connection::{Connection, HandoverSource, RELEASE_GRACE};
pub use handover::Target;
pub use intermediate_upf::{IntermediateUpf, IntermediateUpfStage};
pub use qos_flow::{FlowRule, Marks, QosFlow};
pub use remote_amf::RemoteAmfContext;
pub(crate) use remote_session::{RemoteSession, SessionWork};
pub use session_charging::SessionCharging;
pub use session_grant::SessionGrant;
pub(crate) use session_grant::UsageReporting;
pub(crate) use session_policy::SessionPolicy;
pub use sm_context::{
    CountedReports, Modification, PendingChange, SessionQos, SessionUsage, SmContext, Tunnel, UeAddress,
    UpState,
};
pub use subscription::{
    Ambr, Arp, MobilityRestrictions, Priority, ServiceArea, SessionTypes, SubscribedDnn, SubscribedSlice,
    Subscription,
};
pub use ue_context::UeContext;
pub use veil_session::VeilSession;

pub(crate) use amf_context::{
    ALLOWED_SLICES_MAX, AREAS_MAX, DownlinkProtection, LocationRequests, NextHop, ReachabilityParameters,
    VoiceMatch,
};
pub(crate) use connection::{PendingSetup, SetupUse};
pub(crate) use context_transfer::{ContextTransfer, InboundTransfer, IncomingSession, OutboundTransfer};
pub(crate) use handover::{
    HandoverKind, HandoverSessions, Phase, PredictedHandover, PredictedRequest, QueuedPathSwitch,
};
pub(crate) use qos_flow::{DEFAULT_QFI, DEFAULT_RULE};
pub(crate) use remote_amf::{AmfSession, EXCHANGES_MAX, ExchangeKind, OpenExchange};
pub(crate) use subscription::bits;
