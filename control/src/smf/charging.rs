//! Charging of PDU sessions: TS 32.255 §5.2.2.2, TS 32.290 §5.3.2. A charged session begins with a quota of the CHF, which the UPF enforces.
//! Its use is reported at the events that the CHF has named, in a lane beside the session's procedures, and with the session's end.

use whimbrel_ids::{PduSessionId, Supi};
use whimbrel_nas::ie::SmCause;
use whimbrel_pfcp::ie::UsageReportTrigger;
use whimbrel_pfcp::msg::SessionModificationRequest;
use whimbrel_pfcp::rule::{QueryUrr, UsageReport};
use whimbrel_pfcp::{Frame, Message};

use super::{n4, release, rules};
use crate::config::{ChargingPolicy, FailureHandling};
use crate::envelope::{Effect, OutputId};
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Interrupt, Lane, Procedure, ProcedureEnd, Ue};
use crate::refusal::Refusal;
use crate::services::nchf::{
    ChargedSession, ChargingAnswer, ChargingDenial, ChargingGrant, ChargingOperation, ChargingRequest,
    ChargingTrigger, FinalUnitAction, GrantedQuota, UsedUnits,
};
use crate::services::{NfType, ServiceFault};
use crate::state::{CountedReports, SessionCharging};

/// Nchf_ConvergedCharging_Create (TS 32.255 §5.2.2.2.2): the session begins with a quota, or without one where the operator has chosen that.
pub(super) async fn begin(ue: Ue, psi: PduSessionId) -> Result<(), ProcedureEnd> {
    let (Some(supi), Some(policy)) = (subscriber(ue, psi), policy(ue, psi)) else { return Ok(()) };
    let mut octets = [0; 4];
    octets.copy_from_slice(&ue.random()[..4]);
    // Deviation: of 31 bits, since free5GC's CHF refuses greater numbers.
    let charging_id = u32::from_be_bytes(octets) >> 1;
    let tai = ue.amf().ue_state(ue).tai;
    let began = ue.now();
    let session = ue.with(|p| {
        let s = p.sessions.get_mut(&psi)?;
        let charging =
            SessionCharging { charging_id, rating_group: policy.rating_group, ..Default::default() };
        s.charging = Some(charging.into());
        Some(ChargedSession {
            s_nssai: s.s_nssai,
            dnn: s.dnn.clone(),
            session_type: s.session_type,
            ssc_mode: s.ssc_mode,
            address: s.address,
            ambr: s.qos.ambr,
            tai,
            began,
        })
    });
    let session = session.ok_or(Refusal::Protocol("the session ended"))?;
    let operation = ChargingOperation::Create(session.into(), policy.rating_group);
    let request = ChargingRequest { supi, psi, charging_id, sequence: 0, operation };
    match ask(ue, request).await? {
        ChargingAnswer::Granted(grant) => {
            ue.with(|p| {
                if let Some(charging) = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut()) {
                    let ChargingGrant { reference, quota } = *grant;
                    (charging.reference, charging.quota) = (reference, quota);
                }
            });
            Ok(())
        }
        ChargingAnswer::Denied(denial) => {
            take(ue, psi);
            Err(Refusal::Charging(denial).into())
        }
        ChargingAnswer::Failed(fault) => {
            // A CHF whose answer is late has a session that is to be released.
            let charging = take(ue, psi).filter(|_| fault == ServiceFault::TimedOut);
            charging.into_iter().for_each(|charging| end(ue, psi, *charging, None));
            let refusal = Refusal::NetworkFunction(NfType::Chf, fault);
            if policy.failure_handling == FailureHandling::Terminate {
                return Err(refusal.into());
            }
            report(ue, refusal);
            Ok(())
        }
    }
}

/// The session is not charged any more.
fn take(ue: Ue, psi: PduSessionId) -> Option<Box<SessionCharging>> {
    ue.with(|p| p.sessions.get_mut(&psi).and_then(|s| s.charging.take()))
}

