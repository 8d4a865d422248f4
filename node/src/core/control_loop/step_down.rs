//! How the control loop ends: the core stops, or the CTA hands over to its replica, to a CTA that runs other code, or stops because another
//! CTA has taken over already.

use std::time::Duration;

use tracing::{info, warn};
use whimbrel_control::UpfId;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::{CtaOrder, Input};
use whimbrel_sctp_io::Event;

use super::ControlLoop;
use super::cpf_processes::CpfProcesses;
use crate::clock;
use crate::cluster::{PairEvent, PairReplica, PoolEvent};
use crate::core::control_thread::{NOT_PAIRED, Parts, StopRequest};
use crate::core::n2;
use crate::core::smf_n4::SmfN4;
use crate::core::upf::LocalUpf;
use crate::entropy::SystemEntropy;
use crate::observation::capture::Capture;

/// How long gNBs have to end their associations with a CTA that its replica has replaced.
const GNBS_LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// How long the CTA replica has to take over from a CTA that stops in order.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);
/// How long the transfer of the state to a CTA that runs other code may take, while inputs wait: UEs repeat their messages after seconds.
const TRANSFERRED_WITHIN: Duration = Duration::from_secs(5);
/// When the core stops, its UEs end their procedures to be written to the disk. How long there may be no further one that has, and how long that may
/// take in all: less than a manager waits for a CTA.
const NO_UE_KEPT_WITHIN: Duration = Duration::from_secs(2);
const UES_KEPT_WITHIN: Duration = Duration::from_secs(10);
/// How often CPFs are asked for the states of all their UEs meanwhile, at most, and how long they may take to send them.
const UES_ASKED_EVERY: Duration = Duration::from_millis(20);
const UES_SENT_WITHIN: Duration = Duration::from_secs(2);
/// How long external SMFs have to move their sessions away when this UPF stops.
const SMFS_LEAVE_WITHIN: Duration = Duration::from_secs(10);

impl ControlLoop {
    /// Another CTA has taken over: what waits here is dropped, and this CTA becomes the replica.
    pub(super) fn become_replica(self) -> Result<(Parts, Box<PairReplica>), String> {
        warn!("another CTA has taken over: this one is its replica from now on");
        let Self { config, console, cpfs, mut n2, upfs, reflector, home, .. } = self;
        let Some(CpfProcesses { pool, pair: Some(pair) }) = cpfs else { return Err(NOT_PAIRED.into()) };
        drop(pool);
        n2.abort_all();
        let of = config.cluster.pair.as_ref().ok_or(NOT_PAIRED)?;
        let endpoints = (config.n2.addresses.clone(), config.n4.node_id);
        let before = Some(pair.primary);
        let replica = PairReplica::open(of, &config.cluster, endpoints, before, console.clone())?;
        let parts = Parts {
            store: crate::subscribers::open(&config.store)?,
            entropy: SystemEntropy::new()?,
            smf_n4: upfs.n4,
            reflector,
            upf: upfs.local,
            capture: None,
            config,
            console,
            n2: n2.transport,
            remembered_in: n2.remembered_in,
            added_ues: 0,
            home: home.map(|home| home.link()),
            at_promotion: None,
        };
        Ok((parts, Box::new(replica)))
    }

    /// Another CTA of this unit has taken over: this process ends, and the manager starts it again.
    pub(super) fn end_as_replaced(mut self) {
        warn!("another CTA of this unit has taken over: this one ends, and is started again as its replica");
        if !self.config.cluster.host().is_some_and(|host| host.shares_n2) {
            self.n2.abort_all();
        }
    }

