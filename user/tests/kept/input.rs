//! What the fuzzer gives: a sequence of a kind, a length, and so many octets, for a UPF with a session in use and one that is idle.

use super::common::*;
use whimbrel_user::{DnIndex, Origin, PacketVerdict};

/// Lets all of it come, from gNB, data network and SMF.
pub(crate) fn run(input: &[u8]) {
    let mut net = Net::new();
    let s = net.session(1, true, true);
    net.idle_session(2, true, false);
    let mut rest = input;
    while let [kind, len, tail @ ..] = rest {
        let (octets, next) = tail.split_at((*len as usize).min(tail.len()));
        rest = next;
        let verdict = match kind % 4 {
            0 => net.packet(from_gnb(), octets).0,
            1 => net.packet(from_gnb(), &g_pdu(s.teid, 1, octets)).0,
            2 => net.packet(Origin::N6 { dn: DnIndex(0) }, octets).0,
            _ => {
                net.upf.pfcp(net.now, SMF, octets, &mut net.out);
                PacketVerdict::Taken
            }
        };
        assert_ne!(verdict, PacketVerdict::Pending);
        net.outputs();
        net.out.datagrams.clear();
        net.out.events.clear();
        assert_eq!(net.upf.c.session_count() as u64, net.upf.u.counters().sessions);
    }
}
