//! Charging of PDU sessions by a charging function (TS 32.255): its operations, as [`crate::Effect::Charging`] and
//! [`crate::Payload::Charging`] carry them.

pub use crate::services::nchf::{
    ChargedSession, ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest,
    ChargingTrigger, FinalUnitAction, GrantedQuota, RatingGroup, UsedUnits,
};
