//! Inputs as procedures await them: decoded and checked.

use whimbrel_nas::{mm, sm};
use whimbrel_ngap::Message;

use crate::envelope::OutputId;
use crate::n14::N14Body;
use crate::open;
use crate::services::nsmf::N2Outcome;
use crate::services::{nchf, npcf, nudm, remote_amf, sm_contexts};

/// One input to a procedure.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A 5GMM message that TS 24.501 §4.4.4.3 allows, and whether it was protected.
    Mm(Box<mm::Message>),
    /// A 5GSM message for this session.
    Sm(Box<sm::Message>),
    /// A UE-associated NGAP message.
    Ngap(Box<Message>),
    /// The gNB has set up the UE's context, for procedures that wait for that.
    ContextSetUp,
    /// The handover has ended, successfully or not, for procedures that wait for that.
    HandoverOver,
    /// A procedure of the UE or of one of its sessions has ended, for procedures that wait for that.
    SessionSettled,
    /// This session's part of an NGAP message, with its transfer octets.
    N2Sm(N2Outcome, Vec<u8>),
    /// The UPF's answer to this request; `None`: it did not answer.
    Pfcp(OutputId, Option<Box<whimbrel_pfcp::Message>>),
    /// A message of a peer AMF.
    PeerAmf(Box<N14Body>),
    /// The UDM's answer.
    Udm(Box<nudm::UdmAnswer>),
    /// The answer of a CHF.
    Charging(Box<nchf::ChargingAnswer>),
    /// The answer of a PCF.
    Policy(Box<npcf::PolicyAnswer>),
    /// The answer of another vendor's SMF.
    SmContext(Box<sm_contexts::SmfAnswer>),
    /// A step of an N2 handover, from another vendor's AMF.
    Handover(remote_amf::SmContextExchange, Box<remote_amf::SmContextUpdate>),
    /// A broker's answer.
    Broker(open::BrokerAnswer),
}
