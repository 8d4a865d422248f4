//! Checkpoints of version 5: no veiled UE was intercepted with it.

use std::collections::BTreeMap;

use serde::Deserialize;
use whimbrel_ids::PduSessionId;
use whimbrel_veil::msg::SignedGrant;

use crate::envelope::UeId;
use crate::state::{self, AmfContext, SessionGrant, SmContext};

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

#[derive(Deserialize)]
struct VeilSession {
    grant: SignedGrant,
    used: (u64, u64),
}

impl From<UeContext> for crate::UeContext {
    fn from(p: UeContext) -> Self {
        let of = |v: Box<VeilSession>| state::VeilSession { grant: v.grant, used: v.used, copies_to: None };
        let (clock, terms, amf) = (p.clock, p.terms, p.amf);
        let veil = p.veil.map(|v| Box::new(of(v)));
        Self { clock, terms, amf, sessions: p.sessions, grant: p.grant, veil, ..Self::new(p.id) }
    }
}
