//! NAS inputs that felled other cores, each named after what it is: no fault, no UE of anybody else is touched, nothing is
//! left, the standard's cause where there is one, and the UE that is meant can come back.

use std::sync::Arc;

use crate::common::stage::*;
use crate::common::*;
use whimbrel_control::event::{DeregistrationReason, MessageDropReason};
use whimbrel_control::udm::{Ambr, SubscribedSlice, Subscription};
use whimbrel_control::{Command as CoreCommand, Event as CoreEvent, Refusal};
use whimbrel_ids::{AmfUeNgapId, RanUeNgapId, SNssai};
use whimbrel_nas::ie::MmCause;
use whimbrel_nas::mm::{Message as Mm, MessageType};
use whimbrel_ngap::Message;
use whimbrel_ran::ue::{Alter, UeCommand};
use whimbrel_sim::{Faults, GnbIndex, Sim};

fn ready(seed: u64) -> Sim {
    stage(network(seed))
}

/// The UE registers and has a session.
fn registered_victim(seed: u64) -> Sim {
    let mut net = ready(seed);
    net.command(VICTIM, UeCommand::Register);
    net.command(VICTIM, session());
    net.settle(SECOND);
    assert!(registered(&net, VICTIM));
    net
}

/// Has the UE's next protected message be this.
fn says_instead(net: &mut Sim, plain: Vec<u8>) {
    net.ue_mut(VICTIM).faults_mut().alter = Some(Alter(Arc::new(move |m| m.clone_from(&plain))));
}

/// A UE of the third gNB that is being authenticated.
fn challenged(net: &mut Sim, n: u32) -> (AmfUeNgapId, RanUeNgapId) {
    let heard = first(net, n, &registration(n, &CAPABILITY));
    assert_eq!(types(&heard), [MessageType::AuthenticationRequest], "{heard:?}");
    names(&heard).expect("it has names")
}

fn released(heard: &[Message]) -> bool {
    heard.iter().any(|m| matches!(m, Message::UeContextReleaseCommand(_)))
}

fn dropped(net: &Sim, expected: MessageDropReason) -> usize {
    core_events(net).filter(|e| matches!(e, CoreEvent::Dropped { why, .. } if *why == expected)).count()
}

#[test] // TS 24.501 §9.11.3.7: registration types 0 and 7, with and without the promise to follow on
fn registration_types_that_mean_nothing() {
    for bits in 0..=15u8 {
        let mut net = ready(1);
        let mut request = registration(7, &CAPABILITY);
        request[3] = 0x70 | bits;
        let heard = first(&mut net, 7, &request);
        // A periodic registration of an unknown UE is rejected, emergency registration is not configured; all others count as initial.
        let rejected = [3, 4].contains(&(bits & 7));
        let reported =
            if rejected { MessageType::RegistrationReject } else { MessageType::AuthenticationRequest };
        assert!(types(&heard) == [reported] || bits & 7 == 3, "{bits:x}: {heard:?}");
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("type {bits:x}"));
    }
}

#[test] // TS 24.501 §9.11.3.4: a 5G-GUTI of AMF identifier 0 and 5G-TMSI 0, of another network, and cut short
fn a_guti_of_zeros() {
    let zeros = [0xf2, 0x99, 0xf9, 0x07, 0, 0, 0, 0, 0, 0, 0];
    let foreign = [0xf2, 0x00, 0xf1, 0x10, 2, 0, 0x40, 1, 2, 3, 4];
    for identity in [&zeros[..], &foreign, &zeros[..10], &zeros[..4], &zeros[..1], &[]] {
        let mut net = ready(2);
        let lv = [&(identity.len() as u16).to_be_bytes()[..], identity].concat();
        let request = mm(0x41, &[&[0x79][..], &lv, &[0x2e, 4], &CAPABILITY].concat());
        let heard = first(&mut net, 7, &request);
        let whole = identity.len() == 11;
        assert_eq!(types(&heard) == [MessageType::IdentityRequest], whole, "{identity:02x?}: {heard:?}");
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("{identity:02x?}"));
    }
}

