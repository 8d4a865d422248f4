//! How the control loop starts: a constructor for each kind of process that has one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use whimbrel_control::config::Config as ControlConfig;
use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, UeId, UpfId};
use whimbrel_ids::Instant;
use whimbrel_resilience::link::{HELLO_SLICES_MAX, PeerAmfHello};
use whimbrel_resilience::region::Rings;
use whimbrel_resilience::{Outbox, SurvivingState};
use whimbrel_sctp_io::{AdoptedAssociation, Events, Transport};
use whimbrel_store::Store;

use super::cpf_processes::{CpfProcesses, PrimaryOfPair};
use super::n2_events::N2;
use super::{ControlLoop, FormerPrimaryState, PrimaryCta, Timing, Upfs};
use crate::clock;
use crate::cluster::{CpfPool, PeerAmfs};
use crate::config::{Config, Deployment};
use crate::core::added_ues::AddedUes;
use crate::core::control_thread::{Cta, Parts};
use crate::core::core_time::CoreTime;
use crate::core::drain_orders::DrainOrders;
use crate::core::foresight::Foresight;
use crate::core::home_link::HomeExchange;
use crate::core::last_inputs::LastInputs;
use crate::core::n2::{N2Associations, labelled};
use crate::core::recording::InputRecorder;
use crate::core::replica::TakeoverState;
use crate::core::smf_n4::SmfN4;
use crate::core::stored_ues::StoredUeFile;
use crate::core::subscribers::{StoredSubscribers, sqn_slot, subscription};
use crate::core::upf::LocalUpf;
use crate::entropy::SystemEntropy;
use crate::function::UnitFunction;
use crate::observation::Console;
use crate::observation::capture::Capture;
use crate::observation::observer::Observer;
use crate::open::Brokers;
use crate::sbfd::{ReflectorThread, SbfdPeers};
use crate::sbi::NetworkFunctions;
use crate::ue_memory::UeMemory;
use crate::veil::VeiledUes;

/// How long N2 may stay closed at the start because no CPF has joined, or a UPF does not answer yet: both are there within tenths of a second.
const CPFS_JOIN_WITHIN: Duration = Duration::from_secs(2);

/// The state that all control functions of a unit have left that ended at once, with their gNBs' associations.
struct FormerCtaState {
    peers: Vec<u8>,
    last_inputs: BTreeMap<UeId, u64>,
    associations: BTreeSet<AssociationId>,
}

impl FormerCtaState {
    /// `adopted`: the associations that N2 has from the former primary. `None`: a CTA of this code has left nothing.
    fn of(own: &UnitFunction, adopted: &Option<Vec<AdoptedAssociation>>) -> Option<Self> {
        let peers = own.directory.kept_peers()?;
        let last_inputs = LastInputs::open(&own.directory.last_inputs()).and_then(|file| file.read());
        let last_inputs = last_inputs.inspect_err(|e| warn!("no UE stays connected: {e}")).ok()?;
        let names = adopted.iter().flatten().filter_map(|a| labelled(a.notes.label));
        Some(Self { peers, last_inputs, associations: names.collect() })
    }

    fn surviving<'a>(&'a self, last_input: &'a dyn Fn(UeId) -> Option<u64>) -> SurvivingState<'a> {
        SurvivingState { peers: &self.peers, associations: &self.associations, last_input }
    }
}

/// The parts that a CTA is made of.
struct CtaParts {
    directory: Directory,
    store: Store,
    entropy: SystemEntropy,
}

impl CtaParts {
    /// A CTA that serves UEs in this process.
    fn cta(self, control: Arc<ControlConfig>, now: Instant) -> Cta {
        let subscribers = StoredSubscribers::new(self.store);
        Cta::new(control, self.directory, subscribers, self.entropy, CoreTime::default(), now)
    }

    /// A CTA whose CPFs are processes of their own.
    fn cta_of_region(self, control: Arc<ControlConfig>, config: &Config, rings: Rings, now: Instant) -> Cta {
        let subscribers = StoredSubscribers::new(self.store);
        let time = CoreTime::default();
        let mut cta = Cta::of_region(control, self.directory, subscribers, self.entropy, time, rings, now);
        cta.set_log_limits(config.cluster.logs());
        cta
    }
}

