//! Tokens from batch to session group: bad input, double spending, crashes, marked keys.

use std::collections::BTreeMap;

use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::Signature;
use whimbrel_privacy::broker::{Broker, BrokerEvent, Record};
use whimbrel_privacy::crypto::hash;
use whimbrel_privacy::log::{KeyEntry, KeyLog, LogError, LogStatement, SeenHead, Witness};
use whimbrel_privacy::msg::{GroupAnswer, GroupError, GroupRequest, IssueError, TokenAnswer, TokenRequest};
use whimbrel_privacy::token::BATCH;
use whimbrel_privacy::voprf::{Element, IssuerKey, Output};
use whimbrel_privacy::wallet::{Wallet, WalletConfig, WalletError};

use crate::world::*;

/// A request for a batch of operator 1.
fn asked(wallet: &mut Wallet) -> Vec<u8> {
    assert!(wallet.begin_filling(NOW, seed("batch", 1)));
    wallet.filling_request(&certificate(1), &key("operator 1")).unwrap()
}

fn not_issued(broker: &mut Broker, octets: &[u8], now: whimbrel_ids::Instant) -> IssueError {
    let output = broker.issue(octets, now);
    let BrokerEvent::NotIssued(cause) = output.event else { panic!("{:?}", output.event) };
    assert_eq!(TokenAnswer::parse(&output.octets), Ok(TokenAnswer::Refused(cause)));
    assert!(output.record.is_none());
    cause
}

fn not_opened(broker: &mut Broker, octets: &[u8], now: whimbrel_ids::Instant) -> GroupError {
    let output = broker.open_group(octets, now);
    let BrokerEvent::NotOpened(cause) = output.event else { panic!("{:?}", output.event) };
    assert_eq!(GroupAnswer::parse(&output.octets), Ok(GroupAnswer::Refused(cause)));
    assert!(output.record.is_none());
    cause
}

#[test]
fn a_batch_fills_a_wallet_and_each_token_opens_one_group() {
    let (mut broker, mut wallet) = (broker(), wallet());
    assert!(wallet.should_fill());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    assert_eq!(wallet.token_counts(), (BATCH, 0));
    assert!(!wallet.should_fill());
    let mut groups = Vec::new();
    for n in 0..BATCH as u64 {
        let (group, _) = spend(&mut wallet, &mut broker, at(AGE_S), n);
        assert_eq!(group.until(), NOW_S + AGE_S + 60);
        assert!(!groups.contains(&group.hash()), "a token is spent once");
        groups.push(group.hash());
    }
    assert_eq!(wallet.token_counts(), (0, 0));
    assert!(wallet.begin_spending(at(AGE_S), &seed("spend", 99)).is_none());
}

#[test]
fn a_token_rests_before_it_is_spent_and_not_beyond_its_epoch() {
    let (mut broker, mut wallet) = (broker(), wallet());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    assert!(wallet.begin_spending(at(AGE_S - 1), &seed("spend", 1)).is_none());
    assert!(wallet.begin_spending(at(AGE_S), &seed("spend", 1)).is_some());
    let last = 2 * DAY_S;
    assert!(wallet.begin_spending(at(last), &seed("spend", 2)).is_some());
    assert!(wallet.begin_spending(at(last + 1), &seed("spend", 3)).is_none());
    assert_eq!(wallet.drop_expired(at(last)), 0);
    assert_eq!(wallet.drop_expired(at(last + 1)), BATCH);
}

#[test]
fn tokens_are_drawn_at_random_and_not_in_order() {
    let (mut broker, mut wallet) = (broker(), wallet());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    fill(&mut wallet, &mut broker, 1, NOW, 2);
    // What comes of a wallet that is read back is the same; what comes of other seeds is not.
    let first = |n| wallet.clone().begin_spending(at(AGE_S), &seed("spend", n)).unwrap().0;
    let distinct: std::collections::BTreeSet<_> = (0..40).map(first).collect();
    assert!(distinct.len() > 30, "{}", distinct.len());
}

