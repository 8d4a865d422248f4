//! Random interleavings of consumers, operators and kills: each octet stays in one place, and each container counts once.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use whimbrel_charging::{
    AccountKind, AccountStatus, ChargingDataRequest, ChargingDataResponse, ChargingFunction, ChargingRefusal,
};
use whimbrel_ids::Supi;

use super::{VALIDITY_S, at, create, open, release, supi, update, used};

/// Subscribers, and sessions of each.
const SUBSCRIBERS: u64 = 2;
const SESSIONS: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum LedgerStep {
    Create {
        subscriber: u64,
        session: u32,
    },
    Update {
        subscriber: u64,
        session: u32,
        octets: u64,
    },
    Release {
        subscriber: u64,
        session: u32,
        octets: u64,
    },
    /// The last request of the session comes again.
    Repeat {
        subscriber: u64,
        session: u32,
    },
    /// The usage of the last request comes in a further one, whose number is higher.
    Renumber {
        subscriber: u64,
        session: u32,
    },
    Credit {
        subscriber: u64,
        octets: i64,
    },
    Put {
        subscriber: u64,
        is_prepaid: bool,
        is_barred: bool,
    },
    /// Time passes, and sessions without reports are closed.
    Wait {
        seconds: u64,
    },
    /// The process is killed: its files are as they are at that moment.
    Kill,
}

fn step() -> impl Strategy<Value = LedgerStep> {
    let (subscriber, session) = (1..=SUBSCRIBERS, 0..SESSIONS);
    let of = (subscriber.clone(), session);
    prop_oneof![
        3 => of.clone().prop_map(|(subscriber, session)| LedgerStep::Create { subscriber, session }),
        6 => (of.clone(), 0..3_000u64)
            .prop_map(|((subscriber, session), octets)| LedgerStep::Update { subscriber, session, octets }),
        2 => (of.clone(), 0..3_000u64)
            .prop_map(|((subscriber, session), octets)| LedgerStep::Release { subscriber, session, octets }),
        3 => of.clone().prop_map(|(subscriber, session)| LedgerStep::Repeat { subscriber, session }),
        2 => of.prop_map(|(subscriber, session)| LedgerStep::Renumber { subscriber, session }),
        2 => (subscriber.clone(), -500..5_000i64)
            .prop_map(|(subscriber, octets)| LedgerStep::Credit { subscriber, octets }),
        1 => (subscriber, any::<bool>(), any::<bool>())
            .prop_map(|(subscriber, is_prepaid, is_barred)| LedgerStep::Put { subscriber, is_prepaid, is_barred }),
        2 => (0..u64::from(3 * VALIDITY_S)).prop_map(|seconds| LedgerStep::Wait { seconds }),
        1 => Just(LedgerStep::Kill),
    ]
}

type Answer = Result<ChargingDataResponse, ChargingRefusal>;

/// A session, as its consumer sees it.
#[derive(Default)]
struct ExpectedSession {
    resource: Option<String>,
    sequence: u32,
    container: u32,
    last: Option<(ChargingDataRequest, Answer)>,
}

struct ExpectedLedger {
    folder: tempfile::TempDir,
    chf: ChargingFunction,
    seconds: u64,
    sessions: BTreeMap<(u64, u32), ExpectedSession>,
    created: u32,
    /// Octets that consumers have reported, and operators credited.
    reported: BTreeMap<Supi, u64>,
    credited: BTreeMap<Supi, i64>,
}

