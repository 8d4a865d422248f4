//! A true message about an ordinary UE with some octets changed, at each party that receives one: nothing that was changed is accepted.
//! The first octet says which message; then come places (two octets) and what is done to the octet there.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/sap/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;
use whimbrel_ids::Supi;
use whimbrel_open::broker::{BrokerEvent, Home, HomeUser};
use whimbrel_open::id::UserId;
use whimbrel_open::msg::{Qos, Subscriber};
use whimbrel_open::operator::HomeAttach;
use whimbrel_security::{
    AkaFunctions, Autn, HomeNetworkKeys, K, Milenage, Opc, Rand, ServingNetworkName, Sqn, Usim, UsimSqn,
};
use world::{NOW, broker, domain, operator, seed, t1, trust};

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
    let functions: AkaFunctions = Milenage::new(&K::new([0x46; 16]), Opc::new([0xcd; 16])).into();
    let supi = Supi::from_digits([9, 9, 9, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap();
    let mut b = broker("b.example");
    b.set_home(Home { plmn: "999/71".parse().unwrap(), keys: HomeNetworkKeys::new(), credit_micros: 1_000 });
    let user = HomeUser {
        user: UserId([0xbb; 16]),
        functions: functions.clone(),
        revoked: false,
        qos: Qos { ul_kbps: 10_000, dl_kbps: 100_000, five_qi: 9 },
        intercept: false,
        filters: Vec::new(),
        sqn: Sqn::ZERO,
    };
    b.set_home_user(supi, user);
    let t = operator(t1(), "t1");
    let offer = (t.id(), t.terms.clone());
    let subscriber = Subscriber::Supi(supi);
    let (attach, question) = HomeAttach::ask(offer, domain("b.example"), subscriber, None, &seed("t", 1));
    let asked = question.sign(&t, NOW);
    if which % 4 == 0 {
        let (changed, octets) = change(&asked, changes);
        let event = b.answer(&octets, NOW, &seed("b", 1)).event;
        return assert_ne!(changed, matches!(event, BrokerEvent::Challenged { .. }));
    }
    let answer = b.answer(&asked, NOW, &seed("b", 1)).octets;
    let challenge = attach.challenge(&answer, &trust(), NOW).unwrap();
    if which % 4 == 1 {
        let (changed, octets) = change(&answer, changes);
        return assert_ne!(changed, attach.challenge(&octets, &trust(), NOW).is_ok());
    }
    let mut usim = Usim::new(functions, UsimSqn::default());
    let name = ServingNetworkName::new(t1().plmn);
    let proved = usim.authenticate(&Rand(challenge.rand), &Autn(challenge.autn), &name).unwrap();
    let res_star = *proved.res_star.octets();
    let confirmation = attach.confirm(res_star).sign(&t, NOW);
    if which % 4 == 2 {
        let (changed, octets) = change(&confirmation, changes);
        let event = b.answer(&octets, NOW, &seed("b", 2)).event;
        return assert_ne!(changed, matches!(event, BrokerEvent::Granted(_)));
    }
    let answer = b.answer(&confirmation, NOW, &seed("b", 2)).octets;
    let (changed, octets) = change(&answer, changes);
    assert_ne!(changed, attach.release(&octets, res_star, &trust(), NOW).is_ok());
});
