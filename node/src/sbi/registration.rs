//! This core's functions at the NRF (TS 29.510 §5.2.2): the AMF, the services that are offered, and consumers that need access tokens.

use std::net::IpAddr;
use std::time::Duration;

use whimbrel_sbi::SbiClient;
use whimbrel_sbi::nrf::{NrfClient, NrfSettings};
use whimbrel_sbi_types::BoundedList;
use whimbrel_sbi_types::common::{
    AmfRegionId, AmfSetId, DnnOrWildcard, NfInstanceId, ShortText, Snssai, UriScheme,
};
use whimbrel_sbi_types::nnrf::{
    AmfInfo, DnnSmfInfoItem, IpEndPoint, NfProfile, NfService, NfServiceVersion, NfStatus, NfType,
    ServiceName, SmfInfo, SnssaiSmfInfoItem,
};

use super::udm::Consumer;
use crate::config::Config;
use crate::config::sbi::{ChfSource, OfferedService, PcfSource, Sbi, SmfSource, UdmSource};

/// How long the NRF may take to forget this core when it stops.
const DEREGISTERED_WITHIN: Duration = Duration::from_secs(1);

/// Registers the AMF, each function whose services are offered, and where access tokens are used each function that consumes: an NRF gives
/// tokens to registered instances alone (TS 33.501 §13.4.1.1). The first is the AMF. Within a tokio runtime. Errors: one sentence.
pub(super) fn register(
    config: &Config,
    sbi: &Sbi,
    consumer: &Consumer,
    client: &SbiClient,
) -> Result<Vec<NrfClient>, String> {
    let Some(nrf) = sbi.nrf_root() else { return Ok(Vec::new()) };
    let root: whimbrel_sbi::ApiRoot = nrf.uri().parse().map_err(|e| format!("`sbi.nrf`: {e}"))?;
    let mut amf = NfProfile::new(consumer.amf.clone(), NfType::Amf, NfStatus::Registered);
    amf.amf_info = amf_info(config, consumer);
    if sbi.smf != SmfSource::Embedded {
        // The SMF finds here where the messages for UEs go.
        amf.nf_services =
            service(sbi, &ServiceName::NamfComm, "v1").and_then(|of| BoundedList::new(vec![of]));
    }
    let mut profiles = vec![amf];
    if sbi.access_tokens
        && (sbi.udm == UdmSource::Nrf || sbi.chf == ChfSource::Nrf || sbi.pcf == PcfSource::Nrf)
    {
        // They offer nothing, so that no other function is to find them.
        let consumer_only =
            |id: &NfInstanceId, nf_type| NfProfile::new(id.clone(), nf_type, NfStatus::Undiscoverable);
        if !sbi.offer.contains(&OfferedService::Smf) {
            profiles.push(consumer_only(&consumer.smf, NfType::Smf));
        }
        if !sbi.offer.contains(&OfferedService::Ausf) {
            profiles.push(consumer_only(&consumer.ausf, NfType::Ausf));
        }
    }
    for offered in &sbi.offer {
        let (id, nf_type, services): (_, _, &[(ServiceName, &str)]) = match offered {
            OfferedService::Udm => (
                &consumer.udm,
                NfType::Udm,
                &[(ServiceName::NudmUeau, "v1"), (ServiceName::NudmUecm, "v1"), (ServiceName::NudmSdm, "v2")],
            ),
            OfferedService::Ausf => (&consumer.ausf, NfType::Ausf, &[(ServiceName::NausfAuth, "v1")]),
            OfferedService::Pcf => (
                &consumer.pcf,
                NfType::Pcf,
                &[(ServiceName::NpcfSmpolicycontrol, "v1"), (ServiceName::NpcfAmPolicyControl, "v1")],
            ),
            OfferedService::Smf => (&consumer.smf, NfType::Smf, &[(ServiceName::NsmfPdusession, "v1")]),
            // It is in its own list.
            OfferedService::Nrf => continue,
            OfferedService::Chf => {
                (&consumer.chf, NfType::Chf, &[(ServiceName::NchfConvergedcharging, "v3")])
            }
        };
        let mut profile = NfProfile::new(id.clone(), nf_type, NfStatus::Registered);
        let services = services.iter().filter_map(|(name, version)| service(sbi, name, version)).collect();
        profile.nf_services = BoundedList::new(services);
        if *offered == OfferedService::Smf {
            profile.smf_info = smf_info(config, consumer);
        }
        profiles.push(profile);
    }
    Ok(profiles
        .into_iter()
        .map(|mut profile| {
            profile.plmn_list = BoundedList::new(vec![consumer.plmn.into()]);
            match sbi.address.ip() {
                IpAddr::V4(address) => profile.ipv4_addresses = BoundedList::new(vec![address]),
                IpAddr::V6(address) => profile.ipv6_addresses = BoundedList::new(vec![address]),
            }
            let mut settings = NrfSettings::new(vec![root.clone()], profile);
            settings.uses_tokens = sbi.access_tokens;
            NrfClient::start(client.clone(), settings)
        })
        .collect())
}