#[test] // TS 24.501 §7.6: an element whose length goes beyond the message, and each element twice
fn elements_that_are_cut_or_come_twice() {
    let tails: [&[u8]; 10] = [
        &[0x10, 0xff],
        &[0x2e, 0xff, 1],
        &[0x2f, 0xff, 4, 1],
        &[0x71, 0xff, 0xff, 0x7e],
        &[0x77, 0xff, 0xff],
        &[0x50, 0],
        &[0x2e, 4, 0xf0, 0x70, 0xf0, 0x70, 0x2e, 4, 0, 0, 0, 0],
        &[0x2f, 2, 1, 1, 0x2f, 2, 1, 9],
        &[0x10, 1, 3, 0x10, 1, 0, 0x10, 1, 0xff],
        &[
            0x40, 2, 0, 0, 0x40, 32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6,
            7, 8,
        ],
    ];
    for tail in tails {
        let mut net = ready(3);
        let request = [registration(7, &CAPABILITY), tail.to_vec()].concat();
        first(&mut net, 7, &request);
        // The same within protection, of a UE that is registered.
        net.command(VICTIM, UeCommand::Register);
        net.settle(SECOND);
        says_instead(&mut net, request);
        net.command(VICTIM, UeCommand::Register);
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("{tail:02x?}"));
    }
}

#[test] // TS 24.501 §5.4.2.4: SECURITY MODE COMPLETE whose container holds another message, another UE's, or nothing
fn a_completion_with_something_else_in_its_container() {
    let in_container = |inner: &[u8]| {
        let lv = [&(inner.len() as u16).to_be_bytes()[..], inner].concat();
        mm(0x5e, &[&[0x71][..], &lv].concat())
    };
    let imeisv = |value: &[u8]| mm(0x5e, &[&[0x77, 0, value.len() as u8][..], value].concat());
    let all = [
        mm(0x5e, &[]),
        in_container(&[]),
        in_container(&mm(0x43, &[])),
        in_container(&mm(0x5e, &[0x71, 0, 3, 0x7e, 0, 0x43])),
        in_container(&mm(0x45, &[&[1][..], &suci(1)].concat())),
        in_container(&registration(2, &CAPABILITY)),
        in_container(&registration(1, &[0, 0])),
        in_container(&[0x7e, 2, 1, 2, 3, 4, 5]),
        in_container(&vec![0x7e; 20_000]),
        imeisv(&[]),
        imeisv(&[5]),
        imeisv(&[0xf4, 0, 0x40, 1, 2, 3, 4]),
        imeisv(&suci(2)[2..]),
        imeisv(&[0x35; 200]),
    ];
    for complete in all {
        let mut net = ready(4);
        says_instead(&mut net, complete.clone());
        net.command(VICTIM, UeCommand::Register);
        net.settle(SECOND * 60);
        // Whatever identity the message has: the keys identify the UE.
        let canary = net.ue_ref(CANARY).config().supi;
        assert_eq!(net.cta().contexts().filter(|p| p.amf.supi == Some(canary)).count(), 1);
        judge(&mut net, &|| format!("{complete:02x?}"));
    }
}

#[test] // TS 24.501 §4.4.3.1, §4.4.3.5: the network has missed more messages than the low octet of COUNT can count
fn a_count_that_jumps_by_more_than_256() {
    for lost in [1, 100, 255, 256, 257, 300, 600] {
        let mut net = registered_victim(5);
        net.set_faults(Faults { lost_per_mille: 1000, ..Faults::default() });
        for _ in 0..lost {
            net.command(VICTIM, UeCommand::Say(mm(0x64, &[0x6f])));
        }
        net.settle(SECOND);
        net.set_faults(Faults::default());
        net.command(VICTIM, UeCommand::Say(mm(0x64, &[0x6f])));
        net.settle(SECOND);
        // A message that cannot be verified is dropped and counted, and the UE is authenticated again.
        assert_eq!(dropped(&net, MessageDropReason::Integrity), usize::from(lost >= 256), "{lost}");
        assert!(registered(&net, VICTIM));
        judge(&mut net, &|| format!("{lost} lost"));
        // Its former context ends when it registers again, and for no other reason.
        assert!(core_events(&net).all(|e| match e {
            CoreEvent::Deregistered { why, .. } => *why == DeregistrationReason::Superseded,
            _ => true,
        }));
    }
}

