//! Canary UEs: whatever the others do, these register, open a session, ping, sleep, are paged, return and leave, each
//! step within its time, on gNBs of their own.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use whimbrel_ran::cells::GnbId;
use whimbrel_ran::edge::{self, Mode, RunnerConfig, Watch};
use whimbrel_ran::fleet::ProvisionedUe;
use whimbrel_ran::scenario::{ArrivalPattern, Scenario, SessionStep, Step};
use whimbrel_ran::ue::{Event, UeConfig};
use whimbrel_ran::{UeId, gnb};

use crate::program::{CORE, GATEWAY};
use crate::radio;

/// Canaries that begin in a second.
const RATE: f64 = 4.0;
/// How long a step may take, on a host whose cores others use as well.
const PATIENCE_S: f64 = 12.0;
/// From idle mode to the packet for which the UE is paged, and from there to the next: the sender tries again.
const PAGED_AFTER: Duration = Duration::from_millis(60);
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What became of the canaries.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) completed: AtomicU64,
    failure: Mutex<Option<String>>,
}

impl Health {
    /// The first thing that went wrong.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().ok()?.clone()
    }

    fn complain(&self, what: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(what);
        }
    }
}

struct Keeper {
    health: Arc<Health>,
    stop: Arc<AtomicBool>,
    addresses: BTreeMap<UeId, Ipv4Addr>,
    /// Every second sleep is ended by paging, the others by the UE itself.
    sleeps: BTreeMap<UeId, u32>,
    wake: BTreeMap<UeId, Instant>,
    waker: UdpSocket,
    failed: bool,
}

impl Watch for Keeper {
    fn progress(&mut self, completed: u64, failed: u64, _: u64) {
        self.health.completed.store(completed, Ordering::Relaxed);
        self.failed |= failed > 0;
    }

    fn gnb(&mut self, gnb: GnbId, event: &gnb::Event) {
        if let gnb::Event::Violation { violation, .. } = event {
            self.health.complain(format!("the canaries' gNB {}: {violation}", gnb.0));
        }
    }

    fn ue(&mut self, ue: UeId, event: &Event) {
        match event {
            Event::SessionUp { session, .. } => {
                self.addresses.extend(session.ipv4.map(|a| (ue, a)));
                self.sleeps.insert(ue, 0);
            }
            Event::Idle => {
                let sleeps = self.sleeps.entry(ue).or_default();
                *sleeps += 1;
                if *sleeps % 2 == 1 {
                    self.wake.insert(ue, Instant::now() + PAGED_AFTER);
                }
            }
            Event::Paged => drop(self.wake.remove(&ue)),
            Event::Violation(_) | Event::Discarded(_) | Event::Status(_) | Event::SessionStatus(_) => {
                self.health.complain(format!("canary {ue}: {event:?}"));
            }
            _ => {}
        }
    }

    fn stop(&mut self) -> bool {
        let now = Instant::now();
        for (ue, at) in self.wake.iter_mut().filter(|(_, at)| **at <= now) {
            *at = now + TRIED_AGAIN_AFTER;
            if let Some(address) = self.addresses.get(ue) {
                let _ = self.waker.send_to(b"wake", (*address, 9));
            }
        }
        self.failed || self.stop.load(Ordering::Relaxed)
    }
}

/// Runs canaries until `over` is set, or until one fails. The failure is in `health`.
pub(crate) fn keep(ues: &[ProvisionedUe], seconds: f64, health: Arc<Health>, stop: Arc<AtomicBool>) {
    let ping = || Step::Ping(GATEWAY.to_string());
    let steps = vec![
        Step::Register,
        Step::Session(SessionStep::default()),
        ping(),
        Step::Idle,
        Step::Paged,
        ping(),
        Step::Idle,
        Step::Wait(0.2),
        Step::Return,
        ping(),
        Step::Deregister,
    ];
    let scenario = Scenario {
        ues: ues.len() as u32,
        gnbs: 2,
        before: Vec::new(),
        before_rate: 500.0,
        arrival: ArrivalPattern::Rates { rates: vec![RATE], seconds: seconds.min(86_000.0) },
        steps,
        patience_s: PATIENCE_S,
        again: true,
        tun: false,
        groups: Vec::new(),
        seconds: 0.0,
    };
    let address = |n: u8| IpAddr::V4(Ipv4Addr::new(127, 0, 1, n));
    let config = RunnerConfig {
        amf: vec![CORE.into()],
        amf_port: 38412,
        sctp: Mode::Udp,
        sctp_udp_ports: (9899, 9899),
        // Far from the names of the others' gNBs: no few flipped bits make one of the other.
        gnbs: (1..=2).map(|n| radio::place(0x0abc_de00 | u32::from(n), address(n))).collect(),
        ues: ues.iter().map(radio::ue).collect::<Vec<UeConfig>>(),
        scenario,
        seed: 1,
        namespace: None,
        hold: false,
        spin: Duration::ZERO,
        hop_delay: Duration::ZERO,
    };
    let waker = match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
        Ok(waker) => waker,
        Err(e) => return health.complain(format!("no socket to wake canaries with: {e}")),
    };
    let mut keeper = Keeper {
        health: health.clone(),
        stop: stop.clone(),
        addresses: BTreeMap::new(),
        sleeps: BTreeMap::new(),
        wake: BTreeMap::new(),
        waker,
        failed: false,
    };
    match edge::run(&config, &mut keeper) {
        Ok(reports) => {
            for report in reports {
                if let Some(f) = report.failures.first() {
                    health.complain(format!("canary {} failed in {}: {}", f.supi, f.step, f.reason));
                }
                if let Some(v) = report.violations.first() {
                    health.complain(format!("a canary's violation: {v}"));
                }
                if report.starved > 0 {
                    health.complain(format!("canaries take too long: {} found no UE free", report.starved));
                }
            }
        }
        Err(e) => health.complain(format!("the canaries could not begin: {e}")),
    }
}
