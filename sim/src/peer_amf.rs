//! Another AMF of the network, with gNBs of its own: its core, and the link to it (N14). Both cores have the same UPFs.

use std::time::Duration;

use whimbrel_control::amf::{N14, PeerAmfId};
use whimbrel_control::config::{self, Config};
use whimbrel_control::udm::Directory;
use whimbrel_control::{Flat, Prf, UeEvent};
use whimbrel_ids::{AmfId, Instant, Tac};
use whimbrel_ran::gnb;
use whimbrel_resilience::{
    Cta, CtaOrder, Input, N14Error, Outbox, PEER_LOST_AFTER, PeerMessageOutcome, PeerReplicaCounters,
    PeerReplicas, ToStore,
};

use crate::{GnbIndex, InFlight, Recorder, Sim, SimSubscribers, default_config};
use std::sync::Arc;

/// Least and greatest latency of N14, in microseconds: two sites of one country.
const LATENCY_MICROS: (u64, u64) = (500, 2_000);
/// The number of the peer AMF's host; those of CTAs count takeovers.
pub(crate) const PEER_AMF_HOST: u64 = u64::MAX;
/// Each core has one peer AMF.
const THE_OTHER: PeerAmfId = PeerAmfId(0);

/// A fault at one message of N14, or at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum N14Fault {
    /// It is lost, and those after it arrive.
    Lost,
    /// It arrives twice.
    Repeated,
    /// The link breaks: neither it nor anything after it arrives.
    Cut,
    /// The core of the simulation restarts as it arrives.
    CoreRestarts,
    /// The other core does.
    PeerRestarts,
}

impl N14Fault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Lost, Self::Repeated, Self::Cut, Self::CoreRestarts, Self::PeerRestarts];
}

/// The other core.
pub(crate) struct SimPeerAmf {
    pub(crate) cta: Cta<SimSubscribers, (Prf, u64), Recorder>,
    config: Arc<Config>,
    /// Messages that were sent over the link, both ways, and their octets.
    sent: u64,
    octets: usize,
    /// UEs of which each core holds the other's at most, if they exchange replicas.
    replicated: usize,
    /// The replicas at the core of the simulation, and at the other one.
    replicas: [PeerReplicas; 2],
    fate: Option<(u64, N14Fault)>,
    /// Since when the link is broken.
    cut_since: Option<Instant>,
    /// UPFs do not reach the SMF of the simulation's core, nor it them.
    n4_cut: bool,
    ordered: Instant,
    events: Vec<(Instant, UeEvent)>,
    not_taken: Vec<N14Error>,
}

/// A message on its way to the other core, or from it.
#[derive(Debug)]
pub(crate) struct N14Message {
    number: u64,
    to_peer: bool,
    octets: Vec<u8>,
    /// The receiver's own replica says it, in place of the other core.
    by_replica: bool,
}

/// The configurations of two cores that are peer AMFs of each other: one of tracking area 1, and one of tracking area 2.
pub fn two_amf_configs() -> (Config, Config) {
    let (mut home, mut peer_amf) = (default_config(), default_config());
    let tac = |n| Tac::new(n).expect("24 bits");
    peer_amf.amf.amf_id = AmfId::new(2, 1, 1).expect("within its bits");
    peer_amf.amf.tacs = vec![tac(2)];
    peer_amf.smf.node_id = crate::user_plane::smf(PEER_AMF_HOST).ip();
    for config in [&mut home, &mut peer_amf] {
        config.smf.upfs[0].address = Some([127, 0, 0, 8].into());
    }
    let of = |name: &str, config: &Config| config::PeerAmf {
        name: name.into(),
        amf_id: config.amf.amf_id,
        tacs: config.amf.tacs.clone(),
    };
    let (here, there) = (of("home", &home), of("peer_amf", &peer_amf));
    home.amf.peer_amfs = vec![there];
    peer_amf.amf.peer_amfs = vec![here];
    (home, peer_amf)
}

/// The same of two AMFs of one set (TS 23.501 §5.19), which serve the same tracking areas.
pub fn two_amf_configs_of_a_set() -> (Config, Config) {
    let (mut home, mut peer_amf) = two_amf_configs();
    peer_amf.amf.tacs.clone_from(&home.amf.tacs);
    for config in [&mut home, &mut peer_amf] {
        config.smf.set_id = Some("set2-1.smfset.5gc.mnc070.mcc999.3gppnetwork.org".into());
    }
    (home, peer_amf)
}

