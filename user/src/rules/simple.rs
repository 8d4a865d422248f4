//! QERs, URRs and BARs of a message, into a draft: what needs nothing chosen.

use whimbrel_pfcp::ie::{FailedRuleId, NtpTime, Rqi};
use whimbrel_pfcp::rule::{CreateBar, CreateQer, CreateUrr, UpdateQer, UpdateUrr};

use super::draft::Draft;
use super::refusal::RuleRefusal;
use super::{Bar, Qer, RuleCheck, Urr};

pub(super) fn create_bar(d: &mut Draft, m: &CreateBar) {
    let packets = m.suggested_buffering_packets_count.map(|c| c.0);
    let delay = m.downlink_data_notification_delay.map_or(0, |d| d.0);
    d.bars.insert(m.bar_id, Bar { bar_id: m.bar_id, packets, delay });
}

pub(super) fn create_qer(d: &mut Draft, m: &CreateQer) -> RuleCheck {
    let qer = Qer {
        gate: m.gate_status,
        qfi: m.qfi,
        rqi: m.rqi.is_some_and(|r| r.has(Rqi::RQI)),
        ppi: m.paging_policy_indicator.map(|p| p.0 & 7),
        mbr_ul_kbps: m.mbr.map(|r| r.ul_kbps),
        mbr_dl_kbps: m.mbr.map(|r| r.dl_kbps),
        gbr_ul_kbps: m.gbr.map_or(0, |r| guaranteed(r.ul_kbps)),
        gbr_dl_kbps: m.gbr.map_or(0, |r| guaranteed(r.dl_kbps)),
        window_ms: m.averaging_window.map(|w| w.0),
        qer_id: m.qer_id,
    };
    match d.qers.insert(m.qer_id, qer) {
        Some(_) => Err(RuleRefusal::DuplicateRule(FailedRuleId::Qer(m.qer_id))),
        None => Ok(()),
    }
}

/// The highest rate that fits: four terabits a second.
fn guaranteed(kbps: u64) -> u32 {
    u32::try_from(kbps).unwrap_or(u32::MAX)
}

pub(super) fn update_qer(d: &mut Draft, m: &UpdateQer) -> RuleCheck {
    let Some(q) = d.qers.get_mut(&m.qer_id) else {
        return Err(RuleRefusal::NoSuchRule(FailedRuleId::Qer(m.qer_id)));
    };
    q.gate = m.gate_status.unwrap_or(q.gate);
    q.qfi = m.qfi.or(q.qfi);
    q.rqi = m.rqi.map_or(q.rqi, |r| r.has(Rqi::RQI));
    q.ppi = m.paging_policy_indicator.map(|p| p.0 & 7).or(q.ppi);
    q.mbr_ul_kbps = m.mbr.map(|r| r.ul_kbps).or(q.mbr_ul_kbps);
    q.mbr_dl_kbps = m.mbr.map(|r| r.dl_kbps).or(q.mbr_dl_kbps);
    q.gbr_ul_kbps = m.gbr.map_or(q.gbr_ul_kbps, |r| guaranteed(r.ul_kbps));
    q.gbr_dl_kbps = m.gbr.map_or(q.gbr_dl_kbps, |r| guaranteed(r.dl_kbps));
    q.window_ms = m.averaging_window.map(|w| w.0).or(q.window_ms);
    Ok(())
}

pub(super) fn create_urr(d: &mut Draft, m: &CreateUrr) -> RuleCheck {
    let urr = Urr {
        urr_id: m.urr_id,
        method: m.measurement_method,
        triggers: m.reporting_triggers,
        information: m.measurement_information.unwrap_or_default(),
        volume_threshold: m.volume_threshold,
        volume_quota: m.volume_quota,
        time_threshold_s: m.time_threshold.map(|t| t.0),
        time_quota_s: m.time_quota.map(|t| t.0),
        event_threshold: m.event_threshold.map(|e| e.0),
        event_quota: m.event_quota.map(|e| e.0),
        period_s: m.measurement_period.map(|t| t.0),
        quota_holding_s: m.quota_holding_time.map(|t| t.0),
        inactivity_detection_s: m.inactivity_detection_time.map(|t| t.0),
        monitoring: m.monitoring_time.map(NtpTime::instant),
        ethernet_inactivity_s: m.ethernet_inactivity_timer.map(|t| t.0),
        linked: m.linked_urr_ids.as_slice().into(),
        revision: 0,
    };
    match d.urrs.insert(m.urr_id, urr) {
        Some(_) => Err(RuleRefusal::DuplicateRule(FailedRuleId::Urr(m.urr_id))),
        None => Ok(()),
    }
}

pub(super) fn update_urr(d: &mut Draft, m: &UpdateUrr) -> RuleCheck {
    let Some(u) = d.urrs.get_mut(&m.urr_id) else {
        return Err(RuleRefusal::NoSuchRule(FailedRuleId::Urr(m.urr_id)));
    };
    u.method = m.measurement_method.unwrap_or(u.method);
    u.triggers = m.reporting_triggers.unwrap_or(u.triggers);
    u.information = m.measurement_information.unwrap_or(u.information);
    u.volume_threshold = m.volume_threshold.or(u.volume_threshold);
    u.volume_quota = m.volume_quota.or(u.volume_quota);
    u.time_threshold_s = m.time_threshold.map(|t| t.0).or(u.time_threshold_s);
    u.time_quota_s = m.time_quota.map(|t| t.0).or(u.time_quota_s);
    u.event_threshold = m.event_threshold.map(|e| e.0).or(u.event_threshold);
    u.event_quota = m.event_quota.map(|e| e.0).or(u.event_quota);
    u.period_s = m.measurement_period.map(|t| t.0).or(u.period_s);
    u.quota_holding_s = m.quota_holding_time.map(|t| t.0).or(u.quota_holding_s);
    u.inactivity_detection_s = m.inactivity_detection_time.map(|t| t.0).or(u.inactivity_detection_s);
    u.monitoring = m.monitoring_time.map(NtpTime::instant).or(u.monitoring);
    u.ethernet_inactivity_s = m.ethernet_inactivity_timer.map(|t| t.0).or(u.ethernet_inactivity_s);
    if !m.linked_urr_ids.is_empty() {
        u.linked = m.linked_urr_ids.as_slice().into();
    }
    if m.volume_quota.is_some() || m.time_quota.is_some() || m.event_quota.is_some() {
        u.revision = u.revision.wrapping_add(1);
    }
    Ok(())
}
