//! Every value is written and read back; every encoding is the only one of its value; no octets panic.

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_broker_common::certificate::Validity;
use whimbrel_broker_common::crypto::{PrivateKey, Share, Signature};
use whimbrel_broker_common::id::{Domain, Pseudonym, UserId};
use whimbrel_broker_common::request::EpochKey;
use whimbrel_broker_common::session::{Filter, Qos};
use whimbrel_ids::PlmnId;
use whimbrel_privacy::crypto::Response;
use whimbrel_privacy::log::{Cosignature, KeyEntry, LogProof, TreeHead};
use whimbrel_privacy::msg::*;
use whimbrel_privacy::operator::Question;
use whimbrel_privacy::token::{BATCH, Token, TokenHash, TokenTag};
use whimbrel_privacy::voprf::{Element, IssuerKey, Output, Proof};
use whimbrel_privacy::wallet::Wallet;

use crate::world::{certificate, domain, key, seed};

/// Reads octets as every message; what is understood must be written again in the same octets. Gives how many understood it.
pub(crate) fn read_as_every_message(octets: &[u8]) -> usize {
    fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) -> usize {
        let Ok(value) = read else { return 0 };
        assert_eq!(write(&value), octets);
        1
    }
    let scheme_output = UserRequest::from_scheme_output(domain(), 1, octets);
    same(KeyEntry::parse(octets), KeyEntry::to_octets, octets)
        + same(TreeHead::parse(octets), TreeHead::to_octets, octets)
        + same(LogProof::parse(octets), LogProof::to_octets, octets)
        + same(TokenRequest::parse(octets), TokenRequest::to_octets, octets)
        + same(TokenAnswer::parse(octets), TokenAnswer::to_octets, octets)
        + same(GroupRequest::parse(octets), GroupRequest::to_octets, octets)
        + same(GroupAnswer::parse(octets), GroupAnswer::to_octets, octets)
        + same(UserRequest::parse(octets), UserRequest::to_octets, octets)
        + same(scheme_output, UserRequest::to_scheme_output, octets)
        + same(UserVector::parse(octets), UserVector::to_octets, octets)
        + same(OperatorRequest::parse(octets), OperatorRequest::to_octets, octets)
        + same(Question::parse(octets), Question::to_octets, octets)
        + same(SignedGrant::parse(octets), SignedGrant::to_octets, octets)
        + same(OperatorOrders::parse(octets), |v| v.to_octets().to_vec(), octets)
        + same(UserAnswer::parse(octets), |v| v.to_octets().to_vec(), octets)
        + same(Challenge::parse(octets), Challenge::to_octets, octets)
        + same(Response::parse(octets), Response::to_message, octets)
        + same(Failure::parse(octets), Failure::to_octets, octets)
        + same(SignedRefusal::parse(octets), SignedRefusal::to_octets, octets)
        + same(Answer::parse(octets), Answer::to_octets, octets)
        + same(HomeQuestion::parse(octets), HomeQuestion::to_octets, octets)
        + same(HomeRequest::parse(octets), HomeRequest::to_octets, octets)
        + same(Order::parse(octets), Order::to_octets, octets)
        + same(OrdersRequest::parse(octets), OrdersRequest::to_octets, octets)
        + same(Orders::parse(octets), Orders::to_octets, octets)
        + same(OrderAnswer::parse(octets), OrderAnswer::to_octets, octets)
        + same(SealedCopy::parse(octets), SealedCopy::to_octets, octets)
        + same(Wallet::parse(octets), |v| v.to_octets().to_vec(), octets)
}

fn domains() -> impl Strategy<Value = Domain> {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}.example", "b".repeat(20));
    prop_oneof![Just("b.example".to_owned()), Just(longest)].prop_map(|d| d.parse().unwrap())
}

fn signatures() -> impl Strategy<Value = Signature> {
    any::<([u8; 32], [u8; 32])>().prop_map(|(a, b)| Signature([a, b].concat().try_into().unwrap()))
}

fn elements() -> impl Strategy<Value = Element> {
    any::<u64>().prop_map(|n| *IssuerKey::derive(seed("element", n).octets(), b"").unwrap().public())
}