#[test] // TS 24.501 §9.11.3.54: a UE security capability has two to eight octets
fn a_security_capability_of_every_length() {
    for n in 0..=20usize {
        let mut net = ready(6);
        let heard = first(&mut net, 7, &registration(7, &[0xf0, 0x70, 0xf0, 0x70].repeat(5)[..n]));
        // One that cannot be read counts as none (TS 24.501 §7.7.1), and without one there is no security mode later.
        assert_eq!(types(&heard), [MessageType::AuthenticationRequest], "{n} octets: {heard:?}");
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("{n} octets"));
    }
}

#[test] // TS 33.501 §5.5.2, TS 24.501 §5.5.1.2.5: nothing but null algorithms, or none, and no emergency
fn a_ue_that_offers_null_algorithms_only() {
    for capability in [[0x80, 0x80], [0x80, 0], [0, 0x80], [0, 0], [0xf0, 0x80], [0xf0, 0], [0x0f, 0x0f]] {
        let mut net = ready(7);
        let heard = first(&mut net, 7, &registration(7, &capability));
        let (amf, ran) = names(&heard).expect("an answer");
        // It is asked to prove its key first (which says nothing of what it offers), or refused at once.
        if types(&heard) == [MessageType::AuthenticationRequest] {
            let heard = uplink(&mut net, (amf, ran), mm(0x57, &[&[0x2d, 16][..], &[0; 16]].concat()));
            assert!(!types(&heard).contains(&MessageType::SecurityModeCommand), "{capability:02x?}");
        }
        net.settle(SECOND * 60);
        assert!(
            net.cta().contexts().all(|p| p.amf.security.current.is_none() || p.amf.registered),
            "{capability:02x?}"
        );
        judge(&mut net, &|| format!("{capability:02x?}"));
    }
}

#[test] // TS 24.501 §5.4.1.3.5: RES* of no octet to 255, absent, and beside an EAP message
fn an_authentication_response_of_every_kind() {
    let mut net = ready(8);
    let eap = [0x78, 0, 5, 2, 1, 0, 5, 50];
    let mut answers: Vec<Vec<u8>> =
        (0..=255u8).map(|n| [&[0x2d, n][..], &vec![7; usize::from(n)]].concat()).collect();
    answers.push(vec![]);
    answers.push(vec![0x2d]);
    answers.push(vec![0x2d, 16, 1, 2]);
    answers.push(eap.to_vec());
    answers.push([&[0x2d, 16][..], &[7; 16], &eap].concat());
    answers.push(vec![0x78, 0xff, 0xff, 1]);
    for (n, answer) in answers.iter().enumerate() {
        let at = challenged(&mut net, 100 + n as u32);
        let heard = uplink(&mut net, at, mm(0x57, answer));
        assert!(!types(&heard).contains(&MessageType::SecurityModeCommand), "{answer:02x?}");
        // AUTHENTICATION REJECT and release; or not decodable, and asked again.
        let rejected = types(&heard).contains(&MessageType::AuthenticationReject);
        assert!(rejected == released(&heard), "{answer:02x?}: {heard:?}");
    }
    net.settle(SECOND * 60);
    assert_eq!(net.cta().contexts().count(), 1, "the canary alone");
    judge(&mut net, &|| "wrong answers".into());
}

