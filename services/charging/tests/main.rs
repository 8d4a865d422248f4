//! The tests of this crate, in one program.

mod interleavings;
mod kill;
mod lifecycle;

use std::path::Path;
use std::time::Duration;

use whimbrel_charging::{
    AccountKind, AccountStatus, ChargedSession, ChargingDataRequest, ChargingDataResponse, ChargingFunction,
    ChargingOperation, ChargingPolicy, ChargingRefusal, MultipleUnitUsage, SessionKey, SessionReference,
    UnitResult, UsedUnitContainer,
};
use whimbrel_ids::{Instant, Supi};

/// Seconds for which quotas of the tests are valid.
const VALIDITY_S: u32 = 100;

fn policy() -> ChargingPolicy {
    ChargingPolicy {
        grant_octets: 1_000,
        threshold_percent: 20,
        validity_s: VALIDITY_S,
        default_account: None,
        sessions_max: 100,
        accounts_max: 100,
        records_kept: Duration::from_secs(1_000_000),
    }
}

fn supi(number: u64) -> Supi {
    format!("imsi-99970000000{number:04}").parse().unwrap()
}

fn open(folder: &Path) -> ChargingFunction {
    ChargingFunction::open(&folder.join("charging.db"), policy()).unwrap()
}

/// A function with one prepaid account.
fn with_credit(folder: &Path, octets: i64) -> ChargingFunction {
    let mut chf = open(folder);
    chf.put_account(supi(1), AccountKind::Prepaid, AccountStatus::Active).unwrap();
    chf.credit(at(0), supi(1), octets, None).unwrap().unwrap();
    chf
}

fn at(seconds: u64) -> Instant {
    Instant((1_000_000 + seconds) * 1_000_000)
}

fn key(supi: Supi, charging_id: u32) -> SessionKey {
    SessionKey { consumer: Some("smf".into()), supi, charging_id: Some(charging_id), pdu_session_id: Some(1) }
}

fn create(supi: Supi, charging_id: u32, resource: &str) -> ChargingDataRequest {
    let session = ChargedSession {
        resource: resource.into(),
        key: key(supi, charging_id),
        notify_uri: Some("http://192.0.2.7/notify".into()),
        dnn: Some("internet".into()),
        s_nssai: Some("1".into()),
    };
    ChargingDataRequest {
        operation: ChargingOperation::Create(session.into()),
        sequence: 0,
        usage: vec![asking(Some(None), None)],
    }
}

fn asking(requested: Option<Option<u64>>, used: Option<UsedUnitContainer>) -> MultipleUnitUsage {
    MultipleUnitUsage { rating_group: 1, requested, used: used.into_iter().collect() }
}

fn used(number: u32, uplink: u64, downlink: u64) -> UsedUnitContainer {
    UsedUnitContainer { number, uplink, downlink, time_s: 10, ..UsedUnitContainer::default() }
}

fn reference(resource: &str) -> SessionReference {
    SessionReference::Resource(resource.into(), None)
}

fn update(resource: &str, sequence: u32, used: UsedUnitContainer) -> ChargingDataRequest {
    let usage = vec![asking(Some(None), Some(used))];
    ChargingDataRequest { operation: ChargingOperation::Update(reference(resource)), sequence, usage }
}

fn release(resource: &str, sequence: u32, used: UsedUnitContainer) -> ChargingDataRequest {
    let usage = vec![asking(None, Some(used))];
    ChargingDataRequest { operation: ChargingOperation::Release(reference(resource)), sequence, usage }
}

fn handle(
    chf: &mut ChargingFunction,
    seconds: u64,
    request: &ChargingDataRequest,
) -> Result<ChargingDataResponse, ChargingRefusal> {
    let mut answers = chf.handle(at(seconds), std::slice::from_ref(request)).unwrap();
    assert_eq!(chf.verify().unwrap(), Ok(()));
    answers.remove(0)
}

/// The result of the only rating group.
fn result(answer: Result<ChargingDataResponse, ChargingRefusal>) -> UnitResult {
    let answer = answer.unwrap();
    assert_eq!(answer.units.len(), 1, "{answer:?}");
    answer.units[0].result
}
