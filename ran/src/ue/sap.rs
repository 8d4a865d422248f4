//! Attach by SAP and usage reports from the UE's side: CellBricks, chapters 3.4.1 and 3.4.3; the checks are those of
//! [`whimbrel_open::user`].

use whimbrel_ids::{Instant, Supi};
use whimbrel_nas::ie::{EapMessage, NaiFormat, Octets, PayloadContainer, PayloadContainerType, Suci};
use whimbrel_nas::mm::{SecurityModeCommand, UlNasTransport};
use whimbrel_open::carriage::{EapCode, EapExpanded, Scheme, SuciNai};
use whimbrel_open::crypto::Seed;
use whimbrel_open::id::OperatorId;
use whimbrel_open::msg::RefusalCause;
use whimbrel_open::usage::{Meter, ReportedBy};
use whimbrel_open::user::{TentativeSession, UserAttach, UserSession};
use whimbrel_security::{Abba, KSeaf, kdf};

use super::authentication::Partial;
use super::{Event, MmState, Output, SapCard, SuciSource, Ue, event};
use crate::outbox::Outbox;

/// Function code under which the entropy of attaches is drawn from the card's seed: one that TS 33.220 Annex B does not assign.
const FC_ATTACH: u8 = 0xf1;
/// The same for usage reports.
const FC_REPORT: u8 = 0xf2;

/// The running attach, and the session of the last one. Boxed, since few of many emulated UEs have a broker.
#[derive(Debug, Default)]
pub(super) struct Sap {
    attach: Option<Box<UserAttach>>,
    session: Option<Box<UserSession>>,
    /// What it counts of that session, and whether a PDU session is open.
    meter: Option<Box<Meter>>,
    metered: bool,
}

impl Ue {
    /// Whether it is a broker's UE.
    pub(super) fn is_sap(&self) -> bool {
        matches!(self.config.suci, SuciSource::Sap(_))
    }

    /// The broker's grant, once the network has proved that it has it.
    pub fn sap_session(&self) -> Option<&UserSession> {
        self.sap.session.as_deref()
    }

    /// A registration starts: an earlier request is discarded, since the network may be another one.
    pub(super) fn forget_sap(&mut self) {
        if self.is_sap() {
            (self.sap.attach, self.fresh_suci) = (None, None);
        }
    }

    /// authReqU for the network that the UE has selected, as a SUCI.
    pub(super) fn begin_sap(&mut self) -> Option<Suci> {
        let operator = OperatorId { plmn: self.config.profile.plmn, nid: None };
        let SuciSource::Sap(card) = &mut self.config.suci else { return None };
        let SapCard { sim, seed } = &mut **card;
        let next = sim.counter.wrapping_add(1);
        let seed = Seed::new(kdf(seed.octets(), FC_ATTACH, &[&next.to_be_bytes()]));
        let (attach, request) = UserAttach::begin(sim, operator, &seed)?;
        self.sap.attach = Some(Box::new(attach));
        let text = SuciNai::of_request(&request, Scheme::C).to_text();
        Some(Suci::Nai { format: NaiFormat::NetworkSpecific, nai: Octets::new(text.into_bytes())? })
    }

    /// The keys of the broker's answer, if SECURITY MODE COMMAND carries one: tentative until its MAC is verified.
    pub(super) fn tentative(
        &self,
        now: Instant,
        m: &SecurityModeCommand,
    ) -> Option<(TentativeSession, Partial)> {
        let attach = self.sap.attach.as_deref()?;
        let answer = sap_message(m.eap_message.as_ref()?)?;
        let session = attach.answer(answer.data(), now).ok()?;
        let grant = session.grant();
        let supi = Supi::from_nai(grant.pseudonym.0, grant.broker.as_str())?;
        let abba =
            m.abba.as_ref().and_then(|a| <[u8; 2]>::try_from(&**a).ok()).map_or(Abba::RELEASE_15, Abba);
        let k_amf = KSeaf::new(*session.k_seaf().octets()).k_amf(supi, abba);
        Some((session, Partial::of_key(m.ng_ksi, k_amf)))
    }

