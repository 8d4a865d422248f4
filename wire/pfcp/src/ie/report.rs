//! IEs of reports, and User Plane IP Resource Information.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{Qfi, Reader};

use crate::codec::{Ie, flags};
use crate::error::Error;
use crate::ie::identity::read_name;
use crate::ie::{NetworkInstance, SourceInterface};

flags! {
    /// What a Session Report Request carries (TS 29.244 §8.2.21).
    pub struct ReportType(u8, 1): "Report Type" {
        /// There are downlink data.
        DLDR = 5 / 1,
        /// There are usage reports.
        USAR = 5 / 2,
        /// There was an error indication.
        ERIR = 5 / 3,
        /// User plane inactivity.
        UPIR = 5 / 4,
        TMIR = 5 / 5,
        SESR = 5 / 6,
        UISR = 5 / 7,
    }
    /// What a Node Report Request carries (TS 29.244 §8.2.69).
    pub struct NodeReportType(u8, 1): "Node Report Type" {
        /// A user plane path has failed.
        UPFR = 5 / 1,
        /// A user plane path is back.
        UPRR = 5 / 2,
        CKDR = 5 / 3,
        GPQR = 5 / 4,
        /// A peer has restarted.
        PURR = 5 / 5,
        VSR = 5 / 6,
    }
    /// Flags of an Association Setup Response (table 8.1.2-1, type 184).
    pub struct AssociationSetupResponseFlags(u8, 1): "PFCPASRsp-Flags" {
        /// Sessions of the earlier association were kept.
        PSREI = 5 / 1,
    }
    /// What became of the downlink packet reported (table 8.1.2-1, type 260).
    pub struct DataStatus(u8, 1): "Data Status" {
        /// It was discarded.
        DROP = 5 / 1,
        /// It was buffered.
        BUFF = 5 / 2,
    }
}

/// Of which flow the reported downlink packet is (TS 29.244 §8.2.27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataServiceInformation {
    /// Paging policy indication: the packet's DSCP, 6 bits.
    pub paging_policy_indication: Option<u8>,
    /// Its QoS flow.
    pub qfi: Option<Qfi>,
}

impl Ie for DataServiceInformation {
    const NAME: &'static str = "Downlink Data Service Information";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        let mut v = Self::default();
        if flags & 1 != 0 {
            v.paging_policy_indication = Some(r.u8(Self::NAME)? & 0x3f);
        }
        if flags & 2 != 0 {
            v.qfi = Some(Qfi::read(r)?);
        }
        Ok(v)
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.paging_policy_indication.is_some()) | u8::from(self.qfi.is_some()) << 1);
        out.extend(self.paging_policy_indication);
        out.extend(self.qfi.map(Qfi::value));
    }
}

/// A user plane peer (TS 29.244 §8.2.70). Interface and network instance of the element are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteGtpuPeer {
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
}

impl Ie for RemoteGtpuPeer {
    const NAME: &'static str = "Remote GTP-U Peer";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        let ipv4 = if flags & 2 != 0 { Some(r.array::<4>(Self::NAME)?.into()) } else { None };
        let ipv6 = if flags & 1 != 0 { Some(r.array::<16>(Self::NAME)?.into()) } else { None };
        Ok(Self { ipv4, ipv6 })
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.ipv4.is_some()) << 1 | u8::from(self.ipv6.is_some()));
        if let Some(a) = self.ipv4 {
            out.extend_from_slice(&a.octets());
        }
        if let Some(a) = self.ipv6 {
            out.extend_from_slice(&a.octets());
        }
    }
}

/// An address of a CP function (table 8.1.2-1, type 185), in the form of [`RemoteGtpuPeer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpPfcpEntityIpAddress(pub RemoteGtpuPeer);

impl Ie for CpPfcpEntityIpAddress {
    const NAME: &'static str = "CP PFCP Entity IP Address";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(RemoteGtpuPeer::read(r)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// An address from which an SMF of the same set may go on with an association (TS 29.244 §5.22.2; table 8.1.2-1, type 178), in the form of
/// [`RemoteGtpuPeer`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlternativeSmfIpAddress(pub RemoteGtpuPeer);

impl From<IpAddr> for AlternativeSmfIpAddress {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(a) => RemoteGtpuPeer { ipv4: Some(a), ipv6: None },
            IpAddr::V6(a) => RemoteGtpuPeer { ipv4: None, ipv6: Some(a) },
        })
    }
}

impl Ie for AlternativeSmfIpAddress {
    const NAME: &'static str = "Alternative SMF IP Address";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self(RemoteGtpuPeer::read(r)?))
    }
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }
}

/// A UP function's user-plane address of releases 15 and early 16 (TS 29.244 §8.2.82), which peers still send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPlaneIpResourceInformation {
    /// Upper bits that the TEIDs of this resource have, and how many of them count.
    pub teid_range: Option<(u8, u8)>,
    /// Its IPv4 address.
    pub ipv4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// The network instance that it is in.
    pub network_instance: Option<NetworkInstance>,
    /// The interface that it serves.
    pub source_interface: Option<SourceInterface>,
}

impl Ie for UserPlaneIpResourceInformation {
    const NAME: &'static str = "User Plane IP Resource Information";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(Self::NAME)?;
        let range_bits = flags >> 2 & 7;
        let mut v = Self::default();
        if range_bits != 0 {
            v.teid_range = Some((r.u8(Self::NAME)?, range_bits));
        }
        if flags & 1 != 0 {
            v.ipv4 = Some(r.array::<4>(Self::NAME)?.into());
        }
        if flags & 2 != 0 {
            v.ipv6 = Some(r.array::<16>(Self::NAME)?.into());
        }
        let source = flags & 0x40 != 0;
        if flags & 0x20 != 0 {
            let len = r.remaining().saturating_sub(source.into());
            let at = r.offset();
            v.network_instance = NetworkInstance::new(&read_name(r.take(len, Self::NAME)?, Self::NAME, at)?);
        }
        if source {
            v.source_interface = Some(SourceInterface::read(r)?);
        }
        Ok(v)
    }
    fn write(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.ipv4.is_some())
            | u8::from(self.ipv6.is_some()) << 1
            | self.teid_range.map_or(0, |(_, bits)| (bits & 7) << 2)
            | u8::from(self.network_instance.is_some()) << 5
            | u8::from(self.source_interface.is_some()) << 6;
        out.push(flags);
        if let Some((range, _)) = self.teid_range.filter(|(_, bits)| bits & 7 != 0) {
            out.push(range);
        }
        if let Some(a) = self.ipv4 {
            out.extend_from_slice(&a.octets());
        }
        if let Some(a) = self.ipv6 {
            out.extend_from_slice(&a.octets());
        }
        if let Some(n) = &self.network_instance {
            n.write(out);
        }
        if let Some(s) = self.source_interface {
            s.write(out);
        }
    }
}
