//! The access and mobility management function (TS 23.501 §6.2.1): one file a procedure.

pub(crate) mod an_release;
mod as_security;
mod ask;
mod authentication;
pub(crate) mod configuration_update;
mod connection;
mod context_setup;
pub(crate) mod deregistration;
mod eap_aka_prime;
mod emergency;
pub(crate) mod end;
mod equipment;
mod five_g_aka;
mod handover;
mod handover_request;
mod identification;
pub(crate) mod ladn;
pub(crate) mod location_reporting;
mod mobility_restrictions;
pub(crate) mod n14;
mod n2;
mod nas;
mod nas_dispatch;
mod nas_transport;
pub(crate) mod ngap_dispatch;
mod open_attach;
pub(crate) mod open_grant;
mod open_home;
pub(crate) mod paging;
mod path_switch;
pub(crate) mod pending_setup;
pub(crate) mod predicted_handover;
mod priority;
mod radio_capability_check;
mod ran_node;
pub(crate) mod reach;
pub(crate) mod reachability;
mod registration;
pub(crate) mod rekeying;
pub(crate) mod remote_smf;
mod rrc_inactive;
mod security_mode;
pub(crate) mod service;
mod service_request;
mod session_indication;
mod session_resources;
#[cfg(test)]
mod session_resources_tests;
mod slices;
pub(crate) mod subscription_change;
pub(crate) mod target;
mod udm_client;
mod ue_context_modification;
mod unread;
mod user_location;
mod veil_attach;
mod veil_home;

pub use crate::event::WarningOutcome;
pub use crate::n14::{
    ForwardedUe, HandedOverSession, Keys, N14, N14Body, PeerAmfId, PreparedResources, Relation,
    TransferCompletion, TransferredUe, UeContextCreateData, UeProof, UeTransferState,
};
pub use crate::state::Target;
pub use n2::{overloaded, release_of, release_of_first, unknown_local_id};
pub use nas::named_within;
pub use path_switch::build_failure_after_release;
pub use ran_node::{
    HeldName, Load, OverloadOrder, RanNode, RanNodes, RanOutput, Rate, Reset, SETUP_WITHIN, TextCoding,
    Warning, WarningArea, WarningError, WarningState, WarningStatus, cbs_pages, nr_cell, reset_acknowledge,
};
