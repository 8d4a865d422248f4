//! What runs on UEs and at the hosts that they speak with: a sensor, and what fetches a video or a page. Their packets are real, what is in them
//! is the little that these models say to each other.

/// The beginning of a packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) what: u64,
    pub(super) more: u64,
}

impl Note {
    /// Octets that it takes.
    pub(super) const OCTETS: usize = 16;

    pub(super) fn octets(self) -> [u8; Self::OCTETS] {
        (u128::from(self.what) << 64 | u128::from(self.more)).to_be_bytes()
    }

    pub(super) fn read(octets: &[u8]) -> Option<Self> {
        let both = u128::from_be_bytes(*octets.first_chunk()?);
        Some(Self { what: (both >> 64) as u64, more: both as u64 })
    }
}

/// A packet that is to be sent, and how many nanoseconds from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) after: u64,
    pub(super) note: Note,
    /// Of its payload.
    pub(super) octets: usize,
}

/// An application of a UE, with the host that it speaks with.
pub(super) enum App {
    Sensor(Sensor),
    Fetch(Fetch),
}

impl App {
    /// It is its time. `under_way`: the UE is at a procedure. What it sends, and after how many nanoseconds it is its time again.
    pub(super) fn wakes(&mut self, now: u64, under_way: bool) -> (Says, Option<u64>) {
        match self {
            Self::Sensor(sensor) => sensor.wakes(now, under_way),
            Self::Fetch(fetch) => (fetch.begins(now), None),
        }
    }

    /// The host has got a packet of the UE.
    pub(super) fn host_gets(&mut self, now: u64, note: Note) -> Vec<Says> {
        match self {
            Self::Sensor(sensor) => {
                sensor.ages.push(now - note.more);
                Vec::new()
            }
            Self::Fetch(fetch) => fetch.host_gets(note),
        }
    }

    /// The UE has got a packet of the host.
    pub(super) fn ue_gets(&mut self, now: u64, note: Note) -> Option<Says> {
        match self {
            Self::Sensor(_) => None,
            Self::Fetch(fetch) => fetch.ue_gets(now, note),
        }
    }
}

/// Between two packets of a sensor, in nanoseconds: 1 kHz (Neutrino §6.6).
pub(super) const PERIOD_NS: u64 = 1_000_000;
/// Packets that it sends after its UE's procedure has ended.
const AFTERWARDS: u32 = 3;
/// It ends after so many whatever becomes of the UE: ten seconds.
const PACKETS_MAX: u64 = 10_000;

/// A sensor that sends packets at an even pace for as long as its UE is at a procedure, and a few more.
#[derive(Default)]
pub(super) struct Sensor {
    sent: u64,
    afterwards: u32,
    /// How old its packets were when the host got them, in nanoseconds.
    ages: Vec<u64>,
}

impl Sensor {
    fn wakes(&mut self, now: u64, under_way: bool) -> (Says, Option<u64>) {
        let note = Note { what: self.sent, more: now };
        self.sent += 1;
        self.afterwards += u32::from(!under_way);
        let goes_on = self.afterwards < AFTERWARDS && self.sent < PACKETS_MAX;
        (Says { after: 0, note, octets: 100 }, goes_on.then_some(PERIOD_NS))
    }

    /// How many packets were sent, and how many of them the host did not get within so many nanoseconds: late ones and lost ones.
    pub(super) fn missed(&self, budget: u64) -> (u64, u64) {
        (self.sent, self.sent - self.ages.iter().filter(|age| **age <= budget).count() as u64)
    }

    /// How many packets the host never got.
    pub(super) fn lost(&self) -> u64 {
        self.sent - self.ages.len() as u64
    }
}

/// What a UE asks a host, and how many octets the answer has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub(super) asks: usize,
    pub(super) answer: usize,
}

/// Octets that a full segment brings: a link of 1,400 octets less the headers.
const SEGMENT: usize = 1340;
/// Segments that leave at first, before any is acknowledged (RFC 6928).
const INITIAL_WINDOW: usize = 10;
/// Segments that are under way at most.
const WINDOW_MAX: usize = 64;
/// Between two segments of a host, in nanoseconds: a link of 1 Gbit/s.
const PACE_NS: u64 = 12_000;

