//! Access to the memory of a process that has keys of UEs.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tracing::{info, warn};

/// Environment variable that an operator sets to 1 to debug the program: see [`close`].
const CORE_DUMPS: &str = "WHIMBREL_CORE_DUMPS";

/// Closes the memory and the descriptors of this process to other processes of its user (`/proc/PID/mem`, ptrace(2), pidfd_getfd(2)): the packet parser of a unit
/// is such a process. The kernel writes no core dump of this process then, unless `WHIMBREL_CORE_DUMPS=1` leaves it open.
///
/// Files of `/proc/PID` belong to root from then on. Those that everybody may read stay readable; a /proc that hides processes (hidepid) hides this one from its user.
pub fn close() {
    if std::env::var_os(CORE_DUMPS).is_some_and(|value| value == "1") {
        info!("other processes of this user can read the memory of this one: {CORE_DUMPS} is set");
        return;
    }
    if let Err(e) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        warn!("other processes of this user can read the memory of this one: {e}");
    }
}
