//! The procedures of the schedules: precondition, trigger and outcome of each.
//!
//! | file | begun by |
//! | --- | --- |
//! | `registrations` | UEs that register, in all ways, and leave |
//! | `sessions` | UEs, gNBs and packets, of sessions and connections |
//! | `handovers` | gNBs that hand UEs over |
//! | `orders` | the operator, the subscribers' store, UPFs |
//! | `bring` | the preconditions |

mod bring;
mod handovers;
mod orders;
mod registrations;
mod sessions;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use whimbrel_control::config::{Config, Emergency};
use whimbrel_control::policy::{FlowGate, FlowPolicy, Setup, packet_filter};
use whimbrel_control::udm::{Ambr, Arp};
use whimbrel_control::{UeContext, UeId};
use whimbrel_ids::{FiveQi, PduSessionId, SNssai};
use whimbrel_ran::gnb;

use crate::{CtaLoss, GnbIndex, Sim, UeIndex, default_config};

/// What becomes of the UE's registration and sessions, beside what the procedure is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcedureEffect {
    /// It stays registered as it is, and keeps its sessions with their addresses.
    Nothing,
    /// It stays registered, and one session ends.
    Session,
    /// It registers again, or deregisters.
    Registration,
    /// So do others.
    Others,
}

/// A procedure with what begins it and what shows its end.
#[derive(Debug)]
pub(crate) struct ProcedureCase {
    /// Its name, as in TS 23.502 where it has one there.
    pub(crate) name: &'static str,
    /// It begins with an order.
    ordered: bool,
    /// A gNB takes no notice of something, and is astonished at what follows from it.
    pub(crate) astonishes: bool,
    ends: ProcedureEffect,
    before: fn(&mut Sim, UeIndex),
    act: fn(&mut Sim, UeIndex),
    done: fn(&Sim, UeIndex, &UeSnapshot) -> bool,
    after: fn(&mut Sim, UeIndex),
}

impl ProcedureCase {
    const fn new(
        name: &'static str,
        before: fn(&mut Sim, UeIndex),
        act: fn(&mut Sim, UeIndex),
        done: fn(&Sim, UeIndex, &UeSnapshot) -> bool,
    ) -> Self {
        Self {
            name,
            ordered: false,
            astonishes: false,
            ends: ProcedureEffect::Nothing,
            before,
            act,
            done,
            after: |_, _| {},
        }
    }

    const fn ordered(self) -> Self {
        Self { ordered: true, ..self }
    }

    const fn astonishes(self) -> Self {
        Self { astonishes: true, ..self }
    }

    const fn ends(self, ends: ProcedureEffect) -> Self {
        Self { ends, ..self }
    }

    const fn afterwards(self, after: fn(&mut Sim, UeIndex)) -> Self {
        Self { after, ..self }
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        [registrations::ALL, sessions::ALL, handovers::ALL, orders::ALL].into_iter().flatten()
    }

    /// Brings about what has to be there before it, whatever there is.
    pub(crate) fn before(&self, net: &mut Sim, ue: UeIndex) {
        (self.before)(net, ue);
    }

    /// Begins the procedure at a UE.
    pub(crate) fn act(&self, net: &mut Sim, ue: UeIndex) {
        (self.act)(net, ue);
    }

    /// Sets right what it had gone wrong in UE, gNBs or home.
    pub(crate) fn after(&self, net: &mut Sim, ue: UeIndex) {
        (self.after)(net, ue);
        for gnb in (0..net.gnbs()).map(GnbIndex) {
            *net.gnb_mut(gnb).faults_mut() = gnb::Faults::default();
        }
    }

    /// Whether it has come to what it should, and left alone what is not its.
    pub(crate) fn is_done(&self, net: &Sim, ue: UeIndex, was: &UeSnapshot) -> bool {
        self.left_alone(net, ue, was) && (self.done)(net, ue, was)
    }

    fn left_alone(&self, net: &Sim, ue: UeIndex, was: &UeSnapshot) -> bool {
        let may_end = match self.ends {
            ProcedureEffect::Nothing => 0,
            ProcedureEffect::Session => 1,
            ProcedureEffect::Registration | ProcedureEffect::Others => return true,
        };
        let now = UeSnapshot::of(net, ue);
        let stands = |(id, address)| now.sessions.get(id) == Some(address);
        let ended = was.sessions.iter().filter(|session| !stands(*session)).count();
        now.ue == was.ue && ended <= may_end
    }

