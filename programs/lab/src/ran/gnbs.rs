//! The gNBs of `whimbrel-lab ran`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use clap::Args;
use whimbrel_ids::{GlobalGnbId, PlmnId, SNssai, Tac};
use whimbrel_ran::edge::GnbPlace;
use whimbrel_ran::gnb::GnbConfig;

/// Bits of the gNBs' identifiers.
const ID_BITS: u8 = 28;
/// Where the first gNB is if the AMF is on a loopback address.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));

/// Options of gNBs.
#[derive(Args)]
#[command(next_help_heading = "gNBs")]
pub(super) struct GnbOptions {
    /// Number of gNBs, instead of the scenario's.
    #[arg(long, value_name = "N")]
    gnbs: Option<u16>,
    /// Address of the first gNB, for N2 and N3; the next ones count up. Default: 127.0.1.1 if the AMF is on this host,
    /// else the address from which this host reaches the AMF.
    #[arg(long, value_name = "ADDRESS")]
    gnb_address: Option<IpAddr>,
    /// Identifier of the first gNB; the next ones count up.
    #[arg(long, value_name = "N", default_value_t = 1)]
    gnb_id: u32,
    /// PLMN that the gNBs broadcast and the UEs select.
    #[arg(long, default_value = "999/70")]
    plmn: PlmnId,
    /// Tracking area code that the gNBs broadcast.
    #[arg(long, default_value_t = 1)]
    tac: u32,
    /// Connect a gNB (counted from 0) to another AMF at this address, with this tracking area code.
    #[arg(long, value_name = "GNB=ADDRESS,TAC")]
    other_amf: Vec<OtherAmf>,
    /// AMFs of one set: each gNB connects to all of them, and selects one for each UE (TS 23.501 §5.21). They take the place of --amf.
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',', conflicts_with = "other_amf")]
    amf_set: Vec<IpAddr>,
    /// Slices that the gNBs support, SST or SST-SD.
    #[arg(long, value_name = "SLICE,…", value_delimiter = ',', default_value = "1")]
    gnb_slices: Vec<SNssai>,
    /// Offer fastwire (NGAP messages in FlatBuffers instead of ASN.1) to the core: all gNBs, or these (counted from 0).
    #[arg(long, value_name = "GNB,…", num_args = 0.., require_equals = true, value_delimiter = ',')]
    fastwire: Option<Vec<u16>>,
}

/// A gNB of another AMF.
#[derive(Clone, Copy)]
struct OtherAmf {
    gnb: u16,
    address: IpAddr,
    tac: Tac,
}

impl FromStr for OtherAmf {
    type Err = &'static str;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (gnb, at) = s.split_once('=')?;
            let (address, tac) = at.rsplit_once(',')?;
            Some(Self {
                gnb: gnb.parse().ok()?,
                address: address.parse().ok()?,
                tac: Tac::new(tac.parse().ok()?)?,
            })
        };
        read().ok_or("write it as `1=192.0.2.2,7`")
    }
}

impl GnbOptions {
    /// The first AMF of --amf-set.
    pub(super) fn first_amf(&self) -> Option<IpAddr> {
        self.amf_set.first().copied()
    }

    pub(super) fn count(&self) -> Option<u16> {
        self.gnbs
    }

    pub(super) fn plmn(&self) -> PlmnId {
        self.plmn
    }

    pub(super) fn slices(&self) -> &[SNssai] {
        &self.gnb_slices
    }
}

/// The gNBs and where they are. Errors: one sentence.
pub(super) fn places(options: &GnbOptions, amf: IpAddr, count: u16) -> Result<Vec<GnbPlace>, String> {
    let first = match options.gnb_address {
        Some(address) => address,
        None if amf.is_loopback() && amf.is_ipv4() => LOOPBACK,
        None => own_address(amf)?,
    };
    let tac = Tac::new(options.tac).ok_or("--tac: a tracking area code has 24 bits, write 0 to 16777215")?;
    let place = |i: u16| {
        let id = options.gnb_id.checked_add(i.into());
        let id = id.and_then(|id| GlobalGnbId::new(options.plmn, id, ID_BITS));
        let id = id.ok_or_else(|| format!("--gnb-id: an identifier has {ID_BITS} bits here"))?;
        let address = later(first, i).ok_or("--gnb-address: there are not enough addresses after it")?;
        let other = options.other_amf.iter().find(|o| o.gnb == i);
        let mut config =
            GnbConfig::new(id, other.map_or(tac, |o| o.tac), options.gnb_slices.clone(), address);
        config.fastwire = options.fastwire.as_ref().is_some_and(|of| of.is_empty() || of.contains(&i));
        let amfs = other.map_or_else(|| options.amf_set.clone(), |o| vec![o.address]);
        Ok(GnbPlace { config, address, amfs })
    };
    (0..count).map(place).collect()
}

/// The address `n` above another.
fn later(first: IpAddr, n: u16) -> Option<IpAddr> {
    Some(match first {
        IpAddr::V4(a) => IpAddr::V4(a.to_bits().checked_add(n.into())?.into()),
        IpAddr::V6(a) => IpAddr::V6(a.to_bits().checked_add(n.into())?.into()),
    })
}

/// The address from which this host reaches another; nothing is sent.
fn own_address(to: IpAddr) -> Result<IpAddr, String> {
    let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let found = UdpSocket::bind(any).and_then(|s| {
        s.connect((to, 9))?;
        s.local_addr()
    });
    found
        .map(|a| a.ip())
        .map_err(|e| format!("{to} cannot be reached: {e}; give the gNB's address with --gnb-address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_count_up_and_end() {
        assert_eq!(later(LOOPBACK, 3), Some("127.0.1.4".parse().unwrap()));
        assert_eq!(later("fd00::ffff".parse().unwrap(), 1), Some("fd00::1:0".parse().unwrap()));
        assert_eq!(later("255.255.255.255".parse().unwrap(), 1), None);
        assert_eq!(own_address("127.0.0.1".parse().unwrap()), Ok("127.0.0.1".parse().unwrap()));
    }
}
