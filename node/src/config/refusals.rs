//! The cause and back-off timer sent to a UE that is refused, if not the default.
//!
//! A wrong cause makes UEs retry thousands of times, or not at all until they are restarted.

use std::time::Duration;

use whimbrel_control::refusal::RefusalKind;

use super::section::Section;
use super::timers::{GPRS_TIMER_2_UNITS_S, check_codable};

/// The cause and the back-off of one kind of refusal, instead of the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RefusalAnswer {
    /// 5GMM cause (registration) or 5GSM cause (session).
    pub cause: Option<u8>,
    /// T3346, or the session's back-off timer.
    pub back_off: Option<Duration>,
}

/// The form of each answer, in the reference.
const ANSWER: &str = "a map of `cause`, 1 to 255, and `back_off`, such as 12min";

/// Each kind of refusal: its default cause, and when it is sent.
const KINDS: [(RefusalKind, u8, &str); 18] = [
    (
        RefusalKind::UnknownSubscriber,
        3,
        "The subscriber does not exist. With #3 a UE gives up until its SIM is removed or it restarts.",
    ),
    (RefusalKind::Barred, 7, "The operator barred the subscriber."),
    (RefusalKind::Authentication, 3, "Authentication failed. AUTHENTICATION REJECT carries no cause."),
    (RefusalKind::Identity, 3, "The SUCI cannot be deconcealed."),
    (RefusalKind::Algorithm, 23, "The UE and the network share no acceptable algorithm."),
    (RefusalKind::TrackingArea, 15, "The tracking area is not served."),
    (
        RefusalKind::ForbiddenArea,
        12,
        "The subscription forbids the tracking area. With #12 and #13 the UE avoids it, with #15 it searches for another one.",
    ),
    (
        RefusalKind::Restricted,
        28,
        "The subscription bars New Radio (#27), or services in the UE's area (#28).",
    ),
    (RefusalKind::Plmn, 11, "The PLMN of the UE's SIM is not served."),
    (RefusalKind::Slice, 62, "None of the UE's slices is available."),
    (RefusalKind::Congestion, 22, "A limit is reached or the store does not answer."),
    (RefusalKind::Dnn, 27, "The data network is not subscribed or not configured (5GSM)."),
    (RefusalKind::SessionType, 28, "The session type is not allowed (5GSM)."),
    (RefusalKind::Resources, 26, "Addresses or other resources of the user plane ran out (5GSM)."),
    (RefusalKind::Charging, 29, "The CHF gives no quota (5GSM)."),
    (RefusalKind::Policy, 29, "The PCF does not permit the session (5GSM)."),
    (RefusalKind::NetworkFailure, 38, "Another network function does not answer (5GSM)."),
    (RefusalKind::Protocol, 111, "The UE violated the protocol."),
];

pub(super) fn read(root: &mut Section<'_, '_>) -> Vec<(RefusalKind, RefusalAnswer)> {
    let doc = "Answers to refused UEs, by kind of refusal: `cause` as a number of TS 24.501 §9.11.3.2 (5GMM) or \
               §9.11.4.2 (5GSM), and `back_off` (T3346, or the session's back-off timer), the time before which the UE should not \
               retry. Default: the cause shown, without back-off.";
    root.section("refusals", doc, |s| {
        KINDS
            .iter()
            .map(|&(kind, cause, when)| {
                let example = format!("{{ cause: {cause} }}");
                let answer = s.small_map(word(kind), ANSWER, &example, when, |k| {
                    let answer = RefusalAnswer {
                        cause: k.optional("cause", &cause.to_string(), ""),
                        back_off: k.optional("back_off", "12min", ""),
                    };
                    if answer.cause == Some(0) {
                        k.refuse("cause", "0 is not a cause", "write a number of 1 to 255");
                    }
                    if let Some(back_off) = answer.back_off {
                        check_codable(k, "back_off", back_off, &GPRS_TIMER_2_UNITS_S, "GPRS timer 2");
                    }
                    answer
                });
                (kind, answer)
            })
            .filter(|(_, answer)| *answer != RefusalAnswer::default())
            .collect()
    })
}

/// The key that governs a kind of refusal.
pub fn word(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::UnknownSubscriber => "unknown_subscriber",
        RefusalKind::Barred => "barred",
        RefusalKind::Authentication => "authentication",
        RefusalKind::Identity => "identity",
        RefusalKind::Algorithm => "algorithm",
        RefusalKind::TrackingArea => "tracking_area",
        RefusalKind::ForbiddenArea => "forbidden_area",
        RefusalKind::Restricted => "restricted",
        RefusalKind::Plmn => "plmn",
        RefusalKind::Slice => "slice",
        RefusalKind::Congestion => "congestion",
        RefusalKind::Dnn => "dnn",
        RefusalKind::SessionType => "session_type",
        RefusalKind::Resources => "resources",
        RefusalKind::Charging => "charging",
        RefusalKind::Policy => "policy",
        RefusalKind::NetworkFailure => "network_failure",
        RefusalKind::Protocol => "protocol",
    }
}