#[test]
fn a_request_for_tokens_is_refused_for_each_fault() {
    let (mut broker, mut wallet) = (broker(), wallet());
    let good = TokenRequest::parse(&asked(&mut wallet)).unwrap();
    let resigned = |request: TokenRequest, name: &str| {
        TokenRequest::signed(request.broker, request.certificate, request.epoch, request.blinded, &key(name))
            .to_octets()
    };
    assert_eq!(not_issued(&mut broker, &good.to_octets()[1..], NOW), IssueError::Malformed);
    let other = TokenRequest { broker: "c.example".parse().unwrap(), ..good.clone() };
    assert_eq!(not_issued(&mut broker, &resigned(other, "operator 1"), NOW), IssueError::OtherBroker);
    let mut forged = good.clone();
    forged.certificate.serial += 1;
    assert_eq!(not_issued(&mut broker, &resigned(forged, "operator 1"), NOW), IssueError::Certificate);
    assert_eq!(not_issued(&mut broker, &good.to_octets(), at(31 * DAY_S)), IssueError::Certificate);
    let mut altered = good.clone();
    altered.blinded.swap(0, 1);
    assert_eq!(not_issued(&mut broker, &altered.to_octets(), NOW), IssueError::OperatorSignature);
    let uncontracted = TokenRequest { certificate: certificate(3), ..good.clone() };
    assert_eq!(
        not_issued(&mut broker, &resigned(uncontracted, "operator 3"), NOW),
        IssueError::OperatorNotAllowed
    );
    for (epoch, cause) in [(9, IssueError::UnknownEpoch), (1, IssueError::EpochOver)] {
        let request = TokenRequest { epoch, ..good.clone() };
        assert_eq!(not_issued(&mut broker, &resigned(request, "operator 1"), NOW), cause);
    }
    assert_eq!(not_issued(&mut broker, &good.to_octets(), at(2 * DAY_S + 1)), IssueError::EpochOver);
    // Degenerate blinded elements: the identity, and octets that name no point.
    let first = good.to_octets().len() - 64 - BATCH * 32;
    for bad in [[0; 32], [0xff; 32]] {
        let mut octets = good.to_octets();
        octets[first..first + 32].copy_from_slice(&bad);
        assert_eq!(not_issued(&mut broker, &octets, NOW), IssueError::Malformed);
    }
}

#[test]
fn the_same_batch_counts_once_and_no_operator_gets_more_than_its_contract() {
    let (mut broker, mut wallet) = (broker(), wallet());
    let request = asked(&mut wallet);
    let first = broker.issue(&request, NOW);
    let again = broker.issue(&request, NOW);
    assert_eq!(first.octets, again.octets);
    assert!(first.record.is_some() && again.record.is_none());
    wallet.finish_filling(&request, &first.octets, NOW).unwrap();
    (2..=3).for_each(|n| drop(fill(&mut wallet, &mut broker, 1, NOW, n)));
    assert!(wallet.begin_filling(NOW, seed("batch", 4)));
    let fourth = wallet.filling_request(&certificate(1), &key("operator 1")).unwrap();
    assert_eq!(not_issued(&mut broker, &fourth, NOW), IssueError::TooMany);
    let refused = TokenAnswer::Refused(IssueError::TooMany).to_octets();
    let error = wallet.finish_filling(&fourth, &refused, NOW);
    assert_eq!(error, Err(WalletError::NotIssued(IssueError::TooMany)));
    // A broker that starts again knows what it has issued.
    let mut restarted = crate::world::broker();
    for n in 0..3 {
        let Some(Record::Issued { operator, epoch, .. }) = first.record.clone() else { panic!() };
        restarted.restore(Record::Issued { operator, epoch, request: [n; 32] });
    }
    assert_eq!(not_issued(&mut restarted, &fourth, NOW), IssueError::TooMany);
}

