//! Reachability of idle UEs: TS 24.501 §5.3.6 (MICO), TS 24.501 §5.3.7 (T3324, strictly periodic), TS 24.501 §5.3.16 (eDRX), and its paging
//! cycle (TS 23.501 §5.4.5). A feature that a UE requests and this network does not offer is left out of the accept; the registration is
//! not refused.

use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_nas::ie::{DrxParameters, GprsTimer3, MicoIndication, RegistrationKind};
use whimbrel_nas::mm::{RegistrationAccept, RegistrationRequest};
use whimbrel_ngap::ie::{NrPagingEdrxCycle, NrPagingEdrxInformation, NrPagingTimeWindow, PagingDrx};

use crate::config::{Config, Timers};
use crate::procedure::Ue;
use crate::state::{ReachabilityParameters, UeContext};

/// The longest active time: a UE that requests more gets no MICO mode.
const T3324_MAX: Duration = Duration::from_secs(3600);

/// Negotiates with the UE at each registration but a periodic one, which keeps what was agreed (TS 24.501 §5.5.1.3.4).
pub(crate) fn negotiate(ue: Ue, request: &RegistrationRequest, accept: &mut RegistrationAccept) {
    let config = ue.config();
    if request.registration_type.kind != RegistrationKind::PeriodicUpdating {
        let reach = agreed(&config, request);
        ue.with(|p| p.amf.set_reach(reach));
    }
    let now = ue.now();
    let reach = ue.with(|p| {
        let mut reach = p.amf.reach();
        reach.strictly_periodic_since = reach.strictly_periodic_since.map(|_| now); // each registration restarts it
        p.amf.set_reach(reach);
        reach
    });
    let t3512 = reach.t3512.unwrap_or(config.timers.t3512);
    accept.t3512 = Some(GprsTimer3::from_duration(t3512));
    if let Some(active) = reach.mico_active_time {
        accept.mico_indication = Some(MicoIndication {
            all_plmn_registration_area: false,
            strictly_periodic: reach.strictly_periodic_since.is_some(),
        });
        accept.t3324 = (!active.is_zero()).then(|| GprsTimer3::from_duration(active));
    }
    accept.negotiated_drx_parameters = reach.drx;
    accept.negotiated_extended_drx = reach.edrx.and_then(|octet| whimbrel_nas::ie::Octets::new([octet]));
}

fn agreed(config: &Config, request: &RegistrationRequest) -> ReachabilityParameters {
    let access = &config.amf.access;
    let mico = request.mico_indication.filter(|_| access.mico);
    let timer = |t: Option<GprsTimer3>, most: Duration| {
        t.and_then(GprsTimer3::duration).filter(|d| !d.is_zero()).map(|d| d.min(most))
    };
    let extended = request.requested_extended_drx.as_ref().filter(|_| access.edrx);
    ReachabilityParameters {
        t3512: timer(request.requested_t3512, access.t3512_max),
        mico_active_time: mico.map(|_| timer(request.t3324, T3324_MAX).unwrap_or_default()),
        strictly_periodic_since: mico.filter(|m| m.strictly_periodic).map(|_| Instant::ZERO),
        pageable_until: None,
        drx: request.requested_drx_parameters.filter(|d| *d != DrxParameters::NotSpecified),
        // MICO mode and eDRX exclude each other here: a UE that is not paged has no paging cycle.
        edrx: extended
            .filter(|_| mico.is_none())
            .and_then(|v| v.first().copied())
            .filter(|o| cycle(*o).is_some()),
    }
}

/// The UE becomes idle: it can be paged during its active time, or without limit.
pub(crate) fn becomes_idle(ue: &mut UeContext, now: Instant) {
    let mut reach = ue.amf.reach();
    reach.pageable_until = reach.mico_active_time.map(|active| now + active);
    ue.amf.set_reach(reach);
}

