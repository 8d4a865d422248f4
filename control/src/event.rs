//! Events as typed values: pure code does not print. One adapter in the program turns them into log lines, metrics and
//! explanations; tests compare the same stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, GlobalGnbId, PduSessionId, Qfi, RanUeNgapId, Tai};
use whimbrel_ngap::ie::NgranCgi;

use crate::envelope::{AssociationId, UeId, UeIdentities};
use crate::flat::text::{self, Text};
use crate::policy::FlowName;
use crate::procedure::Procedure;
use crate::refusal::Refusal;
use crate::state::{LastSeenCell, Modification};

/// An event of a UE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A procedure has completed.
    Completed {
        /// The procedure that has ended.
        procedure: Procedure,
        /// The UE that the event is about.
        subject: UeIdentities,
        /// From its first input to its last output, in the envelopes' time.
        took: Duration,
    },
    /// A procedure was refused or failed.
    Refused {
        /// The procedure that was refused.
        procedure: Procedure,
        /// The UE that the event is about.
        subject: UeIdentities,
        /// The gNB's name of the UE, where it has a connection.
        ran_ue_ngap_id: Option<RanUeNgapId>,
        /// The reason, with its cause.
        refusal: Refusal,
    },
    /// The state of a PDU session has changed.
    Session {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Identity of the session.
        psi: PduSessionId,
        /// Its data network.
        dnn: Dnn,
        /// The change of the session.
        change: SessionChange,
    },
    /// The UE was deregistered without its request.
    Deregistered {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Reason of the deregistration.
        why: DeregistrationReason,
    },
    /// The UE has become reachable, as was requested (TS 23.502 §4.2.5.2).
    Reachable {
        /// The UE that the event is about.
        subject: UeIdentities,
    },
    /// A target gNB has other UE security capabilities than the AMF: a bidding-down attack is possible (TS 33.501
    /// §6.7.3.1).
    SecurityCapabilitiesDiffer {
        /// The UE that the event is about.
        subject: UeIdentities,
    },
    /// The target gNB of an Xn handover has another user plane security policy of a session than the SMF: its source may be
    /// compromised (TS 33.501 §6.6.1).
    UpSecurityPolicyDiffers {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Identity of the session.
        psi: PduSessionId,
    },
    /// A gNB reported the UE's location, as was requested (TS 38.413 §8.12.3).
    Located {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Its tracking area.
        tai: Option<Tai>,
        /// The cell that the gNB reported.
        cell: Option<NgranCgi>,
    },
    /// A gNB reported the UE's presence in a watched area (TS 38.413 §8.12.3).
    Presence {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// The area that it entered or left.
        area: Tai,
        /// Whether the UE is in it; `None`: the gNB does not know.
        inside: Option<bool>,
    },
    /// The UE's location could not be determined (TS 38.413 §8.12.2).
    NotLocated {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Reason why there is no location.
        why: String,
    },
    /// A gNB traces the UE in a cell traffic trace (TS 38.413 §8.11.4).
    CellTraffic {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Trace reference and trace recording session reference (TS 32.422 §5.6).
        trace: [u8; 8],
        /// The cell of the traced UE.
        cell: NgranCgi,
    },
    /// A message was dropped.
    Dropped {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Reason why its context was dropped.
        why: MessageDropReason,
    },
    /// A message to the UE was repeated; counted as a sign of radio quality.
    Repeated(#[serde(with = "text")] Text),
    /// Movement of a connected UE, for a handover predictor (Synergy §III-C.1), which answers with
    /// [`Payload::Predicted`](crate::Payload::Predicted). Emitted if configured.
    Sign {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// The kind of observation.
        sign: Sign,
        /// The tracking area where the UE was last seen.
        tai: Option<Tai>,
        /// The cell, and when.
        seen: Option<LastSeenCell>,
    },
    /// A change of a PDU session that the network began has an outcome (TS 23.502 §4.3.3.2, §4.3.4.2, §4.3.7).
    SessionOperation {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// Identity of the session.
        psi: PduSessionId,
        /// The procedure that makes the change.
        procedure: Procedure,
        /// The operator's order that this answers; `None`: all orders that this procedure carries out.
        order: Option<Modification>,
        /// The outcome of the operator's order.
        outcome: SessionOutcome,
    },
    /// A broker has granted a session of one of its users.
    Granted {
        /// The UE that the event is about.
        subject: UeIdentities,
        /// The broker's domain.
        broker: String,
        /// The grant as the broker signed it: what a judge believes.
        #[serde(with = "crate::flat::octets::owned")]
        grant: Vec<u8>,
    },
    /// A broker's UE has sent a sealed usage report for its broker (CellBricks, chapter 3.4.3).
    UsageReported {
        /// The UE of the report.
        subject: UeIdentities,
        /// The octets, which the broker alone can read.
        #[serde(with = "crate::flat::octets::owned")]
        sealed: Vec<u8>,
    },
    /// A broker has granted a session to a veiled UE, which was there to respond (LOCA, chapter 4.4.2).
    VeilGranted {
        /// The UE, by the random name of its session.
        subject: UeIdentities,
        /// The broker's domain.
        broker: String,
        /// H(token), the session group.
        group: [u8; 32],
        /// H(the user's request), the session.
        session: [u8; 32],
        /// The UE's response, by which the operator shows that it was there.
        presence: [u8; 32],
    },
    /// A veiled UE did not accept its broker's challenge; the broker alone can read why.
    VeilFailed {
        /// The octets as they came.
        #[serde(with = "crate::flat::octets::owned")]
        sealed: Vec<u8>,
    },
}