/// Notes what the UPF has measured for the CHF.
pub(super) fn count(charging: &mut SessionCharging, report: &UsageReport) {
    if !CountedReports::note(&mut charging.counted, report.ur_seqn) {
        return;
    }
    let volume = report.volume_measurement.as_ref();
    let of = |octets: Option<u64>| octets.unwrap_or(0);
    charging.uplink = charging.uplink.saturating_add(volume.map_or(0, |v| of(v.ul)));
    charging.downlink = charging.downlink.saturating_add(volume.map_or(0, |v| of(v.dl)));
    charging.time_s = charging.time_s.saturating_add(report.duration_measurement.map_or(0, |d| d.0));
    let trigger = report.usage_report_trigger;
    let has = |of| trigger.has(of);
    let due = if has(UsageReportTrigger::VOLQU) || has(UsageReportTrigger::TIMQU) {
        (charging.exhausted, charging.exhausted_by) = (true, report.ur_seqn.0);
        Some(ChargingTrigger::QuotaExhausted)
    } else if has(UsageReportTrigger::VOLTH) || has(UsageReportTrigger::TIMTH) {
        Some(ChargingTrigger::QuotaThreshold)
    } else if has(UsageReportTrigger::PERIO) {
        Some(ChargingTrigger::ValidityTime)
    } else {
        None
    };
    // That a quota is used up is not forgotten for a later event.
    if charging.due != Some(ChargingTrigger::QuotaExhausted) {
        charging.due = due.or(charging.due);
    }
}

/// The UPF has reported usage: the CHF gets it, if that is due.
pub(super) fn usage_reported(ue: Ue, psi: PduSessionId) {
    let due = ue.with(|p| {
        let charging = p.sessions.get(&psi).and_then(|s| s.charging.as_ref());
        charging.is_some_and(|c| c.due.is_some()) && p.lanes.procedure(Lane::Charging(psi)).is_none()
    });
    if due {
        let ue = ue.on(Lane::Charging(psi));
        ue.start(Lane::Charging(psi), Procedure::ChargingUpdate, update(ue, psi));
    }
}

/// Nchf_ConvergedCharging_Notify, REAUTHORIZATION (TS 32.290 §5.3.2.5): the CHF gets the usage now, and is asked for another quota.
pub(crate) fn reauthorise(ue: Ue, psi: PduSessionId) {
    ue.with(|p| {
        if let Some(charging) = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut()) {
            charging.due = charging.due.or(Some(ChargingTrigger::ForcedReauthorisation));
        }
    });
    usage_reported(ue, psi);
}

/// Nchf_ConvergedCharging_Notify, ABORT_CHARGING: the session ends.
pub(crate) fn abort(ue: Ue, psi: PduSessionId) {
    let charged = ue.with(|p| p.sessions.get(&psi).is_some_and(|s| s.charging.is_some()));
    if charged {
        release::withdraw(ue, psi, SmCause::RegularDeactivation);
    }
}

/// Nchf_ConvergedCharging_Update (TS 32.255 §5.2.2.2.3), until nothing is due any more.
async fn update(ue: Ue, psi: PduSessionId) {
    loop {
        let due = ue.with(|p| p.sessions.get(&psi)?.charging.as_ref()?.due);
        if due == Some(ChargingTrigger::ForcedReauthorisation) {
            query(ue, psi).await;
        }
        let Some((request, used)) = next_report(ue, psi) else { return };
        let began = ue.now();
        let last = matches!(request.operation, ChargingOperation::Update { last: true, .. });
        match ask(ue, request).await {
            Ok(ChargingAnswer::Granted(_)) if last => {}
            Ok(ChargingAnswer::Granted(grant)) => {
                apply(ue, psi, *grant).await;
                let (procedure, subject) = (Procedure::ChargingUpdate, ue.with(|p| p.subject()));
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure, subject, took });
            }
            Ok(ChargingAnswer::Denied(denial)) => denied(ue, psi, denial),
            Ok(ChargingAnswer::Failed(fault)) => failed(ue, psi, used, fault).await,
            Err(_superseded) => return, // the session has ended
        }
    }
}

/// The report that is due. A quota that was the last one ends the session here.
fn next_report(ue: Ue, psi: PduSessionId) -> Option<(ChargingRequest, UsedUnits)> {
    let supi = subscriber(ue, psi)?;
    let last = ue.with(|p| {
        let charging = p.sessions.get(&psi)?.charging.as_ref()?;
        charging.due?;
        Some(charging.quota.and_then(|q| q.last).filter(|_| charging.exhausted))
    })?;
    if last == Some(FinalUnitAction::Terminate) {
        ue.with(|p| {
            let charging = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut());
            charging.into_iter().for_each(|c| c.due = None);
        });
        report(ue, Refusal::Charging(ChargingDenial::QuotaLimitReached));
        release::withdraw(ue, psi, SmCause::RegularDeactivation);
        return None;
    }
    ue.with(|p| {
        let charging = p.sessions.get_mut(&psi)?.charging.as_mut()?;
        let trigger = charging.due.take()?;
        let used = charging.take_used(trigger);
        charging.sequence += 1;
        let (reference, last) = (charging.reference.clone(), last.is_some());
        let operation = ChargingOperation::Update { reference, used, last };
        let (charging_id, sequence) = (charging.charging_id, charging.sequence);
        Some((ChargingRequest { supi, psi, charging_id, sequence, operation }, used))
    })
}