impl Sim {
    /// Another core, of this configuration, comes to be.
    pub fn add_peer_amf(&mut self, config: Config) {
        let config = Arc::new(config);
        let cta = self.core_of(&config, SimSubscribers::default());
        self.peer_amf = Some(Box::new(SimPeerAmf {
            cta,
            config,
            sent: 0,
            octets: 0,
            replicated: 0,
            replicas: Default::default(),
            fate: None,
            cut_since: None,
            n4_cut: false,
            ordered: self.now,
            events: Vec::new(),
            not_taken: Vec::new(),
        }));
        self.peer_amf_input(Input::Tick);
    }

    fn core_of(
        &mut self,
        config: &Arc<Config>,
        home: SimSubscribers,
    ) -> Cta<SimSubscribers, (Prf, u64), Recorder> {
        let directory = Directory::new(config.amf.plmn, self.home_keys.clone());
        let entropy = (Prf::new(&self.rng.octets()), 0);
        Cta::new(config.clone(), directory, home, entropy, Recorder::default(), self.now)
    }

    /// A gNB of the other core.
    pub fn add_gnb_of_peer_amf(&mut self, config: gnb::GnbConfig) -> GnbIndex {
        self.add_gnb_of(config, true)
    }

    /// The other core.
    ///
    /// # Panics
    /// If there is none.
    pub fn peer_amf(&self) -> &Cta<SimSubscribers, (Prf, u64), Recorder> {
        &self.peer_amf.as_ref().expect("there is another core").cta
    }

    /// The subscribers of the other core.
    ///
    /// # Panics
    /// If there is none.
    pub fn peer_amf_subscribers(&mut self) -> &mut SimSubscribers {
        self.peer_amf.as_mut().expect("there is another core").cta.subscribers()
    }

    /// What happened in the other core to UEs.
    pub fn peer_amf_events(&self) -> &[(Instant, UeEvent)] {
        self.peer_amf.as_ref().map_or(&[], |a| &a.events)
    }

    /// How many messages went over N14, both ways.
    pub fn n14_messages(&self) -> u64 {
        self.peer_amf.as_ref().map_or(0, |a| a.sent)
    }

    /// Octets of all messages between AMFs.
    pub fn n14_octets(&self) -> usize {
        self.peer_amf.as_ref().map_or(0, |a| a.octets)
    }

    /// Each core sends the other its UEs' checkpoints ahead, of so many at most, whenever [`Self::replicate_to_peer_amfs`] is called.
    pub fn exchange_replicas(&mut self, most: usize) {
        if let Some(peer_amf) = &mut self.peer_amf {
            peer_amf.replicated = most;
        }
        self.forget_replicas(false);
        self.forget_replicas(true);
    }

    /// The edge of a core, the other one's or that of the simulation, starts again: it holds no replica, and does not know what the other edge holds.
    pub fn forget_replicas(&mut self, of_peer: bool) {
        if let Some(peer_amf) = &mut self.peer_amf {
            let (own, other) = (self.config.amf.amf_id, peer_amf.config.amf.amf_id);
            let (amf_id, upfs) = match of_peer {
                true => (own, &peer_amf.config.smf.upfs),
                false => (other, &self.config.smf.upfs),
            };
            let upfs = upfs.iter().map(|upf| upf.address).collect();
            let peers = [(THE_OTHER, amf_id, peer_amf.replicated)];
            let mut replicas = PeerReplicas::new(peers, upfs);
            let smf = if of_peer { self.config.smf.node_id } else { peer_amf.config.smf.node_id };
            replicas.connected(THE_OTHER, smf);
            peer_amf.replicas[usize::from(of_peer)] = replicas;
        }
    }

    /// Each core sends the other the UEs that have changed since the last time.
    pub fn replicate_to_peer_amfs(&mut self) {
        self.operator_order(CtaOrder::StoreUes { all: false });
        self.peer_amf_does(|cta, now, out| {
            cta.order(now, CtaOrder::StoreUes { all: false }, out);
        });
    }

