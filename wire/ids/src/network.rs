//! Names of networks, of their nodes, and of a UE towards them.

use core::fmt;
use core::str::FromStr;

/// A text that is not the identifier it should be; `expected` describes a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseIdError {
    /// What a right text looks like, with an example.
    pub expected: &'static str,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl core::error::Error for ParseIdError {}

/// A public land mobile network: mobile country code and mobile network code (TS 23.003 §2.2).
///
/// NAS and NGAP write it in three octets of two digits each and agree for an MNC of two digits only: of three, NAS puts the
/// last digit first. So there are no plain "octets": each protocol calls its own pair of functions.
///
/// | octet | NAS | NGAP |
/// | --- | --- | --- |
/// | 1 | MCC 2, MCC 1 | MCC 2, MCC 1 |
/// | 2 | MNC 3 or filler, MCC 3 | MNC 1 or filler, MCC 3 |
/// | 3 | MNC 2, MNC 1 | MNC 3, MNC 2; of two digits MNC 2, MNC 1 |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlmnId([u8; 3]); // in the order of NAS

/// The filler in place of the third digit of an MNC with two.
const FILLER: u8 = 0xf;

impl PlmnId {
    /// The test network 999/70, the embedded default.
    pub const TEST: PlmnId = PlmnId([0x99, 0xf9, 0x07]);

    /// From the octets of a NAS message (TS 24.501 §9.11.3.4, §9.11.3.8; TS 24.008 §10.5.1.3); `None` if a digit is not
    /// decimal.
    pub const fn from_nas_octets(o: [u8; 3]) -> Option<Self> {
        let ok = o[0] & 0xf <= 9
            && o[0] >> 4 <= 9
            && o[1] & 0xf <= 9
            && (o[1] >> 4 <= 9 || o[1] >> 4 == FILLER)
            && o[2] & 0xf <= 9
            && o[2] >> 4 <= 9;
        if ok { Some(Self(o)) } else { None }
    }

    /// The octets in a NAS message.
    pub const fn nas_octets(self) -> [u8; 3] {
        self.0
    }

    /// From the octets of an NGAP message (TS 38.413 §9.3.3.5); `None` if a digit is not decimal.
    pub const fn from_ngap_octets([a, b, c]: [u8; 3]) -> Option<Self> {
        match (b >> 4, c >> 4) {
            (FILLER, _) => Self::from_nas_octets([a, b, c]),
            (_, FILLER) => None, // the filler is in the second octet only
            (mnc_1, mnc_3) => Self::from_nas_octets([a, b & 0xf | mnc_3 << 4, mnc_1 | (c & 0xf) << 4]),
        }
    }

    /// The octets in an NGAP message (TS 38.413 §9.3.3.5).
    pub const fn ngap_octets(self) -> [u8; 3] {
        let [a, b, c] = self.0;
        match b >> 4 {
            FILLER => [a, b, c],
            mnc_3 => [a, b & 0xf | (c & 0xf) << 4, c >> 4 | mnc_3 << 4],
        }
    }

    /// The three decimal digits of the mobile country code.
    pub const fn mcc(self) -> [u8; 3] {
        [self.0[0] & 0xf, self.0[0] >> 4, self.0[1] & 0xf]
    }

    /// The mobile network code: its digits and how many there are (2 or 3).
    pub const fn mnc(self) -> ([u8; 3], usize) {
        let third = self.0[1] >> 4;
        let two = third == FILLER;
        ([self.0[2] & 0xf, self.0[2] >> 4, if two { 0 } else { third }], if two { 2 } else { 3 })
    }

    /// The five or six digits, MCC then MNC, as they begin an IMSI.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        let (mnc, n) = self.mnc();
        self.mcc().into_iter().chain(mnc.into_iter().take(n))
    }
}

impl FromStr for PlmnId {
    type Err = ParseIdError;

