//! The adapter from the core's typed events to log lines, metrics, API events and explanations.

mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};
use whimbrel_control::config::Config;
use whimbrel_control::event::{
    DeregistrationReason, MessageDropReason, ResetBy, SessionChange, SetupRefusal, Sign,
};
use whimbrel_control::refusal::RefusalKind;
use whimbrel_control::{
    AssociationId, Event, Present, Procedure, RanEvent, Refusal, Remedy, Subscriber, UeEvent, UeId,
    UeIdentities, UpfId,
};
use whimbrel_ids::{GlobalGnbId, Instant, RanUeNgapId, Supi};
use whimbrel_resilience::UpfChange;

use self::history::{AssociationPeer, answer, closed_by, name, setup_answer};
use crate::config::refusal_word;
use crate::log_limiter::LogLimiter;
use crate::observation::otlp::Span;
use crate::observation::{
    ClosedBy, Condition, Console, HistoryEvent, Level, Metric, Name, NasDropReason, ProcedureName,
    RefusalReason, RefusalRecord,
};

/// Reports events to the outside. One per control thread.
pub struct Observer {
    console: Arc<Console>,
    config: Arc<Config>,
    /// Whether SUPIs may stand in logs.
    log_supi: bool,
    /// The gNB of each association, for sentences.
    gnbs: BTreeMap<AssociationId, AssociationPeer>,
    /// Associations that are up and whose gNB identity another association took over.
    displaced: BTreeSet<AssociationId>,
    /// Limits the lines about faulty messages.
    log_faults: LogLimiter<(String, String)>,
    store_failed: bool,
    /// From the arrival of this turn's messages to the events that they caused.
    turn: Duration,
    /// The last change of each UPF.
    upfs: BTreeMap<UpfId, UpfChange>,
}

impl Observer {
    /// An observer that pushes to `console`.
    pub fn new(console: Arc<Console>, config: Arc<Config>, log_supi: bool) -> Self {
        let log_faults = LogLimiter::new("messages of gNBs, and with limits");
        console.configured(config.clone());
        Self {
            console,
            config,
            log_supi,
            gnbs: BTreeMap::new(),
            displaced: BTreeSet::new(),
            log_faults,
            store_failed: false,
            turn: Duration::ZERO,
            upfs: BTreeMap::new(),
        }
    }

    /// A new version of the configuration is in force.
    pub fn configure(&mut self, config: Arc<Config>) {
        self.console.configured(config.clone());
        self.config = config;
    }

    /// An association came up from this address; its gNB is not known yet.
    pub fn association_up(&mut self, association: AssociationId, peer: &str) {
        info!(peer, "an SCTP association came up");
        self.gnbs.insert(association, AssociationPeer::new(format!("gnb-at-{peer}"), peer));
    }

    /// The gNB of an association, as sentences name it.
    pub fn gnb(&self, association: AssociationId) -> Arc<str> {
        self.gnbs.get(&association).map_or_else(|| "gNB".into(), |peer| peer.name.clone())
    }

    /// A gNB was connected to the CTA that this one replaced.
    pub fn inherits(&mut self, association: AssociationId, gnb: GlobalGnbId) {
        self.gnbs.insert(association, AssociationPeer::of_gnb(gnb, ""));
    }

    /// The events that follow happened this long after the arrival of this turn's messages.
    pub fn turned(&mut self, elapsed: Duration) {
        self.turn = elapsed;
    }

    /// A procedure has ended. `took`: from the arrival of its first message to that of its last one; what the core did then is
    /// added, which is all of it where a procedure has one message.
    fn completed(&self, now: Instant, procedure: ProcedureName, took: Duration) {
        self.console.metrics.completed(now, procedure, took + self.turn);
    }

    /// The core's own work on a procedure that ended.
    pub fn worked(&self, procedure: Procedure, spent: Duration) {
        self.console.metrics.worked(name_of(procedure), spent);
    }

