//! Input and output of a UE's state machine.
//!
//! An [`Envelope`] is one complete input: the message with its time, its entropy and the versions of shared data that
//! the machine may read. A [`Batch`] is the whole output of one input, released at once. The same envelopes give the
//! same batches on any replica: replay, simulation and takeover depend on this.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{
    AmfUeNgapId, GlobalGnbId, Instant, PduSessionId, Pei, RanUeNgapId, SNssai, Seid, Supi, Tac, Tai, Tmsi,
};
use whimbrel_ngap::TransferSyntax;
use whimbrel_ngap::ie::{AmfPagingTarget, NgranCgi};

use crate::digest::digest;
use crate::event::Event;
use crate::flat::{Flat, octets};
use crate::n14::PeerAmfId;
use crate::open;
use crate::services::{nchf, npcf, nudm, remote_amf, sm_contexts};
use crate::smf::DrainStep;
use crate::state::{Modification, Tunnel};
use crate::upf::{UpfId, UpfSet, UpfStates};

/// The CTA's identifier of a UE: a slot and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UeId {
    /// Index into the CTA's table; 24 bits.
    pub slot: u32,
    /// Generation of the slot: a stale id is a normal input and names no UE.
    pub generation: u16,
}

impl UeId {
    /// Slots are 24 bits, the rest of AMF-UE-NGAP-ID and 5G-TMSI beside their tags.
    pub const SLOTS: u32 = 1 << 24;

    /// The CP F-SEID of one of this UE's sessions; it encodes UE and session, so no table is needed. `attempt` distinguishes a
    /// session from an earlier one of the same identity that a UPF may still have, so that late answers and deletions do not
    /// reach the newer one. Usage is reported under it (TS 33.515 §4.2.2.1.4).
    pub const fn seid(self, psi: u8, attempt: u16) -> Seid {
        let ue = (self.slot as u64) << 24 | (self.generation as u64) << 8;
        Seid((attempt as u64) << 48 | ue | psi as u64)
    }

    /// The UE and the session identity that a CP F-SEID names.
    pub const fn from_seid(seid: Seid) -> Option<(UeId, u8)> {
        if seid.0 == 0 {
            return None;
        }
        let slot = (seid.0 >> 24) as u32 & (Self::SLOTS - 1);
        Some((UeId { slot, generation: (seid.0 >> 8) as u16 }, seid.0 as u8))
    }
}

/// A gNB's SCTP association at the CTA: its number and, in the highest bit, the transfer syntax agreed with the gNB, so that any
/// replica encodes messages for it in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AssociationId(pub u32);

impl AssociationId {
    const FASTWIRE: u32 = 1 << 31;

    /// The association with this number; 31 bits are used.
    pub const fn new(number: u32, syntax: TransferSyntax) -> Self {
        match syntax {
            TransferSyntax::Per => Self(number & !Self::FASTWIRE),
            TransferSyntax::Fastwire => Self(number | Self::FASTWIRE),
        }
    }

    /// How messages to the gNB are written.
    pub const fn syntax(self) -> TransferSyntax {
        if self.0 & Self::FASTWIRE == 0 { TransferSyntax::Per } else { TransferSyntax::Fastwire }
    }
}

/// The place of an output: the input that caused it and its index among that input's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutputId {
    /// Clock of the input.
    pub clock: u64,
    /// Index within its batch.
    pub index: u16,
}

/// One input of one UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Version of the code that runs the log: a CPF runs no log of another version.
    pub code_version: u32,
    /// The UE that it is for.
    pub ue: UeId,
    /// Term of the CTA that stamped it; lower terms are refused.
    pub cta_term: u32,
    /// Term of the UE's assignment to its shard.
    pub owner_term: u32,
    /// Logical clock: one more for each input of this UE.
    pub clock: u64,
    /// Arrival; strictly increasing per UE.
    pub time: Instant,
    /// The entropy that this input may use.
    pub seed: [u8; 16],
    /// The 5G-TMSI to assign if this input reallocates it: only CTAs can compute it.
    pub tmsi: Tmsi,
    /// Version of the configuration in force.
    pub config_version: u32,
    /// State of the UPFs.
    pub upfs: UpfStates,
    /// The input that is logged.
    pub payload: Payload,
}

