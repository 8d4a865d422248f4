//! S-NSSAI (TS 24.501 §9.11.2.8), NSSAI (§9.11.3.37) and rejected NSSAI (§9.11.3.46).

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader, SNssai};

use crate::codec::Ie;

const IE: &str = "S-NSSAI";
/// SD value for "no SD associated" if the octets must be present (TS 23.003 §28.4.2).
const NO_SD: [u8; 3] = [0xff; 3];

/// A slice of the serving network and, for a roamer, the mapped slice of the home network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedSNssai {
    /// The slice in the serving network.
    pub s_nssai: SNssai,
    /// The slice in the home network that it is mapped to.
    pub mapped_hplmn: Option<SNssai>,
}

impl From<SNssai> for MappedSNssai {
    fn from(s_nssai: SNssai) -> Self {
        Self { s_nssai, mapped_hplmn: None }
    }
}

fn sd(r: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    r.u24(IE).map(Some)
}

fn push_sd(s: SNssai, out: &mut Vec<u8>) {
    match s.sd() {
        Some(sd) => out.extend_from_slice(&sd.to_be_bytes()[1..]),
        None => out.extend_from_slice(&NO_SD),
    }
}

impl Ie for MappedSNssai {
    /// The length determines the present parts: 1, 2, 4, 5 or 8 octets.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = r.remaining();
        let at = r.error(DecodeErrorKind::InvalidLength, IE);
        let sst = r.u8(IE)?;
        Ok(match len {
            1 => SNssai::sst(sst).into(),
            2 => Self { s_nssai: SNssai::sst(sst), mapped_hplmn: Some(SNssai::sst(r.u8(IE)?)) },
            4 => SNssai::new(sst, sd(r)?).into(),
            5 => {
                let s_nssai = SNssai::new(sst, sd(r)?);
                Self { s_nssai, mapped_hplmn: Some(SNssai::sst(r.u8(IE)?)) }
            }
            8 => {
                let s_nssai = SNssai::new(sst, sd(r)?);
                let mapped_sst = r.u8(IE)?;
                Self { s_nssai, mapped_hplmn: Some(SNssai::new(mapped_sst, sd(r)?)) }
            }
            _ => return Err(at),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.s_nssai.sst);
        let mapped_sd = self.mapped_hplmn.and_then(SNssai::sd);
        if self.s_nssai.sd().is_some() || mapped_sd.is_some() {
            push_sd(self.s_nssai, out);
        }
        if let Some(mapped) = self.mapped_hplmn {
            out.push(mapped.sst);
            if mapped_sd.is_some() {
                push_sd(mapped, out);
            }
        }
    }
}

/// Slices in one NSSAI: 16 configured (TS 24.501 §9.11.3.37; a requested or allowed NSSAI has at most 8).
pub const NSSAI_LEN_MAX: usize = 16;

/// NSSAI: requested, allowed, configured or pending slices. No more than [`NSSAI_LEN_MAX`] are read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nssai(pub Vec<MappedSNssai>);

impl FromIterator<SNssai> for Nssai {
    fn from_iter<I: IntoIterator<Item = SNssai>>(slices: I) -> Self {
        Self(slices.into_iter().map(MappedSNssai::from).collect())
    }
}

impl Ie for Nssai {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut slices = Vec::new();
        while !r.is_empty() && slices.len() < NSSAI_LEN_MAX {
            let len = r.u8(IE)?;
            slices.push(MappedSNssai::decode(&mut r.sub(usize::from(len), IE)?)?);
        }
        Ok(Self(slices))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for slice in self.0.iter().take(NSSAI_LEN_MAX) {
            crate::codec::write::lv(slice, out);
        }
    }
}

/// Why a slice was rejected (TS 24.501 §9.11.3.46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SliceRejectCause {
    /// S-NSSAI not available in the current PLMN or SNPN.
    NotAvailableInPlmn = 0,
    /// S-NSSAI not available in the current registration area.
    NotAvailableInRegistrationArea = 1,
    /// S-NSSAI not available due to the failed or revoked slice-specific authentication and authorization.
    NssaaFailed = 2,
}

/// Slices in one rejected NSSAI: 8 of 5 octets (TS 24.501 §9.11.3.46: a value of up to 40 octets).
const REJECTED_LEN_MAX: usize = 8;

/// Rejected NSSAI (TS 24.501 §9.11.3.46). Slices with a cause that is not defined are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedNssai(pub Vec<(SNssai, SliceRejectCause)>);

impl Ie for RejectedNssai {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut slices = Vec::new();
        while !r.is_empty() && slices.len() < REJECTED_LEN_MAX {
            let head = r.u8(IE)?;
            let mut slice = r.sub(usize::from(head >> 4), IE)?;
            let cause = match head & 0x0f {
                0 => SliceRejectCause::NotAvailableInPlmn,
                1 => SliceRejectCause::NotAvailableInRegistrationArea,
                2 => SliceRejectCause::NssaaFailed,
                _ => continue,
            };
            slices.push((MappedSNssai::decode(&mut slice)?.s_nssai, cause));
        }
        Ok(Self(slices))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for (slice, cause) in self.0.iter().take(REJECTED_LEN_MAX) {
            let len = if slice.sd().is_some() { 4 } else { 1 };
            out.push(len << 4 | *cause as u8);
            MappedSNssai::from(*slice).encode(out);
        }
    }
}
