//! Passwords: Argon2id (RFC 9106) with a salt for each.

use argon2::{Algorithm, Argon2, Params, Version};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{hex, is_same, random};
use crate::problem::ProblemDetails;
use whimbrel_node::config::value::unhex;

/// Characters of a password at least and at most. Length is what counts: no rule asks for kinds of characters (NIST SP 800-63B §5.1.1.2).
const LENGTH: std::ops::RangeInclusive<usize> = 10..=256;
/// Memory in KiB, passes and lanes: what OWASP recommends for Argon2id. Tests hash many passwords without optimisation.
const COST: (u32, u32, u32) = if cfg!(test) { (64, 1, 1) } else { (19_456, 2, 1) };
const SALT_OCTETS: usize = 16;
const HASH_OCTETS: usize = 32;

/// A password as a request has it; its octets are wiped.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(super) struct Password(Zeroizing<String>);

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl std::ops::Deref for Password {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for Password {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Password".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "password" })
    }
}

/// A password that a request sets: [`PasswordHash::of`] checks its length.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct ChosenPassword(Password);

impl std::ops::Deref for ChosenPassword {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for ChosenPassword {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ChosenPassword".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let (min, max) = (LENGTH.start(), LENGTH.end());
        json_schema!({ "type": "string", "format": "password", "minLength": min, "maxLength": max })
    }
}

/// What is kept of a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: String,
    hash: String,
}

impl PasswordHash {
    /// Hashes a new password. Errors: it is too short or too long.
    pub(super) fn of(password: &str) -> Result<Self, ProblemDetails> {
        if !LENGTH.contains(&password.chars().count()) {
            return Err(ProblemDetails::unprocessable(format!(
                "a password has {} to {} characters",
                LENGTH.start(),
                LENGTH.end()
            )));
        }
        let (memory_kib, passes, lanes) = COST;
        let salt = hex(&random::<SALT_OCTETS>()?);
        let mut hashed = Self { memory_kib, passes, lanes, salt, hash: String::new() };
        hashed.hash =
            hashed.computed(password).ok_or_else(|| ProblemDetails::internal("no password can be hashed"))?;
        Ok(hashed)
    }

    /// What a login of an unknown user is compared with, so that it takes as long as that of a known one. No password fits.
    pub(super) fn of_unknown_user() -> Self {
        let (memory_kib, passes, lanes) = COST;
        Self { memory_kib, passes, lanes, salt: "00".repeat(SALT_OCTETS), hash: String::new() }
    }

    /// Whether this is the password.
    pub(super) fn fits(&self, password: &str) -> bool {
        // Longer ones were never taken: nothing is gained by hashing them.
        let bounded: String = password.chars().take(*LENGTH.end() + 1).collect();
        let bounded = Zeroizing::new(bounded);
        self.computed(&bounded).is_some_and(|hash| is_same(hash.as_bytes(), self.hash.as_bytes()))
    }

    fn computed(&self, password: &str) -> Option<String> {
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(HASH_OCTETS)).ok()?;
        let mut out = Zeroizing::new([0; HASH_OCTETS]);
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(password.as_bytes(), &unhex(&self.salt)?, &mut *out).ok()?;
        Some(hex(&*out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 9106 §3.1: the same password has another hash under another salt
    fn a_password_fits_its_own_hash_alone() {
        let (a, b) = (PasswordHash::of("correct horse").unwrap(), PasswordHash::of("correct horse").unwrap());
        assert!(a.fits("correct horse") && b.fits("correct horse"));
        assert!(!a.fits("correct horsf") && !a.fits("") && !PasswordHash::of_unknown_user().fits(""));
        assert_ne!(a.hash, b.hash);
        let shown = serde_json::to_string(&a).unwrap();
        assert!(!shown.contains("correct"), "{shown}");
    }

    #[test]
    fn short_and_endless_passwords_are_refused() {
        for password in ["", "123456789", &"x".repeat(257)] {
            assert_eq!(PasswordHash::of(password).unwrap_err().status, 422, "{}", password.len());
        }
    }
}
