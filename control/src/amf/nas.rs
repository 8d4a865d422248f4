//! The security envelope of NAS messages on the network's side (TS 24.501 §4.4).

use whimbrel_ids::{Guti, Tmsi};
use whimbrel_nas::ie::MobileIdentity;
use whimbrel_nas::{Envelope, mm};
use whimbrel_security::{Direction, NasCount, SecurityHeaderType};

use crate::event::Dropped;
use crate::shard::Ue;

/// A 5GMM message that may be acted upon.
#[derive(Debug)]
pub(crate) struct Received {
    /// The message; of an initial message that hid its tail in a container, the whole (TS 24.501 §4.4.6).
    pub(crate) message: mm::Message,
    /// Its MAC was right.
    pub(crate) protected: bool,
    /// A digest of its octets: tells a repetition.
    pub(crate) digest: u64,
}

/// The first message of a connection.
pub(crate) enum First {
    /// It may be acted upon here.
    Read(Received),
    /// It names this phone and does not prove to be from it.
    Stranger,
    /// It names the phone that bears this 5G-TMSI.
    Elsewhere(Tmsi),
    /// It is nothing that can begin a connection.
    Unreadable(Dropped),
}

/// How a downlink message is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    /// Not at all: before there is a context (TS 24.501 §4.4.4.2 lists what phones take so).
    Plain,
    /// Integrity and cipher under the context in force; plain where there is none.
    Current,
    /// Integrity under the context that is being proposed (SECURITY MODE COMMAND).
    Proposed,
}

/// Reads the first message of a connection for this slot. `known`: the slot holds a phone with a security context.
pub(crate) fn receive_first(ue: Ue, octets: &[u8], known: bool, addressed: bool) -> First {
    if known {
        return match receive(ue, octets) {
            Ok(received) if received.protected => First::Read(received),
            _ => First::Stranger,
        };
    }
    let message = match unprotected(octets) {
        Ok(message) => message,
        Err(why) => return First::Unreadable(why),
    };
    if !addressed
        && let Some(guti) = named_by(&message)
        && guti.guami == ue.config().amf.guami()
    {
        return First::Elsewhere(guti.tmsi);
    }
    First::Read(Received { message, protected: false, digest: digest(octets) })
}

/// The 5G-GUTI by which an initial message names its phone.
fn named_by(message: &mm::Message) -> Option<Guti> {
    let identity = match message {
        mm::Message::RegistrationRequest(m) => &m.mobile_identity,
        mm::Message::DeregistrationRequestUeOriginating(m) => &m.mobile_identity,
        _ => return None,
    };
    match identity {
        MobileIdentity::Guti(guti) => Some(*guti),
        _ => None,
    }
}

/// Reads an uplink message under this phone's contexts.
pub(crate) fn receive(ue: Ue, octets: &[u8]) -> Result<Received, Dropped> {
    let digest = digest(octets);
    let header = match Envelope::parse(octets).map_err(|_| Dropped::NotNas)? {
        Envelope::PlainMm(_) => None,
        Envelope::PlainSm(_) => return Err(Dropped::NotNas),
        Envelope::Protected(p) => Some(p.header_type),
    };
    if header.is_some()
        && let Some((plain, count)) = ue.with(|p| open(&mut p.amf, octets))
    {
        ue.with(|p| {
            if let Some(c) = &mut p.amf.connection {
                c.secured = true;
            }
        });
        let message = mm::Message::decode(&plain).map_err(|_| Dropped::NotNas)?;
        let message = whole(ue, message, count);
        if matches!(
            message,
            mm::Message::RegistrationRequest(_)
                | mm::Message::ServiceRequest(_)
                | mm::Message::SecurityModeComplete(_)
        ) {
            ue.with(|p| p.amf.as_count = Some(count));
        }
        return Ok(Received { message, protected: true, digest });
    }
    // Not protected, or not under keys of ours (TS 24.501 §4.4.4.3): few messages may pass, and none once protection
    // was seen on this connection.
    if ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.secured)) {
        return Err(if header.is_some() { Dropped::Integrity } else { Dropped::Unprotected });
    }
    let message = unprotected(octets)?;
    Ok(Received { message, protected: false, digest })
}

