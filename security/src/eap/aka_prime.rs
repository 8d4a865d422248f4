//! Both sides of EAP-AKA': RFC 9048 and RFC 4187 as TS 33.501 §6.1.3.1 and Annex F use them.
//!
//! The serving network knows the SUPI from the SUCI, so there is no identity exchange, no pseudonym and no fast
//! re-authentication: one challenge, and a notification if it fails.

use whimbrel_ids::{PlmnId, Supi};
use zeroize::{Zeroize, Zeroizing};

use super::packet::{Code, EapPacket, EapWriter, Malformed, Subtype, bare};
use crate::aka::{
    AuthenticationFailure, AuthenticationManagementField, Autn, Auts, Rand, ServingNetworkName, Usim,
    UsimOutput, autn_of,
};
use crate::functions::AkaFunctions;
use crate::kdf::Hmac;
use crate::keys::KAusf;
use crate::milenage::{Ck, Ik, Res};
use crate::secret::{ct_eq, secret};
use crate::sqn::Sqn;

secret!(
    /// K_aut: the key of AT_MAC (RFC 9048 §3.3).
    KAut,
    32
);

/// The one key derivation function that is defined (RFC 9048 §3.2).
const KDF_AKA_PRIME: u16 = 1;
/// A failure before the UE was authenticated: no success, no AT_MAC (RFC 4187 §10.19).
const GENERAL_FAILURE: u16 = 0x4000;
/// The success bit of a notification code (RFC 4187 §10.19).
const NOTIFIES_SUCCESS: u16 = 0x8000;
/// The UE cannot process the packet (RFC 4187 §10.20).
const UNABLE_TO_PROCESS: u16 = 0;

/// The identity that the keys are bound to: of an IMSI its NAI in 5G (RFC 9048 §5.3.1.1, TS 23.003 §28.7.2).
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EapIdentity(String);

impl EapIdentity {
    /// Of a subscriber of `home`.
    pub fn new(supi: Supi, home: PlmnId) -> Self {
        let name = ServingNetworkName::new(home);
        // `5G:mnc070.mcc999.3gppnetwork.org` without its prefix is the realm's end.
        let realm = name.to_string().split_off(3);
        Self(format!("{}@nai.5gc.{realm}", supi.imsi()))
    }
}

/// Redacted: it holds a SUPI.
impl core::fmt::Debug for EapIdentity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("EapIdentity(…)")
    }
}

/// A transformed vector, as the UDM gives it to the AUSF (TS 33.501 §6.1.3.1 step 2).
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EapAkaPrimeVector {
    /// The challenge that the UE gets.
    pub rand: Rand,
    /// The authentication token that the UE gets.
    pub autn: Autn,
    /// The expected answer of the UE.
    pub xres: Res,
    /// CK bound to the serving network.
    pub ck_prime: Ck,
    /// IK bound to the serving network.
    pub ik_prime: Ik,
    /// The network that they are bound to.
    pub serving_network: ServingNetworkName,
}

impl EapAkaPrimeVector {
    /// The vector for `rand` and a fresh `sqn`; `amf` must have its separation bit set.
    pub fn generate(
        functions: &AkaFunctions,
        rand: Rand,
        sqn: Sqn,
        amf: AuthenticationManagementField,
        serving_network: &ServingNetworkName,
    ) -> Self {
        let (mac_a, out) = functions.f12345(&rand, sqn, amf);
        let (autn, sqn_xor_ak) = autn_of(sqn, &out.ak, amf, &mac_a);
        let (ck_prime, ik_prime) = primed(&out.ck, &out.ik, sqn_xor_ak, serving_network.octets());
        Self { rand, autn, xres: out.res, ck_prime, ik_prime, serving_network: *serving_network }
    }
}

/// CK' ‖ IK' (TS 33.402 Annex A.2, TS 33.501 Annex A.3).
fn primed(ck: &Ck, ik: &Ik, sqn_xor_ak: [u8; 6], network_name: &[u8]) -> (Ck, Ik) {
    let mut key = Zeroizing::new([0; 32]);
    key[..16].copy_from_slice(ck.octets());
    key[16..].copy_from_slice(ik.octets());
    let mut derived = Hmac::new(&key).derive(0x20, &[network_name, &sqn_xor_ak]);
    let (mut ck, mut ik) = ([0; 16], [0; 16]);
    ck.copy_from_slice(&derived[..16]);
    ik.copy_from_slice(&derived[16..]);
    derived.zeroize();
    (Ck::new(ck), Ik::new(ik))
}