    /// Something happened to a UE. `on` is the association that its connection uses, where it has one.
    pub fn ue(&mut self, now: Instant, happened: &UeEvent) {
        self.console.operations.ue(now, happened);
        let ue = happened.ue;
        self.remember(now, happened);
        match &happened.event {
            Event::Completed { procedure, subject, took } => {
                let name = name_of(*procedure);
                self.completed(now, name, *took);
                let us = (*took + self.turn).as_micros() as u64;
                self.trace(now, happened, name, subject, *took, None);
                debug!(subject = %self.logged(ue, subject), procedure = name.word(), us, "completed");
            }
            Event::Refused { procedure, subject, ran_ue_ngap_id, refusal } => {
                let on = happened.on.and_then(|a| self.gnbs.get(&a)).map(|p| p.name.clone());
                self.refused(now, ue, *procedure, subject, *ran_ue_ngap_id, on, refusal);
                let why = refusal.to_string();
                self.trace(now, happened, name_of(*procedure), subject, Duration::ZERO, Some(why));
            }
            Event::Session { subject, psi, dnn, change } => {
                let what = session_word(*change);
                debug!(subject = %self.logged(ue, subject), %psi, %dnn, what, "PDU session");
            }
            Event::Deregistered { subject, why } => {
                let why = deregistered_word(*why);
                debug!(subject = %self.logged(ue, subject), why, "deregistered");
                let text = format!("It was deregistered: {why}.");
                self.event(now, Level::Info, "deregistered", &shown(ue, subject), text);
            }
            Event::Reachable { subject } => {
                debug!(subject = %self.logged(ue, subject), "can be reached");
                let text = "The UE is reachable.";
                self.event(now, Level::Info, "reachable", &shown(ue, subject), text.into());
            }
            Event::SecurityCapabilitiesDiffer { subject } => {
                self.console.metrics.add(Metric::UeSecurityCapabilityMismatches, 1);
                warn!(subject = %self.logged(ue, subject), "a gNB has other security capabilities of the UE than the UE sent");
            }
            Event::UpSecurityPolicyDiffers { subject, psi } => {
                self.console.metrics.add(Metric::UpSecurityPolicyMismatches, 1);
                warn!(subject = %self.logged(ue, subject), %psi, "a gNB has another user plane security policy for the session than the SMF");
            }
            Event::Located { subject, tai, cell } => {
                self.console.metrics.add(Metric::LocationReports, 1);
                debug!(subject = %self.logged(ue, subject), "located");
                let tai = tai.map_or_else(|| "an unreported tracking area".into(), |t| format!("TAI {t}"));
                let cell = cell.as_ref().map(|c| format!(", cell {c}")).unwrap_or_default();
                let text = format!("It is in {tai}{cell}.");
                self.event(now, Level::Info, "located", &shown(ue, subject), text);
            }
            Event::Presence { subject, area, inside } => {
                let is = match inside {
                    Some(true) => "It is in",
                    Some(false) => "It is not in",
                    None => "The gNB does not know whether it is in",
                };
                let text = format!("{is} TAI {area}.");
                self.event(now, Level::Info, "presence", &shown(ue, subject), text);
            }
            Event::NotLocated { subject, why } => {
                self.console.metrics.add(Metric::LocationFailures, 1);
                let text = format!("Its location could not be determined: {why}.");
                self.event(now, Level::Info, "not.located", &shown(ue, subject), text);
            }
            Event::Sign { subject, sign, tai, seen } => {
                let cell = seen.as_ref().map(|s| s.cell.to_string()).unwrap_or_default();
                let tai = tai.map(|t| t.to_string()).unwrap_or_default();
                debug!(subject = %self.logged(ue, subject), ?sign, tai, cell, "a sign of where it goes");
                let text = match sign {
                    Sign::Reported => format!("It is in cell {cell} of TAI {tai}."),
                    Sign::Required(cause, to) => format!("Its gNB wants it to go to TAI {to}: {cause}."),
                    Sign::Arrived => format!("It has come to cell {cell} of TAI {tai}."),
                    Sign::Connected => format!("It is connected in cell {cell} of TAI {tai}."),
                    Sign::Prepared => "The target of its predicted handover is prepared.".into(),
                };
                self.event(now, Level::Debug, "sign", &shown(ue, subject), text);
            }
            Event::CellTraffic { subject, trace, cell } => {
                let trace: String = trace.iter().map(|o| format!("{o:02x}")).collect();
                debug!(subject = %self.logged(ue, subject), trace, "cell traffic trace");
                let text = format!("It is traced in cell {cell} under {trace}.");
                self.event(now, Level::Info, "trace", &shown(ue, subject), text);
            }
            Event::Dropped { subject, why } => {
                self.console.metrics.nas_dropped(drop_reason(*why));
                debug!(subject = %self.logged(ue, subject), ?why, "a message was dropped");
            }
            Event::Granted { subject, broker, .. } => {
                debug!(subject = %self.logged(ue, subject), broker, "a broker has granted a session");
                let text = format!("Broker {broker} has granted it a session.");
                self.event(now, Level::Info, "grant", &shown(ue, subject), text);
            }
            Event::VeilGranted { subject, broker, .. } => {
                debug!(subject = %self.logged(ue, subject), broker, "a broker has granted a session to a veiled UE");
                let text = format!("Broker {broker} has granted it a session, without naming its user.");
                self.event(now, Level::Info, "grant", &shown(ue, subject), text);
            }
            Event::VeilFailed { .. } => {
                debug!(ue = %pseudonym(ue), "a veiled UE did not accept its broker's challenge; its broker alone can read why");
            }
            Event::UsageReported { subject, .. } => {
                debug!(subject = %self.logged(ue, subject), "a usage report for the UE's broker came");
            }
            // The operation itself reports its outcome.
            Event::SessionOperation { subject, psi, .. } => {
                debug!(subject = %self.logged(ue, subject), %psi, "a change of a session has ended");
            }
            Event::Repeated(message) => {
                self.console.metrics.add(Metric::NasRetransmitted, 1);
                debug!(ue = %pseudonym(ue), message, "sent again: no answer came");
            }
        }
    }

    /// Exports a procedure that ended as a span, where a collector is configured.
    fn trace(
        &self,
        now: Instant,
        happened: &UeEvent,
        procedure: ProcedureName,
        subject: &UeIdentities,
        took: Duration,
        refusal: Option<String>,
    ) {
        let Some(traces) = self.console.traces.get() else { return };
        let span = Span {
            procedure: procedure.word(),
            ue: pseudonym(happened.ue),
            supi: subject.supi.filter(|_| self.log_supi).map(|supi| supi.to_string()),
            gnb: happened.on.and_then(|a| self.gnbs.get(&a)).map(|peer| peer.name.clone()),
            begin: Instant(now.0.saturating_sub(took.as_micros() as u64)),
            end: now + self.turn,
            refusal,
        };
        if !traces.offer(span) {
            self.console.metrics.add(Metric::TraceSpansLost, 1);
        }
    }

