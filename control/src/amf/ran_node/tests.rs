//! gNBs against the machine of TS 38.413 §8.7 to §8.10, message by message.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_ids::{GlobalGnbId, Instant, NrCellId, PlmnId, SNssai, Tac, Tai};
use whimbrel_ngap::Message;
use whimbrel_ngap::ie::*;
use whimbrel_ngap::msg::*;

use super::*;
use crate::config::Config;
use crate::event::{SetupRefusal, WarningOutcome};
use crate::ue_harness;

fn at(s: u64) -> Instant {
    Instant(1_000_000_000 + s * 1_000_000)
}

fn on(n: u32) -> AssociationId {
    AssociationId(n)
}

/// The address that gNBs connect from.
fn home() -> Vec<IpAddr> {
    vec![[192, 0, 2, 1].into()]
}

/// An address other than that of [`home`].
fn elsewhere() -> Vec<IpAddr> {
    vec![[192, 0, 2, 66].into()]
}

fn gnb(n: u32) -> GlobalGnbId {
    GlobalGnbId::new(PlmnId::TEST, n, 28).expect("28 bits")
}

fn tai(tac: u32) -> Tai {
    Tai { plmn: PlmnId::TEST, tac: Tac::new(tac).expect("24 bits") }
}

fn area(tac: u32, slices: Vec<SNssai>) -> SupportedTaItem {
    SupportedTaItem::new(tai(tac).tac, vec![BroadcastPlmnItem::new(PlmnId::TEST, slices)])
}

fn request(n: u32) -> NgSetupRequest {
    NgSetupRequest::new(
        GlobalRanNodeId::GlobalGnbId(gnb(n)),
        vec![area(1, vec![SNssai::sst(1)])],
        PagingDrx::V64,
    )
}

fn config() -> Config {
    ue_harness::config()
}

/// So many gNBs, set up on associations of their own numbers.
fn nodes(n: u32) -> RanNodes {
    let mut nodes = RanNodes::new(Arc::new(config()));
    for i in 1..=n {
        nodes.up(at(0), on(i), home());
        let out = nodes.handle(at(0), on(i), request(i).into());
        assert!(matches!(out.messages.as_slice(), [(_, Message::NgSetupResponse(_))]), "{out:?}");
    }
    nodes
}

/// Octets as a gNB sends them, and what is answered.
fn octets(nodes: &mut RanNodes, n: u32, octets: &[u8]) -> RanOutput {
    match Message::decode(octets) {
        Ok(m) => nodes.handle(at(1), on(n), m),
        Err(refusal) => nodes.unreadable(at(1), on(n), &refusal),
    }
}

fn only(out: &RanOutput) -> &Message {
    let [(_, m)] = out.messages.as_slice() else { panic!("one answer: {out:?}") };
    m
}

#[test] // TS 38.413 §8.7.1.4
fn setup_with_octets_missing_from_a_plmn_or_a_tac_is_answered_and_leaves_nothing() {
    let whole = Message::from(request(1)).to_vec();
    let mut refused = 0;
    for cut in 3..whole.len() {
        let mut nodes = RanNodes::new(Arc::new(config()));
        nodes.up(at(0), on(1), home());
        let mut short = whole.clone();
        short.remove(cut);
        let out = octets(&mut nodes, 1, &short);
        assert!(out.messages.len() <= 1, "{out:?}");
        refused += u32::from(!nodes.is_set_up(on(1)));
    }
    assert!(refused > 10, "{refused}");
}

#[test] // TS 38.413 §8.7.1.2: NG SETUP RESPONSE has the AMF's name, served GUAMIs, slices and relative capacity
fn ng_setup_response_names_the_amf() {
    let mut nodes = RanNodes::new(Arc::new(config()));
    nodes.up(at(0), on(1), home());
    let out = nodes.handle(at(0), on(1), request(1).into());
    let Message::NgSetupResponse(m) = only(&out) else { panic!("{out:?}") };
    let config = config();
    assert_eq!((&m.amf_name, m.relative_amf_capacity), (&config.amf.name, config.amf.relative_capacity));
    assert_eq!(m.served_guami_list.iter().map(|i| i.guami).collect::<Vec<_>>(), [config.amf.guami()]);
    let [plmn] = m.plmn_support_list.as_slice() else { panic!("{m:?}") };
    assert_eq!((plmn.plmn_identity, &plmn.slice_support_list), (config.amf.plmn, &config.amf.slices));
    assert!(nodes.is_set_up(on(1)));
}

#[test] // TS 38.413 §10.3.5
fn setup_without_any_ie_is_answered_with_its_failure_and_the_missing_ies() {
    let mut nodes = RanNodes::new(Arc::new(config()));
    nodes.up(at(0), on(1), home());
    let out = octets(&mut nodes, 1, &[0x00, 21, 0x00, 3, 0x00, 0x00, 0x00]);
    let Message::NgSetupFailure(m) = only(&out) else { panic!("{out:?}") };
    let missing: Vec<u16> =
        m.criticality_diagnostics.iter().flat_map(|d| &d.ies).map(|ie| ie.ie_id).collect();
    assert!(missing.contains(&27) && missing.contains(&102), "{missing:?}");
    assert!(matches!(m.cause, Cause::Protocol(CauseProtocol::AbstractSyntaxErrorReject)));
}

#[test] // TS 38.413 §8.7.1.4
fn setup_with_many_areas_stores_only_served_ones() {
    let mut many = request(1);
    many.supported_ta_list = (1..=256).map(|t| area(t, vec![SNssai::sst(1)])).collect();
    let mut nodes = RanNodes::new(Arc::new(config()));
    nodes.up(at(0), on(1), home());
    let out = octets(&mut nodes, 1, &Message::from(many).to_vec());
    assert!(matches!(only(&out), Message::NgSetupResponse(_)));
    assert_eq!(nodes.get(on(1)).expect("up").tacs, config().amf.tacs);
}

#[test] // TS 38.413 §9.3.1.5
fn setup_of_extreme_identities() {
    let mut nodes = RanNodes::new(Arc::new(config()));
    for (i, (id, bits)) in [(0, 22), (u32::MAX, 32), ((1 << 22) - 1, 22), (0, 32)].into_iter().enumerate() {
        let association = on(i as u32);
        nodes.up(at(0), association, home());
        let mut m = request(1);
        let id = GlobalGnbId::new(PlmnId::TEST, id, bits).expect("it fits");
        m.global_ran_node_id = GlobalRanNodeId::GlobalGnbId(id);
        m.ran_node_name = Some("n".repeat(150));
        let out = nodes.handle(at(0), association, m.into());
        assert!(matches!(only(&out), Message::NgSetupResponse(_)), "{id:?}: {out:?}");
        assert!(out.superseded.is_empty(), "zero of 22 bits is not zero of 32");
    }
}

