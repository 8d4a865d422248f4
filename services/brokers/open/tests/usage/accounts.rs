//! The broker's accounts: which reports count, what is paid, and how differences are judged.

use proptest::prelude::*;
use whimbrel_open::id::{OperatorId, Pseudonym};
use whimbrel_open::msg::{Grant, Price};
use whimbrel_open::usage::*;

use super::parties::*;

const MIB: u64 = 1 << 20;

fn of_user(cycle: u32, ul: u64, dl: u64) -> Report {
    report(ReportedBy::User, cycle, ul, dl)
}

fn of_operator(cycle: u32, ul: u64, dl: u64) -> Report {
    report(ReportedBy::Operator, cycle, ul, dl)
}

#[test]
fn a_cycle_that_both_report_alike_is_paid_by_the_price_of_the_grant() {
    let mut accounts = accounts();
    assert!(deliver(&mut accounts, of_operator(1, MIB, 3 * MIB)).receipt.is_none(), "U has not reported");
    let receipt = deliver(&mut accounts, of_user(1, MIB, 3 * MIB)).receipt.unwrap();
    assert_eq!((receipt.serial, receipt.cycle, receipt.verdict), (1, 1, Verdict::Confirmed));
    let totals = Totals { claimed: (MIB, 3 * MIB), paid: (MIB, 3 * MIB), micros: 100 + 600 };
    assert_eq!(receipt.totals, totals);
    deliver(&mut accounts, of_user(2, 2 * MIB, 3 * MIB));
    let receipt = deliver(&mut accounts, of_operator(2, 2 * MIB, 3 * MIB)).receipt.unwrap();
    assert_eq!((receipt.serial, receipt.totals.micros, receipt.totals.paid), (2, 100, (MIB, 0)));
}

#[test] // B pays at most what U confirms
fn what_the_user_does_not_confirm_is_not_paid() {
    let mut accounts = accounts();
    deliver(&mut accounts, of_user(1, MIB, 10 * MIB));
    let accounted = deliver(&mut accounts, of_operator(1, MIB, 12 * MIB));
    let receipt = accounted.receipt.unwrap();
    assert_eq!((receipt.verdict, receipt.totals.paid), (Verdict::Reduced, (MIB, 10 * MIB)));
    let comparison = accounted.comparison.unwrap();
    assert_eq!(comparison.excess_octets, (2 * MIB - 3_000) as i64);
    assert!(comparison.beyond_tolerance_octets > 0);
}

#[test] // chapter 3.4.3: the threshold follows from the user's loss rate
fn what_was_lost_on_the_radio_is_no_mismatch_and_is_not_paid() {
    let mut accounts = accounts();
    let mut lossy = of_user(1, MIB, 9 * MIB);
    lossy.downlink = direction(9 * MIB, 9_000, 1_000);
    deliver(&mut accounts, lossy);
    let accounted = deliver(&mut accounts, of_operator(1, MIB, 10 * MIB));
    assert_eq!(accounted.comparison.unwrap().beyond_tolerance_octets, 0);
    let totals = accounted.receipt.unwrap().totals;
    assert_eq!((totals.claimed.1, totals.paid.1), (10 * MIB, 9 * MIB));
}

#[test] // chapter 3.4.3, uplink: T cannot have received more than U has sent
fn an_uplink_that_the_operator_exaggerates_is_a_mismatch() {
    let mut accounts = accounts();
    let mut lossy = of_user(1, 10 * MIB, 0);
    lossy.uplink = direction(10 * MIB, 9_000, 1_000);
    deliver(&mut accounts, lossy);
    let low = deliver(&mut accounts, of_operator(1, 9 * MIB, 0));
    assert_eq!(low.comparison.unwrap().beyond_tolerance_octets, 0, "a tenth is lost on the radio");
    let mut lossless = of_user(2, 20 * MIB, 0);
    lossless.uplink = direction(20 * MIB, 19_000, 1_000);
    deliver(&mut accounts, lossless);
    let high = deliver(&mut accounts, of_operator(2, 21 * MIB, 0));
    assert!(high.comparison.unwrap().beyond_tolerance_octets > 0);
}

