//! Bounds on buffered packets in the UPF of this program.

use whimbrel_user::{Buffering, HELD_MAX, HELD_PER_SESSION_MAX, STRAYS_MAX};

use super::section::Section;

pub(super) fn read(root: &mut Section<'_, '_>) -> Buffering {
    let d = Buffering::default();
    let doc = "Packets that the UPF of this program buffers for idle UEs and during handovers. Packets beyond a bound are dropped; \
               docs/upf.md has the counters.";
    root.section("buffering", doc, |s| {
        let bounds = Buffering {
            packets_per_session: s.value("packets_per_session", d.packets_per_session, "Packets of one session, up to 3000."),
            octets_per_session: s.value("octets_per_session", d.octets_per_session, "Octets of one session."),
            packets: s.value("packets", d.packets, "Packets of all sessions, up to 262144; each takes some 2 KiB of memory."),
            octets: s.value("octets", d.octets, "Octets of all sessions."),
            strays: s.value(
                "strays",
                d.strays,
                "Packets without a session that wait for at most 200 ms, in case their session is being set up; up to 1024. 0: they are dropped at once.",
            ),
            age: s.value(
                "age",
                d.age,
                "How long a packet is buffered, up to 3h; the SMF can set a longer time (DL Buffering Duration).",
            ),
            early_drop: s.value(
                "early_drop",
                d.early_drop,
                "Drop a random part, at most one in ten, of packets without ECN support when half of a session's buffer is used; packets with ECN \
                 support are always marked then. false: no packet is dropped below the bounds.",
            ),
        };
        within(s, "packets_per_session", bounds.packets_per_session.into(), HELD_PER_SESSION_MAX.into());
        within(s, "octets_per_session", bounds.octets_per_session.into(), u32::MAX.into());
        within(s, "packets", bounds.packets.into(), HELD_MAX as u64);
        within(s, "octets", bounds.octets.into(), u32::MAX.into());
        let what = format!("{} is out of bounds", bounds.strays);
        s.bound("strays", bounds.strays <= STRAYS_MAX, what, format!("0 to {STRAYS_MAX}"));
        let is_within = !bounds.age.is_zero() && bounds.age <= Buffering::AGE_MAX;
        s.bound("age", is_within, "it is out of bounds", "1ms to 3h");
        bounds
    })
}

fn within(s: &mut Section<'_, '_>, key: &str, value: u64, most: u64) {
    let is_within = (1..=most).contains(&value);
    s.bound(key, is_within, format!("{value} is out of bounds"), format!("1 to {most}"));
}
