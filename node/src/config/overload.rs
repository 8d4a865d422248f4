//! When OVERLOAD START and OVERLOAD STOP are sent (TS 38.413 §8.7.7, §8.7.8).

use std::time::Duration;

use whimbrel_control::config::OverloadRule;

use super::section::Section;

pub(super) fn read(root: &mut Section<'_, '_>) -> OverloadRule {
    let defaults = OverloadRule::default();
    root.section(
        "overload",
        "When gNBs get OVERLOAD START, so that they reject new connections (TS 23.501 §5.19.5.2), and when OVERLOAD STOP.",
        |s| {
            let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
            let of_ms = |v: u32| Duration::from_millis(v.into());
            let mut rule = OverloadRule {
                start_percent: s.value(
                    "start_percent",
                    defaults.start_percent,
                    "Overload begins when this percentage of `limits.ues` or `limits.unauthenticated_ues` is in use, 1 to 100.",
                ),
                stop_percent: s.value(
                    "stop_percent",
                    defaults.stop_percent,
                    "It can end when less than this percentage of both is in use, 1 to `start_percent`.",
                ),
                start_delay: of_ms(s.value(
                    "start_delay_ms",
                    ms(defaults.start_delay),
                    "It also begins when messages wait this long in milliseconds for the core, in three samples in a row, one each half second. It can \
                     end when they wait less than 100 ms.",
                )),
                hold: Duration::from_secs(u64::from(s.value(
                    "hold_s",
                    defaults.hold.as_secs() as u32,
                    "It ends when all values have stayed below the stop thresholds for this long in seconds.",
                ))),
                reduction_percent: s.value(
                    "reduction_percent",
                    defaults.reduction_percent,
                    "Percentage of new connections that gNBs are asked to reject, 1 to 99.",
                ),
                ..defaults
            };
            // Between the two thresholds nothing changes, so the lower one is never above the upper one.
            rule.stop_delay = rule.stop_delay.min(rule.start_delay);
            let out = |value: u32| format!("{value} is out of bounds");
            let (start, stop) = (rule.start_percent, rule.stop_percent);
            s.bound("start_percent", (1..=100).contains(&start), out(start.into()), "1 to 100");
            s.bound("stop_percent", stop != 0 && stop <= start, out(stop.into()), "1 to `start_percent`");
            let is_given = !rule.start_delay.is_zero();
            s.bound("start_delay_ms", is_given, out(0), "1 or more");
            let reduction = rule.reduction_percent;
            s.bound("reduction_percent", (1..=99).contains(&reduction), out(reduction.into()), "1 to 99");
            rule
        },
    )
}
