//! SM contexts of AMFs of other vendors (TS 29.502, TS 29.518): requests, answers and operations, as [`crate::Payload::SmContextRequested`],
//! [`crate::Effect::SmContextAnswered`] and [`crate::Effect::RemoteAmf`] carry them.

pub use crate::services::remote_amf::{
    AMF_URI_OCTETS_MAX, AmfAddress, AmfOperation, AmfRequest, HandoverStep, N1N2Transfer, N2SmKind,
    SmContextAnswer, SmContextCreation, SmContextError, SmContextExchange, SmContextOperation, SmContextRef,
    SmContextRequest, SmContextUpdate, SmContextUpdated, TransferAnswer, TransferOutcome, UserPlaneState,
};
