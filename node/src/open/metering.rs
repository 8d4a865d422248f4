//! What this operator measures of the sessions of brokers' users (CellBricks, chapter 3.4.3), from what the UPFs report on N4.
//!
//! The SMF asks UPFs for a report in each cycle; each counts once. Sessions are found by the CP F-SEID, which names the UE. After a takeover by
//! another CTA the sessions that stand are not measured: their brokers have no report, and pay what was reported before.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use whimbrel_control::{Event, UeEvent, UeId};
use whimbrel_ids::{Instant, Seid};
use whimbrel_open::id::Domain;
use whimbrel_open::msg::SignedGrant;
use whimbrel_open::usage::{Direction, Meter, Report, ReportedBy, SealedReport};
use whimbrel_pfcp::ie::UrSeqn;
use whimbrel_pfcp::rule::UsageReport;
use whimbrel_pfcp::{Frame, Message, message_type};

/// A session that is closed is forgotten after this: what the UE or a UPF says later has come by then.
const KEPT: Duration = Duration::from_secs(60);

/// What a UPF says of a PDU session: whose, and which.
pub fn of_session(octets: &[u8]) -> Option<(UeId, Seid, Message)> {
    const OF_SESSIONS: [u8; 4] = [
        message_type::SESSION_ESTABLISHMENT_RESPONSE,
        message_type::SESSION_MODIFICATION_RESPONSE,
        message_type::SESSION_DELETION_RESPONSE,
        message_type::SESSION_REPORT_REQUEST,
    ];
    if !octets.get(1).is_some_and(|t| OF_SESSIONS.contains(t)) {
        return None;
    }
    let frame = Frame::parse(octets).ok()?;
    let seid = frame.header.seid?;
    let (ue, _) = UeId::from_seid(seid)?;
    Some((ue, seid, Message::parse(&frame).ok()?))
}

/// What the thread that speaks with brokers is to do.
pub(super) enum Measured {
    /// A broker has granted a session.
    Granted(Box<SignedGrant>),
    /// A cycle of a session has ended.
    Cycle(Box<Report>),
    /// A UE has sent a report for its broker.
    OfUser(Domain, Box<SealedReport>),
}

/// A session of a broker's user.
struct Guest {
    grant: Box<SignedGrant>,
    meter: Option<Meter>,
    /// PDU sessions that stand at UPFs, and the number of the last usage report of each.
    open: BTreeMap<Seid, Option<UrSeqn>>,
}

/// The sessions of brokers' users.
pub(super) struct Metering {
    guests: BTreeMap<UeId, Guest>,
    closed: VecDeque<(Instant, UeId)>,
    /// Per cent by which reports claim more than was measured: `open.overstate`.
    overstate: u32,
    pub(super) measured: Vec<Measured>,
}

impl Metering {
    pub(super) fn new(overstate: u32) -> Self {
        Self { guests: BTreeMap::new(), closed: VecDeque::new(), overstate, measured: Vec::new() }
    }

    /// Something happened to a UE.
    pub(super) fn event(&mut self, now: Instant, UeEvent { ue, event, .. }: &UeEvent) {
        match event {
            Event::Granted { grant, .. } => {
                let Ok(grant) = SignedGrant::parse(grant) else { return };
                self.forget(now);
                self.close(now, *ue);
                self.measured.push(Measured::Granted(Box::new(grant.clone())));
                let guest = Guest { grant: Box::new(grant), meter: None, open: BTreeMap::new() };
                self.guests.insert(*ue, guest);
            }
            Event::UsageReported { sealed, .. } => {
                let guest = self.guests.get(ue);
                if let Some((guest, sealed)) = guest.zip(SealedReport::parse(sealed).ok()) {
                    let broker = guest.grant.grant.broker.clone();
                    self.measured.push(Measured::OfUser(broker, Box::new(sealed)));
                }
            }
            _ => {}
        }
    }

    /// A message of a UPF.
    pub(super) fn pfcp(&mut self, now: Instant, octets: &[u8]) {
        if self.guests.is_empty() {
            return;
        }
        let Some((ue, seid, message)) = of_session(octets) else { return };
        if !self.guests.contains_key(&ue) {
            return;
        }
        match message {
            Message::SessionEstablishmentResponse(m) if m.up_f_seid.is_some() => self.opened(now, ue, seid),
            Message::SessionReportRequest(m) => {
                self.count(ue, seid, &m.usage_reports);
                self.end_cycle(now, ue);
            }
            Message::SessionModificationResponse(m) => self.count(ue, seid, &m.usage_reports),
            Message::SessionDeletionResponse(m) => {
                self.count(ue, seid, &m.usage_reports);
                let guest = self.guests.get_mut(&ue);
                if guest.is_some_and(|g| g.open.remove(&seid).is_some() && g.open.is_empty()) {
                    self.close(now, ue);
                }
            }
            _ => {}
        }
    }

    fn opened(&mut self, now: Instant, ue: UeId, seid: Seid) {
        let Some(guest) = self.guests.get_mut(&ue) else { return };
        guest.open.insert(seid, None);
        let grant = &guest.grant.grant;
        guest.meter.get_or_insert_with(|| Meter::new(ReportedBy::Operator, grant, now));
    }

    /// Adds the volumes of reports that were not here before (TS 29.244 §8.2.71).
    fn count(&mut self, ue: UeId, seid: Seid, reports: &[UsageReport]) {
        let Some(guest) = self.guests.get_mut(&ue) else { return };
        let (Some(last), Some(meter)) = (guest.open.get_mut(&seid), &mut guest.meter) else { return };
        for report in reports {
            let Some(volume) = &report.volume_measurement else { continue };
            let UrSeqn(number) = report.ur_seqn;
            let is_new =
                last.is_none_or(|UrSeqn(last)| (1..=u32::MAX / 2).contains(&number.wrapping_sub(last)));
            if is_new {
                *last = Some(report.ur_seqn);
                meter.count(true, volume.ul_packets.unwrap_or(0), volume.ul.unwrap_or(0));
                meter.count(false, volume.dl_packets.unwrap_or(0), volume.dl.unwrap_or(0));
            }
        }
    }

    fn end_cycle(&mut self, now: Instant, ue: UeId) {
        let meter = self.guests.get_mut(&ue).and_then(|g| g.meter.as_mut());
        if let Some(meter) = meter.filter(|m| m.is_due(now)) {
            let report = meter.report(now, false);
            self.report(report);
        }
    }

    /// The last PDU session of a UE has ended.
    fn close(&mut self, now: Instant, ue: UeId) {
        let Some(guest) = self.guests.get_mut(&ue) else { return };
        if let Some(meter) = &mut guest.meter {
            let report = meter.report(now, true);
            self.closed.push_back((now, ue));
            self.report(report);
        }
    }

    fn report(&mut self, mut report: Report) {
        let percent = u64::from(self.overstate);
        let more = |d: &mut Direction| d.octets = d.octets.saturating_add(d.octets / 100 * percent);
        more(&mut report.uplink);
        more(&mut report.downlink);
        self.measured.push(Measured::Cycle(Box::new(report)));
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, ue)) = self.closed.front().copied()
            && now.since(at) > KEPT
        {
            self.closed.pop_front();
            if self.guests.get(&ue).is_some_and(|g| g.open.is_empty()) {
                self.guests.remove(&ue);
            }
        }
    }
}