/// When a UE that becomes idle now is deregistered implicitly (TS 24.501 §5.3.7): after the mobile reachable timer, which is
/// longer than T3512, and the implicit deregistration timer. With the strictly periodic registration timer, the time counts
/// from the last registration, in 5GMM-CONNECTED too; if it expires while the UE is connected, it restarts.
pub(crate) fn implicitly_deregistered_at(ue: &UeContext, timers: &Timers, now: Instant) -> Instant {
    let reach = ue.amf.reach();
    let grace = timers.implicit_deregistration;
    let period = reach.t3512.unwrap_or(timers.t3512) + grace;
    let ran = reach
        .strictly_periodic_since
        .map_or(0, |since| now.since(since).as_micros() % period.as_micros().max(1));
    now + (period - Duration::from_micros(ran as u64)) + grace
}

/// Whether paging can reach it now.
pub(crate) fn is_reachable(ue: &UeContext, now: Instant) -> bool {
    ue.amf.reach().pageable_until.is_none_or(|until| now < until)
}

/// How long an idle UE may be unreachable, if longer than a paging cycle (TS 23.502 §4.2.3.3 step 2): until its next paging time window,
/// or its next periodic registration.
pub(crate) fn unreachable_time(ue: &UeContext, now: Instant) -> Option<Duration> {
    let amf = &ue.amf;
    if amf.connection.is_some() || !amf.registered {
        return None;
    }
    match is_reachable(ue, now) {
        true => edrx_cycle(ue),
        false => amf.implicit_deregistration_at.map(|until| until.since(now)),
    }
}

/// The UE's paging DRX for PAGING (TS 38.413 §9.3.1.90).
pub(crate) fn paging_drx(ue: &UeContext) -> Option<PagingDrx> {
    Some(match ue.amf.reach().drx? {
        DrxParameters::NotSpecified => return None,
        DrxParameters::T32 => PagingDrx::V32,
        DrxParameters::T64 => PagingDrx::V64,
        DrxParameters::T128 => PagingDrx::V128,
        DrxParameters::T256 => PagingDrx::V256,
    })
}

/// Its eDRX parameters for PAGING (TS 38.413 §9.3.1.227).
pub(crate) fn paging_edrx(ue: &UeContext) -> Option<NrPagingEdrxInformation> {
    let octet = ue.amf.reach().edrx?;
    let mut information = NrPagingEdrxInformation::new(cycle(octet)?);
    information.nr_paging_time_window = Some(window(octet >> 4));
    Some(information)
}

/// The extended cycle that the lower half of the octet names (TS 24.008 §10.5.5.32, table for NR), in hyperframes of
/// 10.24 seconds. `None`: not a value of NR.
fn cycle(octet: u8) -> Option<NrPagingEdrxCycle> {
    Some(match octet & 0x0f {
        0 => NrPagingEdrxCycle::Hfhalf,
        1 => NrPagingEdrxCycle::Hf1,
        2 => NrPagingEdrxCycle::Hf2,
        3 => NrPagingEdrxCycle::Hf4,
        5 => NrPagingEdrxCycle::Hf8,
        9 => NrPagingEdrxCycle::Hf16,
        10 => NrPagingEdrxCycle::Hf32,
        11 => NrPagingEdrxCycle::Hf64,
        12 => NrPagingEdrxCycle::Hf128,
        13 => NrPagingEdrxCycle::Hf256,
        14 => NrPagingEdrxCycle::Hf512,
        15 => NrPagingEdrxCycle::Hf1024,
        _ => return None,
    })
}

/// The eDRX cycle as a duration: between two paging time windows the UE cannot be reached.
pub(crate) fn edrx_cycle(ue: &UeContext) -> Option<Duration> {
    let hyperframes = match ue.amf.reach().edrx? & 0x0f {
        0 => return Some(Duration::from_millis(5120)),
        1 => 1,
        2 => 2,
        3 => 4,
        5 => 8,
        9 => 16,
        10 => 32,
        11 => 64,
        12 => 128,
        13 => 256,
        14 => 512,
        15 => 1024,
        _ => return None,
    };
    Some(Duration::from_millis(10_240) * hyperframes)
}

/// Windows of 1.28 seconds, counted from one (TS 24.008 §10.5.5.32); NGAP counts them the same way.
fn window(half: u8) -> NrPagingTimeWindow {
    use NrPagingTimeWindow::*;
    const ALL: [NrPagingTimeWindow; 16] =
        [S1, S2, S3, S4, S5, S6, S7, S8, S9, S10, S11, S12, S13, S14, S15, S16];
    ALL[usize::from(half & 0x0f)]
}