/// The outcome of a change of a PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionOutcome {
    /// UE and UPF have made the change.
    Completed {
        /// QoS flows that the gNB did not accept: the session goes on without them (TS 38.413 §8.2.3.2).
        failed_flows: Vec<FailedFlow>,
        /// The gNB did not make the change that the UE has accepted: its resources are set up again.
        not_at_gnb: Option<Refusal>,
        /// Another change of the session follows at once.
        more: bool,
    },
    /// A peer refused the change, or did not answer.
    Refused {
        /// The reason of the refusal.
        refusal: Refusal,
        /// Another change of the session, which contains this one, follows at once.
        more: bool,
    },
    /// The session has the requested state already.
    Unchanged(#[serde(with = "text")] Text),
    /// The order cannot be carried out: why.
    NotPossible(#[serde(with = "text")] Text),
    /// The UE cannot be reached: why. The change is made when it connects.
    Deferred(#[serde(with = "text")] Text),
}

/// A QoS flow that a gNB did not set up or change (TS 38.413 §9.3.4.4, QoS Flow Failed to Add or Modify List).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFlow {
    /// Identifier of the QoS flow.
    pub qfi: Qfi,
    /// The name of its policy, if the session was to have such a flow.
    pub name: Option<FlowName>,
    /// Group, name and number of the NGAP cause (TS 38.413 §9.3.1.2).
    pub cause: String,
}

/// An observation of a UE's movement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sign {
    /// LOCATION REPORT (TS 38.413 §8.12.3).
    Reported,
    /// HANDOVER REQUIRED with this cause and target tracking area (TS 38.413 §8.4.1).
    Required(String, Tai),
    /// A handover has completed (HANDOVER NOTIFY, PATH SWITCH REQUEST).
    Arrived,
    /// A gNB has set up the context of a UE that was idle: after a registration, a service request or paging.
    Connected,
    /// The target gNB of a predicted handover is prepared.
    Prepared,
}

/// A change of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionChange {
    /// It exists, with a user plane.
    Established,
    /// Its user plane is deactivated.
    Deactivated,
    /// Its user plane is active again.
    Activated,
    /// It was released.
    Released,
}

/// Why a UE was deregistered without its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeregistrationReason {
    /// The subscriber registered in another slot.
    Superseded,
    /// It did not come back in time (TS 24.501 §5.3.7).
    Implicitly,
    /// The operator's command.
    ByOperator,
    /// Its subscription ended (TS 23.502 §4.2.2.3.3).
    BySubscription,
    /// Its state machine panicked on an input: a fault of this program. Other UEs are not affected.
    Fault,
    /// Its state is lost: its CPF and all its backups failed.
    StateLost,
    /// The validity of its broker's grant is over.
    GrantExpired,
    /// The credit of its broker's grant is used up.
    CreditUsedUp,
}

