//! Extension headers and what must be understood of them.

/// Type of an extension header (TS 29.281 §5.2.1, figure 5.2.1-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtensionType(pub u8);

impl ExtensionType {
    /// No more extension headers.
    pub const NONE: Self = Self(0x00);
    /// Long PDCP PDU number, comprehension not required.
    pub const LONG_PDCP_PDU_NUMBER: Self = Self(0x03);
    /// Service class indicator.
    pub const SERVICE_CLASS_INDICATOR: Self = Self(0x20);
    /// UDP port of the packet that an error indication answers.
    pub const UDP_PORT: Self = Self(0x40);
    /// PDU session container.
    pub const PDU_SESSION_CONTAINER: Self = Self(0x85);
    /// PDCP PDU number.
    pub const PDCP_PDU_NUMBER: Self = Self(0xc0);

    /// The types that a UP function may receive and that this crate reads or skips.
    pub const SUPPORTED: [Self; 4] =
        [Self::PDU_SESSION_CONTAINER, Self::PDCP_PDU_NUMBER, Self::UDP_PORT, Self::SERVICE_CLASS_INDICATOR];

    /// Whether an endpoint that does not know the type must not use the message (bit 8 of the type).
    pub const fn comprehension_required(self) -> bool {
        self.0 & 0x80 != 0
    }

    pub(crate) fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }
}