#[test] // TS 24.501 §5.4.1.3.7: AUTHENTICATION FAILURE without its cause, without AUTS, with AUTS of every length
fn an_authentication_failure_of_every_kind() {
    let mut net = ready(9);
    let mut failures: Vec<Vec<u8>> =
        (0..=40u8).map(|n| [&[0x15, 0x30, n][..], &vec![7; usize::from(n)]].concat()).collect();
    failures.extend([vec![], vec![0x15], vec![0x15, 0x30], vec![0x15, 0x30, 255, 1]]);
    failures.extend((0..=255u8).map(|cause| vec![cause]));
    for (n, failure) in failures.iter().enumerate() {
        let at = challenged(&mut net, 1000 + n as u32);
        let heard = uplink(&mut net, at, mm(0x59, failure));
        assert!(!types(&heard).contains(&MessageType::SecurityModeCommand), "{failure:02x?}");
    }
    net.settle(SECOND * 90);
    assert_eq!(net.cta().contexts().count(), 1, "the canary alone");
    judge(&mut net, &|| "failures".into());
}

#[test] // TS 24.501 §5.4.1.3.7 e, f: a UE that answers every challenge with a failure to synchronise, or "in use", is given up
fn a_ue_that_never_synchronises() {
    for failure in [vec![0x47], [&[0x15, 0x30, 14][..], &[7; 14]].concat()] {
        let mut net = ready(10);
        let mut at = challenged(&mut net, 7);
        let mut challenges = 1;
        for _ in 0..100 {
            let heard = uplink(&mut net, at, mm(0x59, &failure));
            challenges += types(&heard).iter().filter(|t| **t == MessageType::AuthenticationRequest).count();
            match names(&heard) {
                Some(names) if !released(&heard) => at = names,
                _ => break,
            }
        }
        assert!(challenges <= 4, "{challenges} challenges");
        net.settle(SECOND * 60);
        assert_eq!(net.cta().occupancy(), (1, 0), "the canary alone");
        judge(&mut net, &|| format!("{failure:02x?}"));
    }
}

#[test] // TS 24.501 §5.4.1.2.4: under EAP-AKA', without its message, with octets that are none, and with RES* instead
fn an_eap_response_that_is_none() {
    let answers: [Vec<u8>; 6] = [
        vec![],
        [&[0x2d, 16][..], &[7; 16]].concat(),
        vec![0x78, 0, 0],
        vec![0x78, 0, 4, 3, 1, 0, 4],
        vec![0x78, 0, 8, 2, 1, 0, 200, 50, 1, 0, 0],
        [&[0x78, 0x05, 0xdc][..], &[2; 1500]].concat(),
    ];
    for answer in answers {
        let mut net = ready(11);
        let supi = whimbrel_sim::ue_config(7).supi;
        net.home().eap_aka_prime.push(supi);
        let at = challenged(&mut net, 7);
        let heard = uplink(&mut net, at, mm(0x57, &answer));
        assert!(!types(&heard).contains(&MessageType::SecurityModeCommand), "{answer:02x?}");
        net.settle(SECOND * 60);
        assert_eq!(net.cta().occupancy(), (1, 0), "the canary alone");
        judge(&mut net, &|| format!("{answer:02x?}"));
    }
}

#[test] // TS 24.501 §7.4: unexpected completions, of a UE that is registered and of one that is not
fn completions_out_of_state() {
    let completions = [mm(0x43, &[]), mm(0x55, &[]), mm(0x46, &[]), mm(0x5e, &[]), mm(0x57, &[])];
    for complete in completions {
        let mut net = registered_victim(12);
        for _ in 0..3 {
            net.command(VICTIM, UeCommand::Say(complete.clone()));
            net.settle(SECOND);
        }
        assert!(registered(&net, VICTIM) && net.ue_ref(VICTIM).sessions().count() == 1);
        let at = challenged(&mut net, 7);
        let heard = uplink(&mut net, at, complete.clone());
        assert!(!released(&heard) || complete[2] == 0x57, "{heard:?}");
        net.settle(SECOND * 60);
        judge(&mut net, &|| format!("{complete:02x?}"));
    }
}

