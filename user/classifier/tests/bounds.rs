//! Bounds on the cost of a look-up, for any rules.

use super::common;

use std::net::{IpAddr, Ipv4Addr};

use common::rule_sets::{Mix, Random, packet, pdis, rules};
use whimbrel_classifier::*;

fn host(n: u32) -> Option<AddressPrefix> {
    Some(AddressPrefix { address: IpAddr::V4(Ipv4Addr::from_bits(n)), length: 32 })
}

fn filled(rules: &[Rule]) -> Classifier {
    let mut c = Classifier::new(3);
    rules.iter().for_each(|r| c.insert(*r));
    c
}

#[test] // Csikor et al. 2019: a tuple for each rule makes tuple space search as long as the list
fn a_tuple_per_rule_creates_no_more_tables_than_pay() {
    let rules = rules(&pdis(Mix::TupleEach, 10_000, 1));
    let (tables, scanned) = filled(&rules).shape();
    assert!(tables <= 16 && scanned < 1_000, "{tables} tables, {scanned} scanned");
}

#[test]
fn rules_that_no_hash_separates_are_only_scanned() {
    let rules = rules(&pdis(Mix::Ranges, 3_000, 1));
    assert_eq!(filled(&rules).shape(), (0, 3_000));
}

#[test]
fn one_address_with_thousands_of_port_ranges_overflows_no_bucket() {
    let pdi = |n: u16| Pdi { remote: host(9), remote_ports: Some((n, 60_000)), ..Pdi::default() };
    let pdis: Vec<Pdi> = (0..5_000).map(pdi).collect();
    let c = filled(&rules(&pdis));
    assert_eq!(c.shape(), (0, 5_000));
    let fields = packet(&pdis[0], &mut Random::new(1));
    let at = |port| c.lookup(&PacketKey::new(&Fields { ports: Some((port, 1)), ..fields }));
    assert_eq!(at(4_999), Some(Rank::new(0, 0)));
    assert_eq!(at(60_001), None);
}

#[test]
fn a_table_that_no_longer_pays_is_removed() {
    let rules = rules(&pdis(Mix::OneTuple, 1_000, 1));
    let mut c = filled(&rules);
    assert_eq!(c.shape().0, 1);
    for r in &rules[..950] {
        assert!(c.remove(r) && !c.remove(r));
    }
    assert_eq!(c.shape(), (0, 50));
    for r in &rules[950..] {
        assert!(c.remove(r));
    }
    assert!(c.is_empty());
}

#[test]
fn rules_that_differ_only_in_a_rarely_used_field_are_separated() {
    // The words that a block compares first are the same in all of them.
    let of = |n: u32| Pdi {
        remote: host(1),
        local: host(2),
        teid: Some(3),
        spi: n.is_multiple_of(2).then_some(4),
        application: Some(n),
        flow_label: n.is_multiple_of(3).then_some(n),
        ..Pdi::default()
    };
    let pdis: Vec<Pdi> = (0..100).map(of).collect();
    let rules = rules(&pdis);
    let r = &mut Random::new(2);
    for instructions in Instructions::ALL {
        let mut c = Classifier::with(instructions, 1);
        rules.iter().rev().for_each(|r| c.insert(*r));
        for (pdi, rule) in pdis.iter().zip(&rules) {
            assert_eq!(c.lookup(&PacketKey::new(&packet(pdi, r))), Some(rule.rank()), "{instructions:?}");
        }
        let none = Pdi { application: Some(100), ..pdis[0] };
        assert_eq!(c.lookup(&PacketKey::new(&packet(&none, r))), None);
        for (pdi, rule) in pdis.iter().zip(&rules).step_by(2) {
            assert!(c.remove(rule));
            assert_eq!(c.lookup(&PacketKey::new(&packet(pdi, r))), None);
        }
        assert_eq!(c.lookup(&PacketKey::new(&packet(&pdis[99], r))), Some(rules[99].rank()));
    }
}
