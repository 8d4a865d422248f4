//! Keys that former versions had, and that no network could set better than the program: a file that has one is
//! refused with the value that is in force, since the nearest name that is left would be the wrong fix.

/// Dotted paths, each with the value that the program uses.
pub(super) const REMOVED_KEYS: [(&str, &str); 8] = [
    ("cluster.lease", "a CTA's lease at etcd is 5s"),
    ("cluster.outdated_after", "a replica that lags is replaced after 30s"),
    ("limits.remembered_flows", "the UPF's flow cache has room for 262144 flows"),
    ("overload.start_samples", "overload begins after 3 late samples in a row"),
    ("overload.stop_delay_ms", "overload can end when messages wait less than 100 ms"),
    ("timers.release_delay", "a connection on which a UE may register again is kept for 200ms"),
    ("timers.session_setup", "a gNB has 64s to set up a session"),
    ("unit.shared_memory", "functions use shared memory where the host permits it"),
];

/// The value in force for a key that is no longer one.
pub(super) fn value_in_force(path: &str) -> Option<&'static str> {
    REMOVED_KEYS.iter().find(|(key, _)| *key == path).map(|(_, value)| *value)
}
