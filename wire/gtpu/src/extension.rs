//! Extension headers and what must be understood of them.

/// Type of an extension header (TS 29.281 §5.2.1, figure 5.2.1-3). Its two upper bits say which nodes must
/// understand it (figure 5.2.1-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtensionType(pub u8);

impl ExtensionType {
    /// No more extension headers.
    pub const NONE: Self = Self(0x00);
    /// Long PDCP PDU number.
    pub const LONG_PDCP_PDU_NUMBER: Self = Self(0x03);
    /// Service class indicator.
    pub const SERVICE_CLASS_INDICATOR: Self = Self(0x20);
    /// UDP port of the packet that an error indication answers.
    pub const UDP_PORT: Self = Self(0x40);
    /// RAN container, of X2-U.
    pub const RAN_CONTAINER: Self = Self(0x81);
    /// Long PDCP PDU number under the type that earlier versions of the specification gave it.
    pub const LONG_PDCP_PDU_NUMBER_OLDER: Self = Self(0x82);
    /// Xw RAN container.
    pub const XW_RAN_CONTAINER: Self = Self(0x83);
    /// NR RAN container, of X2-U, Xn-U and F1-U.
    pub const NR_RAN_CONTAINER: Self = Self(0x84);
    /// PDU session container.
    pub const PDU_SESSION_CONTAINER: Self = Self(0x85);
    /// PDCP PDU number.
    pub const PDCP_PDU_NUMBER: Self = Self(0xc0);

    /// The types that a UP function may receive at the end of a tunnel and that this crate reads or skips: the PDCP numbers are for the gNB
    /// that gets the packet next.
    pub const SUPPORTED: [Self; 6] = [
        Self::PDU_SESSION_CONTAINER,
        Self::PDCP_PDU_NUMBER,
        Self::UDP_PORT,
        Self::SERVICE_CLASS_INDICATOR,
        Self::LONG_PDCP_PDU_NUMBER,
        Self::LONG_PDCP_PDU_NUMBER_OLDER,
    ];

    /// True if a node in this role must not use the message unless it supports the type.
    pub const fn must_be_understood_by(self, role: Role) -> bool {
        match role {
            Role::EndpointReceiver => self.0 & 0x80 != 0,
            Role::IntermediateNode => self.0 & 0xc0 == 0xc0,
        }
    }

    /// True if an intermediate node removes the header from messages that it forwards.
    pub const fn is_removed_in_transit(self) -> bool {
        self.0 & 0xc0 == 0x40
    }

    pub(crate) fn is_supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }
}

/// Role of a node for a tunnel (TS 29.281 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The tunnel ends here: the packet leaves without its GTP-U header.
    EndpointReceiver,
    /// The message goes on to another tunnel, with its extension headers.
    IntermediateNode,
}
