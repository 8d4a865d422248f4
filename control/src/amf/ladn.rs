//! Local area data networks: LADN information for the UE (TS 23.501 §5.6.5, TS 24.501 §5.5.1.2.4, §9.11.3.30).

use whimbrel_ids::{Dnn, Tai};
use whimbrel_nas::ie::LadnInformation;
use whimbrel_nas::mm::{ConfigurationUpdateCommand, RegistrationRequest};

use super::configuration_update;
use crate::config::Config;
use crate::procedure::Ue;
use crate::state::UeContext;

/// The subscribed local data networks within the UE's registration area: those that it requests, or all (TS 24.501
/// §5.5.1.2.4).
pub(crate) fn information(ue: Ue, request: Option<&RegistrationRequest>) -> Option<LadnInformation> {
    let config = ue.config();
    let asked = request.and_then(|r| r.ladn_indication.as_ref()).filter(|l| !l.0.is_empty());
    let is_requested = |dnn: &Dnn| asked.is_none_or(|asked| asked.0.contains(dnn));
    let there: Vec<_> =
        ue.with(|p| local(p, &config)).into_iter().filter(|(dnn, _)| is_requested(dnn)).collect();
    let items = there.into_iter().map(|(dnn, tais)| (dnn, tais.into_iter().collect()));
    let information = LadnInformation(items.collect());
    (!information.0.is_empty()).then_some(information)
}

fn local(p: &UeContext, config: &Config) -> Vec<(Dnn, Vec<Tai>)> {
    let mut all: Vec<(Dnn, Vec<Tai>)> = Vec::new();
    if config.smf.data_networks.values().all(|n| n.ladn.is_none()) {
        return all;
    }
    let slices = p.amf.subscription.iter().flat_map(|s| &s.slices);
    for subscribed in slices.filter(|s| p.amf.slices.allowed.contains(&s.s_nssai)).flat_map(|s| &s.dnns) {
        let ladn = config.smf.data_networks.get(&subscribed.dnn).and_then(|n| n.ladn.as_ref());
        let Some(ladn) = ladn.filter(|_| all.iter().all(|(dnn, _)| *dnn != subscribed.dnn)) else { continue };
        let area = p.amf.location.registration_area.iter().filter(|tai| ladn.tacs.contains(&tai.tac));
        let area: Vec<Tai> = area.copied().collect();
        if !area.is_empty() {
            all.push((subscribed.dnn.clone(), area));
        }
    }
    all
}

/// The data networks were reconfigured: a connected UE gets new LADN information (TS 24.501 §5.4.4.2).
pub(crate) fn changed(ue: Ue) {
    let there = ue.with(|p| {
        let free = p.lanes.procedure(crate::procedure::Lane::Mobility).is_none();
        p.amf.registered && free && p.amf.connection.as_ref().is_some_and(|c| c.secured)
    });
    if let Some(information) = information(ue, None).filter(|_| there) {
        let mut command = ConfigurationUpdateCommand::new();
        command.ladn_information = Some(information);
        configuration_update::send_command(ue, command);
    }
}
