//! The messages of TS 24.501 §8, one file per message or closely tied group; [`crate::mm`] and [`crate::sm`] gather
//! them.

pub(crate) mod authentication;
pub(crate) mod configuration_update;
pub(crate) mod deregistration;
pub(crate) mod identity;
pub(crate) mod nas_transport;
pub(crate) mod registration_accept;
pub(crate) mod registration_reject;
pub(crate) mod registration_request;
pub(crate) mod security_mode;
pub(crate) mod service;
pub(crate) mod session_authentication;
pub(crate) mod session_establishment;
pub(crate) mod session_modification;
pub(crate) mod session_release;
pub(crate) mod slice_authentication;
pub(crate) mod status;
