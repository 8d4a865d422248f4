//! What an operator offers, and what a broker takes of it.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use super::Qos;

/// The price of one MiB (2^20 octets) in each direction, in millionths of a unit of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Price {
    currency: [u8; 3],
    /// Price of the uplink, in millionths a MiB.
    pub ul_micros_per_mib: u32,
    /// Price of the downlink, in millionths a MiB.
    pub dl_micros_per_mib: u32,
}

impl Price {
    /// `None` if the currency is not three capital letters (ISO 4217).
    pub fn new(currency: [u8; 3], ul_micros_per_mib: u32, dl_micros_per_mib: u32) -> Option<Self> {
        let ok = currency.iter().all(u8::is_ascii_uppercase);
        ok.then_some(Self { currency, ul_micros_per_mib, dl_micros_per_mib })
    }

    /// The code of the currency (ISO 4217).
    pub const fn currency(&self) -> [u8; 3] {
        self.currency
    }

    /// What so many octets cost, in millionths of a unit of the currency, rounded down.
    pub fn cost_micros(&self, ul_octets: u64, dl_octets: u64) -> u64 {
        let part = |octets: u64, micros: u32| u128::from(octets) * u128::from(micros);
        let micros = part(ul_octets, self.ul_micros_per_mib) + part(dl_octets, self.dl_micros_per_mib);
        u64::try_from(micros >> 20).unwrap_or(u64::MAX)
    }

    /// Whether it is in the currency of `cap` and above it in no direction.
    pub fn is_within(&self, cap: &Price) -> bool {
        self.currency == cap.currency
            && self.ul_micros_per_mib <= cap.ul_micros_per_mib
            && self.dl_micros_per_mib <= cap.dl_micros_per_mib
    }
}

/// The 5QIs that an operator can give (TS 23.501 §5.7.4): one to eight, ascending, without the reserved 0.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveQis(Box<[u8]>);

impl FiveQis {
    /// The most that terms name: every standardized resource type has fewer that a small operator would offer.
    pub const MAX: usize = 8;

    /// `None` unless they are one to eight, ascending and not 0.
    pub fn new(five_qis: &[u8]) -> Option<Self> {
        let ascending = five_qis.windows(2).all(|w| w[0] < w[1]);
        let ok = (1..=Self::MAX).contains(&five_qis.len()) && five_qis[0] != 0 && ascending;
        ok.then(|| Self(five_qis.into()))
    }

    /// Whether `five_qi` is among them.
    pub fn contains(&self, five_qi: u8) -> bool {
        self.0.contains(&five_qi)
    }

    /// The 5QIs in ascending order.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

/// The QoS that an operator can enforce (qosCap of chapter 3.4.1).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QosOffer {
    /// The highest session AMBR uplink, in kbit/s.
    pub ul_kbps_max: u32,
    /// The highest session AMBR downlink, in kbit/s.
    pub dl_kbps_max: u32,
    /// 5QIs that are offered.
    pub five_qis: FiveQis,
}

impl QosOffer {
    /// Whether the offer covers `qos`.
    pub fn covers(&self, qos: &Qos) -> bool {
        qos.ul_kbps <= self.ul_kbps_max
            && qos.dl_kbps <= self.dl_kbps_max
            && self.five_qis.contains(qos.five_qi)
    }
}

/// The terms on which an operator serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Terms {
    /// What it costs.
    pub price: Price,
    /// What it can give.
    pub qos: QosOffer,
    /// Time between two usage reports, in seconds.
    pub report_cycle_s: u16,
}

impl Terms {
    /// Octets of the longest such message.
    pub const OCTETS_MAX: usize = 3 + 4 * 4 + 1 + FiveQis::MAX + 2;

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::OCTETS_MAX);
        self.emit(&mut out);
        out
    }

    /// Parses them. Errors: [`DecodeError`].
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        super::whole(octets, Self::read)
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.price.currency);
        for v in [
            self.price.ul_micros_per_mib,
            self.price.dl_micros_per_mib,
            self.qos.ul_kbps_max,
            self.qos.dl_kbps_max,
        ] {
            out.extend_from_slice(&v.to_be_bytes());
        }
        out.push(self.qos.five_qis.0.len() as u8);
        out.extend_from_slice(&self.qos.five_qis.0);
        out.extend_from_slice(&self.report_cycle_s.to_be_bytes());
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const IE: &str = "terms";
        let invalid = r.error(DecodeErrorKind::InvalidValue, IE);
        let price = Price::new(r.array(IE)?, r.u32(IE)?, r.u32(IE)?).ok_or(invalid)?;
        let (ul_kbps_max, dl_kbps_max) = (r.u32(IE)?, r.u32(IE)?);
        let count = usize::from(r.u8(IE)?);
        let five_qis = FiveQis::new(r.take(count, IE)?).ok_or(invalid)?;
        let qos = QosOffer { ul_kbps_max, dl_kbps_max, five_qis };
        Ok(Self { price, qos, report_cycle_s: r.u16(IE)? })
    }
}
