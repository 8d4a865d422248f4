//! Replays the recordings of `tests/recordings/` without their peers: the core must send the same messages, octet for octet, and end in the
//! state that is written here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use whimbrel_control::udm::Directory;
use whimbrel_control::{AssociationId, Event, UpfId};
use whimbrel_store::OnExisting;

use super::*;
use crate::config::value::unhex;
use crate::core::control_loop::PrimaryCta;
use crate::core::control_thread::Cta;
use crate::core::core_time::CoreTime;
use crate::core::subscribers::StoredSubscribers;
use crate::core::view;

/// The state in which a recording ends, and the procedures in it.
struct Expected {
    folder: &'static str,
    /// gNBs that are up, UEs that are registered, and those of them that are connected.
    census: (u64, u64, u64),
    /// Procedures that have completed, and how often each was refused.
    completed: &'static [(&'static str, usize)],
    refused: &'static [(&'static str, usize)],
}

/// Three UEs each: registration with a PDU session, then deregistration; at last the gNB ends.
const RECORDINGS: &[Expected] = &[
    // The UEs are switched off.
    Expected {
        folder: "ueransim-3.3.0",
        census: (0, 0, 0),
        completed: &[("Registration", 3), ("PduSessionEstablishment", 3), ("DeregistrationByUe", 3)],
        refused: &[],
    },
    Expected {
        folder: "packetrusher-1.0.1",
        census: (0, 0, 0),
        completed: &[("Registration", 3), ("PduSessionEstablishment", 3), ("DeregistrationByUe", 3)],
        refused: &[],
    },
    // Handed over to the second gNB, idle and paged, idle and back by itself, then switched off.
    Expected {
        folder: "ueransim-3.2.7-n2-handover",
        census: (0, 0, 0),
        completed: &[
            ("Registration", 2),
            ("PduSessionEstablishment", 1),
            ("Handover", 1),
            ("AnRelease", 2),
            ("ServiceRequest", 2),
            ("ConfigurationUpdate", 1),
            ("DeregistrationByUe", 1),
        ],
        refused: &[],
    },
    // The UE registers and deregisters. In its DEREGISTRATION REQUEST the plain message has a security header type, and the core that was recorded
    // dropped it: this answer is that of the mended core, read by hand.
    Expected {
        folder: "openairinterface-2024-w12",
        census: (1, 0, 1),
        completed: &[("Registration", 1), ("PduSessionEstablishment", 1), ("DeregistrationByUe", 1)],
        refused: &[],
    },
];

impl Hex {
    fn octets(&self) -> Vec<u8> {
        unhex(&self.0).expect("hexadecimal digits")
    }
}

/// A recording, read from its folder.
struct Recording {
    config: config::Config,
    beginning: RecordingStart,
    steps: Vec<ExchangeStep>,
}

