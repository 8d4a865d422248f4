use super::*;
use crate::milenage::{K, Milenage, Opc};
use crate::sqn::{SqnOffset, SqnState, UsimSqn};
use crate::testing::{bytes, lines, octets};
use whimbrel_ids::Instant;

const NOW: Instant = Instant(1_800_000_000_000_000);

#[test] // RFC 9048 Appendix D
fn keys_of_the_published_cases() {
    let cases = lines(include_str!("../../../testdata/eap_aka_prime.txt"));
    assert_eq!(cases.len(), 4);
    for case in &cases {
        let [identity, network, ik, ck, autn, ck_prime, ik_prime, k_encr, k_aut, k_re, msk, emsk] =
            case.fields();
        let sqn_xor_ak = octets::<16>(autn)[..6].try_into().unwrap();
        let (ck, ik) = primed(&Ck::new(octets(ck)), &Ik::new(octets(ik)), sqn_xor_ak, network.as_bytes());
        assert_eq!(ck.octets(), &octets::<16>(ck_prime), "CK' of {}", case.name);
        assert_eq!(ik.octets(), &octets::<16>(ik_prime), "IK' of {}", case.name);
        let mk = master(&ck, &ik, identity.as_bytes());
        assert_eq!(mk.to_vec(), bytes(&[k_encr, k_aut, k_re, msk, emsk].concat()), "MK of {}", case.name);
    }
}

fn functions() -> AkaFunctions {
    Milenage::new(&K::new([0x46; 16]), Opc::new([0xcd; 16])).into()
}

fn name() -> ServingNetworkName {
    ServingNetworkName::new(PlmnId::TEST)
}

fn supi() -> Supi {
    "999700000000001".parse().unwrap()
}

fn server(sqn: Sqn) -> EapAkaPrimeServer {
    let amf = AuthenticationManagementField::FIVE_G;
    let vector = EapAkaPrimeVector::generate(&functions(), Rand([7; 16]), sqn, amf, &name());
    EapAkaPrimeServer::new(vector, &EapIdentity::new(supi(), PlmnId::TEST), 41)
}

fn usim() -> Usim {
    Usim::new(functions(), UsimSqn::default())
}

fn peer() -> EapAkaPrimePeer {
    EapAkaPrimePeer::new(supi(), PlmnId::TEST, name())
}

fn answered(usim: &mut Usim, message: &[u8]) -> Vec<u8> {
    match peer().answer(usim, message) {
        Some(PeerAnswer::Answered(octets) | PeerAnswer::Accepted(octets, _)) => octets,
        other => panic!("{other:?}"),
    }
}

#[test] // RFC 9048 §5.3.1.1
fn the_identity_is_the_nai_of_the_supi() {
    let identity = EapIdentity::new("234150999999999".parse().unwrap(), "234/15".parse().unwrap());
    assert_eq!(identity.0, "234150999999999@nai.5gc.mnc015.mcc234.3gppnetwork.org");
    assert_eq!(format!("{identity:?}"), "EapIdentity(…)");
}

#[test] // TS 33.501 §6.1.3.1 steps 5 to 10
fn both_sides_agree() {
    let (server, mut usim) = (server(Sqn::new(1, 1)), usim());
    let Some(PeerAnswer::Accepted(response, own)) = peer().answer(&mut usim, &server.challenge()) else {
        panic!("the UE accepts");
    };
    let EapVerdict::Accepted(k_ausf) = server.judge(&response) else { panic!("the network accepts") };
    assert_eq!(k_ausf, own);
    assert!(matches!(peer().answer(&mut usim, &server.success()), Some(PeerAnswer::Success)));
    assert!(matches!(peer().answer(&mut usim, &server.failure(false)), Some(PeerAnswer::Failure)));
}

#[test] // RFC 4187 §6.3.1: each octet of the response counts
fn a_response_that_was_touched_is_refused() {
    let server = server(Sqn::new(1, 1));
    let right = answered(&mut usim(), &server.challenge());
    for at in 0..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 1;
        assert!(!matches!(server.judge(&wrong), EapVerdict::Accepted(_)), "octet {at}");
        assert!(!matches!(server.judge(&right[..at]), EapVerdict::Accepted(_)), "cut at {at}");
    }
}