/// Ends the registrations.
pub(super) async fn deregister(registered: &[NrfClient]) {
    for nrf in registered {
        let _ = tokio::time::timeout(DEREGISTERED_WITHIN, nrf.deregister()).await;
    }
}

fn amf_info(config: &Config, consumer: &Consumer) -> Option<AmfInfo> {
    let guami = consumer.guami;
    let [region, _, _] = guami.amf_id.octets();
    let tais =
        config.amf.tacs.iter().map(|tac| whimbrel_ids::Tai { plmn: guami.plmn, tac: *tac }.into()).collect();
    Some(AmfInfo {
        amf_set_id: AmfSetId::new(guami.amf_id.set())?,
        amf_region_id: AmfRegionId([region]),
        guami_list: BoundedList::new(vec![guami.into()])?,
        tai_list: BoundedList::new(tais),
        tai_range_list: None,
        backup_info_amf_failure: None,
        backup_info_amf_removal: None,
        n2_interface_amf_info: None,
    })
}

/// The slices and data networks of this core's SMF, and its tracking areas (TS 29.510 §6.1.6.2.12).
fn smf_info(config: &Config, consumer: &Consumer) -> Option<SmfInfo> {
    let control = config.control();
    let dnns: Vec<DnnSmfInfoItem> = control
        .smf
        .data_networks
        .keys()
        .filter_map(|dnn| DnnOrWildcard::new(dnn.as_str()).ok())
        .map(|dnn| DnnSmfInfoItem { dnn, dnai_list: None })
        .collect();
    let dnns = BoundedList::new(dnns)?;
    let slices = control.amf.slices.iter().map(|slice| SnssaiSmfInfoItem {
        s_nssai: Snssai::from(*slice).into(),
        dnn_smf_info_list: dnns.clone(),
    });
    let tais = control.amf.tacs.iter().map(|tac| whimbrel_ids::Tai { plmn: consumer.plmn, tac: *tac }.into());
    Some(SmfInfo {
        s_nssai_smf_info_list: BoundedList::new(slices.collect())?,
        tai_list: BoundedList::new(tais.collect()),
        tai_range_list: None,
        pgw_fqdn: None,
        pgw_ip_addr_list: None,
        access_type: None,
        priority: None,
        vsmf_support_ind: None,
        ismf_support_ind: None,
    })
}

pub(super) fn service(sbi: &Sbi, name: &ServiceName, version: &str) -> Option<NfService> {
    let scheme = if sbi.tls.certificate.is_some() { UriScheme::Https } else { UriScheme::Http };
    let mut service = NfService::new(ShortText::new(name.as_str()).ok()?, name.clone(), scheme);
    service.versions = BoundedList::one(NfServiceVersion {
        api_version_in_uri: ShortText::new(version).ok()?,
        api_full_version: ShortText::new(&format!("{}.0.0", version.trim_start_matches('v'))).ok()?,
        expiry: None,
    });
    let (ipv4_address, ipv6_address) = match sbi.address.ip() {
        IpAddr::V4(address) => (Some(address), None),
        IpAddr::V6(address) => (None, Some(address)),
    };
    let end_point =
        IpEndPoint { ipv4_address, ipv6_address, transport: None, port: Some(sbi.address.port()) };
    service.ip_end_points = BoundedList::new(vec![end_point]);
    Some(service)
}