/// Why a UE's message was dropped. Each is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MessageDropReason {
    /// The NAS message is too short or not NAS (TS 24.501 §7.2.1).
    NotNas,
    /// The MAC is wrong, or a COUNT was used before (TS 24.501 §4.4.3.2, §4.4.4.3).
    Integrity,
    /// Not protected although protection is required (TS 24.501 §4.4.4.3).
    Unprotected,
    /// No procedure awaits it in this state (TS 24.501 §7.4).
    OutOfState,
    /// It repeats a message that is being processed.
    Duplicate,
    /// A payload that this network does not serve (SMS, LPP, SOR, UE policy).
    UnservedPayload,
    /// An answer that came too late.
    Late,
}

/// An event of a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanEvent {
    /// NG SETUP was accepted.
    Up {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// The gNB that has set up NG.
        gnb: GlobalGnbId,
        /// Its RAN node name.
        name: Option<String>,
    },
    /// NG SETUP was refused.
    SetupRefused {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// The gNB, if it named itself.
        gnb: Option<GlobalGnbId>,
        /// Why: what was offered and what is configured.
        why: SetupRefusal,
    },
    /// The association ended.
    Down {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// The gNB, if it had set up.
        gnb: Option<GlobalGnbId>,
    },
    /// All or some connections of a gNB were reset (TS 38.413 §8.7.4).
    Reset {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// Number of UEs whose connections were reset.
        ues: usize,
        /// The side that started it.
        by: ResetBy,
    },
    /// A gNB did not acknowledge NG RESET, which was sent twice (TS 38.413 §8.7.4.2.1).
    ResetUnacknowledged {
        /// The gNB's SCTP association.
        association: AssociationId,
    },
    /// A message was answered with ERROR INDICATION (TS 38.413 §8.7.5, §10).
    Refused {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// What was wrong.
        what: String,
    },
    /// The gNB sent ERROR INDICATION.
    ErrorIndication {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// Cause in the indication.
        cause: String,
    },
    /// The gNB changed its configuration, or added an association (TS 38.413 §8.7.2).
    Reconfigured {
        /// The gNB's SCTP association.
        association: AssociationId,
    },
    /// NG SETUP under an identity that another association had: the gNB restarted, or two gNBs have the same identity.
    SameIdentity {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// The former association.
        former: AssociationId,
        /// The identity that both have.
        gnb: GlobalGnbId,
    },
    /// NG SETUP under an identity came from an address that its holder does not have: the holder is probed.
    IdentityClaimed {
        /// The newcomer's association.
        association: AssociationId,
        /// The association that has the identity.
        holder: AssociationId,
        /// The identity that NG SETUP claims.
        gnb: GlobalGnbId,
    },
    /// The holder of an identity did not answer probes, and loses it.
    HolderSilent {
        /// The association that takes the identity.
        association: AssociationId,
        /// The association of the gNB that has the identity.
        holder: AssociationId,
        /// The identity that passes to the other association.
        gnb: GlobalGnbId,
    },
    /// The operator disconnected a gNB.
    Disconnected {
        /// The association on which the gNB was set up.
        association: AssociationId,
        /// Identity of the disconnected gNB.
        gnb: GlobalGnbId,
    },
    /// Two gNBs use one identity: it was taken over from an association that is still alive, or is to be.
    IdentityContested {
        /// The identity in dispute.
        gnb: GlobalGnbId,
        /// The association that has it now.
        holder: AssociationId,
        /// The association that had it before, or claims it.
        other: AssociationId,
    },
    /// No gNB set up on an association in time (TS 38.413 §8.7.1.1).
    NeverSetUp {
        /// The gNB's SCTP association.
        association: AssociationId,
    },
    /// AMF CONFIGURATION UPDATE ACKNOWLEDGE (TS 38.413 §8.7.3.2).
    UpdateTaken {
        /// The gNB's SCTP association.
        association: AssociationId,
    },
    /// AMF CONFIGURATION UPDATE FAILURE (TS 38.413 §8.7.3.3).
    UpdateRefused {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// Cause of the refusal.
        cause: String,
        /// It is repeated after the gNB's time to wait.
        again: bool,
    },
    /// The gNB acknowledged an NG RESET of the AMF (TS 38.413 §8.7.4.2.1).
    ResetAcknowledged {
        /// The gNB's SCTP association.
        association: AssociationId,
    },
    /// gNBs get OVERLOAD START or OVERLOAD STOP (TS 38.413 §8.7.7, §8.7.8).
    Overload {
        /// Whether it began.
        on: bool,
    },
    /// A configuration transfer went from one gNB to another (TS 38.413 §8.8).
    Transferred {
        /// The association of the sending gNB.
        from: AssociationId,
        /// The association of the receiving gNB.
        to: AssociationId,
    },
    /// A message for an unsupported function or an absent addressee was dropped; the procedure has no answer.
    Unserved {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// Name of the message.
        what: &'static str,
    },
    /// The outcome of a warning message at a gNB (TS 38.413 §8.9.1.2, §8.9.2.2).
    Warned {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// Kind of the warning (Message Identifier).
        message_identifier: u16,
        /// Number of the warning (Serial Number).
        serial_number: u16,
        /// The gNB's answer to the warning.
        outcome: WarningOutcome,
    },
    /// A gNB did not answer to a warning message.
    WarningUnanswered {
        /// The gNB that has not answered.
        gnb: GlobalGnbId,
        /// Kind of the warning (Message Identifier).
        message_identifier: u16,
        /// Number of the warning (Serial Number).
        serial_number: u16,
    },
    /// Cells of a gNB lost their warning messages (TS 38.413 §8.9.3, §8.9.4).
    WarningsLost {
        /// The gNB's SCTP association.
        association: AssociationId,
        /// How many cells.
        cells: usize,
        /// True: they broadcast again and get the warnings again. False: they do not broadcast.
        restarted: bool,
    },
    /// A limit was reached, and the excess dropped.
    Limited {
        /// The gNB's association, if it concerns one gNB.
        association: Option<AssociationId>,
        /// Which of the `limits`.
        limit: &'static str,
    },
}

