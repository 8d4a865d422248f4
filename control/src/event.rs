//! What happened, as typed values: pure code does not print. One adapter in the program turns them into log lines,
//! metrics and explanations; tests compare the same stream.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{Dnn, GlobalGnbId, PduSessionId, Qfi, RanUeNgapId, Tai};
use whimbrel_ngap::ie::NgranCgi;

use crate::envelope::{AssociationId, Subject, UeId};
use crate::flat::text::{self, Text};
use crate::policy::FlowName;
use crate::procedure::Procedure;
use crate::refusal::Refusal;
use crate::state::{Modification, Seen};

/// Something that happened to a UE.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// A procedure ended well. `core` counts from its first message to its last, waiting for peers included.
    Completed {
        /// Which.
        procedure: Procedure,
        /// Whose.
        subject: Subject,
        /// From its first input to its last output, in the envelopes' time.
        took: Duration,
    },
    /// A procedure was refused or failed.
    Refused {
        /// Which.
        procedure: Procedure,
        /// Whose.
        subject: Subject,
        /// The gNB's name of the UE, where it has a connection.
        ran_ue_ngap_id: Option<RanUeNgapId>,
        /// Why.
        refusal: Refusal,
    },
    /// A PDU session can carry packets, or no longer.
    Session {
        /// Whose.
        subject: Subject,
        /// Which.
        psi: PduSessionId,
        /// Its data network.
        dnn: Dnn,
        /// What became of it.
        change: SessionChange,
    },
    /// The UE was deregistered without its asking.
    Deregistered {
        /// Whose.
        subject: Subject,
        /// Why.
        why: Deregistered,
    },
    /// The UE has become reachable, as was requested (TS 23.502 §4.2.5.2).
    Reachable {
        /// Whose.
        subject: Subject,
    },
    /// A gNB to which the UE came has other security capabilities of it than it gave us: somebody may have tried to bid
    /// them down (TS 33.501 §6.7.3.1).
    SecurityCapabilitiesDiffer {
        /// Whose.
        subject: Subject,
    },
    /// A gNB to which the UE came over Xn was told another user plane security policy of a session than ours: its source may
    /// have been tampered with (TS 33.501 §6.6.1).
    UpSecurityPolicyDiffers {
        /// Whose.
        subject: Subject,
        /// Which session.
        psi: PduSessionId,
    },
    /// A gNB reported the UE's location, as was requested (TS 38.413 §8.12.3).
    Located {
        /// Whose.
        subject: Subject,
        /// Its tracking area.
        tai: Option<Tai>,
        /// Its cell.
        cell: Option<NgranCgi>,
    },
    /// A gNB reported whether the UE is in an area that is watched (TS 38.413 §8.12.3).
    Presence {
        /// Whose.
        subject: Subject,
        /// The area.
        area: Tai,
        /// Whether it is there; `None`: the gNB does not know.
        inside: Option<bool>,
    },
    /// Where the UE is could not be found out (TS 38.413 §8.12.2).
    NotLocated {
        /// Whose.
        subject: Subject,
        /// Why.
        why: String,
    },
    /// A gNB traces the UE as a part of its cell's traffic (TS 38.413 §8.11.4).
    CellTraffic {
        /// Whose.
        subject: Subject,
        /// Trace reference and trace recording session reference (TS 32.422 §5.6).
        trace: [u8; 8],
        /// The cell.
        cell: NgranCgi,
    },
    /// A message was dropped.
    Dropped {
        /// Whose.
        subject: Subject,
        /// Why.
        why: Dropped,
    },
    /// The UE needed a message again; counted, for the radio's quality shows here.
    Repeated(#[serde(with = "text")] Text),
    /// A sign of where a connected UE goes, for who predicts handovers (Synergy §III-C.1) and answers with
    /// [`Command::Expected`](crate::Command::Expected). Told where the configuration says so.
    Sign {
        /// Whose.
        subject: Subject,
        /// What shows it.
        sign: Sign,
        /// The tracking area where it was seen last.
        tai: Option<Tai>,
        /// The cell, and when.
        seen: Option<Seen>,
    },
    /// A change of a PDU session that the network began has an outcome (TS 23.502 §4.3.3.2, §4.3.4.2, §4.3.7).
    SessionOperation {
        /// Whose.
        subject: Subject,
        /// Which session.
        psi: PduSessionId,
        /// The procedure that makes the change.
        procedure: Procedure,
        /// The order of the operator that this answers; `None`: all that are under way by this procedure.
        order: Option<Modification>,
        /// What became of it.
        outcome: SessionOutcome,
    },
    /// A broker has granted a session of one of its users.
    Granted {
        /// Whose.
        subject: Subject,
        /// The broker's domain.
        broker: String,
        /// The grant as the broker signed it: what a judge believes.
        #[serde(with = "crate::flat::octets::owned")]
        grant: Vec<u8>,
    },
    /// A broker's UE has sent a sealed usage report for its broker (CellBricks, chapter 3.4.3).
    UsageReported {
        /// Whose.
        subject: Subject,
        /// The octets, which the broker alone can read.
        #[serde(with = "crate::flat::octets::owned")]
        sealed: Vec<u8>,
    },
}

