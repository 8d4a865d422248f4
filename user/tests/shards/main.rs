//! What holds of one pipeline holds of several that share the sessions: the tests of other files once more, with four shards, where
//! each packet arrives at another one.
#![allow(clippy::duplicate_mod, reason = "each of these files has the common one for itself")]

#[path = "../applications/main.rs"]
mod applications;
#[path = "../buffering.rs"]
mod buffering;
#[path = "../common/mod.rs"]
mod common;
#[path = "../ethernet.rs"]
mod ethernet;
#[path = "../fragments.rs"]
mod fragments;
#[path = "../framed_routes.rs"]
mod framed_routes;
#[path = "../handover.rs"]
mod handover;
#[path = "../isolation.rs"]
mod isolation;
#[path = "../many_rules.rs"]
mod many_rules;
#[path = "../n3.rs"]
mod n3;
#[path = "../packets.rs"]
mod packets;
#[path = "../predicted.rs"]
mod predicted;
#[path = "../qos.rs"]
mod qos;
#[path = "../slices.rs"]
mod slices;
#[path = "../smf_f_teids.rs"]
mod smf_f_teids;
#[path = "../strays.rs"]
mod strays;
#[path = "../unstructured.rs"]
mod unstructured;
#[path = "../usage.rs"]
mod usage;

use common::*;
use whimbrel_pfcp::ie::*;
use whimbrel_user::*;

#[test]
fn this_is_about_several_shards() {
    assert_eq!(Net::new().upf.u.only().is_none(), SHARDS > 1);
    assert_eq!(SHARDS, 4);
}

/// Sessions and addresses of one shard have the same lowest bits, which is what the kernel steers packets by.
#[test]
fn tunnel_and_addresses_of_a_session_name_its_shard() {
    let mut net = Net::with(wide());
    for n in 1..=40 {
        let s = net.idle_session(n, true, true);
        let shard = |number: u64| number % u64::from(SHARDS);
        let own = shard(s.id().index.into());
        assert_eq!(shard(index_of(&wide().teids(), s.teid).into()), own);
        assert_eq!(shard(s.ipv4.unwrap().to_bits().into()), own);
        assert_eq!(shard((s.ipv6.unwrap().to_bits() >> 64) as u64), own);
        assert_eq!(own, n % u64::from(SHARDS), "each shard in turn");
    }
}

/// As the kernel's programs find it.
fn index_of(teids: &Teids, teid: whimbrel_ids::Teid) -> u32 {
    let word = teids.rounds().iter().fold(teid.0, |word, r| {
        let word = (word ^ r.key).wrapping_mul(r.multiplier);
        word ^ word >> r.shift
    });
    (word ^ teids.last()) & teids.index_mask()
}

/// An address that the SMF has chosen, in a pool or in none, is of any shard.
#[test]
fn packets_for_addresses_of_the_smfs_choice_find_their_session() {
    let mut net = Net::with(wide());
    for (n, last) in (1..).zip([9u8, 10, 11, 12, 200, 201, 202, 203]) {
        let address = if n % 2 == 0 { [10, 45, 9, last] } else { [172, 16, 9, last] }.into();
        let mut m = establishment(n, true, false);
        for a in m.create_pdrs.iter_mut().flat_map(|p| &mut p.pdi.ue_ip_addresses) {
            a.ipv4 = Some(Choice::Given(address));
        }
        let r = net.establish(m);
        let s = net.seated(n, &r);
        net.modify(&s, activation(GNB_TEID, GNB.ip()));
        for _ in 0..4 {
            assert_eq!(net.downlink(&udp4(SERVER, address, (1, 2), 10)).0, PacketVerdict::Send(to_gnb()));
        }
        net.delete(&s);
        for _ in 0..4 {
            let (verdict, _) = net.downlink(&udp4(SERVER, address, (1, 2), 10));
            assert_eq!(verdict, PacketVerdict::Drop(DropReason::UnknownUeAddress));
        }
    }
    let counters = net.upf.u.counters();
    assert_eq!((counters.dl_packets, counters.dropped(DropReason::UnknownUeAddress)), (32, 32));
}

/// All sessions of an SMF together hold what a UPF may hold.
#[test]
fn when_the_places_of_a_shard_are_taken_sessions_go_to_the_others() {
    let mut net = Net::with(Config { sessions_max: 10, ..wide() });
    let sessions: Vec<_> = (1..=10).map(|n| net.idle_session(n, true, false)).collect();
    assert_eq!(net.establish(establishment(11, true, false)).cause, Cause::NoResourcesAvailable);
    net.delete(&sessions[3]);
    net.idle_session(12, true, false);
    assert_eq!(net.upf.u.counters().sessions, 10);
}

fn wide() -> Config {
    let mut config = config();
    config.data_networks[0].ipv4_pools[0].prefix = 16;
    config
}