#[test]
fn a_wallet_takes_no_batch_under_another_key_or_for_another_request() {
    let (mut broker, mut wallet) = (broker(), wallet());
    let request = asked(&mut wallet);
    let TokenAnswer::Issued { request: hash, evaluated, proof } =
        TokenAnswer::parse(&broker.issue(&request, NOW).octets).unwrap()
    else {
        panic!()
    };
    // A marked key: what the broker evaluates and proves under a key that is not in the log.
    let marked = IssuerKey::derive(&[9; 32], b"marked").unwrap();
    let blinded = TokenRequest::parse(&request).unwrap().blinded;
    let (octets, other) = marked.evaluate_blinded(&blinded[..]);
    let all: Vec<_> = octets.iter().map(|o| Element::from_octets(*o).unwrap()).collect();
    let under_marked =
        TokenAnswer::Issued { request: hash, evaluated: Box::new(all.try_into().unwrap()), proof: other };
    let mut swapped = evaluated.clone();
    swapped.swap(3, 4);
    let swapped = TokenAnswer::Issued { request: hash, evaluated: swapped, proof };
    for answer in [under_marked, swapped] {
        let taken = wallet.finish_filling(&request, &answer.to_octets(), NOW);
        assert_eq!(taken, Err(WalletError::NotUnderLoggedKey));
    }
    let good = |request| TokenAnswer::Issued { request, evaluated: evaluated.clone(), proof }.to_octets();
    assert_eq!(wallet.finish_filling(&request, &good([1; 32]), NOW), Err(WalletError::RequestMismatch));
    assert_eq!(wallet.token_counts(), (0, 0));
    assert_eq!(wallet.finish_filling(&request, &good(hash), NOW), Ok(()));
    assert_eq!(wallet.finish_filling(&request, &good(hash), NOW), Err(WalletError::NoPendingRequest));
}

#[test]
fn a_token_of_another_issuer_epoch_or_operator_opens_nothing() {
    let (mut broker, mut wallet) = (broker(), wallet());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    let now = at(AGE_S);
    let (_, octets) = wallet.begin_spending(now, &seed("spend", 1)).unwrap();
    let good = GroupRequest::parse(&octets).unwrap();
    assert_eq!(not_opened(&mut broker, &octets[..octets.len() - 1], now), GroupError::Malformed);
    // Of another issuer: the output of its key, for the very same token.
    let other_issuer = IssuerKey::derive(&[9; 32], b"").unwrap();
    let output = other_issuer.evaluate(&good.token.input(other_issuer.public())).unwrap();
    let forged = GroupRequest::new(domain(), good.token, good.nonce, &output).to_octets();
    assert_eq!(not_opened(&mut broker, &forged, now), GroupError::NotIssued);
    let named = GroupRequest { broker: "c.example".parse().unwrap(), ..good.clone() }.to_octets();
    assert_eq!(not_opened(&mut broker, &named, now), GroupError::OtherBroker);
    // Of another epoch: one that the broker lacks, one that has not begun, one that is valid but is not the token's.
    for (epoch, when, cause) in [
        (9, now, GroupError::UnknownEpoch),
        (1, now, GroupError::EpochOver),
        (1, at(DAY_S + 60), GroupError::NotIssued),
    ] {
        let mut moved = good.clone();
        moved.token.epoch = epoch;
        assert_eq!(not_opened(&mut broker, &moved.to_octets(), when), cause);
    }
    // Expired.
    assert_eq!(not_opened(&mut broker, &octets, at(2 * DAY_S + 1)), GroupError::EpochOver);
    // Another operator's key in the place of the token's: the output is not of it.
    let mut stolen = good.clone();
    stolen.token.key = key("operator 2").verifying_key();
    assert_eq!(not_opened(&mut broker, &stolen.to_octets(), now), GroupError::NotIssued);
    // A guess at the output, and an altered nonce.
    let guessed = GroupRequest::new(domain(), good.token, good.nonce, &Output::new([0; 64])).to_octets();
    let altered = GroupRequest { nonce: [1; 16], ..good }.to_octets();
    for octets in [guessed, altered] {
        assert_eq!(not_opened(&mut broker, &octets, now), GroupError::NotIssued);
    }
    assert_eq!(broker.kept().0, 0);
    assert!(matches!(broker.open_group(&octets, now).event, BrokerEvent::Opened(_)));
}

/// Another request for the token of `octets`, which only its owner and the broker can make.
fn second_request(octets: &[u8], nonce: u8) -> Vec<u8> {
    let first = GroupRequest::parse(octets).unwrap();
    let (entry, key) = issuer(first.token.epoch);
    let output = key.evaluate(&first.token.input(&entry.key)).unwrap();
    GroupRequest::new(domain(), first.token, [nonce; 16], &output).to_octets()
}

