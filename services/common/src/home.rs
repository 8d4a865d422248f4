//! A broker as the home network of ordinary 3GPP UEs: what the vectors of 5G-AKA are made of (TS 33.501 §6.1.3.2).

use whimbrel_ids::{DecodeError, PlmnId, Reader};
use whimbrel_security::aka::verify_auts;
use whimbrel_security::{
    AkaFunctions, AuthenticationManagementField, AuthenticationVector, Auts, Rand, ServingNetworkName, Sqn,
};

use crate::codec::MessageField;

/// A scheme output of a SUCI of type IMSI: a compressed point (33), a MSIN (8 at most), a tag (8): TS 33.501 Annex C.3.4.2.
pub const SCHEME_OUTPUT_OCTETS_MAX: usize = 33 + 8 + 8;

/// What a USIM sends when it finds SQN out of range (TS 33.102 §6.3.3).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Resynchronisation {
    /// The challenge that it refused.
    pub rand: [u8; 16],
    /// SQN_MS, concealed, and MAC-S.
    pub auts: [u8; 14],
}

impl core::fmt::Debug for Resynchronisation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Resynchronisation(…)")
    }
}

impl MessageField for Resynchronisation {
    const NAME: &'static str = "resynchronisation";
    const FIELD_OCTETS_MAX: usize = 16 + 14;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.rand);
        out.extend_from_slice(&self.auts);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { rand: r.array("RAND")?, auts: r.array("AUTS")? })
    }
}

/// The SQN after which the next vector of a USIM comes: the last that was used, or the USIM's if that is higher. `None` if the
/// resynchronisation is not of this USIM.
pub fn last_sqn(
    resynchronisation: Option<&Resynchronisation>,
    functions: &AkaFunctions,
    used: Sqn,
) -> Option<Sqn> {
    match resynchronisation {
        None => Some(used),
        Some(token) => {
            verify_auts(functions, &Rand(token.rand), &Auts(token.auts)).map(|sqn_ms| used.max(sqn_ms))
        }
    }
}

/// The vector of this SQN for the serving network of a PLMN, the same each time.
pub fn vector(functions: &AkaFunctions, rand: [u8; 16], sqn: Sqn, network: PlmnId) -> AuthenticationVector {
    let (amf, name) = (AuthenticationManagementField::FIVE_G, ServingNetworkName::new(network));
    AuthenticationVector::generate(functions, Rand(rand), sqn, amf, &name)
}
