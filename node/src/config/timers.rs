//! Durations of the network's NAS timers (TS 24.501 §10.2, §10.3).

use std::time::Duration;

use super::section::Section;
use super::value::Value;

/// The network's timers.
#[derive(Clone, Copy, Debug)]
pub struct Timers {
    pub t3502: Duration,
    pub t3512: Duration,
    pub t3522: Duration,
    pub t3550: Duration,
    pub t3555: Duration,
    pub t3560: Duration,
    pub t3570: Duration,
    pub t3591: Duration,
    pub t3592: Duration,
    pub pdu_session_address_lifetime: Duration,
    pub reflective_qos: Duration,
    pub implicit_deregistration: Duration,
    pub guard: Duration,
    pub gnb_answer: Duration,
    pub connection_idle: Duration,
    pub follow_on: Duration,
    pub session_inactivity: Duration,
}

/// The units that GPRS timer 3 can count, in seconds (TS 24.008 §10.5.7.4a): 1 to 31 of one of them.
pub(super) const GPRS_TIMER_3_UNITS_S: [u64; 7] = [2, 30, 60, 600, 3600, 36_000, 1_152_000];
/// The units that GPRS timer 2 can count, in seconds (TS 24.008 §10.5.7.4).
pub(super) const GPRS_TIMER_2_UNITS_S: [u64; 3] = [2, 60, 360];

/// Whether a duration can be coded in these units (at most 31 of one of them).
pub(super) fn is_codable(duration: Duration, units: &[u64]) -> bool {
    let (s, whole) = (duration.as_secs(), duration.subsec_nanos() == 0);
    whole && units.iter().any(|unit| s.is_multiple_of(*unit) && s / unit <= 31)
}

