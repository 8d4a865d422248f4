//! What waits for UEs in the UPF of this program.

use whimbrel_user::{Buffering, HELD_MAX, HELD_PER_SESSION_MAX, STRAYS_MAX};

use super::section::Section;

pub(super) fn read(root: &mut Section<'_, '_>) -> Buffering {
    let d = Buffering::default();
    let doc = "Packets that wait in the UPF of this program for idle UEs and through handovers. What exceeds a bound is dropped and counted \
               by it (`whimbrel_upf_dropped_total`).";
    root.section("buffering", doc, |s| {
        let bounds = Buffering {
            packets_per_session: s.value("packets_per_session", d.packets_per_session, "Of one session, up to 3000."),
            octets_per_session: s.value("octets_per_session", d.octets_per_session, "Of one session."),
            packets: s.value("packets", d.packets, "Of all sessions, up to 262144; each takes some 2 KiB of memory."),
            octets: s.value("octets", d.octets, "Of all sessions."),
            strays: s.value(
                "strays",
                d.strays,
                "Packets for no session that wait, 200 ms at most, while it is asked whether one is on its way; up to 1024. 0: dropped at once.",
            ),
            age: s.value(
                "age",
                d.age,
                "How long a packet waits, up to 3h; longer where the SMF says so (DL Buffering Duration).",
            ),
            early_drop: s.value(
                "early_drop",
                d.early_drop,
                "Whether packets whose ends know no ECN are dropped by chance when half of a session's buffer is used, one in ten at most; those that \
                 know it are marked in any case. Without, nothing is lost up to the bounds.",
            ),
        };
        within(s, "packets_per_session", bounds.packets_per_session.into(), HELD_PER_SESSION_MAX.into());
        within(s, "octets_per_session", bounds.octets_per_session.into(), u32::MAX.into());
        within(s, "packets", bounds.packets.into(), HELD_MAX as u64);
        within(s, "octets", bounds.octets.into(), u32::MAX.into());
        if bounds.strays > STRAYS_MAX {
            s.refuse("strays", format!("{} is out of bounds", bounds.strays), format!("write 0 to {STRAYS_MAX}"));
        }
        if bounds.age.is_zero() || bounds.age > Buffering::AGE_MAX {
            s.refuse("age", "it is out of bounds".to_owned(), "write 1ms to 3h");
        }
        bounds
    })
}

fn within(s: &mut Section<'_, '_>, key: &str, value: u64, most: u64) {
    if !(1..=most).contains(&value) {
        s.refuse(key, format!("{value} is out of bounds"), format!("write 1 to {most}"));
    }
}
