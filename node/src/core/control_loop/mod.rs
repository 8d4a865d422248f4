//! The control loop: N2, the CTA with its UEs, N4 and the console's commands, run to completion on one thread.
//!
//! One turn takes what has arrived, runs everything that it causes and sends all of it. Then the loop spins a little, because the
//! next message of a busy gNB is microseconds away, and then blocks until a descriptor or a deadline is ready.

mod captures;
mod cluster_events;
mod cpf_processes;
mod home;
mod housekeeping;
mod n2_events;
mod operations;
mod start;
mod step_down;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::info;
use whimbrel_control::open::BrokerQuestion;
use whimbrel_control::{AssociationId, Event, UpfId};
use whimbrel_ids::Instant;
use whimbrel_link::Spin;
use whimbrel_resilience::cta_replica;
use whimbrel_resilience::{CtaOrder, Input, OrderOutcome, Outbox};
use whimbrel_sctp_io::Transport;

use self::cpf_processes::{CpfProcesses, PrimaryOfPair};
use self::housekeeping::HOUSEKEEPING;
use self::n2_events::N2;
use super::added_ues::AddedUes;
use super::control_thread::{Parts, SPIN, StopRequest};
use super::core_time::CoreTime;
use super::drain_orders::DrainOrders;
use super::early::EarlyMessage;
use super::foresight::Foresight;
use super::home_link::HomeExchange;
use super::recording::InputRecorder;
use super::smf_n4::SmfN4;
use super::stored_ues::StoredUeFile;
use super::subscriber_copy::SubscriberFeed;
use super::subscribers::StoredSubscribers;
use super::upf::LocalUpf;
use crate::clock;
use crate::cluster::{CpfPool, PairPrimary, PairReplica, PeerAmfs, SentToUpf, log_protocol_violation};
use crate::config::{Config, NetworkTimeZone};
use crate::entropy::SystemEntropy;
use crate::function::descriptors;
use crate::observation::Console;
use crate::observation::capture::Capture;
use crate::observation::observer::Observer;
use crate::open::Brokers;
use crate::sbfd::{ReflectorThread, SbfdPeers};
use crate::sbi::NetworkFunctions;
use crate::ue_memory::UeMemory;
use crate::veil::{VeilUeQuestion, VeiledUes};

/// PFCP datagrams of external UPFs that are taken in one turn, so that a flood does not keep UEs waiting.
const N4_PER_TURN_MAX: usize = 64;

/// The CTA while it is the primary.
pub(super) type PrimaryCta = cta_replica::PrimaryCta<StoredSubscribers, SystemEntropy, CoreTime>;

/// What a CTA that has taken over has of the former primary.
struct FormerPrimaryState {
    /// What that one may not have sent.
    first: Outbox,
    /// Messages of gNBs that may have been for it.
    early: Vec<EarlyMessage>,
    /// The last message that the replica had of each association, if it came since the snapshot.
    received: BTreeMap<AssociationId, u64>,
}

/// The UPFs that this process's SMF uses.
struct Upfs {
    /// The UPF of this process.
    local: Option<LocalUpf>,
    /// Its number in the SMF's configuration.
    local_id: Option<UpfId>,
    /// N4 with external UPFs.
    n4: Option<SmfN4>,
    /// PFCP messages of the local UPF; reused from turn to turn.
    answers: Vec<Vec<u8>>,
}

/// When what is due, and how long turns take.
struct Timing {
    housekeeping: Instant,
    census: Instant,
    /// When the last turn ended.
    turned: Instant,
    /// The longest turn since the last housekeeping: what arrives at its beginning waits until its end.
    longest_turn: Duration,
}

