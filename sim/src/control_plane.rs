//! The core under test: the CTA, its replica and the CPFs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::amf::PeerAmfId;
use whimbrel_control::config::Config;
use whimbrel_control::event::DeregistrationReason;
use whimbrel_control::{AssociationId, Command as CoreCommand, Event, Prf, UeContext, UeEvent, UeId};
use whimbrel_ids::{GlobalGnbId, Tai};
use whimbrel_ngap::TransferSyntax;
use whimbrel_resilience::cta_replica::PrimaryCta;
use whimbrel_resilience::{
    Cta, CtaOrder, Input, OrderOutcome, Outbox, RestorationOutcome, StoredUes, SurvivingState, ToStore,
};

use crate::builder::new_cta;
use crate::cta_replica::CtaPair;
use crate::queue::InFlight;
use crate::region::{Cluster, RegionMessage};
use crate::{GnbIndex, Recorder, Sim, SimSubscribers};

/// The processes of a core, which a restart replaces together.
pub(crate) struct ControlPlane {
    pub(crate) cta: PrimaryCta<SimSubscribers, (Prf, u64), Recorder>,
    /// The CTA replica, and how the CTA is lost.
    pub(crate) pair: CtaPair,
    /// The CPFs, unless the CTA runs the UEs itself.
    pub(crate) cluster: Option<Cluster>,
    /// UEs rest after each input.
    pub(crate) resting: bool,
    /// The records of UEs on the disk.
    pub(crate) disk: Vec<Vec<u8>>,
}

impl Sim {
    /// The CTA that has the UEs' signalling.
    pub fn cta(&self) -> &Cta<SimSubscribers, (Prf, u64), Recorder> {
        self.control.cta.cta()
    }

    /// The recorded inputs.
    pub fn recorder(&mut self) -> &mut Recorder {
        self.control.cta.inspect()
    }

    /// The store of subscribers.
    pub fn home(&mut self) -> &mut SimSubscribers {
        self.control.cta.subscribers()
    }

    /// A change of a subscriber in the store.
    pub fn subscriber_changed(&mut self, supi: whimbrel_ids::Supi) {
        self.cta_input(Input::SubscribersChanged(Some(&[supi])));
    }

    /// An operator's order about a UE.
    pub fn order(&mut self, ue: UeId, command: CoreCommand) {
        self.cta_input(Input::Command(ue, command));
    }

    /// The predictor expects a UE at a gNB.
    pub fn predict(&mut self, ue: UeId, gnb: GlobalGnbId, tai: Tai) {
        self.cta_input(Input::Predicted(ue, gnb, tai));
    }

    /// The operator removes this AMF from its set, and another one takes its UEs over; `None`: it stays.
    pub fn remove_amf(&mut self, successor: Option<PeerAmfId>) {
        self.operator_order(CtaOrder::Remove(successor));
    }

    /// The operator resets a gNB's connections.
    pub fn reset_gnb(&mut self, gnb: GlobalGnbId) -> bool {
        self.operator_order(CtaOrder::ResetGnb(gnb)) == OrderOutcome::Reset(true)
    }

    /// The operator disconnects a gNB. Returns whether it is up.
    pub fn disconnect_gnb(&mut self, gnb: GlobalGnbId) -> bool {
        self.operator_order(CtaOrder::DisconnectGnb(gnb)) == OrderOutcome::Reset(true)
    }

    /// The core takes a new version of its configuration.
    pub fn configure(&mut self, config: Config) {
        self.config = Arc::new(config);
        self.operator_order(CtaOrder::Configure(self.config.clone()));
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.clone()
    }

    /// The core restarts with its CPFs: it has its subscribers, and no state of UEs and gNBs.
    pub fn restart_core(&mut self) {
        self.restart(None);
    }

    /// All UEs are written to the disk, as they are.
    pub fn store_ues(&mut self) {
        self.control.disk = vec![self.cta().stored_amf().record()];
        self.operator_order(CtaOrder::StoreUes { all: true });
        self.settle(Duration::from_millis(10));
    }

    /// The UEs that have changed since are written to the disk, too.
    pub fn store_changed_ues(&mut self) {
        self.operator_order(CtaOrder::StoreUes { all: false });
        self.settle(Duration::from_millis(10));
    }

