//! Which pool a session's addresses come from (TS 29.244 §5.21, TS 23.501 §5.8.2.2.1).

use super::common;

use std::net::{Ipv4Addr, Ipv6Addr};

use common::*;
use whimbrel_ids::SNssai;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::SessionEstablishmentRequest;
use whimbrel_user::*;

fn net() -> Net {
    let ipv4 = |third, prefix| vec![Ipv4Net { address: Ipv4Addr::new(10, 99, third, 0), prefix }];
    let mut config = config();
    config.data_networks[0].reserved = vec![
        ReservedPools { slices: vec![SNssai::sst(2)], ipv4_pools: ipv4(2, 29), ..ReservedPools::default() },
        ReservedPools {
            name: Some("north".into()),
            slices: vec![SNssai::sst(3)],
            ipv4_pools: ipv4(3, 24),
            ipv6_pools: vec![Ipv6Net { address: "2001:db8:99::".parse().unwrap(), prefix: 48 }],
        },
    ];
    Net::with(config)
}

fn of(cp_seid: u64, slice: Option<SNssai>, pool: Option<&str>) -> SessionEstablishmentRequest {
    let mut m = establishment(cp_seid, true, true);
    m.s_nssai = slice;
    let pool = pool.map(|name| UeIpAddressPoolIdentity(name.into()));
    m.create_pdrs[1].ue_ip_address_pool_identities.extend(pool);
    m
}

fn addresses(net: &mut Net, m: SessionEstablishmentRequest) -> (Ipv4Addr, Ipv6Addr) {
    let cp_seid = m.cp_f_seid.seid.0;
    let r = net.establish(m);
    let s = net.seated(cp_seid, &r);
    (s.ipv4.unwrap(), s.ipv6.unwrap())
}

#[test] // TS 23.501 §5.8.2.2.1: pools by slice; TS 29.244 §5.21.3: by the name that the SMF gives, as by area
fn addresses_come_from_the_pool_of_the_name_or_the_slice() {
    let mut net = net();
    let third = |(a, _): (Ipv4Addr, Ipv6Addr)| (a.octets()[1], a.octets()[2]);
    assert_eq!(third(addresses(&mut net, of(1, None, None))), (45, 0));
    assert_eq!(third(addresses(&mut net, of(2, Some(SNssai::sst(1)), None))), (45, 0));
    let two = addresses(&mut net, of(3, Some(SNssai::sst(2)), None));
    assert_eq!(third(two), (99, 2));
    assert_eq!(two.1.segments()[2], 0x45, "no IPv6 pool of its own: the network's");
    let three = addresses(&mut net, of(4, Some(SNssai::sst(3)), None));
    assert_eq!((third(three), three.1.segments()[2]), ((99, 3), 0x99));
    assert_eq!(
        third(addresses(&mut net, of(5, Some(SNssai::sst(2)), Some("north")))),
        (99, 3),
        "the name first"
    );
    assert_eq!(
        third(addresses(&mut net, of(6, Some(SNssai::sst(2)), Some("south")))),
        (99, 2),
        "no such name"
    );
}

#[test] // TS 29.244 table 8.2.1-1: a slice whose pool is empty does not take from others
fn reserved_pool_is_exhausted_and_given_back_on_its_own() {
    let mut net = net();
    let before = net.upf.c.free_addresses(DnIndex(0));
    let slice = Some(SNssai::sst(2));
    let all: Vec<_> = (1..=5)
        .map(|n| {
            let r = net.establish(of(n, slice, None));
            net.seated(n, &r)
        })
        .collect();
    let r = net.establish(of(6, slice, None));
    assert_eq!(r.cause, Cause::AllDynamicAddressesAreOccupied);
    addresses(&mut net, of(7, Some(SNssai::sst(1)), None));
    net.delete(&all[0]);
    assert_eq!(addresses(&mut net, of(8, slice, None)).0, all[0].ipv4.unwrap());
    // Packets find their way as to any address.
    let (verdict, _) = net.downlink(&udp4(SERVER, all[1].ipv4.unwrap(), (1, 2), 0));
    assert_eq!(verdict, PacketVerdict::Taken);
    for s in &all[1..] {
        net.delete(s);
    }
    let free = net.upf.c.free_addresses(DnIndex(0));
    assert_eq!(free.map(|(v4, _)| v4 + 2), before.map(|(v4, _)| v4), "two sessions stand");
}

#[test] // the bounds hold for reserved pools, too
fn reserved_pools_are_judged_with_the_others() {
    let mut config = config();
    let bad = Ipv4Net { address: Ipv4Addr::new(10, 99, 0, 0), prefix: 31 };
    config.data_networks[0].reserved =
        vec![ReservedPools { ipv4_pools: vec![bad], ..ReservedPools::default() }];
    assert!(matches!(config.check(), Err(ConfigError::Prefix { prefix: 31, .. })));
}