/// All that the control thread works on.
pub(super) struct ControlLoop {
    config: Arc<Config>,
    console: Arc<Console>,
    observer: Observer,
    active: PrimaryCta,
    /// CPFs that are processes of their own; `None`: UEs are served in this process, or not at all.
    cpfs: Option<CpfProcesses>,
    upfs: Upfs,
    /// The memory of UEs at rest; `None`: UEs do not rest.
    memory: Option<UeMemory>,
    added_ues: AddedUes,
    /// UPFs and others that S-BFD probes.
    sbfd_peers: Option<SbfdPeers>,
    /// Answers S-BFD probes to this host.
    reflector: Option<ReflectorThread>,
    /// The links to other AMFs of this network (N14).
    peer_amfs: Option<PeerAmfs>,
    /// The brokers whose users are served.
    brokers: Option<Brokers>,
    /// Network functions of other vendors.
    network_functions: Option<NetworkFunctions>,
    /// Registered UEs on the disk, for the next start.
    stored_ues: Option<StoredUeFile>,
    /// The operator's orders to drain UPFs, for the next start; `None`: this process has no SMF.
    drain_orders: Option<DrainOrders>,
    /// The exchange with other homes of the same subscribers.
    home: Option<HomeExchange>,
    /// The prediction of handovers.
    foresight: Option<Foresight>,
    /// The broker of veiled UEs.
    veil: Option<VeiledUes>,
    n2: N2,
    /// CPFs, and UPFs of restored sessions, are awaited, and N2 opens at that time at the latest: gNBs would send UEs that nothing serves. `None`: N2 is open.
    n2_opens_by: Option<Instant>,
    capture: Option<Capture>,
    /// Records the inputs, in a build for demonstrations.
    recorder: Option<InputRecorder>,
    /// The gNBs and UPFs, as the runtime directory of the unit has them for the next CTA.
    kept_peers: Vec<u8>,
    /// Reused from turn to turn.
    out: Outbox,
    timing: Timing,
    /// Version of the configuration in force; envelopes name it.
    version: u32,
    /// The time zone whose offset UEs have.
    time_zone: NetworkTimeZone,
}

