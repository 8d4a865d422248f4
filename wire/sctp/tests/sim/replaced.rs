//! Endpoints that die and are replaced by one that continues from what was exported.

use whimbrel_ids::Instant;
use whimbrel_sctp::{
    AdoptedAssociation, AssociationId, Config, Defect, Endpoint, Event, Layout, Outbox, SavedStore, Store,
};

use super::{Node, Random, Seen};

/// Memory that outlives an endpoint.
pub struct Bank {
    pub layout: Layout,
    pub slots: Vec<(u64, Vec<u8>)>,
    /// Octets that are still written before the process dies.
    pub budget: Option<usize>,
    pub written: usize,
}

impl Bank {
    pub fn new(layout: Layout, slots: usize) -> Self {
        let slot = || (0, vec![0; layout.slot_octets()]);
        Self { layout, slots: (0..slots).map(|_| slot()).collect(), budget: None, written: 0 }
    }
}

impl Store for Bank {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    fn write(&mut self, slot: u32, at: usize, octets: &[u8]) {
        let n = self.budget.map_or(octets.len(), |budget| budget.min(octets.len()));
        self.slots[slot as usize].1[at..at + n].copy_from_slice(&octets[..n]);
        self.budget = self.budget.map(|budget| budget - n);
        self.written += octets.len();
    }

    fn publish(&mut self, slot: u32, word: u64) {
        if self.budget != Some(0) {
            self.slots[slot as usize].0 = word;
        }
        self.budget = self.budget.map(|budget| budget.saturating_sub(1));
        self.written += 1;
    }
}

impl SavedStore for Bank {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn word(&self, slot: u32) -> u64 {
        self.slots[slot as usize].0
    }

    fn read(&self, slot: u32, at: usize, octets: usize) -> Option<Vec<u8>> {
        self.slots[slot as usize].1.get(at..at + octets).map(<[u8]>::to_vec)
    }
}

/// When an endpoint dies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    /// Each time that it says something, with this probability, somewhere.
    Randomly {
        percent: u64,
    },
    /// Once, after so many octets were exported.
    After {
        octets: usize,
    },
    Never,
}

pub struct Replaced {
    pub config: Config,
    /// What the living endpoint writes, and what the former one had written.
    pub banks: [Bank; 2],
    pub dies: Dies,
    pub deaths: u32,
    pub refused: Vec<Defect>,
}

impl Replaced {
    pub fn new(config: Config, dies: Dies) -> Self {
        let layout = Layout::of(&config);
        let banks = [Bank::new(layout, 2), Bank::new(layout, 2)];
        Self { config, banks, dies, deaths: 0, refused: Vec::new() }
    }
}

pub const SECRET: [u8; 32] = [7; 32];

impl Node {
    /// Has it export, and perhaps die before, while or after that.
    pub fn die_or_export(&mut self, now: Instant, random: &mut Random, out: &mut Outbox) {
        let Some(s) = &mut self.replaced else { return };
        let fate = match s.dies {
            Dies::Randomly { percent } if random.percent(percent) => random.below(4),
            Dies::After { octets } => {
                s.banks[0].budget = Some(octets.saturating_sub(s.banks[0].written));
                2
            }
            _ => 9,
        };
        match fate {
            0 => {}
            1 => {
                s.banks[0].budget = Some(random.below(600) as usize);
                self.endpoint.export(&mut s.banks[0]);
            }
            _ => self.endpoint.export(&mut s.banks[0]),
        }
        let dead = match (s.dies, fate) {
            (Dies::After { .. }, _) => s.banks[0].budget == Some(0),
            (_, fate) => fate < 4,
        };
        s.banks[0].budget = None;
        if !dead {
            return;
        }
        if fate < 3 {
            out.events.clear(); // its user got none of it
        }
        out.packets.clear();
        self.replace(now, out);
    }

    /// Replaces the endpoint by one that continues.
    pub fn replace(&mut self, now: Instant, out: &mut Outbox) {
        let delivered_now =
            |out: &Outbox| out.events.iter().filter(|e| matches!(e, Event::Data { .. })).count() as u64;
        let seen = self.messages() + delivered_now(out);
        let known = self.up().is_some();
        let Some(s) = &mut self.replaced else { return };
        s.deaths += 1;
        if let Dies::After { .. } = s.dies {
            s.dies = Dies::Never;
        }
        s.banks.swap(0, 1);
        let [own, former] = &mut s.banks;
        own.slots.iter_mut().for_each(|slot| slot.0 = 0);
        own.written = 0;
        self.endpoint = Endpoint::successor(s.config.clone(), SECRET, s.deaths, now);
        for slot in 0..former.slots() {
            match self.endpoint.adopt(now, slot, former) {
                Ok(Some(AdoptedAssociation {
                    association,
                    primary,
                    peer_port,
                    outbound_streams,
                    adaptation,
                    ..
                })) => {
                    if !known {
                        out.events.push(Event::Up {
                            association,
                            peer: &[primary.remote],
                            peer_port,
                            inbound_streams: outbound_streams,
                            outbound_streams,
                            adaptation,
                        });
                    }
                    self.endpoint.resume(now, association, seen, out);
                }
                Ok(None) => {}
                Err(defect) => s.refused.push(defect),
            }
        }
        self.endpoint.export(own);
    }

    /// How many messages its user got.
    pub fn messages(&self) -> u64 {
        self.seen.iter().filter(|s| matches!(s, Seen::Data(..))).count() as u64
    }

    /// The mark of an association.
    pub fn mark(&self, id: AssociationId) -> Option<u64> {
        self.endpoint.notes(id).map(|notes| notes.mark)
    }

    pub fn ended(&self) -> bool {
        self.seen.iter().any(|s| matches!(s, Seen::Down(..) | Seen::Restarted(_)))
    }
}
