//! Access tokens at a producer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use whimbrel_sbi::token::{TokenError, TokenSigner, TokenVerifier};
use whimbrel_sbi_types::common::DateTime;
use whimbrel_sbi_types::nnrf::{NfType, ServiceName};

const RSA_CERTIFICATE: &[u8] = include_bytes!("../testdata/nrf-rsa.pem");
const RSA_KEY: &[u8] = include_bytes!("../testdata/nrf-rsa.pub.pem");
const RS256: &str = include_str!("../testdata/rs256.jwt");
const RS512: &str = include_str!("../testdata/rs512-free5gc.jwt");
const EC_CERTIFICATE: &[u8] = include_bytes!("../testdata/server.pem");
const EC_KEY: &[u8] = include_bytes!("../testdata/leaf-key.pem");
const UDM: &str = "00000000-0000-4000-8000-000000000001";

fn now() -> DateTime {
    "2026-11-29T16:00:00Z".parse().unwrap()
}

fn verifier(pem: &[u8]) -> TokenVerifier {
    TokenVerifier::new(pem, NfType::Udm, UDM.parse().unwrap()).unwrap()
}

fn check(verifier: &TokenVerifier, token: &str) -> Result<(), TokenError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    verifier.check(&headers, &ServiceName::NudmSdm, now()).map(drop)
}

