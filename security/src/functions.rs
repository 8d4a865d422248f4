//! f1 to f5* of a subscriber, for each algorithm (TS 33.102 §6.3, TS 33.501 §6.1.3).

use crate::aka::{AuthenticationManagementField, Rand};
use crate::milenage::{Ak, F2345, Mac, Milenage};
use crate::sqn::Sqn;
use crate::tuak::Tuak;

/// The keyed authentication and key functions of one subscriber's USIM.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each vector, on the stack: a box would cost more"
)]
pub enum AkaFunctions {
    /// Milenage, as TS 35.206 defines it.
    Milenage(Milenage),
    /// TUAK, as TS 35.231 defines it.
    Tuak(Tuak),
}

impl From<Milenage> for AkaFunctions {
    fn from(m: Milenage) -> Self {
        AkaFunctions::Milenage(m)
    }
}

impl From<Tuak> for AkaFunctions {
    fn from(t: Tuak) -> Self {
        AkaFunctions::Tuak(t)
    }
}

impl AkaFunctions {
    /// The function f1: MAC-A.
    pub fn f1(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        match self {
            AkaFunctions::Milenage(m) => m.f1(rand, sqn, amf),
            AkaFunctions::Tuak(t) => t.f1(rand, sqn, amf),
        }
    }

    /// The function f1*: MAC-S.
    pub fn f1_star(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> Mac {
        match self {
            AkaFunctions::Milenage(m) => m.f1_star(rand, sqn, amf),
            AkaFunctions::Tuak(t) => t.f1_star(rand, sqn, amf),
        }
    }

    /// RES, CK, IK and AK: f2 to f5.
    pub fn f2345(&self, rand: &Rand) -> F2345 {
        match self {
            AkaFunctions::Milenage(m) => m.f2345(rand),
            AkaFunctions::Tuak(t) => t.f2345(rand),
        }
    }

    /// MAC-A and all of f2 to f5, as a vector needs them.
    pub fn f12345(&self, rand: &Rand, sqn: Sqn, amf: AuthenticationManagementField) -> (Mac, F2345) {
        match self {
            AkaFunctions::Milenage(m) => m.f12345(rand, sqn, amf),
            AkaFunctions::Tuak(t) => (t.f1(rand, sqn, amf), t.f2345(rand)),
        }
    }

    /// AK for resynchronisation: f5*.
    pub fn f5_star(&self, rand: &Rand) -> Ak {
        match self {
            AkaFunctions::Milenage(m) => m.f5_star(rand),
            AkaFunctions::Tuak(t) => t.f5_star(rand),
        }
    }
}
