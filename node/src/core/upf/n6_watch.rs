//! Problems on N6, looked for now and then: changes of other programs on the host, and outside ports
//! that are too few.

use std::time::Duration;

use tracing::{info, warn};
use whimbrel_ids::Instant;
use whimbrel_user::FirewallCounters;
use whimbrel_user_io::{HostProblem, HostReport};

/// How long the alarm about outside ports stays after the last UE that got none, or lost one.
const PORTS_ALARM: Duration = Duration::from_secs(60);

/// State of N6 at the last check; the next check logs only what is new.
#[derive(Default)]
pub(super) struct N6Watch {
    pub(super) problems: Vec<HostProblem>,
    /// Ports of each data network that UEs gave up, and packets of all that were dropped because no port was
    /// free.
    ports_given_up: Vec<u64>,
    without_port: u64,
    /// Data networks whose outside addresses are too few, until when.
    pub(super) short_of_ports: Vec<(usize, Instant)>,
    pub(super) is_truncated: bool,
}

impl N6Watch {
    /// Logs what is new in what was found on the host.
    pub(super) fn log(&mut self, report: HostReport, is_truncated: bool) {
        report.put_back.iter().for_each(|line| warn!("N6: {line}"));
        for problem in report.problems.iter().filter(|p| !self.problems.contains(p)) {
            warn!("N6: {problem}");
        }
        for problem in self.problems.iter().filter(|p| !report.problems.contains(p)) {
            info!("N6: solved: {problem}");
        }
        self.problems = report.problems;
        if is_truncated && !std::mem::replace(&mut self.is_truncated, true) {
            warn!("N6: {TRUNCATED}");
        }
    }

    /// Looks for UEs that have got no outside port, or lost one.
    pub(super) fn count_ports(&mut self, now: Instant, firewalls: &[FirewallCounters], without_port: u64) {
        self.ports_given_up.resize(firewalls.len(), 0);
        let some_without = without_port > std::mem::replace(&mut self.without_port, without_port);
        for (n, (firewall, before)) in firewalls.iter().zip(&mut self.ports_given_up).enumerate() {
            let given_up = firewall.ports_given_up;
            let more = given_up > std::mem::replace(before, given_up);
            if more || some_without && firewall.ports > 0 {
                if self.short_of_ports.iter().all(|(of, _)| *of != n) {
                    warn!("N6: outside addresses of a data network have no free port");
                }
                self.short_of_ports.retain(|(of, _)| *of != n);
                self.short_of_ports.push((n, now + PORTS_ALARM));
            }
        }
        self.short_of_ports.retain(|(_, until)| now < *until);
    }
}

/// The alarm about a state file that became shorter.
pub(super) const TRUNCATED: &str = "another process has truncated the file in which the sessions of the UPF are kept, so those that begin now are lost when it ends; \
                         fix: restart the UPF, and keep others from its folder";
