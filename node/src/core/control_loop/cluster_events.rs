//! What CPFs, the other CTA, etcd and peer AMFs report, and what the control loop does about it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tracing::{info, warn};
use whimbrel_control::sm_contexts::SmfOrder;
use whimbrel_control::udm::NfType;
use whimbrel_control::{AssociationId, Command, UpfId};
use whimbrel_ids::{Instant, PduSessionId, Supi};
use whimbrel_resilience::cta_replica::ReplicaRecord;
use whimbrel_resilience::link::{FunctionAnswer, FunctionOrder, FunctionRequest, ToCtaReplica};
use whimbrel_resilience::membership::CtaInstance;
use whimbrel_resilience::region::Rings;
use whimbrel_resilience::replication::CpfId;
use whimbrel_resilience::sbfd::SbfdChange;
use whimbrel_resilience::{ChargingQuery, CtaOrder, Input, PolicyQuery, UdmQuery};
use whimbrel_sctp_io::AdoptedAssociation;
use whimbrel_store::Changes;

use super::cpf_processes::CpfProcesses;
use super::{ControlLoop, FormerPrimaryState};
use crate::cluster::{FunctionQuery, PairEvent, PoolEvent};
use crate::config::ListedUpf;
use crate::core::n2;
use crate::core::subscriber_copy::SubscriberFeed;
use crate::observation::{Level, Metric};
use crate::sbfd::PeerEvent;
use crate::sbi::{OrderOutcome, SbiInput};

