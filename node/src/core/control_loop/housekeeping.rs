//! What is done twice a second: metrics, conditions, edits of the store, the capture and the file of associations.

use std::time::Duration;

use tracing::{debug, warn};
use whimbrel_ids::Instant;
use whimbrel_resilience::{CtaOrder, Input};
use whimbrel_store::Changes;

use super::ControlLoop;
use super::cpf_processes::CpfProcesses;
use crate::aftermath;
use crate::cluster::{CpfPool, PairPrimary, PeerAmfs};
use crate::config::Deployment;
use crate::core::foresight::Foresight;
use crate::core::smf_n4::SmfN4;
use crate::core::stored_ues::StoredUeFile;
use crate::core::upf::LocalUpf;
use crate::core::upf_report::UpfReport;
use crate::core::view;
use crate::function::UnitFunction;
use crate::observation::capture::Capture;
use crate::observation::{Component, Condition, Level, Metric, MetricSample};
use crate::open::Brokers;
use crate::sbfd::{ReflectorThread, SbfdFigures, SbfdPeers};
use crate::sbi::NetworkFunctions;
use crate::veil::VeiledUes;

/// How often the store is asked for edits, the gauges are set and the capture is written to disk.
pub(super) const HOUSEKEEPING: Duration = Duration::from_millis(500);
/// Time between two counts of the UEs, for each UE: counting takes a thousandth of it.
const CENSUS_PER_UE: Duration = Duration::from_micros(100);

impl ControlLoop {
    pub(super) fn housekeeping(&mut self, now: Instant) {
        self.begin_as_home();
        let metrics = &self.console.metrics;
        if let Some(upf) = &self.upfs.local {
            metrics.set(Metric::PduSessions, upf.sessions() as u64);
        }
        if let Some((condition, detail)) = self.upfs.local.as_mut().map(|upf| upf.n6_condition(now)) {
            self.console.components(|c| c.set("n6", condition, detail));
        }
        let mut samples = self.samples();
        samples.extend(self.exchange_report());
        metrics.set_samples(samples);
        if let Some(CpfProcesses { pool, pair: Some(pair) }) = &self.cpfs {
            let (replicated, detail) = pair.primary.replica_status(pool.successor());
            let condition = if replicated { Condition::Up } else { Condition::Limited };
            let former = self.console.components(|c| c.get("cta_replica").map(|part| part.condition));
            if former.is_some_and(|former| former != condition) {
                let level = if replicated { Level::Info } else { Level::Warn };
                let text = format!("The CTA replica: {detail}.");
                self.console.moment(now, (level, "replica"), "CTA replica", &text, None);
            }
            self.console.components(|c| {
                c.set("cta", Condition::Up, "this CTA is the primary");
                c.set("cta_replica", condition, detail);
            });
        }
        if let Some((condition, detail)) = self.foresight.as_ref().map(Foresight::condition) {
            self.console.components(|c| c.set("foresight", condition, detail));
        }
        if let Some(cpfs) = &mut self.cpfs {
            cpfs.pool.log_drops(now);
        }
        self.reflector.iter_mut().for_each(|reflector| reflector.log_drops(now));
        if let Some((condition, detail)) = self.sbfd_peers.as_mut().map(|peers| peers.condition(now)) {
            self.console.components(|c| c.set("sbfd", condition, detail));
        }
        self.remember_associations();
        let waited = std::mem::take(&mut self.timing.longest_turn);
        self.handle_input(now, Input::Waited(waited));
        if now >= self.timing.census {
            self.count_ues(now);
        }
        self.store_ues(now);
        self.keep_local_time(now);
        self.keep_peers();
        self.keep_drain_orders();
        self.refresh_subscribers(now);
        if let Some(Err(sentence)) = self.capture.as_mut().map(Capture::flush) {
            warn!("{sentence}");
            self.capture = None;
        }
    }