impl Recording {
    fn read(folder: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/recordings").join(folder);
        let read = |name: &str| {
            let path: PathBuf = folder.join(name);
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let config = config::parse(&read("whimbrel.yaml"), &folder.join("whimbrel.yaml"));
        let config = config.unwrap_or_else(|e| panic!("{e}"));
        let exchange = read("exchange.jsonl");
        let (first, steps) = exchange.split_once('\n').expect("a beginning and steps");
        let step = |(n, line): (usize, &str)| {
            serde_json::from_str(line).unwrap_or_else(|e| panic!("line {}: {e}", n + 2))
        };
        Self {
            config,
            beginning: serde_json::from_str(first).expect("a beginning"),
            steps: steps.lines().enumerate().map(step).collect(),
        }
    }
}

/// The core that a recording is replayed to.
struct ReplayedCore {
    active: PrimaryCta,
    tape: DrawTape,
    completed: BTreeMap<String, usize>,
    refused: BTreeMap<String, usize>,
    _folder: tempfile::TempDir,
}

impl ReplayedCore {
    fn new(recording: &Recording, tape: DrawTape) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("core.db"), &folder.path().join("core.key")).unwrap();
        let subscribers = recording.beginning.subscribers.to_string();
        store.import(subscribers.as_bytes(), Format::Json, OnExisting::Refuse, &mut |_| {}).unwrap();
        let mut entropy = SystemEntropy::new().unwrap();
        entropy.put_on(tape.clone());
        tape.give(draws(&recording.beginning.draws));
        let config = &recording.config;
        let directory =
            Directory::new(config.amf.plmn, config.home_network_keys()).with_sqn_slot(config.store.sqn_slot);
        let subscribers = StoredSubscribers::new(store);
        let now = Instant(recording.beginning.at);
        let control = Arc::new(config.control());
        let cta = Cta::new(control, directory, subscribers, entropy, CoreTime::default(), now);
        let active = PrimaryCta::without_cta_replica(cta);
        Self { active, tape, completed: BTreeMap::new(), refused: BTreeMap::new(), _folder: folder }
    }

    /// Takes an input at a time, and gives the messages that it causes.
    fn take(&mut self, at: u64, input: &RecordedInput) -> SentMessages {
        let association = |number: &u32| AssociationId(*number);
        let octets = match input {
            RecordedInput::Ngap(.., octets) | RecordedInput::Pfcp(_, octets) => octets.octets(),
            _ => Vec::new(),
        };
        let mut supis = Vec::new();
        let input = match input {
            RecordedInput::AssociationUp { association, outbound_streams, addresses } => {
                Input::AssociationUp {
                    association: AssociationId(*association),
                    outbound_streams: *outbound_streams,
                    addresses: addresses.clone(),
                }
            }
            RecordedInput::AddressConfirmed(name, address) => {
                Input::AddressConfirmed(association(name), *address)
            }
            RecordedInput::AssociationAnswered(name) => Input::AssociationAnswered(association(name)),
            RecordedInput::AssociationDown(name) => Input::AssociationDown(association(name)),
            RecordedInput::Ngap(name, stream, _) => Input::Ngap(association(name), *stream, &octets),
            RecordedInput::Pfcp(upf, _) => Input::Pfcp(UpfId(*upf), &octets),
            RecordedInput::Command(ue, command) => Input::Command(*ue, *command),
            RecordedInput::WaitedMicroseconds(waited) => Input::Waited(Duration::from_micros(*waited)),
            RecordedInput::SubscribersChanged(changed) => {
                for (supi, record) in changed {
                    self.change_subscriber(*supi, record.as_ref());
                    supis.push(*supi);
                }
                self.active.subscribers().refresh().unwrap();
                Input::SubscribersChanged(Some(&supis))
            }
            RecordedInput::Tick => Input::Tick,
        };
        let mut out = Outbox::default();
        assert!(self.active.handle(Instant(at), input, &mut out).is_none(), "there is no CTA replica");
        for event in &out.events {
            let (count, procedure) = match &event.event {
                Event::Completed { procedure, .. } => (&mut self.completed, procedure),
                Event::Refused { procedure, .. } => (&mut self.refused, procedure),
                _ => continue,
            };
            *count.entry(format!("{procedure:?}")).or_default() += 1;
        }
        SentMessages::of(&out, (0, 0, 0))
    }

    fn change_subscriber(&mut self, supi: Supi, record: Option<&serde_json::Value>) {
        let store = self.active.subscribers().store();
        match record {
            Some(record) => {
                let record = record.to_string();
                let (format, replaced) = (Format::Json, OnExisting::Replace);
                store.import(record.as_bytes(), format, replaced, &mut |_| {}).unwrap();
            }
            None => store.remove(supi).unwrap(),
        }
    }

    fn census(&self) -> (u64, u64, u64) {
        let census = view::census(self.active.cta());
        (census.gnbs, census.registered, census.connected)
    }
}

fn draws(recorded: &[Hex]) -> Vec<[u8; 16]> {
    recorded.iter().map(|draw| draw.octets().try_into().expect("sixteen octets")).collect()
}

