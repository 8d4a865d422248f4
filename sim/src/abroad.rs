//! Another AMF of the network, with gNBs of its own: its core, and the link to it (N14). Both cores have the same UPFs.

use std::time::Duration;

use whimbrel_control::amf::{N14, PeerAmfId};
use whimbrel_control::config::{Config, Neighbour};
use whimbrel_control::udm::Directory;
use whimbrel_control::{Flat, Prf, UeEvent};
use whimbrel_ids::{AmfId, Instant, Tac};
use whimbrel_ran::gnb;
use whimbrel_resilience::{Cta, Input, N14Error, Outbox};

use crate::{GnbIndex, Home, Recorder, Sim, Travelling, default_config};
use std::sync::Arc;

/// Least and greatest latency of N14, in microseconds: two sites of one country.
const LATENCY_MICROS: (u64, u64) = (500, 2_000);
/// Stands for the host of the other core where hosts are counted.
pub(crate) const ABROAD: u64 = u64::MAX;
/// Each core has one neighbour.
const THE_OTHER: PeerAmfId = PeerAmfId(0);

/// What befalls a message of N14, or who is about to hear it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is lost, and those after it arrive.
    Lost,
    /// It arrives twice.
    Repeated,
    /// The link breaks: neither it nor anything after it arrives.
    Cut,
    /// The core of the simulation starts anew as it arrives.
    HomeDies,
    /// The other core does.
    AbroadDies,
}

impl Fate {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Lost, Self::Repeated, Self::Cut, Self::HomeDies, Self::AbroadDies];
}

/// The other core.
pub(crate) struct Abroad {
    pub(crate) cta: Cta<Home, (Prf, u64), Recorder>,
    config: Arc<Config>,
    /// Messages that were sent over the link, both ways.
    said: u64,
    fate: Option<(u64, Fate)>,
    cut: bool,
    ordered: Instant,
    events: Vec<(Instant, UeEvent)>,
    not_taken: Vec<N14Error>,
}

/// A message on its way to the other core, or from it.
#[derive(Debug)]
pub(crate) struct OverN14 {
    number: u64,
    to_abroad: bool,
    octets: Vec<u8>,
}

/// The configurations of two cores that are each other's neighbours: one of tracking area 1, and one of tracking area 2.
pub fn neighbours() -> (Config, Config) {
    let (mut home, mut abroad) = (default_config(), default_config());
    let tac = |n| Tac::new(n).expect("24 bits");
    abroad.amf.amf_id = AmfId::new(2, 1, 1).expect("within its bits");
    abroad.amf.tacs = vec![tac(2)];
    abroad.smf.node_id = crate::smf(ABROAD).ip();
    for config in [&mut home, &mut abroad] {
        config.smf.upfs[0].address = Some([127, 0, 0, 8].into());
    }
    let of = |name: &str, config: &Config| Neighbour {
        name: name.into(),
        amf_id: config.amf.amf_id,
        tacs: config.amf.tacs.clone(),
    };
    let (here, there) = (of("home", &home), of("abroad", &abroad));
    home.amf.neighbours = vec![there];
    abroad.amf.neighbours = vec![here];
    (home, abroad)
}

impl Sim {
    /// Another core, of this configuration, comes to be.
    pub fn add_abroad(&mut self, config: Config) {
        let config = Arc::new(config);
        let cta = self.core_of(&config, Home::default());
        self.abroad = Some(Box::new(Abroad {
            cta,
            config,
            said: 0,
            fate: None,
            cut: false,
            ordered: self.now,
            events: Vec::new(),
            not_taken: Vec::new(),
        }));
        self.core_abroad(Input::Tick);
    }

    fn core_of(&mut self, config: &Arc<Config>, home: Home) -> Cta<Home, (Prf, u64), Recorder> {
        let directory = Directory::new(config.amf.plmn, self.home_keys.clone());
        let entropy = (Prf::new(&self.rng.octets()), 0);
        Cta::new(config.clone(), directory, home, entropy, Recorder::default(), self.now)
    }

    /// A gNB of the other core.
    pub fn add_gnb_abroad(&mut self, config: gnb::GnbConfig) -> GnbIndex {
        self.add_gnb_of(config, true)
    }

    /// The other core.
    ///
    /// # Panics
    /// If there is none.
    pub fn abroad(&self) -> &Cta<Home, (Prf, u64), Recorder> {
        &self.abroad.as_ref().expect("there is another core").cta
    }

    /// The subscribers of the other core.
    ///
    /// # Panics
    /// If there is none.
    pub fn home_abroad(&mut self) -> &mut Home {
        self.abroad.as_mut().expect("there is another core").cta.subscribers()
    }

    /// What happened in the other core to UEs.
    pub fn events_abroad(&self) -> &[(Instant, UeEvent)] {
        self.abroad.as_ref().map_or(&[], |a| &a.events)
    }

