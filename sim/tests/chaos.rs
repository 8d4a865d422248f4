//! Registrations at three in the morning: the radio loses, repeats and reorders, every timer expires, gNBs restart. With
//! seeds: the same seed gives the same octets, and so does a replay from any point where a phone was idle.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ran::ue::{Command, SessionRequest};
use whimbrel_sim::{Faults, GnbIndex, Rng, Sim, UeIndex, default_config, phone_config};

/// Five phones at two gNBs do what phones do, in a network of this quality.
fn night(seed: u64, faults: Faults) -> Sim {
    let mut net = Sim::with(seed, default_config(), faults);
    net.recorder().on = true;
    let mut rng = Rng::new(seed ^ 0x5eed);
    let gnbs = [net.add_gnb(gnb_config(1)), net.add_gnb(gnb_config(2))];
    let ues: Vec<UeIndex> = (0..5).map(|n| net.add_ue(gnbs[n as usize % 2], phone_config(n))).collect();
    for _ in 0..12 {
        for &ue in &ues {
            let command = match rng.below(8) {
                0..3 => Command::Register,
                3 => Command::ServiceRequest,
                4 => Command::PeriodicRegistration,
                5 => Command::Deregister { switch_off: rng.chance(500) },
                _ => Command::EstablishSession(SessionRequest {
                    dnn: None,
                    s_nssai: None,
                    pdu_session_type: PduSessionType::Ipv4,
                }),
            };
            net.command(ue, command);
        }
        net.advance(Duration::from_millis(rng.below(20_000)));
        if rng.chance(100) {
            net.restart_gnb(GnbIndex(rng.below(2) as usize));
        }
    }
    net
}

/// Once the network is in order again, every phone registers.
fn heals(net: &mut Sim) {
    net.set_faults(Faults::default());
    for i in 0..net.ues() {
        net.command(UeIndex(i), Command::Register);
    }
    net.advance(Duration::from_secs(1800));
    for i in 0..net.ues() {
        let ue = UeIndex(i);
        if !registered(net, ue) {
            net.command(ue, Command::Register);
        }
    }
    net.advance(Duration::from_secs(300));
    for i in 0..net.ues() {
        let last: Vec<_> = net.ue_events(UeIndex(i)).iter().rev().take(4).collect();
        assert!(
            registered(net, UeIndex(i)),
            "phone {i} does not come back: {:?} {last:?}",
            net.ue_ref(UeIndex(i)).state()
        );
    }
}

/// What must hold at any time: no two phones share a name or an address.
fn invariants(net: &Sim) {
    let phones: Vec<_> = net.cta().phones().collect();
    let mut tmsis: Vec<_> = phones.iter().filter_map(|p| p.amf.tmsi).collect();
    let mut addresses: Vec<_> =
        phones.iter().flat_map(|p| p.sessions.values().filter_map(|s| s.ipv4)).collect();
    let mut supis: Vec<_> = phones.iter().filter(|p| p.amf.registered).filter_map(|p| p.amf.supi).collect();
    for (n, unique) in [
        (tmsis.len(), {
            tmsis.sort();
            tmsis.dedup();
            tmsis.len()
        }),
        (addresses.len(), {
            addresses.sort();
            addresses.dedup();
            addresses.len()
        }),
        (supis.len(), {
            supis.sort();
            supis.dedup();
            supis.len()
        }),
    ] {
        assert_eq!(n, unique);
    }
    let sessions: usize = phones.iter().map(|p| p.sessions.len()).sum();
    assert_eq!(net.upf_sessions(), sessions, "the UPF has as many sessions as the SMF");
}

#[test]
fn every_phone_comes_back_after_the_worst_night() {
    for seed in 0..60 {
        println!("seed {seed}: cargo test -p whimbrel-sim --test chaos every_phone");
        let mut net = night(seed, Faults::worst());
        heals(&mut net);
        invariants(&net);
    }
}

#[test]
fn the_same_seed_gives_the_same_octets() {
    for seed in 0..10 {
        let digest = |net: &mut Sim| (net.recorder().digest(), net.recorder().inputs());
        let (mut a, mut b) = (night(seed, Faults::worst()), night(seed, Faults::worst()));
        assert_eq!(digest(&mut a), digest(&mut b), "seed {seed}");
        let mut other = night(seed + 1000, Faults::worst());
        assert_ne!(digest(&mut a), digest(&mut other));
    }
}

#[test] // DESIGN: replay is what makes plain code durable
fn a_phone_replays_from_every_point_where_it_was_idle() {
    let config = Arc::new(default_config());
    let mut runs = 0;
    for seed in 0..20 {
        let mut net = night(seed, Faults::worst());
        let phones: Vec<_> = net.recorder().phones().map(|(p, _)| p).collect();
        assert!(!phones.is_empty());
        for phone in phones {
            runs += net.recorder().replay(phone, &config);
        }
    }
    assert!(runs > 1000, "{runs} inputs ran again");
}
