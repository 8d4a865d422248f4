//! What procedures await: inputs that were decoded, checked and found to concern them.

use whimbrel_nas::{mm, sm};
use whimbrel_ngap::Message;

use crate::envelope::OutputId;
use crate::n14::Body;
use crate::open;
use crate::services::nsmf::N2Outcome;
use crate::services::nudm;

/// One input, as a procedure receives it.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A 5GMM message that TS 24.501 §4.4.4.3 lets pass, and whether it was protected.
    Mm(Box<mm::Message>),
    /// A 5GSM message for this session.
    Sm(Box<sm::Message>),
    /// A UE-associated NGAP message.
    Ngap(Box<Message>),
    /// The gNB has set up the UE's context, for whoever waited for that.
    ContextSetUp,
    /// The UE has arrived where it was being handed over to, or stays, for whoever waited for that.
    HandoverOver,
    /// What one of the UE's sessions, or the UE itself, was at has ended, for whoever waited for that.
    SessionSettled,
    /// This session's part of an NGAP message, with its transfer octets.
    N2Sm(N2Outcome, Vec<u8>),
    /// The UPF's answer to this request; `None`: it did not answer.
    Pfcp(OutputId, Option<Box<whimbrel_pfcp::Message>>),
    /// What another AMF says of the handover between it and this one.
    PeerAmf(Box<Body>),
    /// The UDM's answer.
    Udm(Box<nudm::Answer>),
    /// A broker's answer.
    Broker(open::Answer),
}