#[test]
fn a_user_that_confirms_more_than_the_operator_claims_is_a_mismatch_too() {
    let mut accounts = accounts();
    deliver(&mut accounts, of_user(1, MIB, 10 * MIB));
    let accounted = deliver(&mut accounts, of_operator(1, MIB, 8 * MIB));
    assert!(accounted.comparison.unwrap().beyond_tolerance_octets < 0);
    assert_eq!(accounted.receipt.unwrap().totals.paid, (MIB, 8 * MIB));
}

#[test] // A report that is lost costs nothing once a later one arrives
fn totals_make_up_for_a_lost_report() {
    let mut accounts = accounts();
    deliver(&mut accounts, of_operator(1, MIB, MIB));
    deliver(&mut accounts, of_operator(2, 2 * MIB, 2 * MIB));
    deliver(&mut accounts, of_operator(3, 3 * MIB, 3 * MIB));
    let receipt = deliver(&mut accounts, of_user(2, 2 * MIB, 2 * MIB)).receipt.unwrap();
    assert_eq!((receipt.cycle, receipt.totals.paid), (2, (2 * MIB, 2 * MIB)));
}

#[test] // Relative times and cycle numbers of two parties may differ by one at the end
fn sessions_that_were_closed_in_different_cycles_are_settled() {
    let closed = |report: Report| Report { closed: true, ..report };
    for (t, u) in [(3, 3), (4, 3), (3, 4)] {
        let mut accounts = accounts();
        deliver(&mut accounts, of_operator(2, MIB, MIB));
        deliver(&mut accounts, of_user(2, MIB, MIB));
        deliver(&mut accounts, closed(of_user(u, 2 * MIB, 2 * MIB)));
        let last = deliver(&mut accounts, closed(of_operator(t, 2 * MIB, 2 * MIB)));
        assert_eq!(last.receipt.unwrap().totals.paid, (MIB, MIB), "T {t}, U {u}");
        assert_eq!(accounts.session(Pseudonym([1; 16])).unwrap().totals.micros, 2 * 300);
    }
}

#[test] // U's next report counts, not that at the end of its last PDU session
fn a_session_that_is_opened_again_waits_for_the_users_next_report() {
    let mut accounts = accounts();
    let closed = |report: Report| Report { closed: true, ..report };
    deliver(&mut accounts, closed(of_user(1, MIB, MIB)));
    deliver(&mut accounts, closed(of_operator(1, MIB, MIB)));
    assert!(deliver(&mut accounts, of_operator(9, 5 * MIB, 5 * MIB)).receipt.is_none());
    let accounted = deliver(&mut accounts, of_user(9, 5 * MIB, 5 * MIB));
    assert_eq!(accounted.receipt.unwrap().totals.paid, (4 * MIB, 4 * MIB));
    assert_eq!(accounted.comparison.unwrap().beyond_tolerance_octets, 0);
}

#[test]
fn reports_late_doubled_swapped_negative_and_of_no_session_are_refused() {
    let mut accounts = accounts();
    deliver(&mut accounts, of_operator(2, 2 * MIB, 2 * MIB));
    let outcome = |report: Report| check(&accounts, at(100), &signed(report));
    assert_eq!(outcome(of_operator(2, 2 * MIB, 2 * MIB)), Outcome::Doubled);
    assert_eq!(outcome(of_operator(2, 3 * MIB, 2 * MIB)), Outcome::Conflicting);
    assert_eq!(outcome(of_operator(3, MIB, 2 * MIB)), Outcome::Backwards, "totals fall");
    assert_eq!(outcome(of_operator(1, 3 * MIB, MIB)), Outcome::Backwards, "an earlier cycle has more");
    assert_eq!(outcome(of_operator(1, MIB, MIB)), Outcome::Accepted, "swapped with the second");
    let unknown = Report { pseudonym: Pseudonym([2; 16]), ..of_operator(1, 0, 0) };
    assert_eq!(outcome(unknown), Outcome::UnknownSession);
    let future = Report { end_ms: 1_000_000_000, ..of_operator(9, 2 * MIB, 2 * MIB) };
    assert_eq!(outcome(future), Outcome::Future);
    assert_eq!(outcome(of_operator(3, 2 * MIB, 1_000 * MIB)), Outcome::Implausible, "100 Mbit/s for 30 s");
    let late = at(3_600 + PayRule::DEFAULT.late_max_s + 1);
    assert_eq!(check(&accounts, late, &signed(of_operator(3, 2 * MIB, 2 * MIB))), Outcome::Late);
    assert_eq!(accounts.take(at(100), &signed(of_operator(2, 2 * MIB, 2 * MIB))).outcome, Outcome::Doubled);
}

