//! Ethernet frames and their filters.
//!
//! Spec: TS 23.501 §5.6.10.2, §5.7.6.3; TS 29.244 table 7.5.2.2-3, §8.2.93 to §8.2.99.

use whimbrel_pfcp::ie::{EthernetFilterProperties, MacAddress, VlanTag};
use whimbrel_pfcp::rule::EthernetPacketFilter;

use super::filter::{Flow, PdiFilter};
use crate::state::stored;

/// A MAC address.
pub(crate) type Mac = [u8; 6];

/// Ethertypes, as IEEE has assigned them.
mod ethertype {
    pub(super) const S_TAG: u16 = 0x88a8;
    pub(super) const C_TAG: u16 = 0x8100;
    pub(super) const IPV4: u16 = 0x0800;
    pub(super) const IPV6: u16 = 0x86dd;
}

/// The header of a frame, read once. Preamble and check sequence do not travel (TS 23.501 §5.6.10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) destination: Mac,
    pub(crate) source: Mac,
    /// Tag control information of the service tag, and of the customer tag.
    s_tag: Option<u16>,
    c_tag: Option<u16>,
    ethertype: u16,
    payload_at: usize,
}

/// Whether an address is of a group, or of all.
pub(crate) const fn is_group(mac: Mac) -> bool {
    mac[0] & 1 != 0
}

impl Frame {
    /// Reads the header; `None` where there is none, whole.
    pub(crate) fn parse(p: &[u8]) -> Option<Self> {
        let word = |at: usize| p.get(at..at + 2).and_then(|w| w.try_into().ok()).map(u16::from_be_bytes);
        let mut frame = Self {
            destination: p.get(0..6)?.try_into().ok()?,
            source: p.get(6..12)?.try_into().ok()?,
            s_tag: None,
            c_tag: None,
            ethertype: word(12)?,
            payload_at: 14,
        };
        if frame.ethertype == ethertype::S_TAG {
            (frame.s_tag, frame.ethertype, frame.payload_at) = (Some(word(14)?), word(16)?, 18);
        }
        if frame.ethertype == ethertype::C_TAG {
            let at = frame.payload_at;
            (frame.c_tag, frame.ethertype, frame.payload_at) = (Some(word(at)?), word(at + 2)?, at + 4);
        }
        Some(frame)
    }

    /// Where an IP packet begins in it, if it has one.
    pub(crate) fn ip_at(&self) -> Option<usize> {
        matches!(self.ethertype, ethertype::IPV4 | ethertype::IPV6).then_some(self.payload_at)
    }

    /// The priority of its outermost tag, as a DSCP of that class (RFC 2474 §4.2.2.2).
    pub(crate) fn dscp(&self) -> u8 {
        self.s_tag.or(self.c_tag).map_or(0, |tci| (tci >> 13) as u8) << 3
    }
}

/// What a filter compares of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    value: u16,
    mask: u16,
}

impl Tag {
    /// From the element: which parts count, then priority, drop eligibility and identity.
    fn new(VlanTag([flags, upper, lower]): VlanTag) -> Self {
        let (upper, lower) = (u16::from(upper), u16::from(lower));
        let value = (upper & 7) << 13 | (upper >> 3 & 1) << 12 | (upper >> 4) << 8 | lower;
        let part = |bit: u8, mask: u16| if flags & bit != 0 { mask } else { 0 };
        let mask = part(1, 0xe000) | part(2, 0x1000) | part(4, 0x0fff);
        Self { value: value & mask, mask }
    }

    fn is_on(self, tci: Option<u16>) -> bool {
        tci.is_some_and(|tci| tci & self.mask == self.value)
    }
}

/// A filter of frames: everything that it says must match; of several addresses, or of several IP filters, one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrameFilter {
    addresses: Box<[MacAddress]>,
    ethertype: Option<u16>,
    c_tag: Option<Tag>,
    s_tag: Option<Tag>,
    ip: Box<[PdiFilter]>,
    /// Its name, by which a PDR of the other direction may refer to it.
    pub(crate) id: Option<u32>,
    pub(crate) both_directions: bool,
}

impl FrameFilter {
    /// From the element. `None` if one of its flow descriptions cannot be read.
    pub(crate) fn new(m: &EthernetPacketFilter) -> Option<Self> {
        let both = EthernetFilterProperties::BIDE;
        Some(Self {
            addresses: m.mac_addresses.as_slice().into(),
            ethertype: m.ethertype.map(|e| e.0),
            c_tag: m.c_tag.map(Tag::new),
            s_tag: m.s_tag.map(Tag::new),
            ip: m.sdf_filters.iter().map(PdiFilter::new).collect::<Option<_>>()?,
            id: m.ethernet_filter_id.map(|i| i.0),
            both_directions: m.ethernet_filter_properties.is_some_and(|p| p.has(both)),
        })
    }

    /// Whether the element is but the name of a filter that stands elsewhere.
    pub(crate) fn is_name(m: &EthernetPacketFilter) -> bool {
        m.ethernet_filter_id.is_some()
            && m.mac_addresses.is_empty()
            && m.ethertype.is_none()
            && m.c_tag.is_none()
            && m.s_tag.is_none()
            && m.sdf_filters.is_empty()
    }