    /// Has the CTA replica take over before this CTA stops, if there is one: UEs then notice nothing.
    pub(super) fn hand_over(&mut self, stop: &StopRequest) {
        self.transfer_state(stop);
        let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs else { return };
        if !pair.primary.has_cta_replica() {
            return;
        }
        info!("the CTA replica takes over");
        pool.disconnect_replica();
        let until = clock::now() + HANDED_OVER_WITHIN;
        while !pair.replaced && clock::now() < until && !stop.is_at_once() {
            std::thread::sleep(Duration::from_millis(1));
            pair.replaced = pair.primary.has_handed_over();
        }
        if self.config.cluster.host().is_some_and(|host| host.shares_n2) {
            return; // the new primary has this endpoint from now on
        }
        let Some(transport) = self.n2.transport.as_mut().filter(|_| pair.replaced) else { return };
        // The new primary requests gNBs to remove this CTA. Those that are not connected to it learn it by the end of their
        // association.
        let until = clock::now() + GNBS_LEAVE_WITHIN;
        while self.n2.links.all().next().is_some() && clock::now() < until && !stop.is_at_once() {
            let now = clock::now();
            transport.drain(now, &mut self.n2.events);
            for event in self.n2.events.iter() {
                if let Event::Down { association, .. } = event {
                    self.n2.links.down(association);
                }
            }
            transport.flush(now);
            std::thread::sleep(Duration::from_millis(1));
        }
        n2::end_associations(transport, stop);
    }