fn tokens() -> impl Strategy<Value = Token> {
    any::<(u32, u64)>().prop_map(|(epoch, n)| Token { epoch, key: key(&n.to_string()).verifying_key() })
}

fn hashes() -> impl Strategy<Value = TokenHash> {
    any::<[u8; 32]>().prop_map(TokenHash)
}

fn keys() -> impl Strategy<Value = Option<EpochKey>> {
    prop::option::of(any::<(u8, [u8; 32])>().prop_map(|(id, public)| EpochKey { id, public: Share(public) }))
}

fn entries() -> impl Strategy<Value = KeyEntry> {
    (domains(), any::<(u32, u64, u64)>(), elements()).prop_map(|(broker, (epoch, from, until), key)| {
        KeyEntry { broker, epoch, key, validity: Validity { from, until } }
    })
}

fn heads() -> impl Strategy<Value = TreeHead> {
    (domains(), 0..=4_096u64, any::<[u8; 32]>(), signatures())
        .prop_map(|(broker, size, root, signature)| TreeHead { broker, size, root, signature })
}

fn proofs() -> impl Strategy<Value = LogProof> {
    let cosignature = (any::<u64>(), signatures())
        .prop_map(|(n, signature)| Cosignature { witness: key(&n.to_string()).verifying_key(), signature });
    let path = || vec(any::<[u8; 32]>(), 0..=13);
    (heads(), vec(cosignature, 0..=16), path(), entries(), path()).prop_map(
        |(head, cosignatures, consistency, entry, inclusion)| LogProof {
            head,
            cosignatures,
            consistency,
            entry,
            inclusion,
        },
    )
}

fn vectors() -> impl Strategy<Value = UserVector> {
    let fields =
        (any::<[u8; 16]>(), hashes(), any::<u64>(), any::<[u8; 16]>(), any::<[u8; 32]>(), signatures());
    fields.prop_map(|(user, asker, counter, nonce, share, signature)| UserVector {
        user: UserId(user),
        asker,
        counter,
        nonce,
        share: Share(share),
        signature,
    })
}

fn requests() -> impl Strategy<Value = UserRequest> {
    (domains(), any::<u8>(), hashes(), any::<u64>(), vectors()).prop_map(|(broker, id, token, n, vector)| {
        let key = EpochKey { id, public: PrivateKey::new([4; 32]).share() };
        UserRequest::seal(broker, &key, TokenTag::new(&token), &seed("u", n), |_| vector).unwrap().0
    })
}

fn operator_requests() -> impl Strategy<Value = OperatorRequest> {
    (requests(), hashes(), any::<[u8; 32]>(), signatures()).prop_map(|(request, group, share, signature)| {
        OperatorRequest { request, group, share: Share(share), signature }
    })
}

fn grants() -> impl Strategy<Value = SignedGrant> {
    let names = (domains(), any::<[u8; 16]>(), hashes(), prop::option::of(any::<u64>()));
    let numbers = any::<(u32, u32, u8, u64, u64)>();
    (names, numbers, any::<[[u8; 32]; 5]>(), signatures()).prop_map(
        |(
            (broker, pseudonym, group, slice_octets),
            (ul_kbps, dl_kbps, five_qi, from, until),
            h,
            signature,
        )| {
            let [request, user_share, operator_share, orders, expected] = h;
            let grant = Grant {
                broker,
                network: PlmnId::TEST,
                pseudonym: Pseudonym(pseudonym),
                group,
                qos: Qos { ul_kbps, dl_kbps, five_qi },
                validity: Validity { from, until },
                slice_octets,
                request,
                user_share: Share(user_share),
                operator_share: Share(operator_share),
                orders,
                expected,
            };
            SignedGrant { grant, signature }
        },
    )
}

fn refusals() -> impl Strategy<Value = SignedRefusal> {
    let cause = prop::sample::select(RefusalCause::ALL);
    (domains(), cause, hashes(), any::<[u8; 32]>(), keys(), signatures()).prop_map(
        |(broker, cause, asker, request, key, signature)| SignedRefusal {
            broker,
            cause,
            asker,
            request,
            key,
            signature,
        },
    )
}