    /// The same for the other direction: what was the source is the destination.
    pub(crate) fn turned(&self) -> Self {
        let turn = |a: &MacAddress| MacAddress {
            source: a.destination,
            destination: a.source,
            upper_source: a.upper_destination,
            upper_destination: a.upper_source,
        };
        Self { addresses: self.addresses.iter().map(turn).collect(), ..self.clone() }
    }

    /// `flow` is of the IP packet within, if there is one.
    pub(crate) fn matches(&self, frame: &Frame, flow: Option<&Flow>) -> bool {
        (self.addresses.is_empty() || self.addresses.iter().any(|a| has(a, frame)))
            && self.ethertype.is_none_or(|e| e == frame.ethertype)
            && self.c_tag.is_none_or(|t| t.is_on(frame.c_tag))
            && self.s_tag.is_none_or(|t| t.is_on(frame.s_tag))
            && (self.ip.is_empty() || flow.is_some_and(|flow| self.ip.iter().any(|f| f.matches(flow))))
    }
}

stored!(Tag { value, mask });
stored!(FrameFilter { addresses, ethertype, c_tag, s_tag, ip, id, both_directions });

/// Whether a frame has these addresses; an upper one makes a range of it and the lower one.
fn has(a: &MacAddress, frame: &Frame) -> bool {
    let within = |lower: Option<Mac>, upper: Option<Mac>, mac: Mac| match (lower, upper) {
        (Some(lower), Some(upper)) => (lower..=upper).contains(&mac),
        (Some(one), None) => one == mac,
        (None, _) => true,
    };
    within(a.source, a.upper_source, frame.source)
        && within(a.destination, a.upper_destination, frame.destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_pfcp::ie::{EthernetFilterId, Ethertype};

    const A: Mac = [2, 0, 0, 0, 0, 1];
    const B: Mac = [2, 0, 0, 0, 0, 2];

    fn frame(tags: &[u8]) -> Vec<u8> {
        [&B[..], &A, tags, &[8, 6, 0, 1]].concat()
    }

    #[test] // IEEE 802.1Q; every prefix of a header is read or refused
    fn tags_are_read_and_short_frames_are_none() {
        let both = frame(&[0x88, 0xa8, 0xa0, 5, 0x81, 0, 0x20, 7]);
        let f = Frame::parse(&both).unwrap();
        assert_eq!((f.source, f.destination, f.ethertype, f.payload_at), (A, B, 0x0806, 22));
        assert_eq!((f.s_tag, f.c_tag, f.dscp()), (Some(0xa005), Some(0x2007), 40));
        for cut in 0..22 {
            assert_eq!(Frame::parse(&both[..cut]), None, "{cut}");
        }
        // A third tag is no tag of ours: its type is the payload's.
        let three = frame(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3]);
        assert_eq!(Frame::parse(&three).unwrap().ethertype, 0x8100);
    }

    #[test] // TS 29.244 §8.2.93 to §8.2.96
    fn filters_by_address_range_ethertype_and_tag() {
        let tagged = Frame::parse(&frame(&[0x81, 0, 0x61, 0x23])).unwrap();
        let bare = Frame::parse(&frame(&[])).unwrap();
        let empty = EthernetPacketFilter {
            ethernet_filter_id: None,
            ethernet_filter_properties: None,
            mac_addresses: vec![],
            ethertype: None,
            c_tag: None,
            s_tag: None,
            sdf_filters: vec![],
        };
        let matches = |m: EthernetPacketFilter, f: &Frame| FrameFilter::new(&m).unwrap().matches(f, None);
        assert!(matches(empty.clone(), &bare));
        let arp = EthernetPacketFilter { ethertype: Some(Ethertype(0x0806)), ..empty.clone() };
        assert!(matches(arp.clone(), &bare) && matches(arp, &tagged));
        let ip = EthernetPacketFilter { ethertype: Some(Ethertype(0x0800)), ..empty.clone() };
        assert!(!matches(ip, &bare));
        // VLAN 0x123 of any priority; the same with priority 3; with priority 4.
        for (tag, expected) in [([4, 0x10, 0x23], true), ([5, 0x13, 0x23], true), ([5, 0x14, 0x23], false)] {
            let m = EthernetPacketFilter { c_tag: Some(VlanTag(tag)), ..empty.clone() };
            assert_eq!(matches(m.clone(), &tagged), expected, "{tag:?}");
            assert!(!matches(m, &bare), "untagged");
        }
        let range = |lower, upper| EthernetPacketFilter {
            mac_addresses: vec![MacAddress { source: lower, upper_source: upper, ..MacAddress::default() }],
            ..empty.clone()
        };
        assert!(matches(range(Some(A), None), &bare));
        assert!(!matches(range(Some(B), None), &bare));
        assert!(matches(range(Some([2, 0, 0, 0, 0, 0]), Some(B)), &bare));
        assert!(!matches(range(Some(B), Some([2, 0, 0, 0, 0, 9])), &bare));
        let turned = FrameFilter::new(&range(Some(B), None)).unwrap().turned();
        assert!(turned.matches(&bare, None), "the other direction");
        assert!(FrameFilter::is_name(&EthernetPacketFilter {
            ethernet_filter_id: Some(EthernetFilterId(1)),
            ..empty
        }));
    }
}
