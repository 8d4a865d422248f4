//! Invariants that are checked after every step at the cost of what changed, and counters.
//!
//! [`Observer`] stores what each UE has that no other UE may have, and checks it after each input of that UE.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr};

use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{Event, UeContext, UeEvent, UeId, UpfId};
use whimbrel_ids::{AmfUeNgapId, Dnn, Instant, Seid, Supi, Teid, Tmsi};

use crate::meter::WorkMeter;
use crate::{Sim, Work};

/// An identity or address that only one UE may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UniqueName {
    Tmsi(Tmsi),
    Ipv4(Dnn, Ipv4Addr),
    Ipv6(Dnn, Ipv6Addr),
    Connection(AmfUeNgapId),
    Registered(Supi),
    CpSeid(Seid),
    UpSeid(UpfId, Seid),
    Teid(UpfId, Teid),
}

/// What a UE had after its last input.
#[derive(Debug, Default)]
struct UeHoldings {
    own: Vec<UniqueName>,
    /// Octets of each session, uplink and downlink, by the SMF's name of it.
    usage: Vec<(Seid, (u64, u64))>,
}

/// Counts since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Procedures that ended well.
    pub completed: BTreeMap<String, u64>,
    /// Procedures that were refused or failed.
    pub refused: BTreeMap<String, u64>,
    /// Messages sent again because no answer came.
    pub repeated: u64,
    /// UEs that were deregistered without their asking.
    pub deregistered: u64,
    /// UEs' machines that panicked.
    pub faults: u64,
}

impl Tally {
    /// Procedures that ended, one way or the other.
    pub fn procedures(&self) -> u64 {
        self.completed.values().chain(self.refused.values()).sum()
    }

    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Tally) {
        for (mine, theirs) in [(&mut self.completed, &other.completed), (&mut self.refused, &other.refused)] {
            for (name, count) in theirs {
                *mine.entry(name.clone()).or_default() += count;
            }
        }
        self.repeated += other.repeated;
        self.deregistered += other.deregistered;
        self.faults += other.faults;
    }
}

/// Observes the core, and stores what a test asks for.
#[derive(Default)]
pub(crate) struct Observer {
    held: BTreeMap<UeId, UeHoldings>,
    owners: BTreeMap<UniqueName, UeId>,
    /// UEs that were discarded after a panic: their last input did not end.
    discarded: Vec<UeId>,
    pub(crate) tally: Tally,
    /// Breaches of the standard that UEs and gNBs saw in the core. In a network that loses messages some are due.
    pub(crate) violations: u64,
    /// The last one.
    pub(crate) violation: String,
    pub(crate) meter: Option<WorkMeter>,
    /// Every N2 message of the core since [`Sim::tap`].
    pub(crate) tap: Option<Vec<whimbrel_ngap::Message>>,
    /// Events are counted and not kept: those of a long simulation would fill the memory.
    pub(crate) quiet: bool,
    /// CPFs may report anything, so UEs may be in any state.
    pub(crate) has_faulty_cpfs: bool,
    /// A line for each message, printed when a schedule fails.
    pub(crate) trace: Option<Vec<(Instant, String)>>,
}

impl Observer {
    pub(crate) fn violated(&mut self, how: &impl Debug) {
        self.violations += 1;
        self.violation = format!("{how:?}");
    }

    pub(crate) fn tally(&mut self, events: &[UeEvent]) {
        for event in events {
            match &event.event {
                Event::Completed { procedure, .. } => {
                    *self.tally.completed.entry(format!("{procedure:?}")).or_default() += 1
                }
                Event::Refused { procedure, .. } => {
                    *self.tally.refused.entry(format!("{procedure:?}")).or_default() += 1
                }
                Event::Repeated(_) => self.tally.repeated += 1,
                Event::Deregistered { why, .. } => {
                    self.tally.deregistered += 1;
                    if *why == DeregistrationReason::Fault {
                        self.tally.faults += 1;
                        self.discarded.push(event.ue);
                    }
                }
                _ => {}
            }
        }
    }

