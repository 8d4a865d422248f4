//! User ID: whose session it is, for the UP function's logs.

use whimbrel_ids::{Pei, Reader, Supi};

use crate::codec::Ie;
use crate::error::Error;

/// Subscriber and equipment (TS 29.244 §8.2.101). Other identities of the element are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserId {
    /// IMSI of the user.
    pub imsi: Option<Supi>,
    /// IMEI or IMEISV.
    pub imei: Option<Pei>,
}

impl UserId {
    const NAME: &'static str = "User ID";
}

/// The digits of swapped nibbles; ends at the filler.
fn digits(octets: &[u8]) -> impl Iterator<Item = u8> {
    octets.iter().flat_map(|o| [o & 0xf, o >> 4]).take_while(|d| *d != 0xf)
}

fn write_digits(digits: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    for (i, d) in digits.enumerate() {
        match out.last_mut() {
            Some(last) if i % 2 == 1 => *last = *last & 0xf | d << 4,
            _ => out.push(0xf0 | d),
        }
    }
    out[at] = (out.len() - at - 1) as u8; // at most 16 digits
}

impl Ie for UserId {
    const NAME: &'static str = Self::NAME;
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(<Self as Ie>::NAME)?;
        let mut v = Self::default();
        if flags & 1 != 0 {
            let len = r.u8("IMSI")?;
            v.imsi = Supi::from_digits(digits(r.take(len.into(), "IMSI")?));
        }
        if flags & 2 != 0 {
            let len = r.u8("IMEI")?;
            v.imei = Pei::from_digits(digits(r.take(len.into(), "IMEI")?).take(16));
        }
        Ok(v)
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.imsi.is_some()) | u8::from(self.imei.is_some()) << 1);
        if let Some(imsi) = self.imsi {
            write_digits(imsi.digits(), out);
        }
        if let Some(imei) = self.imei {
            write_digits(imei.digits(), out);
        }
    }
}
