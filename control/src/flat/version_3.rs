//! Checkpoints of version 3: no UE had a broker's grant with it.

use std::collections::BTreeMap;

use serde::Deserialize;
use whimbrel_ids::PduSessionId;

use crate::envelope::UeId;
use crate::state::{AmfContext, SmContext};

#[derive(Deserialize)]
pub(super) struct UeContext {
    id: UeId,
    clock: u64,
    terms: (u32, u32),
    amf: AmfContext,
    sessions: BTreeMap<PduSessionId, Box<SmContext>>,
}

impl From<UeContext> for crate::UeContext {
    fn from(p: UeContext) -> Self {
        Self { clock: p.clock, terms: p.terms, amf: p.amf, sessions: p.sessions, ..Self::new(p.id) }
    }
}
