//! Builds a [`Sim`]: one CTA that runs the UEs itself, or with CPFs in one region or several, or with a CTA replica.

use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::config::Config;
use whimbrel_control::udm::Directory;
use whimbrel_control::{Prf, RestVec};
use whimbrel_ids::Instant;
use whimbrel_resilience::region::{GnbRegions, Region};
use whimbrel_resilience::{Cpf, Cta, Input, LogLimits};
use whimbrel_security::HomeNetworkKeys;

use crate::region::Cluster;
use crate::unit::UnitFault;
use crate::{Faults, Recorder, Rng, Sim, SimSubscribers, default_config};

/// What runs the procedures of UEs.
#[derive(Clone, Debug)]
enum Cpfs {
    /// The CTA itself.
    InCta,
    /// So many CPFs in the CTA's region, with so many replicas per UE.
    OneRegion(u16, usize),
    /// A CPF in each of these regions, of which the first is the CTA's.
    Regions(Vec<Region>, GnbRegions, usize),
}

/// The environment variable with which UEs rest after each input in every run of a test program: `WHIMBREL_SIM_RESTING=1`. No result
/// depends on it.
const RESTING: &str = "WHIMBREL_SIM_RESTING";

/// Builds a [`Sim`]; see [`Sim::builder`].
#[derive(Clone, Debug)]
pub struct SimBuilder {
    seed: u64,
    config: Config,
    faults: Faults,
    home_keys: HomeNetworkKeys,
    cpfs: Cpfs,
    logs: LogLimits,
    cta_replica: bool,
    /// The UPF has a replica, and perhaps a planted fault.
    unit: Option<Option<UnitFault>>,
    recorded: bool,
    resting: bool,
}

impl Sim {
    /// A network of the default configuration, without faults, whose CTA runs the UEs itself. The same seed gives the same run.
    pub fn builder(seed: u64) -> SimBuilder {
        SimBuilder {
            seed,
            config: default_config(),
            faults: Faults::default(),
            home_keys: HomeNetworkKeys::new(),
            cpfs: Cpfs::InCta,
            logs: LogLimits::default(),
            cta_replica: false,
            unit: None,
            recorded: false,
            resting: std::env::var_os(RESTING).is_some(),
        }
    }
}

impl SimBuilder {
    /// The core's configuration.
    pub fn config(self, config: Config) -> Self {
        Self { config, ..self }
    }

    /// The faults of radio and N2.
    pub fn faults(self, faults: Faults) -> Self {
        Self { faults, ..self }
    }

    /// The home network's keys, under which UEs may conceal their SUPIs.
    pub fn home_keys(self, home_keys: HomeNetworkKeys) -> Self {
        Self { home_keys, ..self }
    }

    /// CPFs in one region, and replicas per UE.
    pub fn cpfs(self, cpfs: u16, replicas: usize) -> Self {
        Self { cpfs: Cpfs::OneRegion(cpfs, replicas), ..self }
    }

    /// A CPF in each of these regions, numbered from 1, of which the first is the CTA's; `areas` are the gNBs that are in another region than
    /// the CTA.
    pub fn regions(self, places: &[Region], areas: GnbRegions, replicas: usize) -> Self {
        Self { cpfs: Cpfs::Regions(places.to_vec(), areas, replicas), ..self }
    }

    /// What the CTA stores of the logs of UEs.
    pub fn logs(self, logs: LogLimits) -> Self {
        Self { logs, ..self }
    }

    /// The CTA has a CTA replica. It needs CPFs.
    pub fn cta_replica(self) -> Self {
        Self { cta_replica: true, ..self }
    }

    /// The UPF has a replica, as in a unit, and numbered packets travel. A test may plant a fault.
    pub fn upf_replica(self, fault: Option<UnitFault>) -> Self {
        Self { unit: Some(fault), ..self }
    }

    /// The inputs of UEs are kept for [`Recorder::replay`].
    pub fn recorded(self) -> Self {
        Self { recorded: true, ..self }
    }

    /// Each UE rests after each input in which it is registered and idle, and records of UEs at rest move after each input.
    pub fn resting(self) -> Self {
        Self { resting: true, ..self }
    }

    /// The network. Its UPFs are up.
    ///
    /// # Panics
    /// If the configuration is not valid, or a CTA replica has no CPFs to run the UEs.
    pub fn build(self) -> Sim {
        let config = Arc::new(self.config);
        let cluster = match self.cpfs {
            Cpfs::InCta => None,
            Cpfs::OneRegion(cpfs, replicas) => Some(Cluster::new(&config, cpfs, replicas)),
            Cpfs::Regions(places, areas, replicas) => {
                Some(Cluster::spread(&config, places[0].clone(), &places, areas, replicas))
            }
        };
        let cluster = cluster.map(|cluster| cluster.with_logs(self.logs).with_resting(self.resting));
        let mut sim =
            Sim::new(Rng::new(self.seed), config, self.faults, self.home_keys, cluster, self.resting);
        if let Some(fault) = self.unit {
            sim.add_upf_replica(fault);
        }
        sim.cta_input(Input::Tick);
        assert!(sim.cta().upf_is_up(), "the UPF answers the association setup");
        sim.recorder().on = self.recorded;
        if self.cta_replica {
            assert!(sim.control.cluster.is_some(), "a CTA replica needs CPFs");
            sim.add_cta_replica();
        }
        sim
    }
}

/// A CTA that has no UEs.
pub(crate) fn new_cta(
    now: Instant,
    config: &Arc<Config>,
    home_keys: &HomeNetworkKeys,
    home: SimSubscribers,
    entropy: (Prf, u64),
    recorder: Recorder,
    (cluster, resting): (Option<&Cluster>, bool),
) -> Cta<SimSubscribers, (Prf, u64), Recorder> {
    let directory = Directory::new(config.amf.plmn, home_keys.clone());
    let Some(cluster) = cluster else {
        let mut cta = Cta::new(config.clone(), directory, home, entropy, recorder, now);
        cta.cpf_mut().filter(|_| resting).into_iter().for_each(rest_after_each_input);
        return cta;
    };
    let rings = cluster.rings();
    let mut cta = Cta::of_region(config.clone(), directory, home, entropy, recorder, rings, now);
    cta.set_log_limits(cluster.logs);
    cta
}

/// UEs rest as soon and as often as they can.
pub(crate) fn rest_after_each_input(cpf: &mut Cpf) {
    cpf.set_rest_store(Box::new(RestVec::default()), Duration::ZERO);
}
