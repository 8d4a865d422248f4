//! Why a UE is not registered, or a gNB not set up: one sentence about the present with the fix that applies now, and the history.

mod gnb;
mod silence;
pub(super) mod subject;
mod ue;

use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_control::Remedy;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_ids::{Instant, Supi};
use whimbrel_node::clock;
use whimbrel_node::local_time::when;

use self::subject::WhySubject;
use super::HandlerContext;
use super::input::PathParts;
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use whimbrel_node::observation::{
    Condition, ConsoleCommand, GnbView, HistoryEntry, HistoryEvent, Name, RefusalRecord, SubjectHistory,
    UeView, UesRequest,
};

/// UEs searched for an address or a 5G-TMSI, in pages: a lookup by a person, not by a program.
const LOOKED_AT_MAX: usize = 100_000;
/// UEs of one page.
const PAGE: usize = 1000;
/// Refusals of a gNB's UEs that are shown with it.
const OF_GNB_MAX: usize = 8;

/// The answer to a question for a UE, a gNB or a part of the core.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Why")]
pub struct WhyAnswer {
    /// The name in the question.
    pub subject: String,
    /// Its present state, since when, and the fix.
    pub sentence: String,
    /// Its history, newest first, one line an event.
    pub history: Vec<String>,
    /// If it is a gNB: refusals of UEs that used it, newest first, one line each.
    pub refused_ues: Vec<String>,
    /// Its refusals, newest first.
    pub refusals: Vec<RefusalRecord>,
}

/// The subject of a question.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WhyPath {
    /// A SUPI, IMEI, 5G-GUTI or address of a UE, a gNB, or a part of the core.
    subject: String,
}

pub(super) async fn why(
    shared: Arc<HandlerContext>,
    _: RoutedRequest,
    PathParts(path): PathParts<WhyPath>,
) -> HandlerResult<Json<WhyAnswer>> {
    let text = path.subject.trim().to_string();
    let answer = match WhySubject::parse(&text) {
        WhySubject::Ue(supi) => ue::answer(&shared, supi).await,
        WhySubject::Unidentified(ue) => remembered(&shared, &Name::Unidentified(ue), &text).await,
        WhySubject::Equipment(pei) => {
            let live = search(&shared, |ue| ue.pei.as_deref() == Some(&pei)).await;
            match (live, shared.console.histories(|h| h.find(&pei))) {
                (Some(supi), _) => ue::answer(&shared, supi).await,
                (None, Some(name)) => remembered(&shared, &name, &text).await,
                (None, None) => silence::of_ue(&shared, &pei),
            }
        }
        WhySubject::Tmsi(tmsi) => match search(&shared, |ue| ue.tmsi.as_deref() == Some(&tmsi)).await {
            Some(supi) => ue::answer(&shared, supi).await,
            None => silence::of_tmsi(&tmsi),
        },
        WhySubject::Gnb(id) => gnb::answer(&shared, &format!("gnb-{id}")).await,
        WhySubject::Address(address) => of_address(&shared, address, &text).await,
        WhySubject::Part(name) => part(&shared, name),
        WhySubject::Other => named(&shared, &text).await?,
    };
    TypedReply::json(&WhyAnswer { subject: text, ..answer })
}

/// About a UE that is known by another name than its SUPI.
pub(super) async fn remembered(shared: &Arc<HandlerContext>, name: &Name, text: &str) -> WhyAnswer {
    match name {
        Name::Ue(supi) => ue::answer(shared, *supi).await,
        Name::Gnb(id) => gnb::answer(shared, id).await,
        Name::Equipment(_) | Name::Unidentified(_) => {
            match shared.console.histories(|h| h.of(name).cloned()) {
                Some(history) => ue::of_unknown(shared, text, name, &history),
                None => silence::of_ue(shared, text),
            }
        }
    }
}

/// A name as the API shows it, and understands it.
pub(super) fn shown(name: &Name) -> String {
    match name {
        Name::Ue(supi) => supi.to_string(),
        Name::Equipment(pei) => pei.to_string(),
        Name::Unidentified(ue) => format!("ue-{:x}.{:x}", ue.slot, ue.generation),
        Name::Gnb(id) => id.to_string(),
    }
}

/// About a UE's address in one of its sessions, or a gNB's address.
async fn of_address(shared: &Arc<HandlerContext>, address: IpAddr, text: &str) -> WhyAnswer {
    let has = |ue: &UeView| has_address(ue, address);
    if let Some(gnb) = gnbs(shared).await.into_iter().find(|g| host(&g.address) == Some(address)) {
        return gnb::answer(shared, &format!("gnb-{}", gnb.id)).await;
    }
    if let Some(supi) = search(shared, has).await {
        return ue::answer(shared, supi).await;
    }
    match shared.console.histories(|h| h.find(&address.to_string())) {
        Some(Name::Gnb(id)) => gnb::answer(shared, &id).await,
        _ => silence::of_address(shared, text),
    }
}