#[test] // TS 38.413 §8.7.1.1
fn ng_setup_on_a_new_association_takes_the_identity_over_and_is_reported() {
    let mut nodes = nodes(2);
    nodes.up(at(1), on(9), home());
    let out = nodes.handle(at(1), on(9), request(1).into());
    assert_eq!(out.superseded, [on(1)]);
    assert!(out.events.contains(&RanEvent::SameIdentity { association: on(9), former: on(1), gnb: gnb(1) }));
    nodes.supersede(at(1), on(1));
    assert!(!nodes.is_set_up(on(1)) && nodes.is_set_up(on(2)) && nodes.is_set_up(on(9)));
    // The former is refused what only a gNB may do, and cannot harm the one that is up.
    let out = nodes.handle(
        at(1),
        on(1),
        NgReset::new(CauseMisc::Unspecified.into(), ResetType::NgInterface(ResetAll::ResetAll)).into(),
    );
    assert!(out.reset.is_none());
}

/// gNB 1 is set up on association 1, and another on association 9 takes its identity over at second 1.
fn taken_over() -> RanNodes {
    let mut nodes = nodes(2);
    nodes.up(at(1), on(9), home());
    let out = nodes.handle(at(1), on(9), request(1).into());
    out.superseded.iter().for_each(|former| drop(nodes.supersede(at(1), *former)));
    assert!(nodes.is_set_up(on(9)) && !nodes.is_set_up(on(1)));
    nodes
}

/// NG SETUP under the identity of gNB 1 on a new association.
fn sets_up(nodes: &mut RanNodes, s: u64, association: u32) -> RanOutput {
    nodes.up(at(s), on(association), home());
    let out = nodes.handle(at(s), on(association), request(1).into());
    out.superseded.iter().for_each(|former| drop(nodes.supersede(at(s), *former)));
    out
}

fn is_refused_for(out: &RanOutput, holder: u32) -> bool {
    let Message::NgSetupFailure(m) = only(out) else { return false };
    let why = SetupRefusal::IdentityInUse { holder: on(holder) };
    m.time_to_wait.is_some()
        && m.cause == CauseProtocol::MessageNotCompatibleWithReceiverState.into()
        && out.events.iter().any(|e| matches!(e, RanEvent::SetupRefused { why: w, .. } if *w == why))
        && out.superseded.is_empty()
}

#[test] // TS 38.413 §8.7.1.1: a gNB that restarts again and again, on one association after the other, is served each time
fn a_gnb_that_restarted_is_served_at_once() {
    let mut nodes = nodes(2);
    for (s, association) in [(1, 9), (2, 10), (3, 11), (60, 12)] {
        assert!(matches!(only(&sets_up(&mut nodes, s, association)), Message::NgSetupResponse(_)));
        assert_eq!(nodes.find(gnb(1)), Some(on(association)));
        if s == 3 {
            for dead in [1, 9, 10] {
                nodes.down(on(dead)); // SCTP found out
            }
        }
    }
}

#[test] // TS 38.413 §8.7.1.4 identity: two gNBs under one identity displace each other once; the second one gets a time to wait
fn a_gnb_is_refused_while_another_one_has_its_identity_and_both_are_alive() {
    // The first one speaks after it was displaced: by NG SETUP, by another message, or by unreadable octets.
    let speaks: [fn(&mut RanNodes) -> RanOutput; 2] =
        [|nodes| nodes.handle(at(2), on(1), ErrorIndication::new().into()), |nodes| octets(nodes, 1, &[0])];
    let contested = RanEvent::IdentityContested { gnb: gnb(1), holder: on(9), other: on(1) };
    for speak in speaks {
        let mut nodes = taken_over();
        assert!(speak(&mut nodes).events.contains(&contested));
        assert!(!speak(&mut nodes).events.contains(&contested), "it is reported once");
        let out = nodes.handle(at(3), on(1), request(1).into());
        assert!(is_refused_for(&out, 9), "{out:?}");
        assert_eq!(nodes.find(gnb(1)), Some(on(9)));
    }
    let mut nodes = taken_over();
    let out = nodes.handle(at(2), on(1), request(1).into());
    assert!(out.events.contains(&contested));
    let [(_, Message::NgSetupFailure(_))] = out.messages.as_slice() else { panic!("{out:?}") };
}

#[test] // TS 38.413 §8.7.1.1: one that says nothing, and whose association still stands when NG SETUP is due, is alive too
fn an_association_that_survives_a_takeover_shows_a_second_gnb() {
    let mut nodes = taken_over();
    let out = nodes.tick(at(31));
    let contested = RanEvent::IdentityContested { gnb: gnb(1), holder: on(9), other: on(1) };
    assert_eq!(out.events, [contested, RanEvent::NeverSetUp { association: on(1) }]);
    assert_eq!(out.abort, [on(1)]);
    nodes.down(on(1));
    let out = sets_up(&mut nodes, 32, 20); // it connects again
    assert!(is_refused_for(&out, 9), "{out:?}");
    // As often as it comes, for longer than an identity stays contested without a second gNB.
    for minute in 1..30 {
        assert!(is_refused_for(&sets_up(&mut nodes, 32 + minute * 60, 20 + minute as u32), 9));
    }
}

#[test] // one whose association dies makes room at once, and the rule ends some time after the last sign of a second gNB
fn a_contested_identity_is_free_when_its_association_ends_and_forgotten_in_time() {
    let mut nodes = taken_over();
    nodes.handle(at(2), on(1), ErrorIndication::new().into());
    nodes.down(on(9));
    let out = nodes.handle(at(3), on(1), request(1).into());
    assert!(matches!(only(&out), Message::NgSetupResponse(_)), "{out:?}");
    assert!(is_refused_for(&sets_up(&mut nodes, 4, 20), 1), "the other one is the second now");
    nodes.down(on(20));
    let restarted = sets_up(&mut nodes, 4 + 600, 21);
    assert_eq!(restarted.superseded, [on(1)], "ten minutes later it is a gNB that restarted");
}

#[test] // TS 38.412 §7: a gNB that restarts loses all of its associations
fn a_gnb_that_restarted_takes_over_from_each_of_its_associations() {
    let mut nodes = nodes(1);
    nodes.up(at(1), on(7), home());
    let mut update = RanConfigurationUpdate::new();
    update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(gnb(1)));
    nodes.handle(at(1), on(7), update.into());
    let out = sets_up(&mut nodes, 2, 9);
    assert_eq!(out.superseded, [on(1), on(7)]);
    assert_eq!(nodes.siblings(on(9)), [on(9)]);
    assert_eq!(nodes.serving().count(), 1);
}

#[test] // TS 38.413 §8.7.1.1: it is the first message
fn an_association_without_setup_ends_in_time() {
    let mut nodes = RanNodes::new(Arc::new(config()));
    nodes.up(at(0), on(1), home());
    assert_eq!(nodes.next_deadline(), Some(at(30)));
    assert!(nodes.tick(at(29)).abort.is_empty());
    let out = nodes.tick(at(30));
    assert_eq!((out.abort, out.events), (vec![on(1)], vec![RanEvent::NeverSetUp { association: on(1) }]));
    nodes.down(on(1));
    assert_eq!(nodes.next_deadline(), None);
}