    /// Reads `999/70`, `999-70` or `99970`.
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError = ParseIdError { expected: "a PLMN of 3 + 2 or 3 digits, such as 999/70" };
        let mut d = [0u8; 6];
        let mut n = 0;
        for (i, c) in s.bytes().enumerate() {
            match c {
                b'0'..=b'9' if n < 6 => {
                    d[n] = c - b'0';
                    n += 1;
                }
                b'/' | b'-' if i == 3 => {}
                _ => return Err(E),
            }
        }
        let third = match n {
            5 => FILLER,
            6 => d[5],
            _ => return Err(E),
        };
        Ok(Self([d[0] | d[1] << 4, d[2] | third << 4, d[3] | d[4] << 4]))
    }
}

impl fmt::Display for PlmnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for d in self.mcc() {
            write!(f, "{d}")?;
        }
        f.write_str("/")?;
        let (mnc, n) = self.mnc();
        for d in &mnc[..n] {
            write!(f, "{d}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PlmnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Tracking area code of the 5G system: 24 bits (TS 23.003 §19.4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tac(u32);

impl Tac {
    /// `None` above 24 bits.
    pub const fn new(v: u32) -> Option<Self> {
        if v < 1 << 24 { Some(Self(v)) } else { None }
    }

    /// From the three wire octets.
    pub const fn from_octets(o: [u8; 3]) -> Self {
        Self(u32::from_be_bytes([0, o[0], o[1], o[2]]))
    }

    /// The three wire octets.
    pub const fn octets(self) -> [u8; 3] {
        let [_, a, b, c] = self.0.to_be_bytes();
        [a, b, c]
    }

    /// As a number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Tac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Tracking area identity: a PLMN and a code within it (TS 23.003 §19.4.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tai {
    /// PLMN of the area.
    pub plmn: PlmnId,
    /// The area within it.
    pub tac: Tac,
}

impl fmt::Display for Tai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.plmn, self.tac)
    }
}

/// Single network slice selection assistance information (TS 23.003 §28.4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SNssai {
    /// Slice/service type (SST) of the slice.
    pub sst: u8,
    sd: u32,
}

impl SNssai {
    /// The value of SD that means "no SD associated".
    const NO_SD: u32 = 0xff_ffff;

    /// A slice of the type alone.
    pub const fn sst(sst: u8) -> Self {
        Self { sst, sd: Self::NO_SD }
    }

    /// A slice of a type and a differentiator of 24 bits; 0xFFFFFF, and anything wider, means none.
    pub const fn new(sst: u8, sd: Option<u32>) -> Self {
        match sd {
            Some(sd) if sd < Self::NO_SD => Self { sst, sd },
            _ => Self::sst(sst),
        }
    }

    /// The slice differentiator, if one is associated.
    pub const fn sd(self) -> Option<u32> {
        if self.sd == Self::NO_SD { None } else { Some(self.sd) }
    }
}

impl fmt::Display for SNssai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sd() {
            Some(sd) => write!(f, "{}-{:06x}", self.sst, sd),
            None => write!(f, "{}", self.sst),
        }
    }
}

impl fmt::Debug for SNssai {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for SNssai {
    type Err = ParseIdError;

    /// Reads `1` or `1-0000ab` (SST in decimal, SD as six hexadecimal digits).
    fn from_str(s: &str) -> Result<Self, ParseIdError> {
        const E: ParseIdError = ParseIdError { expected: "a slice as SST or SST-SD, such as 1 or 1-0000ab" };
        let (sst, sd) = match s.split_once('-') {
            Some((sst, sd)) => (sst, Some(sd)),
            None => (s, None),
        };
        let sst = sst.parse().map_err(|_| E)?;
        let sd = match sd {
            Some(sd) if sd.len() == 6 => Some(u32::from_str_radix(sd, 16).map_err(|_| E)?),
            Some(_) => return Err(E),
            None => None,
        };
        Ok(Self::new(sst, sd))
    }
}

/// AMF identifier: region (8 bits), set (10 bits) and pointer (6 bits) (TS 23.003 §2.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmfId {
    /// Region of the AMF.
    pub region: u8,
    set: u16,
    pointer: u8,
}