/// The UPF gets the next quota. Without one, what is left of the former may be used up. The quota begins with the report to which it is the
/// answer, so what was used since is taken off: of a quota that is not used up, the UPF is asked first.
async fn apply(ue: Ue, psi: PduSessionId, grant: ChargingGrant) {
    let Some(quota) = grant.quota else { return };
    let exhausted = ue.with(|p| p.sessions.get(&psi)?.charging.as_ref().map(|c| c.exhausted));
    if exhausted == Some(false) {
        query(ue, psi).await;
    }
    let applies = ue.with(|p| {
        let Some(charging) = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut()) else { return false };
        charging.without_chf = false;
        match charging.rest_of(quota) {
            Some(rest) => {
                (charging.quota, charging.exhausted, charging.due) = (Some(rest), false, None);
                true
            }
            None => {
                (charging.exhausted, charging.due) = (true, Some(ChargingTrigger::QuotaExhausted));
                charging.quota =
                    Some(GrantedQuota { last: quota.last, ..charging.quota.unwrap_or_default() });
                false
            }
        }
    });
    if applies {
        set_quota(ue, psi).await;
        // A report of the former quota's end that crossed the change has a lower number than that of the answer to the change.
        ue.with(|p| {
            let Some(charging) = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut()) else { return };
            let newest = charging.counted.as_ref().map(|counted| counted.newest);
            if charging.exhausted && newest != Some(charging.exhausted_by) {
                (charging.exhausted, charging.due) = (false, None);
            }
        });
    }
}

/// The UPF's answer has the usage, and is counted. Without one, what is known is reported.
async fn query(ue: Ue, psi: PduSessionId) {
    let query_urrs = vec![QueryUrr { urr_id: rules::CHARGING_URR }];
    let _ = n4::change(ue, psi, SessionModificationRequest { query_urrs, ..Default::default() }).await;
}

/// Without an answer the UPF is not asked again: it keeps the former quota, and a UPF that has lost the session gets the new one with the session.
async fn set_quota(ue: Ue, psi: PduSessionId) {
    let quota = ue.with(|p| p.sessions.get(&psi).and_then(|s| s.charging.as_ref()).map(|c| c.quota));
    if let Some(quota) = quota {
        let update_urrs = vec![rules::quota_change(quota.as_ref())];
        let query_urrs = vec![QueryUrr { urr_id: rules::CHARGING_URR }];
        let request = SessionModificationRequest { update_urrs, query_urrs, ..Default::default() };
        let _ = n4::change(ue, psi, request).await;
    }
}

/// The CHF gives no further quota: the session ends when the former one is used up.
fn denied(ue: Ue, psi: PduSessionId, denial: ChargingDenial) {
    report(ue, Refusal::Charging(denial));
    let exhausted = ue.with(|p| {
        let charging = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut())?;
        if let Some(quota) = &mut charging.quota {
            quota.last = Some(FinalUnitAction::Terminate);
        }
        Some(charging.exhausted || charging.quota.is_none())
    });
    if exhausted == Some(true) {
        release::withdraw(ue, psi, SmCause::RegularDeactivation);
    }
}

/// No CHF has answered (TS 32.255 §5.2.2.2.3, TS 32.291 §6.1.6.3.10): what was used is reported later.
async fn failed(ue: Ue, psi: PduSessionId, used: UsedUnits, fault: ServiceFault) {
    report(ue, Refusal::NetworkFunction(NfType::Chf, fault));
    let handling = policy(ue, psi).map_or(FailureHandling::Terminate, |p| p.failure_handling);
    let exhausted = ue.with(|p| {
        let charging = p.sessions.get_mut(&psi).and_then(|s| s.charging.as_mut())?;
        // A CHF that has the report, although its answer was late, must not count it twice.
        if fault != ServiceFault::TimedOut {
            charging.put_back(used);
        }
        let exhausted = charging.exhausted;
        if exhausted && handling == FailureHandling::Continue {
            (charging.quota, charging.exhausted, charging.without_chf) = (None, false, true);
        }
        Some(exhausted)
    });
    match (exhausted, handling) {
        (Some(true), FailureHandling::Continue) => set_quota(ue, psi).await,
        (Some(true), FailureHandling::Terminate) => release::withdraw(ue, psi, SmCause::RegularDeactivation),
        (Some(false) | None, _) => {} // it is asked again when the quota is used up
    }
}

