//! Lives of UEs: they register, have a session, become idle, wake with uplink data or are paged, move by trips with and without
//! a connection, and register periodically.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai};
use whimbrel_nas::ie::{PduSessionType, RegistrationKind};
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::UeId;
use whimbrel_ran::cells::{Cells, GnbId, Input as RanInput, Output as RanOutput, UserPlane};
use whimbrel_ran::gnb::{self, GnbConfig, Via};
use whimbrel_ran::ue::{self, MmState, Profile, SessionRequest, UeCommand, UeConfig};
use whimbrel_user::{BurstPacket, DnIndex, Origin, Packet, PacketVerdict};

use super::figures::Activity;
use super::trips::{CELLS, Trips};
use super::{SitesPlan, SitesRun, homes};
use crate::{traffic, ue_config};

/// How long a UE is active after it has woken, at most; at least a second.
const ACTIVE: u64 = 10;
/// When an idle UE on a trip that still has a connection is looked at again.
const AGAIN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Off,
    /// Registers and sets up its session.
    Arriving,
    /// Has a connection, which is released next.
    Active,
    /// Awaits an answer, after which it is active.
    Waking,
    /// Awaits an answer, after which its trip with a connection begins.
    Departing,
    /// Is on a trip with a connection, or without one.
    Driving,
    Strolling,
    /// Registers in another area or periodically, after which it is active.
    Moving,
    /// Its connection is being released.
    Leaving,
    Resting,
}

/// A UE's place and what it does.
pub(super) struct UeLife {
    doing: Doing,
    /// Site and district of its copy of the city.
    site: u8,
    district: u16,
    cell: u16,
    trip: (u16, u16, u16),
    began: Instant,
    /// When it does the next thing: what it has wished before is void.
    due: Instant,
    /// The cell at which a handover has failed.
    missed: Option<GnbId>,
    pub(super) registrations: u8,
}

/// The gNB of a cell of a district.
fn gnb_of(plan: &SitesPlan, site: u8, district: u16, cell: u16) -> GnbId {
    let district = u32::from(site) * u32::from(plan.districts) + u32::from(district);
    GnbId((district * CELLS as u32 + u32::from(cell)) as u16)
}

/// The site whose homes a gNB is connected to, and its district there.
fn place_of(plan: &SitesPlan, trips: &Trips, gnb: GnbId) -> (u8, u16) {
    let (district, cell) = (gnb.0 / CELLS as u16, gnb.0 % CELLS as u16);
    let (site, district) = ((district / plan.districts) as u8, district % plan.districts);
    match trips.is_of_next_site(cell) {
        true => ((site + 1) % plan.sites, district),
        false => (site, district),
    }
}

pub(super) fn site_of(plan: &SitesPlan, trips: &Trips, gnb: GnbId) -> u8 {
    place_of(plan, trips, gnb).0
}

pub(super) fn gnb_address(gnb: GnbId) -> IpAddr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 16, 0, 1)) + u32::from(gnb.0)).into()
}

/// The gNBs, and the UEs in their first cells.
pub(super) fn ran(plan: &SitesPlan, trips: &Trips) -> (Cells, Vec<UeLife>) {
    let mut ran = Cells::new(UserPlane::Program, plan.seed);
    for gnb in (0..plan.gnbs()).map(|gnb| GnbId(gnb as u16)) {
        let (site, district) = place_of(plan, trips, gnb);
        let id = GlobalGnbId::new(PlmnId::TEST, u32::from(gnb.0) + 1, 28).expect("28 bits");
        let tac = homes::tac(plan, site, district);
        let config = GnbConfig::new(id, tac, vec![SNssai::sst(1)], gnb_address(gnb));
        let added = ran.add_gnb(config);
        assert_eq!(added, gnb, "gNBs are numbered in order");
        ran.select_among(gnb, plan.homes);
    }
    let profile = Arc::new(Profile::new(PlmnId::TEST, vec![SNssai::sst(1)]));
    let mut rng = crate::Rng::new(plan.seed ^ 0xce11);
    let lives = (0..plan.ues).map(|ue| {
        let copy = ue % (u32::from(plan.sites) * u32::from(plan.districts));
        let (site, district) =
            ((copy / u32::from(plan.districts)) as u8, (copy % u32::from(plan.districts)) as u16);
        let cell = trips.beginning(rng.draw());
        ran.add_ue(
            gnb_of(plan, site, district, cell),
            UeConfig { profile: profile.clone(), ..ue_config(ue) },
        );
        UeLife {
            doing: Doing::Off,
            site,
            district,
            cell,
            trip: (0, 0, 0),
            began: Instant::ZERO,
            due: Instant::ZERO,
            missed: None,
            registrations: 0,
        }
    });
    let lives = lives.collect();
    (ran, lives)
}

