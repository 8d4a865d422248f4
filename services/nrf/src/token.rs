//! Nnrf_AccessToken: which requests for a token are granted, and the claims of the token (TS 29.510 §5.4.2.2, §6.3.5; TS 33.501 §13.4.1.1).

use core::fmt;
use std::time::Duration;

use whimbrel_ids::Instant;
use whimbrel_sbi_types::common::{NfInstanceId, PlmnId};
use whimbrel_sbi_types::nnrf::{
    AccessTokenClaims, AccessTokenErrorCode, AccessTokenReq, Audience, GrantType, NfProfile, NfType, Scope,
    ServiceName,
};
use whimbrel_sbi_types::{BoundedList, from_slice};

use crate::profile::{Requester, lower_case};
use crate::query::pairs;

/// Life of a token. A function whose certificate is withdrawn, or that is deregistered, has access for this long at most.
pub const TOKEN_LIFE: Duration = Duration::from_secs(600);

/// Services of one scope: more than a function has.
const SERVICES_MAX: usize = 32;

/// A refused token request: RFC 6749 §5.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRefusal {
    /// The error of the answer.
    pub error: AccessTokenErrorCode,
    /// The reason in a sentence.
    pub description: &'static str,
}

impl fmt::Display for TokenRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error, self.description)
    }
}

impl core::error::Error for TokenRefusal {}

pub(crate) fn refuse(error: AccessTokenErrorCode, description: &'static str) -> TokenRefusal {
    TokenRefusal { error, description }
}

/// Reads the form of a request, `application/x-www-form-urlencoded`. Members that are not known are ignored.
pub fn read_form(form: &[u8]) -> Result<AccessTokenReq, TokenRefusal> {
    let invalid = |description| refuse(AccessTokenErrorCode::InvalidRequest, description);
    let text = core::str::from_utf8(form).map_err(|_| invalid("the form is not UTF-8"))?;
    let pairs = pairs(text).map_err(|_| invalid("the form is not encoded as RFC 6749 Appendix B has it"))?;
    let one = |name: &str| {
        let mut values = pairs.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value.filter(|value| !value.is_empty())),
            _ => Err(invalid("a member stands there twice")),
        }
    };
    let plmn = |name: &str| -> Result<Option<PlmnId>, TokenRefusal> {
        let read = one(name)?.map(|value| from_slice(value.as_bytes())).transpose();
        read.map_err(|_| invalid("a PLMN is an object with mcc and mnc"))
    };
    let nf_type = |name: &str| -> Result<Option<NfType>, TokenRefusal> {
        let read = one(name)?.map(str::parse).transpose();
        read.map_err(|_| invalid("a type of functions is expected"))
    };
    let id = |name: &str| -> Result<Option<NfInstanceId>, TokenRefusal> {
        let read = one(name)?.map(NfInstanceId::new).transpose();
        Ok(read.map_err(|_| invalid("an NF instance identity is a UUID"))?.as_ref().map(lower_case))
    };
    let grant_type: GrantType =
        one("grant_type")?.ok_or_else(|| invalid("grant_type is missing"))?.parse().map_err(|_| {
            refuse(AccessTokenErrorCode::UnsupportedGrantType, "grant_type is client_credentials here")
        })?;
    let scope = one("scope")?.ok_or_else(|| invalid("scope is missing"))?;
    Ok(AccessTokenReq {
        grant_type,
        nf_instance_id: id("nfInstanceId")?.ok_or_else(|| invalid("nfInstanceId is missing"))?,
        nf_type: nf_type("nfType")?,
        target_nf_type: nf_type("targetNfType")?,
        scope: Scope::new(scope)
            .map_err(|_| refuse(AccessTokenErrorCode::InvalidScope, "scope is names of services"))?,
        target_nf_instance_id: id("targetNfInstanceId")?,
        requester_plmn: plmn("requesterPlmn")?,
        target_plmn: plmn("targetPlmn")?,
    })
}

/// Decides on a request of `consumer`, the profile that is registered for the requesting instance. `producers`: instances that are
/// registered; `own`: the network of this NRF, `issuer`: its instance.
pub(crate) fn grant<'a>(
    request: &AccessTokenReq,
    consumer: &NfProfile,
    producers: impl Iterator<Item = &'a NfProfile> + Clone,
    (issuer, own): (&NfInstanceId, &PlmnId),
    now: Instant,
) -> Result<AccessTokenClaims, TokenRefusal> {
    use AccessTokenErrorCode::{InvalidClient, InvalidRequest, InvalidScope, UnauthorizedClient};
    if request.nf_type.as_ref().is_some_and(|claimed| *claimed != consumer.nf_type) {
        return Err(refuse(InvalidClient, "the instance is registered with another nfType"));
    }
    let plmns = match consumer.plmn_list.as_deref().unwrap_or_default() {
        [] => core::slice::from_ref(own),
        list => list,
    };
    if request.requester_plmn.as_ref().is_some_and(|claimed| !plmns.contains(claimed)) {
        return Err(refuse(InvalidClient, "the instance is registered for other PLMNs"));
    }
    let is_target = |producer: &NfProfile| {
        let is_of_type = request.target_nf_type.as_ref().is_none_or(|target| *target == producer.nf_type);
        let is_instance = request
            .target_nf_instance_id
            .as_ref()
            .is_none_or(|target| target.as_str().eq_ignore_ascii_case(producer.nf_instance_id.as_str()));
        is_of_type && is_instance
    };
    let audience = match (&request.target_nf_instance_id, &request.target_nf_type) {
        (Some(instance), _) => Audience::Instances(BoundedList::one(instance.clone())),
        (None, Some(nf_type)) => Audience::Type(nf_type.clone()),
        (None, None) => {
            return Err(refuse(InvalidRequest, "targetNfType or targetNfInstanceId is missing"));
        }
    };
    let requester = Requester { nf_type: Some(&consumer.nf_type), plmns };
    let scope = request.scope.as_str();
    if scope.split(' ').count() > SERVICES_MAX {
        return Err(refuse(InvalidScope, "the scope has too many services"));
    }
    for name in scope.split(' ') {
        let is_named = |name: &ServiceName, scope: &str| name.as_str() == scope;
        let targets = || producers.clone().filter(|producer| is_target(producer));
        let offers = |producer: &&NfProfile| producer.services().any(|s| is_named(&s.service_name, name));
        let allows = |producer: &NfProfile| {
            requester.is_allowed_at(producer)
                && producer.services().any(|s| is_named(&s.service_name, name) && requester.is_served_by(s))
        };
        match (targets().find(offers), targets().any(allows)) {
            (_, true) => {}
            (Some(_), false) => {
                return Err(refuse(
                    UnauthorizedClient,
                    "the service does not allow functions of this type or PLMN",
                ));
            }
            (None, false) => {
                return Err(refuse(InvalidScope, "no registered instance of the target offers the service"));
            }
        }
    }
    Ok(AccessTokenClaims {
        iss: Some(issuer.clone()),
        sub: lower_case(&consumer.nf_instance_id),
        aud: Some(audience),
        scope: request.scope.clone(),
        exp: (now + TOKEN_LIFE).as_secs(),
        consumer_plmn_id: request.requester_plmn.clone(),
        producer_plmn_id: request.target_plmn.clone(),
        producer_snssai_list: None,
        producer_nsi_list: None,
        producer_nf_set_id: None,
        producer_nf_service_set_id: None,
        source_nf_instance_id: None,
    })
}
