//! The messages of usage: written as read, one encoding each, and no octets that panic.

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_open::id::{OperatorId, Pseudonym};
use whimbrel_open::msg::{Rejection, Subject};
use whimbrel_open::usage::*;

use super::parties::*;

fn directions() -> impl Strategy<Value = Direction> {
    let count = 0..=Direction::COUNT_MAX;
    (count.clone(), count.clone(), count, any::<u32>(), any::<u32>()).prop_map(
        |(octets, packets, lost, kbps, delay_us)| Direction { octets, packets, lost, kbps, delay_us },
    )
}

fn reports() -> impl Strategy<Value = SignedReport> {
    let times = (1..u32::MAX, 0..=Report::END_MS_MAX, any::<u32>(), any::<bool>());
    (any::<bool>(), any::<[u8; 16]>(), times, directions(), directions()).prop_map(
        |(by_user, pseudonym, (cycle, end_ms, duration_ms, closed), uplink, downlink)| {
            let by = if by_user { ReportedBy::User } else { ReportedBy::Operator };
            let duration_ms = u32::try_from(end_ms).map_or(duration_ms, |end| duration_ms.min(end));
            let pseudonym = Pseudonym(pseudonym);
            let report = Report {
                pseudonym,
                cycle,
                end_ms,
                duration_ms,
                closed,
                uplink,
                downlink,
                ..report(by, 1, 0, 0)
            };
            signed(report)
        },
    )
}

fn receipts() -> impl Strategy<Value = SignedReceipt> {
    const VERDICTS: [Verdict; 4] =
        [Verdict::Confirmed, Verdict::Reduced, Verdict::CreditUsed, Verdict::OperatorsWord];
    let totals = any::<(u64, u64, u64, u64, u64)>().prop_map(|(a, b, c, d, micros)| Totals {
        claimed: (a, b),
        paid: (c, d),
        micros,
    });
    (any::<(u64, u64, u32)>(), any::<[u8; 32]>(), prop::sample::select(&VERDICTS[..]), totals).prop_map(
        |((serial, time, cycle), report, verdict, totals)| {
            let (broker, operator, pseudonym) = (domain(), t(), Pseudonym([1; 16]));
            let receipt =
                Receipt { broker, operator, serial, time, pseudonym, cycle, report, verdict, totals };
            receipt.sign(&key("b.example"))
        },
    )
}

fn delivery(reports: &[SignedReport]) -> Delivery {
    let to = epoch().1;
    let sealed = reports.iter().zip(0..).map(|(r, n)| r.seal(&to, &seed(n)).unwrap()).collect();
    operator().deliver(domain(), at(0), 41, sealed)
}

fn answer(delivery: &Delivery, receipts: Vec<SignedReceipt>) -> DeliveryAnswer {
    let outcomes = vec![Outcome::Accepted as u8; delivery.reports.len()];
    let certificate = certificate(Subject::Broker(domain()), "b.example");
    let octets = delivery.to_octets();
    DeliveryAnswer::signed(certificate, &octets, epoch().1, outcomes, receipts, &key("b.example"))
}