    /// The core is stopped in order, and starts again: its gNBs are disconnected, and all UEs written to the disk.
    ///
    /// # Panics
    /// If a registered UE without a running procedure is not kept, although no CPF was lost meanwhile.
    pub fn restart_core_in_order(&mut self) -> RestorationOutcome {
        let cpfs = self.cpfs();
        let associations: Vec<AssociationId> = self.cta().associations().collect();
        associations.into_iter().for_each(|association| self.cta_input(Input::AssociationDown(association)));
        self.settle(Duration::from_millis(10));
        let kept = |p: &&UeContext| p.amf.registered && p.is_idle() && !p.amf.emergency;
        let idle = self.contexts().filter(kept).count();
        self.store_ues();
        let no_loss = self.cpfs() == cpfs;
        let restored = self.restart(Some(true));
        assert!(!no_loss || restored.ues >= idle, "of {idle} UEs {restored:?}");
        restored
    }

    /// The core is killed, and starts again with the UEs that are on the disk.
    pub fn kill_and_restart_core(&mut self) -> RestorationOutcome {
        self.restart(Some(false))
    }

    /// The CTA and its CPFs are killed, and start again with the UEs that are on the disk. Associations of gNBs and the UPFs stand meanwhile.
    pub fn kill_and_restart_control(&mut self) -> RestorationOutcome {
        self.restart_control_alone(Cluster::restarted)
    }

    /// The same, where no CPF has joined yet: [`Self::add_cpf`] adds them.
    pub fn kill_and_restart_control_before_its_cpfs(&mut self) -> RestorationOutcome {
        self.restart_control_alone(Cluster::restarted_without_cpfs)
    }

    fn restart_control_alone(&mut self, cluster: fn(Cluster, &Arc<Config>) -> Cluster) -> RestorationOutcome {
        let associations: BTreeSet<AssociationId> = self.cta().associations().collect();
        let (peers, last) = (self.cta().stored_peers(), self.recorder().last_inputs().clone());
        let last_input = |ue: UeId| last.get(&ue).copied();
        let surviving =
            SurvivingState { peers: &peers, associations: &associations, last_input: &last_input };
        self.forget_replicas(false);
        let mut out = Outbox::default();
        let restored = self.begin_again(Some(false), Some(surviving), cluster, &mut out);
        self.cta_output(out);
        self.cta_input(Input::Tick);
        restored
    }

    fn restart(&mut self, exact: Option<bool>) -> RestorationOutcome {
        self.forget_replicas(false);
        let restored = self.begin_again(exact, None, Cluster::restarted, &mut Outbox::default());
        self.ran.by_association.retain(|_, gnb| self.ran.gnbs[gnb.0].peer_amf);
        let gnbs = (0..self.ran.gnbs.len()).filter(|&i| !self.ran.gnbs[i].peer_amf).map(GnbIndex);
        let gnbs: Vec<GnbIndex> = gnbs.collect();
        for &gnb in &gnbs {
            self.ran.gnbs[gnb.0].association = None;
            self.end_associations(gnb);
        }
        self.cta_input(Input::Tick);
        gnbs.into_iter().for_each(|gnb| self.connect(gnb));
        restored
    }

    /// A new CTA with new CPFs, and the UEs that are on the disk.
    fn begin_again(
        &mut self,
        exact: Option<bool>,
        surviving: Option<SurvivingState<'_>>,
        cluster: fn(Cluster, &Arc<Config>) -> Cluster,
        out: &mut Outbox,
    ) -> RestorationOutcome {
        let config = self.config.clone();
        let home = std::mem::take(self.control.cta.subscribers());
        let recorder = self.control.cta.inspect().restarted(exact.is_some());
        let entropy = (Prf::new(&self.rng.octets()), 0);
        self.queue.messages.retain(|_, t| !matches!(t, InFlight::Link(_)));
        self.control.cluster = self.control.cluster.take().map(|c| cluster(c, &config));
        let cluster = (self.control.cluster.as_ref(), self.control.resting);
        let mut cta = new_cta(self.now, &config, &self.home_keys, home, entropy, recorder, cluster);
        let mut restored = RestorationOutcome::default();
        if let Some(exact) = exact {
            let disk = StoredUes::read(self.control.disk.iter().map(Vec::as_slice));
            let (ues, whole) = disk.expect("UEs were stored");
            assert!(whole, "each record is read");
            let done = cta.restore_among(self.now, ues, exact, surviving, out);
            restored = done.expect("they are this AMF's");
        }
        self.control.cta = PrimaryCta::new(cta);
        self.observer.core_restarted();
        restored
    }

