//! A true message with some octets changed, at each party that receives one: nothing that was changed is accepted.
//! The first octet says which message; then come places (two octets) and what is done to the octet there.

use crate::world::{
    AGE_S, ALICE, NOW, at, broker, certificate, contract, fill, key, seed, sim, spend, wallet,
};
use whimbrel_privacy::broker::BrokerEvent;
use whimbrel_privacy::crypto::Response;
use whimbrel_privacy::operator::OperatorAttach;
use whimbrel_privacy::user::UserAttach;

/// Whether anything is changed, and the result.
fn change(octets: &[u8], changes: &[u8]) -> (bool, Vec<u8>) {
    let mut changed = octets.to_vec();
    for [high, low, xor] in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % octets.len();
        changed[at] ^= xor;
    }
    (changed != octets, changed)
}

/// Judges one change.
pub(crate) fn judge(octets: &[u8]) {
    let Some((which, changes)) = octets.split_first() else { return };
    let (mut b, mut tokens, now) = (broker(), wallet(), at(AGE_S));
    if which % 6 < 2 {
        assert!(tokens.begin_filling(NOW, seed("batch", 1)));
        let request = tokens.filling_request(&certificate(1), &key("operator 1")).unwrap();
        let (changed, sent) =
            if which % 6 == 0 { change(&request, changes) } else { (false, request.clone()) };
        let output = b.issue(&sent, NOW);
        assert_ne!(changed, matches!(output.event, BrokerEvent::Issued(_)));
        if which % 6 == 1 {
            let (changed, answer) = change(&output.octets, changes);
            assert_ne!(changed, tokens.finish_filling(&request, &answer, NOW).is_ok());
        }
        return;
    }
    fill(&mut tokens, &mut b, 1, NOW, 1);
    if which % 6 == 2 {
        let (token, request) = tokens.begin_spending(now, &seed("spend", 1)).unwrap();
        let (changed, octets) = change(&request, changes);
        let output = b.open_group(&octets, now);
        assert_ne!(changed, matches!(output.event, BrokerEvent::Opened(_)));
        assert_ne!(changed, tokens.finish_spending(token, &output.octets).is_ok());
        return;
    }
    let (group, _) = spend(&mut tokens, &mut b, now, 1);
    let (user, request) =
        UserAttach::begin(&mut sim("alice", ALICE, &b), group.hash(), &seed("u", 1)).unwrap();
    let (operator, question) = OperatorAttach::ask(contract(), request, &seed("o", 1)).unwrap();
    let asked = question.sign(&group).unwrap();
    if which % 6 == 3 {
        let (changed, octets) = change(&asked, changes);
        let event = b.attach(&octets, now, &seed("b", 1)).event;
        assert_ne!(changed, matches!(event, BrokerEvent::Granted(_)));
        return;
    }
    let answer = b.attach(&asked, now, &seed("b", 1)).octets;
    if which % 6 == 4 {
        // What is sealed to the user ends the answer; the operator cannot read it.
        let (changed, octets) = change(&answer, changes);
        assert!(changed || operator.answer(&octets, now).is_ok());
        let _ = operator.answer(&octets, now);
        return;
    }
    let challenging = operator.answer(&answer, now).unwrap();
    let (changed, octets) = change(&challenging.challenge().to_octets(), changes);
    assert_ne!(changed, user.challenge(&octets, now).is_ok());
    let responding = user.challenge(&challenging.challenge().to_octets(), now).unwrap();
    let (changed, octets) = change(&responding.response().to_message(), changes);
    let taken = Response::parse(&octets).is_ok_and(|response| challenging.respond(&response).is_ok());
    assert_ne!(changed, taken);
}

#[cfg(test)]
#[test]
fn a_message_with_a_changed_octet_is_accepted_by_no_party() {
    for (which, octets, step) in [
        (0, 2_200, 311), // token request: 64 elements are read each time
        (1, 2_147, 311), // token answer
        (2, 97, 5),      // group request
        (3, 400, 17),    // operator request
        (4, 1_100, 41),  // answer
        (5, 560, 17),    // challenge, and the response by the same places
    ] {
        judge(&[which]);
        for at in (0..octets).step_by(step) {
            let [high, low] = u16::to_be_bytes(at);
            judge(&[which, high, low, 0x40]);
        }
    }
}
