//! Why a UE is not registered, or what its state is.

use std::sync::Arc;

use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Present, Refusal, Remedy, Subscriber};
use whimbrel_ids::{Instant, Supi};
use whimbrel_node::core::subscription;
use whimbrel_node::local_time::when;
use whimbrel_store::{SubscriberRecord, SubscriberStatus};

use super::super::{HandlerContext, subscribers};
use super::{BY_UE, WhyAnswer, at, deregistered, gnbs, lines, mended_and_fix, now, silence};
use whimbrel_node::observation::{
    Component, Condition, ConsoleCommand, GnbView, HistoryEntry, HistoryEvent, Name, RefusalReason,
    SubjectHistory, UeView,
};

const AGAIN: &str = "switch the UE off and on, so that it registers again";

/// What an answer about a UE is derived from.
struct UeFacts<'a> {
    shared: &'a HandlerContext,
    name: String,
    supi: Option<Supi>,
    /// The subscriber's record; the outer `None`: the store did not answer.
    record: Option<Option<Arc<SubscriberRecord>>>,
    view: Option<UeView>,
    gnbs: Vec<GnbView>,
    now: Instant,
}

/// About a subscriber's UE.
pub(super) async fn answer(shared: &Arc<HandlerContext>, supi: Supi) -> WhyAnswer {
    // Without the control thread, the history still answers.
    let view = shared.console.commands.ask(|reply| ConsoleCommand::ShowUe(supi, reply)).await.ok().flatten();
    let record = subscribers::record(shared, supi).await;
    let gnbs = gnbs(shared).await;
    let ue = UeFacts { shared, name: supi.to_string(), supi: Some(supi), record, view, gnbs, now: now() };
    let name = Name::Ue(supi);
    let history = shared.console.histories(|h| h.of(&name).cloned());
    let registered = ue.view.as_ref().is_some_and(|v| v.state == "registered");
    let sentence = match (&history, registered) {
        (_, true) => ue.is_registered(&name, history.as_ref()),
        (Some(history), false) => ue.is_not_registered(&name, history),
        (None, false) => {
            let mut answer = ue.has_sent_nothing();
            answer.sentence += &ue.replica_note();
            return answer;
        }
    };
    finished(sentence + &ue.replica_note(), history.as_ref())
}

/// About a UE whose subscriber is not known.
pub(super) fn of_unknown(
    shared: &HandlerContext,
    text: &str,
    name: &Name,
    history: &SubjectHistory,
) -> WhyAnswer {
    let ue = UeFacts {
        shared,
        name: text.to_string(),
        supi: None,
        record: None,
        view: None,
        gnbs: Vec::new(),
        now: now(),
    };
    finished(ue.is_not_registered(name, history), Some(history))
}

fn finished(sentence: String, history: Option<&SubjectHistory>) -> WhyAnswer {
    WhyAnswer {
        sentence,
        history: history.map(|h| lines(h, now())).unwrap_or_default(),
        refusals: history.iter().flat_map(|h| h.refusals().filter_map(HistoryEntry::refusal)).collect(),
        ..WhyAnswer::default()
    }
}

