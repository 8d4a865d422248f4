//! What a packet shows to the rules: its fields, packed into one cache line.

use std::net::IpAddr;

/// Words of a key.
pub(crate) const WORDS: usize = 16;

/// Which word holds what. An address takes four words from here on, an IPv4 address only the first.
pub(crate) mod word {
    pub(crate) const REMOTE: usize = 0;
    pub(crate) const LOCAL: usize = 4;
    pub(crate) const TEID: usize = 8;
    pub(crate) const SPI: usize = 9;
    pub(crate) const FLOW_LABEL: usize = 10;
    pub(crate) const APPLICATION: usize = 11;
    /// Remote port, local port.
    pub(crate) const PORTS: usize = 12;
    /// Network instance, address of the F-TEID.
    pub(crate) const NETWORK: usize = 13;
    /// Protocol, type of service, [`super::has`], source interface.
    pub(crate) const PROTOCOL: usize = 14;
    /// QoS flow, interface type, traffic endpoint, [`super::has_too`].
    pub(crate) const FLOW: usize = 15;
}

/// What a packet has at all, so that a rule on an absent field does not match a zero.
pub(crate) mod has {
    pub(crate) const IPV4: u8 = 1 << 0;
    pub(crate) const IPV6: u8 = 1 << 1;
    pub(crate) const PORTS: u8 = 1 << 2;
    pub(crate) const SPI: u8 = 1 << 3;
    pub(crate) const QFI: u8 = 1 << 4;
    pub(crate) const TEID: u8 = 1 << 5;
    pub(crate) const APPLICATION: u8 = 1 << 6;
    /// No packet has this: an empty place of a block asks for it.
    pub(crate) const NOTHING: u8 = 1 << 7;
}

/// Further bits of the key's presence.
pub(crate) mod has_too {
    pub(crate) const INTERFACE_TYPE: u8 = 1 << 0;
    pub(crate) const TRAFFIC_ENDPOINT: u8 = 1 << 1;
}

/// Every field of a packet that the PDI of TS 29.244 §8.2 can ask for.
///
/// Names (network instances, the UPF's own addresses, applications) are numbers here, given by whoever makes the rules;
/// of network instances and addresses, zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// The far end's address.
    pub remote: IpAddr,
    /// The UE's address.
    pub local: IpAddr,
    /// Ports of far end and UE; `None` where the packet shows none.
    pub ports: Option<(u16, u16)>,
    /// Protocol behind IP and its extension headers.
    pub protocol: u8,
    /// Type of service or traffic class.
    pub tos: u8,
    /// IPv6 flow label; zero for IPv4.
    pub flow_label: u32,
    /// IPsec security parameter index.
    pub spi: Option<u32>,
    /// The local tunnel.
    pub teid: Option<u32>,
    /// The UPF's address at which the tunnel ends.
    pub f_teid_address: u16,
    /// QoS flow identifier of the packet.
    pub qfi: Option<u8>,
    /// Source interface (TS 29.244 §8.2.2).
    pub source_interface: u8,
    /// Its 3GPP interface type (TS 29.244 §8.2.118).
    pub interface_type: Option<u8>,
    /// Number of the network instance.
    pub network_instance: u16,
    /// Number of the traffic endpoint.
    pub traffic_endpoint: Option<u8>,
    /// The application that was detected.
    pub application: Option<u32>,
}

/// A packet's fields as the classifiers compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct PacketKey {
    pub(crate) words: [u32; WORDS],
}

impl PacketKey {
    /// The key of a packet.
    #[inline]
    pub fn new(f: &Fields) -> Self {
        let mut words = [0; WORDS];
        let mut present = 0;
        for (address, at) in [(f.remote, word::REMOTE), (f.local, word::LOCAL)] {
            match address {
                IpAddr::V4(a) => {
                    words[at] = a.to_bits();
                    present |= has::IPV4;
                }
                IpAddr::V6(a) => {
                    words[at..at + 4].copy_from_slice(&split(a.to_bits()));
                    present |= has::IPV6;
                }
            }
        }
        if let Some((remote, local)) = f.ports {
            words[word::PORTS] = u32::from(remote) << 16 | u32::from(local);
            present |= has::PORTS;
        }
        let optional = [
            (word::SPI, f.spi, has::SPI),
            (word::TEID, f.teid, has::TEID),
            (word::APPLICATION, f.application, has::APPLICATION),
        ];
        for (at, value, bit) in optional {
            if let Some(value) = value {
                words[at] = value;
                present |= bit;
            }
        }
        if f.qfi.is_some() {
            present |= has::QFI;
        }
        let interface_type = u8::from(f.interface_type.is_some()) * has_too::INTERFACE_TYPE;
        let endpoint = u8::from(f.traffic_endpoint.is_some()) * has_too::TRAFFIC_ENDPOINT;
        words[word::FLOW_LABEL] = f.flow_label;
        words[word::NETWORK] = u32::from(f.network_instance) << 16 | u32::from(f.f_teid_address);
        words[word::PROTOCOL] = u32::from_be_bytes([f.protocol, f.tos, present, f.source_interface]);
        words[word::FLOW] = u32::from_be_bytes([
            f.qfi.unwrap_or(0),
            f.interface_type.unwrap_or(0),
            f.traffic_endpoint.unwrap_or(0),
            interface_type | endpoint,
        ]);
        Self { words }
    }

    /// Remote and local port.
    #[inline]
    pub(crate) fn ports(&self) -> [u16; 2] {
        let ports = self.words[word::PORTS];
        [(ports >> 16) as u16, ports as u16]
    }
}

/// The words of 128 bits, the first ones first.
pub(crate) fn split(bits: u128) -> [u32; 4] {
    [(bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
}
