//! Messages between the nodes, and the nodes' work.

use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{AssociationId, Event, Flat, Prf};
use whimbrel_ids::{Instant, Tmsi};
use whimbrel_ran::cells::{GnbId, Input as RanInput};
use whimbrel_ran::gnb::AmfInput;
use whimbrel_resilience::{CtaOrder, Input, Outbox, PEER_LOST_AFTER, PeerMessageOutcome};
use whimbrel_user::Upf;

use super::figures::{Activity, SiteLink};
use super::homes::SimHome;
use super::{HOP, STREAMS, SiteMessage, SitesFault, SitesRun};

/// The first SUPI of a UE at rest: behind those of all UEs that move.
const FIRST_AT_REST: u64 = 999_705_000_000_000;

impl SitesRun {
    /// A message is at its receiver.
    pub(super) fn arrives(&mut self, cause: Activity, message: SiteMessage) {
        match message {
            SiteMessage::ToHome { home, gnb, stream, octets } => {
                self.core(home, cause, Input::Ngap(association(gnb), stream, &octets));
            }
            SiteMessage::ToGnb { home, gnb, stream, octets } => {
                let amf = self.homes[home].amf_index();
                self.ran(cause, RanInput::Amf(gnb, amf, AmfInput::Ngap { stream, octets: &octets }));
            }
            SiteMessage::ToUpf { home, upf, octets } => {
                let from = self.homes[home].n4();
                self.upf(cause, usize::from(upf.0), |upf, now, out| upf.pfcp(now, from, &octets, out));
            }
            SiteMessage::FromUpf { home, upf, octets } => self.core(home, cause, Input::Pfcp(upf, &octets)),
            SiteMessage::N14 { from, to, octets, by_replica } => {
                self.n14_arrives(cause, (from, to), &octets, by_replica);
            }
        }
    }

    /// A message of a gNB to a home.
    pub(super) fn send_to_home(
        &mut self,
        cause: Activity,
        home: usize,
        gnb: GnbId,
        stream: u16,
        octets: Vec<u8>,
    ) {
        let size = octets.len();
        self.send(cause, SiteLink::N2, size, SiteMessage::ToHome { home, gnb, stream, octets });
    }

    fn send(&mut self, cause: Activity, link: SiteLink, octets: usize, message: SiteMessage) {
        self.figures.sent(cause, link, octets);
        self.messages.push_back((self.now + HOP, cause, message));
    }

    fn n14_arrives(&mut self, cause: Activity, (from, to): (usize, usize), octets: &[u8], by_replica: bool) {
        if !self.homes[to].is_there {
            return;
        }
        let peer = self.homes[to].peer(from);
        if by_replica {
            return self.core(to, cause, Input::PeerAmf(peer, octets));
        }
        let began = (self.meter.nanos)();
        let outcome = self.homes[to].replicas.receive(peer, octets);
        self.figures.spent(cause, (self.meter.nanos)().saturating_sub(began), false);
        match outcome {
            PeerMessageOutcome::Input => self.core(to, cause, Input::PeerAmf(peer, octets)),
            PeerMessageOutcome::Completed(whole) => {
                self.core(to, cause, Input::PeerAmf(peer, whole.octets()));
            }
            PeerMessageOutcome::Answer(answer) => self.put_n14(cause, (to, from), &answer),
            PeerMessageOutcome::Taken => {}
        }
    }

    /// A message of a home to another one. A lost home's replicas answer in its place.
    fn send_n14(&mut self, cause: Activity, (from, to): (usize, usize), message: Flat) {
        let peer = self.homes[from].peer(to);
        let lost = self.homes[to].lost_since.is_some_and(|since| self.now.since(since) >= PEER_LOST_AFTER);
        if lost && let Some(answer) = self.homes[from].replicas.answer_in_place_of(peer, &message) {
            let octets = answer.octets().to_vec();
            let message = SiteMessage::N14 { from: to, to: from, octets, by_replica: true };
            return self.messages.push_back((self.now + HOP, cause, message));
        }
        let began = (self.meter.nanos)();
        let message = self.homes[from].replicas.send(peer, message);
        self.figures.spent(cause, (self.meter.nanos)().saturating_sub(began), false);
        self.put_n14(cause, (from, to), &message);
    }