/// Adds the usage in a UPF's answer to the deletion of a charged session.
pub fn add_last_usage(used: &mut UsedUnits, octets: &[u8]) {
    let message = Frame::parse(octets).ok().and_then(|frame| Message::parse(&frame).ok());
    let Some(Message::SessionDeletionResponse(m)) = message else { return };
    for report in m.usage_reports.iter().filter(|r| r.urr_id == rules::CHARGING_URR) {
        let volume = report.volume_measurement.as_ref();
        let of = |octets: Option<u64>| octets.unwrap_or(0);
        used.uplink = used.uplink.saturating_add(volume.map_or(0, |v| of(v.ul)));
        used.downlink = used.downlink.saturating_add(volume.map_or(0, |v| of(v.dl)));
        used.time_s = used.time_s.saturating_add(report.duration_measurement.map_or(0, |d| d.0));
    }
}

/// Nchf_ConvergedCharging_Release (TS 32.255 §5.2.2.2.4); nothing waits for it. `deletion`: the request whose answer has the rest of the usage.
/// Without a reference, the CHF has not answered yet.
pub(super) fn end(ue: Ue, psi: PduSessionId, mut charging: SessionCharging, deletion: Option<OutputId>) {
    ue.with(|p| {
        let end = Interrupt::Superseded(Procedure::PduSessionReleaseByNetwork);
        p.lanes.interrupt(Lane::Charging(psi), end);
    });
    let supi = ue.with(|p| p.subject().supi);
    let Some(supi) = supi else { return };
    let used = charging.take_used(ChargingTrigger::Final);
    let sequence = charging.sequence + 1;
    let operation = ChargingOperation::Release { reference: charging.reference, used, deletion };
    let request = ChargingRequest { supi, psi, charging_id: charging.charging_id, sequence, operation };
    ue.emit(Effect::Charging(request.into()), None);
}

/// Asks a second time after half of the guard: a takeover between question and answer loses the answer. The CHF knows a request that it has
/// answered by its number.
async fn ask(ue: Ue, request: ChargingRequest) -> Result<ChargingAnswer, Interrupt> {
    let guard = ue.config().timers.guard;
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(ue.emit(Effect::Charging(request.clone().into()), None));
        let until = ue.now() + guard / 2;
        loop {
            match ue.any_answer(asked.clone(), until.since(ue.now())).await {
                Ok(Input::Charging(answer)) => return Ok(*answer),
                // A UE without a connection is charged as well; its establishment ends.
                Err(Interrupt::ConnectionLost) if request.sequence > 0 => {}
                Ok(_) | Err(Interrupt::TimedOut) => break,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(ChargingAnswer::Failed(ServiceFault::TimedOut))
}

fn policy(ue: Ue, psi: PduSessionId) -> Option<ChargingPolicy> {
    let config = ue.config();
    ue.with(|p| config.smf.data_networks.get(&p.sessions.get(&psi)?.dnn)?.charging)
}

/// The subscriber that pays. Emergency sessions are free, and brokers' users are their brokers'.
pub(super) fn subscriber(ue: Ue, psi: PduSessionId) -> Option<Supi> {
    ue.with(|p| {
        let ordinary =
            p.grant.is_none() && p.veil.is_none() && p.sessions.get(&psi).is_some_and(|s| !s.emergency);
        p.subject().supi.filter(|_| ordinary)
    })
}

fn report(ue: Ue, refusal: Refusal) {
    super::refused(ue, Procedure::ChargingUpdate, refusal);
}

#[cfg(test)]
mod tests {
    use whimbrel_pfcp::ie::{UrSeqn, VolumeMeasurement};

    use super::*;

    fn reported(number: u32, trigger: UsageReportTrigger) -> UsageReport {
        let mut report = UsageReport::new(rules::CHARGING_URR, UrSeqn(number), trigger);
        report.volume_measurement =
            Some(VolumeMeasurement { ul: Some(100), dl: Some(1_000), ..VolumeMeasurement::default() });
        report
    }

    #[test] // TS 29.244 §8.2.71
    fn a_report_that_comes_twice_is_charged_once() {
        let mut charging = SessionCharging::default();
        for number in [0, 1, 0, 1] {
            count(&mut charging, &reported(number, UsageReportTrigger::VOLTH));
        }
        assert_eq!((charging.uplink, charging.downlink), (200, 2_000));
        assert_eq!(charging.due, Some(ChargingTrigger::QuotaThreshold));
    }

    #[test]
    fn that_a_quota_is_used_up_is_not_forgotten_for_a_later_event() {
        let mut charging = SessionCharging::default();
        count(&mut charging, &reported(0, UsageReportTrigger::VOLQU));
        count(&mut charging, &reported(1, UsageReportTrigger::PERIO));
        assert!(charging.exhausted);
        assert_eq!(charging.due, Some(ChargingTrigger::QuotaExhausted));
    }
}