/// Octets of the master key: K_encr, K_aut, K_re, MSK, EMSK (RFC 9048 §3.3).
const MASTER: usize = 16 + 32 + 32 + 64 + 64;
const AT_K_AUT: usize = 16;
const AT_EMSK: usize = 16 + 32 + 32 + 64;

/// MK = PRF'(IK' ‖ CK', "EAP-AKA'" ‖ identity) (RFC 9048 §3.3, §3.4.1).
fn master(ck_prime: &Ck, ik_prime: &Ik, identity: &[u8]) -> Zeroizing<[u8; MASTER]> {
    let mut key = Zeroizing::new([0; 32]);
    key[..16].copy_from_slice(ik_prime.octets());
    key[16..].copy_from_slice(ck_prime.octets());
    let prf = Hmac::new(&key);
    let mut mk = Zeroizing::new([0; MASTER]);
    let mut block: Zeroizing<[u8; 32]> = Zeroizing::new([0; 32]);
    for (n, part) in (1u8..).zip(mk.chunks_mut(32)) {
        let before = if n == 1 { &[][..] } else { &block[..] };
        let next = prf.code(&[before, b"EAP-AKA'", identity, &[n]]);
        *block = next;
        let octets = part.len();
        part.copy_from_slice(&block[..octets]);
    }
    mk
}

/// K_aut, and K_AUSF: the first 256 bits of EMSK (TS 33.501 §6.1.3.1 step 10).
fn keys_of(ck_prime: &Ck, ik_prime: &Ik, identity: &EapIdentity) -> (KAut, KAusf) {
    let mk = master(ck_prime, ik_prime, identity.0.as_bytes());
    let part = |at: usize| -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(&mk[at..at + 32]);
        key
    };
    (KAut::new(part(AT_K_AUT)), KAusf::new(part(AT_EMSK)))
}

fn mac<'k>(k_aut: &'k KAut) -> impl FnOnce(&[&[u8]]) -> [u8; 32] + use<'k> {
    |parts| Hmac::new(k_aut.octets()).code(parts)
}

/// Why an EAP-AKA' authentication failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EapRefusal {
    /// RES or AT_MAC is wrong: the UE holds another key.
    WrongResponse,
    /// The UE does not take AUTN or the network's name (EAP-Response/AKA'-Authentication-Reject).
    AuthenticationReject,
    /// The UE could not process the message; its code (EAP-Response/AKA'-Client-Error).
    ClientError(u16),
    /// The message breaks a rule; which.
    Malformed(&'static str),
}

/// The AUSF's verdict on a response.
#[derive(Clone, Debug)]
pub enum EapVerdict {
    /// The UE is authenticated.
    Accepted(KAusf),
    /// SQN was not fresh for the USIM.
    SynchronizationFailure(Auts),
    /// The UE is not authenticated.
    Refused(EapRefusal),
}

/// The AUSF's side of one challenge.
#[derive(Clone, Debug)]
pub struct EapAkaPrimeServer {
    vector: EapAkaPrimeVector,
    k_aut: KAut,
    k_ausf: KAusf,
    identifier: u8,
}

impl EapAkaPrimeServer {
    /// For one vector. `identifier` is another than that of the request before.
    pub fn new(vector: EapAkaPrimeVector, identity: &EapIdentity, identifier: u8) -> Self {
        let (k_aut, k_ausf) = keys_of(&vector.ck_prime, &vector.ik_prime, identity);
        Self { vector, k_aut, k_ausf, identifier }
    }

    /// The challenge that was made into this authentication.
    pub fn rand(&self) -> Rand {
        self.vector.rand
    }

    /// EAP-Request/AKA'-Challenge (RFC 9048 §3.1, RFC 4187 §9.3).
    pub fn challenge(&self) -> Vec<u8> {
        let name = self.vector.serving_network;
        EapWriter::new(Code::Request, self.identifier, Subtype::Challenge)
            .rand(&self.vector.rand.0)
            .autn(&self.vector.autn.0)
            .kdf(KDF_AKA_PRIME)
            .kdf_input(name.octets())
            .mac()
            .finish(mac(&self.k_aut))
    }