impl ControlLoop {
    /// The primary of a pair begins to serve: gNBs and CPFs of the former primary continue with it. `adopted`: the associations that N2 has from that one.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        taken_over: Option<FormerPrimaryState>,
        adopted: Option<Vec<AdoptedAssociation>>,
    ) {
        let Some(CpfProcesses { pool, pair: Some(pair) }) = &self.cpfs else { return };
        let (term, rings) = (pair.primary.term(), pool.rings());
        let lost: Vec<CpfId> = self.active.unresumed_cpfs().filter(|cpf| !pool.knows(*cpf)).collect();
        let gnbs = self.active.cta().ran_nodes().held_names();
        for held in &gnbs {
            held.gnb.iter().for_each(|gnb| self.observer.inherits(held.name, *gnb));
        }
        if let Some(adopted) = adopted {
            let names: Vec<AssociationId> = gnbs.into_iter().map(|held| held.name).collect();
            self.n2.links.take_over(now, term, []);
            let Some(taken_over) = taken_over else { return self.begin_again(now, adopted, &names) };
            return self.begin_with(now, adopted, &names, (taken_over, rings, lost));
        }
        let down = self.n2.links.take_over(now, term, gnbs);
        let Some(FormerPrimaryState { first, early, .. }) = taken_over else { return };
        self.taken_over(now, term);
        self.announce_takeover(now);
        self.out.append(first);
        self.deliver(now);
        self.handle_input(now, Input::Rings(rings));
        lost.into_iter().for_each(|cpf| self.cpf_lost(now, cpf));
        down.into_iter().for_each(|name| self.handle_input(now, Input::AssociationDown(name)));
        for (physical, stream, octets) in early {
            self.n2_message(now, physical, stream, &octets);
        }
        self.deliver(now);
    }

    /// This CTA goes on with the associations of the former primary on this host, so gNBs notice nothing.
    fn begin_with(
        &mut self,
        now: Instant,
        adopted: Vec<AdoptedAssociation>,
        names: &[AssociationId],
        (taken_over, rings, lost): (FormerPrimaryState, Rings, Vec<CpfId>),
    ) {
        let FormerPrimaryState { mut first, received, .. } = taken_over;
        self.taken_over(now, self.pair().map_or(0, |pair| pair.primary.term()));
        let (count, marks) = (adopted.len(), self.active.take_sent_message_numbers());
        let down = self.continue_associations(now, adopted, names, &received);
        info!(associations = count, lost = down.len(), "the associations of gNBs go on");
        let (messages, marks) = self.unsent(std::mem::take(&mut first.ngap), marks);
        self.send_marked(now, messages, &marks);
        self.out.append(first);
        self.deliver(now);
        self.handle_input(now, Input::Rings(rings));
        lost.into_iter().for_each(|cpf| self.cpf_lost(now, cpf));
        down.into_iter().for_each(|name| self.handle_input(now, Input::AssociationDown(name)));
        self.deliver(now);
    }

    /// This CTA has replaced the former primary.
    fn taken_over(&self, now: Instant, term: u32) {
        let text = format!("This CTA took over from the former primary, as the primary of term {term}.");
        self.console.moment(now, (Level::Warn, "takeover"), "CTA", &text, None);
    }

    /// No CTA of this unit has run any more. The associations of the gNBs that the former one has left by these `names` go on; of the others nothing is known,
    /// and their gNBs learn at once that they have to set up others.
    fn begin_again(&mut self, now: Instant, adopted: Vec<AdoptedAssociation>, names: &[AssociationId]) {
        let is_known =
            |a: &AdoptedAssociation| n2::labelled(a.notes.label).is_some_and(|name| names.contains(&name));
        let (known, unknown): (Vec<AdoptedAssociation>, Vec<AdoptedAssociation>) =
            adopted.into_iter().partition(is_known);
        if !known.is_empty() {
            info!(
                associations = known.len(),
                "the associations of gNBs go on, as the control plane alone has started again"
            );
        }
        self.continue_associations(now, known, names, &BTreeMap::new());
        let Some(transport) = &mut self.n2.transport else { return };
        unknown.iter().for_each(|a| transport.abort(now, a.association));
        transport.flush(now);
        self.deliver(now);
    }

    /// Requests gNBs to remove their associations with the host that this one replaced (TS 38.413 §8.7.3.2).
    pub(super) fn announce_takeover(&mut self, now: Instant) {
        let former = self.pair().map_or(&[][..], |pair| pair.primary.replaced_endpoints());
        if !former.is_empty() {
            let order = CtaOrder::TakenOver(former.to_vec());
            self.execute(now, order);
        }
    }

    /// Sends an input to the CTA replica.
    pub(super) fn replicate(&mut self, now: Instant, record: &ReplicaRecord) {
        if let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs {
            pair.primary.replicate(now, pool, record);
        }
    }

    /// Keeps the subscriber store of the CTA that is or becomes the replica equal to this one's.
    pub(super) fn copy_subscribers(&mut self, now: Instant) {
        let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs else { return };
        let saved = self.active.subscribers().saved();
        if self.config.cluster.host().is_some() {
            return; // both CTAs have one store
        }
        let copies_to = pair.primary.other().or(pool.successor());
        if pair.copies_to != copies_to {
            pair.copies_to = copies_to;
            let store = self.active.subscribers().store();
            pair.feed = copies_to.map(|_| SubscriberFeed::begin(now, store));
        }
        let Some(feed) = &mut pair.feed else { return };
        if !saved.is_empty() {
            feed.changed(&Changes::Some(saved));
        }
        match feed.next(now, self.active.subscribers().store()) {
            Ok(Some(excerpt)) => pool.send_to_replica(&ToCtaReplica::Subscribers(excerpt.octets())),
            Ok(None) => {}
            Err(e) => self.observer.store(now, Err(e.to_string())),
        }
    }

    /// Takes what CPFs and the CTA replica sent. Returns whether there was anything.
    pub(super) fn receive_from_pool(&mut self, now: Instant) -> bool {
        let Some(cpfs) = &mut self.cpfs else { return false };
        let events = cpfs.pool.turn(now);
        let busy = !events.is_empty();
        for event in events {
            self.pool_event(now, event);
        }
        busy
    }

    fn pool_event(&mut self, now: Instant, event: PoolEvent) {
        match event {
            PoolEvent::Up(cpf, up) => self.handle_input(now, Input::Cpf(cpf, up)),
            PoolEvent::Rings(rings) => self.handle_input(now, Input::Rings(rings)),
            PoolEvent::Lost(cpf) => self.cpf_lost(now, cpf),
            PoolEvent::LostRepeatedly(cpf) => self.handle_input(now, Input::CpfLost(cpf)),
            PoolEvent::UesShown(reply, ues) => self.answer_query(now, reply, ues),
            PoolEvent::Confirmed(cpf, messages) => self.active.confirmed(cpf, messages),
            PoolEvent::Resumes(cpf, has) => self.resume(now, cpf, has),
            PoolEvent::Disconnected(cpf) => {
                self.out.cpfs.retain(|(to, _)| *to != cpf); // its link keeps them
                self.active.suspend_cpf(cpf);
            }
            PoolEvent::FromUpf(octets) => self.receive_from_own_upf(now, &octets),
            PoolEvent::ForUpfAgain(messages) => {
                let upf = self.own_upf();
                upf.iter()
                    .for_each(|upf| messages.iter().for_each(|octets| self.send_pfcp(now, *upf, octets)));
            }
            PoolEvent::FunctionAnswered(FunctionQuery { ue, to, request }, answer) => {
                let input = match (request, answer) {
                    (FunctionRequest::Udm(request), FunctionAnswer::Udm(answer)) => {
                        Input::Udm(ue, to, Box::new((request, answer)))
                    }
                    (_, FunctionAnswer::Pcf(answer)) => Input::Policy(ue, to, Box::new(answer)),
                    (_, FunctionAnswer::Chf(answer)) => Input::Charging(ue, to, Box::new(answer)),
                    // The pool has compared them.
                    (_, FunctionAnswer::Udm(_)) => return,
                };
                self.handle_input(now, input);
            }
            PoolEvent::FunctionOrdered(link, number, order) => {
                match order {
                    FunctionOrder::Policy { supi, psi, notification } => {
                        if let Some(ue) = self.active.cta().find_sessions(supi) {
                            self.handle_input(now, Input::PolicyNotified(ue, psi, Box::new(notification)));
                        }
                    }
                    FunctionOrder::Charging { supi, psi, abort } => {
                        self.charging_ordered(now, supi, psi, abort);
                    }
                }
                self.cpfs.iter_mut().for_each(|cpfs| cpfs.pool.order_taken(link, number));
            }
            PoolEvent::FromReplica(message) => {
                if let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs {
                    pair.primary.handle_replica_message(now, message, &mut self.active, pool, &mut self.out);
                }
            }
            PoolEvent::SuccessorOffered(instance, endpoints, smf) => {
                self.successor_offered(now, Some((instance, endpoints, smf)));
            }
            PoolEvent::SuccessorLost => self.successor_offered(now, None),
            PoolEvent::CtaReplicaLost => {
                if let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs {
                    pair.primary.cta_replica_lost(&mut self.active, pool, &mut self.out);
                }
            }
        }
    }

    /// Takes what S-BFD found of UPFs and others. Returns whether there was anything.
    pub(super) fn receive_from_sbfd(&mut self, now: Instant) -> bool {
        let Some(peers) = &mut self.sbfd_peers else { return false };
        let events = peers.turn(now);
        for PeerEvent { name, address, change } in &events {
            let (level, text) = match change {
                SbfdChange::Up => (Level::Info, "It answers."),
                SbfdChange::Failed => {
                    (Level::Warn, "It does not answer: the node, or the path to it, has failed.")
                }
                SbfdChange::OutOfService => (Level::Info, "It says that it is out of service."),
            };
            self.console.moment(now, (level, "sbfd"), &format!("S-BFD peer {name}"), text, None);
            let is_it =
                |upf: &ListedUpf| upf.name == *name || upf.address.is_some_and(|at| at.ip() == address.ip());
            let upf = self.config.upfs.iter().position(|upf| upf.address.is_some() && is_it(upf));
            if let (SbfdChange::Failed, Some(upf)) = (change, upf.and_then(|n| u8::try_from(n).ok())) {
                self.execute(now, CtaOrder::UpfUnreachable(UpfId(upf)));
            }
        }
        !events.is_empty()
    }

    /// Takes what peer AMFs sent. Returns whether there was anything.
    pub(super) fn receive_from_peer_amfs(&mut self, now: Instant) -> bool {
        let Some(peer_amfs) = &mut self.peer_amfs else { return false };
        let messages = peer_amfs.turn(now);
        for (from, octets) in &messages {
            self.handle_input(now, Input::PeerAmf(*from, octets));
        }
        !messages.is_empty()
    }

    /// Has UEs that have changed sent to peer AMFs, ahead of their way there.
    pub(super) fn replicate_to_peer_amfs(&mut self, now: Instant) {
        if let Some(all) = self.peer_amfs.as_mut().and_then(|peer_amfs| peer_amfs.replicates(now)) {
            self.execute(now, CtaOrder::StoreUes { all });
        }
    }

    /// Takes answers of brokers. Returns whether there were any.
    pub(super) fn receive_from_brokers(&mut self, now: Instant) -> bool {
        let open = self.brokers.iter_mut().flat_map(|brokers| brokers.turn());
        let veil = self.veil.iter_mut().flat_map(|veil| veil.turn());
        let answers: Vec<_> = open.chain(veil).collect();
        let orders: Vec<_> = self.veil.iter_mut().flat_map(|veil| veil.commands()).collect();
        let busy = !answers.is_empty() || !orders.is_empty();
        for (ue, to, answer) in answers {
            self.handle_input(now, Input::Broker(ue, to, answer));
        }
        for (ue, order) in orders {
            self.handle_input(now, Input::Command(ue, order));
        }
        busy
    }

    /// Takes answers and notifications of other network functions. Returns whether there were any.
    pub(super) fn receive_from_network_functions(&mut self, now: Instant) -> bool {
        let Some(functions) = &mut self.network_functions else { return false };
        let inputs = functions.turn();
        let busy = !inputs.is_empty();
        for input in inputs {
            match input {
                SbiInput::Answer(ue, to, exchange) => self.handle_input(now, Input::Udm(ue, to, exchange)),
                SbiInput::Charged(ue, to, answer) => self.handle_input(now, Input::Charging(ue, to, answer)),
                SbiInput::ChargingNotified { supi, psi, abort } => {
                    self.charging_ordered(now, supi, psi, abort);
                }
                SbiInput::Decided(ue, to, answer) => self.handle_input(now, Input::Policy(ue, to, answer)),
                SbiInput::PolicyNotified { supi, psi, notification, taken } => {
                    let ue = self.active.cta().find_sessions(supi);
                    if let Some(ue) = ue {
                        self.handle_input(now, Input::PolicyNotified(ue, psi, notification));
                    }
                    // The request may have ended meanwhile.
                    let _ = taken.send(ue.is_some());
                }
                SbiInput::SmContext(ue, to, psi, answer) => {
                    self.handle_input(now, Input::SmContext(ue, to, psi, answer));
                }
                SbiInput::SmfOrdered { supi, psi, order, taken } => {
                    let outcome = self.smf_ordered(now, supi, psi, order);
                    // The request may have ended meanwhile.
                    let _ = taken.send(outcome);
                }
                SbiInput::SmContextRequested { operation, reply } => {
                    let functions = self.network_functions.as_mut();
                    // Without room the request is refused as its reply is dropped.
                    let request = functions.and_then(|functions| functions.begin_exchange(operation, reply));
                    if let Some(request) = request {
                        self.handle_input(now, Input::SmContextRequested(request.into()));
                    }
                }
                SbiInput::Transferred(ue, answer) => {
                    self.handle_input(now, Input::TransferAnswered(ue, answer));
                }
                SbiInput::Deregistered(supi) => self.handle_input(now, Input::DeregisteredByUdm(supi)),
                SbiInput::SubscriptionChanged(supi) => {
                    self.handle_input(now, Input::SubscribersChanged(Some(&[supi])));
                }
            }
        }
        busy
    }

    /// Passes requests on to the network functions that are processes of this unit.
    pub(super) fn ask_own_functions(&mut self, now: Instant) {
        let Some(CpfProcesses { pool, .. }) = &mut self.cpfs else { return };
        if pool.has_function(NfType::Udm) {
            for UdmQuery { ue, to, request } in self.out.udm.drain(..) {
                pool.ask_function(now, FunctionQuery { ue, to, request: FunctionRequest::Udm(request) });
            }
        }
        if pool.has_function(NfType::Pcf) {
            for PolicyQuery { ue, to, request } in self.out.policy.drain(..) {
                pool.ask_function(now, FunctionQuery { ue, to, request: FunctionRequest::Pcf(request) });
            }
        }
        if pool.has_function(NfType::Chf) {
            for ChargingQuery { ue, to, request } in self.out.charging.drain(..) {
                pool.ask_function(now, FunctionQuery { ue, to, request: FunctionRequest::Chf(request) });
            }
        }
    }

    /// Another vendor's SMF has an order for a session.
    fn smf_ordered(
        &mut self,
        now: Instant,
        supi: Supi,
        psi: PduSessionId,
        order: Box<SmfOrder>,
    ) -> OrderOutcome {
        let Some(ue) = self.active.cta().find(supi) else { return OrderOutcome::Unknown };
        let is_connected = self.active.cta().is_connected(ue);
        let skip = matches!(&*order, SmfOrder::Transfer(message) if message.skip);
        self.handle_input(now, Input::SmfOrdered(ue, psi, order));
        match (is_connected, skip) {
            (true, _) => OrderOutcome::Sent,
            (false, true) => OrderOutcome::NotSent,
            (false, false) => OrderOutcome::Paging,
        }
    }

    /// The CHF has an order for a session.
    fn charging_ordered(&mut self, now: Instant, supi: Supi, psi: PduSessionId, abort: bool) {
        let order = if abort { Command::AbortCharging(psi) } else { Command::ReportCharging(psi) };
        if let Some(ue) = self.active.cta().find_sessions(supi) {
            self.handle_input(now, Input::Command(ue, order));
        }
    }

    /// A CPF of the former primary CTA resumes: both sides repeat what the other one lacks.
    fn resume(&mut self, now: Instant, cpf: CpfId, has: u64) {
        let again = self.active.resume(cpf, has);
        let Some(CpfProcesses { pool, .. }) = &mut self.cpfs else { return };
        match again {
            Some(again) => {
                pool.resumed(cpf, self.active.durable_messages(cpf));
                again.into_iter().for_each(|message| pool.send(cpf, message));
            }
            None => {
                pool.forget(cpf);
                self.receive_from_pool(now);
            }
        }
    }

    /// Does what etcd's records of this CTA and the other one ask for.
    pub(super) fn follow_etcd(&mut self, now: Instant) {
        let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs else { return };
        for event in pair.primary.turn(now, &mut self.active, pool, &mut self.out) {
            match event {
                PairEvent::Order(order) => drop(self.execute(now, order)),
                PairEvent::Replaced => {
                    if let Some(CpfProcesses { pair: Some(pair), .. }) = &mut self.cpfs {
                        pair.replaced = true;
                    }
                }
            }
        }
        for name in self.n2.links.tick(now) {
            warn!(association = name.0, "a gNB of the former primary CTA did not connect here in time");
            self.handle_input(now, Input::AssociationDown(name));
        }
        for (association, peer) in self.n2.links.silent(now) {
            self.console.metrics.add(Metric::NgSetupTimeouts, 1);
            info!(%peer, "an association is aborted: its gNB has not sent its identity within 30 s");
            self.abort_unnamed(now, association);
        }
        if let Some(CpfProcesses { pool, .. }) = &mut self.cpfs {
            pool.confirm_messages(|cpf| self.active.durable_messages(cpf));
        }
        self.acknowledge();
    }

    /// Other CPFs take over the UEs of a CPF that is lost.
    fn cpf_lost(&mut self, now: Instant, cpf: CpfId) {
        let before = self.active.cta().replication_counters();
        self.handle_input(now, Input::CpfLost(cpf));
        let after = self.active.cta().replication_counters();
        let (taken_over, lost) = (after.taken_over - before.taken_over, after.lost - before.lost);
        let text = format!("It is lost: {taken_over} UEs were taken over at once, {lost} were lost.");
        self.console.moment(now, (Level::Warn, "lost"), &format!("CPF {}", cpf.0), &text, None);
        info!(
            cpf = cpf.0,
            taken_over = after.taken_over - before.taken_over,
            replayed = after.replayed - before.replayed,
            lost = after.lost - before.lost,
            "the UEs of a lost CPF are served by other CPFs"
        );
    }

    /// A CTA that runs other code waits until this one stops; `None`: it no longer does. gNBs and UPFs have to know its addresses
    /// by then.
    fn successor_offered(&mut self, now: Instant, successor: Option<(CtaInstance, Vec<IpAddr>, IpAddr)>) {
        if let (Some((instance, ..)), Some(CpfProcesses { pool, pair: Some(pair) })) =
            (&successor, &mut self.cpfs)
            && !pair.primary.witness().lists(*instance)
        {
            return pool.disconnect_replica(); // it connects again
        }
        let own = self.config.n4.node_id;
        let (endpoints, smf) = successor.map_or_else(Default::default, |(_, at, smf)| (at, vec![smf, own]));
        self.execute(now, CtaOrder::Endpoints(endpoints));
        if !smf.is_empty() {
            self.execute(now, CtaOrder::SmfAddresses(smf));
        }
    }
}