fn same_prefix(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V6(a), IpAddr::V6(b)) => a.segments()[..4] == b.segments()[..4],
        _ => false,
    }
}

/// The address of `192.0.2.1:38412`.
fn host(text: &str) -> Option<IpAddr> {
    text.parse::<std::net::SocketAddr>().map(|a| a.ip()).or_else(|_| text.parse()).ok()
}

/// About a gNB's RAN node name, or another name that a refusal has.
async fn named(shared: &Arc<HandlerContext>, text: &str) -> Result<WhyAnswer, ProblemDetails> {
    if let Some(gnb) = gnbs(shared).await.into_iter().find(|g| g.name.as_deref() == Some(text)) {
        return Ok(gnb::answer(shared, &format!("gnb-{}", gnb.id)).await);
    }
    match shared.console.histories(|h| h.find(text)) {
        Some(name) => Ok(remembered(shared, &name, text).await),
        None => Err(ProblemDetails::not_found(subject::not_understood(text))),
    }
}

/// About a part of the core.
fn part(shared: &HandlerContext, name: &'static str) -> WhyAnswer {
    let component = if name == "upf" { "n4" } else { name };
    let found = shared.console.components(|c| c.all().find(|c| c.name == component).cloned());
    let sentence = match found {
        Some(part) => {
            let condition = match part.condition {
                Condition::Up => "up",
                Condition::Limited => "up with limits",
                Condition::Down => "down",
            };
            format!("{name} is {condition}: {}", part.detail)
        }
        None => format!("this process has no part {name}, or it is not configured"),
    };
    WhyAnswer { sentence: sentence.trim_end_matches('.').to_string() + ".", ..WhyAnswer::default() }
}

async fn gnbs(shared: &HandlerContext) -> Vec<GnbView> {
    shared.console.commands.ask(ConsoleCommand::ListGnbs).await.unwrap_or_default()
}

/// The first UE that matches, page by page.
async fn search(shared: &HandlerContext, fits: impl Fn(&UeView) -> bool) -> Option<Supi> {
    let mut after = None;
    for _ in 0..LOOKED_AT_MAX / PAGE {
        let asked = UesRequest { after, limit: PAGE };
        let page = shared.console.commands.ask(|reply| ConsoleCommand::ListUes(asked, reply)).await.ok()?;
        if let Some(ue) = page.ues.iter().find(|ue| fits(ue)) {
            return ue.supi.parse().ok();
        }
        after = Some(page.next?.parse().ok()?);
    }
    None
}

/// The UEs that a text means, in the order of their SUPI, and where to go on: by SUPI, IMEI, 5G-GUTI, address, gNB, or a part of these.
pub(super) async fn found(
    shared: &HandlerContext,
    text: &str,
    mut after: Option<Supi>,
    limit: usize,
) -> Result<(Vec<UeView>, Option<String>), super::problem::ProblemDetails> {
    let lower = text.to_ascii_lowercase();
    let subject = WhySubject::parse(text);
    let named = gnbs(shared)
        .await
        .into_iter()
        .filter(|g| g.name.as_ref().is_some_and(|n| n.to_ascii_lowercase().contains(&lower)));
    let named: Vec<String> = named.map(|g| format!("gnb-{}", g.id)).collect();
    let fits = |ue: &UeView| {
        let has =
            |field: &Option<String>| field.as_ref().is_some_and(|f| f.to_ascii_lowercase().contains(&lower));
        let meant = match &subject {
            WhySubject::Equipment(pei) => ue.pei.as_deref() == Some(pei),
            WhySubject::Tmsi(tmsi) => ue.tmsi.as_deref() == Some(tmsi),
            WhySubject::Gnb(id) => ue.gnb.as_deref().and_then(|g| g.strip_prefix("gnb-")) == Some(id),
            WhySubject::Address(address) => has_address(ue, *address),
            WhySubject::Ue(_) | WhySubject::Unidentified(_) | WhySubject::Part(_) | WhySubject::Other => {
                false
            }
        };
        let at_named = ue.gnb.as_ref().is_some_and(|g| named.contains(g));
        let address = ue.sessions.iter().any(|s| has(&s.ipv4) || has(&s.ipv6));
        meant
            || at_named
            || ue.supi.contains(&lower)
            || has(&ue.pei)
            || has(&ue.tmsi)
            || has(&ue.gnb)
            || address
    };
    let mut all = Vec::new();
    for _ in 0..LOOKED_AT_MAX / PAGE {
        let asked = UesRequest { after, limit: PAGE };
        let page = shared.console.commands.ask(|reply| ConsoleCommand::ListUes(asked, reply)).await?;
        for ue in page.ues.into_iter().filter(|ue| fits(ue)) {
            all.push(ue);
            if all.len() == limit {
                let next = all.last().map(|ue| ue.supi.clone());
                return Ok((all, next));
            }
        }
        let Some(next) = page.next else { break };
        after = next.parse().ok();
    }
    Ok((all, None))
}

