//! Access tokens of consumers, as a producer checks them and an NRF signs them: JWS (RFC 7515), TS 33.501 §13.4.1.1.2, TS 29.510 §6.3.5.2.4.

use core::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey, VerificationAlgorithm,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use whimbrel_sbi_types::common::{DateTime, NfInstanceId};
use whimbrel_sbi_types::nnrf::{AccessToken, AccessTokenClaims, Audience, NfType, ServiceName};

use crate::der;
use crate::message::SbiResponse;
use crate::problem::of_status;

/// Longest token that is looked at, in octets: as the type of tokens has it.
const TOKEN_OCTETS_MAX: usize = 4096;
/// Difference of the clocks of NRF and producer.
const CLOCK_SKEW_S: i64 = 5;

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The request has no token.
    Missing,
    /// The token is no JWS with claims of TS 29.510.
    Malformed,
    /// The signature's algorithm is none of those whose keys are configured.
    Algorithm,
    /// No configured key made the signature.
    Signature,
    /// The token has expired.
    Expired,
    /// Another NRF than the expected one issued the token.
    Issuer,
    /// The token is for other producers.
    Audience,
    /// The token does not cover the service.
    Scope,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the request has no access token",
            Self::Malformed => "the access token is no JWS with the claims of TS 29.510",
            Self::Algorithm => "the access token is signed by an algorithm for which no key is configured",
            Self::Signature => "no configured key of an NRF made the signature of the access token",
            Self::Expired => "the access token has expired",
            Self::Issuer => "the access token is of another NRF",
            Self::Audience => "the access token is for other producers",
            Self::Scope => "the access token does not cover this service",
        })
    }
}

impl core::error::Error for TokenError {}

impl TokenError {
    /// The refusal: 401, or 403 for a token that does not cover the service, with the challenge of RFC 6750 §3.
    ///
    /// `realm` is the URI of the service, as `{apiRoot}/nudm-sdm`.
    ///
    /// Spec: TS 29.500 §6.7.3.
    pub fn refusal(self, realm: &str) -> SbiResponse {
        let (status, error) = match self {
            Self::Missing => (401, None),
            Self::Scope => (403, Some("insufficient_scope")),
            Self::Malformed
            | Self::Algorithm
            | Self::Signature
            | Self::Expired
            | Self::Issuer
            | Self::Audience => (401, Some("invalid_token")),
        };
        let plain = |c: &char| c.is_ascii_graphic() && !['"', '\\'].contains(c);
        let realm: String = realm.chars().filter(plain).collect();
        let mut challenge = format!("Bearer realm=\"{realm}\"");
        if let Some(error) = error {
            challenge.push_str(&format!(", error=\"{error}\", error_description=\"{self}\""));
        }
        let refusal = of_status(status, None, &self.to_string());
        match HeaderValue::try_from(challenge) {
            Ok(challenge) => refusal.header(WWW_AUTHENTICATE, challenge),
            Err(_) => refusal,
        }
    }
}

/// Kind of an NRF's public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
}

struct PublicKey {
    kind: KeyKind,
    octets: Vec<u8>,
}

/// The check of tokens for one producer.
pub struct TokenVerifier {
    keys: Vec<PublicKey>,
    own_type: NfType,
    own_instance: NfInstanceId,
    /// The NRF whose tokens are accepted, where it is known.
    issuer: Option<NfInstanceId>,
    /// Tokens without an audience are accepted: free5GC's NRF leaves it empty.
    accepts_missing_audience: bool,
}

impl fmt::Debug for TokenVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenVerifier({} keys)", self.keys.len())
    }
}

