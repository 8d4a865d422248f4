//! The security envelope of NAS messages on the network's side: TS 24.501 §4.4, initial messages TS 33.501 §6.4.6;
//! TS 33.512 §4.2.2.1.4, §4.2.2.3.1.

use whimbrel_ids::{Guti, Tmsi};
use whimbrel_nas::ie::MobileIdentity;
use whimbrel_nas::{Envelope, mm};
use whimbrel_security::{Direction, NasCount, SecurityHeaderType};

use super::unread::Unread;
use crate::digest::digest;
use crate::event::MessageDropReason;
use crate::procedure::Ue;
use crate::state::DownlinkProtection;

/// A 5GMM message that may be acted upon.
#[derive(Debug)]
pub(crate) struct Received {
    /// The message; of an initial message, the complete one from its NAS message container (TS 24.501 §4.4.6).
    pub(crate) message: mm::Message,
    /// Its MAC is correct.
    pub(crate) protected: bool,
    /// A digest of an initial message's content without its protection: recognises a retransmission (TS 24.501
    /// §5.5.1.2.8).
    pub(crate) content: u64,
    /// A first message as received, if its keys are not here: another AMF may have them.
    pub(crate) sealed: Option<Box<[u8]>>,
}

/// The first message of a connection.
pub(crate) enum FirstNasMessage {
    /// It may be acted upon here.
    Read(Box<Received>),
    /// It names this UE, but its MAC does not verify.
    OtherUe,
    /// It names the UE with this 5G-TMSI.
    Elsewhere(Tmsi),
    /// It is no message that begins a connection.
    Unreadable(Unread),
}

/// Reads the first message of a connection for this slot. `known`: the slot holds a UE with a security context.
pub(crate) fn receive_first(ue: Ue, octets: &[u8], known: bool, addressed: bool) -> FirstNasMessage {
    if known {
        return match read(ue, octets, true) {
            Ok(received) if received.protected => FirstNasMessage::Read(Box::new(received)),
            _ => FirstNasMessage::OtherUe,
        };
    }
    let (message, content) = match unprotected(octets) {
        Ok(message) => message,
        Err(why) => return FirstNasMessage::Unreadable(why),
    };
    if !is_initial(&message) {
        return FirstNasMessage::Unreadable(MessageDropReason::OutOfState.into()); // an answer to a request that was not sent on this connection
    }
    if !addressed
        && let Some(guti) = named_by(&message)
        && guti.guami == ue.config().amf.guami()
    {
        return FirstNasMessage::Elsewhere(guti.tmsi);
    }
    let sealed = matches!(Envelope::parse(octets), Ok(Envelope::Protected(_))).then(|| octets.into());
    FirstNasMessage::Read(Box::new(Received { message, protected: false, content, sealed }))
}

/// The messages that begin a connection (TS 24.501 §4.4.6).
fn is_initial(message: &mm::Message) -> bool {
    matches!(
        message,
        mm::Message::RegistrationRequest(_)
            | mm::Message::ServiceRequest(_)
            | mm::Message::ControlPlaneServiceRequest(_)
            | mm::Message::DeregistrationRequestUeOriginating(_)
    )
}

/// True for a first message that is a SERVICE REQUEST by its type; nothing is verified.
pub(crate) fn requests_service(octets: &[u8]) -> bool {
    matches!(unprotected(octets), Ok((mm::Message::ServiceRequest(_), _)))
}

/// The 5G-GUTI by which the NAS message within INITIAL UE MESSAGE names its UE.
pub fn named_within(octets: &[u8]) -> Option<Guti> {
    let Ok(whimbrel_ngap::Message::InitialUeMessage(m)) = whimbrel_ngap::Message::decode(octets) else {
        return None;
    };
    named_by(&unprotected(&m.nas_pdu).ok()?.0)
}

/// The 5G-GUTI by which an initial message names its UE.
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

/// Reads an uplink message under this UE's contexts.
pub(crate) fn receive(ue: Ue, octets: &[u8]) -> Result<Received, Unread> {
    read(ue, octets, false)
}