/// An input of a UE's procedures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Payload {
    /// The first NGAP message of a new UE-associated connection. The CTA assigned the identity.
    InitialUeMessage {
        /// The gNB's association.
        association: AssociationId,
        /// The connection's identity.
        amf_ue_ngap_id: AmfUeNgapId,
        /// The NGAP message.
        #[serde(with = "octets::shared")]
        octets: Arc<[u8]>,
        /// The CTA looked for the UE that the message names: it is this one, or a new UE's slot.
        addressed: bool,
    },
    /// A UE-associated NGAP message.
    Ngap {
        /// The gNB's association.
        association: AssociationId,
        /// The NGAP message.
        #[serde(with = "octets::shared")]
        octets: Arc<[u8]>,
    },
    /// HANDOVER REQUIRED, with the target as looked up by the CTA, which knows the gNBs.
    HandoverRequired {
        /// The gNB's association.
        association: AssociationId,
        /// The NGAP message.
        #[serde(with = "octets::shared")]
        octets: Arc<[u8]>,
        /// The target gNB, if it is connected here.
        target: Option<HandoverTarget>,
    },
    /// The answer to a PFCP request.
    PfcpAnswer {
        /// The request that is answered.
        to: OutputId,
        /// The UPF that it went to.
        upf: UpfId,
        /// The PFCP message; `None`: the UPF did not answer (TS 29.244 §6.4, N1 attempts of T1).
        #[serde(with = "octets::shared_or_none")]
        octets: Option<Arc<[u8]>>,
    },
    /// A PFCP session report of one of the UE's sessions.
    PfcpReport {
        /// The UPF that reports.
        upf: UpfId,
        /// The PDU session identity, from the CP F-SEID.
        psi: u8,
        /// The PFCP message.
        #[serde(with = "octets::shared")]
        octets: Arc<[u8]>,
    },
    /// The UDM's answer.
    Udm {
        /// The request that is answered.
        to: OutputId,
        /// The answer of the UDM.
        answer: nudm::UdmAnswer,
    },
    /// The answer of a CHF.
    Charging {
        /// The request that is answered.
        to: OutputId,
        /// The answer, or the CHF's failure.
        answer: Box<nchf::ChargingAnswer>,
    },
    /// The answer of a PCF.
    Policy {
        /// The request that is answered.
        to: OutputId,
        /// The answer, or the PCF's failure.
        answer: Box<npcf::PolicyAnswer>,
    },
    /// An order of the PCF for a session (TS 29.512 §4.2.3).
    PolicyNotified {
        /// Identity of the session.
        psi: PduSessionId,
        /// New policies, or the end of the session.
        notification: Box<npcf::PolicyNotification>,
    },
    /// The answer of another vendor's SMF.
    SmContext {
        /// The request that is answered.
        to: OutputId,
        /// Identity of the session.
        psi: PduSessionId,
        /// The answer, or the SMF's failure.
        answer: Box<sm_contexts::SmfAnswer>,
    },
    /// An order of another vendor's SMF for a session.
    SmfOrdered {
        /// Identity of the session.
        psi: PduSessionId,
        /// Messages for UE and gNB, or the end of the session.
        order: Box<sm_contexts::SmfOrder>,
    },
    /// The deadline of the last batch has expired.
    Tick,
    /// A command that concerns the UE.
    Command(Command),
    /// A message of another AMF ([`N14`](crate::n14::N14)).
    PeerAmf {
        /// The AMF that sent it.
        from: PeerAmfId,
        /// The message as it came.
        #[serde(with = "octets::shared")]
        octets: Arc<[u8]>,
        /// The target gNB of a handover request, if it is connected here.
        target: Option<HandoverTarget>,
    },
    /// A broker's answer, or that it was not reached.
    Broker {
        /// The question that is answered.
        to: OutputId,
        /// The broker's answer, checked at the edge.
        answer: open::BrokerAnswer,
    },
    /// The handover predictor expects the UE at this gNB within some seconds (Synergy §III-C).
    Predicted {
        /// The gNB, as if HANDOVER REQUIRED named it.
        target: HandoverTarget,
        /// The gNB that is predicted as target.
        gnb: GlobalGnbId,
        /// The tracking area there.
        tai: Tai,
    },
    /// A request of another vendor's AMF about an SM context (TS 29.502 §5.2.2).
    SmContextRequested(Box<remote_amf::SmContextRequest>),
    /// Its answer to a transfer of messages to the UE and the gNB (TS 29.518 §5.2.2.3.1).
    TransferAnswered(remote_amf::TransferAnswer),
}