impl UeFacts<'_> {
    fn is_registered(&self, name: &Name, history: Option<&SubjectHistory>) -> String {
        let Some(view) = &self.view else { return String::new() };
        let registered =
            history.and_then(SubjectHistory::state).filter(|e| matches!(e.what, HistoryEvent::Registered));
        let left = |e: &&HistoryEntry| {
            matches!(e.what, HistoryEvent::DeregisteredByUe | HistoryEvent::Deregistered(_))
        };
        let since = history.and_then(|h| {
            let stay = h.entries.iter().rev().take_while(|e| !left(e));
            stay.filter(|e| matches!(e.what, HistoryEvent::Registered)).last()
        });
        let since = since.map(|e| format!(" since {}", when(e.last, self.now))).unwrap_or_default();
        let is = format!("{} is registered{since}, {}, {}", self.name, self.mode(view), sessions(view));
        let is = match (&view.cpf_code, view.cpf) {
            (Some(code), Some(cpf)) if view.canary => {
                format!("{is}, one of the canary's UEs (at CPF {cpf}, code {code}; `whimbrel canary`)")
            }
            _ => is,
        };
        // A refusal before its registration does not matter any more.
        let counts = |e: &&HistoryEntry| registered.is_none_or(|r| e.last >= r.last);
        let refused = history.and_then(|h| h.refusals().find(|e| e.closed.is_none())).filter(counts);
        if let Some(entry) = refused {
            return format!("{is}; {}", self.refused(name, entry));
        }
        if let Some(lost) = history.and_then(|h| self.lost_gnb(view, h)) {
            return format!("{is}; {lost}; fix: bring that gNB back, or move the UE to another cell.");
        }
        if let Some(released) = history.filter(|_| view.sessions.is_empty()).and_then(|h| self.released(h)) {
            return format!("{is}; {released}.");
        }
        match history.and_then(|h| h.refusals().next()) {
            Some(HistoryEntry { what: HistoryEvent::Refused(record, ..), last, .. }) => format!(
                "{is}; nothing is wrong. Before that, at {}, its {} {}: {}.",
                when(*last, self.now),
                record.procedure,
                record.outcome(),
                record.reason()
            ),
            _ => match self.wrong_with_n6().filter(|_| !view.sessions.is_empty()) {
                Some(wrong) => {
                    format!("{is}; nothing is wrong with it, but with N6: {}.", wrong.trim_end_matches('.'))
                }
                None => format!("{is}; nothing is wrong."),
            },
        }
    }

    /// Why its packets may not reach the data network.
    fn wrong_with_n6(&self) -> Option<String> {
        let is_wrong = |part: &&Component| part.condition != Condition::Up;
        self.shared.console.components(|c| c.get("n6").filter(is_wrong).map(|part| part.detail.clone()))
    }

    fn is_not_registered(&self, name: &Name, history: &SubjectHistory) -> String {
        let is = format!("{} is not registered", self.name);
        let state = history.state();
        let refused = history.open().filter(|r| state.is_none_or(|s| r.seq > s.seq));
        if let Some(entry) = refused {
            return format!("{is}: {}", self.refused(name, entry));
        }
        let (how, fix) = match state.map(|e| &e.what) {
            Some(HistoryEvent::DeregisteredByUe) => {
                (BY_UE, "none: it registers when it is switched on again".into())
            }
            Some(HistoryEvent::Deregistered(why)) => (deregistered(*why), self.after(*why)),
            Some(HistoryEvent::Registered) => {
                ("it was registered, but the core has no context of it now", AGAIN.into())
            }
            _ => return silence::of_ue(self.shared, &self.name).sentence,
        };
        let (Some(entry), now) = (state, self.now) else { return is };
        let left = format!("{is}: {how} at {}", when(entry.last, now));
        if let Some(fix) = self.unsubscribed() {
            return format!("{left}; fix: {fix}.");
        }
        // A refusal while it was registered may be why it left.
        let registered = history.entries.iter().rev().find(|e| matches!(e.what, HistoryEvent::Registered));
        let was_on = |e: &&HistoryEntry| e.closed.is_none() && registered.is_some_and(|r| e.seq > r.seq);
        match history.refusals().find(was_on) {
            Some(entry) => format!("{left}; before that, {}", self.refused(name, entry)),
            None => format!("{left}; fix: {fix}."),
        }
    }

    /// What to do after a deregistration.
    fn after(&self, why: DeregistrationReason) -> String {
        match why {
            DeregistrationReason::ByOperator => AGAIN.into(),
            DeregistrationReason::Implicitly => "check that the UE is switched on and in coverage".into(),
            DeregistrationReason::BySubscription => {
                format!("check the subscription with `whimbrel subscriber show {}`", self.name)
            }
            DeregistrationReason::Superseded
            | DeregistrationReason::StateLost
            | DeregistrationReason::GrantExpired
            | DeregistrationReason::CreditUsedUp => "none: it registers again by itself".into(),
            DeregistrationReason::Fault => {
                "none: it registers again by itself; please report this fault of the core with its log".into()
            }
        }
    }

    /// A refusal, what has changed after it, and the fix.
    fn refused(&self, name: &Name, entry: &HistoryEntry) -> String {
        let HistoryEvent::Refused(record, cause, _) = &entry.what else { return String::new() };
        let refused = format!(
            "its {} {} {}: {}",
            record.procedure,
            record.outcome(),
            at(entry, self.now),
            record.reason()
        );
        let changed = self.shared.console.histories(|h| h.changed_after(name, entry.last));
        let (RefusalReason::Ue(refusal), Some(config)) = (cause, self.shared.console.control()) else {
            return format!("{refused}; fix: {}.", record.fix);
        };
        let subscribed = self.record.as_ref().and_then(|r| r.as_ref()).map(|r| subscription(&r.subscription));
        let status = self.record.as_ref().map(|r| r.as_ref().map(|r| r.status));
        let subscriber = match (status, &subscribed) {
            (None, _) => Subscriber::NotAsked,
            (Some(None), _) | (Some(Some(SubscriberStatus::Enabled)), None) => Subscriber::Absent,
            (Some(Some(SubscriberStatus::Barred)), _) => Subscriber::Barred,
            (Some(Some(SubscriberStatus::Enabled)), Some(s)) => Subscriber::Enabled(s),
        };
        let present =
            Present { config: &config, supi: self.supi, subscriber, changed_since: changed.is_some() };
        let remedy = match (self.unsubscribed(), refusal) {
            // Whatever the refusal was: without a subscriber nothing else helps.
            (Some(fix), refusal)
                if !matches!(
                    refusal,
                    Refusal::UnknownSubscriber | Refusal::Barred | Refusal::OtherHomeNetwork(_)
                ) =>
            {
                Remedy::Fix(fix)
            }
            _ => refusal.remedy(&present),
        };
        let again = if refusal.kind().is_of_session() || record.procedure.starts_with("PDU") {
            "have the UE ask for the session again"
        } else {
            AGAIN
        };
        refused + &mended_and_fix(remedy, changed, self.now, again)
    }

    /// The fix for a subscriber that is missing or barred.
    fn unsubscribed(&self) -> Option<String> {
        match self.record.as_ref()? {
            None => Some(format!(
                "`whimbrel subscriber add {} --k K --opc OPC` with the keys of its SIM: it is not a subscriber any more",
                self.name
            )),
            Some(record) if record.status == SubscriberStatus::Barred => {
                Some(format!("`whimbrel subscriber edit {} --status enabled`: it is barred", self.name))
            }
            Some(_) => None,
        }
    }

    fn has_sent_nothing(&self) -> WhyAnswer {
        let name = &self.name;
        match &self.record {
            Some(None) => silence::of_barred(
                self.shared,
                name,
                "is not a subscriber",
                &format!("`whimbrel subscriber add {name} --k K --opc OPC` with the keys of its SIM"),
            ),
            Some(Some(record)) if record.status == SubscriberStatus::Barred => silence::of_barred(
                self.shared,
                name,
                "is barred",
                &format!("`whimbrel subscriber edit {name} --status enabled`"),
            ),
            Some(Some(_)) | None => silence::of_ue(self.shared, name),
        }
    }

    /// A subscriber that is not here may be in the database of which the store is a replica, if that does not answer.
    fn replica_note(&self) -> String {
        let database = self.shared.console.components(|c| c.get("postgres").cloned());
        match (&self.record, database) {
            (Some(None), Some(database)) if database.condition != Condition::Up => {
                format!(" It may have been added elsewhere since: {}.", database.detail)
            }
            _ => String::new(),
        }
    }

    fn mode(&self, view: &UeView) -> String {
        match &view.gnb {
            Some(gnb) => format!("{} through {gnb}", view.mode),
            None => view.mode.clone(),
        }
    }

    /// The gNB of an idle UE, where it is down.
    fn lost_gnb(&self, view: &UeView, history: &SubjectHistory) -> Option<String> {
        let gnb = history.gnb.as_ref().filter(|_| view.gnb.is_none())?;
        if self.gnbs.iter().any(|g| gnb.strip_prefix("gnb-") == Some(&g.id)) {
            return None;
        }
        let of = self.shared.console.histories(|h| h.of(&Name::Gnb(gnb.clone())).cloned())?;
        let down = of.state().filter(|e| matches!(e.what, HistoryEvent::Down(_)))?;
        let HistoryEvent::Down(how) = &down.what else { return None };
        Some(format!("its gNB, {gnb}, is down since {}: {how}", when(down.last, self.now)))
    }

    /// The session that was released last.
    fn released(&self, history: &SubjectHistory) -> Option<String> {
        let last = history.entries.iter().rev().find(|e| {
            matches!(
                e.what,
                HistoryEvent::SessionEstablished(..)
                    | HistoryEvent::SessionReleased(..)
                    | HistoryEvent::Registered
            )
        })?;
        let HistoryEvent::SessionReleased(psi, dnn, by) = &last.what else { return None };
        let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
        Some(format!("its PDU session {psi} ({dnn}) was released{by} at {}", when(last.last, self.now)))
    }
}

fn sessions(view: &UeView) -> String {
    let all: Vec<String> = view
        .sessions
        .iter()
        .map(|s| {
            let address = s.ipv4.as_ref().or(s.ipv6.as_ref()).map(|a| format!(", {a}")).unwrap_or_default();
            format!("{} ({}{address})", s.id, s.dnn)
        })
        .collect();
    match all.len() {
        0 => "without a PDU session".into(),
        1 => format!("with PDU session {}", all[0]),
        _ => format!("with PDU sessions {}", all.join(", ")),
    }
}