#[test]
fn a_report_counts_only_if_its_party_signed_it_and_t_speaks_for_itself_alone() {
    let accounts = accounts();
    let by_t = of_user(1, MIB, MIB).sign(&key("t"));
    assert_eq!(check(&accounts, at(10), &by_t), Outcome::OtherParty, "T signs for U");
    let by_u = of_operator(1, MIB, MIB).sign(&key("u"));
    assert_eq!(check(&accounts, at(10), &by_u), Outcome::OtherParty, "U signs for T");
    let other = OperatorId { plmn: "999/71".parse().unwrap(), nid: None };
    let of_user_key = |_| Some(key("u").verifying_key());
    let through_other = |signed: &SignedReport| {
        accounts.check(at(10), (other, &key("t").verifying_key()), of_user_key, signed)
    };
    assert_eq!(through_other(&signed(of_operator(1, MIB, MIB))), Outcome::OtherParty);
    assert_eq!(through_other(&signed(of_user(1, MIB, MIB))), Outcome::Accepted, "U's report by another way");
}

#[test]
fn no_session_is_paid_above_its_credit() {
    let mut accounts = accounts();
    for (cycle, mib) in [(100, 2_000), (200, 9_000), (300, 9_001)] {
        deliver(&mut accounts, of_user(cycle, 0, mib * MIB));
        let receipt = deliver(&mut accounts, of_operator(cycle, 0, mib * MIB)).receipt.unwrap();
        let verdict = if cycle == 100 { Verdict::Confirmed } else { Verdict::CreditUsed };
        assert_eq!(receipt.verdict, verdict);
    }
    assert_eq!(accounts.session(Pseudonym([1; 16])).unwrap().totals.micros, 1_000_000);
}

#[test] // class 2 is paid on T's reports to a small cap
fn an_ordinary_ue_is_paid_for_on_the_operators_word_up_to_the_cap() {
    let mut accounts = Accounts::new(domain(), PayRule::DEFAULT);
    accounts.open(OpenSession::of_grant(&Grant { user_share: Grant::NO_SHARE, ..grant() }, USER));
    let first = deliver(&mut accounts, of_operator(10, 0, 100 * MIB)).receipt.unwrap();
    assert_eq!((first.verdict, first.totals.micros), (Verdict::OperatorsWord, 20_000));
    let second = deliver(&mut accounts, of_operator(20, 0, 1_000 * MIB)).receipt.unwrap();
    assert_eq!(second.totals.micros, PayRule::DEFAULT.word_cap_micros - 20_000);
    assert_eq!(check(&accounts, at(200), &signed(of_user(20, 0, MIB))), Outcome::OtherParty);
}

/// The receipts of a session in which the user confirms a little less than the operator claims, and the operator's reports.
fn receipts(cycles: u32) -> (Vec<SignedReceipt>, Vec<SignedReport>) {
    let (mut accounts, mut receipts, mut reports) = (accounts(), Vec::new(), Vec::new());
    for cycle in 1..=cycles {
        let octets = u64::from(cycle) * 1_234_567;
        let report = of_operator(cycle, octets, 2 * octets);
        reports.push(signed(report.clone()));
        deliver(&mut accounts, report);
        let receipt = deliver(&mut accounts, of_user(cycle, octets - 999, 2 * octets - 1_999)).receipt;
        receipts.push(receipt.unwrap().sign(&key("b.example")));
    }
    (receipts, reports)
}

