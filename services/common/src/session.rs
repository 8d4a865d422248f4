//! What a broker grants and orders for a session.

use core::net::IpAddr;

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::codec::MessageField;

/// The QoS of a session (qosInfo of chapter 3.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qos {
    /// Session AMBR uplink, in kbit/s.
    pub ul_kbps: u32,
    /// Session AMBR downlink, in kbit/s.
    pub dl_kbps: u32,
    /// 5QI of the default QoS flow; never the reserved 0.
    pub five_qi: u8,
}

impl MessageField for Qos {
    const NAME: &'static str = "QoS";
    const FIELD_OCTETS_MAX: usize = 4 + 4 + 1;

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ul_kbps.to_be_bytes());
        out.extend_from_slice(&self.dl_kbps.to_be_bytes());
        out.push(self.five_qi);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = Qos::NAME;
        Ok(Self { ul_kbps: r.u32(IE)?, dl_kbps: r.u32(IE)?, five_qi: r.u8(IE)? })
    }
}

/// Traffic that the operator drops on the broker's order: to or from these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    address: IpAddr,
    prefix: u8,
}

impl Filter {
    /// `None` if the prefix is longer than the address or bits are set behind it.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        let (bits, len) = match address {
            IpAddr::V4(a) => (u128::from(a.to_bits()) << 96, 32),
            IpAddr::V6(a) => (a.to_bits(), 128),
        };
        let tail = bits.checked_shl(u32::from(prefix)).unwrap_or(0);
        (prefix <= len && tail == 0).then_some(Self { address, prefix })
    }

    /// The first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// How many leading bits count.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The most filters of a session.
    pub const MAX: usize = 8;
    /// The longest list of them.
    pub const LIST_OCTETS_MAX: usize = 1 + Self::MAX * 18;
}

/// The filters of a session behind their number. Panics on more than [`Filter::MAX`].
pub fn emit_filters(filters: &[Filter], out: &mut Vec<u8>) {
    assert!(filters.len() <= Filter::MAX);
    out.push(filters.len() as u8);
    for filter in filters {
        match filter.address {
            IpAddr::V4(a) => {
                out.push(4);
                out.extend_from_slice(&a.octets());
            }
            IpAddr::V6(a) => {
                out.push(6);
                out.extend_from_slice(&a.octets());
            }
        }
        out.push(filter.prefix);
    }
}

/// Reads them. Errors: [`DecodeError`].
pub fn read_filters(r: &mut Reader<'_>) -> Result<Vec<Filter>, DecodeError> {
    const IE: &str = "orders";
    let too_many = r.error(DecodeErrorKind::TooMany, "filters");
    let count = usize::from(r.u8(IE)?);
    if count > Filter::MAX {
        return Err(too_many);
    }
    let mut filters = Vec::with_capacity(count);
    for _ in 0..count {
        let invalid = r.error(DecodeErrorKind::InvalidValue, "filter");
        let address = match r.u8(IE)? {
            4 => IpAddr::from(r.array::<4>(IE)?),
            6 => IpAddr::from(r.array::<16>(IE)?),
            _ => return Err(invalid),
        };
        filters.push(Filter::new(address, r.u8(IE)?).ok_or(invalid)?);
    }
    Ok(filters)
}
