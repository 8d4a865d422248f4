//! Checkpoints of version 5: no session had an intermediate UPF.

use std::collections::BTreeMap;

use serde::Deserialize;
use whimbrel_ids::PduSessionId;

use crate::envelope::UeId;
use crate::state::{AmfContext, SessionGrant, SmContext, VeilSession};

#[derive(Deserialize)]
pub(super) struct UeContext {
    id: UeId,
    clock: u64,
    terms: (u32, u32),
    amf: AmfContext,
    sessions: BTreeMap<PduSessionId, Box<SmContext>>,
    grant: Option<Box<SessionGrant>>,
    veil: Option<Box<VeilSession>>,
}

impl From<UeContext> for crate::UeContext {
    fn from(p: UeContext) -> Self {
        let (clock, terms, amf) = (p.clock, p.terms, p.amf);
        Self { clock, terms, amf, sessions: p.sessions, grant: p.grant, veil: p.veil, ..Self::new(p.id) }
    }
}