fn challenges() -> impl Strategy<Value = Challenge> {
    (any::<[u8; 16]>(), vec(any::<u8>(), 0..=600))
        .prop_map(|(salt, sealed)| Challenge { salt, sealed: sealed.into() })
}

fn answers() -> impl Strategy<Value = Answer> {
    let granted = (grants(), vec(any::<u8>(), 0..200), challenges());
    prop_oneof![
        granted.prop_map(|(grant, orders, challenge)| AnswerBody::Granted {
            grant,
            orders: orders.into(),
            challenge
        }),
        refusals().prop_map(AnswerBody::Refused),
        prop::sample::select(Rejection::ALL).prop_map(AnswerBody::Rejected),
    ]
    .prop_map(Answer)
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![
        (any::<u32>(), 0..=32u8).prop_map(|(a, n)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(n)).unwrap_or(0);
            Filter::new(std::net::IpAddr::V4((a & mask).into()), n).unwrap()
        }),
        any::<u128>().prop_map(|a| Filter::new(std::net::IpAddr::V6(a.into()), 128).unwrap()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_read_as_written(entry in entries(), head in heads(), proof in proofs()) {
        prop_assert!(entry.to_octets().len() <= KeyEntry::OCTETS_MAX);
        prop_assert_eq!(KeyEntry::parse(&entry.to_octets()), Ok(entry));
        prop_assert!(head.to_octets().len() <= TreeHead::OCTETS_MAX);
        prop_assert_eq!(TreeHead::parse(&head.to_octets()), Ok(head));
        prop_assert!(proof.to_octets().len() <= LogProof::OCTETS_MAX);
        prop_assert_eq!(LogProof::parse(&proof.to_octets()), Ok(proof));
    }

    #[test]
    fn issuing_and_redeeming_are_read_as_written(
        broker in domains(), epoch in any::<u32>(), n in any::<u64>(), element in elements(), token in tokens(),
        nonce in any::<[u8; 16]>(), output in any::<[u8; 32]>(), until in any::<u64>(),
    ) {
        let request = TokenRequest::signed(broker.clone(), certificate(n % 9), epoch, Box::new([element; BATCH]), &key("o"));
        prop_assert!(request.to_octets().len() <= TokenRequest::OCTETS_MAX);
        prop_assert_eq!(TokenRequest::parse(&request.to_octets()), Ok(request));
        let issuer = IssuerKey::derive(seed("i", n).octets(), b"").unwrap();
        let proof = issuer.evaluate_blinded(&[element]).1;
        prop_assert_eq!(Proof::from_octets(&proof.to_octets()), Some(proof));
        let issued = TokenAnswer::Issued { request: output, evaluated: Box::new([element; BATCH]), proof };
        prop_assert!(issued.to_octets().len() <= TokenAnswer::OCTETS_MAX);
        prop_assert_eq!(TokenAnswer::parse(&issued.to_octets()), Ok(issued));
        let output = Output::new([output, output].concat().try_into().unwrap());
        let request = GroupRequest::new(broker, token, nonce, &output);
        prop_assert!(request.to_octets().len() <= GroupRequest::OCTETS_MAX);
        prop_assert_eq!(GroupRequest::parse(&request.to_octets()), Ok(request));
        let opened = GroupAnswer::opened(token.hash(&element), until, &nonce, &output);
        prop_assert!(opened.to_octets().len() <= GroupAnswer::OCTETS_MAX);
        prop_assert_eq!(GroupAnswer::parse(&opened.to_octets()), Ok(opened));
        for cause in IssueError::ALL {
            let refused = TokenAnswer::Refused(*cause);
            prop_assert_eq!(TokenAnswer::parse(&refused.to_octets()), Ok(refused));
        }
        for cause in GroupError::ALL {
            let refused = GroupAnswer::Refused(*cause);
            prop_assert_eq!(GroupAnswer::parse(&refused.to_octets()), Ok(refused));
        }
    }

    #[test]
    fn requests_are_read_as_written(request in operator_requests(), vector in vectors()) {
        prop_assert_eq!(vector.to_octets().len(), UserVector::OCTETS_MAX);
        prop_assert_eq!(UserVector::parse(&vector.to_octets()), Ok(vector));
        prop_assert!(request.request.to_octets().len() <= UserRequest::OCTETS_MAX);
        prop_assert_eq!(UserRequest::parse(&request.request.to_octets()), Ok(request.request.clone()));
        prop_assert!(request.to_octets().len() <= OperatorRequest::OCTETS_MAX);
        prop_assert_eq!(OperatorRequest::parse(&request.to_octets()), Ok(request));
    }

    #[test]
    fn answers_are_read_as_written(
        answer in answers(), grant in grants(), refusal in refusals(), challenge in challenges(),
        halves in any::<[[u8; 32]; 2]>(), next_key in keys(), n in any::<u64>(),
        (intercept, poll_s) in any::<(bool, u16)>(), filters in vec(filters(), 0..=OperatorOrders::FILTERS_MAX),
    ) {
        prop_assert_eq!(Answer::parse(&answer.to_octets()), Ok(answer));
        prop_assert!(grant.to_octets().len() <= SignedGrant::OCTETS_MAX);
        prop_assert_eq!(SignedGrant::parse(&grant.to_octets()), Ok(grant.clone()));
        prop_assert!(refusal.to_octets().len() <= SignedRefusal::OCTETS_MAX);
        prop_assert_eq!(SignedRefusal::parse(&refusal.to_octets()), Ok(refusal));
        prop_assert_eq!(Challenge::parse(&challenge.to_octets()), Ok(challenge));
        let [half, challenge] = halves;
        let answer = UserAnswer { grant, half, challenge, next_key };
        prop_assert_eq!(UserAnswer::parse(&answer.to_octets()), Ok(answer));
        let orders = OperatorOrders { half, intercept, poll_s, filters };
        prop_assert_eq!(OperatorOrders::parse(&orders.to_octets()), Ok(orders));
        let key = EpochKey { id: 3, public: PrivateKey::new(half).share() };
        let failure = Failure::seal(&key, FailureCause::Grant, &challenge, &seed("f", n)).unwrap();
        prop_assert_eq!(failure.open(&PrivateKey::new(half)), Some((FailureCause::Grant, challenge)));
        prop_assert_eq!(Failure::parse(&failure.to_octets()), Ok(failure));
        let message = Response::new(half).to_message();
        prop_assert_eq!(message.len(), Response::MESSAGE_OCTETS);
        prop_assert_eq!(*Response::parse(&message).unwrap().octets(), half);
    }

    #[test]
    fn damaged_messages_are_understood_as_written_or_refused(
        answer in answers(), request in operator_requests(), proof in proofs(), at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let wallet = crate::world::wallet().to_octets().to_vec();
        for mut octets in [answer.to_octets(), request.to_octets(), proof.to_octets(), wallet] {
            prop_assert!(read_as_every_message(&octets) > 0);
            let at = at.index(octets.len());
            read_as_every_message(&octets[..at]);
            octets[at] ^= 1 << bit;
            read_as_every_message(&octets);
        }
    }

    #[test]
    fn any_octets_are_understood_as_written_or_refused(kind in 0x80..0x92u8, octets in vec(any::<u8>(), 0..400)) {
        read_as_every_message(&octets);
        read_as_every_message(&[&[kind, VERSION], &octets[..]].concat());
    }
}

#[test]
fn a_wallet_is_read_as_written() {
    let (mut broker, mut wallet) = (crate::world::broker(), crate::world::wallet());
    crate::world::fill(&mut wallet, &mut broker, 1, crate::world::NOW, 1);
    wallet.begin_spending(crate::world::at(crate::world::AGE_S), &seed("s", 1)).unwrap();
    wallet.begin_filling(crate::world::NOW, seed("s", 2));
    let octets = wallet.to_octets();
    let read = Wallet::parse(&octets).unwrap();
    assert_eq!(*read.to_octets(), *octets);
    assert_eq!(
        (read.token_counts(), read.pending_requests()),
        (wallet.token_counts(), wallet.pending_requests())
    );
}

#[test]
fn another_version_is_unknown() {
    let mut octets = GroupAnswer::Refused(GroupError::DoubleSpent).to_octets();
    octets[1] = 2;
    assert_eq!(GroupAnswer::parse(&octets).unwrap_err().kind, whimbrel_ids::DecodeErrorKind::Unknown);
}
