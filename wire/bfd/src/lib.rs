//! BFD control packets (RFC 5880 §4.1), as Seamless BFD (RFC 7880) sends them over UDP (RFC 7881).
//!
//! A packet is 24 octets without options, so there is no view beside the value: [`ControlPacket::parse`] copies it out of the datagram.
//!
//! Supported: the mandatory section. Not supported: the authentication section (a packet with the A bit is refused, RFC 5880 §6.8.6), echo
//! packets, whose content is the sender's own affair (RFC 5880 §5), and multipoint (the M bit, reserved there).

#![forbid(unsafe_code)]

mod packet;

pub use packet::{ControlPacket, Diagnostic, Discriminator, Invalid, OCTETS, State};

/// The UDP port to which an initiator sends, and from which a reflector answers (RFC 7881 §3).
pub const PORT: u16 = 7784;