/// The parts that the loop has around its CTA, in each deployment.
struct Surroundings {
    config: Arc<Config>,
    console: Arc<Console>,
    n2: Option<Transport>,
    remembered_in: Option<PathBuf>,
    upf: Option<LocalUpf>,
    smf_n4: Option<SmfN4>,
    reflector: Option<ReflectorThread>,
    capture: Option<PathBuf>,
    added_ues: u32,
    home: Option<HomeExchange>,
}

/// The part that differs between deployments.
struct ServingParts {
    control: Arc<ControlConfig>,
    active: PrimaryCta,
    cpfs: Option<CpfProcesses>,
    memory: Option<UeMemory>,
    stored_ues: Option<StoredUeFile>,
    links: N2Associations,
    recorder: Option<InputRecorder>,
    /// The output of the CTA at its start.
    out: Outbox,
}

impl ServingParts {
    fn of(control: Arc<ControlConfig>, active: PrimaryCta) -> Self {
        Self {
            control,
            active,
            cpfs: None,
            memory: None,
            stored_ues: None,
            links: N2Associations::default(),
            recorder: None,
            out: Outbox::default(),
        }
    }
}

/// Divides the parts between the CTA and what surrounds it.
fn divide(parts: Parts) -> (CtaParts, Surroundings) {
    let Parts {
        config,
        console,
        store,
        entropy,
        n2,
        remembered_in,
        upf,
        smf_n4,
        reflector,
        capture,
        added_ues,
        home,
        at_promotion: _,
    } = parts;
    let directory =
        Directory::new(config.amf.plmn, config.home_network_keys()).with_sqn_slot(sqn_slot(&config, &store));
    let shares = |store: &Store| store.slice_shares().inspect_err(|e| warn!("{e}")).unwrap_or_default();
    let home = home.map(|link| HomeExchange::new(link, shares(&store)));
    let around =
        Surroundings { config, console, n2, remembered_in, upf, smf_n4, reflector, capture, added_ues, home };
    (CtaParts { directory, store, entropy }, around)
}

impl ControlLoop {
    /// A UPF without an SMF: its sessions are those of SMFs elsewhere, and no UE is served.
    pub(in crate::core) fn of_upf(parts: Parts) -> Result<Self, String> {
        let now = clock::now();
        let mut control = parts.config.control();
        control.smf.upfs.clear();
        let control = Arc::new(control);
        let (cta, around) = divide(parts);
        let active = PrimaryCta::without_cta_replica(cta.cta(control.clone(), now));
        Self::around(now, around, ServingParts::of(control, active))
    }

    /// A core in one process.
    pub(in crate::core) fn single(parts: Parts) -> Result<Self, String> {
        let now = clock::now();
        let control = Arc::new(parts.config.control());
        let (mut cta, around) = divide(parts);
        let mut recorder = InputRecorder::of_environment(&mut cta.entropy)?;
        let mut cta = cta.cta(control.clone(), now);
        if let Some(recorder) = &mut recorder {
            recorder.begin(now, cta.subscribers().store())?;
        }
        let (mut out, mut stored_ues) = (Outbox::default(), StoredUeFile::of(&around.config.store));
        let file = stored_ues.as_mut();
        file.into_iter().for_each(|file| file.restore(now, &mut cta, &around.console, None, &mut out));
        let mut active = PrimaryCta::without_cta_replica(cta);
        let memory = UeMemory::start(&around.config, active.cpf_mut(), &around.console);
        let serving = ServingParts { memory, stored_ues, recorder, out, ..ServingParts::of(control, active) };
        let mut control_loop = Self::around(now, around, serving)?;
        control_loop.restore_drains(now);
        Ok(control_loop)
    }