#[test] // a message may come after the end of its association: NG SETUP there sets up no gNB that nothing would end
fn messages_after_the_end_of_an_association_are_dropped() {
    let mut nodes = nodes(1);
    nodes.down(on(1));
    let out = nodes.handle(at(1), on(1), request(1).into());
    assert!(out.messages.is_empty() && out.events.is_empty(), "{out:?}");
    let out = octets(&mut nodes, 1, &[0xff]);
    assert!(out.messages.is_empty() && out.events.is_empty(), "{out:?}");
    assert_eq!((nodes.iter().count(), nodes.find(gnb(1)), nodes.waiting), (0, None, 0));
}

#[test] // TS 38.413 §8.7.1.4: NG SETUP comes in time, and is answered although its association is due while the holder is probed
fn ng_setup_that_waits_for_the_holder_is_answered_before_its_association_ends() {
    let mut nodes = nodes(1);
    nodes.up(at(0), on(9), elsewhere());
    let out = nodes.handle(at(29), on(9), request(1).into());
    assert_eq!((out.messages.len(), out.probes), (0, vec![on(1)]));
    let mut answered = None;
    while answered.is_none() {
        let now = nodes.next_deadline().expect("the claim");
        assert!(now <= at(32), "within 3 s");
        let out = nodes.tick(now);
        assert!(out.abort.is_empty(), "{out:?}");
        answered = (!out.messages.is_empty()).then_some(out);
    }
    assert!(matches!(only(&answered.expect("an answer")), Message::NgSetupResponse(_)));
    assert!(nodes.is_set_up(on(9)));
}

#[test] // TS 38.412 §7: connections that never become a gNB are bounded
fn associations_without_setup_are_bounded() {
    let mut config = config();
    config.limits.ran_nodes_waiting = 3;
    let mut nodes = RanNodes::new(Arc::new(config));
    for n in 0..3 {
        assert!(nodes.up(at(0), on(n), home()).abort.is_empty());
    }
    assert_eq!(nodes.up(at(1), on(3), home()).abort, [on(0)], "the oldest one makes room");
    nodes.down(on(0));
    nodes.handle(at(1), on(1), request(1).into());
    assert!(nodes.up(at(0), on(4), home()).abort.is_empty(), "one that has set up makes room");
    for n in [1, 2, 3, 4] {
        nodes.down(on(n));
    }
    assert_eq!(nodes.waiting, 0);
}

#[test] // of the associations without NG SETUP, the oldest one of the source with most of them makes room
fn a_host_that_only_connects_pushes_out_its_own_associations() {
    let mut config = config();
    config.limits.ran_nodes_waiting = 4;
    let mut nodes = RanNodes::new(Arc::new(config));
    nodes.up(at(0), on(1), home());
    // One host, though each of its addresses is another one.
    let flood = |n: u32| vec![format!("2001:db8::{n:x}").parse().expect("an address")];
    for n in 2..50 {
        let out = nodes.up(at(1), on(n), flood(n));
        let dropped: Vec<AssociationId> = if n <= 4 { vec![] } else { vec![on(n - 3)] };
        assert_eq!(out.abort, dropped);
        dropped.iter().for_each(|association| drop(nodes.down(*association)));
    }
    let out = nodes.handle(at(2), on(1), request(1).into());
    assert!(matches!(only(&out), Message::NgSetupResponse(_)), "the one that came first is served");
}

#[test] // TS 38.413 §8.7.1.4: one source with more gNBs than the newcomer's makes room for it, the oldest first
fn a_host_that_invents_gnbs_makes_room_for_those_of_others() {
    let mut config = config();
    config.limits.ran_nodes = 4;
    let mut nodes = RanNodes::new(Arc::new(config));
    let set_up = |nodes: &mut RanNodes, s, n, from| {
        nodes.up(at(s), on(n), from);
        let out = nodes.handle(at(s), on(n), request(n).into());
        out.abort.iter().for_each(|association| drop(nodes.down(*association)));
        (nodes.is_set_up(on(n)), out.abort)
    };
    assert_eq!(set_up(&mut nodes, 0, 1, home()), (true, vec![]));
    for n in 2..5 {
        assert_eq!(set_up(&mut nodes, u64::from(n), n, elsewhere()), (true, vec![]));
    }
    assert_eq!(set_up(&mut nodes, 5, 5, elsewhere()), (false, vec![]), "its own source has most");
    assert_eq!(set_up(&mut nodes, 6, 6, home()), (true, vec![on(2)]));
    assert_eq!(set_up(&mut nodes, 7, 7, home()), (false, vec![]), "both have the same number now");
    let third = vec![[198, 51, 100, 1].into()];
    assert!(set_up(&mut nodes, 8, 8, third).0);
    assert_eq!(nodes.serving().count(), 4);
}

#[test] // TS 38.413 §8.7.1.4: a holder is probed twelve times in 3 s, however late the core is, and any message of it is a sign of life
fn a_holder_is_probed_before_it_loses_its_identity_to_another_address() {
    let claimed = || {
        let mut nodes = nodes(2);
        nodes.up(at(1), on(9), elsewhere());
        let out = nodes.handle(at(1), on(9), request(1).into());
        assert_eq!((out.messages.len(), out.probes), (0, vec![on(1)]));
        let again = nodes.handle(at(1), on(9), request(1).into());
        assert_eq!((again.messages.len(), again.probes.len()), (0, 0), "it waits for its answer");
        nodes.up(at(1), on(10), vec![[192, 0, 2, 67].into()]);
        let third = nodes.handle(at(1), on(10), request(1).into());
        assert!(is_refused_for(&third, 1), "one newcomer at a time");
        nodes
    };
    let mut nodes = claimed();
    let mut probes = 1;
    while let Some(due) = nodes.next_deadline()
        && !nodes.is_set_up(on(9))
    {
        let out = nodes.tick(due.max(at(2))); // the core stalled for a second at first
        probes += out.probes.len();
        out.superseded.iter().for_each(|former| drop(nodes.supersede(due, *former)));
        if nodes.is_set_up(on(9)) {
            assert!(due >= at(4), "{due:?}");
            let silent = RanEvent::HolderSilent { association: on(9), holder: on(1), gnb: gnb(1) };
            assert!(out.events.contains(&silent));
            assert!(matches!(only(&out), Message::NgSetupResponse(_)));
        }
    }
    assert_eq!(probes, 12);
    let mut nodes = claimed();
    assert!(is_refused_for(&nodes.answered_probe(on(1)), 1));
    assert!(nodes.answered_probe(on(1)).messages.is_empty(), "once");
    let mut nodes = claimed();
    let out = nodes.handle(at(2), on(1), ErrorIndication::new().into());
    assert!(out.messages.iter().any(|(to, m)| *to == on(9) && matches!(m, Message::NgSetupFailure(_))));
    let mut nodes = claimed();
    nodes.down(on(9));
    assert!(
        nodes.tick(at(9)).messages.is_empty() && nodes.find(gnb(1)) == Some(on(1)),
        "the newcomer has gone"
    );
}