    /// Whether this is the response to another request than the challenge: it is to be dropped (RFC 3748 §4.1).
    pub fn is_past(&self, response: &[u8]) -> bool {
        EapPacket::parse(response).is_ok_and(|p| p.code == Code::Response && p.identifier != self.identifier)
    }

    /// Judges the response to the challenge (RFC 4187 §6.3.1, §9.4 to §9.9).
    pub fn judge(&self, response: &[u8]) -> EapVerdict {
        match self.read(response) {
            Ok(verdict) => verdict,
            Err(Malformed(what)) => EapVerdict::Refused(EapRefusal::Malformed(what)),
        }
    }

    fn read(&self, response: &[u8]) -> Result<EapVerdict, Malformed> {
        let p = EapPacket::parse(response)?;
        if p.code != Code::Response || p.identifier != self.identifier {
            return Err(Malformed("an EAP response to another request"));
        }
        Ok(match p.subtype {
            Subtype::Challenge if p.res.is_none() && !p.kdfs.is_empty() => {
                // The UE requests another key derivation function, and there is none (RFC 9048 §3.2).
                EapVerdict::Refused(EapRefusal::AuthenticationReject)
            }
            Subtype::Challenge => {
                let res = p.res.ok_or(Malformed("an EAP-AKA' response without AT_RES"))?;
                // Without an identity exchange there is nothing that a checkcode could cover (RFC 9048 §3.5.2).
                let unspoilt = p.checkcode.is_none_or(<[u8]>::is_empty);
                let right = p.mac_is_right(mac(&self.k_aut)) && ct_eq(res, self.vector.xres.octets());
                if right && unspoilt {
                    EapVerdict::Accepted(self.k_ausf.clone())
                } else {
                    EapVerdict::Refused(EapRefusal::WrongResponse)
                }
            }
            Subtype::SynchronizationFailure => {
                let auts = p.auts.ok_or(Malformed("an EAP-AKA' synchronization failure without AT_AUTS"))?;
                EapVerdict::SynchronizationFailure(Auts(auts))
            }
            Subtype::AuthenticationReject => EapVerdict::Refused(EapRefusal::AuthenticationReject),
            Subtype::ClientError => {
                let code = p.client_error.ok_or(Malformed("an EAP-AKA' client error without its code"))?;
                EapVerdict::Refused(EapRefusal::ClientError(code))
            }
            Subtype::Notification => return Err(Malformed("an unexpected EAP-AKA' notification")),
        })
    }

    /// EAP-Request/AKA'-Notification of a general failure: what a server sends before EAP-Failure where it was not the
    /// UE that gave up (RFC 4187 §6.3.1, §9.10).
    pub fn failure_notification(&self) -> Vec<u8> {
        let next = self.identifier.wrapping_add(1);
        EapWriter::new(Code::Request, next, Subtype::Notification).notification(GENERAL_FAILURE).plain()
    }

    /// EAP-Success (RFC 3748 §4.2).
    pub fn success(&self) -> Vec<u8> {
        vec![Code::Success as u8, self.identifier, 0, 4]
    }

    /// EAP-Failure (RFC 3748 §4.2), after a notification where one was sent.
    pub fn failure(&self, notified: bool) -> Vec<u8> {
        vec![Code::Failure as u8, self.identifier.wrapping_add(notified.into()), 0, 4]
    }
}

/// The UE's side.
#[derive(Clone, Debug)]
pub struct EapAkaPrimePeer {
    identity: EapIdentity,
    serving_network: ServingNetworkName,
}

/// What the UE answers to an EAP message.
#[derive(Clone, Debug)]
pub enum PeerAnswer {
    /// It accepts the challenge; this goes back, and this is the home network's key.
    Accepted(Vec<u8>, KAusf),
    /// It answers without having accepted: a refusal, a resynchronisation, a notification confirmed.
    Answered(Vec<u8>),
    /// EAP-Success: nothing goes back.
    Success,
    /// EAP-Failure: nothing goes back.
    Failure,
}

impl EapAkaPrimePeer {
    /// A subscriber of `home` in this serving network.
    pub fn new(supi: Supi, home: PlmnId, serving_network: ServingNetworkName) -> Self {
        Self { identity: EapIdentity::new(supi, home), serving_network }
    }

