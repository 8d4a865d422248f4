//! Durations of the network's NAS timers (TS 24.501 §10.2, §10.3).

use std::time::Duration;

use super::section::Section;
use super::value::Value;

/// The network's timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers {
    pub(crate) t3502: Duration,
    pub(crate) t3512: Duration,
    pub(crate) t3522: Duration,
    pub(crate) t3550: Duration,
    pub(crate) t3555: Duration,
    pub(crate) t3560: Duration,
    pub(crate) t3570: Duration,
    pub(crate) t3591: Duration,
    pub(crate) t3592: Duration,
    pub(crate) pdu_session_address_lifetime: Duration,
    pub(crate) reflective_qos: Duration,
    pub(crate) implicit_deregistration: Duration,
    pub(crate) guard: Duration,
    pub(crate) gnb_answer: Duration,
    pub(crate) session_setup: Duration,
    pub(crate) connection_idle: Duration,
    pub(crate) follow_on: Duration,
    pub(crate) session_inactivity: Duration,
    pub(crate) release_delay: Duration,
}

/// The units that GPRS timer 3 can count, in seconds (TS 24.008 §10.5.7.4a): 1 to 31 of one of them.
pub(super) const GPRS_TIMER_3_UNITS_S: [u64; 7] = [2, 30, 60, 600, 3600, 36_000, 1_152_000];
/// The units that GPRS timer 2 can count, in seconds (TS 24.008 §10.5.7.4).
pub(super) const GPRS_TIMER_2_UNITS_S: [u64; 3] = [2, 60, 360];

/// How long a UE waits for the release of its connection (TS 24.501 Table 10.2.1).
const T3540: Duration = Duration::from_secs(10);

/// Whether a UE can be told this duration in the units given (at most 31 of one of them).
pub(super) fn can_be_told(duration: Duration, units: &[u64]) -> bool {
    let (s, whole) = (duration.as_secs(), duration.subsec_nanos() == 0);
    whole && units.iter().any(|unit| s.is_multiple_of(*unit) && s / unit <= 31)
}