#[test] // RFC 9260 §5.4: a gNB comes back from an address that SCTP has confirmed, and from no other one that it may have listed
fn a_holders_further_address_counts_once_it_is_confirmed() {
    let come_back = |confirmed: bool| {
        let mut nodes = nodes(1);
        if confirmed {
            nodes.confirm_address(on(1), elsewhere()[0]);
        }
        nodes.up(at(1), on(9), elsewhere());
        nodes.handle(at(1), on(9), request(1).into())
    };
    assert!(matches!(only(&come_back(true)), Message::NgSetupResponse(_)));
    let unconfirmed = come_back(false);
    assert_eq!((unconfirmed.messages.len(), unconfirmed.probes), (0, vec![on(1)]), "the holder is probed");
    // Addresses are bounded, and an association that has ended has none.
    let mut nodes = nodes(1);
    for n in 1..=100 {
        nodes.confirm_address(on(1), [198, 51, 100, n].into());
    }
    assert_eq!(nodes.addresses(gnb(1)).len(), ADDRESSES_MAX);
    nodes.confirm_address(on(7), elsewhere()[0]);
}

#[test] // the operator: the gNB is gone, its address is barred for a minute, and another gNB of the address is not concerned
fn a_disconnected_gnb_is_barred_from_its_identity_for_a_minute() {
    let mut nodes = nodes(2);
    let out = nodes.disconnect(at(1), gnb(1)).expect("it is up");
    assert_eq!(out.abort, [on(1)]);
    nodes.down(on(1));
    assert!(nodes.disconnect(at(1), gnb(1)).is_none());
    let out = sets_up(&mut nodes, 2, 9);
    let Message::NgSetupFailure(m) = only(&out) else { panic!("{out:?}") };
    assert_eq!((m.time_to_wait, &m.cause), (Some(TimeToWait::V60s), &CauseMisc::OmIntervention.into()));
    assert!(nodes.is_set_up(on(2)));
    assert!(matches!(only(&sets_up(&mut nodes, 61, 10)), Message::NgSetupResponse(_)));
}

#[test] // TS 38.413 §8.7.2.4
fn ran_configuration_update_is_taken_whole_or_not_at_all() {
    let mut nodes = nodes(1);
    let mut update = RanConfigurationUpdate::new();
    update.ran_node_name = Some("new".into());
    update.default_paging_drx = Some(PagingDrx::V256);
    update.supported_ta_list = vec![area(99, vec![SNssai::sst(1)])];
    let out = nodes.handle(at(1), on(1), update.clone().into());
    let Message::RanConfigurationUpdateFailure(m) = only(&out) else { panic!("{out:?}") };
    assert!(m.time_to_wait.is_some());
    let node = nodes.get(on(1)).expect("up");
    assert_eq!((node.name.as_deref(), node.default_paging_drx), (None, PagingDrx::V64));
    update.supported_ta_list.clear();
    let out = nodes.handle(at(1), on(1), update.into());
    assert!(matches!(only(&out), Message::RanConfigurationUpdateAcknowledge(_)));
    let node = nodes.get(on(1)).expect("up");
    assert_eq!((node.name.as_deref(), node.default_paging_drx), (Some("new"), PagingDrx::V256));
    assert_eq!(node.tacs, [tai(1).tac], "what it did not name stays");
}

#[test] // TS 38.413 §8.7.2.4
fn ran_configuration_update_with_octets_missing_changes_all_or_nothing() {
    let mut update = RanConfigurationUpdate::new();
    update.ran_node_name = Some("new".into());
    update.supported_ta_list = vec![area(1, vec![SNssai::sst(1)])];
    update.default_paging_drx = Some(PagingDrx::V256);
    let whole = Message::from(update).to_vec();
    for cut in 3..whole.len() {
        let mut nodes = nodes(1);
        let mut short = whole.clone();
        short.remove(cut);
        let out = octets(&mut nodes, 1, &short);
        assert!(out.messages.len() <= 1, "{out:?}");
        let taken = matches!(out.messages.first(), Some((_, Message::RanConfigurationUpdateAcknowledge(_))));
        let node = nodes.get(on(1)).expect("it stays up");
        assert!(taken || (node.name.is_none() && node.default_paging_drx == PagingDrx::V64), "{out:?}");
        assert!(!node.tacs.is_empty(), "it is served as before");
    }
}

#[test] // TS 38.413 §8.7.1.4, §8.7.2.4: wrong counts and lengths, empty areas, empty slices
fn setup_and_update_with_each_octet_at_its_extremes() {
    let mut update = RanConfigurationUpdate::new();
    update.supported_ta_list = vec![area(1, vec![SNssai::sst(1)])];
    update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(gnb(1)));
    for whole in [Message::from(request(1)).to_vec(), Message::from(update).to_vec()] {
        for at_octet in 0..whole.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xbf, 0xc0, 0xff] {
                let mut odd = whole.clone();
                odd[at_octet] = value;
                for up in [false, true] {
                    let mut nodes = if up { nodes(1) } else { RanNodes::new(Arc::new(config())) };
                    nodes.up(at(0), on(2), home());
                    let out = octets(&mut nodes, 2, &odd);
                    assert!(out.messages.len() <= 1 && out.abort.is_empty(), "{odd:02x?}: {out:?}");
                    assert!(!up || nodes.is_set_up(on(1)) || out.superseded == [on(1)], "{odd:02x?}");
                }
            }
        }
    }
}

#[test] // TS 38.413 §8.7.2.2: every element is optional
fn ran_configuration_update_without_any_ie_is_acknowledged() {
    let mut nodes = nodes(1);
    let out = octets(&mut nodes, 1, &[0x00, 35, 0x00, 3, 0x00, 0x00, 0x00]);
    assert!(matches!(only(&out), Message::RanConfigurationUpdateAcknowledge(_)), "{out:?}");
    assert_eq!(nodes.get(on(1)).expect("up").tacs, [tai(1).tac]);
}

#[test] // TS 38.413 §8.7.2.2
fn a_further_association_joins_by_ran_configuration_update() {
    let mut nodes = nodes(1);
    nodes.up(at(1), on(7), home());
    let mut update = RanConfigurationUpdate::new();
    update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(gnb(2)));
    let out = nodes.handle(at(1), on(7), update.clone().into());
    assert!(matches!(only(&out), Message::RanConfigurationUpdateFailure(_)), "of an unknown gNB");
    update.global_ran_node_id = Some(GlobalRanNodeId::GlobalGnbId(gnb(1)));
    let out = nodes.handle(at(1), on(7), update.into());
    assert!(matches!(only(&out), Message::RanConfigurationUpdateAcknowledge(_)));
    assert!(nodes.is_set_up(on(7)));
    assert_eq!(nodes.serving().count(), 1, "it hears what concerns no UE once");
    assert_eq!(nodes.siblings(on(7)), [on(1), on(7)]);
    nodes.down(on(1));
    assert_eq!(nodes.find(gnb(1)), Some(on(7)), "the other takes over");
}

/// A configuration with another weight.
fn heavier(capacity: u8) -> Arc<Config> {
    let mut config = config();
    config.amf.relative_capacity = capacity;
    Arc::new(config)
}

