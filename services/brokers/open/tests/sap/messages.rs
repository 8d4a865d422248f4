//! Every value is written and read back; every encoding is the only one of its value; no octets panic.

use core::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_open::carriage::{EapCode, EapExpanded, Scheme, SuciNai};
use whimbrel_open::crypto::{KSeaf, Share, SharedSecret, Signature};
use whimbrel_open::id::{Domain, Nid, OperatorId, Pseudonym, UserId};
use whimbrel_open::msg::*;

use super::world::{domain, epoch_key, key, seed};

fn domains() -> impl Strategy<Value = Domain> {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}.example", "b".repeat(20));
    prop_oneof![Just("b.example".to_owned()), Just(longest)].prop_map(|d| d.parse().unwrap())
}

fn operators() -> impl Strategy<Value = OperatorId> {
    (0..=9u8, any::<bool>(), prop::option::of(0..1u64 << 44)).prop_map(|(digit, short, nid)| {
        let mnc = if short { 0xf0 } else { 0x10 };
        let plmn = PlmnId::from_nas_octets([0x99, mnc | digit, 0x07]).unwrap();
        OperatorId { plmn, nid: nid.and_then(Nid::new) }
    })
}

fn all_terms() -> impl Strategy<Value = Terms> {
    let five_qis = prop::collection::btree_set(1..=255u8, 1..=FiveQis::MAX);
    (any::<[u32; 4]>(), five_qis, any::<u16>()).prop_map(
        |([a, b, ul_kbps_max, dl_kbps_max], q, report_cycle_s)| {
            let five_qis = FiveQis::new(&q.into_iter().collect::<Vec<_>>()).unwrap();
            let price = Price::new(*b"EUR", a, b).unwrap();
            Terms { price, qos: QosOffer { ul_kbps_max, dl_kbps_max, five_qis }, report_cycle_s }
        },
    )
}

fn signatures() -> impl Strategy<Value = Signature> {
    any::<([u8; 32], [u8; 32])>().prop_map(|(a, b)| Signature([a, b].concat().try_into().unwrap()))
}

fn validities() -> impl Strategy<Value = Validity> {
    any::<(u64, u64)>().prop_map(|(from, until)| Validity { from, until })
}

fn tickets() -> impl Strategy<Value = Option<Ticket>> {
    prop::option::of(any::<u8>().prop_map(|o| Ticket([o; TICKET_OCTETS])))
}

fn keys() -> impl Strategy<Value = Option<EpochKey>> {
    prop::option::of(any::<(u8, [u8; 32])>().prop_map(|(id, public)| EpochKey { id, public: Share(public) }))
}

fn vectors() -> impl Strategy<Value = UserVector> {
    let fields =
        (any::<[u8; 16]>(), operators(), any::<u64>(), any::<[u8; 16]>(), any::<[u8; 32]>(), signatures());
    fields.prop_map(|(user, asker, counter, nonce, share, signature)| UserVector {
        user: UserId(user),
        asker,
        counter,
        nonce,
        share: Share(share),
        signature,
    })
}

fn requests() -> impl Strategy<Value = AuthReqU> {
    (domains(), any::<u8>(), tickets(), any::<u64>(), vectors()).prop_map(
        |(broker, id, ticket, n, vector)| {
            let key = EpochKey { id, public: epoch_key("b.example").share() };
            AuthReqU::seal(broker, &key, ticket, &seed("u", n), |_| vector).unwrap().0
        },
    )
}

fn certificates() -> impl Strategy<Value = Certificate> {
    let subjects = prop_oneof![operators().prop_map(Subject::Operator), domains().prop_map(Subject::Broker)];
    (subjects, validities(), any::<u64>(), signatures()).prop_map(|(subject, validity, serial, signature)| {
        Certificate { subject, key: key("t1").verifying_key(), validity, serial, signature }
    })
}

fn requests_of_operators() -> impl Strategy<Value = AuthReqT> {
    let fields = (requests(), certificates(), all_terms(), any::<[u8; 32]>(), any::<u64>(), signatures());
    fields.prop_map(|(request, certificate, terms, share, time, signature)| AuthReqT {
        request,
        certificate,
        terms,
        share: Share(share),
        time,
        signature,
    })
}