/// A token of the key whose certificate is `server.pem`.
fn signed(header: &str, claims: &str) -> String {
    let key = PrivatePkcs8KeyDer::from_pem_slice(EC_KEY).unwrap();
    let random = SystemRandom::new();
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der(), &random).unwrap();
    let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = key.sign(&random, text.as_bytes()).unwrap();
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn claims(aud: &str, scope: &str, exp: i64) -> String {
    let id = "87968ce9-7a8e-4555-8b02-27859b863393";
    format!(r#"{{"iss":"{id}","sub":"{id}","aud":{aud},"scope":"{scope}","exp":{exp},"iat":1}}"#)
}

#[test] // TS 33.501 §13.4.1.1.2: RS256 and ES256; RS512 as free5GC signs
fn tokens_of_each_algorithm_are_accepted() {
    for pem in [RSA_CERTIFICATE, RSA_KEY] {
        assert_eq!(check(&verifier(pem), RS256), Ok(()));
        assert_eq!(check(&verifier(pem), RS512), Err(TokenError::Audience), "an empty audience");
        assert_eq!(check(&verifier(pem).accepting_missing_audience(), RS512), Ok(()));
    }
    let token = signed(r#"{"alg":"ES256"}"#, &claims("\"UDM\"", "nudm-sdm", 4_102_444_800));
    assert_eq!(check(&verifier(EC_CERTIFICATE), &token), Ok(()));
    let both = [EC_CERTIFICATE, RSA_KEY].concat();
    assert_eq!(check(&verifier(&both), RS256), Ok(()));
    assert_eq!(check(&verifier(&both), &token), Ok(()));
}

#[test] // TS 33.501 §13.4.1.1.2: signature, expiry, audience and scope
fn tokens_with_a_fault_are_refused_each_with_its_reason() {
    let verifier = verifier(EC_CERTIFICATE);
    let es = r#"{"alg":"ES256"}"#;
    let exp = now().unix_ms() / 1000;
    let of = |claims: &str| check(&verifier, &signed(es, claims));
    assert_eq!(of(&claims("\"UDM\"", "nudm-uecm nudm-sdm", exp)), Ok(()));
    assert_eq!(of(&claims(&format!("[\"{UDM}\"]"), "nudm-sdm", exp)), Ok(()));
    assert_eq!(of(&claims("\"UDM\"", "nudm-sdm", exp - 6)), Err(TokenError::Expired));
    assert_eq!(of(&claims("\"AMF\"", "nudm-sdm", exp)), Err(TokenError::Audience));
    assert_eq!(
        of(&claims("[\"00000000-0000-4000-8000-000000000002\"]", "nudm-sdm", exp)),
        Err(TokenError::Audience)
    );
    assert_eq!(of(&claims("\"UDM\"", "nudm-sdm2 xnudm-sdm", exp)), Err(TokenError::Scope));
    assert_eq!(of("{}"), Err(TokenError::Malformed));
    assert_eq!(of("["), Err(TokenError::Malformed));

    let good = signed(es, &claims("\"UDM\"", "nudm-sdm", exp));
    let (text, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = text.split_once('.').unwrap();
    let longer = URL_SAFE_NO_PAD.encode(claims("\"UDM\"", "nudm-sdm", exp + 60));
    assert_eq!(check(&verifier, &format!("{header}.{longer}.{signature}")), Err(TokenError::Signature));
    for alg in ["none", "HS256", "RS256", "es256", ""] {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{alg}"}}"#));
        let (_, claims) = text.split_once('.').unwrap();
        let refused = check(&verifier, &format!("{header}.{claims}.{signature}"));
        assert_eq!(refused, Err(TokenError::Algorithm), "{alg}");
    }
    let critical = signed(r#"{"alg":"ES256","crit":["exp"]}"#, &claims("\"UDM\"", "nudm-sdm", exp));
    assert_eq!(check(&verifier, &critical), Err(TokenError::Malformed));
    for wrong in ["", ".", "..", "a.b", &format!("{text}."), &"a".repeat(5000), &format!("{good}=")] {
        assert!(check(&verifier, wrong).is_err(), "{wrong}");
    }
    let missing = verifier.check(&HeaderMap::new(), &ServiceName::NudmSdm, now()).unwrap_err();
    assert_eq!(missing, TokenError::Missing);
}

#[test] // TS 29.510 §6.3.5.2.4: iss is the instance of the NRF
fn tokens_of_another_nrf_are_refused_where_one_is_expected() {
    let expecting = |id: &str| verifier(EC_CERTIFICATE).expecting_issuer(id.parse().unwrap());
    let exp = now().unix_ms() / 1000;
    let token = signed(r#"{"alg":"ES256"}"#, &claims("\"UDM\"", "nudm-sdm", exp));
    assert_eq!(check(&expecting("87968ce9-7a8e-4555-8b02-27859b863393"), &token), Ok(()));
    assert_eq!(check(&expecting("00000000-7a8e-4555-8b02-27859b863393"), &token), Err(TokenError::Issuer));
    assert_eq!(check(&verifier(EC_CERTIFICATE), &token), Ok(()));
}

#[test] // TS 29.500 §6.7.3, RFC 6750 §3: each challenge has a realm, and an error where there was a token
fn refusals_have_a_status_and_a_challenge() {
    let challenge = |e: TokenError| {
        let answer = e.refusal("http://192.0.2.1:7777/nudm-sdm");
        (answer.status.as_u16(), answer.headers["www-authenticate"].to_str().unwrap().to_owned())
    };
    let realm = "Bearer realm=\"http://192.0.2.1:7777/nudm-sdm\"";
    assert_eq!(challenge(TokenError::Missing), (401, realm.into()));
    let of = |error: &str, why: &str| format!("{realm}, error=\"{error}\", error_description=\"{why}\"");
    let scope = of("insufficient_scope", "the access token does not cover this service");
    assert_eq!(challenge(TokenError::Scope), (403, scope));
    let expired = of("invalid_token", "the access token has expired");
    assert_eq!(challenge(TokenError::Expired), (401, expired));
    let quoted = TokenError::Missing.refusal("a\"b\\c\r\nd");
    assert_eq!(quoted.headers["www-authenticate"], "Bearer realm=\"abcd\"");
}

#[test]
fn keys_that_cannot_be_read_have_a_sentence() {
    let new = |pem: &[u8]| TokenVerifier::new(pem, NfType::Udm, UDM.parse().unwrap()).unwrap_err();
    assert!(new(b"").contains("no certificate"));
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(new(broken).contains("cannot be read"));
    for key in ["MAA=", "MIH/", "MIL//w==", "MAMDAQA=", "MAoGCCqGSM49AwEH"] {
        assert!(
            new(format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n").as_bytes())
                .contains("neither")
        );
    }
}

#[test] // TS 29.510 §6.3.5.2.4, RFC 7518 §3.4: what an NRF signs, a producer accepts
fn a_token_of_a_new_key_is_accepted_with_its_public_key_alone() {
    let private = TokenSigner::new_key().unwrap();
    let signer = TokenSigner::new(private.as_bytes()).unwrap();
    let claims = |audience: &str| {
        whimbrel_sbi_types::from_slice(claims(audience, "nudm-sdm", 4_102_444_800).as_bytes()).unwrap()
    };
    let token = signer.sign(&claims("\"UDM\"")).unwrap();
    assert_eq!(check(&verifier(signer.public_key().as_bytes()), token.as_str()), Ok(()));
    let of_instance = signer.sign(&claims(&format!("[\"{UDM}\"]"))).unwrap();
    assert_eq!(check(&verifier(signer.public_key().as_bytes()), of_instance.as_str()), Ok(()));
    assert_eq!(check(&verifier(EC_CERTIFICATE), token.as_str()), Err(TokenError::Signature));
    assert!(!private.contains("PUBLIC") && !format!("{signer:?}").contains("PRIVATE"));
    assert!(signer.public_key().lines().all(|line| line.len() <= 64));
    for wrong in [
        signer.public_key().as_bytes(),
        b"",
        b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
    ] {
        assert!(TokenSigner::new(wrong).is_err());
    }
    // A key that another program made.
    assert!(TokenSigner::new(EC_KEY).is_ok());
}
