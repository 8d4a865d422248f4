//! The simulated network: the shipped control plane, UPF, gNBs and UEs in virtual time, with faults.
//!
//! The seed decides everything: latencies, what the radio loses, repeats and reorders, the entropy of every input. The same seed gives the
//! same octets, so a failing seed is a test case. [`Sim`] is the network, [`SimBuilder`] builds it, [`Faults`] are those of radio and N2, and
//! [`Recorder`] keeps the core's inputs so that any UE can be replayed from any point at which it was idle.

#![forbid(unsafe_code)]

mod agree;
mod builder;
mod chaos_run;
mod chf;
mod control_plane;
mod cta_replica;
mod fault_profile;
mod faults;
mod gnbs;
mod home;
mod invariants;
mod meter;
mod n3;
mod network_run;
mod observer;
mod open;
mod open_run;
mod partition;
mod pcf;
mod peer_amf;
mod procedures;
mod queue;
mod record;
mod region;
mod remote_amf;
mod rng;
mod schedules;
mod sites_run;
mod timer_queue;
mod trace;
mod traffic;
mod udm;
mod ues;
mod unit;
mod user_plane;
mod veil;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use whimbrel_control::config::Config;
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Prf, RanEvent, UeEvent};
use whimbrel_ids::{Instant, STmsi};
use whimbrel_ran::{gnb, ue};
use whimbrel_resilience::ProtocolViolation;
use whimbrel_resilience::cta_replica::PrimaryCta;
use whimbrel_resilience::replication::CpfId;
use whimbrel_security::HomeNetworkKeys;
use whimbrel_user::Upf;

pub use builder::SimBuilder;
use builder::new_cta;
pub use chaos_run::{ChaosRun, Deployment, gnb_config, heal_and_verify, registered};
pub use chf::{ChfState, SimChf};
use control_plane::ControlPlane;
pub use cta_replica::CtaLoss;
use cta_replica::CtaPair;
pub use fault_profile::FaultProfile;
pub use faults::Faults;
use gnbs::GnbNode;
pub use home::{SimSubscribers, default_config, tuak_of, ue_config, upf_config};
pub use meter::{Wire, Work};
pub use n3::N3_LATENCY;
pub use network_run::{Cpfs, NetworkPlan, NetworkRun};
use observer::Observer;
pub use observer::Tally;
pub use open::{BrokerLoss, BrokerState, home_key, home_plmn, open_config};
pub use open_run::{BrokerCrash, OpenCounts, OpenFaults, OpenPlan, OpenRun, PlantedFault, SapLinks};
pub use partition::{Cut, Survivor};
pub use pcf::{PcfState, SimPcf};
use peer_amf::SimPeerAmf;
pub use peer_amf::{N14Fault, two_amf_configs, two_amf_configs_of_a_set};
pub use procedures::procedures_config;
use procedures::{ProcedureCase, UeSnapshot};
use queue::{InFlight, Queue};
pub use record::{RecordedInput, Recorder};
use region::Cluster;
pub use region::{CanaryStep, CpfCut, CpfLoss, LostUes};
pub use remote_amf::SimRemoteAmf;
pub use rng::Rng;
pub use schedules::{LostNode, SCHEDULES_PER_NETWORK, ScheduleReport, Schedules};
pub use sites_run::{
    Activity, HOP, SiteFigures, SiteLink, SitesFault, SitesMemory, SitesMeter, SitesPlan, SitesRun,
};
pub use traffic::udp;
pub use udm::{RemoteUdm, UdmState};
use ues::UeNode;
use unit::{Manager, NumberedPackets};
pub use unit::{UnitCounts, UnitFault, UpfLoss};
pub use veil::{VEIL_BROKER, veil_config};

pub use user_plane::UpfState;
use user_plane::{SimUserPlane, UpfNode};

/// A gNB of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GnbIndex(pub usize);

/// A UE of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UeIndex(pub usize);

