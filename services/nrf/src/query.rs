//! Parameters of a discovery, `GET /nf-instances?…`: TS 29.510 §6.2.3.2.3.1, and the form of a token request.
//!
//! Supported: `target-nf-type`, `requester-nf-type`, `service-names`, `target-nf-instance-id`, `requester-plmn-list`, `target-plmn-list`,
//! `snssais`, `dnn`, `amf-set-id`, `amf-region-id`, `guami`, `tai`, `supi`, `routing-indicator`, `limit`, `max-payload-size`,
//! `requester-features`. Others are ignored, as the clause has it for parameters that an NRF does not support.

use std::str::FromStr;

use whimbrel_sbi_types::common::{
    AmfRegionId, AmfSetId, Dnn, Guami, NfInstanceId, PlmnId, RoutingIndicator, Snssai, Supi,
    SupportedFeatures, Tai,
};
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};
use whimbrel_sbi_types::{BoundedList, from_slice};

use crate::profile::lower_case;
use crate::refusal::NrfRefusal;

/// Kilooctets of an answer where the query names no other number: the default of TS 29.510 Table 6.2.3.2.3.1-1.
const PAYLOAD_KILOOCTETS_DEFAULT: usize = 124;
/// The most that a query may name: the same table.
const PAYLOAD_KILOOCTETS_MAX: usize = 2000;

/// Instances that a consumer looks for.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each name is the parameter's own")]
pub struct DiscoveryParameters {
    pub target_nf_type: NfType,
    pub requester_nf_type: NfType,
    pub service_names: Vec<ServiceName>,
    pub target_nf_instance_id: Option<NfInstanceId>,
    pub requester_plmn_list: Vec<PlmnId>,
    pub target_plmn_list: Vec<PlmnId>,
    pub snssais: Vec<Snssai>,
    pub dnn: Option<Dnn>,
    pub amf_set_id: Option<AmfSetId>,
    pub amf_region_id: Option<AmfRegionId>,
    pub guami: Option<Guami>,
    pub tai: Option<Tai>,
    pub supi: Option<Supi>,
    pub routing_indicator: Option<RoutingIndicator>,
    /// Instances of the answer.
    pub limit: Option<usize>,
    /// Octets of the answer.
    pub payload_octets_max: usize,
    pub requester_features: Option<SupportedFeatures>,
}

impl DiscoveryParameters {
    /// Reads the query of a URI. The refusal names the parameter that is wrong or missing.
    pub fn read(query: &str) -> Result<Self, NrfRefusal> {
        let pairs = pairs(query).map_err(|name| {
            NrfRefusal::new(400, "INVALID_QUERY_PARAM", "the parameter is not encoded as RFC 3986 has it")
                .of(name)
        })?;
        let parameters = QueryParameters(pairs);
        let missing = |name: &str| {
            NrfRefusal::new(400, "MANDATORY_QUERY_PARAM_MISSING", "the parameter is missing").of(name)
        };
        let mandatory = |name: &str| -> Result<NfType, NrfRefusal> {
            let text = parameters.one(name)?.ok_or_else(|| missing(name))?;
            text.parse().map_err(|_| {
                NrfRefusal::new(400, "MANDATORY_QUERY_PARAM_INCORRECT", "a type such as UDM is expected")
                    .of(name)
            })
        };
        let payload = parameters.parsed::<usize>("max-payload-size")?.unwrap_or(PAYLOAD_KILOOCTETS_DEFAULT);
        Ok(Self {
            target_nf_type: mandatory("target-nf-type")?,
            requester_nf_type: mandatory("requester-nf-type")?,
            service_names: parameters.texts("service-names")?,
            target_nf_instance_id: parameters
                .parsed::<NfInstanceId>("target-nf-instance-id")?
                .map(|id| lower_case(&id)),
            requester_plmn_list: parameters.objects("requester-plmn-list")?,
            target_plmn_list: parameters.objects("target-plmn-list")?,
            snssais: parameters.objects("snssais")?,
            dnn: parameters.parsed("dnn")?,
            amf_set_id: parameters.parsed("amf-set-id")?,
            amf_region_id: parameters.parsed("amf-region-id")?,
            guami: parameters.object("guami")?,
            tai: parameters.object("tai")?,
            supi: parameters.parsed("supi")?,
            routing_indicator: parameters.parsed("routing-indicator")?,
            limit: parameters.limit()?,
            payload_octets_max: payload.min(PAYLOAD_KILOOCTETS_MAX) * 1000,
            requester_features: parameters.parsed("requester-features")?,
        })
    }
}