impl Payload {
    /// Octets of the message in it, if there is one.
    pub fn octets(&self) -> usize {
        match self {
            Self::InitialUeMessage { octets, .. }
            | Self::Ngap { octets, .. }
            | Self::HandoverRequired { octets, .. }
            | Self::PeerAmf { octets, .. }
            | Self::PfcpReport { octets, .. } => octets.len(),
            Self::PfcpAnswer { octets, .. } => octets.as_ref().map_or(0, |o| o.len()),
            Self::Broker { answer: open::BrokerAnswer::Octets(octets), .. } => octets.len(),
            Self::SmContextRequested(request) => request.operation.octets(),
            Self::Broker { .. }
            | Self::TransferAnswered(_)
            | Self::Udm { .. }
            | Self::Charging { .. }
            | Self::Policy { .. }
            | Self::PolicyNotified { .. }
            | Self::SmContext { .. }
            | Self::SmfOrdered { .. }
            | Self::Tick
            | Self::Command(_)
            | Self::Predicted { .. } => 0,
        }
    }

    /// The association that it came over, if it is a gNB's message.
    pub fn association(&self) -> Option<AssociationId> {
        match self {
            Self::InitialUeMessage { association, .. }
            | Self::Ngap { association, .. }
            | Self::HandoverRequired { association, .. } => Some(*association),
            // In the target AMF.
            Self::PeerAmf { target, .. } => target.as_ref().map(|t| t.association),
            _ => None,
        }
    }
}

/// A handover target, as known to the CTA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverTarget {
    /// Association of the target gNB.
    pub association: AssociationId,
    /// The identity of the UE's connection there.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The tracking areas that it broadcasts.
    pub tacs: Vec<Tac>,
    /// The slices that it supports.
    pub slices: Vec<SNssai>,
}

/// Commands to a UE's state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The gNB's association, or its part for this UE, is gone.
    ConnectionLost(AssociationId),
    /// The subscriber registered again in another slot: this context ends (TS 23.502 §4.2.2.2.2 step 14e).
    Superseded,
    /// The UDM has the subscriber at another AMF (TS 29.503 §5.3.2.3.2): this context ends, unless the UE is moving to an AMF, which ends it by itself.
    RegisteredElsewhere,
    /// The operator deregisters the UE (TS 23.502 §4.2.2.3.3).
    Deregister,
    /// This AMF is to be removed: the UE goes to this one of the set (TS 23.501 §5.21.2.2.1).
    Relocate {
        /// The AMF that takes it over.
        to: PeerAmfId,
        /// The gNB of its connection, which goes along; without it, the connection is released first.
        gnb: Option<GlobalGnbId>,
    },
    /// Report when the UE becomes reachable (TS 23.502 §4.2.5.2).
    NotifyReachable,
    /// The operator requests location reports (TS 23.502 §4.10).
    Locate(Locate),
    /// The operator changes one of the UE's sessions (TS 23.502 §4.3.3.2 step 1d).
    ModifySession(PduSessionId, Modification),
    /// Nudm_SDM_Notification: the subscription has changed (TS 23.502 §4.5.1).
    SubscriptionChanged,
    /// The operator's policy of data networks has changed (TS 23.502 §4.3.3.2 step 1b, §4.3.4.2 step 1b).
    PolicyChanged,
    /// A UPF lost its sessions (TS 23.527 §4.3.2): they are restored, or `LeaveUpf` follows.
    UpfRestarted(UpfId),
    /// A UPF goes, or its association broke: its sessions end, and connected UEs set them up again (TS 29.244 §6.2.8.3, TS 23.527 §4.4).
    LeaveUpf(UpfId),
    /// A UPF is connected again after a restart of the core, or of itself: it gets the UE's sessions (TS 23.527 §4.3).
    RestoreSessions(UpfId),
    /// Copies of the packets of a veiled UE go to this tunnel of the operator's LI function from now on, or to none (TS 33.127 §6.2.3).
    Intercept(Option<Tunnel>),
    /// The offset of local time has changed: the UE gets it if it is connected (TS 24.501 §5.4.4.2).
    LocalTimeChanged,
    /// The CHF orders the usage of a session to be reported (TS 32.290 §5.3.2.5).
    ReportCharging(PduSessionId),
    /// The CHF orders a session to end (TS 32.290 §5.3.2.5).
    AbortCharging(PduSessionId),
    /// A UPF is drained: the UE's sessions there get another anchor (TS 23.502 §4.3.5).
    DrainUpf(UpfId, DrainStep),
    /// Panics: tests that the CTA survives a fault of the program.
    #[cfg(feature = "fault-injection")]
    Panic,
}

