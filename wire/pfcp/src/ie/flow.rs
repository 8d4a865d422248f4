//! What traffic is meant: SDF Filter and Application ID.

use whimbrel_ids::Reader;

use crate::codec::Ie;
use crate::error::Error;
use crate::ie::identity::text;

/// A service data flow filter (TS 29.244 §8.2.5). What is `None` is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SdfFilter {
    /// An IPFilterRule of TS 29.212 §5.4.2 (`permit out 17 from 10.0.0.0/8 53 to assigned`).
    pub flow_description: Option<Box<str>>,
    /// Type of service or traffic class, and its mask.
    pub tos_traffic_class: Option<[u8; 2]>,
    /// IPsec security parameter index.
    pub security_parameter_index: Option<u32>,
    /// IPv6 flow label, 20 bits.
    pub flow_label: Option<u32>,
    /// Identifies the filter; the same identifier elsewhere in the session refers to the same filter, both directions.
    pub filter_id: Option<u32>,
}

impl SdfFilter {
    /// A filter by flow description alone.
    pub fn flow(description: &str) -> Self {
        Self { flow_description: Some(description.into()), ..Self::default() }
    }
}

impl Ie for SdfFilter {
    const NAME: &'static str = "SDF Filter";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        r.u8(Self::NAME)?; // spare
        let mut f = Self::default();
        if flags & 0x01 != 0 {
            let len = r.u16(Self::NAME)?;
            let at = r.offset();
            f.flow_description = Some(text(r.take(len.into(), Self::NAME)?, Self::NAME, at)?.into());
        }
        if flags & 0x02 != 0 {
            f.tos_traffic_class = Some(r.array(Self::NAME)?);
        }
        if flags & 0x04 != 0 {
            f.security_parameter_index = Some(r.u32(Self::NAME)?);
        }
        if flags & 0x08 != 0 {
            f.flow_label = Some(r.u24(Self::NAME)? & 0xf_ffff);
        }
        if flags & 0x10 != 0 {
            f.filter_id = Some(r.u32(Self::NAME)?);
        }
        Ok(f)
    }
    fn write(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.flow_description.is_some())
            | u8::from(self.tos_traffic_class.is_some()) << 1
            | u8::from(self.security_parameter_index.is_some()) << 2
            | u8::from(self.flow_label.is_some()) << 3
            | u8::from(self.filter_id.is_some()) << 4;
        out.extend_from_slice(&[flags, 0]);
        if let Some(d) = &self.flow_description {
            // Cut, never wrapped: a description of 64 KiB has no meaning to keep.
            let d = &d.as_bytes()[..d.len().min(usize::from(u16::MAX) / 2)];
            out.extend_from_slice(&(d.len() as u16).to_be_bytes());
            out.extend_from_slice(d);
        }
        out.extend(self.tos_traffic_class.into_iter().flatten());
        if let Some(v) = self.security_parameter_index {
            out.extend_from_slice(&v.to_be_bytes());
        }
        if let Some(v) = self.flow_label {
            out.extend_from_slice(&v.to_be_bytes()[1..]);
        }
        if let Some(v) = self.filter_id {
            out.extend_from_slice(&v.to_be_bytes());
        }
    }
}

/// Names an application that the UP function detects (TS 29.244 §8.2.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationId(pub Box<str>);

impl Ie for ApplicationId {
    const NAME: &'static str = "Application ID";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        Ok(Self(text(r.take_rest(), Self::NAME, at)?.into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}