    /// How many messages went over N14, both ways.
    pub fn said_over_n14(&self) -> u64 {
        self.abroad.as_ref().map_or(0, |a| a.said)
    }

    /// This befalls the n-th message over N14, from the beginning on.
    pub fn befalls_n14(&mut self, nth: u64, fate: Fate) {
        if let Some(abroad) = &mut self.abroad {
            abroad.fate = Some((nth, fate));
        }
    }

    /// The link between the cores is there again.
    pub fn mend_n14(&mut self) {
        if let Some(abroad) = &mut self.abroad {
            abroad.cut = false;
        }
    }

    /// What of it was not taken, at either side.
    pub fn not_taken(&self) -> &[N14Error] {
        self.abroad.as_ref().map_or(&[], |a| &a.not_taken)
    }

    /// The other core says this, whatever it is.
    pub fn inject_n14(&mut self, octets: &[u8]) {
        self.core(Input::PeerAmf(THE_OTHER, octets));
    }

    /// This core says this to the other.
    pub fn inject_n14_abroad(&mut self, octets: &[u8]) {
        self.core_abroad(Input::PeerAmf(THE_OTHER, octets));
    }

    /// An input of the other core.
    pub(crate) fn core_abroad(&mut self, input: Input<'_>) {
        let mut out = Outbox::default();
        let Some(abroad) = &mut self.abroad else { return };
        abroad.cta.handle(self.now, input, &mut out);
        let now = self.now;
        abroad.events.extend(out.events.drain(..).map(|e| (now, e)));
        self.over_n14(true, &mut out);
        self.ngap_leaves(ABROAD, out.ngap);
        self.pfcp_leaves(ABROAD, out.pfcp);
    }

    /// What one core has to say to the other.
    pub(crate) fn over_n14(&mut self, of_abroad: bool, out: &mut Outbox) {
        let Some(abroad) = &mut self.abroad else { return };
        abroad.not_taken.extend(out.n14_errors.drain(..).map(|(_, why)| why));
        for (_, octets) in std::mem::take(&mut out.n14) {
            let Some(abroad) = &mut self.abroad else { return };
            abroad.said += 1;
            let (least, most) = LATENCY_MICROS;
            let latency = Duration::from_micros(least + self.rng.below(most - least));
            abroad.ordered = abroad.ordered.max(self.now + latency);
            let at = abroad.ordered;
            self.trace(|| {
                format!("{}: {:?}", if of_abroad { "from abroad" } else { "to abroad" }, words(&octets))
            });
            let Some(abroad) = &mut self.abroad else { return };
            let message =
                OverN14 { number: abroad.said, to_abroad: !of_abroad, octets: octets.octets().to_vec() };
            self.send(at, Travelling::N14(message));
        }
    }

    pub(crate) fn n14_arrives(&mut self, message: OverN14) {
        let Some(abroad) = &mut self.abroad else { return };
        let fate = abroad.fate.filter(|(nth, _)| *nth == message.number).map(|(_, fate)| fate);
        abroad.cut |= fate == Some(Fate::Cut);
        if abroad.cut {
            return;
        }
        match fate {
            Some(Fate::HomeDies) => self.restart_core(),
            Some(Fate::AbroadDies) => self.restart_abroad(),
            _ => {}
        }
        let times = match fate {
            Some(Fate::Lost) => 0,
            Some(Fate::Repeated) => 2,
            _ => 1,
        };
        for _ in 0..times {
            let input = Input::PeerAmf(THE_OTHER, &message.octets);
            if message.to_abroad { self.core_abroad(input) } else { self.core(input) }
        }
    }

    /// The other core starts anew: it knows its subscribers, and nothing of its UEs and gNBs.
    pub fn restart_abroad(&mut self) {
        let Some(mut abroad) = self.abroad.take() else { return };
        let home = std::mem::take(abroad.cta.subscribers());
        abroad.cta = self.core_of(&abroad.config, home);
        self.abroad = Some(abroad);
        let gnbs: Vec<GnbIndex> =
            (0..self.nodes.len()).filter(|&i| self.nodes[i].abroad).map(GnbIndex).collect();
        for &gnb in &gnbs {
            if let Some(association) = self.nodes[gnb.0].association.take() {
                self.by_association.remove(&association);
            }
            self.cut(gnb);
        }
        self.core_abroad(Input::Tick);
        gnbs.into_iter().for_each(|gnb| self.connect(gnb));
    }
}

/// A message of N14, by its name.
fn words(octets: &Flat) -> String {
    let read = N14::from_octets(octets.octets()).map(|m| format!("{:?}", m.body));
    read.map_or_else(|e| format!("{e:?}"), |body| body.chars().take(40).collect())
}