impl ExpectedLedger {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut chf = open(folder.path());
        for subscriber in 1..=SUBSCRIBERS {
            chf.put_account(supi(subscriber), AccountKind::Prepaid, AccountStatus::Active).unwrap();
        }
        Self {
            folder,
            chf,
            seconds: 0,
            sessions: BTreeMap::new(),
            created: 0,
            reported: BTreeMap::new(),
            credited: BTreeMap::new(),
        }
    }

    fn send(&mut self, request: &ChargingDataRequest) -> Answer {
        self.chf.handle(at(self.seconds), std::slice::from_ref(request)).unwrap().remove(0)
    }

    fn step(&mut self, step: LedgerStep) {
        match step {
            LedgerStep::Create { subscriber, session } => {
                self.created += 1;
                let resource = format!("r{}", self.created);
                // A charging identifier of its own: a session that its consumer forgets is closed for want of a report.
                let request = create(supi(subscriber), self.created, &resource);
                let answer = self.send(&request);
                let resource = answer.as_ref().ok().map(|answer| answer.resource.to_string());
                let last = Some((request, answer));
                self.sessions.insert(
                    (subscriber, session),
                    ExpectedSession { resource, last, ..ExpectedSession::default() },
                );
            }
            LedgerStep::Update { subscriber, session, octets } => {
                self.report(subscriber, session, octets, false)
            }
            LedgerStep::Release { subscriber, session, octets } => {
                self.report(subscriber, session, octets, true)
            }
            LedgerStep::Repeat { subscriber, session } => {
                let last = self.sessions.get(&(subscriber, session)).and_then(|session| session.last.clone());
                // A Create after the session was closed would begin another one.
                let open = self.chf.open_sessions(supi(subscriber)).unwrap();
                let is_open =
                    |answer: &ChargingDataResponse| open.iter().any(|s| s.session == answer.resource);
                let is_create = |request: &ChargingDataRequest| request.sequence == 0;
                if let Some((request, Ok(answer))) = last
                    && (!is_create(&request) || is_open(&answer))
                {
                    assert_eq!(self.send(&request), Ok(answer), "{request:?}");
                }
            }
            LedgerStep::Renumber { subscriber, session } => {
                let last = self.sessions.get(&(subscriber, session)).and_then(|session| session.last.clone());
                if let Some((request, Ok(_))) = last.filter(|(request, _)| request.sequence > 0) {
                    let sequence = request.sequence + 1;
                    let request = ChargingDataRequest { sequence, ..request };
                    let answer = self.send(&request);
                    let session = self.sessions.get_mut(&(subscriber, session)).unwrap();
                    (session.sequence, session.last) = (sequence, Some((request, answer)));
                }
            }
            LedgerStep::Credit { subscriber, octets } => {
                if self.chf.credit(at(self.seconds), supi(subscriber), octets, None).unwrap().is_ok() {
                    *self.credited.entry(supi(subscriber)).or_default() += octets;
                }
            }
            LedgerStep::Put { subscriber, is_prepaid, is_barred } => {
                let kind = if is_prepaid { AccountKind::Prepaid } else { AccountKind::Postpaid };
                let status = if is_barred { AccountStatus::Barred } else { AccountStatus::Active };
                self.chf.put_account(supi(subscriber), kind, status).unwrap();
            }
            LedgerStep::Wait { seconds } => {
                self.seconds += seconds;
                self.chf.expire(at(self.seconds)).unwrap();
            }
            LedgerStep::Kill => {
                let folder = tempfile::tempdir().unwrap();
                copy(self.folder.path(), folder.path());
                self.chf = open(folder.path());
                self.folder = folder;
            }
        }
    }

    fn report(&mut self, subscriber: u64, number: u32, octets: u64, is_release: bool) {
        let Some(session) = self.sessions.get_mut(&(subscriber, number)) else { return };
        let Some(resource) = session.resource.clone() else { return };
        session.sequence += 1;
        session.container += 1;
        let container = used(session.container, octets / 3, octets - octets / 3);
        let request = match is_release {
            true => release(&resource, session.sequence, container),
            false => update(&resource, session.sequence, container),
        };
        let answer = self.send(&request);
        if answer.is_ok() {
            *self.reported.entry(supi(subscriber)).or_default() += octets;
        }
        let session = self.sessions.get_mut(&(subscriber, number)).unwrap();
        session.last = Some((request, answer));
        if is_release {
            session.resource = None;
        }
    }

    fn check(&self) {
        assert_eq!(self.chf.verify().unwrap(), Ok(()));
        for subscriber in 1..=SUBSCRIBERS {
            let account = self.chf.account(supi(subscriber)).unwrap().unwrap();
            let reported = self.reported.get(&supi(subscriber)).copied().unwrap_or(0);
            assert_eq!(account.used_octets + account.postpaid_octets, reported, "{account:?}");
            let credited = self.credited.get(&supi(subscriber)).copied().unwrap_or(0);
            assert_eq!(account.credited_octets as i64, credited, "{account:?}");
            let open = self.chf.open_sessions(supi(subscriber)).unwrap();
            let records = self.chf.records(Some(supi(subscriber)), 0, 1_000).unwrap();
            let in_open = open.iter().flat_map(|session| &session.rating_groups);
            let in_records = records.iter().flat_map(|record| &record.rating_groups);
            let recorded: u64 = in_open.chain(in_records).map(|group| group.total_octets).sum();
            assert_eq!(recorded, reported, "{open:?} {records:?}");
        }
    }
}

/// The files as a kill leaves them. The index of the log is not among them: SQLite makes it of the log.
fn copy(from: &Path, to: &Path) {
    for name in ["charging.db", "charging.db-wal"] {
        if from.join(name).exists() {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_octet_is_in_one_place_and_counts_once(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = ExpectedLedger::new();
        for step in steps {
            model.step(step);
            model.check();
        }
    }
}
