//! What the UE and the network can do (TS 24.501 §9.11.3.1, §9.11.3.5, §9.11.3.48, §9.11.3.54, §9.11.4.1).

use core::fmt;

use whimbrel_ids::{DecodeError, Reader};

use super::Octets;
use super::octets::{bit_octets, hex};
use crate::codec::Ie;

bit_octets! {
    /// 5GMM capability (TS 24.501 §9.11.3.1).
    MmCapability [1..=13] {
        /// S1 mode is supported.
        s1_mode with_s1_mode: 0, 0x01;
        /// ATTACH REQUEST with a PDN CONNECTIVITY REQUEST for handover is supported.
        ho_attach with_ho_attach: 0, 0x02;
        /// LTE positioning protocol in N1 mode.
        lpp with_lpp: 0, 0x04;
        /// Restriction on the use of enhanced coverage.
        restrict_ec with_restrict_ec: 0, 0x08;
        /// Control plane CIoT 5GS optimization.
        cp_ciot with_cp_ciot: 0, 0x10;
        /// N3 data transfer is *not* supported.
        n3_data_not_supported with_n3_data_not_supported: 0, 0x20;
        /// IP header compression for control plane CIoT.
        hc_cp_ciot with_hc_cp_ciot: 0, 0x40;
        /// Service gap control.
        sgc with_sgc: 0, 0x80;
        /// SRVCC from NG-RAN to UTRAN.
        srvcc with_srvcc: 1, 0x01;
        /// User plane CIoT 5GS optimization.
        up_ciot with_up_ciot: 1, 0x02;
        /// Communication over V2X is supported.
        v2x with_v2x: 1, 0x04;
        /// Location services through the 5GC.
        lcs with_lcs: 1, 0x20;
        /// Network slice-specific authentication and authorization.
        nssaa with_nssaa: 1, 0x40;
        /// Radio capability signalling optimisation.
        racs with_racs: 1, 0x80;
        /// Closed access group.
        cag with_cag: 2, 0x01;
    }
}

/// UE security capability (TS 24.501 §9.11.3.54): the octets as received, since the network replays them verbatim in
/// SECURITY MODE COMMAND against bidding down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UeSecurityCapability {
    octets: [u8; 8],
    len: u8,
}

impl UeSecurityCapability {
    /// `None` unless there are 2 to 8 octets.
    pub fn from_octets(given: &[u8]) -> Option<Self> {
        if !(2..=8).contains(&given.len()) {
            return None;
        }
        let mut octets = [0; 8];
        octets.iter_mut().zip(given).for_each(|(to, from)| *to = *from);
        Some(Self { octets, len: given.len() as u8 })
    }

    /// Of a UE without EPS: one bit per algorithm, identifier 0 in the highest bit.
    pub const fn new(nea: u8, nia: u8) -> Self {
        Self { octets: [nea, nia, 0, 0, 0, 0, 0, 0], len: 2 }
    }

    /// Of a UE with EPS algorithms beside.
    pub const fn with_eps(nea: u8, nia: u8, eea: u8, eia: u8) -> Self {
        Self { octets: [nea, nia, eea, eia, 0, 0, 0, 0], len: 4 }
    }

    /// The octets as received.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or(&self.octets)
    }

    /// The 5G ciphering algorithms, identifier 0 in the highest bit; NGAP carries the same bits.
    pub const fn nea(&self) -> u8 {
        self.octets[0]
    }

    /// The 5G integrity algorithms, identifier 0 in the highest bit.
    pub const fn nia(&self) -> u8 {
        self.octets[1]
    }

    /// The EPS encryption algorithms, identifier 0 in the highest bit; none if absent.
    pub const fn eea(&self) -> u8 {
        self.octets[2]
    }

    /// The EPS integrity algorithms, identifier 0 in the highest bit; none if absent.
    pub const fn eia(&self) -> u8 {
        self.octets[3]
    }

    /// Whether the 5G ciphering algorithm of this identifier is supported.
    pub const fn supports_nea(&self, id: u8) -> bool {
        id < 8 && self.nea() & 0x80 >> id != 0
    }

    /// Whether the 5G integrity algorithm of this identifier is supported.
    pub const fn supports_nia(&self, id: u8) -> bool {
        id < 8 && self.nia() & 0x80 >> id != 0
    }
}