/// The side that started an NG Reset (TS 38.413 §8.7.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResetBy {
    /// The gNB, by NG RESET or by a further NG SETUP REQUEST on its association (TS 38.413 §8.7.1.1).
    Gnb,
    /// By the operator's order.
    Operator,
}

/// Why NG SETUP is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupRefusal {
    /// It broadcasts no PLMN that is served here.
    Plmn {
        /// What it broadcasts.
        offered: Vec<String>,
        /// What is served.
        served: String,
    },
    /// It broadcasts the PLMN, but no tracking area that is served.
    Tac {
        /// What it broadcasts.
        offered: Vec<u32>,
        /// What is served.
        served: Vec<u32>,
    },
    /// It supports no slice that is offered here.
    Slice {
        /// What it supports.
        offered: Vec<String>,
        /// What is offered.
        served: Vec<String>,
    },
    /// Another gNB is set up under the same Global RAN Node ID, and both are alive.
    IdentityInUse {
        /// The association of the gNB that has the identity.
        holder: AssociationId,
    },
    /// The configuration lists gNBs, and this one is not among them.
    NotListed,
    /// The configuration lists this gNB, with other networks than the one that it connects from.
    OutsideNetworks,
    /// A further association of a gNB that is set up comes from an address that this gNB does not have.
    FurtherElsewhere {
        /// An association of the gNB.
        holder: AssociationId,
    },
    /// The operator disconnected the gNB at this address a moment ago.
    Disconnected,
    /// The limit of gNBs is reached.
    Limit(u32),
    /// It is no gNB (another kind of RAN node).
    NodeType,
}

/// A UE's event with its context.
#[derive(Clone, Debug, PartialEq)]
pub struct UeEvent {
    /// The UE, by its slot.
    pub ue: UeId,
    /// The association of the UE's last message.
    pub on: Option<AssociationId>,
    /// The event of the UE.
    pub event: Event,
}

/// The state of a warning at one gNB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningOutcome {
    /// It has not answered yet.
    Awaited,
    /// It broadcasts, in this number of cells or areas; `None`: not reported.
    Broadcasting(Option<usize>),
    /// It does not broadcast: it has no cell in the area.
    Nowhere,
    /// It did not answer.
    NoAnswer,
    /// It reported that this many of its cells no longer broadcast warnings.
    Failed(usize),
    /// It stopped, after this number of broadcasts, if reported.
    Cancelled(u64),
}
