//! Generic UE configuration update: TS 23.502 §4.2.4.2, TS 24.501 §5.4.4.

use whimbrel_ids::{Guti, Instant, SNssai};
use whimbrel_nas::ie::{
    ConfigurationUpdateIndication, DaylightSaving, MobileIdentity, NetworkName, NetworkSlicingIndication,
    TimeZone, UniversalTime,
};
use whimbrel_nas::mm::{self, ConfigurationUpdateCommand};

use super::ask::ask;
use super::n2::send_nas;
use super::slices::{Slices, nssai, rejected_nssai};
use super::{end, ladn, ue_context_modification};
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{Lane, Procedure, ProcedureEnd, RepeatedMessage, Ue};
use crate::state::DownlinkProtection;

/// Sends the network's name and time, as UEs show them. It needs no acknowledgement and is not repeated (TS 24.501
/// §5.4.4.2).
pub(crate) fn send_network_name(ue: Ue) {
    if let Some(command) = names(ue) {
        send_nas(ue, &command.into(), DownlinkProtection::Current);
    }
}

/// The offset of local time has changed: a UE that is connected gets it now, one that is idle or has a procedure when it is connected next
/// ([`is_local_time_new`]).
pub(crate) fn local_time_changed(ue: Ue) {
    let is_there = ue.with(|p| {
        let is_free = p.lanes.procedure(Lane::Mobility).is_none();
        p.amf.registered && is_free && p.amf.connection.as_ref().is_some_and(|c| c.secured && !c.releasing)
    });
    if is_there {
        send_network_name(ue);
    }
}

/// True if a UE may not have the present local time yet: each UE is connected within T3512 of a change, the grace included that it has.
pub(crate) fn is_local_time_new(ue: Ue) -> bool {
    let config = ue.config();
    let period = ue.with(|p| p.amf.reach().t3512).unwrap_or(config.timers.t3512);
    let since = config.amf.local_time.since;
    since != Instant::ZERO && ue.now().since(since) <= period + config.timers.implicit_deregistration
}

/// Gives the UE a new 5G-GUTI, which it acknowledges (TS 24.501 §5.3.3, TS 33.501 §6.12.3: after a network-triggered service request, and
/// as the operator's policy demands).
pub(crate) fn reallocate_guti(ue: Ue) {
    start(ue, reallocation(ue.on(Lane::Mobility)));
}

/// Sends a configuration update that the UE acknowledges.
pub(crate) fn send_command(ue: Ue, mut command: ConfigurationUpdateCommand) {
    command.update_indication = Some(ConfigurationUpdateIndication {
        acknowledgement_requested: true,
        registration_requested: false,
    });
    let ue = ue.on(Lane::Mobility);
    let command = Box::new(command);
    start(ue, async move { acknowledged(ue, *command).await });
}

fn start(ue: Ue, update: impl Future<Output = Result<(), ProcedureEnd>> + 'static) {
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::ConfigurationUpdate, async move {
        let began = ue.now();
        match update.await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::ConfigurationUpdate, subject, took });
                match ue_context_modification::new_assistance(ue).await {
                    Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
                    _ => end::arm_inactivity_timer(ue),
                }
            }
            // TS 24.501 §5.4.4.6 b: after the fifth expiry both 5G-GUTIs stay valid until the UE uses one.
            Err(ProcedureEnd::Refused(_)) => end::arm_inactivity_timer(ue),
            Err(ProcedureEnd::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// Sends the slices of a changed subscription; the UE acknowledges and is to register with them
/// (TS 24.501 §5.4.4.2, TS 23.502 §4.2.4.2).
pub(crate) async fn send_slices(ue: Ue, slices: Slices, configured: Vec<SNssai>) -> Result<(), ProcedureEnd> {
    let mut command = ConfigurationUpdateCommand::new();
    command.allowed_nssai = Some(nssai(&slices.allowed));
    command.rejected_nssai = rejected_nssai(slices.rejected);
    command.configured_nssai = Some(nssai(&configured));
    command.ladn_information = ladn::information(ue, None);
    command.network_slicing_indication =
        Some(NetworkSlicingIndication { subscription_changed: true, default_configured_nssai: false });
    command.update_indication =
        Some(ConfigurationUpdateIndication { acknowledgement_requested: true, registration_requested: true });
    acknowledged(ue, command).await
}

async fn acknowledged(ue: Ue, command: ConfigurationUpdateCommand) -> Result<(), ProcedureEnd> {
    let timer = RepeatedMessage::new("CONFIGURATION UPDATE COMMAND", "T3555", ue.config().timers.t3555);
    let accepts =
        |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::ConfigurationUpdateComplete(_)));
    ask(ue, Box::new(command.into()), DownlinkProtection::Current, timer, accepts).await.map(drop)
}

