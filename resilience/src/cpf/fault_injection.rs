//! Fault injection for tests: with `WHIMBREL_POISON=imsi-999700000000091=hang`, the CPF that runs the message with which that UE becomes
//! CM-CONNECTED, while it has a session, hangs. Only in debug builds and with the feature `faults`: no release has it.

use std::sync::OnceLock;

use whimbrel_control::{Envelope, Payload, UeContext};
use whimbrel_ids::Supi;

/// What the process does at the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InjectedFault {
    Panic,
    Abort,
    Hang,
    Overflow,
}

/// Injects the fault that is configured for this input, if any.
pub(super) fn inject(ue: Option<&UeContext>, envelope: &Envelope) {
    static FAULTS: OnceLock<Vec<(Supi, InjectedFault)>> = OnceLock::new();
    let faults = FAULTS.get_or_init(|| read(&std::env::var("WHIMBREL_POISON").unwrap_or_default()));
    let Some(ue) = ue.filter(|p| p.amf.registered && !p.sessions.is_empty()) else { return };
    let Payload::InitialUeMessage { octets, .. } = &envelope.payload else { return };
    let named = whimbrel_ngap::peek(octets).and_then(|n| n.five_g_s_tmsi).map(|n| n.tmsi);
    if named.is_none() || named != ue.amf.tmsi {
        return; // another UE's, whose 5G-TMSI leads here
    }
    match faults.iter().find(|(supi, _)| Some(*supi) == ue.amf.supi).map(|(_, fault)| fault) {
        None => {}
        Some(InjectedFault::Panic) => panic!("injected fault"),
        Some(InjectedFault::Abort) => std::process::abort(),
        Some(InjectedFault::Hang) => loop {
            std::hint::spin_loop();
        },
        Some(InjectedFault::Overflow) => drop(std::hint::black_box(deeper([0; 4096]))),
    }
}

/// Ends with the stack.
#[expect(unconditional_recursion, reason = "that is its purpose")]
fn deeper(octets: [u8; 4096]) -> [u8; 4096] {
    std::hint::black_box(deeper(std::hint::black_box(octets)))
}

/// UEs and their faults, separated by commas. Entries with an error are skipped.
fn read(text: &str) -> Vec<(Supi, InjectedFault)> {
    let one = |s: &str| {
        let (supi, fault) = s.split_once('=')?;
        let fault = match fault {
            "panic" => InjectedFault::Panic,
            "abort" => InjectedFault::Abort,
            "hang" => InjectedFault::Hang,
            "overflow" => InjectedFault::Overflow,
            _ => return None,
        };
        Some((supi.parse().ok()?, fault))
    };
    text.split(',').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_mistyped_entries_skipped() {
        let supi = |digits: &str| digits.parse().unwrap();
        assert_eq!(
            read("imsi-999700000000091=hang,999700000000092=abort,unknown=hang,999700000000093=nothing"),
            [(supi("999700000000091"), InjectedFault::Hang), (supi("999700000000092"), InjectedFault::Abort)]
        );
        assert_eq!(read(""), []);
    }
}
