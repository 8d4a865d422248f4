//! What another process sends as a flat form: any octets, and frames of the test data with some octets changed, all under
//! the CRC that is theirs. What is read is written and read again; a UE that is read serves its inputs, whatever it is.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use whimbrel_control::amf::{N14Body, N14, Relation};
use whimbrel_control::config::Config;
use whimbrel_control::{Batch, Checkpoint, Delta, Envelope, Payload, Shard, UeContext, UeId};

const CHECKPOINTS: &str = include_str!("../../src/flat/testdata/checkpoint.hex");
const ENVELOPES: &str = include_str!("../../src/flat/testdata/envelope.hex");
const BATCHES: &str = include_str!("../../src/flat/testdata/batch.hex");
const CONFIGS: &str = include_str!("../../src/flat/testdata/config.hex");

static FRAMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let stored = [CHECKPOINTS, ENVELOPES, BATCHES, CONFIGS].into_iter().flat_map(frames);
    stored.chain(messages_of_peer_amfs()).collect()
});
static INPUTS: LazyLock<Vec<Envelope>> =
    LazyLock::new(|| frames(ENVELOPES).map(|f| Envelope::from_flat(&f).expect("test data")).collect());
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(|| Arc::new(whimbrel_sim::default_config()));

/// Messages about replicas, and one of each test checkpoint.
fn messages_of_peer_amfs() -> impl Iterator<Item = Vec<u8>> {
    let replicas = frames(CHECKPOINTS).filter_map(|frame| Some(N14Body::Replica(Checkpoint::from_octets(&frame).ok()?.into_flat())));
    let message = |body| {
        let relation = Relation { source: UeId { slot: 7, generation: 1 }, token: [5; 16] };
        N14 { relation, body }.to_flat().octets().to_vec()
    };
    [N14Body::ReplicaGone, N14Body::WholeRequested].into_iter().chain(replicas).map(message)
}

fn frames(hex: &str) -> impl Iterator<Item = Vec<u8>> {
    let octet = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    hex.lines().map(move |line| line.as_bytes().chunks(2).map(octet).collect())
}

fuzz_target!(|octets: &[u8]| {
    let frame = match octets {
        // The octets of a form and its body.
        [255, octets @ ..] => [octets, &[0; 4]].concat(),
        // A frame, and what is changed in it: where, how, and to what.
        [which, changes @ ..] => {
            let mut frame = FRAMES[usize::from(*which) % FRAMES.len()].clone();
            for change in changes.as_chunks::<4>().0 {
                let Some(last) = frame.len().checked_sub(5) else { break };
                let at = usize::from(u16::from_be_bytes([change[0], change[1]])) % (last + 1);
                match change[2] % 3 {
                    0 => frame[at] = change[3],
                    1 => frame.insert(at, change[3]),
                    _ => drop(frame.remove(at)),
                }
            }
            frame
        }
        [] => return,
    };
    take(&sealed(frame));
});

fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let at = frame.len().saturating_sub(4);
    let crc = crc32c::crc32c(&frame[..at]);
    frame.splice(at.., crc.to_be_bytes());
    frame
}

fn take(octets: &[u8]) {
    if let Ok(ue) = Checkpoint::from_octets(octets).and_then(|c| c.context()) {
        let again = Checkpoint::of(&ue).expect("what was read is at rest");
        let read = again.context().expect("what is written is read");
        assert_eq!(Checkpoint::of(&read).as_ref(), Some(&again));
        let mut later = read.clone();
        later.clock = later.clock.wrapping_add(1);
        if let Some(later) = Checkpoint::of(&later)
            && let Some(delta) = Delta::between(&again, &later)
        {
            assert_eq!(delta.apply(&again), Ok(later));
        }
        serve(read);
    }
    if let Ok(delta) = Delta::from_octets(octets) {
        let base = Checkpoint::from_octets(&FRAMES[0]).expect("test data");
        let _ = delta.apply(&base);
    }
    if let Ok(envelope) = Envelope::from_flat(octets) {
        let again = envelope.to_flat();
        assert_eq!(Envelope::from_flat(again.octets()).map(|e| e.to_flat()), Ok(again));
    }
    if let Ok(config) = Config::from_flat(octets) {
        let again = config.to_flat();
        assert_eq!(Config::from_flat(again.octets()).map(|c| c.to_flat()), Ok(again));
    }
    if let Ok(message) = N14::from_octets(octets) {
        let again = message.to_flat();
        assert_eq!(N14::from_octets(again.octets()).map(|m| m.to_flat()), Ok(again));
    }
    if let Ok(batch) = Batch::from_flat(octets) {
        let again = batch.to_flat();
        assert_eq!(Batch::from_flat(again.octets()).map(|b| b.to_flat()), Ok(again));
    }
}

fn serve(ue: Box<UeContext>) {
    let Some(mut clock) = ue.clock.checked_add(1) else { return };
    let mut shard = Shard::new(CONFIG.clone());
    for input in &*INPUTS {
        shard.restore(ue.clone());
        for payload in [input.payload.clone(), Payload::Tick] {
            let mut envelope = input.clone();
            (envelope.ue, envelope.clock, envelope.payload) = (ue.id, clock, payload);
            (envelope.cta_term, envelope.owner_term) = ue.terms;
            shard.handle(&envelope);
            let Some(next) = clock.checked_add(1) else { return };
            clock = next;
        }
    }
}
