//! What operators want to see of UEs, asked of all CPFs and answered when the last has answered or is gone.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;
use whimbrel_control::UeSummary;
use whimbrel_control::smf::Modification;
use whimbrel_ids::PduSessionId;
use whimbrel_resilience::link::UeQuery;
use whimbrel_resilience::replication::CpfId;

use crate::console::{UePage, UeView, UesRequest};

/// What is done with the UEs once they are there.
pub(crate) enum UeQueryReply {
    /// A page of them.
    Page(UesRequest, oneshot::Sender<UePage>),
    /// One of them.
    Ue(oneshot::Sender<Option<UeView>>),
    /// A change of a session that one of them has; the answer is the operation.
    Modified(PduSessionId, Modification, oneshot::Sender<Option<u64>>),
}

struct Ask {
    which: UeQuery,
    wanted: UeQueryReply,
    awaited: BTreeSet<CpfId>,
    ues: Vec<UeSummary>,
}

/// The questions that are under way.
#[derive(Default)]
pub(super) struct UeQueries {
    last: u32,
    open: BTreeMap<u32, Ask>,
}

impl UeQueries {
    /// A question to these; its number.
    pub(super) fn ask(&mut self, which: UeQuery, wanted: UeQueryReply, of: BTreeSet<CpfId>) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.open.insert(self.last, Ask { which, wanted, awaited: of, ues: Vec::new() });
        self.last
    }

    /// The number of a question of which the answer does not matter, but that there is one.
    pub(super) fn idle(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// One has answered. More UEs than were asked for are not kept.
    pub(super) fn answered(&mut self, ask: u32, by: CpfId, ues: Vec<UeSummary>) {
        let Some(open) = self.open.get_mut(&ask).filter(|a| a.awaited.contains(&by)) else { return };
        open.awaited.remove(&by);
        let most = match open.which {
            UeQuery::Subscriber(_) => usize::MAX,
            UeQuery::Page(_, limit) => limit as usize,
        };
        open.ues.extend(ues.into_iter().take(most));
    }

    /// One is gone, and answers no more.
    pub(super) fn gone(&mut self, cpf: CpfId) {
        for ask in self.open.values_mut() {
            ask.awaited.remove(&cpf);
        }
    }

    /// Takes a question that is answered.
    pub(super) fn done(&mut self) -> Option<(UeQueryReply, Vec<UeSummary>)> {
        let ask = *self.open.iter().find(|(_, a)| a.awaited.is_empty())?.0;
        self.open.remove(&ask).map(|a| (a.wanted, a.ues))
    }
}