    /// The UPF of a unit reports to the CTA, which shows the report as its own.
    fn exchange_report(&self) -> Vec<MetricSample> {
        match &self.config.deployment {
            // A replica that runs this loop is the UPF now.
            Deployment::UnitUpf(own) | Deployment::UnitUpfReplica(own) => {
                let of_upf: Vec<MetricSample> = self.upfs.local.iter().flat_map(LocalUpf::samples).collect();
                let components: Vec<Component> = self.console.components(|c| c.all().cloned().collect());
                if let Err(e) = UpfReport::write(&own.directory, &of_upf, components.iter()) {
                    debug!("the report of the UPF cannot be written: {e}");
                }
                Vec::new()
            }
            Deployment::UnitCta(own) => self.read_report(own),
            Deployment::Single
            | Deployment::ClusterCta
            | Deployment::PairedCta
            | Deployment::UnitManager
            | Deployment::UpfOnly { .. }
            | Deployment::UpfBehindLogger => Vec::new(),
        }
    }

    /// Shows what the UPF of this unit has reported.
    fn read_report(&self, own: &UnitFunction) -> Vec<MetricSample> {
        let UpfReport { samples, components } = UpfReport::read(&own.directory);
        let sessions = samples.iter().filter(|s| s.metric == Metric::UpfSessions).map(|s| s.value).sum();
        self.console.metrics.set(Metric::PduSessions, sessions);
        self.console.components(|c| {
            components.into_iter().for_each(|(name, part)| c.set(name, part.condition, part.detail));
        });
        samples
    }

    fn count_ues(&mut self, now: Instant) {
        let metrics = &self.console.metrics;
        let census = view::census(self.active.cta());
        metrics.set(Metric::Gnbs, census.gnbs);
        metrics.set(Metric::Ues, census.ues);
        metrics.set(Metric::UesRegistered, census.registered);
        metrics.set(Metric::UesConnected, census.connected);
        self.timing.census = now + CENSUS_PER_UE * u32::try_from(census.ues).unwrap_or(u32::MAX);
    }

    /// Has the UEs that have changed written to the disk, if the configuration asks for it; UEs do not wait for that.
    fn store_ues(&mut self, now: Instant) {
        let Some(file) = &mut self.stored_ues else { return };
        if let Some(all) = file.turn(&self.console, self.active.cta().stored_amf()) {
            self.execute(now, CtaOrder::StoreUes { all });
        }
    }

    /// Keeps what this CTA knows of its gNBs and UPFs in the runtime directory of the unit: the next CTA goes on with them if no other one runs by then.
    fn keep_peers(&mut self) {
        let continuous = self.stored_ues.as_ref().is_some_and(StoredUeFile::is_continuous);
        let own = self.config.deployment.unit_function();
        let Some(own) = own.filter(|_| continuous) else { return };
        let peers = self.active.cta().stored_peers();
        if peers == self.kept_peers {
            return;
        }
        match own.directory.keep_peers(&peers) {
            Ok(()) => self.kept_peers = peers,
            Err(e) => debug!("gNBs would connect again if all control functions ended at once: {e}"),
        }
    }

    /// Reads edits of the subscriber store that other processes made.
    fn refresh_subscribers(&mut self, now: Instant) {
        let subscribers = self.active.subscribers();
        let changes = subscribers.refresh();
        if let Ok(changes) = &changes {
            // Never later than now, even if another process's clock is ahead.
            let changed_at = |supi| subscribers.changed_at(supi).map_or(now, |at| at.min(now));
            self.observer.subscribers_changed(changes, changed_at);
            if let Some(CpfProcesses { pair: Some(pair), .. }) = &mut self.cpfs
                && let Some(feed) = &mut pair.feed
            {
                feed.changed(changes);
            }
        }
        if let Some(functions) = &self.network_functions {
            match &changes {
                Ok(Changes::Some(supis)) => functions.subscribers_changed(Some(supis)),
                Ok(Changes::All) => functions.subscribers_changed(None),
                Ok(Changes::None) | Err(_) => {}
            }
        }
        match &changes {
            Ok(Changes::Some(supis)) => self.handle_input(now, Input::SubscribersChanged(Some(supis))),
            Ok(Changes::All) => self.handle_input(now, Input::SubscribersChanged(None)),
            Ok(Changes::None) | Err(_) => {}
        }
        self.observer.store(now, changes.map(drop));
    }

