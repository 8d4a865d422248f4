//! The UDM and the ARPF: subscriptions, and authentication vectors (TS 23.501 §6.2.7, TS 29.503).
//!
//! A UE sends a [`UdmRequest`] as an output and gets an [`UdmAnswer`] as a later input. The state that several UEs may
//! change, the registration and the SQN of a subscriber, is in the [`Directory`].

mod directory;

use std::sync::Arc;

use whimbrel_ids::Supi;
use whimbrel_security::{AkaFunctions, AuthenticationManagementField, SqnOffset};

pub use crate::services::{NfType, ServiceFault};
pub use crate::state::{
    Ambr, Arp, MobilityRestrictions, Priority, ServiceArea, SessionTypes, SubscribedDnn, SubscribedSlice,
    Subscription,
};

pub use crate::services::nudm::{
    AuthData, AuthMethod, Identity, Resynchronisation, UdmAnswer, UdmError, UdmRequest, Vector,
};
pub use directory::{Directory, DirectoryOutcome, RegistrationChange, Registrations};

/// Authentication data of a subscriber (TS 29.503 §6.3.6.2.2 of the AuthenticationSubscription).
pub struct AuthenticationSubscription {
    /// The keyed functions of the subscriber's USIM.
    pub functions: AkaFunctions,
    /// Its authentication method.
    pub method: AuthMethod,
    /// Authentication management field; its separation bit must be set (TS 33.501 §6.1.3.2).
    pub amf: AuthenticationManagementField,
    /// Offset of SQN from the clock; durable.
    pub sqn_offset: SqnOffset,
}

/// The subscriber store.
pub trait Subscribers {
    /// Reads authentication data.
    fn authentication(&mut self, supi: Supi) -> Result<AuthenticationSubscription, UdmError>;
    /// Reads the subscription.
    fn subscription(&mut self, supi: Supi) -> Result<Arc<Subscription>, UdmError>;
    /// Stores the SQN of a resynchronisation durably, before it is used.
    fn save_sqn_offset(&mut self, supi: Supi, offset: SqnOffset) -> Result<(), UdmError>;
}
