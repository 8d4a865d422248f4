//! GTP-U (TS 29.281) with the PDU session container (TS 38.415), release 17.
//!
//! [`Gtpu::parse`] is the view of a received message; it borrows the octets and checks the header and its
//! extension headers once. A T-PDU is encapsulated in place: [`GpduHeader::write_before`] writes the header
//! into the headroom that ends where the packet begins. The path and tunnel messages are built whole by
//! [`signalling`].
//!
//! Supported: G-PDU, echo request and response, error indication, end marker, supported extension headers
//! notification; PDU session container, others skipped by their comprehension bits. Not supported: tunnel
//! status, GTP'.

#![forbid(unsafe_code)]

mod container;
mod extension;
mod header;
pub mod signalling;

pub use container::PduSessionInformation;
pub use extension::{ExtensionType, Role};
pub use header::{
    GpduHeader, Gtpu, GtpuError, HEADER_OCTETS_MAX, message_type, remove_extensions_in_transit,
};

/// The UDP port of GTP-U (TS 29.281 §4.4.2.1).
pub const PORT: u16 = 2152;
