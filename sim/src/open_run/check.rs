//! What must hold after each event, whatever fails.

use std::collections::BTreeSet;
use std::time::Duration;

use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Event as CoreEvent, Procedure};
use whimbrel_ids::{Instant, Supi};
use whimbrel_nas::ie::RegistrationKind;
use whimbrel_open::msg::{Grant, RefusalCause};
use whimbrel_ran::ue::{Event, MmState, SuciSource};

use super::brokers::OperatorIndex;
use super::{AcceptedRegistration, ForwardedTraffic, OpenRun};
use crate::agree::served_as;

/// What UPFs have forwarded and need not have reported yet, in octets: the least volume after which a report is due.
const UNREPORTED_MAX: u64 = 64 << 10;
/// From a UPF's report until the session has ended at the UPF, with a takeover between.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// What UPFs forwarded under a grant is within its credit, but for what they have not reported yet and what was under way meanwhile.
pub(super) fn budget(grant: &Grant, forwarded: &mut ForwardedTraffic, now: Instant) {
    while forwarded.bursts.front().is_some_and(|(at, _)| now.since(*at) > ENDED_WITHIN) {
        forwarded.bursts.pop_front();
    }
    let recently: u64 = forwarded.bursts.iter().map(|(_, octets)| octets).sum();
    let reported = forwarded.octets.saturating_sub(recently).saturating_sub(UNREPORTED_MAX);
    assert!(
        recently == 0 || grant.terms.price.cost_micros(0, reported) <= grant.credit_micros,
        "no grant is used twice: {} octets were forwarded for a credit of {}",
        forwarded.octets,
        grant.credit_micros
    );
}

