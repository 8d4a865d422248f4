//! Messages of a peer AMF about replicas of UEs (N14), some with octets changed, all under the CRCs that are theirs. No more UEs are held than configured,
//! and what is answered or passed on can be read.
//!
//! The input is a sequence of messages: which of [`Kind`], which UE, how many changes, and these: which octet, and its value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_control::amf::{N14Body, N14, PeerAmfId, Relation, TransferredUe};
use whimbrel_control::{Checkpoint, Delta, Flat, UeContext, UeId};
use whimbrel_resilience::{PeerReplicas, PeerMessageOutcome};

const PEER: PeerAmfId = PeerAmfId(0);
/// UEs that are held at most, fewer than there are.
const HELD_MAX: usize = 4;
const CRC_OCTETS: usize = 4;

fuzz_target!(|octets: &[u8]| {
    let mut replicas = PeerReplicas::new([(PEER, whimbrel_ids::AmfId::new(2, 1, 1).expect("within its bits"), HELD_MAX)], Vec::new());
    let mut rest = octets;
    while let [kind, slot, changes, behind @ ..] = rest {
        let (changes, behind) = behind.split_at((usize::from(*changes % 8) * 3).min(behind.len()));
        rest = behind;
        take(&mut replicas, &changed(*kind, u32::from(*slot % 8), changes));
    }
});

fn take(replicas: &mut PeerReplicas, message: &[u8]) {
    match replicas.receive(PEER, message) {
        PeerMessageOutcome::Answer(answer) => drop(N14::from_octets(answer.octets()).expect("an answer is read")),
        PeerMessageOutcome::Completed(whole) => drop(N14::from_octets(whole.octets()).expect("a whole message is read")),
        PeerMessageOutcome::Input | PeerMessageOutcome::Taken => {}
    }
    assert!(replicas.held() <= HELD_MAX);
}

/// A UE's state as of a clock.
fn checkpoint(slot: u32, clock: u64) -> Checkpoint {
    let mut ue = UeContext::new(UeId { slot, generation: 1 });
    ue.clock = clock;
    ue.amf.radio.capability = Some([slot as u8; 200].as_slice().into());
    Checkpoint::of(&ue).expect("no procedure runs")
}

/// What has changed of a UE's state.
fn delta(slot: u32) -> Flat {
    Delta::between(&checkpoint(slot, 7), &checkpoint(slot, 9)).expect("two states of one UE").into_flat()
}

fn transferred(slot: u32, state: Flat) -> N14Body {
    let asker = UeId { slot, generation: 2 };
    N14Body::UeContextTransferred(TransferredUe { asker, state, upfs: Vec::new() }.into())
}

/// A message of a kind about a UE, in which octets are changed: of the state that it carries, or of all of it.
fn changed(kind: u8, slot: u32, changes: &[u8]) -> Vec<u8> {
    let whole = || checkpoint(slot, 7).into_flat();
    let (body, state) = match kind % 6 {
        0 => (N14Body::Replica(whole()), Some(whole())),
        1 => (N14Body::Replica(delta(slot)), Some(delta(slot))),
        2 => (transferred(slot, delta(slot)), Some(delta(slot))),
        3 => (transferred(slot, whole()), Some(whole())),
        4 => (N14Body::ReplicaGone, None),
        _ => (N14Body::WholeRequested, None),
    };
    let relation = Relation { source: UeId { slot, generation: 1 }, token: [0; 16] };
    let mut message = N14 { relation, body }.to_flat().octets().to_vec();
    let of_state = state.filter(|_| kind & 0x80 == 0).and_then(|state| {
        let len = state.octets().len();
        let at = message.windows(len).position(|octets| octets == state.octets())?;
        Some(at..at + len)
    });
    if let Some(within) = of_state.and_then(|range| message.get_mut(range)) {
        change(within, changes);
    } else {
        change(&mut message, changes);
        return message;
    }
    change(&mut message, &[]);
    message
}

/// Changes octets of a frame, and its CRC accordingly.
fn change(frame: &mut [u8], changes: &[u8]) {
    let Some(body) = frame.len().checked_sub(CRC_OCTETS) else { return };
    for [high, low, octet] in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_be_bytes([*high, *low])) % body.max(1);
        if let Some(place) = frame.get_mut(at) {
            *place = *octet;
        }
    }
    let crc = crc32c::crc32c(&frame[..body]);
    frame[body..].copy_from_slice(&crc.to_be_bytes());
}