    /// Something happened to a gNB.
    pub fn ran(&mut self, now: Instant, event: &RanEvent) {
        self.console.operations.ran(now, event, |association| self.called(association));
        match event {
            RanEvent::Up { association, gnb, name } => {
                let id = format!("gnb-{gnb}");
                let called = name.as_deref().unwrap_or("no name");
                self.completed(now, ProcedureName::NgSetup, Duration::ZERO);
                info!(gnb = id, name = called, "a gNB is up");
                self.event(now, Level::Info, "gnb.up", &id, format!("The gNB ({called}) set up NG."));
                let address = self.gnbs.get(association).map(|p| p.address.clone()).unwrap_or_default();
                self.gnb_up(now, &id, name.as_deref(), &address);
                self.names_compared(now, *gnb, &address);
                self.gnbs.insert(*association, AssociationPeer::of_gnb(*gnb, &address));
            }
            RanEvent::SetupRefused {
                association,
                gnb: Some(gnb),
                why: SetupRefusal::IdentityInUse { holder },
            } => {
                self.console.metrics.refused(ProcedureName::NgSetup);
                self.identity_contested(now, *gnb, *holder, *association);
            }
            RanEvent::SetupRefused {
                association,
                gnb: Some(gnb),
                why: SetupRefusal::FurtherElsewhere { holder },
            } => self.joined_from_elsewhere(now, *gnb, *holder, *association),
            RanEvent::SetupRefused { association, gnb, why } => {
                let peer = self.called(*association);
                let id = gnb.map_or_else(|| peer.clone(), |g| format!("gnb-{g}"));
                self.setup_refused(now, id, peer, why);
            }
            // The association lost its identity but is up; the takeover of the identity has been logged.
            RanEvent::Down { association, .. } if self.displaced.remove(association) => {
                let peer = self.address(*association);
                self.gnbs.insert(*association, AssociationPeer::new(format!("gnb-at-{peer}"), &peer));
            }
            RanEvent::Down { association, gnb } => {
                let peer = self.gnbs.remove(association);
                let called = || peer.as_ref().map_or_else(|| "a gNB".into(), |p| p.name.to_string());
                let id = gnb.map_or_else(called, |g| format!("gnb-{g}"));
                if gnb.is_some() {
                    self.gnb_down(now, &id, peer);
                }
                info!(gnb = id, "the association of a gNB ended");
                self.event(now, Level::Warn, "gnb.down", &id, "Its association ended.".into());
            }
            RanEvent::Reset { association, ues, by } => {
                let id = self.called(*association);
                let ends = if *ues == 1 { "" } else { "s" };
                let (text, note) = match by {
                    ResetBy::Gnb => {
                        self.console.metrics.add(Metric::NgResets, 1);
                        info!(gnb = id, ues = ues, "a gNB reset its connections");
                        (format!("It reset {ues} UE connection{ends}."), "its")
                    }
                    ResetBy::Operator => {
                        info!(gnb = id, ues = ues, "the operator reset the connections of a gNB");
                        (format!("The operator reset its {ues} UE connection{ends}."), "the operator's")
                    }
                };
                self.event(now, Level::Warn, "gnb.reset", &id, text);
                let note = format!("{note} NG RESET ended {ues} UE connection{ends}");
                self.remember_gnb(now, &id, HistoryEvent::Noted(note));
            }
            RanEvent::ResetUnacknowledged { association } => {
                let id = self.called(*association);
                warn!(gnb = id, "a gNB did not answer NG RESET, which was sent twice");
                self.event(now, Level::Warn, "gnb.reset", &id, "It did not answer NG RESET.".into());
            }
            RanEvent::Refused { association, what } => {
                let id = self.called(*association);
                self.console.metrics.add(Metric::NgapRefused, 1);
                if self.log_faults.allows(now, (id.clone(), what.clone())) {
                    warn!(
                        gnb = id,
                        what, "a message was answered with ERROR INDICATION; further ones are counted"
                    );
                    let text = format!("Its message was refused: {what}. Further ones are counted.");
                    self.event(now, Level::Warn, "ngap.refused", &id, text);
                    let text = format!("a message of it was answered with ERROR INDICATION: {what}");
                    self.remember_gnb(now, &id, HistoryEvent::Noted(text));
                }
            }
            RanEvent::ErrorIndication { association, cause } => {
                let id = self.called(*association);
                self.console.metrics.add(Metric::NgapErrorIndications, 1);
                if self.log_faults.allows(now, (id.clone(), format!("ERROR INDICATION: {cause}"))) {
                    warn!(gnb = id, cause, "a gNB sent ERROR INDICATION; further ones are counted");
                    let text = format!("It sent ERROR INDICATION: {cause}. Further ones are counted.");
                    self.event(now, Level::Warn, "ngap.error", &id, text);
                    let text = format!("it sent ERROR INDICATION with cause {cause}");
                    self.remember_gnb(now, &id, HistoryEvent::Noted(text));
                }
            }
            RanEvent::NeverSetUp { association } => {
                let id = self.called(*association);
                self.console.metrics.add(Metric::NgSetupTimeouts, 1);
                info!(gnb = id, "no NG SETUP REQUEST came over an association: it is aborted");
                let text = "its SCTP association came up, and no NG SETUP REQUEST came over it";
                self.remember_gnb(now, &id, HistoryEvent::Noted(text.into()));
            }
            RanEvent::SameIdentity { association, former, gnb } => {
                self.displaced.insert(*former);
                self.console.metrics.add(Metric::NgSetupTakeovers, 1);
                let (here, there) = (self.address(*association), self.address(*former));
                let id = format!("gnb-{gnb}");
                let text = format!(
                    "The gNB at {here} sent NG SETUP REQUEST with Global RAN Node ID {gnb}, which was up at {there}, and took its place: it \
                     restarted, or two gNBs have that identity"
                );
                warn!("{text}");
                self.event(now, Level::Warn, "gnb.twice", &id, format!("{text}."));
                let text = format!(
                    "it took its identity over from {there}: it restarted, or two gNBs have that identity"
                );
                self.remember_gnb(now, &id, HistoryEvent::Noted(text));
            }
            RanEvent::IdentityClaimed { association, holder, gnb } => {
                let (here, there) = (self.address(*association), self.address(*holder));
                let id = format!("gnb-{gnb}");
                let text = format!(
                    "NG SETUP REQUEST with the identity of the gNB at {there} came from {here}: that gNB is probed"
                );
                if self.log_faults.allows(now, (id.clone(), text.clone())) {
                    info!(gnb = id, "{text}");
                    self.event(now, Level::Info, "gnb.claimed", &id, format!("{text}."));
                }
            }
            RanEvent::HolderSilent { association, holder, gnb } => {
                let (here, there) = (self.address(*association), self.address(*holder));
                let id = format!("gnb-{gnb}");
                let text = format!(
                    "the gNB at {there} gave no sign of life for 3 s: the one at {here} gets its identity"
                );
                warn!(gnb = id, "{text}");
                self.event(now, Level::Warn, "gnb.silent", &id, capitalised(&text) + ".");
            }
            RanEvent::Disconnected { association, gnb } => {
                let (id, there) = (format!("gnb-{gnb}"), self.address(*association));
                let text = format!(
                    "the operator disconnected the gNB at {there}, which does not get its identity back for 60 s"
                );
                warn!(gnb = id, "{text}");
                self.event(now, Level::Warn, "gnb.disconnected", &id, capitalised(&text) + ".");
                self.remember_gnb(now, &id, HistoryEvent::Noted(text));
            }
            RanEvent::IdentityContested { gnb, holder, other } => {
                self.console.metrics.add(Metric::NgSetupIdentityConflicts, 1);
                self.identity_contested(now, *gnb, *holder, *other);
            }
            RanEvent::Limited { association, limit } => {
                let id = association.map_or_else(|| "all".into(), |a| self.called(a));
                let text = beyond(limit);
                if self.log_faults.allows(now, (id.clone(), text.clone())) {
                    warn!(
                        gnb = id,
                        limit,
                        "{text}; further times are counted ({})",
                        Metric::LimitReached.name()
                    );
                }
                self.event(now, Level::Warn, "limit", &id, format!("{text}."));
            }
            RanEvent::Overload { on } => {
                self.console.metrics.set(Metric::Overloaded, u64::from(*on));
                let text = if *on { "gNBs got OVERLOAD START." } else { "gNBs got OVERLOAD STOP." };
                warn!("{text}");
                self.event(now, Level::Warn, "overload", "amf", text.into());
            }
            RanEvent::Reconfigured { .. }
            | RanEvent::UpdateTaken { .. }
            | RanEvent::UpdateRefused { .. }
            | RanEvent::ResetAcknowledged { .. }
            | RanEvent::Transferred { .. }
            | RanEvent::Unserved { .. } => self.ran_update(now, event),
            RanEvent::Warned { .. } | RanEvent::WarningUnanswered { .. } | RanEvent::WarningsLost { .. } => {
                self.warning(now, event);
            }
        }
    }