impl SitesRun {
    /// The wish of a UE is due.
    pub(super) fn act(&mut self, ue: u32) {
        if self.lives[ue as usize].due != self.now {
            return;
        }
        match self.lives[ue as usize].doing {
            Doing::Off => {
                self.lives[ue as usize].doing = Doing::Arriving;
                self.command(ue, Activity::Registration, UeCommand::Register);
            }
            Doing::Arriving => {
                let session =
                    SessionRequest { dnn: None, s_nssai: None, pdu_session_type: PduSessionType::Ipv4 };
                self.command(ue, Activity::SessionEstablishment, UeCommand::EstablishSession(session));
            }
            Doing::Active => self.release(ue, CauseRadioNetwork::UserInactivity),
            Doing::Driving if self.is_over => self.release(ue, CauseRadioNetwork::UserInactivity),
            Doing::Driving => self.hand_over(ue),
            Doing::Strolling => self.stroll(ue),
            Doing::Resting if !self.is_over => self.begin(ue),
            Doing::Resting | Doing::Waking | Doing::Departing | Doing::Moving | Doing::Leaving => {}
        }
    }

    fn is_connected(&self, ue: u32) -> bool {
        self.ran.ue(UeId(ue)).is_some_and(ue::Ue::is_connected)
    }

    pub(super) fn wish(&mut self, ue: u32, after: Duration) {
        let at = self.now + after;
        self.lives[ue as usize].due = at;
        self.wishes.push(Reverse((at, ue)));
    }

    /// Between a second and [`ACTIVE`].
    fn wish_while_active(&mut self, ue: u32) {
        let after = Duration::from_millis(1_000 + self.rng.below(ACTIVE * 1_000 - 1_000));
        self.wish(ue, after);
    }

    fn command(&mut self, ue: u32, cause: Activity, command: UeCommand) {
        self.lives[ue as usize].began = self.now;
        self.ran(cause, RanInput::Command(UeId(ue), command));
    }

    fn release(&mut self, ue: u32, cause: CauseRadioNetwork) {
        let life = &mut self.lives[ue as usize];
        (life.doing, life.began) = (Doing::Leaving, self.now);
        self.ran(Activity::AnRelease, RanInput::Release(UeId(ue), Cause::RadioNetwork(cause)));
    }

    /// A registration has left the UE with a connection, which its gNB finds unused.
    fn release_by_the_way(&mut self, ue: u32) {
        self.lives[ue as usize].began = self.now;
        let cause = Cause::RadioNetwork(CauseRadioNetwork::UserInactivity);
        self.ran(Activity::AnRelease, RanInput::Release(UeId(ue), cause));
    }

    /// UEs begin nothing more, and those that rest with a connection are released.
    pub(super) fn come_to_rest(&mut self) {
        self.is_over = true;
        for ue in 0..self.plan.ues {
            if matches!(self.lives[ue as usize].doing, Doing::Resting | Doing::Strolling | Doing::Driving) {
                self.wish(ue, AGAIN);
            }
        }
    }