    /// A CTA that runs other code cannot replicate inputs, so it gets the whole state once no further input is taken. Meanwhile messages of
    /// gNBs stay unacknowledged and those of CPFs stay with them: both send them to the next primary.
    fn transfer_state(&mut self, stop: &StopRequest) {
        let until = clock::now() + TRANSFERRED_WITHIN;
        let offer = self.cpfs.as_mut().and_then(|cpfs| cpfs.pool.take_offer(clock::now()));
        let Some(offer) = offer else { return };
        info!("the waiting CTA takes over: this one transfers its state");
        self.deliver(clock::now());
        if let Some(transport) = &mut self.n2.transport {
            transport.flush(clock::now());
            // The kernel's SCTP acknowledges by itself: what it receives from now on is lost, as in any loss of a CTA.
            transport.hold_acknowledgements(true);
        }
        if let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs {
            pair.primary.allow_snapshot_now();
            let now = clock::now();
            pair.primary.handle_replica_message(now, offer, &mut self.active, pool, &mut self.out);
        }
        while clock::now() < until && !self.is_replaced() && !stop.is_at_once() {
            let now = clock::now();
            self.copy_subscribers(now);
            let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs else { return };
            let primary = &mut pair.primary;
            let copied = pair.feed.as_ref().is_none_or(|feed| feed.due().is_none());
            if copied && primary.has_cta_replica() {
                return;
            }
            for event in pool.turn(now) {
                match event {
                    PoolEvent::FromReplica(message) => {
                        primary.handle_replica_message(now, message, &mut self.active, pool, &mut self.out);
                    }
                    PoolEvent::CtaReplicaLost => {
                        primary.cta_replica_lost(&mut self.active, pool, &mut self.out);
                        return warn!("the CTA that was to take over is lost");
                    }
                    _ => {} // an input: its sender repeats it
                }
            }
            for event in primary.turn(now, &mut self.active, pool, &mut self.out) {
                match event {
                    PairEvent::Order(_) => {} // gNBs and UPFs know these addresses already
                    PairEvent::Replaced => pair.replaced = true,
                }
            }
            pool.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
        warn!("the CTA that was to take over is not ready in time");
    }

    /// Ends in order: gNBs get AMF STATUS INDICATION and their associations end, then external SMFs leave this UPF.
    pub(super) fn close(&mut self, stop: &StopRequest) {
        let now = clock::now();
        // TS 29.244 §6.2.8.2: sessions at external UPFs end with this run of the SMF, unless the next one knows them.
        self.execute(now, CtaOrder::Retire);
        self.deliver(now);
        let kept = self.keep_ues(stop);
        let external: Vec<UpfId> = self.upfs.n4.iter().flat_map(SmfN4::outside).filter(|_| !kept).collect();
        for upf in external {
            self.execute(now, CtaOrder::ReleaseUpf(upf));
        }
        self.out.upfs.clear(); // a core that stops has no condition
        self.deliver(now);
        if let Some(transport) = &mut self.n2.transport {
            transport.hold_acknowledgements(false);
            n2::end_associations(transport, stop);
        }
        self.release_smfs(stop);
        self.capture_datagrams();
        if let Some(Err(sentence)) = self.capture.as_mut().map(Capture::flush) {
            warn!("{sentence}");
        }
    }

    /// Writes the registered UEs to the disk for the next start. They are idle then, as their gNBs are about to be disconnected. Returns whether the next
    /// start has them.
    fn keep_ues(&mut self, stop: &StopRequest) -> bool {
        if self.stored_ues.is_none() || stop.is_at_once() {
            return false;
        }
        // gNBs get AMF STATUS INDICATION before UEs become idle, and are not listened to any more.
        let mut transport = self.n2.transport.take();
        transport.iter_mut().for_each(|n2| n2.flush(clock::now()));
        let associations: Vec<_> = self.active.cta().associations().collect();
        for association in associations {
            self.handle_input(clock::now(), Input::AssociationDown(association));
        }
        self.deliver(clock::now());
        self.out.ngap.clear();
        let begun = clock::now();
        let (mut until, mut kept) = (begun + NO_UE_KEPT_WITHIN, 0);
        // When CPFs were asked last, and when they may be asked next.
        let (mut asked, mut next) = (None, begun);
        while clock::now() < until && !stop.is_at_once() {
            let now = clock::now();
            let cpfs: Vec<CpfId> = self.active.cta().trusted_cpfs().collect();
            let registered = self.active.cta().registered();
            let Some(file) = &mut self.stored_ues else { break };
            if file.collected() > kept {
                kept = file.collected();
                until = (now + NO_UE_KEPT_WITHIN).min(begun + UES_KEPT_WITHIN);
            }
            if let Some(at) = asked
                && file.have_sent(&cpfs)
            {
                if kept >= registered {
                    break;
                }
                // Half of the time is left for the procedures.
                (asked, next) = (None, at + UES_ASKED_EVERY.max(now.since(at) * 2));
            }
            if now >= next {
                file.collect();
                self.execute(now, CtaOrder::StoreUes { all: true });
                (asked, next) = (Some(now), now + UES_SENT_WITHIN);
            }
            self.turn(now);
            std::thread::sleep(Duration::from_millis(1));
        }
        self.n2.transport = transport;
        let (amf, registered) = (self.active.cta().stored_amf(), self.active.cta().registered());
        let Some(file) = &mut self.stored_ues else { return false };
        file.end(&amf, registered, &self.console)
    }

    /// Asks external SMFs to move their sessions to other UPFs, and waits for them (TS 29.244 §6.2.8.3).
    fn release_smfs(&mut self, stop: &StopRequest) {
        let until = clock::now() + SMFS_LEAVE_WITHIN;
        // A successor repeats what is kept in a state.
        let Some(upf) = self.upfs.local.as_mut().filter(|u| !u.keeps_state()) else { return };
        upf.give_up_kept_reports(clock::now());
        // None is asked, and nothing is waited for, of an SMF that is silent.
        if !upf.serves_others() {
            return;
        }
        info!("SMFs are asked to move their sessions to other UPFs");
        upf.retire(clock::now(), SMFS_LEAVE_WITHIN);
        let serves = |upf: &Option<LocalUpf>| upf.as_ref().is_some_and(LocalUpf::serves_others);
        while clock::now() < until && serves(&self.upfs.local) && !stop.is_at_once() {
            let now = clock::now();
            if let Some(upf) = &mut self.upfs.local {
                upf.turn(now, &mut self.upfs.answers);
            }
            self.upfs.answers.clear();
            self.timing.housekeeping = now + Duration::from_millis(50);
            self.block(now);
        }
    }
}