    /// Configuration updates and other notices between gNBs and the core.
    fn ran_update(&mut self, now: Instant, event: &RanEvent) {
        match event {
            RanEvent::Reconfigured { association } => {
                self.completed(now, ProcedureName::RanConfigurationUpdate, Duration::ZERO);
                info!(gnb = self.called(*association), "a gNB changed its configuration");
            }
            RanEvent::UpdateTaken { association } => {
                self.completed(now, ProcedureName::AmfConfigurationUpdate, Duration::ZERO);
                info!(gnb = self.called(*association), "a gNB took the new configuration");
            }
            RanEvent::UpdateRefused { association, cause, again } => {
                let id = self.called(*association);
                self.console.metrics.refused(ProcedureName::AmfConfigurationUpdate);
                warn!(gnb = id, cause, again, "a gNB did not take the new configuration");
                let text = format!("it refused AMF CONFIGURATION UPDATE with cause {cause}");
                self.remember_gnb(now, &id, HistoryEvent::Noted(text));
                let text = format!("It did not take AMF CONFIGURATION UPDATE: {cause}.");
                self.event(now, Level::Warn, "gnb.update", &id, text);
            }
            RanEvent::ResetAcknowledged { association } => {
                info!(gnb = self.called(*association), "a gNB acknowledged a reset");
            }
            RanEvent::Transferred { .. } => {
                self.console.metrics.add(Metric::RanConfigurationTransfers, 1);
            }
            RanEvent::Unserved { association, what } => {
                self.console.metrics.add(Metric::NgapDropped, 1);
                debug!(
                    gnb = self.called(*association),
                    what, "a message without a receiver here was dropped"
                );
            }
            _ => {}
        }
    }

    fn warning(&mut self, now: Instant, event: &RanEvent) {
        match event {
            RanEvent::Warned { association, message_identifier, serial_number, outcome } => {
                let id = self.called(*association);
                info!(
                    gnb = id,
                    message_identifier, serial_number, %outcome, "a gNB answered to a warning message"
                );
            }
            RanEvent::WarningUnanswered { gnb, .. } => {
                let id = format!("gnb-{gnb}");
                warn!(gnb = id, "a gNB does not answer to a warning message");
                self.event(
                    now,
                    Level::Warn,
                    "warning",
                    &id,
                    "It did not answer to a warning message.".into(),
                );
            }
            RanEvent::WarningsLost { association, cells, restarted } => {
                let id = self.called(*association);
                warn!(gnb = id, cells, restarted, "cells lost their warning messages");
                let text = match restarted {
                    true => format!("{cells} cells came back and get the warnings in force again."),
                    false => format!("{cells} cells do not broadcast warnings any more."),
                };
                self.event(now, Level::Warn, "warning", &id, text);
            }
            _ => {}
        }
    }

    /// The state of a UPF changed.
    pub fn upf(&mut self, now: Instant, upf: UpfId, change: UpfChange) {
        if change == UpfChange::Unanswered && self.upfs.contains_key(&upf) {
            return; // why it has no association is known
        }
        self.upfs.insert(upf, change);
        let all = self.config.smf.upfs.len();
        let named = self.config.smf.upfs.get(usize::from(upf.0)).map_or("upf", |u| u.name.as_str());
        let upf_name = if all > 1 { format!("the UPF {named}") } else { "the UPF".to_string() };
        let (level, text) = upf_sentence(change, all > 1);
        let text = match change {
            UpfChange::PoolTaken { by, address, length } => {
                let by = self.config.smf.upfs.get(usize::from(by.0)).map_or("upf", |u| u.name.as_str());
                format!("{upf_name} gives UEs addresses of {address}/{length}, as the UPF {by} does, {text}")
            }
            _ => format!("{upf_name} {text}"),
        };
        match level {
            Level::Error => error!("{text}"),
            Level::Warn => warn!("{text}"),
            Level::Info | Level::Debug => info!("{text}"),
        }
        let up = |c: &&UpfChange| matches!(c, UpfChange::Up | UpfChange::Back);
        let (condition, detail) = match self.upfs.values().filter(up).count() {
            0 if all > 1 => (Condition::Down, "No UPF answers on N4, so no session can be had.".to_string()),
            n if n == all => (
                Condition::Up,
                if n == 1 { "The UPF answers on N4." } else { "All UPFs answer on N4." }.into(),
            ),
            0 => (Condition::Down, sentence(&text)),
            n => (Condition::Limited, format!("{n} of {all} UPFs answer on N4; last: {text}.")),
        };
        self.console.components(|c| c.set("n4", condition, detail));
        self.console.timeline(|t| t.push(now, "upf", named, sentence(&text), None));
        self.event(now, level, "upf", "upf", sentence(&text));
    }