    /// How many inputs the core's UEs had.
    pub fn inputs(&mut self) -> u64 {
        self.control.cta.inspect().inputs()
    }

    pub(crate) fn cta_output(&mut self, out: Outbox) {
        self.cta_output_of(self.control.pair.host(), out);
    }

    /// The outputs of a CTA's host.
    pub(crate) fn cta_output_of(&mut self, host: u64, mut out: Outbox) {
        self.send_n14(false, &mut out);
        let now = self.now;
        self.observer.tally(&out.events);
        let is_lost =
            |e: &UeEvent| matches!(e.event, Event::Deregistered { why: DeregistrationReason::StateLost, .. });
        out.events.iter().filter(|e| is_lost(e)).for_each(|_| self.ue_is_lost());
        if !self.observer.quiet {
            self.events.ues.extend(out.events.into_iter().map(|e| (now, e)));
            self.events.ran.extend(out.ran_events);
            if !out.upfs.is_empty() {
                self.trace(|| format!("UPFs: {:?}", out.upfs));
            }
        }
        self.ngap_leaves(host, out.ngap);
        for (to, message) in out.cpfs {
            let taken = self.control.cta.durable_messages(to);
            self.link(RegionMessage::Down { to, taken, message });
        }
        self.replicate(false, &out.stored);
        self.control.disk.extend(out.stored.into_iter().filter_map(ToStore::record));
        self.events.cpf_violations.extend(out.cpf_violations);
        self.sap_leaves(host, out.brokers);
        self.udm_leaves(host, out.udm);
        self.charging_leaves(host, out.charging);
        self.policy_leaves(host, out.policy);
        self.remote_amf_gets(out.amf, out.sm_context_answers);
        for cpf in out.drained {
            self.cpf_leaves(cpf);
        }
        for association in out.abort {
            if let Some(gnb) = self.ran.by_association.remove(&association) {
                self.ran.gnbs[gnb.0].association = None;
                self.end_associations(gnb);
            }
        }
        for association in out.probes {
            self.probe(host, association);
        }
        self.pfcp_leaves(host, out.pfcp);
    }

    pub(crate) fn ngap_leaves(&mut self, host: u64, ngap: Vec<(AssociationId, u16, Vec<u8>)>) {
        for (association, stream, octets) in ngap {
            self.trace(|| format!("core to {association:?}: {:?}", whimbrel_ngap::Message::decode(&octets)));
            if let Some(tap) = &mut self.observer.tap {
                tap.push(whimbrel_ngap::Message::decode(&octets).expect("the core writes what can be read"));
            }
            let agreed = TransferSyntax::of(&octets) == association.syntax();
            assert!(agreed || self.observer.has_faulty_cpfs, "each gNB hears what it agreed on");
            let Some(&gnb) = self.ran.by_association.get(&association) else { continue };
            let node = &mut self.ran.gnbs[gnb.0];
            assert!(stream < node.streams.max(1), "stream {stream} of {}", node.streams);
            node.ordered = node.ordered.max(self.now + self.faults.n2_latency(&mut self.rng));
            node.free_at = node.free_at.max(node.ordered) + node.per_message;
            let at = node.free_at;
            self.send(at, InFlight::ToGnb { gnb, association, host, stream, octets });
        }
    }

    /// Keeps what the core sends on N2 from now on.
    pub fn tap(&mut self) {
        self.observer.tap = Some(Vec::new());
    }

    /// Takes what the core has sent on N2 since [`Sim::tap`] or the last call.
    pub fn tapped(&mut self) -> Vec<whimbrel_ngap::Message> {
        self.observer.tap.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