/// A location request of the operator (TS 38.413 §9.3.1.65).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Locate {
    /// The present location; an idle UE is paged.
    Now,
    /// Each change of its serving cell, until stopped.
    CellChanges,
    /// Presence in this tracking area, and each change of it, until stopped.
    Presence(Tai),
    /// Cancels all reports.
    Stop,
}

/// The output of one input; released as a whole or not at all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Batch {
    /// The terms of its envelope: a receiver refuses lower ones than it has seen.
    pub terms: (u32, u32),
    /// The outputs, in order; an output's index is its position here.
    pub outputs: Vec<Output>,
    /// When the UE needs a [`Payload::Tick`].
    pub next_deadline: Option<Instant>,
    /// No procedure runs: a checkpoint may be cut here.
    pub idle: bool,
    /// The input changed nothing and need not stay in the log.
    pub no_effect: bool,
    /// The envelope's 5G-TMSI was assigned.
    pub tmsi_taken: bool,
    /// The connection that the UE has now.
    pub connected: Option<N2Names>,
    /// The connection at the target gNB of a handover.
    pub target: Option<N2Names>,
    /// The UPFs where it has sessions.
    pub upfs: UpfSet,
    /// The UE's machine panicked on the input: the context is deleted, and the outputs release its resources at peers.
    pub fault: bool,
    /// The UE has authenticated: it no longer counts as an unauthenticated UE.
    pub authenticated: bool,
    /// What the CTA does with the UE after this input.
    pub disposition: Disposition,
    /// Events, for logs, metrics and explanations.
    pub events: Vec<Event>,
}

/// A UE's N2 connection, as both sides name it (TS 38.413 §9.3.3.1, §9.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct N2Names {
    /// The gNB's association.
    pub association: AssociationId,
    /// The AMF's identifier of it.
    pub amf_ue_ngap_id: AmfUeNgapId,
    /// The gNB's; unknown until a target has answered.
    pub ran_ue_ngap_id: Option<RanUeNgapId>,
}

/// What the CTA does with the UE after an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disposition {
    /// The UE's context stays.
    #[default]
    Keep,
    /// The message does not verify under this UE's keys: run it in a slot of its own.
    OtherUe,
    /// The message names the UE with this 5G-TMSI: give it to that UE first.
    Elsewhere(Tmsi),
    /// The context was deleted; the slot is free.
    Ended,
    /// Another AMF gives the UE to this one, or this one gives it to another: ask again when the context has had its next input.
    NotYet,
}

/// An output with its name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Destination and content.
    pub effect: Effect,
    /// The downlink NAS COUNT that it uses: never used again with other content.
    pub downlink_count: Option<u32>,
}