#[test]
fn a_token_is_spent_by_one_request_and_that_one_gets_the_same_answer_again() {
    let (mut broker, mut wallet) = (broker(), wallet());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    let (_, octets) = wallet.begin_spending(at(AGE_S), &seed("spend", 1)).unwrap();
    let first = broker.open_group(&octets, at(AGE_S));
    let again = broker.open_group(&octets, at(AGE_S + 30));
    assert!(matches!(again.event, BrokerEvent::Repeated));
    assert_eq!(first.octets, again.octets);
    let second = second_request(&octets, 0xee);
    assert_eq!(not_opened(&mut broker, &second, at(AGE_S)), GroupError::DoubleSpent);
    // After a failover the record alone says so; it is kept until the epoch of the token is over.
    let mut restarted = crate::world::broker();
    restarted.restore(first.record.clone().unwrap());
    assert_eq!(not_opened(&mut restarted, &second, at(AGE_S)), GroupError::DoubleSpent);
    assert_eq!(restarted.open_group(&octets, at(AGE_S)).octets, first.octets);
    restarted.forget(at(2 * DAY_S));
    assert_eq!(not_opened(&mut restarted, &second, at(2 * DAY_S)), GroupError::DoubleSpent);
    restarted.forget(at(2 * DAY_S + 1));
    assert_eq!(restarted.kept(), (0, 0));
    assert_eq!(not_opened(&mut restarted, &second, at(2 * DAY_S + 1)), GroupError::EpochOver);
}

/// The store that several nodes of a broker share: a token's record is inserted if there is none.
#[derive(Default)]
struct Store(BTreeMap<[u8; 32], Record>);

impl Store {
    /// A node answers `octets`, with the store between the machine and the answer.
    fn answer(&mut self, node: &mut Broker, octets: &[u8]) -> Vec<u8> {
        let output = node.open_group(octets, at(AGE_S));
        let Some(record) = output.record else { return output.octets };
        let Record::Opened { group, .. } = &record else { panic!() };
        if let Some(found) = self.0.get(&group.0) {
            node.yield_to(found.clone());
            return node.open_group(octets, at(AGE_S)).octets;
        }
        self.0.insert(group.0, record);
        output.octets
    }
}

#[test]
fn a_token_played_at_once_to_two_nodes_opens_one_group() {
    let mut wallet = wallet();
    let mut nodes = [broker(), broker()];
    fill(&mut wallet, &mut nodes[0], 1, NOW, 1);
    for n in 0..4u64 {
        let (token, octets) = wallet.begin_spending(at(AGE_S), &seed("spend", n)).unwrap();
        let second = second_request(&octets, 0xee);
        let mut store = Store::default();
        let order = [(n % 2) as usize, (1 - n % 2) as usize];
        // The same request at both: one answer. Another request at the second: refused there, and at the first.
        let first = store.answer(&mut nodes[order[0]], &octets);
        let refused = GroupAnswer::Refused(GroupError::DoubleSpent).to_octets();
        let requests = if n < 2 { [&octets, &second] } else { [&second, &octets] };
        for request in requests {
            let expected = if *request == octets { &first } else { &refused };
            assert_eq!(store.answer(&mut nodes[order[1]], request), *expected);
            assert_eq!(store.answer(&mut nodes[order[0]], request), *expected);
        }
        assert_eq!(store.0.len(), 1);
        wallet.finish_spending(token, &first).unwrap();
    }
}