fn counts(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter().map(|(procedure, count)| ((*procedure).to_owned(), *count)).collect()
}

#[test] // other makes' radios get the same answers as when they were recorded
fn recorded_exchanges_give_the_same_messages() {
    for expected in RECORDINGS {
        let recording = Recording::read(expected.folder);
        let mut core = ReplayedCore::new(&recording, DrawTape::of_recording());
        for (n, step) in recording.steps.iter().enumerate() {
            core.tape.give(draws(&step.draws));
            let sent = core.take(step.at, &step.input);
            let (folder, line) = (expected.folder, n + 2);
            assert_eq!(sent, step.sent, "{folder}, line {line}: {:?}", step.input);
            assert!(core.tape.take().is_empty(), "{folder}, line {line}: fewer draws than recorded");
        }
        assert_eq!(
            core.census(),
            expected.census,
            "{}: gNBs, registered UEs, connected ones",
            expected.folder
        );
        assert_eq!(core.completed, counts(expected.completed), "{}: completed", expected.folder);
        assert_eq!(core.refused, counts(expected.refused), "{}: refused", expected.folder);
    }
}

/// The steps with one kind of disorder in them.
fn disordered(steps: &[ExchangeStep], kind: usize) -> Vec<&ExchangeStep> {
    let mut all: Vec<&ExchangeStep> = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let is_ngap = matches!(step.input, RecordedInput::Ngap(..));
        match kind {
            0 if n % 10 == 9 && is_ngap => all.extend([step, step]), // every tenth comes twice
            1 if n % 10 == 9 && is_ngap => {}                        // every tenth is lost
            2 if n % 7 == 6 => all.insert(all.len() - 1, step),      // every seventh overtakes the one before
            _ => all.push(step),
        }
    }
    match kind {
        3 => all.truncate(steps.len() / 3),
        4 => all.truncate(steps.len() / 2),
        5 => all.truncate(2 * steps.len() / 3),
        _ => {}
    }
    all
}

#[test] // after whatever another make does out of turn, a further gNB is served
fn recorded_exchanges_in_disorder_leave_a_further_gnb_served() {
    const FURTHER: u32 = 1_000;
    for expected in RECORDINGS {
        let recording = Recording::read(expected.folder);
        for kind in 0..6 {
            let mut core = ReplayedCore::new(&recording, DrawTape::default());
            let steps = disordered(&recording.steps, kind);
            let mut at = recording.beginning.at;
            for step in &steps {
                at = at.max(step.at);
                core.take(at, &step.input);
            }
            // The exchange begins again on another association, as that of another gNB at another host.
            let setup = recording.steps.iter().find_map(|step| match &step.input {
                RecordedInput::Ngap(_, stream, octets) => Some((*stream, octets.clone())),
                _ => None,
            });
            let (stream, octets) = setup.expect("NG SETUP REQUEST");
            let ended: Vec<u32> = steps
                .iter()
                .filter_map(|step| match &step.input {
                    RecordedInput::AssociationUp { association, .. } => Some(*association),
                    _ => None,
                })
                .collect();
            for association in ended {
                core.take(at, &RecordedInput::AssociationDown(association));
            }
            let up = RecordedInput::AssociationUp {
                association: FURTHER,
                outbound_streams: 2,
                addresses: vec!["192.0.2.9".parse().unwrap()],
            };
            core.take(at, &up);
            let sent = core.take(at, &RecordedInput::Ngap(FURTHER, stream, octets));
            // A PDU of a successful outcome begins with 0x20, that of NG Setup goes on with procedure code 21 (TS 38.413 §9.4.7).
            let is_response =
                |(to, _, octets): &(u32, u16, Hex)| *to == FURTHER && octets.0.starts_with("2015");
            assert!(sent.ngap.iter().any(is_response), "{}, disorder {kind}: {sent:?}", expected.folder);
        }
    }
}