/// Whether a UE has an address in one of its sessions.
fn has_address(ue: &UeView, address: IpAddr) -> bool {
    let own = address.to_string();
    ue.sessions.iter().any(|s| {
        let prefix = s.ipv6.as_deref().and_then(|p| p.split_once('/')).and_then(|(p, _)| p.parse().ok());
        s.ipv4.as_deref() == Some(&own) || prefix.is_some_and(|p: IpAddr| same_prefix(p, address))
    })
}

/// The history, newest first, one line an event.
fn lines(history: &SubjectHistory, now: Instant) -> Vec<String> {
    history.entries.iter().rev().map(|e| format!("{}: {}", when(e.last, now), line(e, now))).collect()
}

fn line(entry: &HistoryEntry, now: Instant) -> String {
    let through = entry.gnb.as_ref().map(|g| format!(" through {g}")).unwrap_or_default();
    let mut text = match &entry.what {
        HistoryEvent::Refused(record, ..) => {
            let closed = if entry.closed.is_some() { "; it succeeded later" } else { "" };
            format!("its {} {}{through}: {}{closed}", record.procedure, record.outcome(), record.reason())
        }
        HistoryEvent::Registered => format!("it registered{through}"),
        HistoryEvent::DeregisteredByUe => BY_UE.into(),
        HistoryEvent::Deregistered(why) => deregistered(*why).into(),
        HistoryEvent::SessionEstablished(psi, dnn) => format!("PDU session {psi} ({dnn}) was established"),
        HistoryEvent::SessionReleased(psi, dnn, "") => format!("PDU session {psi} ({dnn}) was released"),
        HistoryEvent::SessionReleased(psi, dnn, by) => {
            format!("PDU session {psi} ({dnn}) was released by {by}")
        }
        HistoryEvent::SubscriberChanged => "the subscriber's record was changed".into(),
        HistoryEvent::Up(what) => format!("it set up NG ({what})"),
        HistoryEvent::Down(how) => how.clone(),
        HistoryEvent::Noted(what) => what.clone(),
    };
    if entry.count > 1 {
        text += &format!(" ({} times since {})", entry.count, when(entry.first, now));
    }
    text
}

/// TS 24.501 §5.5.2.2.
const BY_UE: &str = "it deregistered by itself (DEREGISTRATION REQUEST, UE originating)";

/// Why the network deregistered a UE.
fn deregistered(why: DeregistrationReason) -> &'static str {
    match why {
        DeregistrationReason::Superseded => {
            "its subscriber registered again: here with a new context, or at another AMF of this network"
        }
        DeregistrationReason::Implicitly => {
            "it was deregistered implicitly: the implicit deregistration timer expired before it came back (TS 24.501 §5.3.7)"
        }
        DeregistrationReason::ByOperator => {
            "the operator deregistered it (DEREGISTRATION REQUEST, UE terminated)"
        }
        DeregistrationReason::BySubscription => {
            "the network deregistered it (DEREGISTRATION REQUEST, UE terminated): its subscription no longer allows it"
        }
        DeregistrationReason::Fault => {
            "the core discarded its context, because it failed on a message of this UE"
        }
        DeregistrationReason::StateLost => {
            "the core released it, because the CPFs that held its state were lost"
        }
        DeregistrationReason::GrantExpired => {
            "the network deregistered it (DEREGISTRATION REQUEST, UE terminated): its broker's grant was no longer valid"
        }
        DeregistrationReason::CreditUsedUp => {
            "the network deregistered it (DEREGISTRATION REQUEST, UE terminated): the credit of its broker's grant was used up"
        }
    }
}

/// When something happened, and how often.
fn at(entry: &HistoryEntry, now: Instant) -> String {
    let last = when(entry.last, now);
    match entry.count {
        1 => format!("at {last}"),
        n => format!("at {last} ({n} times since {})", when(entry.first, now)),
    }
}

/// What has changed after a refusal, and the fix.
fn mended_and_fix(remedy: Remedy, changed: Option<Instant>, now: Instant, again: &str) -> String {
    match (remedy, changed) {
        (Remedy::Fix(fix), _) => format!("; fix: {fix}."),
        (Remedy::Mended(what), Some(changed)) => {
            format!("; {what} ({}), but it has not tried again; fix: {again}.", when(changed, now))
        }
        (Remedy::Mended(what), None) => format!("; {what}, but it has not tried again; fix: {again}."),
    }
}

fn now() -> Instant {
    clock::now()
}