    /// A UE that rests begins something.
    fn begin(&mut self, ue: u32) {
        match self.rng.below(100) {
            0..35 => {
                self.lives[ue as usize].doing = Doing::Waking;
                self.command(ue, Activity::ServiceRequest, UeCommand::ServiceRequest);
            }
            35..60 => self.downlink(ue),
            60..80 => {
                self.lives[ue as usize].doing = Doing::Departing;
                self.command(ue, Activity::ServiceRequest, UeCommand::ServiceRequest);
            }
            80..92 => {
                self.choose_trip(ue);
                self.lives[ue as usize].doing = Doing::Strolling;
                self.stroll(ue);
            }
            92..96 => {
                self.lives[ue as usize].doing = Doing::Moving;
                self.command(ue, Activity::PeriodicRegistration, UeCommand::PeriodicRegistration);
            }
            // It has slept through a way to the next district.
            _ => {
                let districts = self.plan.districts;
                let life = &mut self.lives[ue as usize];
                life.district = (life.district + 1) % districts;
                let gnb = gnb_of(&self.plan, life.site, life.district, life.cell);
                self.moves(ue, gnb);
            }
        }
    }

    /// A packet for an idle UE: it is paged.
    fn downlink(&mut self, ue: u32) {
        let address = self.ran.ue(UeId(ue)).and_then(|ue| ue.sessions().next()?.ipv4);
        let Some(address) = address else { return self.rests(ue) };
        let life = &mut self.lives[ue as usize];
        (life.doing, life.began) = (Doing::Waking, self.now);
        self.upf(Activity::Paging, homes::upf_of(address), |upf, now, _| {
            let packet = Packet::of(&traffic::udp(address, &[0; 64]));
            let origin = Origin::N6 { dn: DnIndex(0) };
            let mut slots = [BurstPacket { origin, packet, verdict: PacketVerdict::Pending }];
            upf.u.burst(now, &mut slots);
        });
    }

    fn rests(&mut self, ue: u32) {
        self.lives[ue as usize].doing = Doing::Resting;
        let pause = self.plan.pause.as_millis() as u64;
        let after = Duration::from_millis(pause / 4 + self.rng.below(pause * 3 / 2));
        self.wish(ue, after);
    }

    /// An idle UE is in another cell.
    fn camp(&mut self, ue: u32, to: GnbId) {
        let from = self.ran.gnb_of(UeId(ue)).unwrap_or(to);
        let cause = self.activity((from, to), Activity::MobilityWithinSite, Activity::MobilityBetweenSites);
        self.lives[ue as usize].began = self.now;
        self.ran(cause, RanInput::Camp(UeId(ue), to));
    }

    /// The same, after which it registers if that is another tracking area.
    fn moves(&mut self, ue: u32, to: GnbId) {
        let place = |gnb| place_of(&self.plan, &self.trips, gnb);
        match self.ran.gnb_of(UeId(ue)).is_some_and(|from| place(from) != place(to)) {
            true => self.lives[ue as usize].doing = Doing::Moving,
            false => self.rests(ue),
        }
        self.camp(ue, to);
    }

    fn activity(&self, (from, to): (GnbId, GnbId), within: Activity, between: Activity) -> Activity {
        let site = |gnb| site_of(&self.plan, &self.trips, gnb);
        if site(from) == site(to) { within } else { between }
    }

    fn choose_trip(&mut self, ue: u32) {
        let life = &self.lives[ue as usize];
        let cell = match self.trips.count_from(life.cell) {
            0 => self.trips.beginning(self.rng.draw()),
            _ => life.cell,
        };
        let nth = self.rng.below(self.trips.count_from(cell) as u64) as u16;
        self.lives[ue as usize].trip = (cell, nth, 0);
    }

    /// The cell of a UE's trip that comes next, and how long it is until then.
    fn next_cell(&mut self, ue: u32) -> Option<(u16, Duration)> {
        let life = &self.lives[ue as usize];
        let (from, nth, step) = life.trip;
        let trip = self.trips.trip(from, nth);
        let (at, _) = trip.get(usize::from(step))?;
        let (next, cell) = trip.get(usize::from(step) + 1)?;
        Some((*cell, Duration::from_secs((next - at).max(2))))
    }

    fn enter(&mut self, ue: u32, cell: u16) -> GnbId {
        let life = &mut self.lives[ue as usize];
        life.cell = cell;
        life.trip.2 += 1;
        gnb_of(&self.plan, life.site, life.district, cell)
    }

    /// The next step of a trip, or its end.
    fn drive_on(&mut self, ue: u32) {
        match self.next_cell(ue) {
            Some((_, after)) => self.wish(ue, after),
            None => {
                if self.lives[ue as usize].doing == Doing::Driving {
                    self.lives[ue as usize].doing = Doing::Active;
                    self.wish_while_active(ue);
                } else {
                    self.rests(ue);
                }
            }
        }
    }

