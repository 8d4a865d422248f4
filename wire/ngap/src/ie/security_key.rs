//! Security Key (TS 38.413 §9.3.1.87).

use core::fmt;

#[cfg(any(test, feature = "samples"))]
use crate::aper::sample::Source;
use crate::aper::{Aper, Fault, Reader, Writer};

/// KgNB or NH: 256 bits. It hides itself in `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecurityKey(pub [u8; 32]);

impl fmt::Debug for SecurityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecurityKey(…)")
    }
}

impl Aper for SecurityKey {
    fn read(r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(Self(<[u8; 32]>::read(r)?))
    }
    fn write(&self, w: &mut Writer<'_>) {
        self.0.write(w);
    }
    #[cfg(any(test, feature = "samples"))]
    fn sample(s: &mut Source) -> Self {
        Self(<[u8; 32]>::sample(s))
    }
}
