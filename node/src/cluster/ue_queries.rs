//! Queries for UEs, which go to all CPFs and are answered once the last CPF has answered or is lost.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::oneshot;
use whimbrel_control::UeSummary;
use whimbrel_control::smf::Modification;
use whimbrel_ids::PduSessionId;
use whimbrel_resilience::link::UeQuery;
use whimbrel_resilience::replication::CpfId;

use crate::observation::{UePage, UeView, UesRequest};

/// What happens to the UEs that a query finds.
pub enum UeQueryReply {
    /// They make a page.
    Page(UesRequest, oneshot::Sender<UePage>),
    /// One of them is shown.
    Ue(oneshot::Sender<Option<UeView>>),
    /// A session of one of them is modified; the reply is the operation.
    Modified(PduSessionId, Modification, oneshot::Sender<Option<u64>>),
}

struct OpenQuery {
    which: UeQuery,
    reply: UeQueryReply,
    outstanding: BTreeSet<CpfId>,
    ues: Vec<UeSummary>,
}

/// The open queries.
#[derive(Default)]
pub(super) struct UeQueries {
    last: u32,
    open: BTreeMap<u32, OpenQuery>,
}

impl UeQueries {
    /// Begins a query to these CPFs. Returns its number.
    pub(super) fn begin(&mut self, which: UeQuery, reply: UeQueryReply, outstanding: BTreeSet<CpfId>) -> u32 {
        let number = self.next_unanswered();
        self.open.insert(number, OpenQuery { which, reply, outstanding, ues: Vec::new() });
        number
    }

    /// The number of a query whose answer only shows that the CPF answers.
    pub(super) fn next_unanswered(&mut self) -> u32 {
        self.last = self.last.wrapping_add(1);
        self.last
    }

    /// A CPF has answered. UEs beyond the number asked for are dropped.
    pub(super) fn answered(&mut self, number: u32, by: CpfId, ues: Vec<UeSummary>) {
        let Some(query) = self.open.get_mut(&number) else { return };
        if !query.outstanding.remove(&by) {
            return;
        }
        let most = match query.which {
            UeQuery::Subscriber(_) => usize::MAX,
            UeQuery::Page(_, limit) => limit as usize,
        };
        query.ues.extend(ues.into_iter().take(most));
    }

    /// A CPF is lost and will not answer.
    pub(super) fn gone(&mut self, cpf: CpfId) {
        for query in self.open.values_mut() {
            query.outstanding.remove(&cpf);
        }
    }

    /// Takes a query that is complete.
    pub(super) fn done(&mut self) -> Option<(UeQueryReply, Vec<UeSummary>)> {
        let number = *self.open.iter().find(|(_, query)| query.outstanding.is_empty())?.0;
        self.open.remove(&number).map(|query| (query.reply, query.ues))
    }
}
