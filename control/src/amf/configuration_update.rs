//! Generic UE configuration update: TS 23.502 §4.2.4.2, TS 24.501 §5.4.4.

use whimbrel_ids::{Guti, SNssai};
use whimbrel_nas::ie::{
    ConfigurationUpdateIndication, MobileIdentity, NetworkName, NetworkSlicingIndication, TimeZone,
    UniversalTime,
};
use whimbrel_nas::mm::{self, ConfigurationUpdateCommand};

use super::ask::ask;
use super::n2::send_nas;
use super::slices::{Slices, nssai, rejected_nssai};
use super::{end, ladn, ue_context_modification};
use crate::event::Event;
use crate::input::Input;
use crate::procedure::{End, Lane, Procedure, Repeated, Ue};
use crate::state::Security;

/// Sends the network's name and time, as UEs show them. It needs no acknowledgement and is not repeated (TS 24.501
/// §5.4.4.2).
pub(crate) fn send_network_name(ue: Ue) {
    if let Some(command) = names(ue) {
        send_nas(ue, &command.into(), Security::Current);
    }
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

fn start(ue: Ue, update: impl Future<Output = Result<(), End>> + 'static) {
    let ue = ue.on(Lane::Mobility);
    ue.start(Lane::Mobility, Procedure::ConfigurationUpdate, async move {
        let began = ue.now();
        match update.await {
            Ok(()) => {
                let subject = ue.with(|p| p.subject());
                let took = ue.now().since(began);
                ue.event(Event::Completed { procedure: Procedure::ConfigurationUpdate, subject, took });
                match ue_context_modification::new_assistance(ue).await {
                    Err(End::Interrupted(why)) => end::interrupted(ue, why),
                    _ => end::arm_inactivity_timer(ue),
                }
            }
            // TS 24.501 §5.4.4.6 b: after the fifth expiry both 5G-GUTIs stay valid until the UE uses one.
            Err(End::Refused(_)) => end::arm_inactivity_timer(ue),
            Err(End::Interrupted(why)) => end::interrupted(ue, why),
        }
    });
}

/// Sends the slices of a changed subscription; the UE acknowledges and is to register with them
/// (TS 24.501 §5.4.4.2, TS 23.502 §4.2.4.2).
pub(crate) async fn send_slices(ue: Ue, slices: Slices, configured: Vec<SNssai>) -> Result<(), End> {
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

async fn acknowledged(ue: Ue, command: ConfigurationUpdateCommand) -> Result<(), End> {
    let timer = Repeated::new("CONFIGURATION UPDATE COMMAND", "T3555", ue.config().timers.t3555);
    let accepts =
        |i: &Input| matches!(i, Input::Mm(m) if matches!(**m, mm::Message::ConfigurationUpdateComplete(_)));
    ask(ue, Box::new(command.into()), Security::Current, timer, accepts).await.map(drop)
}

async fn reallocation(ue: Ue) -> Result<(), End> {
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
    ue.with(|p| p.amf.former_tmsi = None);
    Ok(())
}

/// Network name and time, where the operator configured a name.
fn names(ue: Ue) -> Option<ConfigurationUpdateCommand> {
    let config = ue.config();
    let name = &config.amf.network_name;
    if name.full.is_empty() && name.short.is_empty() {
        return None;
    }
    let zone = TimeZone::from_quarters(config.amf.time_zone_quarters).unwrap_or(TimeZone::UTC);
    let mut command = ConfigurationUpdateCommand::new();
    command.full_name = NetworkName::new(&name.full).filter(|_| !name.full.is_empty());
    command.short_name = NetworkName::new(&name.short).filter(|_| !name.short.is_empty());
    command.local_time_zone = Some(zone);
    command.universal_time = Some(UniversalTime::from_unix_secs(ue.now().as_secs(), zone));
    Some(command)
}