impl OpenRun {
    /// Takes what an operator's processes and UEs have reported and sent, and checks what must hold there.
    pub(super) fn observe(&mut self, at: OperatorIndex) {
        let net = &mut self.operators[at].net;
        for (from, broker, octets) in net.sap_questions() {
            self.market.ask(self.now, at, from, &broker, &octets);
        }
        net.events.ran.clear();
        net.events.gnbs.clear();
        for (_, event) in std::mem::take(&mut net.events.ues) {
            self.operators[at].net.trace(|| format!("core: {event:?}"));
            match event.event {
                CoreEvent::Deregistered { subject, why } => self.deregistered(at, subject.supi, why),
                CoreEvent::Refused { procedure: Procedure::Registration, subject, .. } => {
                    self.ended(at, |accepted| Some(accepted.supi) == subject.supi);
                }
                _ => {}
            }
        }
        (0..self.subscribers.len())
            .filter(|&n| self.subscribers[n].at == at)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|n| self.ue_events(n));
        let net = &self.operators[at].net;
        // A planted fault in states makes backups late.
        assert!(
            self.planted.is_some() || net.lost_ues().unexplained == 0,
            "UEs registered again although a replica had their state"
        );
        if net.region_rests() && net.pair_rests() {
            self.counts.checks += 1;
            self.check_grants(at);
            self.check_written(at);
        }
    }

    fn deregistered(&mut self, at: OperatorIndex, supi: Option<Supi>, why: DeregistrationReason) {
        assert_ne!(why, DeregistrationReason::Fault, "no UE's machine panics");
        let over = matches!(why, DeregistrationReason::GrantExpired | DeregistrationReason::CreditUsedUp);
        self.counts.grants_over += u64::from(over);
        match why {
            // One that is registered in another context is still registered.
            DeregistrationReason::Superseded => {}
            // It is not known any more which UE it was: it is counted, and must be explained.
            DeregistrationReason::StateLost => {
                let known: BTreeSet<Supi> =
                    self.operators[at].net.contexts().filter_map(|c| c.amf.supi).collect();
                self.ended(at, |accepted| !known.contains(&accepted.supi));
            }
            _ => self.ended(at, |accepted| Some(accepted.supi) == supi),
        }
    }

    /// An operator has ended registrations.
    fn ended(&mut self, at: OperatorIndex, which: impl Fn(&AcceptedRegistration) -> bool) {
        let accepted = self.subscribers.iter_mut().filter(|s| s.at == at).filter_map(|s| s.accepted.as_mut());
        accepted.filter(|accepted| which(accepted)).for_each(|accepted| accepted.ended = true);
    }

    fn ue_events(&mut self, n: usize) {
        let (at, ue) = (self.subscribers[n].at, self.ue(n));
        let net = &mut self.operators[at].net;
        for (_, event) in std::mem::take(&mut net.ran.ues[ue.0].events) {
            net.trace(|| format!("UE {n}: {event:?}"));
            let context = net.ue_ref(ue);
            let counter = match &context.config().suci {
                SuciSource::Sap(card) => card.sim.counter,
                _ => 0,
            };
            let subscriber = &mut self.subscribers[n];
            match event {
                Event::Registered { kind, .. } => {
                    self.counts.registrations += 1;
                    let again = kind != RegistrationKind::Initial
                        || subscriber.refused.is_none_or(|(refused, _)| counter > refused);
                    assert!(
                        again,
                        "a signed refusal is final: UE {n} is served on a request that was refused, {:?}",
                        subscriber.refused
                    );
                    subscriber.accepted =
                        served_as(context).map(|supi| AcceptedRegistration { supi, ended: false });
                }
                Event::BrokerRefused(Some(cause)) => {
                    self.counts.refused_ues += 1;
                    // A UE that has learnt another key has asked again already.
                    if cause != RefusalCause::UnknownKey {
                        subscriber.refused = Some((counter, cause));
                    }
                }
                _ => {}
            }
        }
    }

    /// No session without a grant, no grant used twice.
    fn check_grants(&self, at: OperatorIndex) {
        let operator = &self.operators[at];
        let mut used = BTreeSet::new();
        for context in operator.net.contexts().filter(|c| c.amf.registered || !c.sessions.is_empty()) {
            let (id, Some(held)) = (context.id, &context.grant) else {
                panic!("no session without a grant: {:?} has none", context.id)
            };
            let grant = &held.grant.grant;
            assert_eq!(
                self.market.granted(grant),
                Some(grant),
                "read your writes: the broker does not have the grant of {id:?}"
            );
            assert_eq!(grant.operator, operator.id, "no grant is used twice: {id:?} has another operator's");
            let named = context.amf.supi.is_some_and(|s| s.value() == grant.supi());
            assert!(named || grant.is_of_ordinary_ue(), "no grant is used twice: {id:?} has another UE's");
            assert!(used.insert(grant.pseudonym), "no grant is used twice: {id:?} and another UE have it");
        }
    }

    /// Read your writes: what REGISTRATION ACCEPT says to a UE is so at the operator and at the broker.
    fn check_written(&self, at: OperatorIndex) {
        let net = &self.operators[at].net;
        for (n, subscriber) in self.subscribers.iter().enumerate().filter(|(_, s)| s.at == at) {
            let ue = net.ue_ref(self.ue(n));
            let Some(accepted) = subscriber.accepted.filter(|t| !t.ended) else { continue };
            if ue.state() != MmState::Registered {
                continue;
            }
            // A UE that has new keys, and awaits another REGISTRATION ACCEPT, has two names.
            let names = [Some(accepted.supi), served_as(ue)];
            let known = net.contexts().find(|c| c.amf.registered && names.contains(&c.amf.supi));
            let Some(known) = known else {
                panic!("read your writes: UE {n} has REGISTRATION ACCEPT, and the operator does not know it");
            };
            let Some(held) = &known.grant else { continue };
            if let Some(session) = ue.sap_session().filter(|_| known.amf.supi == served_as(ue)) {
                assert_eq!(session.grant, held.grant.grant, "read your writes: UE {n} has another grant");
            }
        }
    }
}
