//! The second factor of a login: a code that changes with the time (TOTP, RFC 6238), as apps of telephones show it.

use std::time::{SystemTime, UNIX_EPOCH};

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{is_same, random};
use crate::problem::ProblemDetails;

/// Octets of the shared secret: the length of an SHA-1 (RFC 4226 §4 R6).
const SECRET_OCTETS: usize = 20;
/// Seconds for which a code is valid (RFC 6238 §5.2).
const STEP_S: u64 = 30;
/// Codes before and after the present one that are taken: for clocks that differ, and slow typing.
const STEPS_AROUND: u64 = 1;
/// Digits of a code.
const DIGITS: usize = 6;

/// The second factor of a user.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Totp {
    /// The shared secret in base 32 (RFC 4648 §6), as apps take it.
    secret: String,
    /// The step of the last code that was taken; none up to it is taken again (RFC 6238 §5.2).
    #[serde(default)]
    used: u64,
}

impl std::fmt::Debug for Totp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Totp(…)")
    }
}

impl Totp {
    /// A new secret.
    pub(super) fn new() -> Result<Self, ProblemDetails> {
        Ok(Self { secret: base32(&random::<SECRET_OCTETS>()?), used: 0 })
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// The secret as a URI that authenticator apps read, for instance as a QR code.
    pub(super) fn uri(&self, user: &str) -> String {
        // The name of a user has no octet but `@` that a URI would have to encode.
        let user = user.replace('@', "%40");
        format!("otpauth://totp/Whimbrel:{user}?secret={}&issuer=Whimbrel", self.secret)
    }

    /// Takes over which codes were used from another state of the same second factor; returns whether it is the same one.
    pub(super) fn take_over(&mut self, other: &Self) -> bool {
        let is_same = self.secret == other.secret;
        if is_same {
            self.used = self.used.max(other.used);
        }
        is_same
    }

    /// Notes that the code of another state of the same second factor is used; returns false if it, or a later one, was used before.
    pub(super) fn use_step_of(&mut self, other: &Self) -> bool {
        let is_new = self.secret == other.secret && other.used > self.used;
        if is_new {
            self.used = other.used;
        }
        is_new
    }

    #[cfg(test)]
    pub(super) fn used_at(&self, step: u64) -> Self {
        Self { used: step, ..self.clone() }
    }

    /// The same after a code was taken; `None`: the code is not, or no longer, valid.
    pub(super) fn after(&self, code: &str, at: SystemTime) -> Option<Self> {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &unbase32(&self.secret)?);
        let now = at.duration_since(UNIX_EPOCH).ok()?.as_secs() / STEP_S;
        let typed: String = code.chars().filter(|c| !c.is_whitespace()).take(DIGITS + 1).collect();
        let steps = now.saturating_sub(STEPS_AROUND)..=now + STEPS_AROUND;
        // All are compared, so that the time does not depend on which one fits.
        let found = steps.filter(|step| is_same(code_of(&key, *step).as_bytes(), typed.as_bytes())).max()?;
        (found > self.used).then(|| Self { secret: self.secret.clone(), used: found })
    }
}

/// The code of a step (RFC 4226 §5.3).
fn code_of(key: &hmac::Key, step: u64) -> String {
    let tag = hmac::sign(key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let at = usize::from(tag.last().copied().unwrap_or_default() & 0xf);
    let four = tag.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok()).unwrap_or_default();
    let number = (u32::from_be_bytes(four) & 0x7fff_ffff) % 10u32.pow(DIGITS as u32);
    format!("{number:0DIGITS$}")
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

fn base32(octets: &[u8]) -> String {
    let groups = octets.chunks(5).flat_map(|chunk| {
        let wide =
            (0..5).fold(0u64, |wide, i| wide << 8 | u64::from(chunk.get(i).copied().unwrap_or_default()));
        (0..(chunk.len() * 8).div_ceil(5)).map(move |i| ALPHABET[(wide >> (35 - 5 * i) & 31) as usize])
    });
    groups.map(char::from).collect()
}

fn unbase32(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    let (mut wide, mut bits) = (0u32, 0);
    for c in text.bytes() {
        let value = ALPHABET.iter().position(|known| *known == c)? as u32;
        (wide, bits) = (wide << 5 | value, bits + 5);
        if bits >= 8 {
            bits -= 8;
            octets.push((wide >> bits) as u8);
            wide &= (1 << bits) - 1;
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(s: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(s)
    }

    #[test] // RFC 6238 Appendix B, SHA-1: the last six of eight digits
    fn codes_are_those_of_the_rfc() {
        let totp = Totp { secret: base32(b"12345678901234567890"), used: 0 };
        for (s, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert!(totp.after(code, at(s)).is_some(), "{s}");
            assert!(totp.after(code, at(s + 90)).is_none(), "{s}");
        }
        assert!(totp.after("287 082", at(59)).is_some());
        for wrong in ["", "28708", "2870820", "287083", "x"] {
            assert!(totp.after(wrong, at(59)).is_none(), "{wrong}");
        }
    }

    #[test] // RFC 6238 §5.2: the second attempt of a code is not accepted
    fn a_code_is_taken_once_and_none_before_it() {
        let totp = Totp { secret: base32(b"12345678901234567890"), used: 0 };
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"12345678901234567890");
        let used = totp.after(&code_of(&key, 100), at(3000)).unwrap();
        assert!(used.after(&code_of(&key, 100), at(3000)).is_none());
        assert!(used.after(&code_of(&key, 99), at(3000)).is_none());
        assert!(used.after(&code_of(&key, 101), at(3000)).is_some());
    }

    #[test] // RFC 4648 §10
    fn base_32_reads_back() {
        for (text, coded) in [("f", "MY"), ("fo", "MZXQ"), ("foo", "MZXW6"), ("foobar", "MZXW6YTBOI")] {
            assert_eq!(
                (base32(text.as_bytes()).as_str(), unbase32(coded).unwrap()),
                (coded, text.as_bytes().to_vec())
            );
        }
        assert_eq!(unbase32("M1"), None);
    }
}