    /// A CTA with CPFs that are processes of their own, and without a replica.
    pub(in crate::core) fn of_cta(parts: Parts, pool: CpfPool) -> Result<Self, String> {
        let now = clock::now();
        let control = Arc::new(parts.config.control());
        let (cta, around) = divide(parts);
        let mut cta = cta.cta_of_region(control.clone(), &around.config, pool.rings(), now);
        let (mut out, mut stored_ues) = (Outbox::default(), StoredUeFile::of(&around.config.store));
        let file = stored_ues.as_mut();
        file.into_iter().for_each(|file| file.restore(now, &mut cta, &around.console, None, &mut out));
        let active = PrimaryCta::without_cta_replica(cta);
        let cpfs = Some(CpfProcesses { pool, pair: None });
        let serving = ServingParts { cpfs, stored_ues, out, ..ServingParts::of(control, active) };
        let mut control_loop = Self::around(now, around, serving)?;
        control_loop.n2_opens_by = Some(now + CPFS_JOIN_WITHIN);
        control_loop.restore_drains(now);
        Ok(control_loop)
    }

    /// The CTA of a pair that becomes the primary, with what it has as the replica of the former one.
    pub(in crate::core) fn of_primary_cta(parts: Parts, takeover: TakeoverState) -> Result<Self, String> {
        let now = clock::now();
        let TakeoverState { promotion, cta_replica, links, early } = takeover;
        // The configuration of the former primary stays in force.
        let control = match &cta_replica {
            Some(cta_replica) => cta_replica.cta().config().clone(),
            None => Arc::new(parts.config.control()),
        };
        let (mut cta, mut around) = divide(parts);
        let config = around.config.clone();
        let adopted = around.n2.as_mut().and_then(Transport::take_adopted);
        // Each CTA of two hosts has a store of its own, and the other one may have served since.
        let of_one_host = config.cluster.host().is_some();
        let mut stored_ues = if of_one_host { StoredUeFile::of(&config.store) } else { None };
        let (pool, primary) = promotion.enter(
            now,
            &config.cluster,
            control.clone(),
            &mut cta.entropy,
            around.console.clone(),
        )?;
        let own = config.deployment.unit_function();
        let (mut out, mut taken_over) = (Outbox::default(), None);
        let mut active = match cta_replica {
            None => {
                let mut cta = cta.cta_of_region(control.clone(), &config, pool.rings(), now);
                if let Some(file) = &mut stored_ues {
                    let former = own.and_then(|own| FormerCtaState::of(own, &adopted));
                    let last_input = |ue: UeId| former.as_ref()?.last_inputs.get(&ue).copied();
                    let surviving = former.as_ref().map(|former| former.surviving(&last_input));
                    file.restore(now, &mut cta, &around.console, surviving, &mut out);
                }
                PrimaryCta::new(cta)
            }
            Some(cta_replica) => {
                let received = cta_replica.received().clone();
                let (active, first) = cta_replica.take_over();
                taken_over = Some(FormerPrimaryState { first, early, received });
                active
            }
        };
        if let Some(own) = own.filter(|_| stored_ues.as_ref().is_some_and(StoredUeFile::is_continuous)) {
            match LastInputs::open(&own.directory.last_inputs()) {
                Ok(file) => active.inspect().note_inputs(file),
                Err(e) => warn!("UEs would not stay connected if all control functions ended at once: {e}"),
            }
        }
        let cpfs = Some(CpfProcesses { pool, pair: Some(PrimaryOfPair::new(primary)?) });
        let serving = ServingParts { cpfs, stored_ues, links, out, ..ServingParts::of(control, active) };
        let mut control_loop = Self::around(now, around, serving)?;
        control_loop.link_own_upf();
        control_loop.link_own_functions();
        if taken_over.is_none() {
            control_loop.n2_opens_by = Some(now + CPFS_JOIN_WITHIN);
            control_loop.restore_drains(now);
        }
        control_loop.begin(now, taken_over, adopted);
        Ok(control_loop)
    }

    /// N4 with the UPF of this unit goes over a link.
    fn link_own_upf(&mut self) {
        let own = self.config.deployment.unit_function().filter(|_| self.own_upf().is_some());
        let smf = self.upfs.n4.as_ref().map(SmfN4::at);
        if let (Some(own), Some(smf), Some(cpfs)) = (own, smf, &mut self.cpfs) {
            cpfs.pool.link_upf(own.directory.clone(), smf);
        }
    }

    /// Requests to network functions that are processes of this unit go there.
    fn link_own_functions(&mut self) {
        let Config { deployment, unit, cluster, .. } = &*self.config;
        if let (Some(own), Some(cpfs)) = (deployment.unit_function(), &mut self.cpfs) {
            cpfs.pool.link_functions(own.directory.clone(), unit, &cluster.slices);
        }
    }