#[test] // RFC 4187 §9.6, TS 33.102 §6.3.5: the sequence is repaired
fn synchronization_failure() {
    let mut he = SqnState::new(SqnOffset::ZERO);
    let (server, mut usim) = (server(he.next(NOW)), usim());
    let response = answered(&mut usim, &server.challenge());
    let EapVerdict::SynchronizationFailure(auts) = server.judge(&response) else { panic!("a fresh USIM") };
    let moved = crate::aka::resynchronise(&functions(), &server.rand(), &auts, &mut he, NOW);
    assert!(moved.flatten().is_some());
    let again = self::server(he.next(NOW));
    assert!(matches!(peer().answer(&mut usim, &again.challenge()), Some(PeerAnswer::Accepted(..))));
}

#[test] // RFC 4187 §9.5, RFC 9048 §3.1: a wrong AUTN, and a network that says it is another
fn authentication_reject() {
    let other = Usim::new(Milenage::new(&K::new([1; 16]), Opc::new([0xcd; 16])), UsimSqn::default());
    let server = server(Sqn::new(1, 1));
    let response = answered(&mut { other }, &server.challenge());
    let rejected = EapRefusal::AuthenticationReject;
    assert!(matches!(server.judge(&response), EapVerdict::Refused(r) if r == rejected));
    let elsewhere = ServingNetworkName::new("001/01".parse().unwrap());
    let other_network = EapAkaPrimePeer::new(supi(), PlmnId::TEST, elsewhere);
    let Some(PeerAnswer::Answered(response)) = other_network.answer(&mut usim(), &server.challenge()) else {
        panic!("the UE refuses");
    };
    assert!(matches!(server.judge(&response), EapVerdict::Refused(r) if r == rejected));
}

#[test] // RFC 4187 §9.9: a challenge that was touched on its way
fn client_error() {
    let server = server(Sqn::new(1, 1));
    let mut challenge = server.challenge();
    *challenge.last_mut().unwrap() ^= 1;
    let response = answered(&mut usim(), &challenge);
    let refused = EapRefusal::ClientError(UNABLE_TO_PROCESS);
    assert!(matches!(server.judge(&response), EapVerdict::Refused(r) if r == refused));
}

#[test] // RFC 4187 §9.10, §9.11
fn a_notification_is_confirmed() {
    let server = server(Sqn::new(1, 1));
    let notification = server.failure_notification();
    assert_eq!(answered(&mut usim(), &notification), [2, 42, 0, 8, 50, 12, 0, 0]);
    let success = EapWriter::new(Code::Request, 42, Subtype::Notification).notification(0x8000).plain();
    assert_eq!(answered(&mut usim(), &success)[5], Subtype::ClientError as u8);
}

#[test] // RFC 9048 §3.2
fn another_key_derivation_function_is_negotiated() {
    let offered = |kdfs: &[u16]| {
        let mut w = EapWriter::new(Code::Request, 3, Subtype::Challenge).rand(&[1; 16]).autn(&[2; 16]);
        for kdf in kdfs {
            w = w.kdf(*kdf);
        }
        w.kdf_input(name().octets()).mac().plain()
    };
    let chosen = answered(&mut usim(), &offered(&[2, 1]));
    let p = EapPacket::parse(&chosen).unwrap();
    assert_eq!((p.subtype, &p.kdfs[..], p.res), (Subtype::Challenge, &[1][..], None));
    let none = answered(&mut usim(), &offered(&[2, 3]));
    assert_eq!(none[5], Subtype::AuthenticationReject as u8);
}

#[test] // RFC 9048 §3.5.2: nothing was exchanged before that a checkcode could cover
fn a_checkcode_over_something_is_refused() {
    let server = server(Sqn::new(1, 1));
    let response = |checkcode: &[u8]| {
        let w = EapWriter::new(Code::Response, 41, Subtype::Challenge).res(server.vector.xres.octets());
        w.attribute(134, &[&[0, 0], checkcode]).mac().finish(mac(&server.k_aut))
    };
    assert!(matches!(server.judge(&response(&[])), EapVerdict::Accepted(_)));
    assert!(matches!(server.judge(&response(&[5; 32])), EapVerdict::Refused(EapRefusal::WrongResponse)));
}