/// The same for the first message of a connection.
fn read(ue: Ue, octets: &[u8], first: bool) -> Result<Received, Unread> {
    let header = match Envelope::parse(octets).map_err(|_| MessageDropReason::NotNas)? {
        Envelope::PlainMm(_) => None,
        Envelope::PlainSm(_) => return Err(MessageDropReason::NotNas.into()),
        Envelope::Protected(p) => SecurityHeaderType::from_value(p.header_type as u8),
    };
    if let Some(header) = header
        && let Some((plain, count)) = ue.with(|p| open(&mut p.amf, header, octets))
    {
        let secured = ue.with(|p| {
            // Under doubtful keys there is no secure exchange: the UE answers an AUTHENTICATION REQUEST without protection.
            let secures = header == SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext
                || !p.amf.has_unknown_nas_counts();
            let connection = p.amf.connection.as_mut();
            connection.is_some_and(|c| {
                let before = c.secured;
                c.secured |= secures;
                before
            })
        });
        let plain = without_header_type(plain);
        let message = mm::Message::decode(&plain).map_err(|e| Unread::of(&e, true))?;
        if !fits(header, &message) {
            return Err(MessageDropReason::Integrity.into());
        }
        let (message, content) = whole(ue, message, count, &plain);
        // K_gNB is derived with the COUNT of the message that began the connection, or that took the newest keys into use (TS 33.501
        // §6.8.1.1.2.2, §6.9.2.3.3).
        let counts = match message {
            mm::Message::RegistrationRequest(_) | mm::Message::ServiceRequest(_) => first || !secured,
            mm::Message::SecurityModeComplete(_) => true,
            _ => false,
        };
        if counts {
            ue.with(|p| p.amf.security.as_count = Some(count));
        }
        return Ok(Received { message, protected: true, content, sealed: None });
    }
    // Not protected, or not under known keys (TS 24.501 §4.4.4.3): few messages are accepted, and none once a protected
    // message was received on this connection.
    if ue.with(|p| p.amf.connection.as_ref().is_some_and(|c| c.secured)) {
        return Err(if header.is_some() {
            MessageDropReason::Integrity
        } else {
            MessageDropReason::Unprotected
        }
        .into());
    }
    let (message, content) = unprotected(octets)?;
    Ok(Received { message, protected: false, content, sealed: None })
}

/// Opens a protected message under the context that its header type names: the proposed one or the one in force
/// (TS 24.501 §9.3.1).
fn open(
    amf: &mut crate::state::AmfContext,
    header: SecurityHeaderType,
    octets: &[u8],
) -> Option<(Vec<u8>, NasCount)> {
    let context = match header {
        SecurityHeaderType::IntegrityProtected | SecurityHeaderType::IntegrityProtectedAndCiphered => {
            amf.security.current.as_deref_mut()
        }
        SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext => {
            amf.security.proposed.as_deref_mut()
        }
        // SECURITY MODE COMMAND: no UE sends it.
        SecurityHeaderType::IntegrityProtectedWithNewContext => None,
    };
    let mut plain = Vec::with_capacity(octets.len());
    let opened = context?.unprotect(octets, &mut plain).ok()?;
    Some((plain, opened.count))
}

/// The plain message within a protected one, with the security header type of a plain message (TS 24.501 §9.3.1). OpenAirInterface's UE repeats the
/// outer type in its DEREGISTRATION REQUEST; only the outer one has a meaning.
fn without_header_type(mut plain: Vec<u8>) -> Vec<u8> {
    if let [whimbrel_nas::EPD_5GMM, header, ..] = plain.as_mut_slice() {
        *header &= 0xf0;
    }
    plain
}

/// Whether the header type is valid for the message (TS 24.501 §4.4.5, §4.4.6, §9.3.1): only SECURITY MODE COMPLETE takes
/// a new context into use, and only initial messages are not ciphered as a whole.
fn fits(header: SecurityHeaderType, message: &mm::Message) -> bool {
    let completes = matches!(message, mm::Message::SecurityModeComplete(_));
    match header {
        SecurityHeaderType::IntegrityProtected => is_initial(message),
        SecurityHeaderType::IntegrityProtectedAndCiphered => !completes,
        SecurityHeaderType::IntegrityProtectedAndCipheredWithNewContext => completes,
        SecurityHeaderType::IntegrityProtectedWithNewContext => false,
    }
}

/// The complete initial message: its cleartext part only names the context, the rest is ciphered in a container under
/// the COUNT of the message (TS 24.501 §4.4.6). With a digest of its content.
fn whole(ue: Ue, message: mm::Message, count: NasCount, plain: &[u8]) -> (mm::Message, u64) {
    if !is_initial(&message) {
        return (message, 0);
    }
    let container = match &message {
        mm::Message::RegistrationRequest(m) => m.nas_message_container.as_ref(),
        mm::Message::ServiceRequest(m) => m.nas_message_container.as_ref(),
        _ => None,
    };
    let Some(container) = container else { return (message, digest(0, plain)) };
    let mut value = container.to_vec();
    ue.with(|p| {
        if let Some(context) = &mut p.amf.security.current {
            context.apply_to_container(Direction::Uplink, count, &mut value);
        }
    });
    match (mm::Message::decode(&value), &message) {
        (Ok(inner @ mm::Message::RegistrationRequest(_)), mm::Message::RegistrationRequest(_))
        | (Ok(inner @ mm::Message::ServiceRequest(_)), mm::Message::ServiceRequest(_)) => {
            (inner, digest(0, &value))
        }
        _ => (message, digest(0, plain)),
    }
}