impl ControlLoop {
    /// The CTA takes an input, which goes to the CTA replica, too.
    fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        let (active, out) = (&mut self.active, &mut self.out);
        let recorded =
            self.recorder.as_ref().map(|r| r.before(now, &input, active.subscribers().store(), out));
        let record = match &self.cpfs {
            Some(CpfProcesses { pair: Some(pair), .. }) => {
                pair.watchdog.during(|| active.handle(now, input, out))
            }
            Some(CpfProcesses { pair: None, .. }) | None => active.handle(now, input, out),
        };
        if let Some(step) = recorded {
            self.recorder = self.recorder.take().and_then(|recorder| recorder.after(step, &self.out));
        }
        if let Some(record) = record {
            self.replicate(now, &record);
        }
    }

    /// The CTA executes an order, which goes to the CTA replica, too.
    fn execute(&mut self, now: Instant, order: CtaOrder) -> OrderOutcome {
        if self.recorder.take().is_some() {
            info!("the recording of inputs ends here: it cannot hold an order");
        }
        let (ordered, record) = self.active.order(now, order, &mut self.out);
        if let Some(record) = record {
            self.replicate(now, &record);
        }
        ordered
    }

    /// Serves until the core stops. Returns what the replica of the new primary needs if another CTA has taken over.
    /// Errors: why this CTA cannot become the replica, in one sentence.
    pub(super) fn run(mut self, stop: &StopRequest) -> Result<Option<(Parts, Box<PairReplica>)>, String> {
        let mut spin = Spin::new(SPIN);
        while !stop.is_asked() && !self.is_replaced() {
            if self.turn(clock::now()) {
                spin.came(clock::now());
            } else if spin.looks_again(clock::now()) {
                std::hint::spin_loop();
            } else {
                self.block(clock::now());
            }
        }
        if self.is_replaced() && self.config.cluster.host().is_some() {
            self.end_as_replaced();
            return Ok(None);
        }
        if self.is_replaced() {
            return self.become_replica().map(Some);
        }
        self.hand_over(stop);
        if !self.is_replaced() {
            self.close(stop);
        }
        if let Some(CpfProcesses { pair: Some(pair), .. }) = self.cpfs {
            pair.primary.leave();
        }
        Ok(None)
    }

    /// The state that this CTA has as the primary of a pair.
    fn pair(&self) -> Option<&PrimaryOfPair> {
        self.cpfs.as_ref()?.pair.as_ref()
    }

    /// True if another CTA has taken over.
    fn is_replaced(&self) -> bool {
        self.pair().is_some_and(|pair| pair.replaced)
    }

    /// Sends what waits. CPFs go first: they work while the sockets take the rest. That outputs have left is reported last: this process may end
    /// between any two of these steps.
    fn flush(&mut self, now: Instant) {
        if let Some(cpfs) = &mut self.cpfs {
            cpfs.pool.flush();
        }
        if let Some(n2) = &mut self.n2.transport {
            n2.flush(now);
        }
        if let Some(peer_amfs) = &mut self.peer_amfs {
            peer_amfs.flush();
        }
        if let Some(CpfProcesses { pool, pair: Some(pair) }) = &mut self.cpfs
            && self.n2.has_sent(now)
        {
            pair.primary.outputs_sent(&mut self.active, pool);
        }
    }

    /// One turn. Returns whether anything arrived.
    fn turn(&mut self, now: Instant) -> bool {
        descriptors::turned();
        self.active.inspect().begin();
        if let Some(CpfProcesses { pair: Some(pair), .. }) = &mut self.cpfs
            && pair.primary.record_stall(
                now.since(self.timing.turned),
                self.active.last(),
                self.active.waiting(),
            )
        {
            self.timing.housekeeping = now; // its input goes to the CTA replica, which has to confirm it
        }
        let mut busy = self.n2_is_open(now) && self.receive_n2(now);
        while let Some(command) = self.console.commands.take() {
            self.command(now, command);
            busy = true;
        }
        busy |= self.receive_from_pool(now);
        busy |= self.receive_from_sbfd(now);
        busy |= self.receive_from_peer_amfs(now);
        busy |= self.receive_from_brokers(now);
        busy |= self.receive_from_network_functions(now);
        self.follow_etcd(now);
        self.copy_subscribers(now);
        if self.active.next_deadline() <= now {
            self.handle_input(now, Input::Tick);
        }
        if let Some(upf) = &mut self.upfs.local {
            busy |= upf.turn(now, &mut self.upfs.answers);
        }
        busy |= self.receive_from_external_upfs(now);
        self.exchange_with_homes(now);
        self.capture_datagrams();
        self.foresee(now);
        self.replicate_to_peer_amfs(now);
        self.deliver(now);
        if now >= self.timing.housekeeping {
            self.housekeeping(now);
            self.deliver(now);
            self.timing.housekeeping = now + HOUSEKEEPING;
        }
        self.flush(now);
        if busy {
            self.timing.longest_turn = self.timing.longest_turn.max(clock::now().since(now));
        }
        let observer = &self.observer;
        self.active.inspect().end(|procedure, spent| observer.worked(procedure, spent));
        if let Some(memory) = &mut self.memory {
            let more = memory.turn(now, busy, self.active.cpf_mut());
            busy |= more;
        }
        if !self.memory.as_ref().is_some_and(UeMemory::is_full) {
            busy |= self.added_ues.turn(now, &mut self.active);
        }
        if self.pair().is_some() {
            self.timing.turned = clock::now();
        }
        busy
    }

    /// Whether gNBs are listened to: from when the first CPF has joined, the UPF of this unit answers, and restored sessions have their UPFs.
    fn n2_is_open(&mut self, now: Instant) -> bool {
        let cta = self.active.cta();
        let upf_starts = self.own_upf().is_some() && !cta.upf_is_up();
        let waits = |by: Instant| {
            now < by && (cta.trusted_cpfs().next().is_none() || cta.awaits_upfs() || upf_starts)
        };
        self.n2_opens_by = self.n2_opens_by.filter(|by| waits(*by));
        self.n2_opens_by.is_none()
    }

    /// Predictions that are due become inputs of their UEs' machines.
    fn foresee(&mut self, now: Instant) {
        for (ue, gnb, tai) in self.foresight.as_mut().map(|f| f.due(now)).unwrap_or_default() {
            self.handle_input(now, Input::Predicted(ue, gnb, tai));
        }
    }

    /// Takes what external UPFs sent, a bounded number of datagrams. Returns whether there were any.
    fn receive_from_external_upfs(&mut self, now: Instant) -> bool {
        let mut busy = false;
        self.upfs.n4.iter_mut().for_each(SmfN4::flush);
        for _ in 0..N4_PER_TURN_MAX {
            let Some((upf, from, octets)) = self.upfs.n4.as_mut().and_then(SmfN4::receive) else { break };
            if let (Some(capture), Some(n4)) = (&mut self.capture, &self.upfs.n4) {
                capture.udp(now, from, n4.at(), &octets);
            }
            self.pfcp_message(now, upf, &octets);
            busy = true;
        }
        busy
    }

    /// Takes what the UPF of this unit sent over its link.
    fn receive_from_own_upf(&mut self, now: Instant, octets: &[u8]) {
        let Some(upf) = self.own_upf() else { return };
        if let Some(n4) = &mut self.upfs.n4 {
            n4.counters.received += 1;
            if let (Some(capture), Some(from)) = (&mut self.capture, n4.address(upf)) {
                capture.udp(now, from, n4.at(), octets);
            }
        }
        self.pfcp_message(now, upf, octets);
    }

    /// The UPF that is another process of this unit.
    fn own_upf(&self) -> Option<UpfId> {
        self.config.cluster.host()?.upf.map(UpfId)
    }

    /// A PFCP message of a UPF that is another process.
    fn pfcp_message(&mut self, now: Instant, upf: UpfId, octets: &[u8]) {
        self.keep_pfcp(now, upf, octets, true);
        self.measure(now, octets);
        self.handle_input(now, Input::Pfcp(upf, octets));
    }

    /// What a UPF counts for brokers' users goes into their reports.
    fn measure(&mut self, now: Instant, octets: &[u8]) {
        if let Some(brokers) = &mut self.brokers {
            brokers.pfcp(now, octets);
        }
        if let Some(veil) = &mut self.veil {
            veil.pfcp(octets);
        }
    }

    /// Takes the CTA's outputs to their receivers, and the local UPF's answers back to the CTA, until none is left.
    fn deliver(&mut self, now: Instant) {
        loop {
            for (upf, octets) in std::mem::take(&mut self.out.pfcp) {
                if self.upfs.local_id != Some(upf) {
                    self.send_pfcp(now, upf, &octets);
                    continue;
                }
                self.capture_pfcp(now, &octets, false);
                self.keep_pfcp(now, upf, &octets, false);
                if let Some(upf) = &mut self.upfs.local {
                    upf.pfcp(now, &octets, &mut self.upfs.answers);
                }
            }
            if self.upfs.answers.is_empty() {
                break;
            }
            for octets in std::mem::take(&mut self.upfs.answers) {
                self.capture_pfcp(now, &octets, true);
                self.measure(now, &octets);
                if let Some(local_id) = self.upfs.local_id {
                    self.keep_pfcp(now, local_id, &octets, true);
                    self.handle_input(now, Input::Pfcp(local_id, &octets));
                }
            }
        }
        let (messages, marks) = (std::mem::take(&mut self.out.ngap), self.active.take_sent_message_numbers());
        self.send_marked(now, messages, &marks);
        for association in std::mem::take(&mut self.out.abort) {
            self.abort(now, association);
        }
        if !self.out.probes.is_empty() {
            let probes = std::mem::take(&mut self.out.probes);
            self.probe(now, probes);
            return self.deliver(now); // what the answers caused; they cause no probes
        }
        if let Some(CpfProcesses { pool, .. }) = &mut self.cpfs {
            self.out.cpfs.drain(..).for_each(|(cpf, message)| pool.send(cpf, message));
            self.out.drained.drain(..).for_each(|cpf| pool.drained(cpf));
            self.out
                .cpf_violations
                .drain(..)
                .for_each(|(cpf, violation)| log_protocol_violation(cpf, violation));
            self.out.takeover_times.drain(..).for_each(|recovered| pool.recovered(now, recovered));
        }
        if let Some(peer_amfs) = &mut self.peer_amfs {
            self.out.n14.drain(..).for_each(|(to, message)| peer_amfs.send_message(now, to, message));
            self.out.n14_errors.drain(..).for_each(|(from, why)| peer_amfs.message_rejected(from, why));
        }
        for stored in self.out.stored.drain(..) {
            self.peer_amfs.iter_mut().for_each(|peer_amfs| peer_amfs.changed(&stored));
            if let Some(file) = &mut self.stored_ues {
                file.take(stored);
            }
        }
        for (ue, to, request) in self.out.brokers.drain(..) {
            match (request, &mut self.brokers, &mut self.veil) {
                (BrokerQuestion::Sap(question), Some(brokers), _) => brokers.ask((ue, to, question)),
                (BrokerQuestion::Veil(question), _, Some(veil)) => {
                    veil.ask(ue, to, VeilUeQuestion::User(question))
                }
                (BrokerQuestion::VeilHome(question), _, Some(veil)) => {
                    veil.ask(ue, to, VeilUeQuestion::Home(question))
                }
                // A machine asks only what is configured.
                (BrokerQuestion::Sap(_), None, _)
                | (BrokerQuestion::Veil(_) | BrokerQuestion::VeilHome(_), _, None) => {}
            }
        }
        self.ask_own_functions(now);
        if let Some(functions) = &mut self.network_functions {
            self.out.udm.drain(..).for_each(|query| functions.ask(query));
            self.out.charging.drain(..).for_each(|query| functions.charge(query));
            self.out.policy.drain(..).for_each(|query| functions.decide(query));
            self.out.sm_contexts.drain(..).for_each(|query| functions.ask_smf(query));
            // An AMF has to know of the end of a session before its UE, which goes on with the answer, may begin one with the same identity; and it
            // has to know a session before it gets messages for it.
            let (transfers, ends): (Vec<_>, Vec<_>) =
                self.out.amf.drain(..).partition(|query| query.request.is_transfer());
            ends.into_iter().for_each(|query| functions.transfer(query));
            let answers = self.out.sm_context_answers.drain(..);
            answers.for_each(|(exchange, answer)| functions.answer_exchange(exchange, answer));
            transfers.into_iter().for_each(|query| functions.transfer(query));
        }
        self.observe(now);
    }

    /// Reports the CTA's events to the observer.
    fn observe(&mut self, now: Instant) {
        if !self.out.ran_events.is_empty() || !self.out.events.is_empty() {
            self.observer.turned(clock::now().since(now));
        }
        // gNBs before UEs: a UE's refusal names its gNB.
        for event in self.out.ran_events.drain(..) {
            self.observer.ran(now, &event);
        }
        for event in self.out.events.drain(..) {
            self.brokers.iter_mut().for_each(|b| b.event(now, &event));
            self.veil.iter_mut().for_each(|veil| veil.event(&event));
            self.network_functions.iter().for_each(|functions| functions.event(&event));
            if let Some(foresight) = &mut self.foresight {
                foresight.event(now, &event, self.active.cta().ran_nodes());
            }
            // Signs are for the predictor; they are reported only where the operator wants them.
            if matches!(event.event, Event::Sign { .. }) && !self.config.handover.signs {
                continue;
            }
            self.observer.ue(now, &event);
        }
        for (upf, change) in self.out.upfs.drain(..) {
            self.observer.upf(now, upf, change);
        }
    }

    /// Sends PFCP to a UPF that is another process: over the link to that of this unit, and over UDP.
    fn send_pfcp(&mut self, now: Instant, upf: UpfId, octets: &[u8]) {
        let own = self.own_upf();
        let Some(n4) = &mut self.upfs.n4 else { return };
        let Some(to) = n4.address(upf) else { return };
        let is_own = own == Some(upf);
        let sent = self.cpfs.as_mut().filter(|_| is_own).map(|cpfs| cpfs.pool.send_pfcp(now, octets));
        match sent.unwrap_or(SentToUpf::NoLink) {
            SentToUpf::Sent => n4.counters.sent += 1,
            SentToUpf::NoLink => n4.send(upf, to, octets),
            SentToUpf::Full => n4.counters.unsent += 1,
        }
        if let Some(capture) = &mut self.capture {
            capture.udp(now, n4.at(), to, octets);
        }
        self.keep_pfcp(now, upf, octets, false);
    }

    /// Waits until something arrives or is due.
    fn block(&self, now: Instant) {
        let (pool, pair) = (self.cpfs.as_ref().map(|cpfs| &cpfs.pool), self.pair());
        let feed = pair.and_then(|pair| pair.feed.as_ref());
        let n2 = self.n2.transport.as_ref().filter(|_| self.n2_opens_by.is_none());
        let deadlines = [
            Some(self.active.next_deadline()),
            self.upfs.local.as_ref().and_then(|upf| upf.next_deadline(now)),
            self.upfs.n4.as_ref().and_then(|n4| n4.next_deadline(now)),
            self.foresight.as_ref().map(Foresight::next_deadline),
            n2.and_then(Transport::next_deadline),
            self.n2_opens_by,
            pool.and_then(CpfPool::next_deadline),
            self.peer_amfs.as_ref().and_then(PeerAmfs::next_deadline),
            self.n2.links.next_deadline(),
            feed.and_then(SubscriberFeed::due),
            pair.filter(|_| self.active.waiting() > 0).map(|_| now + PairPrimary::CHECK_INTERVAL),
            Some(self.timing.housekeeping),
        ];
        let until = deadlines.into_iter().flatten().min().unwrap_or(now);
        let wait = until.since(now);
        if wait.is_zero() {
            return;
        }
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        let n2 = n2.map(Transport::fds).unwrap_or_default();
        let fds = std::iter::once(self.console.commands.wake_fd())
            .chain(self.upfs.local.iter().flat_map(LocalUpf::fds))
            .chain(self.upfs.n4.iter().flat_map(SmfN4::fds))
            .chain(pool.into_iter().flat_map(CpfPool::fds))
            .chain(self.sbfd_peers.iter().flat_map(SbfdPeers::fds))
            .chain(self.peer_amfs.iter().map(PeerAmfs::fd))
            .chain(pair.map(|pair| pair.primary.witness().as_fd()))
            .chain(n2);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timeout));
    }
}