#[test] // TS 24.501 §5.5.2.2: it leaves and registers again in one breath, over and over
fn deregistration_followed_at_once_by_registration() {
    let mut net = registered_victim(13);
    for n in 0..40 {
        net.command(VICTIM, UeCommand::Deregister { switch_off: n % 2 == 0 });
        net.command(VICTIM, UeCommand::Register);
        net.advance(SECOND / 1000 * (n % 30));
    }
    net.settle(SECOND * 60);
    assert!(registered(&net, VICTIM));
    judge(&mut net, &|| "haste".into());
}

#[test] // TS 23.502 §4.2.2.2.2 step 14: two UEs of one SUPI on two gNBs at once: one of them has it
fn one_subscriber_on_two_gnbs() {
    for millis in 0..60 {
        let mut net = ready(14);
        let twin = net.add_ue(GnbIndex(1), net.ue_ref(VICTIM).config().clone());
        net.command(VICTIM, UeCommand::Register);
        net.advance(std::time::Duration::from_millis(millis));
        net.command(twin, UeCommand::Register);
        net.settle(SECOND * 60);
        let supi = net.ue_ref(VICTIM).config().supi;
        let known = net.cta().contexts().filter(|p| p.amf.supi == Some(supi) && p.amf.registered).count();
        assert_eq!(known, 1, "after {millis} ms");
        net.command(twin, UeCommand::Deregister { switch_off: true });
        net.settle(SECOND);
        judge(&mut net, &|| format!("a twin after {millis} ms"));
    }
}

#[test] // TS 24.501 §5.5.2.3.5 a: the accept comes after T3522 has given up
fn a_deregistration_accept_that_comes_too_late() {
    let mut net = registered_victim(15);
    let deaf = (MessageType::DeregistrationRequestUeTerminated, 99);
    net.ue_mut(VICTIM).faults_mut().ignore.push(deaf);
    deregister(&mut net, VICTIM);
    net.settle(SECOND * 60);
    assert_eq!(net.cta().occupancy(), (1, 0), "it was given up");
    net.command(VICTIM, UeCommand::Say(mm(0x46, &[])));
    let heard = first(&mut net, 9, &mm(0x46, &[]));
    assert!(released(&heard), "{heard:?}");
    judge(&mut net, &|| "a late accept".into());
}

#[test] // TS 24.501 §9.11.3.44: statuses of sessions of more and of fewer than two octets
fn bitmaps_of_sessions_of_every_length() {
    for iei in [0x50, 0x40, 0x25] {
        for n in [0usize, 1, 2, 3, 16, 32, 33, 255] {
            let mut net = registered_victim(16);
            let bitmap = [&[iei, n as u8][..], &vec![0xff; n]].concat();
            let s_tmsi = net.ue_ref(VICTIM).s_tmsi().expect("it has one");
            let tmsi = s_tmsi.tmsi.0.to_be_bytes();
            let request = [&[0x10, 0, 7, 0xf4, 0, 0x40][..], &tmsi, &bitmap].concat();
            says_instead(&mut net, mm(0x4c, &request));
            net.command(VICTIM, UeCommand::Say(vec![]));
            net.settle(SECOND);
            let request = [registration(1, &CAPABILITY), bitmap].concat();
            says_instead(&mut net, request);
            net.command(VICTIM, UeCommand::Register);
            net.settle(SECOND * 30);
            judge(&mut net, &|| format!("{iei:x} of {n} octets"));
        }
    }
}

/// What a registration and a session come to under such a subscription.
fn subscribed(seed: u64, subscription: Subscription) -> Sim {
    let mut net = ready(seed);
    net.home().subscribe(subscription);
    net.command(VICTIM, UeCommand::Register);
    net.command(VICTIM, session());
    net.settle(SECOND * 5);
    net
}