/// Type and number of the instances of a list, `GET /nf-instances` of Nnrf_NFManagement: TS 29.510 §6.1.3.2.3.1.
pub fn list_parameters(query: &str) -> Result<(Option<NfType>, Option<usize>), NrfRefusal> {
    let pairs = pairs(query).map_err(|name| {
        NrfRefusal::new(400, "INVALID_QUERY_PARAM", "the parameter is not encoded as RFC 3986 has it")
            .of(name)
    })?;
    let parameters = QueryParameters(pairs);
    Ok((parameters.parsed("nf-type")?, parameters.limit()?))
}

/// The parameters of a query in their order.
struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter that may stand there once.
    fn one<'a>(&'a self, name: &str) -> Result<Option<&'a str>, NrfRefusal> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(incorrect(name, "the parameter stands there twice")),
        }
    }

    fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, NrfRefusal> {
        let value = self.one(name)?.map(str::parse).transpose();
        value.map_err(|_| incorrect(name, "the value is not of the parameter's type"))
    }

    fn limit(&self) -> Result<Option<usize>, NrfRefusal> {
        match self.parsed("limit")? {
            Some(0) => Err(incorrect("limit", "a number from 1 is expected")),
            limit => Ok(limit),
        }
    }

    /// Texts that are joined by commas (TS 29.501 §5.3.13); a repeated parameter has further ones.
    fn texts<T: FromStr>(&self, name: &str) -> Result<Vec<T>, NrfRefusal> {
        let texts = self.all(name).flat_map(|value| value.split(',')).filter(|text| !text.is_empty());
        texts
            .map(|text| {
                text.trim().parse().map_err(|_| incorrect(name, "names joined by commas are expected"))
            })
            .collect()
    }

    fn object<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, NrfRefusal> {
        let value = self.one(name)?.map(|value| from_slice(value.as_bytes())).transpose();
        value.map_err(|e| incorrect(name, &e.reason))
    }

    /// An array of objects in JSON, or one of them: free5GC's functions send both.
    fn objects<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, NrfRefusal> {
        let mut all = Vec::new();
        for value in self.all(name) {
            let octets = value.as_bytes();
            let read = match value.trim_start().starts_with('[') {
                true => from_slice::<BoundedList<T, 0>>(octets).map(BoundedList::into_vec),
                false => from_slice(octets).map(|one| vec![one]),
            };
            all.extend(read.map_err(|e| incorrect(name, &e.reason))?);
        }
        Ok(all)
    }
}

fn incorrect(name: &str, reason: &str) -> NrfRefusal {
    NrfRefusal::new(400, "OPTIONAL_QUERY_PARAM_INCORRECT", reason).of(name)
}

