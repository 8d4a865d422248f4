//! Faults that somebody wants, so that it can be seen what they cost: `WHIMBREL_POISON=imsi-999700000000091=hang` has whoever runs the message
//! with which that UE wakes up, when it has a session, never come back from it. Only in debug builds and with the feature `faults`: no build that ships has it.

use std::sync::OnceLock;

use whimbrel_control::{Envelope, Payload, UeContext};
use whimbrel_ids::Supi;

/// What becomes of who runs a UE's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Panic,
    Abort,
    Hang,
    Overflow,
}

/// Commits the fault that is wanted at this input, if one is.
pub(super) fn inject(ue: Option<&UeContext>, envelope: &Envelope) {
    static WANTED: OnceLock<Vec<(Supi, Fault)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| read(&std::env::var("WHIMBREL_POISON").unwrap_or_default()));
    let Some(ue) = ue.filter(|p| p.amf.registered && !p.sessions.is_empty()) else { return };
    let Payload::InitialUeMessage { octets, .. } = &envelope.payload else { return };
    let named = whimbrel_ngap::peek(octets).and_then(|n| n.five_g_s_tmsi).map(|n| n.tmsi);
    if named.is_none() || named != ue.amf.tmsi {
        return; // another UE's, whose temporary name leads here
    }
    match wanted.iter().find(|(supi, _)| Some(*supi) == ue.amf.supi).map(|(_, fault)| fault) {
        None => {}
        Some(Fault::Panic) => panic!("a fault that was wanted"),
        Some(Fault::Abort) => std::process::abort(),
        Some(Fault::Hang) => loop {
            std::hint::spin_loop();
        },
        Some(Fault::Overflow) => drop(std::hint::black_box(deeper([0; 4096]))),
    }
}

/// Ends with the stack.
#[expect(unconditional_recursion, reason = "that is its purpose")]
fn deeper(octets: [u8; 4096]) -> [u8; 4096] {
    std::hint::black_box(deeper(std::hint::black_box(octets)))
}

/// UEs and their faults, between commas. Who mistypes one gets none.
fn read(wanted: &str) -> Vec<(Supi, Fault)> {
    let one = |s: &str| {
        let (supi, fault) = s.split_once('=')?;
        let fault = match fault {
            "panic" => Fault::Panic,
            "abort" => Fault::Abort,
            "hang" => Fault::Hang,
            "overflow" => Fault::Overflow,
            _ => return None,
        };
        Some((supi.parse().ok()?, fault))
    };
    wanted.split(',').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_read() {
        let supi = |digits: &str| digits.parse().unwrap();
        assert_eq!(
            read("imsi-999700000000091=hang,999700000000092=abort,nobody=hang,999700000000093=nothing"),
            [(supi("999700000000091"), Fault::Hang), (supi("999700000000092"), Fault::Abort)]
        );
        assert_eq!(read(""), []);
    }
}