/// The time at which a simulation begins: a Tuesday in 2026.
const EPOCH: Instant = Instant(1_793_700_000_000_000);

/// The events of a run, oldest first; see [`Sim::discard_events`].
#[derive(Default)]
pub struct SimEvents {
    /// Of the core about UEs.
    pub ues: Vec<(Instant, UeEvent)>,
    /// Of the core about gNBs.
    pub ran: Vec<RanEvent>,
    /// Of the gNBs.
    pub gnbs: Vec<(GnbIndex, gnb::Event)>,
    /// Protocol violations of CPFs that the CTA has reported.
    pub cpf_violations: Vec<(CpfId, ProtocolViolation)>,
}

/// The gNBs and the UEs.
#[derive(Default)]
struct SimulatedRan {
    gnbs: Vec<GnbNode>,
    by_association: BTreeMap<AssociationId, GnbIndex>,
    /// How many associations there have been.
    associations: u32,
    ues: Vec<UeNode>,
    /// The UEs that a paging message names.
    by_s_tmsi: BTreeSet<(STmsi, UeIndex)>,
}

/// A simulated network with its gNBs, UEs and core.
pub struct Sim {
    now: Instant,
    rng: Rng,
    config: Arc<Config>,
    faults: Faults,
    home_keys: HomeNetworkKeys,
    control: ControlPlane,
    peer_amf: Option<Box<SimPeerAmf>>,
    /// Brokers, and the operator as they know it.
    brokers: open::Brokers,
    /// The UDM of a core that has none of its own.
    remote_udm: udm::RemoteUdm,
    chf: chf::SimChf,
    pcf: pcf::SimPcf,
    remote_amf: remote_amf::SimRemoteAmf,
    /// The broker of veiled UEs, and the operator's wallet.
    veil: Option<Box<veil::SimVeil>>,
    user_plane: SimUserPlane,
    /// The manager of a unit.
    manager: Manager,
    ran: SimulatedRan,
    queue: Queue,
    observer: Observer,
    /// What has happened.
    pub events: SimEvents,
}

impl Sim {
    fn new(
        mut rng: Rng,
        config: Arc<Config>,
        faults: Faults,
        home_keys: HomeNetworkKeys,
        cluster: Option<Cluster>,
        resting: bool,
    ) -> Self {
        let entropy = (Prf::new(&rng.octets()), 0);
        let (home, recorder) = (SimSubscribers::default(), Recorder::default());
        let cta = new_cta(EPOCH, &config, &home_keys, home, entropy, recorder, (cluster.as_ref(), resting));
        let upfs = (0u8..).zip(&config.smf.upfs).map(|(n, _)| {
            let config = home::nth_upf_config(n, rng.draw());
            let upf = Upf::new(config, EPOCH).expect("the default UPF configuration holds");
            UpfNode { upf, state: UpfState::Answering }
        });
        let remote_udm = udm::RemoteUdm::new(Directory::new(config.amf.plmn, home_keys.clone()));
        let user_plane = SimUserPlane {
            upfs: upfs.collect(),
            requests: Vec::new(),
            received: None,
            unit: None,
            numbered: NumberedPackets::default(),
        };
        Self {
            now: EPOCH,
            rng,
            config,
            faults,
            home_keys,
            control: ControlPlane {
                cta: PrimaryCta::new(cta),
                pair: CtaPair::default(),
                cluster,
                resting,
                disk: Vec::new(),
            },
            peer_amf: None,
            brokers: open::Brokers::default(),
            remote_udm,
            chf: chf::SimChf::default(),
            pcf: pcf::SimPcf::default(),
            remote_amf: remote_amf::SimRemoteAmf::default(),
            veil: None,
            user_plane,
            manager: Manager::default(),
            ran: SimulatedRan::default(),
            queue: Queue::default(),
            observer: Observer::default(),
            events: SimEvents::default(),
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }
}
