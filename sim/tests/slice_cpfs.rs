//! CPFs that serve the UEs of one slice (docs/unit.md, "Which CPF serves a UE"): those of another slice do not notice when one of them dies.

use std::sync::Arc;

use whimbrel_ids::SNssai;
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{Profile, UeCommand};
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{CpfLoss, Sim, UeIndex, default_config, ue_config};

use crate::common::day::{Stage, live};
use crate::common::stage::session;
use crate::common::*;

/// The CPFs of slice 2, beside three that serve all other UEs.
const OF_SLICE: [CpfId; 2] = [CpfId(4), CpfId(5)];

fn slice() -> SNssai {
    SNssai::sst(2)
}

/// Every second UE is of slice 2.
fn is_of_slice(n: u32) -> bool {
    n.is_multiple_of(2)
}

fn gnb(n: u32) -> GnbConfig {
    let mut config = gnb_config(n);
    config.supported_tas[0].plmns[0].1 = vec![SNssai::sst(1), slice()];
    config
}

/// Two gNBs and UEs of two slices, of which the second has two CPFs of its own. Each UE has one replica.
fn two_slices(seed: u64, ues: u32) -> Stage {
    let mut config = default_config();
    config.amf.slices.push(slice());
    let mut net = Sim::builder(seed).config(config).cpfs(3, 1).build();
    for cpf in OF_SLICE {
        assert_eq!(net.add_cpf_of_slice(slice()), Some(cpf));
    }
    let gnbs = [1, 2].map(|n| net.add_gnb(gnb(n)));
    net.settle(SECOND);
    let mut add = |n| {
        let mut config = ue_config(n);
        if is_of_slice(n) {
            config.profile = Arc::new(Profile::new(whimbrel_ids::PlmnId::TEST, vec![slice()]));
            let mut subscription = subscription();
            subscription.slices[0].s_nssai = slice();
            net.home().subscribe_one(config.supi, subscription);
        }
        net.add_ue(gnbs[0], config)
    };
    let ues = (1..=ues).map(&mut add).collect();
    Stage { net, gnbs, ues }
}

/// Registered, each with a session.
fn served(seed: u64, ues: u32) -> Stage {
    let mut stage = two_slices(seed, ues);
    for command in [UeCommand::Register, session()] {
        all_do(&mut stage, &command);
    }
    stage
}

fn all_do(stage: &mut Stage, command: &UeCommand) {
    for ue in stage.ues.clone() {
        stage.net.command(ue, command.clone());
    }
    stage.net.settle(SECOND * 2);
}

/// All UEs become idle and active again: each may move to another CPF then.
fn come_again(stage: &mut Stage) {
    for ue in stage.ues.clone() {
        go_idle(&mut stage.net, ue);
    }
    all_do(stage, &UeCommand::ServiceRequest);
    assert!(stage.ues.iter().all(|ue| stage.net.ue_ref(*ue).is_connected()));
}

/// Where a UE is served, and the CPFs that have its state.
fn cpfs_of(stage: &Stage, ue: UeIndex) -> (CpfId, Vec<CpfId>) {
    let supi = stage.net.ue_ref(ue).config().supi;
    let ue = stage.net.cta().find(supi).expect("it is registered");
    (stage.net.cta().served_by(ue).expect("it is served"), stage.net.cta().backed_by(ue))
}

/// Those of all UEs: of slice 2, and of the other one.
fn placed(stage: &Stage) -> [Vec<(CpfId, Vec<CpfId>)>; 2] {
    let of = |own| {
        let ues = (1..).zip(&stage.ues).filter(move |(n, _)| is_of_slice(*n) == own);
        ues.map(|(_, ue)| cpfs_of(stage, *ue)).collect()
    };
    [of(true), of(false)]
}

/// No UE was lost, or registered again.
fn unnoticed(stage: &Stage) {
    let counts = stage.net.cta().replication_counters();
    assert_eq!((counts.lost, counts.diverged, counts.moves_given_up), (0, 0, 0));
    assert_eq!(stage.net.agree(), Ok(()));
    no_violations(&stage.net);
}