/// Reads octets as every message; what is understood must be written again in the same octets. Gives how many understood it.
fn read_as_every_message(octets: &[u8]) -> usize {
    fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) -> usize {
        let Ok(value) = read else { return 0 };
        assert_eq!(write(&value), octets);
        1
    }
    same(SignedReport::parse(octets), SignedReport::to_octets, octets)
        + same(SealedReport::parse(octets), SealedReport::to_octets, octets)
        + same(Delivery::parse(octets), Delivery::to_octets, octets)
        + same(DeliveryAnswer::parse(octets), DeliveryAnswer::to_octets, octets)
        + same(SignedReceipt::parse(octets), SignedReceipt::to_octets, octets)
        + same(Statement::parse(octets), Statement::to_octets, octets)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reports_are_read_as_written_and_open_for_the_broker_alone(report in reports()) {
        prop_assert_eq!(SignedReport::parse(&report.to_octets()), Ok(report.clone()));
        prop_assert!(report.to_octets().len() <= SignedReport::OCTETS_MAX);
        let (private, to) = epoch();
        let sealed = report.seal(&to, &seed(1)).unwrap();
        prop_assert_eq!(SealedReport::parse(&sealed.to_octets()), Ok(sealed.clone()));
        prop_assert_eq!(sealed.open(&private), Some(report));
        let other = whimbrel_open::crypto::PrivateKey::new([5; 32]);
        prop_assert_eq!(sealed.open(&other), None);
    }

    #[test]
    fn deliveries_answers_and_statements_are_read_as_written(
        reports in vec(reports(), 0..4), receipts in vec(receipts(), 0..4),
    ) {
        let delivery = delivery(&reports);
        prop_assert_eq!(Delivery::parse(&delivery.to_octets()), Ok(delivery.clone()));
        let answer = answer(&delivery, receipts.clone());
        prop_assert_eq!(DeliveryAnswer::parse(&answer.to_octets()), Ok(answer));
        if let Some(statement) = Statement::sign(domain(), t(), 7, receipts, &key("b.example")) {
            prop_assert_eq!(Statement::parse(&statement.to_octets()), Ok(statement));
        }
    }

    #[test]
    fn damaged_messages_are_understood_as_written_or_refused(
        report in reports(), receipt in receipts(), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let delivery = delivery(std::slice::from_ref(&report));
        let answer = answer(&delivery, vec![receipt.clone()]).to_octets();
        let statement = Statement::sign(domain(), t(), 7, vec![receipt.clone()], &key("b.example"));
        let statement = statement.map(|s| s.to_octets()).unwrap_or_default();
        for mut octets in [report.to_octets(), receipt.to_octets(), delivery.to_octets(), answer, statement] {
            if octets.is_empty() {
                continue;
            }
            let at = at.index(octets.len());
            read_as_every_message(&octets[..at]);
            octets[at] ^= 1 << bit;
            read_as_every_message(&octets);
        }
    }

    #[test]
    fn any_octets_are_understood_as_written_or_refused(kind in 7..15u8, octets in vec(any::<u8>(), 0..400)) {
        read_as_every_message(&[&[kind, 1], &octets[..]].concat());
    }

    /// What the deliverer or the broker did not sign is not believed.
    #[test]
    fn a_changed_delivery_or_answer_is_not_believed(
        report in reports(), receipt in receipts(), place in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let delivery = delivery(&[report]);
        prop_assert_eq!(delivery.authenticate(&domain(), &trust(), at(0)), Ok(t()));
        let mut octets = delivery.to_octets();
        let at_octet = place.index(octets.len());
        octets[at_octet] ^= 1 << bit;
        if let Ok(changed) = Delivery::parse(&octets) {
            prop_assert!(changed.authenticate(&domain(), &trust(), at(0)).is_err());
        }
        let answer = answer(&delivery, vec![receipt]).to_octets();
        let believed = |octets: &[u8]| DeliveryAnswer::verify(octets, &delivery, t(), &trust(), at(0));
        prop_assert!(believed(&answer).is_ok());
        let mut octets = answer;
        let at_octet = place.index(octets.len());
        octets[at_octet] ^= 1 << bit;
        prop_assert!(believed(&octets).is_err());
    }
}

#[test]
fn counts_that_overflow_and_times_that_run_back_are_no_report() {
    let good = report(ReportedBy::User, 1, 5, 5);
    let parsed = |report: Report| SignedReport::parse(&signed(report).to_octets());
    assert!(parsed(good.clone()).is_ok());
    for octets in [Direction::COUNT_MAX + 1, u64::MAX, 1 << 63] {
        assert!(parsed(Report { uplink: direction(octets, 0, 0), ..good.clone() }).is_err());
        assert!(parsed(Report { downlink: direction(0, octets, 0), ..good.clone() }).is_err());
    }
    assert!(parsed(Report { cycle: 0, ..good.clone() }).is_err());
    assert!(parsed(Report { duration_ms: 10_001, ..good.clone() }).is_err(), "it began before the session");
    assert!(parsed(Report { end_ms: Report::END_MS_MAX + 1, ..good }).is_err());
}

