//! Octets of an idle UE in each store of the core, counted by the allocator: `./x bench stores [UES]`.
//!
//! One UE registers, sets up a session and goes idle in the simulated network; the others are like it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use whimbrel_control::udm::{Directory, UdmAnswer, UdmRequest};
use whimbrel_control::{Checkpoint, Prf, RestVec, Shard, UeContext, UeId};
use whimbrel_ids::{GlobalGnbId, Instant, PlmnId, SNssai, Supi, Tac, Tmsi};
use whimbrel_nas::ie::PduSessionType;
use whimbrel_ngap::ie::{Cause, CauseRadioNetwork};
use whimbrel_ran::gnb::GnbConfig;
use whimbrel_ran::ue::{SessionRequest, UeCommand};
use whimbrel_resilience::Cta;
use whimbrel_security::HomeNetworkKeys;
use whimbrel_sim::{Sim, SimSubscribers, default_config, ue_config};

/// Counts what is given out.
struct Counting;

static GIVEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        GIVEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let ues = std::env::args().nth(1).map_or(Ok(65_536), |n| n.parse::<u32>());
    let Ok(ues @ 1000..=4_000_000) = ues else {
        eprintln!("usage: stores [UES], 1000 to 4000000");
        return ExitCode::FAILURE;
    };
    let first = idle_ue();
    let prf = Prf::new(&[9; 16]);
    let nth = |n: u32, id, tmsi| first.another(id, n.into(), supi(n), tmsi, &prf);
    let at = |n: u32| UeId { slot: n, generation: 1 };
    let all = |f: &mut dyn FnMut(u32)| per_ue(ues, f);

    let config = Arc::new(default_config());
    let mut decoded = Shard::new(config.clone());
    let as_it_is = all(&mut |n| decoded.restore(nth(n, at(n), Tmsi(n))));
    drop(decoded);

    let mut resting = Shard::new(config.clone());
    resting.set_rest_store(Box::new(RestVec::default()), Duration::from_secs(1));
    let at_rest = all(&mut |n| {
        resting.restore(nth(n, at(n), Tmsi(n)));
        resting.rest_idle(Instant::FAR_FUTURE, 1);
    });
    let counters = resting.rest_counters().unwrap_or_default();
    let record = counters.record_octets as f64 / counters.at_rest as f64;
    drop(resting);

    let mut directory = Directory::new(PlmnId::TEST, HomeNetworkKeys::new());
    let subscription = first.amf.subscription.clone().expect("it is registered");
    let in_directory = all(&mut |n| {
        directory.follow(
            at(n),
            &UdmRequest::Register(supi(n)),
            UdmAnswer::Registered(Ok(subscription.clone())),
        );
    });
    drop(directory);

    let mut config = default_config();
    config.limits.ues = UeId::SLOTS;
    let directory = Directory::new(PlmnId::TEST, HomeNetworkKeys::new());
    let entropy = (Prf::new(&[1; 16]), 0);
    let mut cta =
        Cta::new(Arc::new(config), directory, SimSubscribers::default(), entropy, (), Instant::ZERO);
    let in_all = all(&mut |n| assert!(cta.add_idle_ue(Instant::ZERO, |id, tmsi| nth(n, id, tmsi))));
    drop(cta);

    let checkpoint = Checkpoint::of(&first).map_or(0, |c| c.octets().len());
    let rows = [
        ("context, as it is while it is active (slot included)", as_it_is),
        ("context at rest: slot and record", at_rest),
        ("  of this, the record", record),
        ("checkpoint of the same UE, as replicas hold it", checkpoint as f64),
        ("directory: registration by SUPI", in_directory),
        ("CTA: entry by slot, deadline", in_all - as_it_is - in_directory),
        ("all of it, as it is", in_all),
        ("all of it, at rest", in_all - as_it_is + at_rest),
    ];
    println!("octets of an idle UE with one session, of {ues}; {} profiles", counters.profiles);
    for (what, octets) in rows {
        println!("{octets:>8.0}  {what}");
    }
    println!(
        "{{\"bench\": \"stores\", \"figures\": {{\"ues\": {ues}, \"decoded\": {as_it_is:.0}, \"at_rest\": {at_rest:.0}, \
         \"record\": {record:.0}, \"checkpoint\": {checkpoint}, \"directory\": {in_directory:.0}, \
         \"cta\": {:.0}}}}}",
        in_all - as_it_is - in_directory
    );
    ExitCode::SUCCESS
}

/// Octets given out for each UE. Tables that double are as full on average as they are at three quarters.
fn per_ue(ues: u32, f: &mut dyn FnMut(u32)) -> f64 {
    let before = GIVEN.load(Ordering::Relaxed);
    (0..ues).for_each(f);
    (GIVEN.load(Ordering::Relaxed) - before) as f64 / f64::from(ues)
}

fn supi(n: u32) -> Supi {
    format!("9997{n:011}").parse().expect("fifteen digits")
}

/// A UE that has registered, has a session and is idle.
fn idle_ue() -> UeContext {
    let mut net = Sim::builder(1).build();
    let id = GlobalGnbId::new(PlmnId::TEST, 1, 28).expect("28 bits");
    let address = std::net::Ipv4Addr::new(127, 0, 1, 1).into();
    let gnb = GnbConfig::new(id, Tac::new(1).expect("24 bits"), vec![SNssai::sst(1)], address);
    let gnb = net.add_gnb(gnb);
    net.settle(Duration::from_secs(1));
    let ue = net.add_ue(gnb, ue_config(1));
    net.command(ue, UeCommand::Register);
    net.settle(Duration::from_secs(1));
    let pdu_session_type = PduSessionType::Ipv4;
    net.command(
        ue,
        UeCommand::EstablishSession(SessionRequest { dnn: None, s_nssai: None, pdu_session_type }),
    );
    net.settle(Duration::from_secs(1));
    net.release(ue, Cause::RadioNetwork(CauseRadioNetwork::UserInactivity));
    net.settle(Duration::from_secs(4));
    let ue = net.cta().contexts().next().expect("it is registered").clone();
    assert!(ue.is_idle() && !ue.is_connected() && ue.sessions.len() == 1);
    ue
}