#[test]
fn a_wallet_that_crashes_at_any_step_loses_no_token_and_makes_no_second_request() {
    let (mut broker, mut wallet) = (broker(), wallet());
    // What is stored before each step is what is there after a crash.
    let crash = |wallet: &Wallet| Wallet::parse(&wallet.to_octets()).unwrap();
    assert!(wallet.begin_filling(NOW, seed("batch", 1)));
    let mut wallet = crash(&wallet);
    let request = wallet.filling_request(&certificate(1), &key("operator 1")).unwrap();
    let answer = broker.issue(&request, NOW).octets;
    // The answer is lost with the wallet; the same request gets it again.
    wallet = crash(&wallet);
    assert!(!wallet.begin_filling(NOW, seed("batch", 2)), "one batch at a time");
    let again = wallet.filling_request(&certificate(1), &key("operator 1")).unwrap();
    assert_eq!(again, request);
    assert_eq!(broker.issue(&again, NOW).octets, answer);
    wallet.finish_filling(&again, &answer, NOW).unwrap();
    wallet = crash(&wallet);
    assert_eq!(wallet.token_counts(), (BATCH, 0));
    let mut requests = BTreeMap::new();
    for n in 0..BATCH as u64 {
        let (token, octets) = wallet.begin_spending(at(AGE_S), &seed("spend", n)).unwrap();
        if n % 2 == 0 {
            wallet = crash(&wallet);
        }
        let answer = broker.open_group(&octets, at(AGE_S)).octets;
        if n % 3 == 0 {
            wallet = crash(&wallet);
        }
        if n % 4 == 0 {
            wallet.finish_spending(token, &answer).unwrap();
        }
        assert!(requests.insert(token, octets).is_none());
    }
    // Those whose answer was lost are asked again, in the same octets, and open.
    let open = wallet.pending_requests();
    assert_eq!(open.len(), BATCH - BATCH.div_ceil(4));
    for (token, octets) in open {
        assert_eq!(requests[&token], octets);
        let answer = broker.open_group(&octets, at(AGE_S + 1));
        assert!(matches!(answer.event, BrokerEvent::Repeated));
        assert_eq!(wallet.finish_spending(token, &answer.octets).unwrap().hash(), token);
        assert_eq!(wallet.finish_spending(token, &answer.octets).unwrap_err(), WalletError::NoPendingRequest);
    }
    assert_eq!(broker.kept().0, BATCH);
}

#[test]
fn an_answer_that_is_not_the_brokers_leaves_a_token_as_it_is() {
    let (mut broker, mut wallet) = (broker(), wallet());
    fill(&mut wallet, &mut broker, 1, NOW, 1);
    let (token, octets) = wallet.begin_spending(at(AGE_S), &seed("spend", 1)).unwrap();
    let good = broker.open_group(&octets, at(AGE_S)).octets;
    let GroupAnswer::Opened { group, until, mac } = GroupAnswer::parse(&good).unwrap() else { panic!() };
    let mut other_mac = mac;
    other_mac[0] ^= 1;
    for forged in [
        GroupAnswer::Opened { group, until: until + 1, mac },
        GroupAnswer::Opened { group, until, mac: other_mac },
    ] {
        assert_eq!(
            wallet.finish_spending(token, &forged.to_octets()).unwrap_err(),
            WalletError::RequestMismatch
        );
    }
    assert_eq!(wallet.token_counts().1, 1);
    assert!(wallet.finish_spending(token, &good).is_ok());
}

