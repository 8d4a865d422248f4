//! Each field of a PDI: what it accepts, and what it does not.

use std::net::IpAddr;

use whimbrel_classifier::*;

/// A packet that shows everything.
fn shown(remote: &str, local: &str) -> Fields {
    Fields {
        remote: remote.parse().unwrap(),
        local: local.parse().unwrap(),
        ports: Some((443, 5_000)),
        protocol: 6,
        tos: 0xb8,
        flow_label: 0x1_2345,
        spi: Some(77),
        teid: Some(0x0100_0001),
        f_teid_address: 1,
        qfi: Some(5),
        source_interface: 0,
        interface_type: Some(11),
        network_instance: 2,
        traffic_endpoint: Some(3),
        application: Some(9),
    }
}

fn v4() -> Fields {
    shown("192.0.2.7", "10.45.0.2")
}

fn matches(pdi: &Pdi, fields: &Fields) -> bool {
    let rule = Rule::new(Rank::new(1, 1), pdi).expect("a rule that can match");
    let key = PacketKey::new(fields);
    let mut ours = Classifier::new(1);
    ours.insert(rule);
    assert_eq!(ours.lookup(&key).is_some(), rule.matches(&key));
    rule.matches(&key)
}

fn prefix(address: &str, length: u8) -> Option<AddressPrefix> {
    Some(AddressPrefix { address: address.parse().unwrap(), length })
}

#[test] // TS 29.244 §7.5.2.2-2, §8.2.5
fn each_field_accepts_its_value_and_no_other() {
    let base = Pdi::default();
    let other = v4();
    let cases: [(&str, Pdi, Fields); 16] = [
        (
            "remote",
            Pdi { remote: prefix("192.0.2.0", 29), ..base },
            Fields { remote: [192, 0, 2, 8].into(), ..other },
        ),
        (
            "local",
            Pdi { local: prefix("10.45.0.2", 32), ..base },
            Fields { local: [10, 45, 0, 3].into(), ..other },
        ),
        ("ue", Pdi { ue: prefix("10.45.0.2", 32), ..base }, Fields { local: [11, 45, 0, 2].into(), ..other }),
        (
            "remote port",
            Pdi { remote_ports: Some((443, 443)), ..base },
            Fields { ports: Some((444, 5_000)), ..other },
        ),
        (
            "local ports",
            Pdi { local_ports: Some((4_000, 5_000)), ..base },
            Fields { ports: Some((443, 5_001)), ..other },
        ),
        ("protocol", Pdi { protocol: Some(6), ..base }, Fields { protocol: 17, ..other }),
        ("tos", Pdi { tos: Some((0xb9, 0xfc)), ..base }, Fields { tos: 0xbc, ..other }),
        ("flow label", Pdi { flow_label: Some(0x1_2345), ..base }, Fields { flow_label: 0, ..other }),
        ("spi", Pdi { spi: Some(77), ..base }, Fields { spi: Some(78), ..other }),
        ("teid", Pdi { teid: Some(0x0100_0001), ..base }, Fields { teid: Some(1), ..other }),
        ("F-TEID", Pdi { f_teid_address: Some(1), ..base }, Fields { f_teid_address: 2, ..other }),
        ("qfi", Pdi { qfi: Some(5), ..base }, Fields { qfi: Some(6), ..other }),
        ("source", Pdi { source_interface: Some(0), ..base }, Fields { source_interface: 1, ..other }),
        ("type", Pdi { interface_type: Some(11), ..base }, Fields { interface_type: Some(12), ..other }),
        ("network", Pdi { network_instance: Some(2), ..base }, Fields { network_instance: 3, ..other }),
        ("application", Pdi { application: Some(9), ..base }, Fields { application: Some(8), ..other }),
    ];
    for (name, pdi, other) in cases {
        assert!(matches(&pdi, &v4()), "{name}");
        assert!(!matches(&pdi, &other), "{name}");
    }
    let endpoint = Pdi { traffic_endpoint: Some(3), ..base };
    assert!(matches(&endpoint, &v4()) && !matches(&endpoint, &Fields { traffic_endpoint: Some(2), ..v4() }));
}

#[test]
fn what_a_packet_does_not_show_meets_no_condition_on_it() {
    let base = Pdi::default();
    let bare = Fields {
        ports: None,
        spi: None,
        teid: None,
        qfi: None,
        interface_type: None,
        traffic_endpoint: None,
        application: None,
        ..v4()
    };
    assert!(matches(&base, &bare));
    for pdi in [
        Pdi { remote_ports: Some((0, u16::MAX)), ..base },
        Pdi { local_ports: Some((0, 0)), ..base },
        Pdi { spi: Some(0), ..base },
        Pdi { teid: Some(0), ..base },
        Pdi { qfi: Some(0), ..base },
        Pdi { interface_type: Some(0), ..base },
        Pdi { traffic_endpoint: Some(0), ..base },
        Pdi { application: Some(0), ..base },
    ] {
        assert!(!matches(&pdi, &bare), "{pdi:?}");
    }
}

#[test]
fn prefixes_of_every_length() {
    let (v4_host, v6_host): (IpAddr, IpAddr) =
        ([192, 0, 2, 7].into(), "2001:db8:1:2:3:4:5:6".parse().unwrap());
    for (address, bits) in [(v4_host, 32), (v6_host, 128)] {
        let flipped = |bit: u8| match address {
            IpAddr::V4(a) => IpAddr::V4((a.to_bits() ^ 1 << (31 - bit)).into()),
            IpAddr::V6(a) => IpAddr::V6((a.to_bits() ^ 1 << (127 - bit)).into()),
        };
        for length in 0..=bits {
            let pdi = Pdi { remote: Some(AddressPrefix { address, length }), ..Pdi::default() };
            let at = |remote| Fields { remote, local: address, ..v4() };
            assert!(matches(&pdi, &at(address)));
            assert!(length == bits || matches(&pdi, &at(flipped(length))), "/{length}");
            assert!(length == 0 || !matches(&pdi, &at(flipped(length - 1))), "/{length}");
        }
    }
}

#[test]
fn an_address_of_one_version_is_none_of_the_other() {
    // The first word of this IPv6 address is the IPv4 address.
    let alike = shown("c000:207::", "2001:db8::1");
    assert!(!matches(&Pdi { remote: prefix("192.0.2.7", 32), ..Pdi::default() }, &alike));
    assert!(!matches(&Pdi { remote: prefix("c000:207::", 32), ..Pdi::default() }, &v4()));
    assert!(!matches(&Pdi { remote: prefix("0.0.0.0", 0), ..Pdi::default() }, &alike));
}

#[test]
fn conditions_that_exclude_each_other_make_no_rule() {
    let base = Pdi { local: prefix("10.45.0.0", 16), ..Pdi::default() };
    let rule = |pdi: &Pdi| Rule::new(Rank::new(1, 1), pdi);
    assert!(rule(&Pdi { ue: prefix("10.45.0.2", 32), ..base }).is_some());
    assert!(rule(&Pdi { ue: prefix("10.46.0.2", 32), ..base }).is_none());
    assert!(rule(&Pdi { remote: prefix("2001:db8::", 32), ..base }).is_none());
    assert!(rule(&Pdi { remote_ports: Some((2, 1)), ..base }).is_none());
}