fn grants() -> impl Strategy<Value = SignedGrant> {
    let names = (domains(), any::<[u8; 16]>(), operators(), all_terms(), validities());
    (names, any::<(u32, u32, u8, u64)>(), any::<[[u8; 32]; 4]>(), signatures()).prop_map(
        |(
            (broker, pseudonym, operator, terms, validity),
            (ul_kbps, dl_kbps, five_qi, credit_micros),
            h,
            signature,
        )| {
            let [request, user_share, operator_share, orders] = h;
            let (user_share, operator_share) = (Share(user_share), Share(operator_share));
            let (pseudonym, qos) = (Pseudonym(pseudonym), Qos { ul_kbps, dl_kbps, five_qi });
            let grant = Grant {
                broker,
                pseudonym,
                operator,
                terms,
                qos,
                validity,
                credit_micros,
                request,
                user_share,
                operator_share,
                orders,
            };
            SignedGrant { grant, signature }
        },
    )
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![
        (any::<u32>(), 0..=32u8).prop_map(|(a, n)| {
            let mask = u32::MAX.checked_shl(32 - u32::from(n)).unwrap_or(0);
            Filter::new(IpAddr::V4((a & mask).into()), n).unwrap()
        }),
        (any::<u128>(), 0..=128u8).prop_map(|(a, n)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(n)).unwrap_or(0);
            Filter::new(IpAddr::V6((a & mask).into()), n).unwrap()
        }),
    ]
}

