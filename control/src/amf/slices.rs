//! Network slice selection: TS 23.501 §5.15.5.2.1, TS 23.501 §5.15.3, TS 24.501 §4.6.2.2, TS 24.501 §4.6.2.3.

use std::time::Duration;

use whimbrel_ids::{SNssai, Tai};
use whimbrel_nas::ie::{GprsTimer3, MappedSNssai, Nssai, Opaque, RejectedNssai, SliceRejectCause, TaiList};
use whimbrel_nas::mm::RegistrationRequest;

use crate::config::Config;
use crate::procedure::Ue;
use crate::refusal::Refusal;
use crate::state::{ALLOWED_SLICES_MAX, Subscription};

/// The allowed and the rejected slices of a UE.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    pub(crate) allowed: Vec<SNssai>,
    pub(crate) rejected: Vec<(SNssai, SliceRejectCause)>,
    /// Requested, but at their limit of UEs for now (TS 23.501 §5.15.11.1).
    pub(crate) full: Vec<SNssai>,
}

/// The configured NSSAI holds sixteen (TS 24.501 §9.11.3.37).
const CONFIGURED_SLICES_MAX: usize = 16;

/// The requested NSSAI. If the request has none, the earlier one stays (a periodic registration has none).
pub(crate) fn requested(ue: Ue, request: &RegistrationRequest) -> Vec<SNssai> {
    if let Some(nssai) = &request.requested_nssai {
        let asked = nssai.0.iter().map(|s| s.s_nssai).collect();
        ue.with(|p| p.amf.slices.requested = asked);
    }
    ue.with(|p| p.amf.slices.requested.to_vec())
}

/// The slices that are requested, subscribed and offered; if there is none, the subscribed defaults.
pub(crate) fn admit(
    config: &Config,
    subscription: &Subscription,
    requested: &[SNssai],
    here: Tai,
    full: &[SNssai],
) -> Result<Slices, Refusal> {
    let offered = |s: SNssai| config.amf.slices.contains(&s) && subscription.slice(s).is_some();
    let usable = |s: SNssai| offered(s) && config.amf.access.offers(s, here) && !full.contains(&s);
    let mut allowed = Vec::new();
    let mut add = |s: SNssai| {
        if usable(s) && !allowed.contains(&s) && allowed.len() < ALLOWED_SLICES_MAX {
            allowed.push(s);
        }
    };
    requested.iter().copied().for_each(&mut add);
    if allowed.is_empty() {
        let defaults = subscription.slices.iter().filter(|s| s.default).map(|s| s.s_nssai);
        for s in defaults {
            if usable(s) && !allowed.contains(&s) && allowed.len() < ALLOWED_SLICES_MAX {
                allowed.push(s);
            }
        }
    }
    if allowed.is_empty() {
        let subscribed = subscription.slices.iter().map(|s| s.s_nssai).collect();
        return Err(Refusal::NoSlice { requested: requested.to_vec(), subscribed });
    }
    let mut rejected: Vec<(SNssai, SliceRejectCause)> = Vec::new();
    for &s in requested.iter().filter(|s| !usable(**s)) {
        // A full slice is neither allowed nor rejected for good: the UE may ask again.
        if full.contains(&s) || rejected.iter().any(|(r, _)| *r == s) || rejected.len() == ALLOWED_SLICES_MAX
        {
            continue;
        }
        let cause = if offered(s) {
            SliceRejectCause::NotAvailableInRegistrationArea
        } else {
            SliceRejectCause::NotAvailableInPlmn
        };
        rejected.push((s, cause));
    }
    let full = requested.iter().copied().filter(|s| full.contains(s) && offered(*s)).take(ALLOWED_SLICES_MAX);
    Ok(Slices { allowed, rejected, full: full.collect() })
}