/// Opens a protected message under the proposed context or the one in force.
fn open(amf: &mut crate::phone::AmfContext, octets: &[u8]) -> Option<(Vec<u8>, NasCount)> {
    let mut plain = Vec::new();
    let contexts = [amf.proposed.as_deref_mut(), amf.security.as_deref_mut()];
    for context in contexts.into_iter().flatten() {
        if let Ok(opened) = context.unprotect(octets, &mut plain) {
            return Some((plain, opened.count));
        }
    }
    None
}

/// An initial message shows only what is needed to find its context; the rest is ciphered in a container of its own
/// under the COUNT of the message (TS 24.501 §4.4.6).
fn whole(ue: Ue, message: mm::Message, count: NasCount) -> mm::Message {
    let container = match &message {
        mm::Message::RegistrationRequest(m) => m.nas_message_container.as_ref(),
        mm::Message::ServiceRequest(m) => m.nas_message_container.as_ref(),
        _ => None,
    };
    let Some(container) = container else { return message };
    let mut value = container.to_vec();
    ue.with(|p| {
        if let Some(context) = &mut p.amf.security {
            context.apply_to_container(Direction::Uplink, count, &mut value);
        }
    });
    match (mm::Message::decode(&value), &message) {
        (Ok(inner @ mm::Message::RegistrationRequest(_)), mm::Message::RegistrationRequest(_))
        | (Ok(inner @ mm::Message::ServiceRequest(_)), mm::Message::ServiceRequest(_)) => inner,
        _ => message,
    }
}

/// Reads a message without protection, if it is one of those that may pass so (TS 24.501 §4.4.4.3).
fn unprotected(octets: &[u8]) -> Result<mm::Message, Dropped> {
    let plain = match Envelope::parse(octets).map_err(|_| Dropped::NotNas)? {
        Envelope::PlainMm(plain) => plain,
        Envelope::PlainSm(_) => return Err(Dropped::NotNas),
        // The payload can be read where it is not ciphered; a wrong MAC makes it a plain message.
        Envelope::Protected(p) if p.header_type.is_ciphered() => return Err(Dropped::Integrity),
        Envelope::Protected(p) => p.payload,
    };
    let message = mm::Message::decode(plain).map_err(|_| Dropped::NotNas)?;
    match message {
        mm::Message::RegistrationRequest(_)
        | mm::Message::ServiceRequest(_)
        | mm::Message::ControlPlaneServiceRequest(_)
        | mm::Message::IdentityResponse(_)
        | mm::Message::AuthenticationResponse(_)
        | mm::Message::AuthenticationFailure(_)
        | mm::Message::SecurityModeReject(_)
        | mm::Message::DeregistrationRequestUeOriginating(_)
        | mm::Message::DeregistrationAcceptUeTerminated(_) => Ok(message),
        _ => Err(Dropped::Unprotected),
    }
}

/// Encodes and protects a downlink message; the COUNT that it used. `None`, with an event, where no COUNT is left:
/// a COUNT is never used twice (TS 24.501 §4.4.3.5).
pub(crate) fn protect(ue: Ue, message: &mm::Message, security: Security) -> Option<(Vec<u8>, Option<u32>)> {
    let mut plain = Vec::with_capacity(64);
    message.encode(&mut plain);
    ue.with(|p| {
        let (context, header) = match security {
            Security::Plain => return Some((plain, None)),
            Security::Proposed => {
                (p.amf.proposed.as_mut(), SecurityHeaderType::IntegrityProtectedWithNewContext)
            }
            Security::Current => (p.amf.security.as_mut(), SecurityHeaderType::IntegrityProtectedAndCiphered),
        };
        let Some(context) = context else { return Some((plain, None)) };
        let mut out = Vec::with_capacity(plain.len() + 8);
        let count = context.protect(header, &plain, &mut out).ok()?;
        Some((out, Some(count.value())))
    })
}

/// FNV-1a: recognises a repetition, decides nothing else.
fn digest(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |h, &o| (h ^ u64::from(o)).wrapping_mul(0x0100_0000_01b3))
}