    /// What was counted of the replicas at the core of the simulation, and at the other one.
    pub fn replicas_of_peer_amfs(&self) -> [PeerReplicaCounters; 2] {
        self.peer_amf
            .as_ref()
            .map_or_else(Default::default, |a| a.replicas.each_ref().map(PeerReplicas::counters))
    }

    /// Of how many UEs of the other core each has a replica.
    pub fn replicas_held(&self) -> [usize; 2] {
        self.peer_amf.as_ref().map_or([0; 2], |a| a.replicas.each_ref().map(PeerReplicas::held))
    }

    /// UEs of one core have changed: the other one learns of it.
    pub(crate) fn replicate(&mut self, from_peer: bool, stored: &[ToStore]) {
        let Some(peer_amf) = &mut self.peer_amf else { return };
        let mut messages = Vec::new();
        let replicas = &mut peer_amf.replicas[usize::from(from_peer)];
        stored.iter().for_each(|stored| replicas.changed(stored, &mut messages));
        messages.into_iter().for_each(|(_, message)| self.put_n14(from_peer, message));
    }

    /// This befalls the n-th message over N14, from the beginning on.
    pub fn inject_n14_fault(&mut self, nth: u64, fate: N14Fault) {
        if let Some(peer_amf) = &mut self.peer_amf {
            peer_amf.fate = Some((nth, fate));
        }
    }

    /// The link between the cores breaks, as if the other core was dead, for each of them.
    pub fn cut_n14(&mut self) {
        let now = self.now;
        if let Some(peer_amf) = &mut self.peer_amf {
            peer_amf.cut_since.get_or_insert(now);
        }
    }

    /// UPFs and the SMF of the simulation's core do not reach each other.
    pub fn cut_n4(&mut self) {
        if let Some(peer_amf) = &mut self.peer_amf {
            peer_amf.n4_cut = true;
        }
    }

    /// True if no message passes between the UPFs and the SMF at this host.
    pub(crate) fn is_n4_cut(&self, host: u64) -> bool {
        host != PEER_AMF_HOST && self.peer_amf.as_ref().is_some_and(|peer| peer.n4_cut)
    }

    /// The link between the cores is there again.
    pub fn restore_n14(&mut self) {
        if let Some(peer_amf) = &mut self.peer_amf {
            (peer_amf.cut_since, peer_amf.n4_cut) = (None, false);
        }
    }

    /// What of it was not taken, at either side.
    pub fn not_taken(&self) -> &[N14Error] {
        self.peer_amf.as_ref().map_or(&[], |a| &a.not_taken)
    }

    /// The other core says this, whatever it is.
    pub fn inject_n14(&mut self, octets: &[u8]) {
        self.cta_input(Input::PeerAmf(THE_OTHER, octets));
    }

    /// This core says this to the other.
    pub fn inject_n14_at_peer_amf(&mut self, octets: &[u8]) {
        self.peer_amf_input(Input::PeerAmf(THE_OTHER, octets));
    }

    /// An input of the other core.
    pub(crate) fn peer_amf_input(&mut self, input: Input<'_>) {
        self.peer_amf_does(|cta, now, out| cta.handle(now, input, out));
    }

    fn peer_amf_does(
        &mut self,
        does: impl FnOnce(&mut Cta<SimSubscribers, (Prf, u64), Recorder>, Instant, &mut Outbox),
    ) {
        let mut out = Outbox::default();
        let Some(peer_amf) = &mut self.peer_amf else { return };
        does(&mut peer_amf.cta, self.now, &mut out);
        let now = self.now;
        peer_amf.events.extend(out.events.drain(..).map(|e| (now, e)));
        self.replicate(true, &out.stored);
        self.send_n14(true, &mut out);
        self.ngap_leaves(PEER_AMF_HOST, out.ngap);
        self.pfcp_leaves(PEER_AMF_HOST, out.pfcp);
    }

    /// What one core has to say to the other.
    pub(crate) fn send_n14(&mut self, from_peer: bool, out: &mut Outbox) {
        let Some(peer_amf) = &mut self.peer_amf else { return };
        peer_amf.not_taken.extend(out.n14_errors.drain(..).map(|(_, why)| why));
        for (_, octets) in std::mem::take(&mut out.n14) {
            let Some(peer_amf) = &mut self.peer_amf else { return };
            let replicas = &mut peer_amf.replicas[usize::from(from_peer)];
            let lost = peer_amf.cut_since.is_some_and(|since| self.now.since(since) >= PEER_LOST_AFTER);
            if lost && let Some(answer) = replicas.answer_in_place_of(THE_OTHER, &octets) {
                let octets = answer.octets().to_vec();
                let message = N14Message { number: 0, to_peer: from_peer, octets, by_replica: true };
                self.send(self.now, InFlight::N14(message));
                continue;
            }
            let octets = replicas.send(THE_OTHER, octets);
            self.put_n14(from_peer, octets);
        }
    }