    /// The store answers or does not; reported at each change.
    pub fn store(&mut self, now: Instant, asked: Result<(), String>) {
        let failed = asked.is_err();
        match asked {
            Err(sentence) if !self.store_failed => {
                error!("{sentence}");
                self.event(now, Level::Error, "store", "store", sentence.clone());
                self.console.components(|c| c.set("store", Condition::Down, sentence));
            }
            Ok(()) if self.store_failed => {
                info!("the store answers again");
                self.console.components(|c| c.set("store", Condition::Up, "It answers again."));
            }
            _ => {}
        }
        self.store_failed = failed;
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of one event")]
    fn refused(
        &mut self,
        now: Instant,
        ue: UeId,
        procedure: Procedure,
        subject: &UeIdentities,
        ran_ue_ngap_id: Option<RanUeNgapId>,
        gnb: Option<Arc<str>>,
        refusal: &Refusal,
    ) {
        let of = name_of(procedure);
        self.console.metrics.refused(of);
        let mut subjects = vec![shown(ue, subject)];
        subjects.extend(subject.pei.map(|pei| pei.to_string()));
        if let Some(gnb) = &gnb {
            subjects.extend(ran_ue_ngap_id.map(|id| format!("{gnb}-ran-ue-{id}")));
            subjects.push(gnb.to_string());
        }
        let record = RefusalRecord {
            subjects,
            procedure: of.word().replace('_', " ").replace("pdu", "PDU"),
            kind: refusal_word(refusal.kind()).into(),
            why: refusal.to_string(),
            expected: self.expected(refusal),
            fix: self.fix(refusal, subject.supi),
            answer: answer(&self.config, procedure, refusal),
            ..RefusalRecord::default()
        };
        let logged = self.logged(ue, subject);
        let why = record.why.clone();
        let event = format!("It was refused in {}: {why}.", record.procedure);
        let refused = HistoryEvent::Refused(
            Box::new(record),
            RefusalReason::Ue(refusal.clone()),
            closed_by(procedure, refusal),
        );
        let name = name(ue, subject);
        // What a UE is refused over and over is logged once and counted.
        if self.console.histories(|h| h.push(now, &name, gnb.as_ref(), refused)) {
            let fix = self.fix(refusal, subject.supi.filter(|_| self.log_supi));
            info!(subject = %logged, procedure = of.word(), why, fix, "refused");
            self.event(now, Level::Warn, "refused", &shown(ue, subject), event);
        }
    }

    /// Two gNBs use one Global RAN Node ID: `why` of the identity and of either address reports it.
    fn identity_contested(
        &mut self,
        now: Instant,
        gnb: GlobalGnbId,
        holder: AssociationId,
        other: AssociationId,
    ) {
        let cause = RefusalReason::Setup(SetupRefusal::IdentityInUse { holder });
        let (holder, other) = (self.address(holder), self.address(other));
        let id = format!("gnb-{gnb}");
        let record = RefusalRecord {
            subjects: vec![id.clone(), format!("gnb-at-{holder}"), format!("gnb-at-{other}")],
            procedure: "NG setup".into(),
            kind: "ng_setup".into(),
            why: same_identity(gnb, &holder, &other),
            fix: identity_of_its_own(gnb, &holder, &other),
            ..RefusalRecord::default()
        };
        let (why, fix) = (record.why.clone(), record.fix.clone());
        let refused = HistoryEvent::Refused(Box::new(record), cause, ClosedBy::Setup);
        let name = Name::Gnb(id.as_str().into());
        if self.console.histories(|h| h.push(now, &name, None, refused)) {
            warn!("{why}: {fix}");
            self.event(now, Level::Warn, "gnb.identity", &id, format!("{why}; {fix}."));
        }
    }

    /// Identities of one value and different lengths are different gNBs (TS 38.413 §9.3.1.6), but have one name here.
    fn names_compared(&mut self, now: Instant, gnb: GlobalGnbId, address: &str) {
        let alike = |other: GlobalGnbId| other.bits() != gnb.bits() && other.to_string() == gnb.to_string();
        let other = self.gnbs.values().find_map(|p| Some((p.gnb.filter(|g| alike(*g))?, p.address.clone())));
        let Some((other, at)) = other else { return };
        let text = format!(
            "Two gNBs have identities of the value {:x}, that at {address} with {} bits and that at {at} with {}: lists and commands \
             name both gnb-{gnb}; give one of them another value.",
            gnb.gnb_id,
            gnb.bits(),
            other.bits()
        );
        warn!("{text}");
        self.event(now, Level::Warn, "gnb.identity", &format!("gnb-{gnb}"), text);
    }

    /// A further association of a gNB came from an address that the gNB does not have.
    fn joined_from_elsewhere(
        &mut self,
        now: Instant,
        gnb: GlobalGnbId,
        holder: AssociationId,
        other: AssociationId,
    ) {
        self.console.metrics.refused(ProcedureName::RanConfigurationUpdate);
        let why = SetupRefusal::FurtherElsewhere { holder };
        let (holder, other) = (self.address(holder), self.address(other));
        let id = format!("gnb-{gnb}");
        let (_, offered, expected, fix) = setup_sentence(&why);
        let record = RefusalRecord {
            subjects: vec![format!("gnb-at-{other}"), id.clone()],
            procedure: "RAN configuration update".into(),
            kind: "ng_setup".into(),
            why: format!(
                "an association from {other} was to join the gNB with Global RAN Node ID {gnb}, which is at {holder}"
            ),
            offered,
            expected,
            fix,
            answer: setup_answer(&why),
            ..RefusalRecord::default()
        };
        let (why_text, fix) = (record.why.clone(), record.fix.clone());
        let refused = HistoryEvent::Refused(Box::new(record), RefusalReason::Setup(why), ClosedBy::Setup);
        let name = Name::Gnb(format!("gnb-at-{other}").as_str().into());
        if self.console.histories(|h| h.push(now, &name, None, refused)) {
            warn!("{why_text}: {fix}");
            self.event(now, Level::Warn, "gnb.identity", &id, format!("{why_text}; {fix}."));
        }
    }

    /// The address and port of an association's gNB.
    fn address(&self, association: AssociationId) -> String {
        let address = self.gnbs.get(&association).map(|p| p.address.clone()).filter(|a| !a.is_empty());
        address.unwrap_or_else(|| "an unknown address".into())
    }

    /// The fix for a refusal, as far as it is known without the subscriber's record.
    fn fix(&self, refusal: &Refusal, supi: Option<Supi>) -> String {
        let subscriber = Subscriber::NotAsked;
        let present = Present { config: &self.config, supi, subscriber, changed_since: false };
        let (Remedy::Fix(fix) | Remedy::Mended(fix)) = refusal.remedy(&present);
        fix
    }

    fn setup_refused(&mut self, now: Instant, id: String, peer: String, why: &SetupRefusal) {
        self.console.metrics.refused(ProcedureName::NgSetup);
        let (reason, offered, expected, fix) = setup_sentence(why);
        let record = RefusalRecord {
            subjects: if id == peer { vec![id.clone()] } else { vec![id.clone(), peer] },
            procedure: "NG setup".into(),
            kind: "ng_setup".into(),
            why: reason.clone(),
            offered,
            expected,
            fix: fix.clone(),
            answer: setup_answer(why),
            ..RefusalRecord::default()
        };
        let event = format!("Its NG SETUP was refused: {reason}.");
        let name = Name::Gnb(id.as_str().into());
        let refused =
            HistoryEvent::Refused(Box::new(record), RefusalReason::Setup(why.clone()), ClosedBy::Setup);
        if self.console.histories(|h| h.push(now, &name, None, refused)) {
            warn!(gnb = id, why = reason, fix, "NG SETUP was refused");
            self.event(now, Level::Warn, "gnb.refused", &id, event);
        }
    }

    /// What would have been accepted, if the refusal itself does not contain it.
    fn expected(&self, refusal: &Refusal) -> String {
        let amf = &self.config.amf;
        if matches!(refusal, Refusal::SliceNotAllowed(_) | Refusal::DnnNotSubscribed { .. }) {
            return String::new(); // the subscription decides, not the configuration
        }
        match refusal.kind() {
            RefusalKind::TrackingArea => format!("a TAC of {}", list(&amf.tacs)),
            RefusalKind::Slice => format!("one of the configured slices {}", list(&amf.slices)),
            RefusalKind::Plmn => format!("PLMN {}", amf.plmn),
            RefusalKind::Algorithm => {
                format!("one of {} and one of {}", algorithms(&amf.integrity), algorithms(&amf.ciphering))
            }
            RefusalKind::Dnn => {
                let names: Vec<String> =
                    self.config.smf.data_networks.keys().map(ToString::to_string).collect();
                format!("one of the configured {}", names.join(", "))
            }
            RefusalKind::UnknownSubscriber
            | RefusalKind::Barred
            | RefusalKind::Authentication
            | RefusalKind::Identity
            | RefusalKind::ForbiddenArea
            | RefusalKind::Restricted
            | RefusalKind::Congestion
            | RefusalKind::SessionType
            | RefusalKind::Resources
            | RefusalKind::Charging
            | RefusalKind::Policy
            | RefusalKind::NetworkFailure
            | RefusalKind::Protocol => String::new(),
        }
    }

    fn called(&self, association: AssociationId) -> String {
        let name = self.gnbs.get(&association).map(|p| p.name.to_string());
        name.unwrap_or_else(|| format!("association {}", association.0))
    }

    /// The subject of a log line: the SUPI only if the operator allows it.
    fn logged(&self, ue: UeId, subject: &UeIdentities) -> String {
        if self.log_supi { shown(ue, subject) } else { pseudonym(ue) }
    }

    fn event(&self, now: Instant, level: Level, kind: &'static str, subject: &str, text: String) {
        self.console.events(|e| e.push(now, level, kind, subject, text));
    }
}

/// Names of algorithms as the configuration has them.
fn algorithms<T: std::fmt::Debug>(algorithms: &[T]) -> String {
    algorithms.iter().map(|a| format!("{a:?}").to_uppercase()).collect::<Vec<_>>().join(", ")
}

/// The best name of a UE.
fn shown(ue: UeId, subject: &UeIdentities) -> String {
    match (subject.supi, subject.pei) {
        (Some(supi), _) => supi.to_string(),
        (None, Some(pei)) => pei.to_string(),
        (None, None) => pseudonym(ue),
    }
}

/// A name without personal data: the UE's slot and its generation.
fn pseudonym(ue: UeId) -> String {
    format!("ue-{:x}.{:x}", ue.slot, ue.generation)
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn same_identity(gnb: GlobalGnbId, holder: &str, other: &str) -> String {
    format!(
        "two gNBs have Global RAN Node ID {gnb}, the one at {holder} and the one at {other}, and NG SETUP of the latter is refused \
         while the former is up"
    )
}

fn identity_of_its_own(gnb: GlobalGnbId, holder: &str, other: &str) -> String {
    format!(
        "change the gNB ID of the gNB at {holder} or of the one at {other}, or, if the one at {holder} is not yours, run \
         `whimbrel gnb disconnect gnb-{gnb}` and list your gNBs in `n2.gnbs`"
    )
}

/// A sentence from a clause.
fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Why, what was offered, what was expected, and the fix.
fn setup_sentence(why: &SetupRefusal) -> (String, String, String, String) {
    match why {
        SetupRefusal::Plmn { offered, served } => (
            "it broadcasts no PLMN that is served here".into(),
            format!("PLMN {}", offered.join(", ")),
            format!("PLMN {served}"),
            format!("set the gNB's PLMN to {served}, or `plmn` to the gNB's"),
        ),
        SetupRefusal::Tac { offered, served } => (
            "it broadcasts no tracking area that is served here".into(),
            format!("TAC {}", list(offered)),
            format!("TAC {}", list(served)),
            format!("add {} to `tacs`, or change the gNB's TAC", list(offered)),
        ),
        SetupRefusal::Slice { offered, served } => (
            "it supports no slice that is offered here".into(),
            format!("slices {}", offered.join(", ")),
            format!("slices {}", served.join(", ")),
            format!("add {} to `slices`, or change the gNB's slices", offered.join(", ")),
        ),
        SetupRefusal::Limit(limit) => (
            format!("{limit} gNBs are up, which is the limit"),
            String::new(),
            String::new(),
            "raise `limits.ran_nodes`".into(),
        ),
        SetupRefusal::IdentityInUse { .. } => (
            "another gNB is up with the same Global RAN Node ID".into(),
            String::new(),
            String::new(),
            "give each gNB a Global RAN Node ID of its own".into(),
        ),
        SetupRefusal::NotListed => (
            "`n2.gnbs` does not list it".into(),
            String::new(),
            String::new(),
            "add it to `n2.gnbs` with the networks that it connects from".into(),
        ),
        SetupRefusal::OutsideNetworks => (
            "it connects from an address outside the networks that `n2.gnbs` lists for it".into(),
            String::new(),
            String::new(),
            "add its network in `n2.gnbs`, if it is your gNB".into(),
        ),
        SetupRefusal::FurtherElsewhere { .. } => (
            "it was to join a gNB that is at another address".into(),
            String::new(),
            String::new(),
            "if it is your gNB, list it in `n2.gnbs` with all networks that it connects from".into(),
        ),
        SetupRefusal::Disconnected => (
            "the operator disconnected the gNB at this address".into(),
            String::new(),
            String::new(),
            "wait for 60 s, if it is your gNB".into(),
        ),
        SetupRefusal::NodeType => (
            "it is no gNB".into(),
            "another kind of RAN node".into(),
            "a Global gNB ID".into(),
            "connect a gNB: ng-eNBs, N3IWFs and other access nodes are not served".into(),
        ),
    }
}

fn name_of(procedure: Procedure) -> ProcedureName {
    match procedure {
        Procedure::Registration => ProcedureName::Registration,
        Procedure::UeContextTransfer => ProcedureName::UeContextTransfer,
        Procedure::DeregistrationByUe => ProcedureName::DeregistrationByUe,
        Procedure::DeregistrationByNetwork => ProcedureName::DeregistrationByNetwork,
        Procedure::Authentication => ProcedureName::Authentication,
        Procedure::SubscriptionChange => ProcedureName::SubscriptionChange,
        // Paging is how the network triggers a service request (TS 23.502 §4.2.3.3).
        Procedure::ServiceRequest | Procedure::Paging => ProcedureName::ServiceRequest,
        Procedure::ConfigurationUpdate => ProcedureName::ConfigurationUpdate,
        Procedure::AnRelease => ProcedureName::AnRelease,
        Procedure::PathSwitch => ProcedureName::PathSwitch,
        Procedure::Handover => ProcedureName::Handover,
        Procedure::PduSessionEstablishment => ProcedureName::PduSessionEstablishment,
        Procedure::PduSessionModificationByUe => ProcedureName::PduSessionModificationByUe,
        Procedure::PduSessionModificationByNetwork => ProcedureName::PduSessionModificationByNetwork,
        Procedure::PduSessionModifyIndication => ProcedureName::PduSessionModifyIndication,
        Procedure::PduSessionReleaseByUe => ProcedureName::PduSessionReleaseByUe,
        Procedure::PduSessionReleaseByNetwork => ProcedureName::PduSessionReleaseByNetwork,
        Procedure::UpConnectionActivation | Procedure::PduSessionResourceSetup => {
            ProcedureName::UpConnectionActivation
        }
        Procedure::UpConnectionDeactivation => ProcedureName::UpConnectionDeactivation,
        Procedure::SessionRestoration => ProcedureName::SessionRestoration,
        Procedure::ChargingUpdate => ProcedureName::ChargingUpdate,
        Procedure::PolicyUpdate => ProcedureName::PolicyUpdate,
        Procedure::SmContextUpdate => ProcedureName::SmContextUpdate,
    }
}

fn drop_reason(why: MessageDropReason) -> NasDropReason {
    match why {
        MessageDropReason::NotNas => NasDropReason::NotNas,
        MessageDropReason::Integrity => NasDropReason::Integrity,
        MessageDropReason::Unprotected => NasDropReason::Unprotected,
        MessageDropReason::OutOfState => NasDropReason::OutOfState,
        MessageDropReason::Duplicate => NasDropReason::Duplicate,
        MessageDropReason::UnservedPayload => NasDropReason::Unserved,
        MessageDropReason::Late => NasDropReason::Late,
    }
}

fn session_word(change: SessionChange) -> &'static str {
    match change {
        SessionChange::Established => "established",
        SessionChange::Deactivated => "deactivated",
        SessionChange::Activated => "activated",
        SessionChange::Released => "released",
    }
}

fn deregistered_word(why: DeregistrationReason) -> &'static str {
    match why {
        DeregistrationReason::Superseded => "the subscriber registered again, here or at another AMF",
        DeregistrationReason::Implicitly => "it did not come back in time",
        DeregistrationReason::ByOperator => "the operator requested it",
        DeregistrationReason::BySubscription => "its subscription no longer allows it",
        DeregistrationReason::GrantExpired => "its broker's grant is no longer valid",
        DeregistrationReason::CreditUsedUp => "the credit of its broker's grant is used up",
        DeregistrationReason::StateLost => "its state was lost with its CPFs: it has to register again",
        DeregistrationReason::Fault => {
            "the core failed on one of its messages (a fault of the program; please report it)"
        }
    }
}