fn checked(lines: &[SignedReceipt], reports: &[SignedReport]) -> Result<(), StatementError> {
    let mut check = ReceiptCheck::default();
    let price = Price::new(*b"EUR", 100, 200).unwrap();
    lines.iter().try_for_each(|line| {
        let of = |r: &&SignedReport| whimbrel_open::crypto::hash(&r.to_octets()) == line.receipt.report;
        check.take(&line.receipt, reports.iter().find(of).map(|r| &r.report), &price)
    })
}

#[test]
fn a_statement_is_verified_line_by_line() {
    let (lines, reports) = receipts(5);
    let key_of_b = key("b.example");
    let statement = Statement::sign(domain(), t(), 1, lines.clone(), &key_of_b).unwrap();
    let statement = Statement::parse(&statement.to_octets()).unwrap();
    assert_eq!(statement.verify(&key_of_b.verifying_key()), Ok(()));
    assert_eq!(checked(&statement.lines, &reports), Ok(()));
    assert_eq!(statement.verify(&key("other").verifying_key()), Err(StatementError::Signature));

    let gap = [&lines[..2], &lines[3..]].concat();
    let gap = Statement::sign(domain(), t(), 1, gap, &key_of_b).unwrap();
    assert_eq!(gap.verify(&key_of_b.verifying_key()), Err(StatementError::Gap(4)));
    let mut less = lines[2].receipt.clone();
    less.totals.micros -= 1;
    let mut with_less = lines.clone();
    with_less[2] = less.sign(&key_of_b);
    assert_eq!(checked(&with_less, &reports), Err(StatementError::Amount(3)));
    assert_eq!(checked(&lines, &reports[1..]), Err(StatementError::UnknownReport(1)));
    let mut other_claim = lines[0].receipt.clone();
    other_claim.totals.claimed.0 -= 1;
    assert_eq!(checked(&[other_claim.sign(&key_of_b)], &reports), Err(StatementError::Claim(1)));
    let mut forged = lines;
    forged[1].signature.0[0] ^= 1;
    let forged = Statement::sign(domain(), t(), 1, forged, &key_of_b).unwrap();
    assert_eq!(forged.verify(&key_of_b.verifying_key()), Err(StatementError::LineSignature(2)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever two parties report, in whatever order and however often: the broker never pays for more than
    /// both confirm, nor above the credit, and its receipts add up to what is paid.
    #[test]
    fn nothing_is_paid_beyond_what_both_confirm(
        reports in prop::collection::vec((any::<bool>(), 1..20u32, 0..200_000_000u64, 0..200_000_000u64, any::<bool>()), 1..60)
    ) {
        let mut accounts = accounts();
        let (mut sum, mut most, mut serial) = (Totals::default(), [(0, 0); 2], 0);
        for (by_user, cycle, ul, dl, closed) in reports {
            let by = if by_user { ReportedBy::User } else { ReportedBy::Operator };
            let signed = signed(Report { closed, ..report(by, cycle, ul, dl) });
            if check(&accounts, at(200), &signed) != Outcome::Accepted {
                continue;
            }
            let accounted = accounts.take(at(200), &signed);
            let of = &mut most[usize::from(by_user)];
            *of = (of.0.max(ul), of.1.max(dl));
            if let Some(receipt) = accounted.receipt {
                serial += 1;
                prop_assert_eq!(receipt.serial, serial);
                sum = sum.plus(&receipt.totals).unwrap();
            }
        }
        prop_assert!(sum.paid.0 <= most[0].0.min(most[1].0) && sum.paid.1 <= most[0].1.min(most[1].1));
        prop_assert!(sum.micros <= 1_000_000);
        prop_assert_eq!(sum, accounts.session(Pseudonym([1; 16])).unwrap().totals);
    }
}