/// The nearest duration that can be coded.
pub(super) fn nearest(duration: Duration, units: &[u64]) -> Duration {
    let requested = duration.as_secs();
    let sendable = units.iter().flat_map(|unit| (1..=31).map(move |n| n * unit));
    Duration::from_secs(sendable.min_by_key(|s| s.abs_diff(requested)).unwrap_or(requested))
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Timers {
    let (s, min) = (Duration::from_secs, |n: u64| Duration::from_secs(n * 60));
    root.section("timers", "Timers, each with its unit: 500ms, 6s, 54min, 1h.", |k| {
        let timers = Timers {
            t3512: k.value(
                "t3512",
                min(60),
                "Periodic registration timer sent to UEs (TS 24.501 §5.3.7). The clause's default of 54min cannot be coded in \
                 GPRS timer 3; 1h can. 0s: no periodic registration.",
            ),
            t3502: k.value("t3502", min(12), "Wait after five failed registrations, sent to UEs (Table 10.2.1)."),
            t3522: k.value("t3522", s(6), "Retransmission of DEREGISTRATION REQUEST (Table 10.2.2)."),
            t3550: k.value("t3550", s(6), "Retransmission of REGISTRATION ACCEPT (Table 10.2.2)."),
            t3555: k.value("t3555", s(6), "Retransmission of CONFIGURATION UPDATE COMMAND (Table 10.2.2)."),
            t3560: k.value("t3560", s(6), "Retransmission of AUTHENTICATION REQUEST and SECURITY MODE COMMAND (Table 10.2.2)."),
            t3570: k.value("t3570", s(6), "Retransmission of IDENTITY REQUEST (Table 10.2.2)."),
            t3591: k.value("t3591", s(16), "Retransmission of PDU SESSION MODIFICATION COMMAND (Table 10.3.2)."),
            t3592: k.value("t3592", s(16), "Retransmission of PDU SESSION RELEASE COMMAND (Table 10.3.2)."),
            pdu_session_address_lifetime: k.value(
                "pdu_session_address_lifetime",
                s(120),
                "How long a session of SSC mode 3 is kept beside its successor (TS 23.501 §5.6.9.2.3).",
            ),
            reflective_qos: k.value(
                "reflective_qos",
                s(60),
                "How long a UE keeps a derived QoS rule after the last downlink packet (TS 24.501 §6.2.5.1.4.4).",
            ),
            implicit_deregistration: k.value(
                "implicit_deregistration",
                min(4),
                "Time after T3512 until a UE that has sent nothing is deregistered implicitly (TS 24.501 §5.3.7).",
            ),
            guard: k.value(
                "guard",
                s(5),
                "How long to wait for the answer of another network function. A UPF or a peer AMF behind a slow link needs longer.",
            ),
            gnb_answer: k.value(
                "gnb_answer",
                s(20),
                "How long to wait for a gNB's answer: longer than a UE waits, whose T3510 and T3517 are 15s (TS 24.501 Table 10.2.1).",
            ),
            connection_idle: k.value(
                "connection_idle",
                s(10),
                "A connection without a procedure and without a user plane is released after this time (TS 24.501 §5.3.1.3).",
            ),
            follow_on: k.value(
                "follow_on",
                s(10),
                "The same for a UE that sets Follow-on request (TS 24.501 §5.5.1.2.4) and then sends nothing.",
            ),
            session_inactivity: k.value(
                "session_inactivity",
                s(0),
                "The user plane of a session is deactivated after this time without packets; with the last one the UE's connection is released (TS 23.502 \
                 §4.3.7). In whole seconds. 0s: only gNBs detect inactivity.",
            ),
        };
        check_codable(k, "t3512", timers.t3512, &GPRS_TIMER_3_UNITS_S, "GPRS timer 3");
        check_codable(k, "t3502", timers.t3502, &GPRS_TIMER_2_UNITS_S, "GPRS timer 2");
        check_codable(k, "reflective_qos", timers.reflective_qos, &GPRS_TIMER_2_UNITS_S, "GPRS timer");
        let bounded = [
            ("t3522", timers.t3522),
            ("t3550", timers.t3550),
            ("t3555", timers.t3555),
            ("t3560", timers.t3560),
            ("t3570", timers.t3570),
            ("t3591", timers.t3591),
            ("t3592", timers.t3592),
            ("guard", timers.guard),
            ("gnb_answer", timers.gnb_answer),
            ("connection_idle", timers.connection_idle),
            ("follow_on", timers.follow_on),
        ];
        for (key, duration) in bounded {
            let is_within = (Duration::from_millis(100)..=min(10)).contains(&duration);
            k.bound(key, is_within, format!("{} is out of bounds", duration.show()), "100ms to 10min");
        }
        let inactivity = timers.session_inactivity;
        let is_measurable = inactivity.subsec_nanos() == 0 && inactivity <= min(24 * 60);
        let what = format!("{} cannot be measured by a UPF", inactivity.show());
        k.bound("session_inactivity", is_measurable, what, "whole seconds up to 24h, or 0s");
        timers
    })
}

/// Refuses a duration that the information element cannot carry, so that the UE and the core use the same.
pub(super) fn check_codable(
    k: &mut Section<'_, '_>,
    key: &str,
    duration: Duration,
    units: &[u64],
    element: &str,
) {
    k.show_bounds(key, &format!("codable in {element}"));
    if !is_codable(duration, units) {
        let what = format!("{} cannot be coded in {element}, in which UEs get it", duration.show());
        k.refuse(key, what, format!("write {}, the nearest codable value", nearest(duration, units).show()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.008 §10.5.7.4a
    fn gprs_timer_3_cannot_carry_54_minutes() {
        let m = |n: u64| Duration::from_secs(n * 60);
        assert!(!is_codable(m(54), &GPRS_TIMER_3_UNITS_S));
        assert_eq!(nearest(m(54), &GPRS_TIMER_3_UNITS_S), m(50));
        assert!(is_codable(m(60), &GPRS_TIMER_3_UNITS_S) && is_codable(m(31), &GPRS_TIMER_3_UNITS_S));
        assert!(is_codable(m(12), &GPRS_TIMER_2_UNITS_S) && is_codable(m(54), &GPRS_TIMER_2_UNITS_S));
        assert!(!is_codable(Duration::from_millis(2500), &GPRS_TIMER_2_UNITS_S));
    }
}