    fn hand_over(&mut self, ue: u32) {
        let Some((cell, _)) = self.next_cell(ue) else { return self.drive_on(ue) };
        let (from, to) = (self.ran.gnb_of(UeId(ue)), self.enter(ue, cell));
        let Some(from) = from.filter(|from| *from != to) else { return self.drive_on(ue) };
        let cause = self.activity((from, to), Activity::HandoverWithinSite, Activity::HandoverBetweenSites);
        let via = if cause == Activity::HandoverWithinSite { Via::Xn } else { Via::N2 };
        self.lives[ue as usize].began = self.now;
        self.ran(cause, RanInput::HandOver(UeId(ue), to, via));
    }

    fn stroll(&mut self, ue: u32) {
        if self.is_connected(ue) {
            self.release_by_the_way(ue);
            return self.wish(ue, AGAIN);
        }
        if self.is_over {
            return self.rests(ue);
        }
        if let Some((cell, _)) = self.next_cell(ue) {
            let to = self.enter(ue, cell);
            self.camp(ue, to);
        }
        self.drive_on(ue);
    }

    /// Handles what has come of inputs of the emulated RAN.
    pub(super) fn handle_happened(&mut self) {
        while let Some((cause, output)) = self.happened.pop_front() {
            match output {
                RanOutput::AmfNgap { gnb, amf, stream, octets } => {
                    let site = usize::from(site_of(&self.plan, &self.trips, gnb));
                    let home = site * usize::from(self.plan.homes) + usize::from(amf.0);
                    self.send_to_home(cause, home, gnb, stream, octets);
                }
                RanOutput::Gnb(gnb, event) => self.gnb_event(cause, gnb, event),
                RanOutput::Ue(ue, event) => self.ue_event(cause, ue.0, event),
                _ => {}
            }
        }
    }

    fn gnb_event(&mut self, cause: Activity, gnb: GnbId, event: gnb::Event) {
        match event {
            gnb::Event::HandedOver { ue, via: Via::Xn, .. } => self.completed(cause, ue.0),
            gnb::Event::HandoverFailed { ue, cause: why, .. } => {
                self.figures.handovers_failed += 1;
                self.judge.notes(format_args!("a handover has failed ({cause:?}): {why:?}"));
                let life = &self.lives[ue.0 as usize];
                let to = gnb_of(&self.plan, life.site, life.district, life.cell);
                if life.doing == Doing::Driving {
                    self.lives[ue.0 as usize].missed = Some(to);
                    self.release(ue.0, CauseRadioNetwork::RadioConnectionWithUeLost);
                }
            }
            gnb::Event::Violation { ue, violation } => {
                self.figures.violations += 1;
                self.judge.notes(format_args!("gNB {}, {ue:?} ({cause:?}): {violation:?}", gnb.0));
            }
            gnb::Event::SetupFailed(_) | gnb::Event::SetupTimedOut | gnb::Event::Overload(true) => {
                self.judge.broken(format_args!("gNB {}: {event:?}", gnb.0));
            }
            _ => {}
        }
    }

