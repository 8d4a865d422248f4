//! The faults of one run, drawn from its seed.

use std::fmt;
use std::time::Duration;

use crate::{CpfLoss, CtaLoss, Faults, Rng, UpfLoss};

/// The faults of one run, and how often each occurs. [`FaultProfile::draw`] leaves each kind out of a part of the runs (swarm testing): a kind
/// that ends procedures early would otherwise hide in all of them what another one finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultProfile {
    /// Radio and N2.
    pub faults: Faults,
    /// In so many of a thousand steps a gNB restarts.
    pub gnb_restarts: u64,
    /// Likewise NG RESET by a gNB.
    pub gnb_resets: u64,
    /// AN release because of user inactivity.
    pub an_releases: u64,
    /// A UPF restarts.
    pub upf_restarts: u64,
    /// A UPF is unreachable until a later step, or its answers are lost.
    pub upf_outages: u64,
    /// A CPF is lost.
    pub cpf_losses: u64,
    /// In which ways; not empty.
    pub cpf_loss_kinds: Vec<CpfLoss>,
    /// The CTA is lost, if it has a replica.
    pub cta_losses: u64,
    /// In which ways; not empty.
    pub cta_loss_kinds: Vec<CtaLoss>,
    /// A link between processes of the core is cut.
    pub partitions: u64,
    /// For how long at most.
    pub partition_max: Duration,
    /// Of a thousand messages between CPFs so many are lost.
    pub lossy_links: u64,
    /// The core without a CTA replica is stopped in order and starts again with the UEs that it has stored.
    pub core_restarts: u64,
    /// Likewise it is killed: it stores UEs all the time then.
    pub core_kills: u64,
    /// The UPF of a unit dies; where it never does, it has no replica. Units are the cores with a CTA replica.
    pub upf_deaths: u64,
    /// In which ways; not empty.
    pub upf_death_kinds: Vec<UpfLoss>,
    /// The manager of a unit dies.
    pub manager_losses: u64,
    /// For how long there is none at most.
    pub manager_absent_max: Duration,
}

impl FaultProfile {
    /// Everything fails often, but the core as a whole, the UPF and the manager of a unit, and links between CPFs, which neither lose messages nor are cut.
    pub fn worst() -> Self {
        Self {
            faults: Faults::worst(),
            gnb_restarts: 100,
            gnb_resets: 50,
            an_releases: 50,
            upf_restarts: 25,
            upf_outages: 50,
            cpf_losses: 700,
            cpf_loss_kinds: CpfLoss::ALL.to_vec(),
            cta_losses: 400,
            cta_loss_kinds: CtaLoss::ALL.to_vec(),
            partitions: 0,
            partition_max: Duration::ZERO,
            lossy_links: 0,
            core_restarts: 0,
            core_kills: 0,
            upf_deaths: 0,
            upf_death_kinds: UpfLoss::ALL.to_vec(),
            manager_losses: 0,
            manager_absent_max: Duration::ZERO,
        }
    }

    /// That of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5a_a3);
        let mut restarts = Rng::new(seed ^ 0x7e_57);
        let mut of_core = || if restarts.chance(500) { 0 } else { 1 + restarts.below(60) };
        let mut unit = Rng::new(seed ^ 0x0b_e5);
        let (upf_deaths, manager_losses) =
            [900, 400].map(|max| if unit.chance(400) { 0 } else { 1 + unit.below(max) }).into();
        // Absent from every fourth run, else up to the maximum.
        let mut rate = |max: u64| if rng.chance(250) { 0 } else { 1 + rng.below(max) };
        let faults = Faults {
            lost_per_mille: rate(150),
            repeated_per_mille: rate(150),
            reordered_per_mille: rate(150),
            first_repeated_per_mille: rate(40),
            radio_latency_micros: (2_000, 3_000 + 100 * rate(1_000)),
            ..Faults::default()
        };
        Self {
            faults,
            gnb_restarts: rate(200),
            gnb_resets: rate(100),
            an_releases: rate(100),
            upf_restarts: rate(50),
            upf_outages: rate(100),
            cpf_losses: rate(800),
            cta_losses: rate(500),
            partitions: rate(500),
            partition_max: Duration::from_millis(100 + rate(3_000)),
            lossy_links: if rate(1) == 0 { rate(300) } else { 0 },
            cpf_loss_kinds: some(&mut rng, &CpfLoss::ALL),
            cta_loss_kinds: some(&mut rng, &CtaLoss::ALL),
            core_restarts: of_core(),
            core_kills: of_core(),
            upf_deaths,
            upf_death_kinds: some(&mut unit, &UpfLoss::ALL),
            manager_losses,
            manager_absent_max: Duration::from_millis(20 + unit.below(20_000)),
        }
    }
}

/// Each with even chance, and at least one.
pub(crate) fn some<T: Copy>(rng: &mut Rng, all: &[T]) -> Vec<T> {
    let mut chosen: Vec<T> = all.iter().copied().filter(|_| rng.chance(500)).collect();
    if chosen.is_empty() {
        chosen.push(all[rng.below(all.len() as u64) as usize]);
    }
    chosen
}

impl fmt::Display for FaultProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = &self.faults;
        write!(
            f,
            "per mille of NAS messages: lost {}, repeated {}, reordered {}, first repeated {}; radio latency up to {} us; \
             per mille of steps: gNB restart {}, NG RESET {}, AN release {}, UPF restart {}, UPF outage {}, CPF loss {} {:?}, CTA loss {} {:?}, \
             partition {} of up to {:?}; per mille of messages between CPFs lost {}; per mille of steps: restart of the core {}, kill of it {}, \
             death of a unit's UPF {} {:?}, of its manager {}, which is absent for up to {:?}",
            faults.lost_per_mille,
            faults.repeated_per_mille,
            faults.reordered_per_mille,
            faults.first_repeated_per_mille,
            faults.radio_latency_micros.1,
            self.gnb_restarts,
            self.gnb_resets,
            self.an_releases,
            self.upf_restarts,
            self.upf_outages,
            self.cpf_losses,
            self.cpf_loss_kinds,
            self.cta_losses,
            self.cta_loss_kinds,
            self.partitions,
            self.partition_max,
            self.lossy_links,
            self.core_restarts,
            self.core_kills,
            self.upf_deaths,
            self.upf_death_kinds,
            self.manager_losses,
            self.manager_absent_max,
        )
    }
}