impl AmfId {
    /// `None` where set exceeds 10 bits or pointer 6.
    pub const fn new(region: u8, set: u16, pointer: u8) -> Option<Self> {
        if set < 1 << 10 && pointer < 1 << 6 { Some(Self { region, set, pointer }) } else { None }
    }

    /// AMF set within the region.
    pub const fn set(self) -> u16 {
        self.set
    }

    /// AMF pointer within the set.
    pub const fn pointer(self) -> u8 {
        self.pointer
    }

    /// From the three wire octets.
    pub const fn from_octets(o: [u8; 3]) -> Self {
        Self { region: o[0], set: (o[1] as u16) << 2 | o[2] as u16 >> 6, pointer: o[2] & 0x3f }
    }

    /// The three wire octets.
    pub const fn octets(self) -> [u8; 3] {
        [self.region, (self.set >> 2) as u8, (self.set << 6) as u8 | self.pointer]
    }
}

/// Globally unique AMF identifier (TS 23.003 §2.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guami {
    /// PLMN of the AMF.
    pub plmn: PlmnId,
    /// The AMF within it.
    pub amf_id: AmfId,
}

/// 5G-TMSI: the part of a 5G-GUTI that names a UE within its AMF.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Tmsi(pub u32);

impl fmt::Debug for Tmsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// 5G globally unique temporary identifier (TS 23.003 §2.10.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guti {
    /// The AMF that assigned it.
    pub guami: Guami,
    /// The UE within that AMF.
    pub tmsi: Tmsi,
}

/// 5G-S-TMSI: the short form of a 5G-GUTI used over the radio (TS 23.003 §2.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct STmsi {
    /// AMF set, 10 bits.
    pub set: u16,
    /// AMF pointer, 6 bits.
    pub pointer: u8,
    /// The UE within that AMF.
    pub tmsi: Tmsi,
}

impl Guti {
    /// Its short form.
    pub const fn s_tmsi(self) -> STmsi {
        STmsi { set: self.guami.amf_id.set(), pointer: self.guami.amf_id.pointer(), tmsi: self.tmsi }
    }
}

/// The AMF's name of a UE on N2: 40 bits (TS 38.413 §9.3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmfUeNgapId(u64);

impl AmfUeNgapId {
    /// The largest value.
    pub const MAX: u64 = (1 << 40) - 1;

