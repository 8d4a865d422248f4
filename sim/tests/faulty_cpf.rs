//! A CPF of the region that sends anything in the right form: it may harm its own UEs, and no other process panics.

use std::time::Duration;

use crate::common::day::of;
use crate::common::stage::session;
use crate::common::*;
use whimbrel_control::{
    AssociationId, Batch, Checkpoint, Command as CoreCommand, Disposition, Effect, N2Names, Output,
    UeContext, UeId, UpfId,
};
use whimbrel_ids::{AmfUeNgapId, Instant, RanUeNgapId, Tmsi};
use whimbrel_ran::ue::UeCommand;
use whimbrel_resilience::link::{CpfReport, PeerMessage, UeCheckpoint};
use whimbrel_resilience::replication::CpfId;
use whimbrel_sim::{Rng, Sim, ue_config};

/// Any number, mostly the one that would be true.
fn number(rng: &mut Rng, true_one: u64) -> u64 {
    match rng.draw() % 12 {
        0 => 0,
        1 => u64::MAX,
        2 => rng.draw(),
        3 => true_one.wrapping_add(1),
        4 => true_one.wrapping_sub(1),
        _ => true_one,
    }
}

/// Anything, or the beginning of something.
fn octets(rng: &mut Rng) -> Vec<u8> {
    const BEGINNINGS: [&[u8]; 6] = [
        &[],
        &[0x21, 52, 0, 12],
        &[0x20, 5, 0, 8],
        &[0x00, 0x09, 0x00],
        &[0x20, 0x19, 0x00],
        &[0x00, 0x1d, 0x00],
    ];
    let mut octets = BEGINNINGS[rng.draw() as usize % BEGINNINGS.len()].to_vec();
    octets.extend((0..rng.draw() % 24).map(|_| rng.draw() as u8));
    octets
}

fn names(rng: &mut Rng) -> Option<N2Names> {
    let amf_ue_ngap_id = AmfUeNgapId::new(number(rng, 1 << 20))?;
    Some(N2Names {
        association: AssociationId(number(rng, 1) as u32),
        amf_ue_ngap_id,
        ran_ue_ngap_id: (!rng.draw().is_multiple_of(2)).then(|| RanUeNgapId(number(rng, 1) as u32)),
    })
}

fn effect(rng: &mut Rng) -> Effect {
    let upf = UpfId(number(rng, 0) as u8);
    let octets = octets(rng);
    match rng.draw() % 4 {
        0 => Effect::N2 { association: AssociationId(number(rng, 1) as u32), octets },
        1 => Effect::N4 { upf, octets },
        2 => Effect::N4Answer { upf, octets },
        _ => Effect::Page { tais: Vec::new(), near: Vec::new(), cells: Vec::new(), octets },
    }
}

fn batch(rng: &mut Rng) -> Batch {
    let output = |rng: &mut Rng| Output { effect: effect(rng), downlink_count: Some(number(rng, 3) as u32) };
    let disposition = [
        Disposition::Keep,
        Disposition::Keep,
        Disposition::OtherUe,
        Disposition::Elsewhere(Tmsi(rng.draw() as u32)),
        Disposition::Ended,
    ];
    Batch {
        outputs: (0..rng.draw() % 4).map(|_| output(rng)).collect(),
        next_deadline: (!rng.draw().is_multiple_of(2)).then(|| Instant(number(rng, 1 << 30))),
        idle: !rng.draw().is_multiple_of(2),
        no_effect: rng.draw().is_multiple_of(3),
        tmsi_taken: !rng.draw().is_multiple_of(2),
        connected: names(rng),
        target: names(rng),
        fault: rng.draw().is_multiple_of(8),
        authenticated: !rng.draw().is_multiple_of(2),
        disposition: disposition[rng.draw() as usize % disposition.len()],
        ..Batch::default()
    }
}

/// A report about a UE whose newest input has this clock.
fn report(rng: &mut Rng, ue: UeId, at: u64) -> CpfReport {
    let term = number(rng, 1) as u32;
    let clock = number(rng, at + 1);
    match rng.draw() % 6 {
        0 => CpfReport::Poisoned { ue, term, inputs: (number(rng, at), number(rng, at)) },
        1 => CpfReport::CheckpointHeld { ue, term, clock },
        2 => CpfReport::CheckpointUnusable { ue, term },
        _ => CpfReport::Ran { ue, term, clock, from: None, batch: Box::new(batch(rng)) },
    }
}

fn state(rng: &mut Rng, ue: UeId, at: u64) -> PeerMessage {
    let mut of = UeContext::new(ue);
    of.clock = number(rng, at + 1);
    let (term, clock) = (number(rng, 1) as u32, of.clock);
    PeerMessage::State(UeCheckpoint { ue, term, clock, state: Checkpoint::of(&of).expect("it rests") })
}

#[test] // also during a procedure of its UE, when its report is the next expected message
fn no_process_panics_whatever_a_faulty_cpf_sends() {
    let (mut ran, mut fenced) = (0, 0);
    for seed in 0..300 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut stage = of(Sim::builder(seed).cpfs(3, 1).build(), 1);
        let ue = stage.ues[0];
        let net = &mut stage.net;
        net.has_faulty_cpfs();
        net.command(ue, UeCommand::Register);
        net.command(ue, session());
        net.settle(SECOND);
        for _ in 0..4 {
            let doing = [UeCommand::ServiceRequest, UeCommand::Register, UeCommand::Register, session()];
            net.command(ue, doing[rng.draw() as usize % doing.len()].clone());
            for _ in 0..60 {
                net.advance(Duration::from_micros(rng.draw() % 200));
                let Some((context, clock)) = net.contexts().next().map(|p| (p.id, p.clock)) else { break };
                let Some(faulty) = net.cta().served_by(context) else { break };
                let any = |rng: &mut Rng| CpfId(1 + (rng.draw() % 3) as u16);
                let from = if !rng.draw().is_multiple_of(8) { faulty } else { any(&mut rng) };
                if rng.draw().is_multiple_of(4) {
                    net.order(context, CoreCommand::NotifyReachable); // it is asked something, and says this
                }
                net.inject_from_cpf(from, report(&mut rng, context, clock));
                if rng.draw().is_multiple_of(8) {
                    net.inject_between_cpfs(from, any(&mut rng), state(&mut rng, context, clock));
                }
            }
            net.advance(SECOND * 3);
        }
        let counts = net.cta().replication_counters();
        (ran, fenced) = (ran + counts.diverged + counts.poisoned, fenced + counts.fenced);
        // Other UEs are served.
        let other = net.add_ue(stage.gnbs[0], ue_config(9));
        net.command(other, UeCommand::Register);
        net.advance(SECOND * 30);
        assert!(registered(net, other), "seed {seed}");
    }
    assert!(ran > 100 && fenced > 1000, "{ran} reports were accepted, {fenced} were not");
}