impl fmt::Debug for UeSecurityCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UeSecurityCapability(")?;
        hex(self.octets(), f)?;
        f.write_str(")")
    }
}

impl Ie for UeSecurityCapability {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let octets = r.take_rest();
        let kept = octets.get(..8).unwrap_or(octets);
        Self::from_octets(kept)
            .ok_or(r.error(whimbrel_ids::DecodeErrorKind::InvalidLength, "UE security capability"))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.octets());
    }
}

/// S1 UE network capability (TS 24.501 §9.11.3.48, TS 24.301 §9.9.3.34), for an EPC to read.
pub type S1UeNetworkCapability = Octets<2, 13>;

/// Replayed S1 UE security capabilities (TS 24.501 §9.11.3.48A, TS 24.301 §9.9.3.36).
pub type S1UeSecurityCapability = Octets<2, 5>;

bit_octets! {
    /// 5GSM capability (TS 24.501 §9.11.4.1).
    SmCapability [1..=13] {
        /// Reflective QoS is supported.
        reflective_qos with_reflective_qos: 0, 0x01;
        /// Multi-homed IPv6 PDU session.
        multi_homed_ipv6 with_multi_homed_ipv6: 0, 0x02;
        /// Ethernet PDU session in S1 mode.
        ethernet_s1 with_ethernet_s1: 0, 0x04;
    }
}

bit_octets! {
    /// 5GSM network feature support (TS 24.501 §9.11.4.18).
    SmNetworkFeatureSupport [1..=13] {
        /// Ethernet PDU session in S1 mode.
        ethernet_s1 with_ethernet_s1: 0, 0x01;
    }
}

bit_octets! {
    /// 5GS network feature support (TS 24.501 §9.11.3.5).
    NetworkFeatureSupport [1..=3] {
        /// IMS voice over PS session over 3GPP access.
        ims_vops_3gpp with_ims_vops_3gpp: 0, 0x01;
        /// IMS voice over PS session over non-3GPP access.
        ims_vops_non_3gpp with_ims_vops_non_3gpp: 0, 0x02;
        /// Emergency services are supported in NR connected to the 5GC (EMC, the lower of two bits).
        emc_nr with_emc_nr: 0, 0x04;
        /// Interworking without N26.
        interworking_without_n26 with_interworking_without_n26: 0, 0x40;
        /// MPS indicator: access identity 1 is valid.
        mps with_mps: 0, 0x80;
        /// Emergency services over non-3GPP access.
        emc_non_3gpp with_emc_non_3gpp: 1, 0x01;
        /// MCS indicator: access identity 2 is valid.
        mcs with_mcs: 1, 0x02;
        /// Control plane CIoT 5GS optimization.
        cp_ciot with_cp_ciot: 1, 0x10;
        /// N3 data transfer is *not* supported.
        n3_data_not_supported with_n3_data_not_supported: 1, 0x20;
        /// IP header compression for control plane CIoT.
        hc_cp_ciot with_hc_cp_ciot: 1, 0x40;
        /// User plane CIoT 5GS optimization.
        up_ciot with_up_ciot: 1, 0x80;
        /// Location services over the 5GC.
        lcs with_lcs: 2, 0x01;
        /// Access traffic steering, switching and splitting.
        atsss with_atsss: 2, 0x02;
    }
}

impl NetworkFeatureSupport {
    /// Emergency services over 3GPP access: 0 none, 1 in NR, 2 in E-UTRA, 3 in both.
    pub fn emergency_services(&self) -> u8 {
        self.octet(0) >> 2 & 0x03
    }

    /// The same with the emergency services indicator set so.
    #[must_use]
    pub fn with_emergency_services(self, value: u8) -> Self {
        self.with(0, 0x0c, value << 2)
    }

    /// Emergency services fallback: 0 none, 1 from NR, 2 from E-UTRA, 3 from both.
    pub fn emergency_fallback(&self) -> u8 {
        self.octet(0) >> 4 & 0x03
    }

    /// The same with the emergency services fallback indicator set so.
    #[must_use]
    pub fn with_emergency_fallback(self, value: u8) -> Self {
        self.with(0, 0x30, value << 4)
    }
}
