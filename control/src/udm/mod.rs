//! The UDM and the ARPF: subscriptions, and authentication vectors (TS 23.501 §6.2.7, TS 29.503).
//!
//! A UE's machine asks with a [`Request`] among its outputs and gets an [`Answer`] as a later input. What
//! several UEs may touch, the registration and the SQN of one subscriber, is the [`Directory`]'s alone.

mod directory;

use std::sync::Arc;

use whimbrel_ids::Supi;
use whimbrel_security::{AkaFunctions, AuthenticationManagementField, SqnOffset};

pub use crate::state::{
    Ambr, Arp, MobilityRestrictions, Priority, ServiceArea, SessionTypes, SubscribedDnn, SubscribedSlice,
    Subscription,
};

pub use crate::services::nudm::{Answer, AuthData, Identity, Request, Resynchronisation, UdmError, Vector};
pub use directory::{Directory, Outcome, Registrations};

/// How a subscriber is authenticated (TS 33.501 §6.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// TS 33.501 §6.1.3.2.
    #[default]
    FiveGAka,
    /// TS 33.501 §6.1.3.1.
    EapAkaPrime,
}

/// What authentication needs of a subscriber (TS 29.503 §6.3.6.2.2 of the AuthenticationSubscription).
pub struct AuthenticationSubscription {
    /// The keyed functions of the subscriber's USIM.
    pub functions: AkaFunctions,
    /// The method that is used with it.
    pub method: AuthMethod,
    /// Authentication management field; its separation bit must be set (TS 33.501 §6.1.3.2).
    pub amf: AuthenticationManagementField,
    /// Where the sequence stands against the clock; durable.
    pub sqn_offset: SqnOffset,
}

/// Where subscribers are kept.
pub trait Subscribers {
    /// What authentication needs.
    fn authentication(&mut self, supi: Supi) -> Result<AuthenticationSubscription, UdmError>;
    /// What the subscriber may use.
    fn subscription(&mut self, supi: Supi) -> Result<Arc<Subscription>, UdmError>;
    /// Keeps what a resynchronisation found, durably, before it is used.
    fn save_sqn_offset(&mut self, supi: Supi, offset: SqnOffset) -> Result<(), UdmError>;
}