fn refusals() -> impl Strategy<Value = SignedRefusal> {
    let causes = prop::sample::select(RefusalCause::ALL);
    (domains(), causes, operators(), any::<[u8; 32]>(), keys(), signatures()).prop_map(
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

fn answers_u() -> impl Strategy<Value = AnswerU> {
    (any::<[u8; 16]>(), vec(any::<u8>(), 0..=631))
        .prop_map(|(salt, sealed)| AnswerU { salt, sealed: sealed.into() })
}

fn supis() -> impl Strategy<Value = Supi> {
    vec(0..=9u8, 6..=15).prop_map(|digits| Supi::from_digits(digits).unwrap())
}

fn subscribers() -> impl Strategy<Value = Subscriber> {
    let suci = (0..16u8, any::<u8>(), vec(any::<u8>(), 0..=SCHEME_OUTPUT_OCTETS_MAX));
    prop_oneof![
        supis().prop_map(Subscriber::Supi),
        suci.prop_map(|(scheme, key_id, output)| Subscriber::Suci {
            plmn: PlmnId::TEST,
            scheme,
            key_id,
            output: output.into()
        }),
    ]
}

fn askers() -> impl Strategy<Value = Asker> {
    (certificates(), all_terms(), any::<u64>(), signatures())
        .prop_map(|(certificate, terms, time, signature)| Asker { certificate, terms, time, signature })
}

fn vector_requests() -> impl Strategy<Value = VectorRequest> {
    let token = prop::option::of(any::<([u8; 16], [u8; 14])>());
    (domains(), subscribers(), any::<[u8; 16]>(), token, askers()).prop_map(
        |(broker, subscriber, nonce, token, asker)| {
            let resynchronisation = token.map(|(rand, auts)| Resynchronisation { rand, auts });
            VectorRequest { question: VectorQuestion { broker, subscriber, nonce, resynchronisation }, asker }
        },
    )
}

fn confirmations() -> impl Strategy<Value = Confirmation> {
    (domains(), any::<([u8; 32], [u8; 16], [u8; 32])>(), askers()).prop_map(
        |(broker, (request, res_star, share), asker)| {
            let share = Share(share);
            Confirmation { question: ConfirmationQuestion { broker, request, res_star, share }, asker }
        },
    )
}

fn challenges() -> impl Strategy<Value = SignedChallenge> {
    let values = any::<([u8; 32], [u8; 16], [u8; 16], [u8; 16])>();
    (domains(), operators(), values, signatures()).prop_map(
        |(broker, operator, (request, rand, autn, hxres_star), signature)| SignedChallenge {
            broker,
            operator,
            request,
            rand,
            autn,
            hxres_star,
            signature,
        },
    )
}

fn answers() -> impl Strategy<Value = AnswerT> {
    let granted = (grants(), vec(any::<u8>(), 0..200), answers_u());
    let body = prop_oneof![
        granted.prop_map(|(grant, orders, answer_u)| AnswerBody::Granted {
            grant,
            orders: orders.into(),
            answer_u
        }),
        refusals().prop_map(AnswerBody::Refused),
        prop::sample::select(Rejection::ALL).prop_map(AnswerBody::Rejected),
        challenges().prop_map(AnswerBody::Challenged),
        (grants(), vec(any::<u8>(), 0..200))
            .prop_map(|(grant, release)| AnswerBody::Released { grant, release: release.into() }),
    ];
    (certificates(), body).prop_map(|(certificate, body)| AnswerT { certificate, body })
}

/// Reads octets as every message; what is understood must be written again in the same octets. Gives how many understood it.
pub(crate) fn read_as_every_message(octets: &[u8]) -> usize {
    fn same<T, E>(read: Result<T, E>, write: impl Fn(&T) -> Vec<u8>, octets: &[u8]) -> usize {
        let Ok(value) = read else { return 0 };
        assert_eq!(write(&value), octets);
        1
    }
    let scheme_output = AuthReqU::from_scheme_output(domain("b.example"), 1, octets);
    let mut understood = same(AuthReqU::parse(octets), AuthReqU::to_octets, octets)
        + same(scheme_output, AuthReqU::to_scheme_output, octets)
        + same(UserVector::parse(octets), UserVector::to_octets, octets)
        + same(AuthReqT::parse(octets), AuthReqT::to_octets, octets)
        + same(SignedGrant::parse(octets), SignedGrant::to_octets, octets)
        + same(Certificate::parse(octets), Certificate::to_octets, octets)
        + same(AnswerT::parse(octets), AnswerT::to_octets, octets)
        + same(AnswerU::parse(octets), AnswerU::to_octets, octets)
        + same(UserAnswer::parse(octets), |v| v.to_octets().to_vec(), octets)
        + same(OperatorOrders::parse(octets), |v| v.to_octets().to_vec(), octets)
        + same(SignedRefusal::parse(octets), SignedRefusal::to_octets, octets)
        + same(VectorRequest::parse(octets), VectorRequest::to_octets, octets)
        + same(Confirmation::parse(octets), Confirmation::to_octets, octets)
        + same(SignedChallenge::parse(octets), SignedChallenge::to_octets, octets)
        + same(Release::parse(octets), |v| v.to_octets().to_vec(), octets);
    // These two have more than one spelling.
    if let Ok(suci) = SuciNai::parse(octets) {
        assert_eq!(SuciNai::parse(suci.to_text().as_bytes()).as_ref(), Ok(&suci));
        understood += 1;
    }
    if let Ok(packet) = EapExpanded::parse(octets) {
        assert_eq!(EapExpanded::parse(&packet.to_octets()).as_ref(), Ok(&packet));
        understood += 1;
    }
    understood
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_are_read_as_written(request in requests(), vector in vectors()) {
        prop_assert_eq!(AuthReqU::parse(&request.to_octets()), Ok(request.clone()));
        prop_assert!(request.to_octets().len() <= AuthReqU::OCTETS_MAX);
        let suci = SuciNai::of_request(&request, Scheme::F);
        prop_assert_eq!(SuciNai::parse(suci.to_text().as_bytes()).unwrap().to_request(), Ok(request));
        prop_assert_eq!(UserVector::parse(&vector.to_octets()), Ok(vector));
    }

    #[test]
    fn requests_of_operators_are_read_as_written(request in requests_of_operators()) {
        prop_assert!(request.to_octets().len() <= AuthReqT::OCTETS_MAX);
        prop_assert_eq!(AuthReqT::parse(&request.to_octets()), Ok(request));
    }

    #[test]
    fn certificates_grants_and_refusals_are_read_as_written(
        certificate in certificates(), grant in grants(), refusal in refusals(),
    ) {
        prop_assert_eq!(Certificate::parse(&certificate.to_octets()), Ok(certificate));
        prop_assert!(grant.to_octets().len() <= SignedGrant::OCTETS_MAX);
        prop_assert_eq!(SignedGrant::parse(&grant.to_octets()), Ok(grant));
        prop_assert!(refusal.to_octets().len() <= SignedRefusal::OCTETS_MAX);
        prop_assert_eq!(SignedRefusal::parse(&refusal.to_octets()), Ok(refusal));
    }

    #[test]
    fn questions_about_ordinary_ues_are_read_as_written(
        request in vector_requests(), confirmation in confirmations(), challenge in challenges(),
    ) {
        for longest in [VectorRequest::OCTETS_MAX, Confirmation::OCTETS_MAX] {
            prop_assert!(longest <= AuthReqT::OCTETS_MAX);
        }
        prop_assert!(request.to_octets().len() <= VectorRequest::OCTETS_MAX);
        prop_assert_eq!(VectorRequest::parse(&request.to_octets()), Ok(request));
        prop_assert!(confirmation.to_octets().len() <= Confirmation::OCTETS_MAX);
        prop_assert_eq!(Confirmation::parse(&confirmation.to_octets()), Ok(confirmation));
        prop_assert!(challenge.to_octets().len() <= SignedChallenge::OCTETS_MAX);
        prop_assert_eq!(SignedChallenge::parse(&challenge.to_octets()), Ok(challenge));
    }

    #[test]
    fn answers_are_read_as_written(answer in answers()) {
        prop_assert_eq!(AnswerT::parse(&answer.to_octets()), Ok(answer));
    }

    #[test]
    fn sealed_parts_are_read_as_written(
        grant in grants(), ss in any::<[u8; 32]>(), ticket in tickets(), next_key in keys(),
        intercept in any::<bool>(), filters in vec(filters(), 0..=OperatorOrders::FILTERS_MAX),
    ) {
        let answer = UserAnswer { grant, ss: SharedSecret::new(ss), ticket, next_key };
        prop_assert_eq!(UserAnswer::parse(&answer.to_octets()), Ok(answer));
        let supi = Supi::from_digits([9, 9, 9, 7, 1, 0, 0, 7]).unwrap();
        let release = Release { supi, k_seaf: KSeaf::new(ss), intercept, filters: filters.clone() };
        prop_assert_eq!(Release::parse(&release.to_octets()), Ok(release));
        let orders = OperatorOrders { ss: SharedSecret::new(ss), intercept, filters };
        prop_assert_eq!(OperatorOrders::parse(&orders.to_octets()), Ok(orders));
    }

    #[test]
    fn eap_packets_are_read_as_written(identifier in any::<u8>(), data in vec(any::<u8>(), 0..1_400)) {
        let packet = EapExpanded::new(EapCode::Response, identifier, &data).unwrap();
        prop_assert_eq!(EapExpanded::parse(&packet.to_octets()), Ok(packet));
    }

    #[test]
    fn damaged_messages_are_understood_as_written_or_refused(
        answer in answers(), request in requests_of_operators(), vector in vector_requests(), confirmation in confirmations(),
        at in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let questions = [request.request.to_octets(), vector.to_octets(), confirmation.to_octets()];
        for mut octets in [answer.to_octets(), request.to_octets()].into_iter().chain(questions) {
            let at = at.index(octets.len());
            read_as_every_message(&octets[..at]);
            octets[at] ^= 1 << bit;
            read_as_every_message(&octets);
        }
    }

    #[test]
    fn any_octets_are_understood_as_written_or_refused(kind in 0..12u8, octets in vec(any::<u8>(), 0..400)) {
        read_as_every_message(&octets);
        read_as_every_message(&[&[kind, VERSION], &octets[..]].concat());
    }
}

#[test]
fn another_version_is_unknown() {
    let mut octets = SignedRefusal::sign(
        domain("b.example"),
        RefusalCause::CounterUsed,
        super::world::t1(),
        [0; 32],
        None,
        &key("b"),
    )
    .to_octets();
    octets[1] = 2;
    assert_eq!(SignedRefusal::parse(&octets).unwrap_err().kind, whimbrel_ids::DecodeErrorKind::Unknown);
}