/// What became of a change of a PDU session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionOutcome {
    /// UE and UPF have made the change.
    Completed {
        /// QoS flows that the gNB did not take: the session goes on without them (TS 38.413 §8.2.3.2).
        failed_flows: Vec<FailedFlow>,
        /// The gNB did not make the change that the UE has made: its resources are set up again.
        not_at_gnb: Option<Refusal>,
        /// Another change of the session follows at once.
        more: bool,
    },
    /// A peer refused the change, or did not answer.
    Refused {
        /// Why.
        refusal: Refusal,
        /// Another change of the session, which contains this one, follows at once.
        more: bool,
    },
    /// The session is so already.
    Unchanged(#[serde(with = "text")] Text),
    /// The order cannot be carried out: why.
    NotPossible(#[serde(with = "text")] Text),
    /// The UE cannot be reached: why. The change is made when it connects.
    Deferred(#[serde(with = "text")] Text),
}

/// A QoS flow that a gNB did not set up or change (TS 38.413 §9.3.4.4, QoS Flow Failed to Add or Modify List).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedFlow {
    /// Its identifier.
    pub qfi: Qfi,
    /// The policy that it comes from, where the session was to have such a flow.
    pub name: Option<FlowName>,
    /// Group, name and number of the NGAP cause (TS 38.413 §9.3.1.2).
    pub cause: String,
}

/// What shows where a UE goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sign {
    /// Its gNB reported its place, as was asked (LOCATION REPORT, TS 38.413 §8.12.3).
    Reported,
    /// By the UE's measurements its gNB wants to hand it over, for this cause, into this area (HANDOVER REQUIRED, TS 38.413 §8.4.1).
    Required(String, Tai),
    /// It has come to a gNB by a handover (HANDOVER NOTIFY, PATH SWITCH REQUEST).
    Arrived,
}

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionChange {
    /// It exists, with a user plane.
    Established,
    /// Its user plane waits for the UE to return.
    Deactivated,
    /// Its user plane is back.
    Activated,
    /// It is gone.
    Released,
}

/// Why a UE was deregistered without its asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deregistered {
    /// The subscriber registered in another slot.
    Superseded,
    /// It did not come back in time (TS 24.501 §5.3.7).
    Implicitly,
    /// The operator's command.
    ByOperator,
    /// Its subscription ended (TS 23.502 §4.2.2.3.3).
    BySubscription,
    /// Its machine failed on an input: a fault of ours, which cost this UE its context and no other UE anything.
    Fault,
    /// No replica holds its state any more: its CPF was lost, and those that backed it.
    StateLost,
    /// The validity of its broker's grant is over.
    GrantExpired,
    /// The credit of its broker's grant is used up.
    CreditUsedUp,
}

/// Why a UE's message was dropped. Each is a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dropped {
    /// The NAS message is too short or not NAS (TS 24.501 §7.2.1).
    NotNas,
    /// The MAC is wrong, or a COUNT was used before (TS 24.501 §4.4.3.2, §4.4.4.3).
    Integrity,
    /// Not protected where protection is demanded (TS 24.501 §4.4.4.3).
    Unprotected,
    /// No procedure awaits it in this state (TS 24.501 §7.4).
    OutOfState,
    /// It repeats a message that is being worked on.
    Duplicate,
    /// A payload that this network does not serve (SMS, LPP, SOR, UE policy).
    UnservedPayload,
    /// An answer that came too late.
    Late,
}