#[test]
fn ues_of_a_slice_are_served_by_its_cpfs_and_others_are_not() {
    let stage = served(1, 12);
    let [own, others] = placed(&stage);
    for (primary, replicas) in own {
        assert!(OF_SLICE.contains(&primary), "{primary:?}");
        assert_eq!(replicas.len(), 1);
    }
    for (primary, replicas) in others {
        assert!(!OF_SLICE.contains(&primary), "{primary:?}");
        assert_eq!(replicas.len(), 1);
    }
    unnoticed(&stage);
}

#[test]
fn a_cpf_of_a_slice_that_dies_moves_no_ue_of_another_slice() {
    let mut stage = served(2, 12);
    let [own, others] = placed(&stage);
    let victim = own[0].0;
    let served = own.iter().filter(|(primary, _)| *primary == victim).count() as u64;
    stage.net.lose_cpf(victim);
    stage.net.settle(SECOND);
    let counts = stage.net.cta().replication_counters();
    assert_eq!(counts.cpfs_lost, 1);
    assert!((1..=served).contains(&counts.taken_over), "only UEs that it served are taken over: {counts:?}");
    let [after, others_after] = placed(&stage);
    assert_eq!(others_after, others);
    for ((before, holders), (primary, replicas)) in own.iter().zip(&after) {
        let stays = primary == before && before != &victim;
        assert!(stays || holders.contains(primary), "a CPF that had its state serves it");
        assert_eq!(replicas.len(), 1);
    }
    come_again(&mut stage);
    let [after, others_after] = placed(&stage);
    let other = OF_SLICE.into_iter().find(|cpf| *cpf != victim);
    assert!(after.iter().all(|(primary, _)| Some(*primary) == other), "the other CPF of the slice serves it");
    assert_eq!(others_after, others);
    unnoticed(&stage);
}

#[test] // docs/unit.md: while a slice has no CPF, the others serve its UEs
fn ues_of_a_slice_without_cpfs_are_served_by_the_others_until_it_has_one_again() {
    let mut stage = served(3, 12);
    let [_, others] = placed(&stage);
    for cpf in OF_SLICE {
        stage.net.lose_cpf(cpf);
        stage.net.settle(SECOND);
    }
    let [own, others_after] = placed(&stage);
    assert!(own.iter().all(|(primary, _)| !OF_SLICE.contains(primary)));
    assert_eq!(others_after, others);
    come_again(&mut stage);
    unnoticed(&stage);
    let new = stage.net.add_cpf_of_slice(slice()).expect("there is a region");
    stage.net.settle(SECOND);
    come_again(&mut stage);
    let [own, others_after] = placed(&stage);
    assert!(own.iter().all(|(primary, _)| *primary == new), "each has moved with its next procedure");
    assert!(others_after.iter().all(|(primary, _)| *primary != new));
    unnoticed(&stage);
}

#[test]
fn no_ue_of_either_slice_notices_a_cpf_that_is_lost_at_any_message() {
    let day = |message: Option<(u64, CpfLoss)>| {
        let mut stage = two_slices(4, 2);
        if let Some((message, how)) = message {
            stage.net.lose_cpf_at(message, how);
        }
        live(&mut stage, &|| format!("{message:?}"));
        stage
    };
    let taken = day(None).net.links_taken();
    let mut of_slice = 0;
    for (message, how) in (1..=taken).step_by(37).zip(CpfLoss::ALL.into_iter().cycle()) {
        let stage = day(Some((message, how)));
        let counts = stage.net.cta().replication_counters();
        assert_eq!((counts.lost, counts.diverged), (0, 0), "{how:?} at message {message} of {taken}");
        of_slice += OF_SLICE.iter().filter(|cpf| !stage.net.has_cpf(**cpf)).count();
    }
    assert!(of_slice > 0, "one of the slice was among them");
}