impl TokenVerifier {
    /// With the certificates or public keys of NRFs, as PEM. Errors: one sentence.
    pub fn new(pem: &[u8], own_type: NfType, own_instance: NfInstanceId) -> Result<Self, String> {
        let mut keys = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| format!("a certificate is not in PEM: {e}"))?;
            let certificate = webpki::EndEntityCert::try_from(&certificate)
                .map_err(|e| format!("a certificate of the NRF cannot be read: {e:?}"))?;
            keys.push(public_key(&certificate.subject_public_key_info())?);
        }
        for key in SubjectPublicKeyInfoDer::pem_slice_iter(pem) {
            keys.push(public_key(&key.map_err(|e| format!("a public key is not in PEM: {e}"))?)?);
        }
        match keys.is_empty() {
            true => Err("there is no certificate and no public key of an NRF in PEM".into()),
            false => Ok(Self { keys, own_type, own_instance, issuer: None, accepts_missing_audience: false }),
        }
    }

    /// The same, which accepts tokens of this NRF alone.
    pub fn expecting_issuer(self, issuer: NfInstanceId) -> Self {
        Self { issuer: Some(issuer), ..self }
    }

    /// The same, which also accepts tokens without an audience.
    pub fn accepting_missing_audience(self) -> Self {
        Self { accepts_missing_audience: true, ..self }
    }

    /// Checks the token of a request for a service: signature, expiry, issuer, audience and scope.
    pub fn check(
        &self,
        headers: &HeaderMap,
        service: &ServiceName,
        now: DateTime,
    ) -> Result<AccessTokenClaims, TokenError> {
        let value = headers.get(AUTHORIZATION).ok_or(TokenError::Missing)?;
        let value = value.to_str().map_err(|_| TokenError::Malformed)?;
        let (scheme, token) = value.split_once(' ').ok_or(TokenError::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(TokenError::Missing);
        }
        self.check_token(token.trim(), service, now)
    }

    fn check_token(
        &self,
        token: &str,
        service: &ServiceName,
        now: DateTime,
    ) -> Result<AccessTokenClaims, TokenError> {
        if token.len() > TOKEN_OCTETS_MAX {
            return Err(TokenError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed);
        #[derive(serde::Deserialize)]
        struct JoseHeader {
            alg: String,
            crit: Option<serde::de::IgnoredAny>,
        }
        let header: JoseHeader =
            serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
        // RFC 7515 §4.1.11: an extension that must be understood is none of ours.
        if header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        let (kind, algorithm): (KeyKind, &'static dyn VerificationAlgorithm) = match header.alg.as_str() {
            "RS256" => (KeyKind::Rsa, &RSA_PKCS1_2048_8192_SHA256),
            "RS512" => (KeyKind::Rsa, &RSA_PKCS1_2048_8192_SHA512),
            "ES256" => (KeyKind::P256, &ECDSA_P256_SHA256_FIXED),
            _ => return Err(TokenError::Algorithm),
        };
        let signature = decode(signature)?;
        let mut keys = self.keys.iter().filter(|key| key.kind == kind).peekable();
        if keys.peek().is_none() {
            return Err(TokenError::Algorithm);
        }
        let is_signed = |key: &PublicKey| {
            UnparsedPublicKey::new(algorithm, &key.octets).verify(signed.as_bytes(), &signature).is_ok()
        };
        if !keys.any(is_signed) {
            return Err(TokenError::Signature);
        }
        let claims: AccessTokenClaims =
            whimbrel_sbi_types::from_slice(&decode(claims)?).map_err(|_| TokenError::Malformed)?;
        let expires_ms =
            i64::try_from(claims.exp).unwrap_or(i64::MAX).saturating_add(CLOCK_SKEW_S).saturating_mul(1000);
        if now.unix_ms() > expires_ms {
            return Err(TokenError::Expired);
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        let is_own = match &claims.aud {
            None => self.accepts_missing_audience,
            Some(Audience::Type(nf_type)) if nf_type.as_str().is_empty() => self.accepts_missing_audience,
            Some(Audience::Type(nf_type)) => *nf_type == self.own_type,
            Some(Audience::Instance(instance)) => *instance == self.own_instance,
            Some(Audience::Instances(instances)) => instances.contains(&self.own_instance),
        };
        if !is_own {
            return Err(TokenError::Audience);
        }
        match claims.scope.as_str().split(' ').any(|scope| scope == service.as_str()) {
            true => Ok(claims),
            false => Err(TokenError::Scope),
        }
    }
}

/// The key with which an NRF signs access tokens: ECDSA on P-256, ES256 (RFC 7518 §3.4).
pub struct TokenSigner {
    key: EcdsaKeyPair,
    random: SystemRandom,
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSigner(…)")
    }
}

impl TokenSigner {
    /// A new key, as PEM: secret. Errors: one sentence.
    pub fn new_key() -> Result<String, String> {
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        Ok(pem("PRIVATE KEY", key.map_err(|_| "no key could be made")?.as_ref()))
    }

    /// Reads a private key of [`TokenSigner::new_key`]. Errors: one sentence.
    pub fn new(pem: &[u8]) -> Result<Self, String> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem)
            .map_err(|e| format!("there is no private key in PKCS #8 and PEM: {e}"))?;
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.secret_pkcs8_der(), &random);
        Ok(Self { key: key.map_err(|e| format!("the key is none of ECDSA on P-256: {e}"))?, random })
    }

    /// The public key as PEM (RFC 5480 §2), with which producers check tokens.
    pub fn public_key(&self) -> String {
        /// SubjectPublicKeyInfo of a key on P-256, up to the point.
        const HEAD: [u8; 26] = [
            0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
            0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
        ];
        pem("PUBLIC KEY", &[&HEAD, self.key.public_key().as_ref()].concat())
    }

    /// The token with these claims; `None` if it would be longer than tokens may be.
    pub fn sign(&self, claims: &AccessTokenClaims) -> Option<AccessToken> {
        let header = URL_SAFE_NO_PAD.encode(r#"{"typ":"JWT","alg":"ES256"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(whimbrel_sbi_types::to_vec(claims)));
        let signature = self.key.sign(&self.random, signed.as_bytes()).ok()?;
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)).parse().ok()
    }
}

/// The textual form of RFC 7468.
fn pem(label: &str, octets: &[u8]) -> String {
    let text = STANDARD.encode(octets);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", lines.collect::<String>())
}

/// The key of a SubjectPublicKeyInfo (RFC 5280 §4.1): RSA, or ECDSA on P-256.
fn public_key(info: &[u8]) -> Result<PublicKey, String> {
    /// rsaEncryption (RFC 8017 §C).
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    /// id-ecPublicKey (RFC 5480 §2.1.1).
    const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    /// secp256r1 (RFC 5480 §2.1.1.1).
    const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    let parse = || {
        let (fields, _) = der::value(info, der::SEQUENCE)?;
        let (algorithm, rest) = der::value(fields, der::SEQUENCE)?;
        let (identifier, parameters) = der::value(algorithm, der::OBJECT_IDENTIFIER)?;
        let (bits, _) = der::value(rest, der::BIT_STRING)?;
        let (0, key) = bits.split_first()? else { return None };
        let kind = match identifier {
            RSA => KeyKind::Rsa,
            EC if der::value(parameters, der::OBJECT_IDENTIFIER)?.0 == P256 => KeyKind::P256,
            _ => return None,
        };
        Some(PublicKey { kind, octets: key.to_vec() })
    };
    parse().ok_or_else(|| "the public key of an NRF is neither RSA nor ECDSA on P-256".into())
}
