//! Policies of PDU sessions by a PCF (TS 29.512): its operations, as [`crate::Effect::Policy`] and [`crate::Payload::Policy`] carry them.

pub use crate::services::npcf::{
    PccRule, PolicyAnswer, PolicyAssociation, PolicyDecision, PolicyDenial, PolicyNotification,
    PolicyOperation, PolicyReport, PolicyRequest, PolicySession, PolicyTriggers, RuleFailure, RuleQos,
    SessionRule,
};