    /// Gives up what `id` held; what it holds now is noted afterwards, so that two UEs may pass something on in one step.
    fn forget(&mut self, id: UeId) -> Option<UeHoldings> {
        let held = self.held.remove(&id)?;
        for own in &held.own {
            self.owners.remove(own);
        }
        Some(held)
    }

    fn note(&mut self, ue: &UeContext, before: Option<UeHoldings>) {
        let held = UeHoldings { own: own(ue), usage: usage(ue) };
        for own in &held.own {
            if let Some(other) = self.owners.insert(own.clone(), ue.id) {
                panic!("{:?} has {own:?}, which {other:?} has too", ue.id);
            }
        }
        for (seid, now) in &held.usage {
            let then = before.iter().flat_map(|b| &b.usage).find(|(s, _)| s == seid);
            let grows = then.is_none_or(|(_, then)| then.0 <= now.0 && then.1 <= now.1);
            assert!(grows, "{:?}: the usage of {seid:?} went from {then:?} to {now:?}", ue.id);
        }
        self.held.insert(ue.id, held);
    }

    /// The core has restarted.
    pub(crate) fn core_restarted(&mut self) {
        self.held.clear();
        self.owners.clear();
        self.discarded.clear();
    }

    /// How many UEs hold something.
    pub(crate) fn contexts(&self) -> usize {
        self.held.len()
    }
}

fn own(ue: &UeContext) -> Vec<UniqueName> {
    let mut own = Vec::new();
    own.extend([ue.amf.tmsi, ue.amf.former_tmsi].into_iter().flatten().map(UniqueName::Tmsi));
    own.extend(ue.amf.connection.as_ref().map(|c| UniqueName::Connection(c.amf_ue_ngap_id)));
    own.extend(ue.amf.supi.filter(|_| ue.amf.registered).map(UniqueName::Registered));
    for s in ue.sessions.values() {
        own.push(UniqueName::CpSeid(s.cp_seid));
        // One that the UPF has lost is on its way out, and the UPF may give what was its to others.
        let Some(up_seid) = s.up_seid else { continue };
        own.push(UniqueName::UpSeid(s.upf, up_seid));
        own.extend(s.address.ipv4.map(|a| UniqueName::Ipv4(s.dnn.clone(), a)));
        own.extend(s.address.ipv6.map(|p| UniqueName::Ipv6(s.dnn.clone(), p)));
        own.extend(s.n3.map(|t| UniqueName::Teid(s.upf, t.teid)));
    }
    for i in &ue.intermediate_upfs {
        let tunnels = [i.n3, i.n9].map(|t| UniqueName::Teid(i.upf, t.teid));
        own.extend(
            [UniqueName::CpSeid(i.cp_seid), UniqueName::UpSeid(i.upf, i.up_seid)].into_iter().chain(tunnels),
        );
    }
    own
}

fn usage(ue: &UeContext) -> Vec<(Seid, (u64, u64))> {
    ue.sessions.values().map(|s| (s.cp_seid, s.usage.octets)).collect()
}

fn check(condition: bool, id: UeId, what: impl Debug) {
    assert!(condition, "{id:?}: {what:?}");
}

impl Sim {
    /// Measures the core's work from now on, by a clock that counts nanoseconds.
    pub fn measure(&mut self, clock: fn() -> u64) {
        self.observer.meter = Some(WorkMeter::new(clock));
    }

    /// What the core worked since the last call, or since [`Sim::measure`].
    pub fn work(&mut self) -> Work {
        self.observer.meter.as_mut().map(|m| std::mem::take(&mut m.work)).unwrap_or_default()
    }

    /// What was counted since the beginning.
    pub fn tally(&self) -> &Tally {
        &self.observer.tally
    }

    /// How often UEs and gNBs found the core at fault, and with what last.
    pub fn violations(&self) -> (u64, &str) {
        (self.observer.violations, &self.observer.violation)
    }