    /// Answers one EAP message of the network (RFC 4187 §6.3.1, RFC 9048 §3). `None`: it is no request that can be answered.
    pub fn answer(&self, usim: &mut Usim, message: &[u8]) -> Option<PeerAnswer> {
        match bare(message) {
            Some((Code::Success, _)) => return Some(PeerAnswer::Success),
            Some(_) => return Some(PeerAnswer::Failure),
            None => {}
        }
        let &[code, identifier, ..] = message else { return None };
        if code != Code::Request as u8 {
            return None;
        }
        let unable = |_| {
            let error = EapWriter::new(Code::Response, identifier, Subtype::ClientError);
            PeerAnswer::Answered(error.client_error(UNABLE_TO_PROCESS).plain())
        };
        let answered = EapPacket::parse(message).and_then(|p| match p.subtype {
            Subtype::Challenge => self.challenged(usim, &p),
            Subtype::Notification => notified(&p),
            _ => Err(Malformed("an EAP-AKA' message that only UEs send")),
        });
        Some(answered.unwrap_or_else(unable))
    }

    fn challenged(&self, usim: &mut Usim, p: &EapPacket<'_>) -> Result<PeerAnswer, Malformed> {
        const INCOMPLETE: Malformed = Malformed("an EAP-AKA' challenge that lacks an attribute");
        let (rand, autn) = (Rand(p.rand.ok_or(INCOMPLETE)?), Autn(p.autn.ok_or(INCOMPLETE)?));
        let name = p.kdf_input.ok_or(INCOMPLETE)?;
        let answer = |subtype| EapWriter::new(Code::Response, p.identifier, subtype);
        match p.kdfs.first() {
            Some(&KDF_AKA_PRIME) => {}
            // RFC 9048 §3.2: of what is offered the UE picks what it knows.
            Some(_) if p.kdfs.contains(&KDF_AKA_PRIME) => {
                return Ok(PeerAnswer::Answered(answer(Subtype::Challenge).kdf(KDF_AKA_PRIME).plain()));
            }
            _ => return Ok(PeerAnswer::Answered(answer(Subtype::AuthenticationReject).plain())),
        }
        // RFC 9048 §3.1: another network name than the serving network's counts as a wrong AUTN.
        if name != self.serving_network.octets() {
            return Ok(PeerAnswer::Answered(answer(Subtype::AuthenticationReject).plain()));
        }
        let UsimOutput { res, ck, ik, sqn_xor_ak } = match usim.challenge(&rand, &autn) {
            Ok(challenged) => challenged,
            Err(AuthenticationFailure::SynchFailure(auts)) => {
                let failure = answer(Subtype::SynchronizationFailure).auts(&auts.0).kdf(KDF_AKA_PRIME);
                return Ok(PeerAnswer::Answered(failure.plain()));
            }
            Err(
                AuthenticationFailure::MacFailure | AuthenticationFailure::Non5gAuthenticationUnacceptable,
            ) => return Ok(PeerAnswer::Answered(answer(Subtype::AuthenticationReject).plain())),
        };
        let (ck_prime, ik_prime) = primed(&ck, &ik, sqn_xor_ak, name);
        let (k_aut, k_ausf) = keys_of(&ck_prime, &ik_prime, &self.identity);
        if !p.mac_is_right(mac(&k_aut)) {
            return Err(Malformed("an EAP-AKA' challenge whose AT_MAC is wrong"));
        }
        let response = answer(Subtype::Challenge).res(res.octets()).mac().finish(mac(&k_aut));
        Ok(PeerAnswer::Accepted(response, k_ausf))
    }
}

/// A notification is confirmed; one of success would have to be protected (RFC 4187 §9.11).
fn notified(p: &EapPacket<'_>) -> Result<PeerAnswer, Malformed> {
    let code = p.notification.ok_or(Malformed("an EAP-AKA' notification without its code"))?;
    if code & NOTIFIES_SUCCESS != 0 || code & GENERAL_FAILURE == 0 {
        return Err(Malformed("an EAP-AKA' notification that had to be protected"));
    }
    Ok(PeerAnswer::Answered(EapWriter::new(Code::Response, p.identifier, Subtype::Notification).plain()))
}

#[cfg(test)]
#[path = "aka_prime/tests.rs"]
mod tests;