    /// The MAC verified: the network has K_SEAF from the broker.
    pub(super) fn commit_sap(&mut self, session: TentativeSession) {
        let (Some(attach), SuciSource::Sap(card)) = (self.sap.attach.take(), &mut self.config.suci) else {
            return;
        };
        self.sap.session = Some(Box::new(session.commit(*attach, &mut card.sim)));
        (self.sap.meter, self.sap.metered) = (None, false);
        self.fresh_suci = None;
    }

    /// Counts a packet of its PDU sessions (chapter 3.4.3).
    pub fn count_packet(&mut self, uplink: bool, octets: usize) {
        if let Some(meter) = &mut self.sap.meter {
            meter.count(uplink, 1, octets as u64);
        }
    }

    /// What it has counted of the session that its broker has granted: octets uplink and downlink.
    pub fn metered_octets(&self) -> Option<(u64, u64)> {
        self.sap.meter.as_ref().map(|m| m.octets())
    }

    /// Begins to count with the first PDU session, and reports when a cycle or the last session has ended.
    pub(super) fn meter_usage(&mut self, now: Instant, out: &mut Outbox<Output>) {
        let Some(session) = &self.sap.session else { return };
        let open = self.sessions().next().is_some();
        if open && self.sap.meter.is_none() {
            self.sap.meter = Some(Box::new(Meter::new(ReportedBy::User, &session.grant, now)));
        }
        let closes = self.sap.metered && !open;
        self.sap.metered = open;
        let due = open && self.sap.meter.as_ref().is_some_and(|m| m.cycle_ends().is_some_and(|at| at <= now));
        if due || closes {
            self.report_usage(now, !open, out);
        }
    }

    /// When a cycle ends of which it can report. An idle UE reports when it is connected again: totals lose nothing.
    pub(super) fn usage_deadline(&self) -> Option<Instant> {
        let meter = self.sap.meter.as_ref().filter(|_| self.sap.metered && self.can_report())?;
        meter.cycle_ends()
    }

    fn can_report(&self) -> bool {
        self.connected && self.secure && self.state == MmState::Registered
    }

    /// Sends a report to the broker, sealed, through the network that serves it: UL NAS TRANSPORT with what goes to the home.
    pub(super) fn report_usage(&mut self, now: Instant, closed: bool, out: &mut Outbox<Output>) {
        if !self.can_report() {
            return;
        }
        let (Some(meter), SuciSource::Sap(card)) = (&mut self.sap.meter, &self.config.suci) else { return };
        let report = meter.report(now, closed);
        let parts = [&card.sim.counter.to_be_bytes()[..], &report.cycle.to_be_bytes()];
        let seed = Seed::new(kdf(card.seed.octets(), FC_REPORT, &parts));
        let sealed = report.sign(&card.sim.signing).seal(&card.sim.epoch, &seed);
        let container = sealed.and_then(|s| PayloadContainer::new(s.to_octets()));
        if let Some(container) = container {
            self.send(UlNasTransport::new(PayloadContainerType::SOR, container), out);
        }
    }

    /// The broker's signed refusal in REGISTRATION REJECT, if it verifies. If the broker has a new key, it is asked again
    /// under that.
    pub(super) fn sap_refused(&mut self, eap: Option<&EapMessage>, out: &mut Outbox<Output>) {
        let Some(attach) = &self.sap.attach else { return };
        let refusal = eap.and_then(sap_message).and_then(|m| attach.refusal(m.data()).ok());
        let cause = refusal.as_ref().map(|r| r.cause);
        if let (Some(RefusalCause::UnknownKey), Some(key), SuciSource::Sap(card)) =
            (cause, refusal.and_then(|r| r.key), &mut self.config.suci)
        {
            card.sim.epoch = key;
            self.register_again = true;
        }
        self.forget_sap();
        event(Event::BrokerRefused(cause), out);
    }
}

fn sap_message(eap: &EapMessage) -> Option<EapExpanded> {
    EapExpanded::parse(eap).ok().filter(|m| m.code == EapCode::Request)
}