    fn put_n14(&mut self, cause: Activity, (from, to): (usize, usize), message: &Flat) {
        let link = match self.homes[from].site == self.homes[to].site {
            true => SiteLink::N14WithinSite,
            false => SiteLink::N14BetweenSites,
        };
        let octets = message.octets().to_vec();
        self.send(cause, link, octets.len(), SiteMessage::N14 { from, to, octets, by_replica: false });
    }

    /// An input of a home.
    pub(super) fn core(&mut self, home: usize, cause: Activity, input: Input<'_>) {
        let scans = self.plan.fault == Some(SitesFault::Scan);
        self.does(home, cause, true, |home, now, out| {
            home.cta.handle(now, input, out);
            if scans {
                let found = |n| home.cta.find_tmsi(Tmsi(n)).is_some();
                std::hint::black_box((0..home.cta.registered() as u32).filter(|n| found(*n)).count());
            }
        });
    }

    /// A home does something, and its outputs leave. `is_input`: it is an input of the CTA.
    pub(super) fn does(
        &mut self,
        at: usize,
        cause: Activity,
        is_input: bool,
        does: impl FnOnce(&mut SimHome, Instant, &mut Outbox),
    ) {
        let home = &mut self.homes[at];
        if !home.is_there {
            return;
        }
        let (nanos, mut out) = (self.meter.nanos, Outbox::default());
        let began = nanos();
        does(home, self.now, &mut out);
        let mut replicas = Vec::new();
        out.stored.iter().for_each(|stored| home.replicas.changed(stored, &mut replicas));
        self.figures.spent(cause, nanos().saturating_sub(began), is_input);
        for (to, message) in replicas {
            let to = self.homes[at].home_of(to);
            if self.homes[to].is_there {
                self.put_n14(Activity::Replication, (at, to), &message);
            }
        }
        self.leave(at, cause, out);
    }

    fn leave(&mut self, home: usize, cause: Activity, out: Outbox) {
        for (association, stream, octets) in out.ngap {
            let (gnb, size) = (GnbId(association.0 as u16), octets.len());
            self.send(cause, SiteLink::N2, size, SiteMessage::ToGnb { home, gnb, stream, octets });
        }
        for (upf, octets) in out.pfcp {
            let size = octets.len();
            self.send(cause, SiteLink::N4, size, SiteMessage::ToUpf { home, upf, octets });
        }
        for (to, message) in out.n14 {
            let to = self.homes[home].home_of(to);
            self.send_n14(cause, (home, to), message);
        }
        for event in out.events {
            // UEs report what they notice of it.
            match event.event {
                Event::Deregistered { why: DeregistrationReason::Superseded, .. } => {
                    self.figures.superseded += 1
                }
                Event::Deregistered { why, .. } => {
                    self.judge.notes(format_args!("home {home} has deregistered a UE: {why:?}"));
                }
                _ => {}
            }
        }
        for (_, why) in out.n14_errors {
            self.figures.n14_errors += 1;
            self.judge
                .notes(format_args!("home {home} has rejected a message of another one ({cause:?}): {why}"));
        }
        for association in out.abort {
            self.judge.broken(format_args!("home {home} has aborted the association of {association:?}"));
        }
        for association in out.probes {
            self.core(home, cause, Input::AssociationAnswered(association));
        }
    }

    /// A UPF does something, and its outputs leave.
    pub(super) fn upf(
        &mut self,
        cause: Activity,
        at: usize,
        does: impl FnOnce(&mut Upf, Instant, &mut whimbrel_user::Outbox),
    ) {
        let mut out = whimbrel_user::Outbox::default();
        let upf = &mut self.upfs[at];
        does(upf, self.now, &mut out);
        upf.settle(self.now, &mut out);
        while let Some((_, packet)) = upf.u.next_output() {
            upf.u.recycle(packet);
        }
        for (to, octets) in out.datagrams {
            let Some(&home) = self.by_smf.get(&to) else { continue };
            let (upf, size) = (whimbrel_control::UpfId(at as u8), octets.len());
            self.send(cause, SiteLink::N4, size, SiteMessage::FromUpf { home, upf, octets });
        }
    }