#[test]
fn a_delivery_is_believed_of_a_certified_operator_at_about_this_time_only() {
    let of = delivery(&[]);
    assert_eq!(of.authenticate(&domain(), &trust(), at(301)), Err(Rejection::ClockSkew));
    let other = "c.example".parse().unwrap();
    assert_eq!(of.authenticate(&other, &trust(), at(0)), Err(Rejection::OtherBroker));
    let other_trust = whimbrel_open::msg::Trust::new(vec![key("other authority").verifying_key()]).unwrap();
    assert_eq!(of.authenticate(&domain(), &other_trust, at(0)), Err(Rejection::CertificateUntrusted));
}

#[test]
fn an_answer_to_another_delivery_or_with_anothers_receipts_is_not_believed() {
    let (one, two) = (delivery(&[]), delivery(&[signed(report(ReportedBy::Operator, 1, 0, 0))]));
    let octets = answer(&one, Vec::new()).to_octets();
    let verify = |octets: &[u8], of: &Delivery| DeliveryAnswer::verify(octets, of, t(), &trust(), at(0));
    assert!(verify(&octets, &one).is_ok());
    assert_eq!(verify(&octets, &two), Err(DeliveryError::OtherDelivery));
    let operator = OperatorId { plmn: "999/71".parse().unwrap(), nid: None };
    let receipt = Receipt {
        broker: domain(),
        operator,
        serial: 1,
        time: 0,
        pseudonym: Pseudonym([1; 16]),
        cycle: 1,
        report: [0; 32],
        verdict: Verdict::Confirmed,
        totals: Totals::default(),
    };
    let octets = answer(&one, vec![receipt.sign(&key("b.example"))]).to_octets();
    assert_eq!(verify(&octets, &one), Err(DeliveryError::Receipt));
    let broker = certificate(Subject::Broker(domain()), "b.example");
    let rejected = DeliveryAnswer::rejected(broker, &one.to_octets(), Rejection::Busy).to_octets();
    assert_eq!(verify(&rejected, &one), Err(DeliveryError::Rejected(Rejection::Busy)));
}

#[test]
fn a_meter_cuts_cycles_at_multiples_of_the_period_and_keeps_totals() {
    let mut meter = Meter::new(ReportedBy::User, &grant(), at(0));
    meter.count(true, 1, 1_000);
    assert!(!meter.is_due(at(4)) && meter.cycle_ends() == Some(at(10)));
    assert!(meter.is_due(at(9)), "the other party's clock may be a little ahead");
    let first = meter.report(at(10), false);
    assert_eq!(
        (first.cycle, first.end_ms, first.duration_ms, first.uplink.octets),
        (1, 10_000, 10_000, 1_000)
    );
    assert!(!meter.is_due(at(10)));
    meter.count(false, 2, 5_000);
    // An idle UE reports when it can again.
    let later = meter.report(at(41), false);
    assert_eq!((later.cycle, later.duration_ms, later.downlink.packets), (4, 31_000, 2));
    let last = meter.report(at(42), true);
    assert_eq!((last.cycle, last.closed, last.uplink.octets), (5, true, 1_000));
}

#[test] // fuzz/seeds of these messages
#[allow(clippy::disallowed_methods, reason = "the corpus is in files")]
fn messages_that_were_kept_are_understood() {
    let report = signed(report(ReportedBy::User, 1, 5, 5));
    let (private, to) = epoch();
    let sealed = report.seal(&to, &seed(1)).unwrap();
    assert!(sealed.open(&private).is_some());
    let delivery = delivery(std::slice::from_ref(&report));
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds");
    for (target, name) in [
        ("usage_report", "signed"),
        ("usage_report", "sealed"),
        ("usage_delivery", "one-report"),
        ("usage_delivery", "answer"),
        ("statement", "receipt"),
        ("statement", "two-lines"),
    ] {
        let octets = std::fs::read(format!("{folder}/{target}/{name}")).unwrap();
        assert_eq!(read_as_every_message(&octets), 1, "{target}/{name}");
    }
    assert_eq!(std::fs::read(format!("{folder}/usage_report/signed")).unwrap(), report.to_octets());
    assert_eq!(std::fs::read(format!("{folder}/usage_delivery/one-report")).unwrap(), delivery.to_octets());
}