#[test]
fn a_key_that_marks_one_operator_is_found_out() {
    let (signing, trust) = (key("broker"), log_trust());
    let (mut witnesses, honest) = (witnesses(), log());
    // A second log, in which epoch 1 has another key, for the operator that is to be marked.
    let mut forked = KeyLog::new(domain());
    forked.append(issuer(0).0).unwrap();
    let mut marked = issuer(1).0;
    marked.key = *IssuerKey::derive(&[9; 32], b"marked").unwrap().public();
    forked.append(marked.clone()).unwrap();
    let head = honest.head(&signing);
    let cosign = |w: &mut Witness| w.cosign(&head, honest.entries()).unwrap();
    let cosignatures: Vec<_> = witnesses.iter_mut().map(cosign).collect();
    // No witness signs it, since it does not extend what it has signed.
    for witness in &mut witnesses {
        assert_eq!(witness.cosign(&forked.head(&signing), &[]), Err(LogError::Forked));
        assert_eq!(witness.cosign(&forked.head(&signing), &[marked.clone()]), Err(LogError::NotIncluded));
    }
    // One witness that colludes is too few, whatever else the broker adds.
    let mut colluding = Witness::new(domain(), signing.verifying_key(), key("witness 0"));
    let one = colluding.cosign(&forked.head(&signing), forked.entries()).unwrap();
    let others = &cosignatures[1..];
    let mut wallet = Wallet::new(domain(), WalletConfig::DEFAULT);
    let learn = |wallet: &mut Wallet, log: &KeyLog, cosignatures: &[_]| {
        let proof = log.prove(1, wallet.seen().size, cosignatures.to_vec(), &signing).unwrap();
        wallet.add_issuing_key(&proof, &trust)
    };
    for cosignatures in [vec![one], vec![one, one, one], [&[one], others].concat()] {
        assert_eq!(learn(&mut wallet, &forked, &cosignatures), Err(LogError::TooFewWitnesses));
    }
    assert_eq!(*wallet.seen(), SeenHead::NONE);
    // The marked entry beside the honest head does not stand in its tree.
    let mut proof = honest.prove(1, 0, cosignatures.clone(), &signing).unwrap();
    proof.entry = marked.clone();
    assert_eq!(wallet.add_issuing_key(&proof, &trust), Err(LogError::NotIncluded));
    // An operator that has seen the honest head is not taken to the other log, even by witnesses that all collude.
    learn(&mut wallet, &honest, &cosignatures).unwrap();
    let all: Vec<_> = (0..3)
        .map(|n| {
            let mut witness = Witness::new(domain(), signing.verifying_key(), key(&format!("witness {n}")));
            witness.cosign(&forked.head(&signing), forked.entries()).unwrap()
        })
        .collect();
    assert_eq!(learn(&mut wallet, &forked, &all), Err(LogError::Forked));
    // And one that is shown the other log first finds out as soon as it sees the honest one.
    let mut shown = Wallet::new(domain(), WalletConfig::DEFAULT);
    learn(&mut shown, &forked, &all).unwrap();
    assert_eq!(learn(&mut shown, &honest, &cosignatures), Err(LogError::Forked));
    // A head that the broker did not sign, and one of another broker.
    let mut proof = honest.prove(1, 0, cosignatures, &signing).unwrap();
    proof.head.signature = Signature([1; 64]);
    let mut fresh = Wallet::new(domain(), WalletConfig::DEFAULT);
    assert_eq!(fresh.add_issuing_key(&proof, &trust), Err(LogError::BrokerSignature));
    proof.head.broker = "c.example".parse().unwrap();
    assert_eq!(fresh.add_issuing_key(&proof, &trust), Err(LogError::OtherBroker));
}

#[test]
fn an_epoch_that_is_too_short_to_hide_an_operator_is_not_witnessed() {
    let mut log = KeyLog::new(domain());
    log.append(issuer(0).0).unwrap();
    let first = log.entries()[0].validity.from;
    for (from, until) in [(first + 3_600, first + 4 * DAY_S), (first + DAY_S, first + DAY_S + 3_600)] {
        let mut entry = issuer(1).0;
        entry.validity = Validity { from, until };
        assert_eq!(log.append(entry), Err(LogError::EpochTooShort));
    }
    let mut entry = issuer(1).0;
    entry.validity = Validity { from: first + DAY_S, until: first + 2 * DAY_S };
    assert_eq!(log.append(entry), Ok(()));
}

#[test]
fn the_parts_of_a_request_have_one_hash() {
    let mut wallet = wallet();
    let octets = asked(&mut wallet);
    assert_eq!(TokenRequest::parse(&octets).unwrap().hash(), hash(&[&octets]));
}

#[test] // chapter 4.4.1: one operator cannot be given a key of its own
fn a_witness_signs_a_log_that_extends_what_it_has_signed_and_no_other() {
    let (mut log, broker) = (KeyLog::new(domain()), key("broker"));
    log.append(issuer(0).0).unwrap();
    let first = LogStatement::of(&log, &broker);
    log.append(issuer(1).0).unwrap();
    let second = LogStatement::of(&log, &broker);
    assert_eq!(LogStatement::parse(&second.to_octets()).as_ref(), Ok(&second));
    let sign = |statement: &LogStatement, before: Option<&LogStatement>| {
        statement.cosign(before, broker.verifying_key(), key("witness 0"))
    };
    for before in [None, Some(&first)] {
        let signed = sign(&second, before).unwrap();
        assert!(signed.is_over(&second.head) && !signed.is_over(&first.head));
    }
    let mut forked = KeyLog::new(domain());
    forked.append(KeyEntry { key: issuer(1).0.key, ..issuer(0).0 }).unwrap();
    let forked = LogStatement::of(&forked, &broker);
    assert!(sign(&forked, None).is_ok());
    assert!(sign(&forked, Some(&first)).is_err());
}
