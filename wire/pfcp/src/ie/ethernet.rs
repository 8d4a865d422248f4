//! Filters of Ethernet frames, and the addresses that a UP function has learnt from them.

use whimbrel_ids::Reader;

use crate::codec::{Ie, flags, number};
use crate::error::Error;

flags! {
    /// TS 29.244 §8.2.99.
    pub struct EthernetFilterProperties(u8, 1): "Ethernet Filter Properties" {
        /// The filter is bidirectional.
        BIDE = 5 / 1,
    }
}

number! {
    /// TS 29.244 §8.2.96.
    pub struct Ethertype(u16): "Ethertype";
}

flags! {
    /// Whether a PDR is for all frames to addresses learnt in its session (TS 29.244 §8.2.102).
    pub struct EthernetPduSessionInformation(u8, 1): "Ethernet PDU Session Information" {
        ETHI = 5 / 1,
    }
}

number! {
    /// Seconds without a frame after which an address is forgotten (TS 29.244 §8.2.105).
    pub struct EthernetInactivityTimer(u32): "Ethernet Inactivity Timer";
}

/// Addresses learnt (TS 29.244 §8.2.103) or forgotten (TS 29.244 §8.2.104). Tags of the element are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MacAddresses(pub Vec<[u8; 6]>);

impl Ie for MacAddresses {
    const NAME: &'static str = "MAC Addresses";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let count = r.u8(Self::NAME)?;
        (0..count).map(|_| Ok(r.array(Self::NAME)?)).collect::<Result<_, _>>().map(Self)
    }
    fn write(&self, out: &mut Vec<u8>) {
        // As many as one octet counts; senders have fewer.
        let macs = &self.0[..self.0.len().min(255)];
        out.push(macs.len() as u8);
        out.extend(macs.iter().flatten());
        out.extend_from_slice(&[0, 0]); // no C-TAG, no S-TAG
    }
}

/// Addresses to compare (TS 29.244 §8.2.93): upper ones make a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the clause's")]
pub struct MacAddress {
    pub source: Option<[u8; 6]>,
    pub destination: Option<[u8; 6]>,
    pub upper_source: Option<[u8; 6]>,
    pub upper_destination: Option<[u8; 6]>,
}

impl Ie for MacAddress {
    const NAME: &'static str = "MAC address";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        let mut next = |bit: u8| -> Result<Option<[u8; 6]>, Error> {
            Ok(if flags & bit != 0 { Some(r.array(Self::NAME)?) } else { None })
        };
        Ok(Self {
            source: next(1)?,
            destination: next(2)?,
            upper_source: next(4)?,
            upper_destination: next(8)?,
        })
    }
    fn write(&self, out: &mut Vec<u8>) {
        let all = [self.source, self.destination, self.upper_source, self.upper_destination];
        out.push(all.iter().enumerate().fold(0, |f, (i, a)| f | u8::from(a.is_some()) << i));
        out.extend(all.into_iter().flatten().flatten());
    }
}

/// A C-TAG (TS 29.244 §8.2.94) or S-TAG (TS 29.244 §8.2.95), as its three octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanTag(pub [u8; 3]);

impl Ie for VlanTag {
    const NAME: &'static str = "VLAN tag";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(r.array(Self::NAME)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}