    /// An input of the emulated gNBs and UEs. What comes of it is handled later, in order.
    pub(super) fn ran(&mut self, cause: Activity, input: RanInput<'_>) {
        self.ran.handle(self.now, input, &mut self.ran_out);
        self.happened.extend(self.ran_out.drain().map(|output| (cause, output)));
    }

    /// UEs beside those that move: registered, idle and at rest, each like one that has registered.
    pub(super) fn add_ues_at_rest(&mut self) {
        let (prf, of) = (Prf::new(&[0x0e; 16]), self.homes.len() as u64);
        for (at, home) in (0..).zip(&mut self.homes) {
            let idle =
                home.cta.contexts().find(|ue| ue.is_idle() && !ue.is_connected() && !ue.sessions.is_empty());
            let Some(like) = idle.cloned() else {
                self.judge.broken(format_args!("home {at} has no idle UE like which others could be added"));
                continue;
            };
            for n in (at..self.plan.at_rest).step_by(of as usize) {
                let supi = (FIRST_AT_REST + n).to_string().parse().expect("fifteen digits");
                let added = home.cta.add_idle_ue(self.now, |id, tmsi| like.another(id, n, supi, tmsi, &prf));
                assert!(added, "the limit of UEs is that of slots");
            }
        }
    }

    // Homes come and go.

    /// The gNBs of its site are connected to a home, which is linked with the others.
    pub(super) fn connect(&mut self, at: usize) {
        self.homes[at].is_there = true;
        self.homes[at].lost_since = None;
        self.core(at, Activity::Setup, Input::Tick);
        let (site, amf) = (self.homes[at].site, self.homes[at].amf_index());
        for gnb in (0..self.plan.gnbs()).map(|gnb| GnbId(gnb as u16)) {
            if super::lives::site_of(&self.plan, &self.trips, gnb) == site {
                let addresses = vec![super::lives::gnb_address(gnb)];
                let association = association(gnb);
                let up = Input::AssociationUp { association, outbound_streams: STREAMS, addresses };
                self.core(at, Activity::Setup, up);
                self.ran(Activity::Setup, RanInput::Amf(gnb, amf, AmfInput::Up(STREAMS)));
            }
        }
        let smf = |home: &SimHome| home.n4().ip();
        for other in 0..self.homes.len() {
            if other != at && self.homes[other].is_there {
                let (here, there) = (smf(&self.homes[at]), smf(&self.homes[other]));
                let (peer_there, peer_here) = (self.homes[at].peer(other), self.homes[other].peer(at));
                self.homes[at].replicas.connected(peer_there, there);
                self.homes[other].replicas.connected(peer_here, here);
                self.homes[other].replicates_all |= self.homes[other].partner == at;
            }
        }
    }

    /// `whimbrel drain`: another home of the set takes the UEs over.
    pub(super) fn drain(&mut self, at: usize) {
        let to = self.homes[at].peer(at - 1);
        self.figures.drained = self.homes[at].cta.registered() as u64;
        self.does(at, Activity::Removal, false, |home, now, out| {
            home.cta.order(now, CtaOrder::Remove(Some(to)), out);
        });
    }

    /// A home ends.
    pub(super) fn remove(&mut self, at: usize) {
        let left = self.homes[at].cta.occupancy().0;
        if left > 0 {
            self.judge.broken(format_args!("{left} UEs are left at home {at}, which is removed"));
        }
        self.down(at);
        self.homes[at] = super::homes::home(&self.plan, at);
    }

    /// A home restarts without its UEs: it is planted.
    pub(super) fn forget(&mut self, at: usize) {
        self.down(at);
        self.homes[at] = super::homes::home(&self.plan, at);
        self.connect(at);
    }

    fn down(&mut self, at: usize) {
        let amf = self.homes[at].amf_index();
        let site = self.homes[at].site;
        for gnb in (0..self.plan.gnbs()).map(|gnb| GnbId(gnb as u16)) {
            if super::lives::site_of(&self.plan, &self.trips, gnb) == site {
                self.ran(Activity::Setup, RanInput::Amf(gnb, amf, AmfInput::Down));
            }
        }
        self.homes[at].is_there = false;
        self.homes[at].lost_since = Some(self.now);
    }
}

/// The association of a gNB has the gNB's number at each home.
fn association(gnb: GnbId) -> AssociationId {
    AssociationId(gnb.0.into())
}