#[test] // TS 38.413 §8.7.3.2
fn amf_configuration_update_goes_to_every_gnb_when_something_changed() {
    let mut nodes = nodes(2);
    assert!(nodes.configure(at(1), Arc::new(config())).messages.is_empty(), "nothing changed");
    let out = nodes.configure(at(1), heavier(7));
    assert_eq!(out.messages.len(), 2);
    let Message::AmfConfigurationUpdate(m) = &out.messages[0].1 else { panic!("{out:?}") };
    assert_eq!(m.relative_amf_capacity, Some(7));
    assert!(!m.served_guami_list.is_empty() && !m.plmn_support_list.is_empty());
    // Another change waits for the answer to the first.
    assert!(nodes.configure(at(2), heavier(8)).messages.is_empty());
    let out = nodes.handle(at(2), on(1), AmfConfigurationUpdateAcknowledge::new().into());
    let Message::AmfConfigurationUpdate(m) = only(&out) else { panic!("{out:?}") };
    assert_eq!(m.relative_amf_capacity, Some(8));
    let out = nodes.handle(at(2), on(1), AmfConfigurationUpdateAcknowledge::new().into());
    assert!(out.messages.is_empty() && out.events == [RanEvent::UpdateTaken { association: on(1) }]);
    // An unexpected one.
    let out = nodes.handle(at(2), on(1), AmfConfigurationUpdateAcknowledge::new().into());
    assert!(out.messages.is_empty() && out.events.is_empty());
}