async fn reallocation(ue: Ue) -> Result<(), ProcedureEnd> {
    let tmsi = ue.take_tmsi();
    ue.with(|p| p.amf.former_tmsi = p.amf.tmsi.replace(tmsi));
    let guami = ue.config().amf.guami();
    let mut command = names(ue).unwrap_or(ConfigurationUpdateCommand::new());
    command.guti = Some(MobileIdentity::Guti(Guti { guami, tmsi }));
    command.update_indication = Some(ConfigurationUpdateIndication {
        acknowledgement_requested: true,
        registration_requested: false,
    });
    acknowledged(ue, command).await?;
    ue.with(|p| p.amf.confirm_tmsi());
    Ok(())
}

/// Network name and time, where the operator configured a name.
fn names(ue: Ue) -> Option<ConfigurationUpdateCommand> {
    let config = ue.config();
    let name = &config.amf.network_name;
    if name.full.is_empty() && name.short.is_empty() {
        return None;
    }
    let local = config.amf.local_time;
    let zone = TimeZone::from_quarters(local.quarters).unwrap_or(TimeZone::UTC);
    let mut command = ConfigurationUpdateCommand::new();
    command.full_name = NetworkName::new(&name.full).filter(|_| !name.full.is_empty());
    command.short_name = NetworkName::new(&name.short).filter(|_| !name.short.is_empty());
    command.local_time_zone = Some(zone);
    command.universal_time = Some(UniversalTime::from_unix_secs(ue.now().as_secs(), zone));
    command.daylight_saving = local.daylight_saving_hours.map(|hours| match hours {
        0 => DaylightSaving::None,
        1 => DaylightSaving::OneHour,
        _ => DaylightSaving::TwoHours,
    });
    Some(command)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use whimbrel_ids::{STmsi, Tmsi};
    use whimbrel_nas::ie::{NgKsi, ServiceType};
    use whimbrel_nas::mm::{Message, ServiceRequest};

    use super::*;
    use crate::config::LocalTime;
    use crate::envelope::{Batch, Command, Payload};
    use crate::ue_harness::{CIPHERED, UeHarness, config};

    /// In the middle of summer, since so long before the harness begins.
    fn summer(seconds_ago: u64) -> Arc<crate::config::Config> {
        let mut config = config();
        config.amf.network_name.full = "Whimbrel".into();
        let since = Instant(1_800_000_000_000_000 - seconds_ago * 1_000_000);
        config.amf.local_time = LocalTime { quarters: 8, daylight_saving_hours: Some(1), since };
        config.into()
    }

    fn command(harness: &mut UeHarness, batch: &Batch) -> Option<ConfigurationUpdateCommand> {
        harness.downlink(batch).into_iter().find_map(|m| match m {
            Message::ConfigurationUpdateCommand(m) => Some(m),
            _ => None,
        })
    }

    fn served(harness: &mut UeHarness) -> Option<ConfigurationUpdateCommand> {
        let identity = MobileIdentity::STmsi(STmsi { set: 1, pointer: 0, tmsi: Tmsi(0x1234) });
        let request = ServiceRequest::new(NgKsi::native(0).unwrap(), ServiceType::Signalling, identity);
        let batch = harness.nas(CIPHERED, request);
        command(harness, &batch)
    }

    #[test] // TS 24.501 §5.4.4.2, §8.2.19; TS 24.008 §10.5.3.8, §10.5.3.9, §10.5.3.12
    fn a_connected_ue_gets_changed_local_time() {
        let mut harness = UeHarness::registered();
        harness.shard.configure(summer(0));
        let batch = harness.input(Payload::Command(Command::LocalTimeChanged));
        let m = command(&mut harness, &batch).unwrap();
        let zone = TimeZone::from_quarters(8);
        assert_eq!((m.local_time_zone, m.universal_time.map(UniversalTime::zone)), (zone, zone));
        assert_eq!(m.daylight_saving, Some(DaylightSaving::OneHour));
        assert_eq!(m.update_indication, None, "it is not acknowledged");
    }

    #[test] // TS 24.501 §5.3.7: every UE is connected within T3512 of the change, and gets it then
    fn a_ue_that_was_idle_gets_local_time_when_it_is_connected_next() {
        for (seconds_ago, is_sent) in [(0, true), (60 * 60, true), (65 * 60, false)] {
            let mut harness = UeHarness::registered();
            harness.shard.configure(summer(seconds_ago));
            assert_eq!(served(&mut harness).is_some(), is_sent, "{seconds_ago} s");
        }
        let mut harness = UeHarness::registered();
        assert_eq!(served(&mut harness), None, "the offset has never changed");
    }
}
