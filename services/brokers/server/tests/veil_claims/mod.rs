//! Settlement periods and claims over the wire (LOCA, chapter 4.4.5).

use whimbrel_broker_server::veil::claims::{ClaimsStorage, PaidClaim};
use whimbrel_claims::{ClaimSecret, Row, Slots, Table, nonce, prove};
use whimbrel_privacy::broker::Record;
use whimbrel_privacy::log::LogError;
use whimbrel_privacy::msg::{
    ClaimAnswer, ClaimRefusal, ClaimRequest, PeriodHead, PeriodWitness, TablePart, TableRequest,
};

use super::*;

fn secret(n: u8) -> ClaimSecret {
    ClaimSecret::new(&[n; 32])
}

/// Sessions of these numbers, as if they had been reported: each of as many units as its number.
fn report(folder: &Path, sessions: std::ops::Range<u8>) {
    let record = |n: u8| Record::Reported {
        session: [n; 32],
        user: user(),
        units: u32::from(n),
        nonce: nonce(&secret(n)),
        report: [n; 32],
    };
    let records: Vec<_> = sessions.map(record).collect();
    VeilStorage::open(&folder.join("veil.db")).unwrap().commit(&records, &[]).unwrap();
}

fn storage(folder: &Path) -> ClaimsStorage {
    ClaimsStorage::open(&folder.join("veil.db")).unwrap()
}

fn slots() -> Slots {
    Slots::new(Slots::MIN).unwrap()
}

/// Closes a period, and has the witness sign it.
fn close(folder: &Path, witness: &mut PeriodWitness) -> Option<PeriodHead> {
    let mut storage = storage(folder);
    let head = storage.close_period(&domain(), slots(), &key("broker")).unwrap()?;
    storage.add_cosignature(head.period, &witness.cosign(&head).unwrap()).unwrap();
    Some(head)
}

fn witness() -> PeriodWitness {
    PeriodWitness::new(domain(), key("broker").verifying_key(), key("witness"), None)
}

struct Operator<'a> {
    service: &'a Service,
    tls: Arc<ClientConfig>,
}

impl Operator<'_> {
    fn post(&self, kind: QuestionKind, octets: &[u8]) -> Vec<u8> {
        let client = Client::new(self.tls.clone());
        let path = (kind.path(), TablePart::OCTETS_MAX);
        runtime().block_on(client.post(path, &self.service.place(), octets, WITHIN)).unwrap()
    }

    /// The table of a period that the witness has signed.
    fn table(&self, period: u32) -> (PeriodHead, Table) {
        let request = TableRequest { broker: domain(), period, from: 0 };
        let part = TablePart::parse(&self.post(QuestionKind::Table, &request.to_octets())).unwrap();
        let witnesses = vec![key("witness").verifying_key()];
        let trust = LogTrust::new(domain(), key("broker").verifying_key(), witnesses).unwrap();
        assert_eq!(part.head.check(&part.cosignatures, &trust), Ok(()));
        assert_eq!(part.head.check(&[], &trust), Err(LogError::TooFewWitnesses));
        let rows = part.rows.into_iter().map(|(nonce, units)| Row { nonce, units }).collect();
        let table = Table::new(rows).unwrap();
        assert_eq!(table.root(), part.head.root);
        (part.head, table)
    }

    fn claim(&self, request: &ClaimRequest) -> ClaimAnswer {
        ClaimAnswer::parse(&self.post(QuestionKind::Claim, &request.to_octets())).unwrap()
    }

    fn refused(&self, request: &ClaimRequest) -> ClaimRefusal {
        match self.claim(request) {
            ClaimAnswer::Refused(cause) => cause,
            ClaimAnswer::Paid(payment) => panic!("{} units are paid", payment.units),
        }
    }
}

/// The claim of sessions by an operator, made as it makes it.
fn claim_of(
    (head, table): &(PeriodHead, Table),
    sessions: std::ops::Range<u8>,
    id: OperatorId,
) -> ClaimRequest {
    // Fresh entropy for each claim: the slots that are free have nullifiers of their own.
    let seed = [sessions.start; 32];
    let secrets: Vec<_> = sessions.map(secret).collect();
    let (claim, proof) = prove(table, &secrets, slots(), head.claim_context(&id), &seed).unwrap();
    signed(head.period, id, claim.units, claim.nullifiers, proof)
}

fn signed(
    period: u32,
    id: OperatorId,
    units: u64,
    nullifiers: Vec<[u8; 32]>,
    proof: Vec<u8>,
) -> ClaimRequest {
    let proved = (nullifiers, proof);
    ClaimRequest::signed((domain(), period), certificate_of(id), units, proved, &key("operator"))
}

fn certificate_of(id: OperatorId) -> Certificate {
    let own = open_key("operator").verifying_key();
    Certificate::issue(&open_key("authority"), Subject::Operator(id), own, validity(), 1)
}

fn other_operator() -> OperatorId {
    OperatorId { nid: Nid::new(8), ..operator() }
}