#[test] // TS 24.501 §5.5.1.2.5: a subscriber without a slice
fn a_subscription_of_no_slice() {
    let mut none = subscription();
    none.slices.clear();
    let net = subscribed(17, none);
    assert!(!registered(&net, VICTIM));
    assert!(matches!(first_refusal(&net), Some(Refusal::NoSlice { .. })), "{:?}", first_refusal(&net));
    unharmed(&net, &|| "no slice".into());
}

#[test] // TS 23.501 §5.15.5.2.1: slices without a data network, without a default, or with one that is not configured
fn subscriptions_that_lead_nowhere() {
    let mut no_dnn = subscription();
    no_dnn.slices[0].dnns.clear();
    let mut no_default = subscription();
    no_default.slices[0].default = false;
    let mut unknown = subscription();
    for d in &mut unknown.slices[0].dnns {
        d.dnn = "nowhere".parse().expect("a DNN");
    }
    for (n, subscription) in [no_dnn, no_default, unknown].into_iter().enumerate() {
        let net = subscribed(18 + n as u64, subscription);
        // Without a default slice, the UE has the one that it asks for.
        assert_eq!(net.ue_ref(VICTIM).sessions().count(), usize::from(n == 1), "subscription {n}");
        unharmed(&net, &|| format!("subscription {n}"));
    }
}

#[test] // TS 24.501 §9.11.3.37: more slices and data networks than any message has room for
fn a_subscription_of_slices_and_networks_in_abundance() {
    let mut many = subscription();
    let dnns: Vec<_> = std::iter::repeat_n(many.slices[0].dnns.clone(), 20).flatten().collect();
    let more = (2..=255u8).map(|sst| SubscribedSlice {
        s_nssai: SNssai::sst(sst),
        default: true,
        dnns: dnns.clone(),
    });
    many.slices.extend(more);
    let mut net = subscribed(21, many);
    assert!(registered(&net, VICTIM) && net.ue_ref(VICTIM).sessions().count() == 1);
    judge(&mut net, &|| "abundance".into());
    no_violations(&net);
}

#[test] // TS 24.501 §9.11.4.14, TS 38.413 §9.3.1.4: bit rates of nothing, of 4 Tbit/s and one, and of more than the message can carry
fn a_subscription_of_impossible_rates() {
    for kbps in [0, 1, 4_000_000_000, 4_000_000_001, 1 << 62, 1 << 63, u64::MAX] {
        let ambr = Ambr { ul_kbps: kbps, dl_kbps: kbps };
        let mut odd = subscription();
        odd.ue_ambr = ambr;
        for d in &mut odd.slices[0].dnns {
            d.session_ambr = ambr;
        }
        let mut net = subscribed(22, odd);
        assert!(registered(&net, VICTIM) && net.ue_ref(VICTIM).sessions().count() == 1, "{kbps}");
        judge(&mut net, &|| format!("{kbps} kbit/s"));
        no_violations(&net);
    }
}

#[test] // TS 24.501 §5.4.1.3.7 c: a cause of the UE's own choosing changes nothing of what the network thinks
fn causes_that_have_no_meaning() {
    let mut net = registered_victim(23);
    for cause in 0..=255u8 {
        net.command(VICTIM, UeCommand::Say(mm(0x64, &[cause])));
        net.command(VICTIM, UeCommand::Say(mm(0x5f, &[cause])));
        net.settle(SECOND / 10);
    }
    assert!(registered(&net, VICTIM));
    let ue = net.cta().find(net.ue_ref(VICTIM).config().supi).expect("it is registered");
    net.order(ue, CoreCommand::SubscriptionChanged);
    judge(&mut net, &|| "causes".into());
    let reported = plain(&net.take_ngap(BY_HAND));
    assert!(!reported.iter().any(|m| matches!(m, Mm::MmStatus(m) if m.cause == MmCause::Congestion)));
}