    /// `None` above 40 bits.
    pub const fn new(v: u64) -> Option<Self> {
        if v <= Self::MAX { Some(Self(v)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AmfUeNgapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The gNB's name of a UE on N2: 32 bits (TS 38.413 §9.3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RanUeNgapId(pub u32);

impl fmt::Display for RanUeNgapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Global gNB identifier: a PLMN and 22 to 32 bits within it (TS 38.413 §9.3.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GlobalGnbId {
    /// PLMN of the gNB.
    pub plmn: PlmnId,
    /// The identifier, right-aligned.
    pub gnb_id: u32,
    bits: u8,
}

impl GlobalGnbId {
    /// `None` unless `bits` is 22..=32 and `gnb_id` fits in it.
    pub const fn new(plmn: PlmnId, gnb_id: u32, bits: u8) -> Option<Self> {
        if bits < 22 || bits > 32 || (bits < 32 && gnb_id >> bits != 0) {
            return None;
        }
        Some(Self { plmn, gnb_id, bits })
    }

    /// How many bits the identifier has.
    pub const fn bits(self) -> u8 {
        self.bits
    }
}

impl fmt::Display for GlobalGnbId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.plmn, self.gnb_id)
    }
}

/// NR cell identity: 36 bits (TS 38.413 §9.3.1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NrCellId(u64);

impl NrCellId {
    /// `None` above 36 bits.
    pub const fn new(v: u64) -> Option<Self> {
        if v < 1 << 36 { Some(Self(v)) } else { None }
    }

    /// As a number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plmn_of_text_and_as_digits() {
        let p: PlmnId = "999/70".parse().unwrap();
        assert_eq!(p, PlmnId::TEST);
        assert_eq!(p.to_string(), "999/70");
        let p: PlmnId = "310410".parse().unwrap();
        assert_eq!(p.to_string(), "310/410");
        assert_eq!((p.mcc(), p.mnc()), ([3, 1, 0], ([4, 1, 0], 3)));
        assert_eq!(p.digits().collect::<Vec<_>>(), [3, 1, 0, 4, 1, 0]);
        assert!("99/970".parse::<PlmnId>().is_err());
        assert!("9997000".parse::<PlmnId>().is_err());
    }

    #[test] // TS 24.501 §9.11.3.8; TS 38.413 §9.3.3.5: as pycrate and tshark have them
    fn plmn_octets_of_nas_and_of_ngap_are_those_of_the_vectors() {
        let octets = |hex: &str| {
            <[u8; 3]>::try_from(&u32::from_str_radix(hex, 16).unwrap().to_be_bytes()[1..]).unwrap()
        };
        let mut three_digits = 0;
        for line in include_str!("../testdata/plmn.txt").lines().filter(|l| !l.starts_with('#')) {
            let [plmn, nas, ngap] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let (plmn, nas, ngap): (PlmnId, _, _) = (plmn.parse().unwrap(), octets(nas), octets(ngap));
            assert_eq!((plmn.nas_octets(), plmn.ngap_octets()), (nas, ngap), "{plmn}");
            assert_eq!(PlmnId::from_nas_octets(nas), Some(plmn));
            assert_eq!(PlmnId::from_ngap_octets(ngap), Some(plmn));
            three_digits += usize::from(plmn.mnc().1 == 3);
        }
        assert!(three_digits >= 4);
    }

    #[test] // TS 38.413 §9.3.3.5
    fn every_plmn_comes_back_from_the_octets_of_both_protocols() {
        for mnc in 0..1000u16 {
            for text in [format!("310/{mnc:03}"), format!("310/{:02}", mnc % 100)] {
                let plmn: PlmnId = text.parse().unwrap();
                assert_eq!(PlmnId::from_nas_octets(plmn.nas_octets()), Some(plmn));
                assert_eq!(PlmnId::from_ngap_octets(plmn.ngap_octets()), Some(plmn));
            }
        }
    }

    #[test]
    fn plmn_octets_with_a_digit_that_is_not_decimal_are_refused() {
        let bad = [
            [0x9a, 0xf9, 7],
            [0xa9, 0xf9, 7],
            [0x99, 0xfa, 7],
            [0x99, 0xa9, 7],
            [0x99, 0xf9, 0x0a],
            [0x99, 0xf9, 0xf7],
        ];
        for o in bad {
            assert_eq!((PlmnId::from_nas_octets(o), PlmnId::from_ngap_octets(o)), (None, None), "{o:02x?}");
        }
        assert_eq!(PlmnId::from_ngap_octets([0x13, 0x20, 0xf6]), None, "the filler in the third octet");
    }

    #[test] // TS 23.003 §2.10.1
    fn amf_id_octets() {
        let id = AmfId::new(0x02, 0x155, 0x2a).unwrap();
        assert_eq!(id.octets(), [0x02, 0x55, 0x6a]);
        assert_eq!(AmfId::from_octets(id.octets()), id);
        assert_eq!(AmfId::new(0, 1024, 0), None);
    }

    #[test] // TS 23.003 §28.4.2: SD FFFFFF means that none is associated
    fn slice_without_differentiator() {
        assert_eq!(SNssai::new(1, Some(0xff_ffff)), SNssai::sst(1));
        assert_eq!("1-0000ab".parse::<SNssai>().unwrap(), SNssai::new(1, Some(0xab)));
        assert_eq!(SNssai::new(2, Some(0xab)).to_string(), "2-0000ab");
    }
}