    /// A message goes over the link.
    fn put_n14(&mut self, from_peer: bool, octets: Flat) {
        let Some(peer_amf) = &mut self.peer_amf else { return };
        peer_amf.sent += 1;
        peer_amf.octets += octets.octets().len();
        let (least, most) = LATENCY_MICROS;
        let latency = Duration::from_micros(least + self.rng.below(most - least));
        peer_amf.ordered = peer_amf.ordered.max(self.now + latency);
        let at = peer_amf.ordered;
        let number = peer_amf.sent;
        self.trace(|| {
            format!("{}: {:?}", if from_peer { "from peer_amf" } else { "to peer_amf" }, words(&octets))
        });
        let message =
            N14Message { number, to_peer: !from_peer, octets: octets.octets().to_vec(), by_replica: false };
        self.send(at, InFlight::N14(message));
    }

    pub(crate) fn n14_arrives(&mut self, message: N14Message) {
        if message.by_replica {
            let input = Input::PeerAmf(THE_OTHER, &message.octets);
            return if message.to_peer { self.peer_amf_input(input) } else { self.cta_input(input) };
        }
        let Some(peer_amf) = &mut self.peer_amf else { return };
        let fate = peer_amf.fate.filter(|(nth, _)| *nth == message.number).map(|(_, fate)| fate);
        if fate == Some(N14Fault::Cut) {
            peer_amf.cut_since.get_or_insert(self.now);
        }
        if peer_amf.cut_since.is_some() {
            return;
        }
        match fate {
            Some(N14Fault::CoreRestarts) => self.restart_core(),
            Some(N14Fault::PeerRestarts) => self.restart_peer_amf(),
            _ => {}
        }
        let times = match fate {
            Some(N14Fault::Lost) => 0,
            Some(N14Fault::Repeated) => 2,
            _ => 1,
        };
        for _ in 0..times {
            let Some(peer_amf) = &mut self.peer_amf else { return };
            let whole =
                match peer_amf.replicas[usize::from(message.to_peer)].receive(THE_OTHER, &message.octets) {
                    PeerMessageOutcome::Input => None,
                    PeerMessageOutcome::Completed(whole) => Some(whole),
                    PeerMessageOutcome::Answer(answer) => {
                        self.put_n14(message.to_peer, answer);
                        continue;
                    }
                    PeerMessageOutcome::Taken => continue,
                };
            let octets = whole.as_ref().map_or(message.octets.as_slice(), Flat::octets);
            let input = Input::PeerAmf(THE_OTHER, octets);
            if message.to_peer { self.peer_amf_input(input) } else { self.cta_input(input) }
        }
    }

    /// The peer AMF restarts: it has its subscribers, and no state of UEs and gNBs.
    pub fn restart_peer_amf(&mut self) {
        self.forget_replicas(true);
        let Some(mut peer_amf) = self.peer_amf.take() else { return };
        let home = std::mem::take(peer_amf.cta.subscribers());
        peer_amf.cta = self.core_of(&peer_amf.config, home);
        self.peer_amf = Some(peer_amf);
        let gnbs: Vec<GnbIndex> =
            (0..self.ran.gnbs.len()).filter(|&i| self.ran.gnbs[i].peer_amf).map(GnbIndex).collect();
        for &gnb in &gnbs {
            if let Some(association) = self.ran.gnbs[gnb.0].association.take() {
                self.ran.by_association.remove(&association);
            }
            self.end_associations(gnb);
        }
        self.peer_amf_input(Input::Tick);
        gnbs.into_iter().for_each(|gnb| self.connect(gnb));
    }
}

/// A message of N14, by its name.
fn words(octets: &Flat) -> String {
    let read = N14::from_octets(octets.octets()).map(|m| format!("{:?}", m.body));
    read.map_or_else(|e| format!("{e:?}"), |body| body.chars().take(40).collect())
}
