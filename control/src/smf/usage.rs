//! Usage reports of the UPF (TS 29.244 §5.2.2.3): each is counted once.

use whimbrel_ids::PduSessionId;
use whimbrel_pfcp::ie::UrSeqn;
use whimbrel_pfcp::rule::UsageReport;

use super::rules::{CHARGING_URR, SESSION_URR};
use crate::procedure::Ue;
use crate::state::CountedReports;

impl CountedReports {
    /// Stores a report as seen. Returns whether it is to be counted: one too old to be distinguished from a counted one is
    /// not.
    ///
    /// Spec: TS 29.244 §8.2.71: numbers of one URR rise by one, from report to report, and wrap.
    pub(super) fn note(counted: &mut Option<Box<Self>>, UrSeqn(number): UrSeqn) -> bool {
        let Some(counted) = counted else {
            *counted = Some(Self { newest: number, before: 0 }.into());
            return true;
        };
        let ahead = number.wrapping_sub(counted.newest);
        if ahead == 0 {
            return false;
        }
        if ahead <= u32::MAX / 2 {
            let before = counted.before.checked_shl(ahead).unwrap_or(0);
            let newest = 1_u64.checked_shl(ahead - 1).unwrap_or(0);
            (counted.newest, counted.before) = (number, before | newest);
            return true;
        }
        let Some(bit) = 1_u64.checked_shl(ahead.wrapping_neg() - 1) else { return false };
        let is_new = counted.before & bit == 0;
        counted.before |= bit;
        is_new
    }
}

/// Adds the volumes of usage reports. Those of unknown rules are ignored.
pub(super) fn count(ue: Ue, psi: PduSessionId, reports: &[UsageReport]) {
    ue.with(|p| {
        let (Some(s), grant, veil) = (p.sessions.get_mut(&psi), &mut p.grant, &mut p.veil) else { return };
        for report in reports.iter().filter(|r| r.urr_id == SESSION_URR) {
            let Some(volume) = &report.volume_measurement else { continue };
            if CountedReports::note(&mut s.usage.counted, report.ur_seqn) {
                let (ul, dl) = (volume.ul.unwrap_or(0), volume.dl.unwrap_or(0));
                let octets = &mut s.usage.octets;
                *octets = (octets.0.saturating_add(ul), octets.1.saturating_add(dl));
                if let Some(grant) = grant.as_mut().filter(|_| !s.emergency) {
                    grant.count(ul, dl);
                }
                if let Some(session) = veil.as_mut().filter(|_| !s.emergency) {
                    session.count(ul, dl);
                }
            }
        }
        if let Some(charging) = &mut s.charging {
            reports
                .iter()
                .filter(|r| r.urr_id == CHARGING_URR)
                .for_each(|r| super::charging::count(charging, r));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(
        counted: &mut Option<Box<CountedReports>>,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Vec<bool> {
        numbers.into_iter().map(|n| CountedReports::note(counted, UrSeqn(n))).collect()
    }

    #[test] // TS 29.244 §8.2.71
    fn a_report_is_counted_once_in_any_order() {
        let mut counted = None;
        assert_eq!(
            counts(&mut counted, [1, 0, 1, 0, 4, 2, 4, 3, 2]),
            [true, true, false, false, true, true, false, true, false]
        );
        // 64 later: all seen ones are still known, and older ones count as seen.
        assert_eq!(
            counts(&mut counted, [68, 4, 5, 5, 3, 68, 67, 67]),
            [true, false, true, false, false, false, true, false]
        );
        assert_eq!(counts(&mut counted, [1000, 68, 936, 935]), [true, false, true, false]);
    }

    #[test]
    fn numbers_wrap() {
        let mut counted = None;
        let all = [u32::MAX - 1, 0, u32::MAX, 0, u32::MAX, u32::MAX - 1, 1];
        assert_eq!(counts(&mut counted, all), [true, true, true, false, false, false, true]);
    }
}