#[test] // chapter 4.4.5, "claiming phase"
fn a_claim_is_paid_once_and_its_sessions_by_no_other_claim() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    report(folder, 1..8);
    let mut witness = witness();
    close(folder, &mut witness).unwrap();
    let service = Service::start(folder);
    let at = Operator { service: &service, tls: tls.clone() };
    let table = at.table(0);
    let claim = claim_of(&table, 1..4, operator());
    let ClaimAnswer::Paid(payment) = at.claim(&claim) else { panic!("not paid") };
    assert_eq!((payment.period, payment.units), (0, 1 + 2 + 3));
    assert!(payment.is_of(&claim.to_octets(), &key("broker").verifying_key()));
    assert_eq!(at.claim(&claim), ClaimAnswer::Paid(payment.clone()), "the same claim, the same answer");
    // A session of another operator's paid claim, whose secret it has given away.
    assert_eq!(at.refused(&claim_of(&table, 3..5, other_operator())), ClaimRefusal::Claimed);
    assert_eq!((service.counted("claims_paid"), service.counted("claimed_units")), (1, 6));
    assert_eq!(service.counted("claims_refused"), 1);
    drop(service);

    let service = Service::start(folder);
    let at = Operator { service: &service, tls };
    assert_eq!(at.claim(&claim), ClaimAnswer::Paid(payment), "after a restart");
    assert_eq!(at.refused(&claim_of(&table, 2..3, operator())), ClaimRefusal::Claimed);
    // The rest of the table, and a session that was reported later.
    assert!(matches!(at.claim(&claim_of(&table, 4..8, other_operator())), ClaimAnswer::Paid(_)));
    assert!(close(folder, &mut witness).is_none(), "nothing was reported since");
    report(folder, 8..9);
    let head = close(folder, &mut witness).unwrap();
    assert_eq!((head.period, head.rows), (1, 1));
    assert!(matches!(at.claim(&claim_of(&at.table(1), 8..9, operator())), ClaimAnswer::Paid(_)));
    let paid = storage(folder).paid().unwrap();
    let paid: Vec<_> = paid.iter().map(|p| (p.operator.clone(), p.period, p.claims, p.units)).collect();
    let (own, other) = (operator().to_string(), other_operator().to_string());
    assert_eq!(paid, [(own.clone(), 0, 1, 6), (own, 1, 1, 8), (other, 0, 1, 4 + 5 + 6 + 7)]);
}

#[test]
fn a_claim_that_is_not_in_order_is_refused_with_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tls = make_tls(folder);
    provision(folder);
    report(folder, 1..4);
    close(folder, &mut witness()).unwrap();
    let service = Service::start(folder);
    let at = Operator { service: &service, tls };
    let table = at.table(0);
    let claim = claim_of(&table, 1..4, operator());
    let malformed = ClaimAnswer::parse(&at.post(QuestionKind::Claim, b"no claim")).unwrap();
    assert_eq!(malformed, ClaimAnswer::Refused(ClaimRefusal::Malformed));
    let own = &claim.nullifiers;
    let with = |change: &dyn Fn(&mut ClaimRequest)| {
        let mut changed = claim.clone();
        change(&mut changed);
        let proved = (changed.nullifiers, changed.proof);
        let of = (changed.broker, changed.period);
        let changed = ClaimRequest::signed(of, changed.certificate, changed.units, proved, &key("operator"));
        at.refused(&changed)
    };
    assert_eq!(with(&|c| c.broker = "other.example".parse().unwrap()), ClaimRefusal::OtherBroker);
    let (of, public) = (Subject::Operator(operator()), open_key("operator").verifying_key());
    let foreign = Certificate::issue(&open_key("another authority"), of, public, validity(), 1);
    assert_eq!(with(&|c| c.certificate = foreign.clone()), ClaimRefusal::Certificate);
    let unsigned = ClaimRequest { units: claim.units + 1, ..claim.clone() };
    assert_eq!(at.refused(&unsigned), ClaimRefusal::OperatorSignature);
    let without_contract = OperatorId { nid: Nid::new(9), ..operator() };
    assert_eq!(with(&|c| c.certificate = certificate_of(without_contract)), ClaimRefusal::OperatorNotAllowed);
    assert_eq!(with(&|c| c.period = 1), ClaimRefusal::UnknownPeriod);
    assert_eq!(with(&|c| c.nullifiers.truncate(16)), ClaimRefusal::Slots);
    assert_eq!(with(&|c| c.nullifiers[5] = own[4]), ClaimRefusal::Repeated);
    assert_eq!(with(&|c| c.units = u64::MAX), ClaimRefusal::Overflow);
    assert_eq!(with(&|c| c.proof.truncate(1_000)), ClaimRefusal::Proof);
    assert_eq!(with(&|c| c.units += 1), ClaimRefusal::NotProven, "inflated");
    // The proof of another operator.
    assert_eq!(with(&|c| c.certificate = certificate_of(other_operator())), ClaimRefusal::NotProven);
    assert!(storage(folder).paid().unwrap().is_empty());
    assert!(matches!(at.claim(&claim), ClaimAnswer::Paid(_)), "the claim itself is in order");
}

#[test] // two nodes of a broker: the row that was inserted first counts
fn of_two_claims_with_a_common_session_one_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut first, mut second) = (storage(folder), storage(folder));
    let paid = |n: u8| PaidClaim { claim: [n; 32], operator: operator(), period: 0, units: 1 };
    assert!(first.pay(&paid(1), &[[1; 32], [2; 32]], b"first").unwrap());
    assert!(!second.pay(&paid(2), &[[3; 32], [2; 32]], b"second").unwrap());
    assert!(second.is_claimed(&[[1; 32]]).unwrap() && !second.is_claimed(&[[3; 32]]).unwrap());
    assert_eq!(second.claims_of(&operator(), 0).unwrap(), 1);
    assert_eq!(second.answer(&[1; 32]).unwrap().as_deref(), Some(&b"first"[..]));
}