/// Something that happened to a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RanEvent {
    /// NG SETUP was accepted.
    Up {
        /// Where.
        association: AssociationId,
        /// The gNB.
        gnb: GlobalGnbId,
        /// What it calls itself.
        name: Option<String>,
    },
    /// NG SETUP was refused: what was offered against what is configured.
    SetupRefused {
        /// Where.
        association: AssociationId,
        /// The gNB, if it named itself.
        gnb: Option<GlobalGnbId>,
        /// Why, with both sides.
        why: SetupRefusal,
    },
    /// The association ended.
    Down {
        /// Where.
        association: AssociationId,
        /// The gNB, if it had set up.
        gnb: Option<GlobalGnbId>,
    },
    /// All or some connections of a gNB were reset (TS 38.413 §8.7.4).
    Reset {
        /// Where.
        association: AssociationId,
        /// How many.
        ues: usize,
        /// The side that started it.
        by: ResetBy,
    },
    /// A gNB did not acknowledge NG RESET, which was sent twice (TS 38.413 §8.7.4.2.1).
    ResetUnacknowledged {
        /// Where.
        association: AssociationId,
    },
    /// A message was answered with ERROR INDICATION (TS 38.413 §8.7.5, §10).
    Refused {
        /// Where.
        association: AssociationId,
        /// What was wrong.
        what: String,
    },
    /// The gNB reported an error of ours.
    ErrorIndication {
        /// Where.
        association: AssociationId,
        /// Its cause.
        cause: String,
    },
    /// The gNB changed its configuration, or joined by a further association (TS 38.413 §8.7.2).
    Reconfigured {
        /// Where.
        association: AssociationId,
    },
    /// The gNB set up under an identity that another association had: it restarted, or two gNBs are configured alike.
    SameIdentity {
        /// Where.
        association: AssociationId,
        /// Where it was.
        former: AssociationId,
        /// The identity.
        gnb: GlobalGnbId,
    },
    /// Two gNBs are alive under one identity: it was taken over from an association whose gNB has not gone.
    IdentityContested {
        /// The identity.
        gnb: GlobalGnbId,
        /// The association that has it now.
        holder: AssociationId,
        /// The one that had it before.
        other: AssociationId,
    },
    /// No gNB set up on an association in time (TS 38.413 §8.7.1.1).
    NeverSetUp {
        /// Where.
        association: AssociationId,
    },
    /// The gNB took a change of our configuration (TS 38.413 §8.7.3.2).
    UpdateTaken {
        /// Where.
        association: AssociationId,
    },
    /// The gNB did not take a change of our configuration (TS 38.413 §8.7.3.3).
    UpdateRefused {
        /// Where.
        association: AssociationId,
        /// Its cause.
        cause: String,
        /// It is sent again, as the gNB wishes.
        again: bool,
    },
    /// The gNB acknowledged a reset of ours (TS 38.413 §8.7.4.2.1).
    ResetAcknowledged {
        /// Where.
        association: AssociationId,
    },
    /// gNBs get OVERLOAD START or OVERLOAD STOP (TS 38.413 §8.7.7, §8.7.8).
    Overload {
        /// Whether it began.
        on: bool,
    },
    /// A configuration transfer went from one gNB to another (TS 38.413 §8.8).
    Transferred {
        /// From where.
        from: AssociationId,
        /// To where.
        to: AssociationId,
    },
    /// A message without a function here, or whose addressee is absent; the procedure has no answer.
    Unserved {
        /// Where it came from.
        association: AssociationId,
        /// What it was.
        what: &'static str,
    },
    /// What became of a warning message at a gNB (TS 38.413 §8.9.1.2, §8.9.2.2).
    Warned {
        /// Where.
        association: AssociationId,
        /// Which kind.
        message_identifier: u16,
        /// Which one.
        serial_number: u16,
        /// What became of it.
        outcome: WarningOutcome,
    },
    /// A gNB did not answer to a warning message.
    WarningUnanswered {
        /// The gNB.
        gnb: GlobalGnbId,
        /// Which kind.
        message_identifier: u16,
        /// Which one.
        serial_number: u16,
    },
    /// Cells of a gNB lost their warning messages (TS 38.413 §8.9.3, §8.9.4).
    WarningsLost {
        /// Where.
        association: AssociationId,
        /// How many cells.
        cells: usize,
        /// They broadcast again and get them again; else they do not broadcast.
        restarted: bool,
    },
    /// A bound was reached, and what came beyond it dropped.
    Limited {
        /// Whose message, if one gNB's.
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
    /// The operator.
    Operator,
}

/// Why a gNB may not come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupRefusal {
    /// It broadcasts no network that is served here.
    Plmn {
        /// What it broadcasts.
        offered: Vec<String>,
        /// What is served.
        served: String,
    },
    /// It broadcasts the network, but in no tracking area that is served.
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
    /// Another gNB is up under the same Global RAN Node ID, and both are alive.
    IdentityInUse {
        /// Its association.
        holder: AssociationId,
    },
    /// The limit of gNBs is reached.
    Limit(u32),
    /// It is no gNB that we know how to serve.
    NodeType,
}

/// A UE's event with the UE that it happened to.
#[derive(Clone, Debug, PartialEq)]
pub struct UeEvent {
    /// The gNB.
    pub ue: UeId,
    /// The gNB's association over which its last message came.
    pub on: Option<AssociationId>,
    /// What.
    pub event: Event,
}

/// What became of a warning at one gNB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarningOutcome {
    /// It has not answered yet.
    Awaited,
    /// It broadcasts, in so many cells or areas; `None`: it did not say.
    Broadcasting(Option<usize>),
    /// It does not broadcast: no cell of the area is its own.
    Nowhere,
    /// It did not answer.
    NoAnswer,
    /// It reported that this many of its cells no longer broadcast warnings.
    Failed(usize),
    /// It stopped; this many broadcasts had been made, as far as reported.
    Cancelled(u64),
}
