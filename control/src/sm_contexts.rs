//! SM contexts at another vendor's SMF (TS 29.502, TS 29.518): its operations, as [`crate::Effect::SmContext`], [`crate::Payload::SmContext`] and
//! [`crate::Payload::SmfOrdered`] carry them.

pub use crate::services::sm_contexts::{
    HandoverStep, N2Part, N2SmKind, NewSmContext, SmContextChange, SmfAnswer, SmfMessage, SmfOperation,
    SmfOrder, SmfRequest, UePlace, UserPlaneChange,
};