/// The slices configured for this UE: those that it subscribes to and that the network offers (TS 23.501 §5.15.4).
pub(crate) fn configured(config: &Config, subscription: &Subscription) -> Vec<SNssai> {
    let subscribed = subscription.slices.iter().map(|s| s.s_nssai);
    subscribed.filter(|s| config.amf.slices.contains(s)).take(CONFIGURED_SLICES_MAX).collect()
}

/// An NSSAI IE. A subscriber in its home network needs no mapping (TS 24.501 §4.6.2.3).
pub(crate) fn nssai(slices: &[SNssai]) -> Nssai {
    Nssai(slices.iter().copied().map(MappedSNssai::from).collect())
}

/// Rejected slices, where there are any.
pub(crate) fn rejected_nssai(slices: Vec<(SNssai, SliceRejectCause)>) -> Option<RejectedNssai> {
    (!slices.is_empty()).then_some(RejectedNssai(slices))
}

/// How long a UE waits before it asks again for a slice that is full (TS 24.501 §4.6.2.5, T3526).
const FULL_BACK_OFF: Duration = Duration::from_secs(15 * 60);
/// "S-NSSAI not available due to maximum number of UEs reached" (TS 24.501 §9.11.3.75).
const CAUSE_FULL: u8 = 3;

/// Extended rejected NSSAI (TS 24.501 §9.11.3.75): one list with one back-off timer.
pub(crate) fn full_nssai(full: &[SNssai]) -> Option<Opaque> {
    let count = u8::try_from(full.len()).ok().filter(|n| *n > 0)?;
    // Type of list 1, then the number of elements less one.
    let mut value = vec![1 << 4 | (count - 1), GprsTimer3::from_duration(FULL_BACK_OFF).octet()];
    for s in full {
        let sd = s.sd().map(u32::to_be_bytes);
        value.extend_from_slice(&[if sd.is_some() { 4 << 4 } else { 1 << 4 } | CAUSE_FULL, s.sst]);
        value.extend_from_slice(sd.as_ref().map_or(&[], |sd| &sd[1..]));
    }
    Opaque::new(value)
}

/// The registration area (TS 24.501 §5.3.4): the tracking areas of one configured area in which all allowed slices are
/// available (TS 23.501 §5.15.5.2.1), the UE's own first, without forbidden areas.
pub(crate) fn registration_area(ue: Ue, here: Tai, allowed: &[SNssai]) -> TaiList {
    let config = ue.config();
    let alike = |tai: &Tai| allowed.iter().all(|&s| config.amf.access.offers(s, *tai));
    let area = ue.with(|p| {
        let forbidden = p.amf.subscription.iter().flat_map(|s| &s.restrictions.forbidden_areas);
        let forbidden: Vec<_> = forbidden.copied().collect();
        let area = config.amf.registration_area(here);
        let area = area.filter(|tai| *tai == here || (!forbidden.contains(&tai.tac) && alike(tai)));
        p.amf.location.registration_area = area.take(whimbrel_nas::ie::TAI_LIST_MAX).collect();
        p.amf.location.registration_area.to_vec()
    });
    area.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 24.501 §4.6.2.5, §9.11.3.75: octets that tshark reads as one list, a timer of 15 minutes, and the cause
    fn full_slices_as_octets() {
        let nssai_sent = full_nssai(&[SNssai::sst(1), SNssai::new(2, Some(1))]).expect("some");
        let fifteen_minutes = 4 << 5 | 30; // times 30 seconds
        assert_eq!(nssai_sent.to_vec(), [0x11, fifteen_minutes, 0x13, 1, 0x43, 2, 0, 0, 1]);
        assert!(full_nssai(&[]).is_none());
    }

    #[test] // TS 24.501 §4.6.2.3: a subscriber in its home network gets no mapping
    fn no_mapping_at_home() {
        let nssai_sent = nssai(&[SNssai::sst(1), SNssai::new(2, Some(7))]);
        assert!(nssai_sent.0.iter().all(|s| *s == MappedSNssai::from(s.s_nssai)) && nssai_sent.0.len() == 2);
    }
}