    fn ue_event(&mut self, cause: Activity, ue: u32, event: ue::Event) {
        let at = ue as usize;
        let doing = self.lives[at].doing;
        match event {
            ue::Event::Registered { kind: RegistrationKind::Initial, .. } => {
                self.completed(cause, ue);
                self.lives[at].registrations = self.lives[at].registrations.saturating_add(1);
                if self.lives[at].registrations > 1 {
                    self.judge.broken(format_args!("UE {ue} has registered again, caused by {cause:?}"));
                }
                if doing == Doing::Arriving {
                    self.wish(ue, super::HOP);
                }
            }
            ue::Event::Registered { .. } => {
                if matches!(
                    cause,
                    Activity::PeriodicRegistration
                        | Activity::MobilityWithinSite
                        | Activity::MobilityBetweenSites
                ) {
                    self.completed(cause, ue);
                }
                if matches!(doing, Doing::Moving | Doing::Resting) {
                    self.lives[at].doing = Doing::Active;
                    self.wish_while_active(ue);
                }
            }
            ue::Event::SessionUp { session, .. } => {
                self.completed(cause, ue);
                if let Some(address) = session.ipv4
                    && let Some(other) = self.judge.address(address, ue)
                {
                    self.judge.broken(format_args!("UEs {ue} and {other} have the address {address}"));
                }
                self.lives[at].doing = Doing::Active;
                self.wish_while_active(ue);
            }
            ue::Event::ServiceAccepted { .. } => {
                self.completed(cause, ue);
                match doing {
                    Doing::Departing => {
                        self.choose_trip(ue);
                        self.lives[at].doing = Doing::Driving;
                        self.drive_on(ue);
                    }
                    _ => {
                        self.lives[at].doing = Doing::Active;
                        self.wish_while_active(ue);
                    }
                }
            }
            ue::Event::HandedOver { .. } => {
                // One within the site is complete when its path is switched.
                if cause == Activity::HandoverBetweenSites {
                    self.completed(cause, ue);
                }
                if doing == Doing::Driving {
                    self.drive_on(ue);
                }
            }
            ue::Event::Idle => match doing {
                Doing::Leaving => {
                    self.completed(cause, ue);
                    match self.lives[at].missed.take() {
                        Some(gnb) => self.moves(ue, gnb),
                        None => self.rests(ue),
                    }
                }
                // Released by the core: as its home is drained, for instance.
                Doing::Active | Doing::Driving | Doing::Departing | Doing::Waking => {
                    self.figures.released_by_core += 1;
                    self.rests(ue);
                }
                Doing::Strolling if cause == Activity::AnRelease => self.completed(cause, ue),
                Doing::Off | Doing::Arriving | Doing::Strolling | Doing::Moving | Doing::Resting => {}
            },
            ue::Event::SessionReleased { cause: why, .. } => {
                self.judge
                    .broken(format_args!("UE {ue} has lost its session ({why:?}), caused by {cause:?}"));
            }
            ue::Event::Deregistered { cause: why, .. } => {
                self.judge.broken(format_args!("UE {ue} was deregistered ({why:?}), caused by {cause:?}"));
            }
            ue::Event::Refused { procedure, reason, .. } => {
                self.judge.broken(format_args!("UE {ue}: {procedure} failed: {reason}, caused by {cause:?}"));
            }
            ue::Event::Violation(violation) => self.judge.broken(format_args!("UE {ue}: {violation}")),
            ue::Event::Discarded(why) => {
                self.figures.discarded += 1;
                self.judge
                    .notes(format_args!("UE {ue} has discarded a message: {why:?}, caused by {cause:?}"));
            }
            _ => {}
        }
    }

    fn completed(&mut self, cause: Activity, ue: u32) {
        let took = self.now.since(self.lives[ue as usize].began);
        self.figures.completed(cause, took);
    }

    /// Promises that must hold in the end. Returns the broken ones.
    pub fn verdict(&mut self) -> Vec<String> {
        let mut sessions = 0;
        for ue in 0..self.plan.ues {
            let Some(terminal) = self.ran.ue(UeId(ue)) else { continue };
            let held = terminal.sessions().count();
            sessions += held;
            let rests = terminal.state() == MmState::Registered && !terminal.is_connected() && held == 1;
            if !rests {
                let (state, connected, doing) =
                    (terminal.state(), terminal.is_connected(), self.lives[ue as usize].doing);
                self.judge.broken(format_args!(
                    "in the end UE {ue} is {state:?}, connected: {connected}, with {held} sessions ({doing:?})"
                ));
            }
        }
        let registered: usize = self.registered().iter().sum();
        if registered as u64 != u64::from(self.plan.ues) + self.plan.at_rest {
            self.judge.broken(format_args!("{registered} UEs are registered at all homes together"));
        }
        let at_upfs: usize = self.upfs.iter().map(|upf| upf.c.session_count()).sum();
        if at_upfs != sessions {
            self.judge.broken(format_args!("UPFs have {at_upfs} sessions, and UEs {sessions}"));
        }
        self.judge.lines()
    }
}