#[test] // TS 38.413 §8.7.3.2, TS 23.501 §5.21.1.2
fn amf_configuration_update_adds_and_removes_further_endpoints() {
    let mut nodes = nodes(1);
    let [first, second] = [2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
    let updates = |out: &RanOutput| -> (usize, usize) {
        let Some((_, Message::AmfConfigurationUpdate(m))) = out.messages.last() else { panic!("{out:?}") };
        (m.amf_tnl_association_to_add_list.len(), m.amf_tnl_association_to_remove_list.len())
    };
    assert_eq!(nodes.endpoints(at(1), vec![]).messages, [], "there is nothing to say");
    assert_eq!(updates(&nodes.endpoints(at(1), vec![first])), (1, 0));
    nodes.handle(at(1), on(1), AmfConfigurationUpdateAcknowledge::new().into());
    assert_eq!(nodes.endpoints(at(1), vec![first]).messages, [], "nothing has changed");
    nodes.up(at(2), on(7), home());
    assert_eq!(updates(&nodes.handle(at(2), on(7), request(7).into())), (1, 0), "with its NG SETUP RESPONSE");
    assert_eq!(updates(&nodes.endpoints(at(3), vec![second])), (1, 1));
    nodes.handle(at(3), on(1), AmfConfigurationUpdateAcknowledge::new().into());
    assert_eq!(updates(&nodes.endpoints(at(4), vec![first, second])), (2, 0), "it is one again");
}

#[test] // TS 38.413 §8.7.3.2: also while an update is unanswered, which the lost host may have sent or heard answered
fn gnbs_remove_their_association_with_a_failed_host() {
    let mut nodes = nodes(2);
    let [first, second] = [2, 3].map(|n| IpAddr::from([10, 0, 0, n]));
    let lists = |out: &RanOutput| -> (usize, usize, usize) {
        assert_eq!(out.messages.len(), 2, "each gNB gets it");
        let (_, Message::AmfConfigurationUpdate(m)) = &out.messages[0] else { panic!("{out:?}") };
        let updated = &m.amf_tnl_association_to_update_list;
        assert!(updated.iter().all(|item| item.tnl_address_weight_factor > Some(0)), "it serves");
        let (added, removed) = (&m.amf_tnl_association_to_add_list, &m.amf_tnl_association_to_remove_list);
        (added.len(), removed.len(), updated.len())
    };
    assert_eq!(lists(&nodes.endpoints(at(1), vec![second])), (1, 0, 0));
    assert_eq!(lists(&nodes.taken_over(at(2), vec![first])), (0, 1, 1));
    assert_eq!(lists(&nodes.taken_over(at(2), vec![first])), (0, 1, 1), "once more is the same");
    for n in [1, 2] {
        nodes.handle(at(3), on(n), AmfConfigurationUpdateAcknowledge::new().into());
    }
    assert_eq!(lists(&nodes.endpoints(at(3), vec![first])), (1, 0, 1), "it comes back as the other");
    assert_eq!(lists(&nodes.taken_over(at(4), vec![second])), (0, 1, 1), "and serves again");
}

#[test] // TS 38.413 §8.7.3.3
fn amf_configuration_update_is_repeated_after_time_to_wait_up_to_a_limit() {
    let mut nodes = nodes(1);
    let mut now = 1;
    let mut sent = nodes.configure(at(now), heavier(7)).messages.len();
    for _ in 0..20 {
        let mut failure = AmfConfigurationUpdateFailure::new(CauseMisc::Unspecified.into());
        failure.time_to_wait = Some(TimeToWait::V20s);
        nodes.handle(at(now), on(1), failure.into());
        let Some(due) = nodes.next_deadline() else { break };
        assert_eq!(due, at(now + 20));
        now += 20;
        sent += nodes.tick(at(now)).messages.len();
    }
    assert_eq!(sent, 5);
    let failure = AmfConfigurationUpdateFailure::new(CauseMisc::Unspecified.into());
    nodes.configure(at(now), heavier(9));
    let out = nodes.handle(at(now), on(1), failure.into());
    assert!(matches!(out.events.as_slice(), [RanEvent::UpdateRefused { again: false, .. }]));
    assert_eq!(nodes.next_deadline(), None, "without a time it keeps what it has");
}

#[test] // TS 38.413 §8.7.3.4
fn amf_configuration_update_without_answer_is_given_up() {
    let mut nodes = nodes(1);
    nodes.configure(at(1), heavier(7));
    let out = nodes.tick(at(1) + ANSWER_WITHIN);
    assert!(matches!(out.events.as_slice(), [RanEvent::UpdateRefused { again: false, .. }]));
    assert!(out.messages.is_empty());
}

#[test] // TS 38.413 §8.7.2.2: areas that a new configuration serves
fn a_new_configuration_serves_areas_that_were_broadcast_before() {
    let mut nodes = RanNodes::new(Arc::new(config()));
    nodes.up(at(0), on(1), home());
    let mut m = request(1);
    m.supported_ta_list.push(area(77, vec![SNssai::sst(1)]));
    nodes.handle(at(0), on(1), m.into());
    let mut wider = config();
    wider.amf.tacs.push(tai(77).tac);
    nodes.configure(at(1), Arc::new(wider));
    assert!(nodes.get(on(1)).expect("up").tacs.contains(&tai(77).tac));
}

fn connection(amf: u64) -> UeAssociatedLogicalNgConnectionItem {
    let mut item = UeAssociatedLogicalNgConnectionItem::new();
    item.amf_ue_ngap_id = whimbrel_ids::AmfUeNgapId::new(amf);
    item
}

#[test] // TS 38.413 §10.3.1: it is never answered, and what is not looked at is counted
fn a_flood_of_error_indications_is_not_logged() {
    let mut nodes = nodes(1);
    let indications = (0..25).flat_map(|_| {
        let out = nodes.handle(at(1), on(1), ErrorIndication::new().into());
        assert!(out.messages.is_empty());
        out.events
    });
    let (logged, beyond): (Vec<_>, Vec<_>) =
        indications.partition(|e| matches!(e, RanEvent::ErrorIndication { .. }));
    assert_eq!((logged.len(), beyond.len()), (10, 15));
    assert!(
        beyond.iter().all(|e| matches!(e, RanEvent::Limited { limit: "error_indications_received", .. }))
    );
}

#[test] // TS 38.413 §8.7.4.2.1
fn reset_by_us_is_acknowledged_or_repeated_once() {
    let mut nodes = nodes(1);
    let out = nodes.reset(at(1), on(1), CauseMisc::OmIntervention, vec![connection(5)]);
    let Message::NgReset(m) = only(&out) else { panic!("{out:?}") };
    assert_eq!(m.reset_type, ResetType::PartOfNgInterface(vec![connection(5)]));
    assert!(out.reset.is_none(), "what is named is gone here already");
    let out = nodes.handle(at(1), on(1), NgResetAcknowledge::new().into());
    assert_eq!(out.events, [RanEvent::ResetAcknowledged { association: on(1) }]);
    assert!(nodes.handle(at(1), on(1), NgResetAcknowledge::new().into()).events.is_empty());
    let out = nodes.reset(at(1), on(1), CauseMisc::OmIntervention, Vec::new());
    let reset = out.reset.expect("all of its UEs lose their connections here");
    assert!(!reset.acknowledge && reset.by == ResetBy::Operator, "{reset:?}");
    assert!(matches!(only(&nodes.tick(at(1) + ANSWER_WITHIN)), Message::NgReset(_)));
    let out = nodes.tick(at(1) + ANSWER_WITHIN * 2);
    assert!(out.messages.is_empty());
    assert_eq!(out.events, [RanEvent::ResetUnacknowledged { association: on(1) }]);
    assert_eq!(nodes.next_deadline(), None);
}

#[test] // TS 38.413 §8.7.4.2.1
fn many_unanswered_partial_resets_become_a_whole_one() {
    let mut nodes = nodes(1);
    let whole = (0..40).filter(|&n| {
        let out = nodes.reset(at(1), on(1), CauseMisc::Unspecified, vec![connection(n)]);
        matches!(only(&out), Message::NgReset(m) if matches!(m.reset_type, ResetType::NgInterface(_)))
    });
    assert_eq!(whole.count(), 2);
}

#[test] // TS 38.413 §8.7.5.2, §10.5: an ERROR INDICATION is never answered by another
fn mutual_error_indications_are_rate_limited() {
    let mut nodes = nodes(1);
    let answers: usize = (0..1000).map(|_| octets(&mut nodes, 1, &[0]).messages.len()).sum();
    assert_eq!(answers, 100, "a second's worth");
    let logged: usize = (0..1000)
        .map(|_| {
            let out = nodes.handle(at(1), on(1), ErrorIndication::new().into());
            assert!(out.messages.is_empty(), "an ERROR INDICATION is not answered");
            out.events.iter().filter(|e| matches!(e, RanEvent::ErrorIndication { .. })).count()
        })
        .sum();
    assert_eq!(logged, 10);
}

fn load(ues_percent: u8, delay_ms: u64) -> Load {
    Load { ues_percent, unauthenticated_ues_percent: 0, delay: Duration::from_millis(delay_ms) }
}

#[test] // TS 38.413 §8.7.7.2, §8.7.8.2; TS 23.501 §5.19.3, §5.19.5.2: it begins and ends by the operator's rule
fn overload_begins_and_ends_by_its_rule() {
    let mut nodes = nodes(2);
    assert!(nodes.loaded(at(1), load(89, 400)).messages.is_empty());
    let out = nodes.loaded(at(2), load(90, 0));
    let starts = out.messages.iter().filter(|(_, m)| matches!(m, Message::OverloadStart(_))).count();
    assert_eq!((starts, nodes.is_overloaded()), (2, true));
    assert!(nodes.loaded(at(3), load(95, 900)).messages.is_empty(), "they know");
    assert!(nodes.loaded(at(4), load(80, 0)).messages.is_empty(), "between the thresholds all stays");
    nodes.loaded(at(5), load(10, 0));
    assert_eq!(nodes.next_deadline(), Some(at(15)));
    nodes.loaded(at(10), load(85, 0));
    assert_eq!(nodes.next_deadline(), None, "it was not calm for long enough");
    nodes.loaded(at(11), load(10, 0));
    let out = nodes.tick(at(21));
    let stops = out.messages.iter().filter(|(_, m)| matches!(m, Message::OverloadStop(_))).count();
    assert_eq!((stops, nodes.is_overloaded()), (2, false));
    assert!((22..24).all(|s| nodes.waited(at(s), load(0, 500)).messages.is_empty()), "not yet");
    assert!(!nodes.waited(at(24), load(0, 500)).messages.is_empty(), "messages that wait begin it, too");
}

#[test] // TS 23.501 §5.19.5.2: overload is what lasts; a host that stands still for 650 ms is not overloaded afterwards
fn a_single_late_sample_starts_no_overload() {
    let mut nodes = nodes(1);
    for s in 1..30 {
        let delay_ms = if s % 3 == 0 { 1 } else { 650 }; // late twice, then in time
        assert!(nodes.waited(at(s), load(0, delay_ms)).messages.is_empty());
        // The load is judged again whenever a table fills, without a new sample.
        assert!(nodes.loaded(at(s), load(s as u8, delay_ms)).messages.is_empty());
    }
    assert!(!nodes.is_overloaded());
    nodes.waited(at(30), load(0, 1));
    for s in 31..33 {
        nodes.waited(at(s), load(0, 500));
    }
    assert!(!nodes.is_overloaded());
    nodes.waited(at(33), load(0, 500));
    assert!(nodes.is_overloaded(), "three in a row");
    // It ends as it did: when the delay has stayed below the lower threshold for `hold`.
    nodes.waited(at(34), load(0, 0));
    assert!(matches!(only(&nodes.tick(at(44))), Message::OverloadStop(_)));
}

#[test] // TS 38.413 §8.7.7.2
fn a_gnb_that_sets_up_during_an_overload_gets_overload_start() {
    let mut nodes = nodes(1);
    nodes.order_overload(OverloadOrder::Start);
    nodes.up(at(1), on(2), home());
    let out = nodes.handle(at(1), on(2), request(2).into());
    let [(_, Message::NgSetupResponse(_)), (_, Message::OverloadStart(m))] = out.messages.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!(m.amf_traffic_load_reduction_indication, Some(50));
    assert!(nodes.loaded(at(2), load(0, 0)).messages.is_empty(), "the operator decides");
    let out = nodes.order_overload(OverloadOrder::ByRule);
    assert_eq!(out.messages.len(), 2);
}

fn son(from: u32, to: GlobalRanNodeId) -> UplinkRanConfigurationTransfer {
    let mut m = UplinkRanConfigurationTransfer::new();
    let source = GlobalRanNodeId::GlobalGnbId(gnb(from));
    let ends = SonConfigurationTransferEnds { target: to, target_tai: tai(1), source, source_tai: tai(1) };
    assert_eq!(
        SonConfigurationTransferEnds::read(&ends.xn_tnl_configuration_request()).as_ref(),
        Some(&ends)
    );
    m.son_configuration_transfer_ul = Some(ends.xn_tnl_configuration_request());
    m
}

#[test] // TS 38.413 §8.8.1.2, §8.8.2.2
fn a_configuration_transfer_goes_to_the_gnb_that_it_names() {
    let mut nodes = nodes(2);
    let m = son(1, GlobalRanNodeId::GlobalGnbId(gnb(2)));
    let content = m.son_configuration_transfer_ul.clone();
    let out = nodes.handle(at(1), on(1), m.into());
    let [(to, Message::DownlinkRanConfigurationTransfer(m))] = out.messages.as_slice() else {
        panic!("{out:?}")
    };
    assert_eq!((*to, &m.son_configuration_transfer_dl), (on(2), &content));
}

#[test] // TS 38.413 §8.8.1.2
fn a_configuration_transfer_to_an_unknown_gnb_is_dropped_and_counted() {
    let mut nodes = nodes(2);
    let n3iwf = GlobalN3iwfId::new(PlmnId::TEST, N3iwfId::N3iwfId(7));
    let ng_enb = GlobalNgEnbId::new(PlmnId::TEST, NgEnbId::MacroNgEnbId(7));
    let mut cut = son(1, GlobalRanNodeId::GlobalGnbId(gnb(2)));
    cut.son_configuration_transfer_ul = Some(vec![0]);
    for m in [
        son(1, GlobalRanNodeId::GlobalN3iwfId(n3iwf)),
        son(1, GlobalRanNodeId::GlobalNgEnbId(ng_enb)),
        son(1, GlobalRanNodeId::GlobalGnbId(gnb(3))),
        son(1, GlobalRanNodeId::GlobalGnbId(gnb(1))),
        son(2, GlobalRanNodeId::GlobalGnbId(gnb(2))),
        UplinkRanConfigurationTransfer::new(),
        cut,
    ] {
        let out = nodes.handle(at(1), on(1), m.into());
        assert!(out.messages.is_empty(), "{out:?}");
        assert!(matches!(out.events.as_slice(), [RanEvent::Unserved { .. }]));
    }
}

#[test] // TS 38.413 §8.10
fn nrppa_of_no_ue_is_dropped_and_counted() {
    let mut nodes = nodes(1);
    let out = nodes.handle(at(1), on(1), UplinkNonUeAssociatedNrppaTransport::new(vec![1], vec![2]).into());
    assert!(out.messages.is_empty() && matches!(out.events.as_slice(), [RanEvent::Unserved { .. }]));
}

#[test] // TS 38.413 §8.7.6.2: an AMF that goes says so to every gNB that has set up, once each
fn an_amf_that_stops_sends_amf_status_indication() {
    let mut nodes = nodes(2);
    nodes.up(at(1), on(9), home());
    let out = nodes.retire();
    assert_eq!(out.messages.iter().map(|(a, _)| *a).collect::<Vec<_>>(), [on(1), on(2)]);
    for (_, m) in &out.messages {
        let Message::AmfStatusIndication(m) = m else { panic!("{m:?}") };
        assert_eq!(m.unavailable_guami_list, [UnavailableGuamiItem::new(config().amf.guami())]);
    }
}

fn warning(serial_number: u16, area: WarningArea) -> Warning {
    let (coding, contents) = cbs_pages("Flood: leave the valley.").expect("it fits");
    Warning {
        message_identifier: 4370,
        serial_number,
        area,
        repetition_period_s: 30,
        broadcasts: 10,
        warning_type: None,
        data_coding_scheme: Some(coding.scheme()),
        contents,
        concurrent: false,
    }
}

fn cell_of(n: u32) -> NrCgi {
    NrCgi::new(PlmnId::TEST, NrCellId::new(u64::from(n) << 8 | 1).expect("36 bits"))
}

fn answer(serial_number: u16, cells: Vec<NrCgi>) -> WriteReplaceWarningResponse {
    let mut m = WriteReplaceWarningResponse::new(4370, serial_number);
    m.broadcast_completed_area_list =
        (!cells.is_empty()).then_some(BroadcastCompletedAreaList::CellIdBroadcastNr(cells));
    m
}

fn outcomes(nodes: &RanNodes) -> Vec<WarningOutcome> {
    nodes.warnings().last().expect("a warning").outcomes.values().cloned().collect()
}

#[test] // TS 38.413 §8.9.1.2
fn a_warning_is_sent_to_the_gnbs_of_its_area_and_their_answers_are_stored() {
    let mut nodes = nodes(3);
    let (n, out) = nodes.warn(at(1), warning(1, WarningArea::Everywhere)).expect("sent");
    assert_eq!((n, out.messages.len()), (3, 3));
    nodes.handle(at(1), on(1), answer(1, vec![cell_of(1)]).into());
    nodes.handle(at(1), on(2), answer(1, Vec::new()).into());
    let out = nodes.tick(at(1) + ANSWER_WITHIN);
    let unanswered = RanEvent::WarningUnanswered { gnb: gnb(3), message_identifier: 4370, serial_number: 1 };
    assert_eq!(out.events, [unanswered]);
    assert_eq!(
        outcomes(&nodes),
        [WarningOutcome::Broadcasting(Some(1)), WarningOutcome::Nowhere, WarningOutcome::NoAnswer]
    );
    assert_eq!(
        nodes.warn(at(1), warning(2, WarningArea::Cells(vec![cell_of(2)]))).expect("sent").1.messages[0].0,
        on(2)
    );
    assert_eq!(nodes.warn(at(1), warning(3, WarningArea::Tais(vec![tai(1)]))).expect("sent").0, 3);
    assert_eq!(
        nodes.warn(at(1), warning(4, WarningArea::Tais(vec![tai(9)]))).err(),
        Some(WarningError::NoGnb)
    );
    assert_eq!(
        nodes.warn(at(1), warning(4, WarningArea::Cells(Vec::new()))).err(),
        Some(WarningError::Empty)
    );
}

#[test] // TS 38.413 §8.9.1.2: unexpected answers
fn an_answer_to_no_warning_changes_nothing() {
    let mut nodes = nodes(2);
    nodes.warn(at(1), warning(1, WarningArea::Cells(vec![cell_of(1)]))).expect("sent");
    for (n, serial) in [(2, 1), (1, 2)] {
        assert!(nodes.handle(at(1), on(n), answer(serial, vec![cell_of(n)]).into()).events.is_empty());
    }
    assert!(nodes.handle(at(1), on(1), PwsCancelResponse::new(4370, 1).into()).events.is_empty());
    assert_eq!(outcomes(&nodes), [WarningOutcome::Awaited]);
}

#[test] // TS 38.413 §8.9.2.2
fn a_warning_is_cancelled_where_it_was_sent() {
    let mut nodes = nodes(2);
    nodes.warn(at(1), warning(1, WarningArea::Cells(vec![cell_of(2)]))).expect("sent");
    let (n, out) = nodes.cancel_warning(at(2), 4370, 1).expect("in force");
    assert!(n == 1 && matches!(only(&out), Message::PwsCancelRequest(m) if m.warning_area_list.is_some()));
    let mut m = PwsCancelResponse::new(4370, 1);
    let cells = vec![CellIdCancelledNrItem::new(cell_of(2), 12)];
    m.broadcast_cancelled_area_list = Some(BroadcastCancelledAreaList::CellIdCancelledNr(cells));
    nodes.handle(at(2), on(2), m.into());
    assert_eq!(outcomes(&nodes), [WarningOutcome::Cancelled(12)]);
    assert_eq!(
        nodes.cancel_warning(at(2), 4370, 1).err(),
        Some(WarningError::Unknown),
        "it is not in force any more"
    );
}

#[test] // TS 38.413 §8.9.3.2, TS 23.041 §9.1.3.4.5
fn restarted_cells_get_the_active_warnings() {
    let mut nodes = nodes(1);
    nodes.warn(at(1), warning(1, WarningArea::Everywhere)).expect("sent");
    nodes.warn(at(1), warning(2, WarningArea::Everywhere)).expect("sent");
    nodes.cancel_warning(at(1), 4370, 1).expect("in force");
    let cells = CellIdListForRestart::NrCgiListforRestart(vec![cell_of(1)]);
    let m = PwsRestartIndication::new(cells, GlobalRanNodeId::GlobalGnbId(gnb(1)), vec![tai(1)]);
    let out = nodes.handle(at(2), on(1), m.into());
    assert!(matches!(only(&out), Message::WriteReplaceWarningRequest(m) if m.serial_number == 2));
    // So does a gNB that sets up while it is in force, and no longer.
    nodes.up(at(3), on(2), home());
    assert_eq!(nodes.handle(at(3), on(2), request(2).into()).messages.len(), 2);
    nodes.tick(at(302));
    nodes.up(at(303), on(3), home());
    assert_eq!(nodes.handle(at(303), on(3), request(3).into()).messages.len(), 1);
    assert_eq!(nodes.warnings()[1].state, WarningState::Over);
}

#[test] // TS 38.413 §8.9.4.2
fn failed_cells_are_reported() {
    let mut nodes = nodes(1);
    nodes.warn(at(1), warning(1, WarningArea::Everywhere)).expect("sent");
    let cells = PwsFailedCellIdList::NrCgiPwsFailedList(vec![cell_of(1)]);
    let m = PwsFailureIndication::new(cells, GlobalRanNodeId::GlobalGnbId(gnb(1)));
    let out = nodes.handle(at(2), on(1), m.into());
    assert!(matches!(out.events.as_slice(), [RanEvent::WarningsLost { cells: 1, restarted: false, .. }]));
    assert_eq!(outcomes(&nodes), [WarningOutcome::Failed(1)]);
}

#[test] // TS 23.041 §9.4.1.2.1
fn ended_warnings_make_room_for_new_ones() {
    let mut nodes = nodes(1);
    for n in 0..64 {
        nodes.warn(at(1), warning(n, WarningArea::Everywhere)).expect("sent");
    }
    assert_eq!(nodes.warn(at(1), warning(64, WarningArea::Everywhere)).err(), Some(WarningError::Limit));
    nodes.cancel_warning(at(1), 4370, 5).expect("in force");
    nodes.warn(at(1), warning(64, WarningArea::Everywhere)).expect("there is room");
    assert_eq!(nodes.warnings().len(), 64);
}

/// One of each message that a gNB sends of itself.
fn of_itself() -> Vec<Message> {
    let cells = || CellIdListForRestart::NrCgiListforRestart(vec![cell_of(1)]);
    let failed = PwsFailedCellIdList::NrCgiPwsFailedList(vec![cell_of(1)]);
    let id = || GlobalRanNodeId::GlobalGnbId(gnb(1));
    let all = ResetType::NgInterface(ResetAll::ResetAll);
    let area = BroadcastCancelledAreaList::CellIdCancelledNr(vec![CellIdCancelledNrItem::new(cell_of(1), 1)]);
    let mut cancelled = PwsCancelResponse::new(1, 1);
    cancelled.broadcast_cancelled_area_list = Some(area);
    vec![
        RanConfigurationUpdate::new().into(),
        NgReset::new(CauseMisc::Unspecified.into(), all).into(),
        NgResetAcknowledge::new().into(),
        ErrorIndication::new().into(),
        AmfConfigurationUpdateAcknowledge::new().into(),
        AmfConfigurationUpdateFailure::new(CauseMisc::Unspecified.into()).into(),
        answer(1, vec![cell_of(1)]).into(),
        cancelled.into(),
        PwsRestartIndication::new(cells(), id(), vec![tai(1)]).into(),
        PwsFailureIndication::new(failed, id()).into(),
        son(1, GlobalRanNodeId::GlobalGnbId(gnb(2))).into(),
        UplinkNonUeAssociatedNrppaTransport::new(vec![1], vec![2]).into(),
        // What only an AMF sends.
        OverloadStart::new().into(),
        OverloadStop::new().into(),
        NgSetupFailure::new(CauseMisc::Unspecified.into()).into(),
        AmfConfigurationUpdate::new().into(),
        PwsCancelRequest::new(1, 1).into(),
    ]
}

#[test] // TS 38.413 §8.7.1.1, §10.4
fn before_setup_every_message_is_refused_and_changes_nothing() {
    for message in of_itself() {
        let mut nodes = nodes(2);
        nodes.up(at(1), on(5), home());
        let name = message.name();
        let begins = message.kind() == TriggeringMessage::InitiatingMessage;
        let silent = !begins || matches!(message, Message::ErrorIndication(_));
        let out = nodes.handle(at(1), on(5), message);
        assert!(out.reset.is_none() && out.superseded.is_empty() && !nodes.is_set_up(on(5)), "{name}");
        assert!(out.messages.iter().all(|(to, _)| *to == on(5)), "no other gNB gets it");
        assert_eq!(out.messages.is_empty(), silent, "{name}");
    }
}

#[test] // TS 38.413 §10.4: what is not awaited
fn unexpected_messages_after_setup_change_nothing() {
    for message in of_itself() {
        let mut nodes = nodes(2);
        let name = message.name();
        nodes.handle(at(1), on(1), message);
        assert!(nodes.is_set_up(on(1)) && nodes.is_set_up(on(2)), "{name}");
        assert_eq!(nodes.next_deadline(), None, "nothing is left to wait for: {name}");
    }
}

#[test] // TS 38.413 §8.7.1.4
fn a_flood_of_setups_that_are_refused_leaves_nothing() {
    let mut nodes = nodes(1);
    let mut config = config();
    config.limits.ran_nodes = 1;
    nodes.configure(at(0), Arc::new(config));
    for n in 10..200 {
        nodes.up(at(1), on(n), home());
        let out = nodes.handle(at(1), on(n), request(n).into());
        assert!(matches!(only(&out), Message::NgSetupFailure(m) if m.time_to_wait.is_some()));
        nodes.down(on(n));
    }
    assert_eq!((nodes.iter().count(), nodes.waiting), (1, 0));
}
