//! The access and mobility management function (TS 23.501 §6.2.1): one file a procedure.

mod an_release;
mod as_security;
mod ask;
mod authentication;
mod configuration_update;
mod connection;
mod context_setup;
mod deregistration;
mod eap_aka_prime;
mod emergency;
mod end;
mod equipment;
mod five_g_aka;
mod handover;
mod handover_request;
mod identification;
mod ladn;
mod location_reporting;
mod mobility_restrictions;
mod n14;
mod nas;
mod nas_transport;
mod paging;
mod path_switch;
mod priority;
mod radio_capability_check;
mod ran_node;
mod reach;
mod reachability;
mod registration;
mod rekeying;
mod rrc_inactive;
mod security_mode;
mod service_request;
mod session_indication;
#[cfg(test)]
mod session_resources_tests;
mod slices;
mod subscription_change;
mod target;
mod udm_client;
mod ue_context_modification;
mod unread;

pub use crate::n14::{
    Body, Completed, Created, Given, Keys, N14, NeighbourId, Relation, Shown, Transferred,
    UeContextCreateData,
};
pub use crate::state::Target;
pub use connection::{overloaded, release_of, release_of_first, unknown_local_id};
pub use nas::named_within;
pub use path_switch::came_too_late;
pub use ran_node::{
    Coding, Load, OverloadOrder, RanNode, RanNodes, RanOutput, Rate, Reset, Warning, WarningArea,
    WarningError, WarningOutcome, WarningState, WarningStatus, cbs_pages, nr_cell, reset_acknowledge,
};

pub(crate) use an_release::start as release;
pub(crate) use connection::{bits, ids, initial_ue_message, is_releasing, out_of_state, send_nas, uplink};
pub(crate) use context_setup::{modify_session_resources, n1_n2_message_transfer, release_session_resources};
pub(crate) use deregistration::{begins_anew, by_network, by_ue, deregister_if_wanted, implicitly};
pub(crate) use end::{dismiss, let_go_when_unused, registers_in_time, watch_connection};
pub(crate) use handover::{EXECUTION as HANDOVER_EXECUTION, start as hand_over};
pub(crate) use ladn::changed as ladn_changed;
pub(crate) use location_reporting::ask as locate;
pub(crate) use n14::received as neighbour_said;
pub(crate) use nas::Received;
pub(crate) use nas_transport::{n1_sm, uplink as uplink_nas_transport};
pub(crate) use paging::{downlink_data, page_if_awaited};
pub(crate) use path_switch::start as switch_path;
pub(crate) use reach::sleeps_for;
pub(crate) use reachability::{tell_if_wanted as tell_reachable_if_wanted, wanted as reachability_wanted};
pub(crate) use registration::{settle_tmsi, start as register};
pub(crate) use rekeying::begin_if_due as rekey_if_due;
pub(crate) use service_request::{reject_stranger, start as serve};
pub(crate) use slices::ALLOWED_SLICES_MAX;
pub(crate) use subscription_change::{
    begin_if_due as subscription_change_if_due, notified as subscription_changed,
};
pub(crate) use target::{
    association_lost, awaits_source, handover_over, has_left, release_source, source_leaves,
};