/// Names and values of a query or form (RFC 3986 §2.1, RFC 6749 Appendix B). The error is the name of a pair that is not encoded.
pub(crate) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            decoded(name).zip(decoded(value)).ok_or_else(|| name.to_owned())
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(octets).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_sbi_types::nnrf::push_encoded;

    use super::*;

    const BASE: &str = "target-nf-type=SMF&requester-nf-type=AMF";

    #[test] // TS 29.510 §6.2.3.2.3.1: as free5GC's AMF sends it
    fn a_query_of_a_core_in_use_is_read() {
        let query = "requester-nf-type=AMF&target-nf-type=SMF&dnn=internet&service-names=nsmf-pdusession&snssais=%5B%7B%22sst%22%3A1%7D%5D\
                     &target-plmn-list=%5B%7B%22mcc%22%3A%22999%22%2C%22mnc%22%3A%2270%22%7D%5D&limit=3&max-payload-size=20&x-vendor=1";
        let read = DiscoveryParameters::read(query).unwrap();
        assert_eq!((read.target_nf_type, read.requester_nf_type), (NfType::Smf, NfType::Amf));
        assert_eq!(read.service_names, [ServiceName::NsmfPdusession]);
        assert_eq!(read.snssais, [Snssai { sst: 1, sd: None }]);
        assert_eq!((read.target_plmn_list.len(), read.limit, read.payload_octets_max), (1, Some(3), 20_000));
        let one = DiscoveryParameters::read(&format!(
            "{BASE}&snssais=%7B%22sst%22%3A1%7D&service-names=a,b&service-names=c"
        ));
        let one = one.unwrap();
        assert_eq!((one.snssais.len(), one.service_names.len(), one.payload_octets_max), (1, 3, 124_000));
    }

    #[test] // TS 29.510 §6.2.3.2.3.1, TS 29.500 §5.2.7.2: the refusal names the parameter
    fn a_malformed_parameter_is_refused_with_its_name() {
        let refused = |query: &str| {
            let refusal = DiscoveryParameters::read(query).unwrap_err();
            (refusal.status, refusal.cause, refusal.param.unwrap())
        };
        let missing = "MANDATORY_QUERY_PARAM_MISSING";
        assert_eq!(refused(""), (400, missing, "target-nf-type".into()));
        assert_eq!(refused("target-nf-type=UDM"), (400, missing, "requester-nf-type".into()));
        assert_eq!(
            refused("target-nf-type=U%20M&requester-nf-type=AMF"),
            (400, "MANDATORY_QUERY_PARAM_INCORRECT", "target-nf-type".into())
        );
        for (parameter, name) in [
            ("snssais=1", "snssais"),
            ("snssais=%5B%7B%22sst%22%3A256%7D%5D", "snssais"),
            ("snssais=%5B", "snssais"),
            ("target-plmn-list=99970", "target-plmn-list"),
            ("guami=%7B%7D", "guami"),
            ("tai=%7B%22tac%22%3A1%7D", "tai"),
            ("amf-set-id=400", "amf-set-id"),
            ("amf-region-id=1", "amf-region-id"),
            ("target-nf-instance-id=1", "target-nf-instance-id"),
            ("supi=imsi-99", "supi"),
            ("routing-indicator=12345", "routing-indicator"),
            ("limit=0", "limit"),
            ("limit=-1", "limit"),
            ("limit=1&limit=1", "limit"),
            ("max-payload-size=99999999999999999999", "max-payload-size"),
            ("dnn=", "dnn"),
            ("service-names=a%20b", "service-names"),
        ] {
            let found = refused(&format!("{BASE}&{parameter}"));
            assert_eq!(found, (400, "OPTIONAL_QUERY_PARAM_INCORRECT", name.into()), "{parameter}");
        }
        for wrong in ["dnn=%", "dnn=%4", "dnn=%zz", "dnn=%ff"] {
            assert_eq!(refused(&format!("{BASE}&{wrong}")), (400, "INVALID_QUERY_PARAM", "dnn".into()));
        }
        let deep = format!("{BASE}&snssais={}", "%5B".repeat(10_000));
        assert_eq!(refused(&deep).2, "snssais");
    }

    proptest! {
        #[test]
        fn pairs_are_read_as_they_are_encoded(values in prop::collection::vec((".{1,8}", ".{0,8}"), 0..5)) {
            let encoded = values.iter().map(|(name, value)| {
                let mut pair = String::new();
                push_encoded(&mut pair, name);
                pair.push('=');
                push_encoded(&mut pair, value);
                pair
            });
            let text = encoded.collect::<Vec<_>>().join("&");
            prop_assert_eq!(pairs(&text), Ok(values));
        }

        #[test]
        fn any_query_returns(query in "[a-z=&%+\\[{\"}0-9-]{0,64}") {
            let _ = DiscoveryParameters::read(&query);
            let _ = DiscoveryParameters::read(&format!("{BASE}&snssais={query}"));
            let _ = list_parameters(&query);
        }
    }
}