/// Destination and content of an output. N2 messages are sent at most once; N4 requests are repeated by the CTA under
/// one sequence number until they are answered; UDM requests are answered exactly once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// An NGAP message on the UE's stream.
    N2 {
        /// Association of the receiving gNB.
        association: AssociationId,
        /// The NGAP message.
        #[serde(with = "octets::owned")]
        octets: Vec<u8>,
    },
    /// A PFCP request; the CTA stamps the sequence number.
    N4 {
        /// The UPF that gets the request.
        upf: UpfId,
        /// The PFCP message with sequence number zero.
        #[serde(with = "octets::owned")]
        octets: Vec<u8>,
    },
    /// The answer to a PFCP request of the UPF, already carrying that request's sequence number.
    N4Answer {
        /// The UPF that gets the answer.
        upf: UpfId,
        /// The PFCP message.
        #[serde(with = "octets::owned")]
        octets: Vec<u8>,
    },
    /// PAGING, once; the CTA fans it out to the gNBs of these tracking areas.
    Page {
        /// Tracking areas to page.
        tais: Vec<Tai>,
        /// gNBs where the UE is likely to be: if any of these is connected, only they page it (TS 23.501 §5.4.3.2). Empty:
        /// all of the area.
        near: Vec<AmfPagingTarget>,
        /// Cells where the UE is likely to be; their gNBs page it too.
        cells: Vec<NgranCgi>,
        /// The NGAP message, in aligned PER.
        #[serde(with = "octets::owned")]
        octets: Vec<u8>,
    },
    /// A UDM service operation.
    Udm(nudm::UdmRequest),
    /// A request to the CHF.
    Charging(Box<nchf::ChargingRequest>),
    /// A request to the PCF.
    Policy(Box<npcf::PolicyRequest>),
    /// A request to another vendor's SMF.
    SmContext(Box<sm_contexts::SmfRequest>),
    /// A message to another AMF, once.
    PeerAmf {
        /// The AMF that gets the message.
        to: PeerAmfId,
        /// The message ([`N14`](crate::n14::N14)).
        octets: Flat,
    },
    /// A question to a broker. It may be sent more than once: the broker gives the same answer.
    Broker(open::BrokerQuestion),
    /// The answer to a request of another vendor's AMF.
    SmContextAnswered(remote_amf::SmContextExchange, Box<remote_amf::SmContextAnswer>),
    /// A request to another vendor's AMF, which serves the UE.
    RemoteAmf(Box<remote_amf::AmfRequest>),
}

impl Output {
    /// A digest of the output: a replayed output must match the released one (DESIGN: "key stream").
    pub fn digest(&self) -> u64 {
        match &self.effect {
            Effect::N2 { association, octets } => digest(digest(1, &association.0.to_be_bytes()), octets),
            Effect::N4 { upf, octets } => digest(digest(2, &[upf.0]), octets),
            Effect::N4Answer { upf, octets } => digest(digest(3, &[upf.0]), octets),
            // The destination follows from the UE's context, which the digest of the state covers.
            Effect::Page { octets, .. } => digest(5, octets),
            Effect::Udm(request) => digest(4, &request.digest_octets()),
            Effect::Charging(request) => digest(8, &request.digest_octets()),
            Effect::Policy(request) => digest(9, &request.digest_octets()),
            Effect::SmContext(request) => digest(10, &request.digest_octets()),
            Effect::PeerAmf { to, octets } => digest(digest(6, &[to.0]), octets.octets()),
            Effect::Broker(request) => digest(7, &request.to_octets()),
            // The number of the exchange is the edge's.
            Effect::SmContextAnswered(_, answer) => digest(12, &answer.digest_octets()),
            Effect::RemoteAmf(request) => digest(13, &request.digest_octets()),
        }
    }
}

impl Batch {
    /// A digest of all outputs and of the deadline.
    pub fn digest(&self) -> u64 {
        let h = self.outputs.iter().fold(0, |h, o| digest(h, &o.digest().to_be_bytes()));
        digest(h, &self.next_deadline.map_or(0, |t| t.0).to_be_bytes())
    }
}

/// The known identities of a UE, for events and explanations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UeIdentities {
    /// The subscriber, once known.
    pub supi: Option<Supi>,
    /// The equipment, once known.
    pub pei: Option<Pei>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seid_identifies_its_ue() {
        let ue = UeId { slot: UeId::SLOTS - 1, generation: u16::MAX };
        for attempt in [0, 1, u16::MAX] {
            assert_eq!(UeId::from_seid(ue.seid(15, attempt)), Some((ue, 15)));
        }
        assert_ne!(ue.seid(15, 1), ue.seid(15, 2));
        assert_eq!(UeId::from_seid(Seid(0)), None);
    }
}
