//! The faults of one run with several operators and brokers, drawn from its seed.

use std::fmt;
use std::time::Duration;

use super::brokers::BrokerCrash;
use crate::fault_profile::some;
use crate::{CpfLoss, CtaLoss, Faults, Rng};

/// The links between operators and brokers: rates per thousand messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SapLinks {
    /// Greatest latency; each message has its own, so that questions overtake one another.
    pub latency_max: Duration,
    /// Messages that are lost with their connection.
    pub lost: u64,
    /// Questions that arrive twice.
    pub repeated: u64,
    /// Questions that arrive once more after up to [`SapLinks::REPLAYED_AFTER_MAX`].
    pub replayed: u64,
    /// Answers in whose place the broker's answer before arrives.
    pub mixed: u64,
}

impl SapLinks {
    /// Links without faults.
    pub const GOOD: Self =
        Self { latency_max: Duration::from_millis(8), lost: 0, repeated: 0, replayed: 0, mixed: 0 };
    /// Within the time in which the clocks of operator and broker may differ.
    pub const REPLAYED_AFTER_MAX: Duration = Duration::from_secs(90);
}

/// The faults of one run. [`OpenFaults::draw`] leaves each kind out of a part of the runs (swarm testing). Rates are per thousand steps
/// unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFaults {
    /// Radio and N2.
    pub faults: Faults,
    /// The radio of a UE passes nothing for a while.
    pub radio_cuts: u64,
    /// N2 of a gNB passes nothing for a while.
    pub n2_cuts: u64,
    /// A link between processes of a core passes nothing for a while.
    pub core_cuts: u64,
    /// The link between an operator and a broker passes nothing for a while.
    pub sap_cuts: u64,
    /// For how long at most, each of these.
    pub cut_max: Duration,
    /// Of a thousand messages between CPFs so many are lost.
    pub lossy_links: u64,
    /// A CPF is lost.
    pub cpf_losses: u64,
    /// In which ways; not empty.
    pub cpf_loss_kinds: Vec<CpfLoss>,
    /// A CTA is lost.
    pub cta_losses: u64,
    /// In which ways; not empty.
    pub cta_loss_kinds: Vec<CtaLoss>,
    /// A broker is lost.
    pub broker_losses: u64,
    /// In which ways; not empty.
    pub broker_loss_kinds: Vec<BrokerCrash>,
    /// For how long a lost broker is away at most.
    pub downtime_max: Duration,
    /// How long a broker takes at most to make a batch durable.
    pub commit_max: Duration,
    /// Operators and brokers.
    pub sap: SapLinks,
    /// A UE loses its power.
    pub power_losses: u64,
    /// A broker suspects a user for a while.
    pub suspicions: u64,
    /// A broker finds operators too dear for a while.
    pub price_caps: u64,
    /// A broker begins an epoch, and ends the one before the last.
    pub epochs: u64,
    /// What brokers pay for a session at most, in millionths of a unit.
    pub credit_micros: u64,
    /// How long a grant is valid, in seconds.
    pub validity_s: u64,
    /// After so many registrations a UE is authenticated again.
    pub authenticated_every: Option<u32>,
}

impl OpenFaults {
    /// Ample, in a run of minutes.
    const CREDIT_AMPLE: u64 = 1_000_000;
    /// 640 KiB downlink at 200 millionths a MiB.
    const CREDIT_SMALL: u64 = 125;

    /// Longer than a run.
    pub(super) const VALIDITY_LONG_S: u64 = 24 * 3600;

    /// No faults at all.
    pub fn none() -> Self {
        Self {
            faults: Faults::default(),
            radio_cuts: 0,
            n2_cuts: 0,
            core_cuts: 0,
            sap_cuts: 0,
            cut_max: Duration::ZERO,
            lossy_links: 0,
            cpf_losses: 0,
            cpf_loss_kinds: CpfLoss::ALL.to_vec(),
            cta_losses: 0,
            cta_loss_kinds: CtaLoss::ALL.to_vec(),
            broker_losses: 0,
            broker_loss_kinds: BrokerCrash::ALL.to_vec(),
            downtime_max: Duration::ZERO,
            commit_max: Duration::from_millis(2),
            sap: SapLinks::GOOD,
            power_losses: 0,
            suspicions: 0,
            price_caps: 0,
            epochs: 0,
            credit_micros: Self::CREDIT_AMPLE,
            validity_s: Self::VALIDITY_LONG_S,
            authenticated_every: None,
        }
    }

