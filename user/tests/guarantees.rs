//! Flows of guaranteed rate (TS 23.501 §5.7.2.5): what may be promised, and what of it holds where others have too much.

use super::common;

use std::time::Duration;

use common::*;
use whimbrel_ids::Qfi;
use whimbrel_pfcp::ie::*;
use whimbrel_pfcp::msg::*;
use whimbrel_pfcp::rule::*;
use whimbrel_user::*;

/// A session with a flow of this rate, both ways, for UDP from port 5004 of a server.
fn with_voice(n: u64, kbps: u64) -> SessionEstablishmentRequest {
    let mut m = establishment(n, true, false);
    let mut pdr = m.create_pdrs[1].clone();
    (pdr.pdr_id, pdr.precedence) = (PdrId(4), Precedence(10));
    pdr.pdi.sdf_filters = vec![SdfFilter::flow("permit out 17 from any 5004 to assigned")];
    pdr.qer_ids = vec![QerId(2)];
    m.create_pdrs.push(pdr);
    let rates = QerBitRate { ul_kbps: kbps, dl_kbps: kbps };
    let qfi = Qfi::new(2);
    m.create_qers.push(CreateQer { qfi, gbr: Some(rates), mbr: Some(rates), ..CreateQer::new(QerId(2)) });
    m
}

/// 100 kbit/s may be promised.
fn net() -> Net {
    let guaranteed = Some(GuaranteedRates { ul_kbps: 1_000_000, dl_kbps: 100 });
    Net::with(Config { guaranteed, ..config() })
}

fn of_rate(dl_kbps: u64) -> SessionModificationRequest {
    let gbr = Some(QerBitRate { ul_kbps: 64, dl_kbps });
    let update_qers = vec![UpdateQer { gbr, ..UpdateQer::new(QerId(2)) }];
    SessionModificationRequest { update_qers, ..Default::default() }
}

#[test] // TS 23.501 §5.7.2.5 promised: no more than can be kept, whatever sessions come, change and go
fn no_more_is_promised_than_can_be_kept() {
    let mut net = net();
    let seated = |net: &mut Net, n: u64| {
        let r = net.establish(with_voice(n, 64));
        (r.cause == Cause::RequestAccepted).then(|| net.seated(n, &r))
    };
    let first = seated(&mut net, 1).expect("64 of 100");
    let refused = net.establish(with_voice(2, 64));
    assert_eq!(refused.cause, Cause::NoResourcesAvailable);
    assert_eq!(refused.failed_rule_id, Some(FailedRuleId::Qer(QerId(2))));
    let r = net.establish(establishment(3, true, false));
    assert_eq!(r.cause, Cause::RequestAccepted, "nothing is promised to it");
    assert_eq!(net.modify(&first, of_rate(101)).cause, Cause::NoResourcesAvailable);
    assert_eq!(net.modify(&first, of_rate(36)).cause, Cause::RequestAccepted);
    let second = seated(&mut net, 4).expect("36 and 64");
    assert_eq!(net.modify(&first, of_rate(37)).cause, Cause::NoResourcesAvailable);
    assert_eq!(seated(&mut net, 4).map(|s| s.up_seid), Some(second.up_seid), "the same again is no more");
    net.delete(&second);
    assert_eq!(net.modify(&first, of_rate(100)).cause, Cause::RequestAccepted);
    let remove_qers = vec![RemoveQer { qer_id: QerId(2) }];
    net.modify(&first, SessionModificationRequest { remove_qers, ..Default::default() });
    assert!(seated(&mut net, 5).is_some());
}

/// How many of so many packets that come in turn to a UE that is not there leave when it comes, in order: of the flow, and of the others.
fn through(bounds: Buffering, packets: u16) -> [u16; 2] {
    let mut net = Net::with(Config { buffering: bounds, ..config() });
    let r = net.establish(with_voice(1, 10_000));
    let s = net.seated(1, &r);
    for n in 0..packets {
        net.now = net.now + Duration::from_millis(1);
        // The destination port counts; every fourth is the flow's.
        let port = if n % 4 == 3 { 5004 } else { 80 };
        net.downlink(&udp4(SERVER, s.ipv4.expect("an address"), (port, n), 100));
    }
    assert_eq!(u32::from(packets), net.upf.u.counters().held as u32 + dropped(&net));
    net.modify(&s, activation(GNB_TEID, GNB.ip()));
    let mut came = [0; 2];
    let mut last = None;
    for (_, octets) in net.outputs() {
        let (_, qfi, inner) = at_gnb(&octets);
        let n = Some(u16::from_be_bytes([inner[22], inner[23]]));
        assert!(last < n, "in order");
        last = n;
        came[usize::from(qfi != Some(2))] += 1;
    }
    assert_eq!(net.upf.u.counters().held, 0);
    assert_eq!(net.upf.u.counters().held_octets, 0);
    came
}

fn dropped(net: &Net) -> u32 {
    net.upf.u.counters().dropped.iter().sum::<u64>() as u32
}

#[test] // TS 23.501 §5.7.2.5 buffers: of what waits for a UE, flows without a promise give way first, and the rest stays in order
fn a_guaranteed_flow_loses_nothing_while_others_overflow_the_buffer() {
    let plenty = Buffering { packets_per_session: 64, ..Buffering::default() };
    assert_eq!(through(plenty, 64), [16, 48], "there is room for all");
    let packets = Buffering { packets_per_session: 40, ..Buffering::default() };
    assert_eq!(through(packets, 160), [40, 0], "its own 40 have the whole buffer");
    assert_eq!(through(packets, 100), [25, 15]);
    assert_eq!(through(packets, 200), [40, 0], "beyond that it loses, too");
    let octets = Buffering { octets_per_session: 128 * 40, ..Buffering::default() };
    assert_eq!(through(octets, 100), [25, 15], "each is of 128 octets");
    let of_all = Buffering { packets: 40, ..Buffering::default() };
    assert_eq!(through(of_all, 100), [25, 15]);
    let octets_of_all = Buffering { octets: 128 * 40, ..Buffering::default() };
    assert_eq!(through(octets_of_all, 100), [25, 15]);
}
