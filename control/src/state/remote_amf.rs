//! The SMF's record of a UE that an AMF of another vendor serves: the AMF, its view of the UE, and the requests that wait for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use whimbrel_ids::{PduSessionId, Supi, Tai};

use super::subscription::Subscription;
use super::ue_context::UeContext;
use crate::services::remote_amf::{
    AMF_URI_OCTETS_MAX, AmfAddress, SmContextAnswer, SmContextExchange, SmContextUpdated,
};

/// Requests about one session that may wait for their answers at once: an AMF has one of the UE and one of the gNB under way.
pub(crate) const EXCHANGES_MAX: usize = 8;

/// The AMF of a UE, and what its requests say of the UE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoteAmfContext {
    /// The AMF that serves it.
    pub amf: AmfAddress,
    /// The UE has a connection to a gNB, as far as the AMF's requests show.
    pub(crate) connected: bool,
    /// Where it was last.
    pub tai: Option<Tai>,
    /// The subscription has changed, and is to be read again.
    pub(crate) subscription_stale: bool,
    /// The sessions of which the AMF knows.
    pub(crate) sessions: BTreeMap<PduSessionId, AmfSession>,
}

/// One session, as its AMF has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AmfSession {
    /// Where the AMF is notified of the session's end.
    pub(crate) status_uri: Box<str>,
    /// The AMF has the SM context: its creation was answered, and it has not released it.
    pub(crate) created: bool,
    /// Requests without an answer. A lane works on each of them, so that a checkpoint has none.
    #[serde(skip)]
    pub(crate) exchanges: Vec<OpenExchange>,
}

/// A request of the AMF that is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct OpenExchange {
    pub(crate) id: SmContextExchange,
    pub(crate) kind: ExchangeKind,
    /// The answer as it stands.
    pub(crate) updated: SmContextUpdated,
    /// The answer, if it is decided.
    pub(crate) answer: Option<SmContextAnswer>,
}

/// The event that a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeKind {
    /// The session is authorised.
    Create,
    /// The setup request for the gNB.
    Activate,
    /// The UPF buffers packets.
    Deactivate,
    /// The message for the UE that answers its own.
    N1,
    /// The UPF has what the gNB has sent.
    N2,
    /// The answer of a procedure that gives one itself.
    Procedure,
}

impl RemoteAmfContext {
    /// True if no request waits for an answer.
    pub(crate) fn is_settled(&self) -> bool {
        self.sessions.values().all(|s| s.exchanges.is_empty())
    }

    /// True if it is within its bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        let fits = |text: &str| text.len() <= AMF_URI_OCTETS_MAX;
        let instance = self.amf.instance.as_deref().unwrap_or_default();
        fits(&self.amf.root) && fits(instance) && self.sessions.values().all(|s| fits(&s.status_uri))
    }
}

impl UeContext {
    /// The UE is a subscriber of this identity, which another AMF has registered.
    pub(crate) fn set_remote_subscriber(&mut self, supi: Supi) {
        self.amf.supi = Some(supi);
    }

    /// The subscription that the UDM gave to the SMF. Returns the former one.
    pub(crate) fn set_subscription(&mut self, subscription: Arc<Subscription>) -> Option<Arc<Subscription>> {
        self.amf.subscription.replace(subscription)
    }
}