/// Reads a message without protection, if that is allowed for it (TS 24.501 §4.4.4.3).
fn unprotected(octets: &[u8]) -> Result<(mm::Message, u64), Unread> {
    let plain = match Envelope::parse(octets).map_err(|_| MessageDropReason::NotNas)? {
        Envelope::PlainMm(plain) => plain,
        Envelope::PlainSm(_) => return Err(MessageDropReason::NotNas.into()),
        // A payload that is not ciphered can be read; with a wrong MAC it counts as a plain message.
        Envelope::Protected(p) if p.header_type.is_ciphered() => {
            return Err(MessageDropReason::Integrity.into());
        }
        Envelope::Protected(p) => p.payload,
    };
    let message = mm::Message::decode(plain).map_err(|e| Unread::of(&e, false))?;
    match message {
        mm::Message::RegistrationRequest(_)
        | mm::Message::ServiceRequest(_)
        | mm::Message::ControlPlaneServiceRequest(_)
        | mm::Message::IdentityResponse(_)
        | mm::Message::AuthenticationResponse(_)
        | mm::Message::AuthenticationFailure(_)
        | mm::Message::SecurityModeReject(_)
        | mm::Message::DeregistrationRequestUeOriginating(_)
        | mm::Message::DeregistrationAcceptUeTerminated(_) => {
            let content = if is_initial(&message) { digest(0, plain) } else { 0 };
            Ok((message, content))
        }
        _ => Err(MessageDropReason::Unprotected.into()),
    }
}

/// The messages that a UE accepts without protection on a connection that has none yet (TS 24.501 §4.4.4.2).
fn goes_without_protection(message: &mm::Message) -> bool {
    matches!(
        message,
        mm::Message::IdentityRequest(_)
            | mm::Message::AuthenticationRequest(_)
            | mm::Message::AuthenticationResult(_)
            | mm::Message::AuthenticationReject(_)
            | mm::Message::RegistrationReject(_)
            | mm::Message::DeregistrationAcceptUeOriginating(_)
            | mm::Message::ServiceReject(_)
    )
}

/// Encodes and protects a downlink message; returns the COUNT used. `None`, with an event, if no COUNT is left: a COUNT
/// is never used twice (TS 24.501 §4.4.3.5). Under doubtful keys nothing is protected.
pub(crate) fn protect(
    ue: Ue,
    message: &mm::Message,
    security: DownlinkProtection,
) -> Option<(Vec<u8>, Option<u32>)> {
    let mut plain = Vec::with_capacity(64);
    message.encode(&mut plain);
    ue.with(|p| {
        let (context, header) = match security {
            DownlinkProtection::Plain => return Some((plain, None)),
            DownlinkProtection::Current if p.amf.has_unknown_nas_counts() => {
                return goes_without_protection(message).then_some((plain, None));
            }
            DownlinkProtection::Proposed => {
                (p.amf.security.proposed.as_mut(), SecurityHeaderType::IntegrityProtectedWithNewContext)
            }
            DownlinkProtection::Current => {
                (p.amf.security.current.as_mut(), SecurityHeaderType::IntegrityProtectedAndCiphered)
            }
        };
        let Some(context) = context else { return Some((plain, None)) };
        let mut out = Vec::with_capacity(plain.len() + 8);
        let count = context.protect(header, &plain, &mut out).ok()?;
        Some((out, Some(count.value())))
    })
}

#[cfg(test)]
mod tests {
    use whimbrel_ngap::msg::UplinkNasTransport;

    use crate::ue_harness::{CIPHERED, RAN_ID, UeHarness};

    #[test] // TS 24.501 §9.3.1, as OpenAirInterface's UE of 2024-w12 writes it: the outer type again in the plain message
    fn a_header_type_within_a_protected_message_has_no_meaning() {
        let mut harness = UeHarness::registered();
        let plain = [0x7e, 4, 0x45, 1, 0, 11, 0xf2, 0x99, 0xf9, 7, 2, 2, 0, 0x8e, 0x37, 8, 0x23];
        let mut pdu = Vec::new();
        harness.keys.protect(CIPHERED, &plain, &mut pdu).unwrap();
        let batch = harness.ngap(UplinkNasTransport::new(harness.connection(), RAN_ID, pdu));
        harness.settle(batch);
        assert!(harness.context().is_none_or(|ue| !ue.amf.registered));
    }
}
