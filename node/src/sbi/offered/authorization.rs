//! Access tokens of the functions that use the services of this core (TS 33.501 §13.4.1.1.2, TS 29.500 §6.7.3).

use std::sync::{Mutex, PoisonError, RwLock};

use tracing::warn;
use whimbrel_sbi::token::TokenVerifier;
use whimbrel_sbi::{ReceivedRequest, SbiResponse, headers};
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};

use super::super::peer;
use super::super::udm::Consumer;
use crate::clock;
use crate::config::sbi::{OfferedService, Sbi, SmfSource};
use crate::log_limiter::LogLimiter;

/// The check of access tokens, each function with its own audience. Without a key of an NRF, none is needed.
pub(crate) struct ServiceAuthorization {
    verifiers: RwLock<Vec<(NfType, TokenVerifier)>>,
    log: Mutex<LogLimiter<String>>,
}

impl ServiceAuthorization {
    /// Reads the keys of `sbi.token_key`. Errors: one sentence.
    pub(crate) fn new(sbi: &Sbi, consumer: &Consumer) -> Result<Self, String> {
        let verifiers = RwLock::new(Self::verifiers(sbi, consumer)?);
        Ok(Self { verifiers, log: Mutex::new(LogLimiter::new("access tokens of other functions")) })
    }

    /// Reads the keys again, which the next requests are checked with. Errors: one sentence, and the keys are as before.
    pub(crate) fn reload(&self, sbi: &Sbi, consumer: &Consumer) -> Result<(), String> {
        let verifiers = Self::verifiers(sbi, consumer)?;
        *self.verifiers.write().unwrap_or_else(PoisonError::into_inner) = verifiers;
        Ok(())
    }

    fn verifiers(sbi: &Sbi, consumer: &Consumer) -> Result<Vec<(NfType, TokenVerifier)>, String> {
        let mut verifiers = Vec::new();
        if let Some(file) = &sbi.token_key {
            let pem = peer::read(file, "sbi.token_key")?;
            let amf = (sbi.smf != SmfSource::Embedded).then_some((NfType::Amf, &consumer.amf));
            let offered = sbi.offer.iter().filter_map(|offered| match offered {
                OfferedService::Udm => Some((NfType::Udm, &consumer.udm)),
                OfferedService::Ausf => Some((NfType::Ausf, &consumer.ausf)),
                OfferedService::Pcf => Some((NfType::Pcf, &consumer.pcf)),
                OfferedService::Smf => Some((NfType::Smf, &consumer.smf)),
                OfferedService::Nrf => None,
                OfferedService::Chf => Some((NfType::Chf, &consumer.chf)),
            });
            for (nf_type, instance) in amf.into_iter().chain(offered) {
                let verifier = TokenVerifier::new(&pem, nf_type.clone(), instance.clone())
                    .map_err(|e| format!("`sbi.token_key`: {}: {e}", file.display()))?;
                let verifier = match &sbi.token_issuer {
                    Some(issuer) => verifier.expecting_issuer(issuer.clone()),
                    None => verifier,
                };
                verifiers.push((nf_type, verifier));
            }
        }
        Ok(verifiers)
    }