/// The nearest duration that a UE can be told.
pub(super) fn nearest(duration: Duration, units: &[u64]) -> Duration {
    let wanted = duration.as_secs();
    let sendable = units.iter().flat_map(|unit| (1..=31).map(move |n| n * unit));
    Duration::from_secs(sendable.min_by_key(|s| s.abs_diff(wanted)).unwrap_or(wanted))
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Timers {
    let (s, min) = (Duration::from_secs, |n: u64| Duration::from_secs(n * 60));
    root.section("timers", "Durations with their unit: 500ms, 6s, 54min, 1h.", |k| {
        let timers = Timers {
            t3512: k.value(
                "t3512",
                min(60),
                "Periodic registration, told to UEs (TS 24.501 §5.3.7). The clause's 54min cannot be coded in \
                 GPRS timer 3: 1h can. 0s: none.",
            ),
            t3502: k.value("t3502", min(12), "After five failed registrations, told to UEs (Table 10.2.1)."),
            t3522: k.value("t3522", s(6), "DEREGISTRATION REQUEST is sent again (Table 10.2.2)."),
            t3550: k.value("t3550", s(6), "REGISTRATION ACCEPT is sent again (Table 10.2.2)."),
            t3555: k.value("t3555", s(6), "CONFIGURATION UPDATE COMMAND is sent again (Table 10.2.2)."),
            t3560: k.value("t3560", s(6), "AUTHENTICATION REQUEST, SECURITY MODE COMMAND are sent again (Table 10.2.2)."),
            t3570: k.value("t3570", s(6), "IDENTITY REQUEST is sent again (Table 10.2.2)."),
            t3591: k.value("t3591", s(16), "PDU SESSION MODIFICATION COMMAND is sent again (Table 10.3.2)."),
            t3592: k.value("t3592", s(16), "PDU SESSION RELEASE COMMAND is sent again (Table 10.3.2)."),
            pdu_session_address_lifetime: k.value(
                "pdu_session_address_lifetime",
                s(120),
                "A session of SSC mode 3 stays this long beside its successor (TS 23.501 §5.6.9.2.3).",
            ),
            reflective_qos: k.value(
                "reflective_qos",
                s(60),
                "A UE keeps a rule that it learnt from downlink packets this long after the last (TS 24.501 §6.2.5.1.4.4).",
            ),
            implicit_deregistration: k.value(
                "implicit_deregistration",
                min(4),
                "A UE unheard of for this long after T3512 is deregistered (TS 24.501 §5.3.7).",
            ),
            guard: k.value("guard", s(5), "The answer of another core function is awaited this long."),
            gnb_answer: k.value(
                "gnb_answer",
                s(20),
                "A gNB's answer is awaited this long. Longer than a UE waits: T3510 and T3517 are 15s (TS 24.501 Table 10.2.1).",
            ),
            session_setup: k.value(
                "session_setup",
                s(64),
                "A gNB may take this long to set a session up. The UE gives up after 80s: five times T3580 (TS 24.501 §6.4.1.6).",
            ),
            connection_idle: k.value(
                "connection_idle",
                s(10),
                "A connection that serves no procedure and no session with a user plane is released (TS 24.501 §5.3.1.3).",
            ),
            follow_on: k.value(
                "follow_on",
                s(10),
                "The same for a UE that has announced more to send (TS 24.501 §5.5.1.2.4) and sends nothing.",
            ),
            session_inactivity: k.value(
                "session_inactivity",
                s(0),
                "A session without packets for this long loses its user plane, and the UE its connection with the last one (TS 23.502 \
                 §4.3.7). In whole seconds. 0s: gNBs alone decide.",
            ),
            release_delay: k.value(
                "release_delay",
                Duration::from_millis(200),
                "After a reject with cause #9, #10 or #28 and after DEREGISTRATION ACCEPT the connection stays this long, because UEs \
                 register again on it (TS 24.501 §5.3.1.3). 0s: it is released at once.",
            ),
        };
        told(k, "t3512", timers.t3512, &GPRS_TIMER_3_UNITS_S, "GPRS timer 3");
        told(k, "t3502", timers.t3502, &GPRS_TIMER_2_UNITS_S, "GPRS timer 2");
        told(k, "reflective_qos", timers.reflective_qos, &GPRS_TIMER_2_UNITS_S, "GPRS timer");
        let awaited = [
            ("t3522", timers.t3522),
            ("t3550", timers.t3550),
            ("t3555", timers.t3555),
            ("t3560", timers.t3560),
            ("t3570", timers.t3570),
            ("t3591", timers.t3591),
            ("t3592", timers.t3592),
            ("guard", timers.guard),
            ("gnb_answer", timers.gnb_answer),
            ("session_setup", timers.session_setup),
            ("connection_idle", timers.connection_idle),
            ("follow_on", timers.follow_on),
        ];
        for (key, duration) in awaited {
            if duration < Duration::from_millis(100) || duration > min(10) {
                k.refuse(key, format!("{} is no time to wait for an answer", duration.show()), "write 100ms to 10min");
            }
        }
        let inactivity = timers.session_inactivity;
        if inactivity.subsec_nanos() != 0 || inactivity > min(24 * 60) {
            let what = format!("{} is no time of silence that a UPF can measure", inactivity.show());
            k.refuse("session_inactivity", what, "write whole seconds up to 24h, or 0s");
        }
        if timers.session_setup >= UE_AWAITS_SESSION {
            let what = format!(
                "{} is longer than a UE awaits a session: it gives up after {} (five times T3580, TS 24.501 §6.4.1.6)",
                timers.session_setup.show(),
                UE_AWAITS_SESSION.show()
            );
            k.refuse("session_setup", what, "write less than 80s");
        }
        if timers.release_delay > T3540 {
            let what = format!("{} is longer than UEs wait for the release (T3540)", timers.release_delay.show());
            k.refuse("release_delay", what, "write 0s to 10s");
        }
        timers
    })
}

/// How long a UE awaits the answer to PDU SESSION ESTABLISHMENT REQUEST: five times T3580 (TS 24.501 §6.4.1.6 a, Table 10.3.1).
const UE_AWAITS_SESSION: Duration = Duration::from_secs(5 * 16);

/// Refuses a duration that the information element cannot carry, so that the UE and we count the same.
pub(super) fn told(k: &mut Section<'_, '_>, key: &str, duration: Duration, units: &[u64], element: &str) {
    if !can_be_told(duration, units) {
        let what = format!("{} cannot be coded in {element}, which tells it to UEs", duration.show());
        k.refuse(key, what, format!("write {}, the nearest that can", nearest(duration, units).show()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.008 §10.5.7.4a
    fn gprs_timer_3_cannot_carry_54_minutes() {
        let m = |n: u64| Duration::from_secs(n * 60);
        assert!(!can_be_told(m(54), &GPRS_TIMER_3_UNITS_S));
        assert_eq!(nearest(m(54), &GPRS_TIMER_3_UNITS_S), m(50));
        assert!(can_be_told(m(60), &GPRS_TIMER_3_UNITS_S) && can_be_told(m(31), &GPRS_TIMER_3_UNITS_S));
        assert!(can_be_told(m(12), &GPRS_TIMER_2_UNITS_S) && can_be_told(m(54), &GPRS_TIMER_2_UNITS_S));
        assert!(!can_be_told(Duration::from_millis(2500), &GPRS_TIMER_2_UNITS_S));
    }
}
