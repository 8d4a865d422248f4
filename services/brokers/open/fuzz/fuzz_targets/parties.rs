//! A true message with some octets changed, at each party that receives one: nothing that was changed is accepted.
//! The first octet says which message; then come places (two octets) and what is done to the octet there.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/sap/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use whimbrel_open::broker::BrokerEvent;
use whimbrel_open::crypto::Seed;
use whimbrel_open::msg::{RefusalCause, SignedRefusal};
use whimbrel_open::operator::OperatorAttach;
use whimbrel_open::user::UserAttach;
use world::{ALICE, NOW, broker, domain, key, operator, seed, sim, t1, trust};

/// Whether anything is changed, and the result.
fn change(octets: &[u8], changes: &[u8]) -> (bool, Vec<u8>) {
    let mut changed = octets.to_vec();
    for [high, low, xor] in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % octets.len();
        changed[at] ^= xor;
    }
    (changed != octets, changed)
}

fuzz_target!(|octets: &[u8]| {
    let Some((which, changes)) = octets.split_first() else { return };
    let mut b = broker("b.example");
    let (user, request) = UserAttach::begin(&mut sim("alice", ALICE, &b), t1(), &seed("u", 1)).unwrap();
    let hash = request.hash();
    let (operator, asked) = OperatorAttach::begin(&operator(t1(), "t1"), request, NOW, &seed("t", 1));
    let mut serve = |octets: &[u8], seed: &Seed| b.answer(octets, NOW, seed);
    match which % 4 {
        0 => {
            let (changed, octets) = change(&asked, changes);
            let event = serve(&octets, &seed("b", 1)).event;
            assert_ne!(changed, matches!(event, BrokerEvent::Granted(_)));
        }
        1 => {
            let answer = serve(&asked, &seed("b", 1)).octets;
            // What is sealed to the user ends the answer; the operator cannot read it.
            let (changed, octets) = change(&answer, changes);
            assert!(changed || operator.answer(&octets, &trust(), NOW).is_ok());
            let _ = operator.answer(&octets, &trust(), NOW);
        }
        2 => {
            let answer = serve(&asked, &seed("b", 1)).octets;
            let answer = operator.answer(&answer, &trust(), NOW).unwrap().answer_u.to_octets();
            let (changed, octets) = change(&answer, changes);
            assert_ne!(changed, user.answer(&octets, NOW).is_ok());
        }
        _ => {
            let (cause, by) = (RefusalCause::CounterUsed, key("b.example"));
            let refusal = SignedRefusal::sign(domain("b.example"), cause, t1(), hash, None, &by);
            let (changed, octets) = change(&refusal.to_octets(), changes);
            assert_ne!(changed, user.refusal(&octets).is_ok());
        }
    }
});