/// The sentence about a UPF, after its name.
fn upf_sentence(change: UpfChange, others: bool) -> (Level, &'static str) {
    match change {
        UpfChange::Unanswered => (
            Level::Error,
            "has not answered on N4, so it gets no session: look whether it runs, at its address in `upfs`, and at its log",
        ),
        UpfChange::Up => (Level::Info, "answers"),
        UpfChange::Back => (Level::Info, "answers again, and its sessions are kept"),
        UpfChange::Unfit => (
            Level::Error,
            "does not choose tunnels and addresses (features FTUP, UEIP), so it gets no session: have it do so, or take another",
        ),
        UpfChange::PoolTaken { .. } => (
            Level::Error,
            "so it gets no session: give it other pools (`data_networks` in its file), and start it again",
        ),
        UpfChange::Silent if others => {
            (Level::Warn, "does not answer: new sessions go to other UPFs, its own are kept for a while")
        }
        UpfChange::Silent | UpfChange::Lost if !others => {
            (Level::Error, "does not answer on N4, so no session can be had: look at its log, or restart it")
        }
        UpfChange::Silent | UpfChange::Lost => {
            (Level::Error, "has lost its sessions: connected UEs are asked to establish them again")
        }
        UpfChange::Leaving => (
            Level::Info,
            "requests its release: its sessions are moved, or connected UEs are asked to establish them again",
        ),
        UpfChange::Released => (Level::Info, "was released"),
        UpfChange::Restarted => {
            (Level::Warn, "has restarted without its sessions: they are restored as soon as it is connected")
        }
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).chain(['.']).collect()
}