    /// Looks at the UEs that had an input since the last look.
    pub(crate) fn check_changed(&mut self) {
        let mut touched = self.control.cta.inspect().touched();
        touched.append(&mut self.observer.discarded);
        touched.sort_unstable();
        touched.dedup();
        let before: Vec<_> = touched.iter().map(|&id| (id, self.observer.forget(id))).collect();
        for (id, before) in before {
            let Some(ue) = self.control.cta.cta().context(id) else {
                self.control.cta.inspect().ended(id);
                continue;
            };
            self.observer.note(ue, before);
            self.check_ue(ue);
        }
        let (used, unauthenticated) = self.control.cta.cta().occupancy();
        assert_eq!(used, self.observer.contexts(), "a slot in use has its UE");
        assert!(unauthenticated as usize <= used, "unauthenticated UEs are UEs");
    }

    /// What holds of one UE after each of its inputs.
    fn check_ue(&self, ue: &UeContext) {
        let id = ue.id;
        // An unauthenticated UE without a procedure would never be released.
        let rests = ue.amf.registered || ue.awaits_release();
        check(rests || !ue.is_idle(), id, "is neither registered nor registering");
        // A connection, a procedure or a timer must end every context in the end.
        let looked_after = ue.is_connected() || !ue.is_idle() || ue.amf.implicit_deregistration_at.is_some();
        check(looked_after, id, "would be kept for ever");
        // A UE that is registered for emergency services need not have a subscription (TS 23.501 §5.16.4.1).
        // One that comes from another AMF of the set is registered there until this AMF has it.
        if ue.amf.registered && !ue.amf.emergency && !ue.amf.comes_from_peer() {
            let found = ue.amf.supi.and_then(|s| self.control.cta.cta().find(s));
            check(found.is_some(), id, "is registered here and unknown to the UDM");
            // A UE that was handed over from another AMF gets its 5G-TMSI when it registers.
            let tmsi = ue.amf.tmsi.map(|t| self.control.cta.cta().find_tmsi(t));
            check(tmsi.is_none_or(|found| found == Some(id)), id, "is not found by its 5G-S-TMSI");
        }
    }

    /// No UE has anything.
    ///
    /// # Panics
    /// If one has.
    pub fn check_nothing_held(&self) {
        assert!(
            self.observer.held.is_empty() && self.observer.owners.is_empty(),
            "{:?}",
            self.observer.owners
        );
    }

    /// SMF and UPF have the same sessions: for a moment when nothing is under way on N4.
    ///
    /// # Panics
    /// Where a session has an owner on one side alone.
    pub fn check_user_plane(&self) {
        self.user_planes_agree().unwrap_or_else(|why| panic!("{why}"));
    }

    /// The same. Errors: the first session that has an owner on one side alone.
    pub(crate) fn user_planes_agree(&self) -> Result<(), String> {
        let peer_amf = self.peer_amf.iter().flat_map(|a| a.cta.contexts());
        let at_upfs = |p: &'_ UeContext| -> Vec<((UpfId, Seid), Seid)> {
            let anchors = p.sessions.values().filter_map(|s| Some(((s.upf, s.up_seid?), s.cp_seid)));
            anchors.chain(p.intermediate_upfs.iter().map(|i| ((i.upf, i.up_seid), i.cp_seid))).collect()
        };
        let smf: BTreeMap<(UpfId, Seid), Seid> = self.contexts().chain(peer_amf).flat_map(at_upfs).collect();
        let of = |(id, upf)| {
            let upf: &whimbrel_user::Upf = upf;
            upf.c.sessions().map(move |(up, cp)| ((UpfId(id), up), cp))
        };
        let upf: BTreeMap<(UpfId, Seid), Seid> =
            (0u8..).zip(self.user_plane.upfs.iter().map(|u| &u.upf)).flat_map(of).collect();
        if let Some(session) = smf.iter().find(|(up, cp)| upf.get(up) != Some(cp)) {
            return Err(format!("the UPF does not have the SMF's session {session:?}"));
        }
        match upf.iter().find(|(up, cp)| smf.get(up) != Some(cp)) {
            Some(session) => Err(format!("the SMF does not have the UPF's session {session:?}")),
            None => Ok(()),
        }
    }
}