    /// The loop, with what is the same in all deployments.
    fn around(now: Instant, around: Surroundings, serving: ServingParts) -> Result<Self, String> {
        let Surroundings { config, console, .. } = around;
        let ServingParts { control, mut active, cpfs, memory, stored_ues, links, recorder, out } = serving;
        let capture = around.capture.as_deref().map(|path| {
            Capture::create(path)
                .map_err(|e| format!("the capture {} cannot be written: {e}", path.display()))
        });
        if let Some(home) = &around.home {
            active.keep_changed_registrations();
            active.set_slice_shares(home.shares().clone());
        }
        let local_id = config.upfs().iter().position(|u| u.address.is_none());
        let local_id = local_id.and_then(|i| u8::try_from(i).ok()).map(UpfId);
        let serves_ues = !config.deployment.is_upf_alone();
        if let Some(sentence) = config.amf.time_zone.obstacle(now).filter(|_| serves_ues) {
            warn!("{sentence}");
        }
        let version = control.version;
        let signalling_octets = (config.api.signalling_mib as usize) << 20;
        console.signalling(|s| s.limit(signalling_octets));
        let upfs = control.smf.upfs.iter().map(|upf| upf.address).collect();
        let peer_amfs = match serves_ues {
            true => {
                let own = PeerAmfHello {
                    amf_id: control.amf.amf_id,
                    plmn: control.amf.plmn,
                    slices: control.amf.slices.iter().take(HELLO_SLICES_MAX).copied().collect(),
                    smf: control.smf.node_id,
                };
                PeerAmfs::open(&config.peer_amfs, own, upfs, now)?
            }
            // The UPF of a unit has the same configuration as its CTAs.
            false => None,
        };
        let open = config.open.as_ref().filter(|_| serves_ues);
        let brokers = open.map(|open| Brokers::start(&config, open, console.clone())).transpose()?;
        let network_functions = match serves_ues {
            true => NetworkFunctions::start(&config, console.clone(), subscription)?,
            false => None,
        };
        let foresight = if serves_ues { Foresight::open(&config, now)? } else { None };
        let veil = config.veil.as_ref().filter(|_| serves_ues);
        let veil = veil.map(|veil| VeiledUes::start(&config, veil, console.clone())).transpose()?;
        let observer = Observer::new(console.clone(), control, config.log.supi);
        let sbfd_peers = match config.deployment {
            // Of a unit's processes, the CTA probes.
            Deployment::UnitUpf(_) | Deployment::UnitUpfReplica(_) => None,
            Deployment::Single
            | Deployment::ClusterCta
            | Deployment::PairedCta
            | Deployment::UnitManager
            | Deployment::UnitCta(_)
            | Deployment::UpfOnly { .. }
            | Deployment::UpfBehindLogger => {
                SbfdPeers::start(&config.sbfd).map_err(|e| format!("sbfd.peers: {e}"))?
            }
        };
        Ok(Self {
            sbfd_peers,
            reflector: around.reflector,
            observer,
            active,
            cpfs,
            memory,
            added_ues: AddedUes::new(around.added_ues),
            upfs: Upfs { local: around.upf, local_id, n4: around.smf_n4, answers: Vec::new() },
            peer_amfs,
            brokers,
            network_functions,
            stored_ues,
            drain_orders: serves_ues.then(|| DrainOrders::open(&config.store.path)),
            home: around.home,
            foresight,
            veil,
            n2: N2 {
                transport: around.n2,
                links,
                events: Events::default(),
                remembered: Vec::new(),
                remembered_in: around.remembered_in,
                holds_acknowledgements: false,
                unacknowledged: VecDeque::new(),
                unsent_since: None,
                probed: Default::default(),
            },
            n2_opens_by: None,
            capture: capture.transpose()?,
            recorder,
            kept_peers: Vec::new(),
            out,
            timing: Timing { housekeeping: now, census: now, turned: now, longest_turn: Duration::ZERO },
            version,
            time_zone: config.amf.time_zone.clone(),
            config,
            console,
        })
    }
}