    /// Those of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0be_4b0b);
        // Absent from every fourth run, else up to the maximum.
        let mut rate = |max: u64| if rng.chance(250) { 0 } else { 1 + rng.below(max) };
        let faults = Faults {
            lost_per_mille: rate(100),
            repeated_per_mille: rate(100),
            reordered_per_mille: rate(100),
            first_repeated_per_mille: rate(40),
            radio_latency_micros: (2_000, 3_000 + 100 * rate(500)),
            n2_latency_micros: (100, 200 + 100 * rate(100)),
        };
        let sap = SapLinks {
            latency_max: Duration::from_millis(4 + rate(1_500)),
            lost: rate(200),
            repeated: rate(300),
            replayed: rate(300),
            mixed: rate(50),
        };
        Self {
            faults,
            radio_cuts: rate(100),
            n2_cuts: rate(100),
            core_cuts: rate(150),
            sap_cuts: rate(150),
            cut_max: Duration::from_millis(100 + rate(6_000)),
            lossy_links: if rate(1) == 0 { rate(100) } else { 0 },
            cpf_losses: rate(250),
            cta_losses: rate(200),
            broker_losses: rate(300),
            downtime_max: Duration::from_millis(1 + rate(15_000)),
            commit_max: Duration::from_micros(100 + 100 * rate(500)),
            sap,
            power_losses: rate(100),
            suspicions: rate(80),
            price_caps: rate(80),
            epochs: rate(50),
            credit_micros: if rate(1) == 0 { Self::CREDIT_AMPLE } else { Self::CREDIT_SMALL },
            validity_s: if rate(1) == 0 { 20 + rate(200) } else { Self::VALIDITY_LONG_S },
            authenticated_every: if rate(1) == 0 { Some(1 + rate(3) as u32) } else { None },
            cpf_loss_kinds: some(&mut rng, &CpfLoss::ALL),
            cta_loss_kinds: some(&mut rng, &CtaLoss::ALL),
            broker_loss_kinds: some(&mut rng, &BrokerCrash::ALL),
        }
    }
}

impl fmt::Display for OpenFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, sap, .. } = self;
        write!(
            f,
            "per mille of NAS messages: lost {}, repeated {}, reordered {}, first repeated {}; latency: radio up to {} us, N2 up to {} us, \
             operator to broker up to {:?}; per mille of questions: lost {}, repeated {}, replayed {}, answers mixed up {}; ",
            faults.lost_per_mille,
            faults.repeated_per_mille,
            faults.reordered_per_mille,
            faults.first_repeated_per_mille,
            faults.radio_latency_micros.1,
            faults.n2_latency_micros.1,
            sap.latency_max,
            sap.lost,
            sap.repeated,
            sap.replayed,
            sap.mixed,
        )?;
        write!(
            f,
            "per mille of steps: cut of a radio {}, N2 {}, core {}, broker {} of up to {:?}; loss of a CPF {} {:?}, CTA {} {:?}, broker {} {:?} \
             for up to {:?}; power lost {}, user suspected {}, price cap {}, epoch {}; commit up to {:?}; messages between CPFs lost {}; \
             credit {}, validity {} s, authenticated every {:?} registrations",
            self.radio_cuts,
            self.n2_cuts,
            self.core_cuts,
            self.sap_cuts,
            self.cut_max,
            self.cpf_losses,
            self.cpf_loss_kinds,
            self.cta_losses,
            self.cta_loss_kinds,
            self.broker_losses,
            self.broker_loss_kinds,
            self.downtime_max,
            self.power_losses,
            self.suspicions,
            self.price_caps,
            self.epochs,
            self.commit_max,
            self.lossy_links,
            self.credit_micros,
            self.validity_s,
            self.authenticated_every,
        )
    }
}