    /// Checks the token of a request. `root` is the root of the services. The error is the refusal.
    pub(in super::super) fn check(
        &self,
        request: &ReceivedRequest,
        function: &NfType,
        service: &ServiceName,
        root: &str,
    ) -> Result<(), SbiResponse> {
        let verifiers = self.verifiers.read().unwrap_or_else(PoisonError::into_inner);
        let Some((_, verifier)) = verifiers.iter().find(|(of, _)| of == function) else {
            return Ok(());
        };
        verifier.check(&request.headers, service, headers::now()).map(drop).map_err(|e| {
            let sentence = format!(
                "a request of {} for {service} is refused: {e}; `sbi.token_key` has the keys of NRFs whose tokens are accepted",
                request.peer.ip()
            );
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.allows(clock::now(), sentence.clone()) {
                warn!("{sentence}");
            }
            drop(log);
            e.refusal(&format!("{root}/{service}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use hyper::header::{AUTHORIZATION, WWW_AUTHENTICATE};
    use hyper::{HeaderMap, Method};
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
    use whimbrel_sbi::{ClientSettings, SbiClient};

    use super::super::super::consumer;
    use super::super::{CallbackPolicy, OfferedServices};
    use super::*;
    use crate::config::{self, Config};
    use crate::observation::Console;

    const NRF: &str = "87968ce9-7a8e-4555-8b02-27859b863393";

    /// An NRF that signs with ES256.
    struct Nrf(EcdsaKeyPair);

    impl Nrf {
        fn new() -> Self {
            let random = SystemRandom::new();
            let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap())
        }

        /// The public key (RFC 5480 §2) as PEM.
        fn pem(&self) -> String {
            let head = "3059301306072a8648ce3d020106082a8648ce3d030107034200";
            let mut octets: Vec<u8> = (0..head.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&head[i..i + 2], 16).unwrap())
                .collect();
            octets.extend_from_slice(self.0.public_key().as_ref());
            format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(octets))
        }

        fn token(&self, audience: &str, scope: &str, expires_in_s: i64) -> String {
            let exp = headers::now().unix_ms() / 1000 + expires_in_s;
            let claims =
                format!(r#"{{"iss":"{NRF}","sub":"{NRF}","aud":{audience},"scope":"{scope}","exp":{exp}}}"#);
            let text = format!(
                "{}.{}",
                URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256"}"#),
                URL_SAFE_NO_PAD.encode(claims)
            );
            let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("Bearer {text}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    struct OfferingCore {
        config: Config,
        folder: tempfile::TempDir,
    }

    /// A core that offers all functions, with further lines of `sbi`.
    fn core(key: &str, lines: &str) -> OfferingCore {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        std::fs::write(folder.path().join("nrf.pem"), key).unwrap();
        let text = format!(
            "store:\n  path: {at}/subscribers.db\n  key_file: {at}/store.key\nsbi:\n  address: 192.0.2.1:7777\n  \
             offer: [udm, ausf, chf]\n{lines}",
        );
        let text = text.replace("FOLDER", &at.to_string());
        let config = config::parse(&text, Path::new("w.yaml")).unwrap_or_else(|e| panic!("{e}"));
        OfferingCore { config, folder }
    }

    const WITH_KEY: &str = "  token_key: FOLDER/nrf.pem\n";

    impl OfferingCore {
        fn consumer(&self) -> Consumer {
            consumer(&self.config, self.sbi())
        }

        fn sbi(&self) -> &Sbi {
            self.config.sbi.as_ref().unwrap()
        }

        fn authorization(&self) -> Result<ServiceAuthorization, String> {
            ServiceAuthorization::new(self.sbi(), &self.consumer())
        }

        fn services(&self) -> OfferedServices {
            let store = crate::subscribers::open(&self.config.store).unwrap();
            OfferedServices::new(
                self.sbi().offer.clone(),
                self.config.amf.plmn,
                self.consumer().root,
                (self.authorization().unwrap(), CallbackPolicy::new(vec![self.sbi().address])),
                (store, |_| panic!("there is no subscriber")),
                (Console::new(clock::now()).unwrap(), SbiClient::new(ClientSettings::new("UDM"))),
                self.config.control().smf.data_networks,
            )
        }
    }

    fn request(path: &str, token: Option<&str>) -> ReceivedRequest {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.parse().unwrap());
        }
        ReceivedRequest {
            method: Method::POST,
            uri: path.parse().unwrap(),
            headers,
            body: b"{}".as_slice().into(),
            peer: ([198, 51, 100, 7], 5000).into(),
            client_certificate: None,
        }
    }

    /// Paths of the services, with what a token for them names.
    const SERVICES: [(&str, &str, &str); 5] = [
        ("/nausf-auth/v1/ue-authentications", "AUSF", "nausf-auth"),
        ("/nudm-ueau/v1/imsi-999700000000001/auth-events", "UDM", "nudm-ueau"),
        ("/nudm-uecm/v1/imsi-999700000000001/registrations/amf-3gpp-access", "UDM", "nudm-uecm"),
        ("/nudm-sdm/v2/imsi-999700000000001/sdm-subscriptions", "UDM", "nudm-sdm"),
        ("/nchf-convergedcharging/v3/chargingdata", "CHF", "nchf-convergedcharging"),
    ];

    fn served(services: &OfferedServices, path: &str, token: Option<&str>) -> SbiResponse {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(services.serve(&request(path, token))).unwrap()
    }

    fn challenge(response: &SbiResponse) -> &str {
        response.headers.get(WWW_AUTHENTICATE).map_or("", |value| value.to_str().unwrap())
    }

    #[test] // TS 33.501 §13.4.1.1.2: each service is for requests with a token for it
    fn each_service_demands_a_token_where_there_is_a_key() {
        let nrf = Nrf::new();
        let core = core(&nrf.pem(), WITH_KEY);
        let services = core.services();
        for (path, audience, scope) in SERVICES {
            let without = served(&services, path, None);
            assert_eq!(without.status, 401, "{path}");
            assert_eq!(challenge(&without), format!("Bearer realm=\"http://192.0.2.1:7777/{scope}\""));
            let token = nrf.token(&format!("\"{audience}\""), scope, 60);
            // The body is wrong, which is looked at behind the token.
            assert!(![401, 403].contains(&served(&services, path, Some(&token)).status.as_u16()), "{path}");
        }
        drop(core.folder);
    }

    #[test] // TS 33.501 §13.4.1.1.2, TS 29.500 §6.7.3
    fn tokens_that_do_not_fit_are_refused_at_each_service() {
        let (nrf, other) = (Nrf::new(), Nrf::new());
        let core = core(&nrf.pem(), WITH_KEY);
        let services = core.services();
        let ids = core.consumer();
        for (path, audience, scope) in SERVICES {
            let own = format!("\"{audience}\"");
            let invalid = [
                ("of another NRF's key", other.token(&own, scope, 60)),
                ("expired", nrf.token(&own, scope, -60)),
                ("for another type", nrf.token("\"NEF\"", scope, 60)),
                ("for another instance", nrf.token(&format!("[\"{NRF}\"]"), scope, 60)),
                ("no token", "Bearer x".into()),
            ];
            for (what, token) in invalid {
                let response = served(&services, path, Some(&token));
                assert_eq!(response.status, 401, "{path} {what}");
                assert!(challenge(&response).contains("error=\"invalid_token\""), "{path} {what}");
            }
            let response = served(&services, path, Some(&nrf.token(&own, "nudm-ee", 60)));
            assert_eq!(response.status, 403, "{path}");
            assert!(challenge(&response).contains("error=\"insufficient_scope\""), "{path}");
            let id = match audience {
                "UDM" => &ids.udm,
                "CHF" => &ids.chf,
                _ => &ids.ausf,
            };
            let of_instance = nrf.token(&format!("[\"{id}\"]"), scope, 60);
            assert_ne!(served(&services, path, Some(&of_instance)).status, 401, "{path}");
        }
        // The audience of one function is none of the other.
        let (path, _, scope) = SERVICES[0];
        assert_eq!(served(&services, path, Some(&nrf.token("\"UDM\"", scope, 60))).status, 401);
    }

    #[test]
    fn without_a_key_no_token_is_needed_and_with_an_issuer_that_of_another_is_refused() {
        let nrf = Nrf::new();
        let open = core(&nrf.pem(), "").services();
        let token = nrf.token("\"UDM\"", "nudm-sdm", 60);
        let (path, ..) = SERVICES[3];
        assert_ne!(served(&open, path, None).status, 401);
        for (issuer, is_accepted) in [(NRF, true), ("00000000-7a8e-4555-8b02-27859b863393", false)] {
            let services = core(&nrf.pem(), &format!("{WITH_KEY}  token_issuer: {issuer}\n")).services();
            assert_eq!(served(&services, path, Some(&token)).status != 401, is_accepted, "{issuer}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_used_has_a_sentence_with_its_file() {
        let sentence = |key: &str, lines: &str| core(key, lines).authorization().err().unwrap();
        let missing = sentence("", "  token_key: FOLDER/none.pem\n");
        assert!(
            missing.starts_with("`sbi.token_key`: /") && missing.contains("none.pem cannot be read"),
            "{missing}"
        );
        let empty = sentence("no key", WITH_KEY);
        assert!(empty.contains("nrf.pem: there is no certificate and no public key"), "{empty}");
    }
}
