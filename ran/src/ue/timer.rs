//! The UE's 5GMM timers: TS 24.501 §10.2, table 10.2.1.

use core::time::Duration;

use whimbrel_ids::Instant;

/// A timer of mobility management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Timer {
    /// Back-off of the network; no registration or service request before it ends.
    T3346,
    /// Long pause after five failed registrations.
    T3502,
    /// Awaits the answer to REGISTRATION REQUEST.
    T3510,
    /// Short pause after a failed registration.
    T3511,
    /// Periodic registration is due (T3512).
    T3512,
    /// Keeps RAND and RES* for a repeated challenge.
    T3516,
    /// Awaits the answer to SERVICE REQUEST.
    T3517,
    /// Lifetime of a SUCI.
    T3519,
    /// Awaits the network's reaction to a refused challenge.
    T3520,
    /// Awaits the answer to DEREGISTRATION REQUEST.
    T3521,
    /// Pause after five failed service requests.
    T3525,
    /// Awaits the release of the connection after a reject or a deregistration.
    T3540,
}

impl Timer {
    /// All, in the order in which they fire when due together.
    pub const ALL: [Self; 12] = [
        Self::T3346,
        Self::T3502,
        Self::T3510,
        Self::T3511,
        Self::T3512,
        Self::T3516,
        Self::T3517,
        Self::T3519,
        Self::T3520,
        Self::T3521,
        Self::T3525,
        Self::T3540,
    ];

    /// The default value; T3346 always has one from the network, and the value here is the minimum of §5.3.9.
    pub const fn default_value(self) -> Duration {
        Duration::from_secs(match self {
            Self::T3346 => 15 * 60,
            Self::T3502 => 12 * 60,
            Self::T3510 | Self::T3517 | Self::T3520 | Self::T3521 => 15,
            Self::T3511 | Self::T3540 => 10,
            Self::T3512 => 54 * 60,
            Self::T3516 => 30,
            Self::T3519 | Self::T3525 => 60,
        })
    }
}

/// The running timers.
#[derive(Clone, Debug)]
pub(super) struct UeTimers([Instant; Timer::ALL.len()]);

impl UeTimers {
    pub(super) const fn new() -> Self {
        Self([Instant::FAR_FUTURE; Timer::ALL.len()])
    }

    pub(super) fn start(&mut self, timer: Timer, now: Instant) {
        self.start_for(timer, now, timer.default_value());
    }

    pub(super) fn start_for(&mut self, timer: Timer, now: Instant, value: Duration) {
        self.0[timer as usize] = now + value;
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::FAR_FUTURE;
    }

    pub(super) fn runs(&self, timer: Timer) -> bool {
        self.0[timer as usize] != Instant::FAR_FUTURE
    }

    /// Stops the procedure timers; T3346 and T3519 go on.
    pub(super) fn stop_procedures(&mut self) {
        for timer in Timer::ALL {
            if !matches!(timer, Timer::T3346 | Timer::T3519) {
                self.stop(timer);
            }
        }
    }

    /// Removes and returns an expired timer.
    pub(super) fn expired(&mut self, now: Instant) -> Option<Timer> {
        let due = Timer::ALL.into_iter().find(|t| self.0[*t as usize] <= now)?;
        self.stop(due);
        Some(due)
    }

    pub(super) fn next(&self) -> Instant {
        self.0.into_iter().min().unwrap_or(Instant::FAR_FUTURE)
    }
}