    /// Writes the SCTP associations that are up into a file: the next start aborts them if this program is killed.
    fn remember_associations(&mut self) {
        let (Some(file), Some(n2)) = (&self.n2.remembered_in, &self.n2.transport) else { return };
        let associations = n2.formers();
        if associations != self.n2.remembered {
            aftermath::remember(file, &associations);
            self.n2.remembered = associations;
        }
    }

    /// What the parts of the core counted.
    fn samples(&self) -> Vec<MetricSample> {
        let bounds = self.active.cta().bounds().map(|(limit, value)| MetricSample {
            metric: Metric::LimitReached,
            label: Some(limit.into()),
            value,
        });
        let upf = self.upfs.local.iter().flat_map(LocalUpf::samples);
        let n4 = self.upfs.n4.iter().flat_map(SmfN4::samples);
        let (pool, pair) = (self.cpfs.as_ref().map(|cpfs| &cpfs.pool), self.pair());
        let shared = pool.map(CpfPool::received_from_upf).map(|value| MetricSample {
            metric: Metric::SmfN4Shared,
            label: None,
            value,
        });
        let ignored = pair.map(|pair| pair.primary.heartbeats_ignored()).unwrap_or_default();
        let replication = pool.into_iter().flat_map(|pool| {
            let cta = self.active.cta();
            view::replication(cta)
                .into_iter()
                .chain(pool.samples(ignored))
                .chain(pool.function_samples())
                .chain(view::version_samples(cta))
        });
        let pair = pool.zip(pair).into_iter();
        let pair = pair.flat_map(|(pool, pair)| self.pair_samples(&pair.primary, pool));
        let peer_amfs = self.peer_amfs.iter().flat_map(PeerAmfs::samples);
        let brokers = self.brokers.iter().flat_map(Brokers::samples);
        let brokers = brokers.chain(self.veil.iter().flat_map(VeiledUes::samples));
        let functions = self.network_functions.iter().flat_map(NetworkFunctions::samples);
        let foresight = self.foresight.iter().flat_map(Foresight::samples);
        let cpf = self.active.cta().cpf();
        let memory = self.memory.iter().flat_map(|memory| memory.samples(cpf)).chain(self.added_ues.sample());
        upf.chain(n4)
            .chain(shared)
            .chain(self.sbfd_figures().samples())
            .chain(foresight)
            .chain(memory)
            .chain(replication)
            .chain(peer_amfs)
            .chain(brokers)
            .chain(functions)
            .chain(pair)
            .chain(bounds)
            .chain(view::upf_samples(self.active.cta()))
            .collect()
    }

    /// What S-BFD counted, of members of the cluster and of others.
    fn sbfd_figures(&self) -> SbfdFigures {
        let of_pool = self.cpfs.as_ref().map(|cpfs| cpfs.pool.sbfd_figures());
        let of_pair = self.pair().map(|pair| pair.primary.sbfd_figures());
        let of_peers = self.sbfd_peers.as_ref().map(SbfdPeers::figures);
        let of_reflector = self.reflector.as_ref().map(ReflectorThread::figures);
        let all = [of_pool, of_pair, of_peers, of_reflector].into_iter().flatten();
        all.fold(SbfdFigures::default(), |a, b| a + b)
    }

    fn pair_samples(&self, primary: &PairPrimary, pool: &CpfPool) -> [MetricSample; 4] {
        let one = |metric, value| MetricSample { metric, label: None, value };
        let (records, octets) = primary.sent();
        [
            one(Metric::CtaReplicaRecords, records),
            one(Metric::CtaReplicaBytes, octets),
            one(Metric::CtaReplicaWaiting, self.active.waiting() as u64),
            one(Metric::EtcdRecordsIgnored, primary.invalid_etcd_records() + pool.rejected_configurations()),
        ]
    }
}