    /// The first of the CTA's inputs, from its beginning on, at which that may be lost so: an order that is lost with it is given again
    /// by its sender.
    pub(crate) fn first_loss(&self, how: CtaLoss) -> u64 {
        1 + u64::from(self.ordered && matches!(how, CtaLoss::BeforeInput | CtaLoss::BeforeReplication))
    }

    /// Whether its UE keeps its registration.
    pub(crate) fn keeps_registration(&self) -> bool {
        matches!(self.ends, ProcedureEffect::Nothing | ProcedureEffect::Session)
    }

    /// Whether UEs beside its own keep what they have.
    pub(crate) fn spares_others(&self) -> bool {
        self.ends != ProcedureEffect::Others
    }
}

/// How a UE was before a procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UeSnapshot {
    /// The core's identifier of it, which changes when it registers again.
    pub(crate) ue: Option<UeId>,
    gnb: GnbIndex,
    sessions: BTreeMap<PduSessionId, Option<Ipv4Addr>>,
    flows: usize,
    dl_kbps: u64,
}

impl UeSnapshot {
    /// How it is.
    pub(crate) fn of(net: &Sim, ue: UeIndex) -> Self {
        let known = net.known(ue);
        let terms = known.and_then(|p| p.amf.subscription.as_ref());
        Self {
            ue: known.map(|p| p.id),
            gnb: net.gnb_of(ue),
            sessions: net.ue_ref(ue).sessions().map(|s| (s.id, s.ipv4)).collect(),
            flows: known.map_or(0, flows),
            dl_kbps: terms.map_or(0, |t| t.ue_ambr.dl_kbps),
        }
    }
}

impl Sim {
    /// A UE as the core knows it under its subscription.
    pub(crate) fn known(&self, ue: UeIndex) -> Option<&UeContext> {
        let supi = Some(self.ue_ref(ue).config().supi);
        self.contexts().find(|p| p.amf.supi == supi)
    }

    /// Runs until nothing is on its way, no procedure runs and `what` holds, or until the time is over. Whether it came to that.
    pub fn settle_until(&mut self, patience: Duration, what: impl Fn(&Self) -> bool) -> bool {
        let until = self.now() + patience;
        loop {
            if self.is_quiet() && self.contexts().all(UeContext::is_idle) && what(self) {
                return true;
            }
            match self.next_event().filter(|at| *at <= until) {
                Some(at) => self.step(at),
                None => return false,
            }
        }
    }
}

/// The flows that its first session has beside the default one.
fn flows(ue: &UeContext) -> usize {
    ue.sessions.values().next().map_or(0, |s| s.qos.flows.len())
}

const ARP: Arp = Arp { priority: 5, may_preempt: false, preemptable: true };

/// A configuration in which all procedures can be had: keys are proved after two registrations, a flow by the operator's word and one on
/// request, emergency services, reports of RRC_INACTIVE.
pub fn procedures_config() -> Config {
    let mut config = default_config();
    let flow = |name: &str, setup| FlowPolicy {
        name: name.parse().expect("a name"),
        five_qi: FiveQi(7),
        arp: ARP,
        gbr: None,
        precedence: 10,
        filters: vec![packet_filter("permit out 17 from any 5004 to assigned").expect("a filter")],
        gate: FlowGate::default(),
        setup,
    };
    let flows = [flow("voice", Setup::ByOperator), flow("game", Setup::OnRequest)];
    config.smf.data_networks.values_mut().for_each(|n| n.flows = flows.to_vec());
    config.amf.access.authentication.every_registrations = Some(2);
    config.amf.access.rrc_reports = true;
    config.amf.access.emergency = Some(Emergency {
        unauthenticated: false,
        s_nssai: SNssai::sst(1),
        dnn: "ims".parse().expect("a DNN"),
        arp: Arp { priority: 1, may_preempt: true, preemptable: false },
        five_qi: FiveQi(5),
        ambr: Ambr { ul_kbps: 2000, dl_kbps: 2000 },
    });
    config
}