/// What the notes of a fetch say.
const REQUEST: u64 = 0;
const ACKNOWLEDGEMENT: u64 = 1;
const SEGMENT_OF_ANSWER: u64 = 2;
const LAST_OF_FLIGHT: u64 = 3;
const LAST_OF_ANSWER: u64 = 4;

/// Exchanges one after the other, whose answers come as a TCP of the usual kind sends them: flights of segments, each twice as long as the one before,
/// when that was acknowledged. Nothing is sent again.
pub(super) struct Fetch {
    exchanges: &'static [Exchange],
    /// The exchange that runs.
    at: usize,
    /// Octets of its answer that the host has still to send.
    rest: usize,
    window: usize,
    began: u64,
    /// How long all took.
    pub(super) took: Option<u64>,
}

impl Fetch {
    pub(super) fn new(exchanges: &'static [Exchange]) -> Self {
        Self { exchanges, at: 0, rest: 0, window: INITIAL_WINDOW, began: 0, took: None }
    }

    fn begins(&mut self, now: u64) -> Says {
        self.began = now;
        self.asks()
    }

    fn asks(&self) -> Says {
        let note = Note { what: REQUEST, more: self.at as u64 };
        Says { after: 0, note, octets: self.exchanges[self.at].asks }
    }

    fn host_gets(&mut self, note: Note) -> Vec<Says> {
        match note.what {
            REQUEST => self.rest = self.exchanges[self.at].answer,
            _ => self.window = (self.window * 2).min(WINDOW_MAX),
        }
        let mut flight = Vec::new();
        while self.rest > 0 && flight.len() < self.window {
            let octets = self.rest.min(SEGMENT);
            self.rest -= octets;
            let what = match (self.rest, flight.len() + 1 == self.window) {
                (0, _) => LAST_OF_ANSWER,
                (_, true) => LAST_OF_FLIGHT,
                (_, false) => SEGMENT_OF_ANSWER,
            };
            let note = Note { what, more: note.more };
            flight.push(Says {
                after: flight.len() as u64 * PACE_NS,
                note,
                octets: octets.max(Note::OCTETS),
            });
        }
        flight
    }

    fn ue_gets(&mut self, now: u64, note: Note) -> Option<Says> {
        match note.what {
            LAST_OF_ANSWER if self.at + 1 == self.exchanges.len() => {
                self.took = Some(now - self.began);
                None
            }
            LAST_OF_ANSWER => {
                self.at += 1;
                Some(self.asks())
            }
            LAST_OF_FLIGHT => {
                let note = Note { what: ACKNOWLEDGEMENT, more: note.more };
                Some(Says { after: 0, note, octets: Note::OCTETS })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds, and segments in each, of a fetch that meets with no delay.
    fn flights(exchanges: &'static [Exchange]) -> Vec<usize> {
        let mut fetch = Fetch::new(exchanges);
        let (mut up, mut flights) = (Some(fetch.begins(0)), Vec::new());
        while let Some(says) = up {
            let flight = fetch.host_gets(says.note);
            flights.push(flight.len());
            up = flight.into_iter().filter_map(|segment| fetch.ue_gets(7, segment.note)).last();
        }
        assert_eq!(fetch.took, Some(7), "it has all");
        flights
    }

    #[test]
    fn flights_double_up_to_the_window_and_go_on_so_in_the_next_exchange() {
        const EXCHANGES: &[Exchange] =
            &[Exchange { asks: 60, answer: 60 }, Exchange { asks: 200, answer: SEGMENT * 200 }];
        assert_eq!(flights(EXCHANGES), [1, 10, 20, 40, 64, 64, 2]);
    }

    #[test]
    fn a_sensor_counts_what_came_late_and_what_never_came() {
        let mut app = App::Sensor(Sensor::default());
        let mut says = Vec::new();
        for n in 0..4 {
            says.push(app.wakes(n * PERIOD_NS, n == 0));
        }
        assert_eq!(
            says.iter().map(|(_, next)| next.is_some()).collect::<Vec<_>>(),
            [true, true, true, false]
        );
        app.host_gets(5, says[0].0.note);
        app.host_gets(PERIOD_NS + 50, says[1].0.note);
        let App::Sensor(sensor) = app else { unreachable!("it is one") };
        assert_eq!((sensor.missed(5), sensor.missed(50), sensor.lost()), ((4, 3), (4, 2), 2));
    }
}