/// What happens at a bound, as docs/limits.md has it.
fn beyond(limit: &str) -> String {
    match limit {
        "log" => "the log of a UE is full: until its replicas have caught up, it would have to register again if its CPF were lost".into(),
        "logs" => "the logs of all UEs exceed `cluster.log_mib`: until their replicas have caught up, UEs would have to register again if \
                   their CPF were lost"
            .into(),
        _ => format!("the limit `{limit}` is reached: what exceeds it is dropped"),
    }
}

#[cfg(test)]
mod lines;

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a counter after these events, and the texts in `/events`.
    fn observed(events: &[(u64, RanEvent)], counter: Metric) -> (u64, Vec<String>) {
        let console = Console::new(Instant::ZERO).unwrap();
        let config = Arc::new(crate::config::default().control());
        let mut observer = Observer::new(console.clone(), config, false);
        for association in [1, 2] {
            observer.association_up(AssociationId(association), &format!("192.0.2.{association}"));
        }
        for (seconds, event) in events {
            observer.ran(Instant::ZERO + std::time::Duration::from_secs(*seconds), event);
        }
        let shown = console.events(|e| e.since(0, usize::MAX));
        (
            console.metrics.value(counter),
            shown.into_iter().map(|e| format!("{} {}", e.subject, e.text)).collect(),
        )
    }

    #[test] // docs/n2.md: `why` of the identity, or of either address, names both gNBs and what to do
    fn two_gnbs_of_one_identity_are_named_by_both_addresses() {
        let console = Console::new(Instant::ZERO).unwrap();
        let config = Arc::new(crate::config::default().control());
        let mut observer = Observer::new(console.clone(), config, false);
        let [first, second] = [1, 2].map(AssociationId);
        observer.association_up(first, "192.0.2.1:38412");
        observer.association_up(second, "192.0.2.2:38412");
        let gnb = GlobalGnbId::new(whimbrel_ids::PlmnId::TEST, 7, 28).unwrap();
        let up = |association| RanEvent::Up { association, gnb, name: None };
        let contested = RanEvent::IdentityContested { gnb, holder: second, other: first };
        let refused = |association| RanEvent::SetupRefused {
            association,
            gnb: Some(gnb),
            why: SetupRefusal::IdentityInUse { holder: second },
        };
        for event in [
            up(first),
            up(second),
            RanEvent::SameIdentity { association: second, former: first, gnb },
            RanEvent::Down { association: first, gnb: Some(gnb) },
            contested,
            RanEvent::Down { association: first, gnb: None },
        ] {
            observer.ran(Instant::ZERO, &event);
        }
        // It connects again, and is refused each time.
        let third = AssociationId(3);
        observer.association_up(third, "192.0.2.1:40000");
        (0..5).for_each(|_| observer.ran(Instant::ZERO, &refused(third)));
        let id = format!("gnb-{gnb}");
        for subject in [&id, "gnb-at-192.0.2.1:38412", "gnb-at-192.0.2.2:38412", "gnb-at-192.0.2.1:40000"] {
            let address = subject.strip_prefix("gnb-at-").and_then(|a| a.split(':').next());
            let sentence = console.histories(|h| {
                let name = address.map_or_else(|| Some(Name::Gnb(id.as_str().into())), |a| h.find(a));
                let refusal = h.of(&name?)?.refusals().next()?.refusal()?;
                Some(refusal.sentence())
            });
            let sentence = sentence.unwrap_or_default();
            assert!(
                sentence.contains("192.0.2.1:") && sentence.contains("192.0.2.2:38412"),
                "{subject}: {sentence}"
            );
            assert!(
                sentence.contains("fix: change the gNB ID of the gNB at 192.0.2.2:38412 or of"),
                "{sentence}"
            );
        }
        let counted = |c| console.metrics.value(c);
        assert_eq!([Metric::NgSetupTakeovers, Metric::NgSetupIdentityConflicts].map(counted), [1, 1]);
        let events: Vec<String> =
            console.events(|e| e.since(0, usize::MAX)).into_iter().map(|e| e.text).collect();
        assert!(!events.iter().any(|e| e.contains("unknown address")), "{events:?}");
    }

    #[test] // TS 38.413 §9.3.1.6
    fn two_gnbs_of_one_name_are_reported() {
        let console = Console::new(Instant::ZERO).unwrap();
        let config = Arc::new(crate::config::default().control());
        let mut observer = Observer::new(console.clone(), config, false);
        for (n, bits) in [(1, 32), (2, 22), (3, 22)] {
            observer.association_up(AssociationId(n), &format!("192.0.2.{n}:38412"));
            let gnb = GlobalGnbId::new(whimbrel_ids::PlmnId::TEST, if n == 3 { 8 } else { 7 }, bits).unwrap();
            observer.ran(Instant::ZERO, &RanEvent::Up { association: AssociationId(n), gnb, name: None });
        }
        let events = console.events(|e| e.since(0, usize::MAX));
        let texts: Vec<&str> = events.iter().filter(|e| e.kind == "gnb.identity").map(|e| &*e.text).collect();
        assert_eq!(
            texts,
            [
                "Two gNBs have identities of the value 7, that at 192.0.2.2:38412 with 22 bits and that at 192.0.2.1:38412 with 32: lists \
              and commands name both gnb-999/70-7; give one of them another value."
            ]
        );
    }

    #[test] // docs/robustness.md: a gNB that names other gNBs' UEs
    fn faults_of_a_gnbs_messages_are_logged_once_and_counted() {
        let refused = |association| RanEvent::Refused {
            association: AssociationId(association),
            what: "an AMF UE NGAP ID of a UE that was never there".into(),
        };
        let error = || RanEvent::ErrorIndication { association: AssociationId(1), cause: "some".into() };
        let mut events: Vec<(u64, RanEvent)> = (0..500).map(|n| (n / 100, refused(1))).collect();
        events.extend([(5, refused(2)), (5, error()), (6, error()), (3599, refused(1)), (3600, refused(1))]);
        let (counted, texts) = observed(&events, Metric::NgapRefused);
        assert_eq!(counted, 503);
        let subjects: Vec<&str> = texts.iter().map(|t| t.split(' ').next().unwrap()).collect();
        assert_eq!(
            subjects,
            ["gnb-at-192.0.2.1", "gnb-at-192.0.2.2", "gnb-at-192.0.2.1", "gnb-at-192.0.2.1"],
            "each gNB and fault once an hour: {texts:?}"
        );
        let (counted, texts) = observed(&[(5, error()), (6, error())], Metric::NgapErrorIndications);
        assert_eq!((counted, texts.len()), (2, 1));
    }

    #[test] // docs/limits.md: the log is given up, and no message is dropped
    fn a_full_log_is_not_reported_as_dropped_messages() {
        let limited = |limit| RanEvent::Limited { association: None, limit };
        let events = [(1, limited("log")), (1, limited("logs")), (1, limited("ues"))];
        let (_, texts) = observed(&events, Metric::NgapRefused);
        assert!(texts[0].contains("the log of a UE") && !texts[0].contains("dropped"), "{texts:?}");
        assert!(texts[1].contains("`cluster.log_mib`") && !texts[1].contains("dropped"), "{texts:?}");
        assert!(texts[2].contains("`ues`") && texts[2].contains("dropped"), "{texts:?}");
    }

    #[test]
    fn a_procedure_of_one_message_takes_as_long_as_the_core_works_on_it() {
        let console = Console::new(Instant::ZERO).unwrap();
        let config = Arc::new(crate::config::default().control());
        let mut observer = Observer::new(console.clone(), config, false);
        observer.turned(Duration::from_micros(300));
        let gnb = GlobalGnbId::new(whimbrel_ids::PlmnId::TEST, 1, 28).unwrap();
        observer.ran(Instant::ZERO, &RanEvent::Up { association: AssociationId(1), gnb, name: None });
        let (procedure, took) = (Procedure::Registration, Duration::from_micros(700));
        let event = Event::Completed { procedure, subject: UeIdentities::default(), took };
        let ue = UeId { slot: 1, generation: 1 };
        observer.ue(Instant::ZERO, &UeEvent { ue, on: None, event });
        let p50_us = |name| console.metrics.since_start(name).p50_us;
        // The histograms distinguish two digits.
        assert!((298..=303).contains(&p50_us(ProcedureName::NgSetup)));
        assert!((990..=1010).contains(&p50_us(ProcedureName::Registration)));
    }

    fn answered_by_default(procedure: Procedure, refusal: &Refusal) -> String {
        answer(&crate::config::default().control(), procedure, refusal)
    }

    #[test] // TS 24.501 §5.4.1.3.5, §5.4.1.3.7
    fn a_ue_that_fails_authentication_gets_no_cause() {
        for refusal in [Refusal::WrongResponse, Refusal::MacFailure, Refusal::SynchFailure] {
            assert_eq!(answered_by_default(Procedure::Registration, &refusal), "AUTHENTICATION REJECT");
        }
    }

    #[test] // TS 24.501 §5.4.5.2.5: the AMF returns what it cannot forward with a 5GMM cause
    fn a_data_network_that_the_amf_refuses_is_answered_by_the_amf() {
        let dnn = || "nowhere".parse().unwrap();
        let by = |refusal| answered_by_default(Procedure::PduSessionEstablishment, &refusal);
        let got = by(Refusal::DnnNotConfigured(dnn()));
        assert!(got.starts_with("DL NAS TRANSPORT with 5GMM cause #91 "), "{got}");
        let got = by(Refusal::PoolEmpty(dnn()));
        assert!(got.starts_with("PDU SESSION ESTABLISHMENT REJECT with 5GSM cause #26 "), "{got}");
        let got = by(Refusal::Congested("dnns"));
        assert!(got.starts_with("DL NAS TRANSPORT with 5GMM cause #22 "), "{got}");
    }

    #[test]
    fn algorithms_have_the_names_of_the_configuration() {
        let config = crate::config::default().control();
        assert_eq!(algorithms(&config.amf.integrity), "NIA2, NIA1, NIA3");
    }
}
