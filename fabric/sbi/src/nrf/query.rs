//! Queries of a discovery: TS 29.510 §6.2.3.2.3.1.

use whimbrel_sbi_types::common::{Dnn, Guami, NfInstanceId, PlmnId, RoutingIndicator, Snssai, Supi, Tai};
use whimbrel_sbi_types::nnrf::{NfType, ServiceName, push_encoded};

/// Instances that are looked for.
#[derive(Clone, Debug)]
pub struct DiscoveryQuery {
    /// Type of the instances.
    pub target_nf_type: NfType,
    /// Services, of which an instance has one at least.
    pub service_names: Vec<ServiceName>,
    /// One instance by its identity.
    pub target_nf_instance_id: Option<NfInstanceId>,
    /// Networks of the instances.
    pub target_plmn_list: Vec<PlmnId>,
    /// Slices that an instance serves.
    pub snssais: Vec<Snssai>,
    /// Data network that an instance serves.
    pub dnn: Option<Dnn>,
    /// Tracking area that an instance serves.
    pub tai: Option<Tai>,
    /// AMF by its identity.
    pub guami: Option<Guami>,
    /// Subscriber that an instance serves. The answer is kept for this subscriber alone.
    pub supi: Option<Supi>,
    /// Routing indicator of the SUCI that an instance serves.
    pub routing_indicator: Option<RoutingIndicator>,
    /// Type of the function that will use the service, where it is not the one that is registered: NRFs leave out services that do not
    /// allow it (`allowedNfTypes`).
    pub requester_nf_type: Option<NfType>,
}

impl DiscoveryQuery {
    /// Instances of a type with one of these services.
    pub fn new(target_nf_type: NfType, service_names: impl IntoIterator<Item = ServiceName>) -> Self {
        Self {
            target_nf_type,
            service_names: service_names.into_iter().collect(),
            target_nf_instance_id: None,
            target_plmn_list: Vec::new(),
            snssais: Vec::new(),
            dnn: None,
            tai: None,
            guami: None,
            supi: None,
            routing_indicator: None,
            requester_nf_type: None,
        }
    }

    /// The query of the URI; objects and arrays of objects are JSON in it (TS 29.501 §5.3.13). `None` if it is too long. `registered` is
    /// the type of the client's own instance.
    pub(super) fn to_query(&self, registered: &NfType) -> Option<String> {
        /// A request line of some kilooctets passes every peer.
        const OCTETS_MAX: usize = 4096;
        let mut query = String::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                if !query.is_empty() {
                    query.push('&');
                }
                query.push_str(name);
                query.push('=');
                push_encoded(&mut query, &value);
            }
        };
        add("target-nf-type", Some(self.target_nf_type.to_string()));
        add("requester-nf-type", Some(self.requester_nf_type.as_ref().unwrap_or(registered).to_string()));
        let names: Vec<&str> = self.service_names.iter().map(ServiceName::as_str).collect();
        add("service-names", Some(names.join(",")).filter(|names| !names.is_empty()));
        add("target-nf-instance-id", self.target_nf_instance_id.as_ref().map(ToString::to_string));
        add("target-plmn-list", json_list(&self.target_plmn_list));
        add("snssais", json_list(&self.snssais));
        add("dnn", self.dnn.as_ref().map(ToString::to_string));
        add("tai", self.tai.as_ref().and_then(json));
        add("guami", self.guami.as_ref().and_then(json));
        add("supi", self.supi.as_ref().map(ToString::to_string));
        add("routing-indicator", self.routing_indicator.as_ref().map(ToString::to_string));
        (query.len() <= OCTETS_MAX).then_some(query)
    }
}

fn json(value: &impl serde::Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

fn json_list(values: &[impl serde::Serialize]) -> Option<String> {
    if values.is_empty() { None } else { json(&values) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.510 §6.2.3.2.3.1; TS 29.501 §5.3.13: arrays of strings are joined by commas, objects are JSON
    fn queries_have_the_names_and_forms_of_the_table() {
        let mut query = DiscoveryQuery::new(NfType::Udm, [ServiceName::NudmSdm, ServiceName::NudmUecm]);
        query.snssais = vec![Snssai { sst: 1, sd: None }];
        query.supi = Some("imsi-999700000000001".parse().unwrap());
        assert_eq!(
            query.to_query(&NfType::Amf).unwrap(),
            "target-nf-type=UDM&requester-nf-type=AMF&service-names=nudm-sdm%2Cnudm-uecm&snssais=%5B%7B%22sst%22%3A1%7D%5D\
             &supi=imsi-999700000000001"
        );
        query.requester_nf_type = Some(NfType::Smf);
        assert!(query.to_query(&NfType::Amf).unwrap().contains("&requester-nf-type=SMF&"));
        query.snssais = vec![Snssai { sst: 1, sd: None }; 500];
        assert_eq!(query.to_query(&NfType::Amf), None);
    }
}
