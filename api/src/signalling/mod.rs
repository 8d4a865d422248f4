//! The signalling of a UE, decoded: each message with its name, its clause and its fields.
//!
//! NAS is deciphered for callers with the scope `nas`, by the control thread, which has the keys; no key comes here. What is ciphered under
//! former keys, and what CPFs of a cluster ciphered, is shown as ciphered.

mod clauses;
mod tree;

use std::fmt::Debug;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_control::UeId;
use whimbrel_nas::{EPD_5GMM, EPD_5GSM, Envelope, mm, sm};
use whimbrel_ngap::transfer as t;
use whimbrel_node::clock;
use whimbrel_node::observation::{ConsoleCommand, Interface, Message};
use whimbrel_pfcp::Frame;

use self::tree::{Field, fields, words};
use super::HandlerContext;
use super::auth::Scope;
use super::input::{PageLimit, PathParts, Query, page};
use super::problem::ProblemDetails;
use super::routes::{HandlerResult, Json, RoutedRequest, TypedReply};
use super::why::subject::WhySubject;
use whimbrel_store::{Count, Text, TextForm};

/// Messages that are read within messages, one in the other: NGAP, NAS, 5GSM, and a container.
const DEPTH_MAX: usize = 6;

/// The signalling of a UE.
#[derive(Serialize, JsonSchema)]
pub(super) struct Ladder {
    /// The messages, oldest first.
    messages: Vec<Arrow>,
    /// Where to go on: the `after` of the next request.
    last: u64,
    /// True if older messages were dropped to make room.
    dropped: bool,
}

/// A message as an arrow of the ladder.
#[derive(Serialize, JsonSchema)]
struct Arrow {
    /// Number in order, from 1.
    seq: u64,
    /// When, RFC 3339 with microseconds.
    at: String,
    /// `N2` or `N4`.
    #[schemars(extend("enum" = ["N2", "N4"]))]
    interface: &'static str,
    /// The sender of the message.
    from: String,
    /// The receiver of the message.
    to: String,
    /// Its name in the standard's words.
    name: String,
    /// The clause that defines it.
    clause: String,
    /// The NAS messages in it, from the outside in.
    nas: Vec<Nas>,
    /// Length in octets.
    octets: usize,
    /// Fields of the message.
    fields: Vec<Field>,
}

/// A NAS message within a message.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
struct Nas {
    /// Its name in the standard's words.
    name: String,
    /// The clause that defines it.
    clause: String,
    /// How it is protected: `plain`, `integrity protected`, `ciphered`.
    protection: &'static str,
}

/// The UEs that a name in a path means.
pub(super) fn ues(shared: &HandlerContext, text: &str) -> Result<Vec<UeId>, ProblemDetails> {
    text.parse().map(|ue| ues_of(shared, &ue)).map_err(ProblemDetails::bad_request)
}

fn ues_of(shared: &HandlerContext, ue: &UeWithSignalling) -> Vec<UeId> {
    match &ue.0 {
        WhySubject::Ue(supi) => shared.console.signalling(|s| s.ues_of(*supi)),
        WhySubject::Unidentified(ue) => vec![*ue],
        _ => Vec::new(),
    }
}

/// A UE by its SUPI, or as logs name it.
struct UeWithSignalling(WhySubject);

impl std::str::FromStr for UeWithSignalling {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match WhySubject::parse(text) {
            subject @ (WhySubject::Ue(_) | WhySubject::Unidentified(_)) => Ok(Self(subject)),
            _ => Err("name the UE by its SUPI, or as logs do (ue-1a.2)"),
        }
    }
}

/// Eight digits alone are a 5G-TMSI.
impl TextForm for UeWithSignalling {
    const PATTERN: &'static str = "^(imsi-[0-9]{6,15}|[0-9]{6,7}|[0-9]{9,15}|nai-[0-9a-f]{32}@[0-9a-z.-]{1,220}\
        |ue-[0-9a-f]{1,8}\\.[0-9a-f]{1,4})$";
}

/// The UE that the path names.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SignallingPath {
    /// SUPI, imsi-999700000000001 or its digits, or the name of an unidentified UE in logs.
    supi: Text<UeWithSignalling>,
}

/// A page of messages.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SignallingQuery {
    /// Only messages after this number.
    after: Option<Count>,
    /// Most items to return; 100 if absent.
    limit: Option<PageLimit>,
}

pub(super) async fn list(
    shared: Arc<HandlerContext>,
    request: RoutedRequest,
    PathParts(path): PathParts<SignallingPath>,
    Query(query): Query<SignallingQuery>,
) -> HandlerResult<Json<Ladder>> {
    let (after, limit) = (query.after.map_or(0, Count::value), page(query.limit));
    let ues = ues_of(&shared, &path.supi.0);
    let found = shared.console.signalling(|s| s.of(&ues, after, limit));
    let mut arrows: Vec<(DecodedMessage, &Message)> =
        found.messages.iter().map(|m| (decoded(m), m)).collect();
    if request.may(Scope::Nas) {
        for ue in ues {
            decipher(&shared, ue, &mut arrows).await?;
        }
    }
    let messages = arrows.into_iter().map(|(decoded, message)| arrow(decoded, message)).collect();
    TypedReply::json(&Ladder { messages, last: found.last, dropped: found.dropped })
}

/// Has the control thread decipher what is still ciphered in the messages of a UE.
async fn decipher(
    shared: &HandlerContext,
    ue: UeId,
    arrows: &mut [(DecodedMessage, &Message)],
) -> Result<(), ProblemDetails> {
    let mut places = Vec::new();
    let mut ciphered = Vec::new();
    for (i, (decoded, message)) in arrows.iter().enumerate().filter(|(_, (_, m))| m.ue == Some(ue)) {
        for octets in &decoded.ciphered {
            places.push(i);
            ciphered.push((message.received, octets.clone()));
        }
    }
    if ciphered.is_empty() {
        return Ok(());
    }
    let asked = ciphered.clone();
    let opened = shared.console.commands.ask(|reply| ConsoleCommand::OpenNas(ue, asked, reply)).await?;
    for ((place, (_, octets)), plain) in places.into_iter().zip(ciphered).zip(opened) {
        let (Some((decoded, _)), Some(plain)) = (arrows.get_mut(place), plain) else { continue };
        let mut nas = Vec::new();
        let inner = nas_fields(&plain, "ciphered", 0, &mut nas, &mut Vec::new());
        put(&mut decoded.fields, &octets, &inner);
        // What stood for it gives way to what it says.
        if let Some(at) = decoded.nas.iter().position(|n| n.name == CIPHERED) {
            decoded.nas.splice(at..=at, nas);
        }
    }
    Ok(())
}

/// The NAS messages in each message that were ciphered, in clear, as far as the UEs' keys of now decipher them.
pub(super) async fn deciphered(
    shared: &HandlerContext,
    ues: &[UeId],
    messages: &[Message],
) -> Result<Vec<Vec<Vec<u8>>>, ProblemDetails> {
    let mut clear = vec![Vec::new(); messages.len()];
    for ue in ues {
        let mut places = Vec::new();
        let mut ciphered = Vec::new();
        for (i, message) in messages.iter().enumerate().filter(|(_, m)| m.ue == Some(*ue)) {
            for octets in decoded(message).ciphered {
                places.push(i);
                ciphered.push((message.received, octets));
            }
        }
        if ciphered.is_empty() {
            continue;
        }
        let opened =
            shared.console.commands.ask(|reply| ConsoleCommand::OpenNas(*ue, ciphered, reply)).await?;
        for (place, plain) in places.into_iter().zip(opened) {
            if let (Some(of_message), Some(plain)) = (clear.get_mut(place), plain) {
                of_message.push(plain);
            }
        }
    }
    Ok(clear)
}

/// Puts the fields of a message that was deciphered to the octets that it was.
fn put(fields: &mut [Field], octets: &[u8], inner: &[Field]) {
    for field in fields {
        if field.octets == octets {
            field.fields = inner.to_vec();
        } else {
            put(&mut field.fields, octets, inner);
        }
    }
}

/// The name of a NAS message that cannot be read.
const CIPHERED: &str = "ciphered NAS message";

/// What a message says, as far as it is in clear.
#[derive(Default)]
struct DecodedMessage {
    name: String,
    clause: String,
    nas: Vec<Nas>,
    fields: Vec<Field>,
    /// NAS messages that are ciphered.
    ciphered: Vec<Vec<u8>>,
}

fn arrow(decoded: DecodedMessage, message: &Message) -> Arrow {
    let (interface, core) = match message.interface {
        Interface::N2 => ("N2", "AMF"),
        Interface::N4 => ("N4", "SMF"),
    };
    let (peer, core) = (message.peer.to_string(), core.to_string());
    let (from, to) = if message.received { (peer, core) } else { (core, peer) };
    let at = clock::rfc3339(message.at);
    let at = format!("{}{:03}Z", at.trim_end_matches('Z'), message.at.0 % 1000);
    let octets = message.octets.len();
    let DecodedMessage { name, clause, nas, fields, .. } = decoded;
    Arrow { seq: message.seq, at, interface, from, to, name, clause, nas, octets, fields }
}

fn decoded(message: &Message) -> DecodedMessage {
    match message.interface {
        Interface::N2 => ngap(&message.octets),
        Interface::N4 => pfcp(&message.octets),
    }
}

/// What could not be decoded.
fn unreadable(kind: &str, why: &dyn std::fmt::Display, octets: &[u8]) -> DecodedMessage {
    let hex: String = octets.iter().map(|o| format!("{o:02x}")).collect();
    let fields = vec![Field::new("why", why.to_string()), Field::new("octets", hex)];
    DecodedMessage { name: format!("unreadable {kind} message"), fields, ..DecodedMessage::default() }
}

fn ngap(octets: &[u8]) -> DecodedMessage {
    let message = match whimbrel_ngap::Message::decode(octets) {
        Ok(message) => message,
        Err(refusal) => return unreadable("NGAP", &format!("{refusal:?}"), octets),
    };
    let known = clauses::NGAP.iter().find(|(name, ..)| *name == message.name());
    let (name, clause) = known.map_or_else(
        || (words(message.name()), String::new()),
        |(_, name, clause)| (name.to_string(), format!("TS 38.413 §{clause}")),
    );
    let mut decoded = DecodedMessage { name, clause, fields: fields(&message), ..DecodedMessage::default() };
    within(&mut decoded.fields, 0, &mut decoded.nas, &mut decoded.ciphered);
    decoded
}

fn pfcp(octets: &[u8]) -> DecodedMessage {
    let read = Frame::parse(octets).map_err(|e| format!("{e:?}"));
    let read =
        read.and_then(|f| whimbrel_pfcp::Message::parse(&f).map(|m| (f, m)).map_err(|e| format!("{e:?}")));
    let (frame, message) = match read {
        Ok(read) => read,
        Err(why) => return unreadable("PFCP", &why, octets),
    };
    let debug = format!("{message:?}");
    let kind = debug.split('(').next().unwrap_or_default();
    let known = clauses::PFCP.iter().find(|(name, ..)| *name == kind);
    let (name, clause) = known.map_or_else(
        || (words(kind), String::new()),
        |(_, name, clause)| (name.to_string(), format!("TS 29.244 §{clause}")),
    );
    let seid = frame.header.seid.map_or_else(String::new, |seid| format!("{:016x}", seid.0));
    let header = [Field::new("SEID", seid), Field::new("sequence number", frame.header.sequence.to_string())];
    let all = header.into_iter().filter(|f| !f.value.is_empty()).chain(fields(&message)).collect();
    DecodedMessage { name, clause, fields: all, ..DecodedMessage::default() }
}

/// Reads on in the octets of fields that carry messages.
fn within(fields: &mut [Field], depth: usize, nas: &mut Vec<Nas>, ciphered: &mut Vec<Vec<u8>>) {
    if depth > DEPTH_MAX {
        return;
    }
    for field in fields {
        let octets = std::mem::take(&mut field.octets);
        if octets.is_empty() {
            within(&mut field.fields, depth, nas, ciphered);
        } else if matches!(octets[..], [EPD_5GMM | EPD_5GSM, _, _, ..]) && !field.name.ends_with("transfer") {
            field.fields = nas_fields(&octets, "", depth + 1, nas, ciphered);
        } else if let Some(inner) = transfer(&field.name, &octets) {
            field.fields = inner;
            within(&mut field.fields, depth + 1, nas, ciphered);
        }
        field.octets = octets;
    }
}

/// The fields of a NAS message. `protection`: how the message around it protects it.
fn nas_fields(
    octets: &[u8],
    protection: &'static str,
    depth: usize,
    nas: &mut Vec<Nas>,
    ciphered: &mut Vec<Vec<u8>>,
) -> Vec<Field> {
    if depth > DEPTH_MAX {
        return Vec::new();
    }
    let named = |name: String, kind: &str, protection| {
        let clause = clauses::NAS.iter().find(|(n, _)| *n == kind);
        Nas { name, clause: clause.map(|(_, c)| format!("TS 24.501 §{c}")).unwrap_or_default(), protection }
    };
    let or_plain = if protection.is_empty() { "plain" } else { protection };
    let mut all = match Envelope::parse(octets) {
        Ok(Envelope::PlainMm(plain)) => match mm::Message::decode(plain) {
            Ok(message) => {
                nas.push(named(message.message_type().to_string(), &kind(&message), or_plain));
                fields(&message)
            }
            Err(e) => vec![Field::new("why it cannot be read", format!("{e}"))],
        },
        Ok(Envelope::PlainSm(plain)) => match sm::Message::decode(plain) {
            Ok(message) => {
                nas.push(named(message.body.message_type().to_string(), &kind(&message.body), or_plain));
                fields(&message)
            }
            Err(e) => vec![Field::new("why it cannot be read", format!("{e}"))],
        },
        // Null ciphering shows in that the payload is a message.
        Ok(Envelope::Protected(p))
            if !p.header_type.is_ciphered() || mm::Message::decode(p.payload).is_ok() =>
        {
            // What is within was read with it.
            return nas_fields(p.payload, "integrity protected", depth + 1, nas, ciphered);
        }
        Ok(Envelope::Protected(p)) => {
            nas.push(Nas {
                name: CIPHERED.into(),
                clause: "TS 24.501 §9.1.1".into(),
                protection: "ciphered",
            });
            ciphered.push(octets.to_vec());
            vec![Field::new("sequence number", p.sequence_number.to_string())]
        }
        Err(e) => vec![Field::new("why it cannot be read", format!("{e}"))],
    };
    within(&mut all, depth + 1, nas, ciphered);
    all
}

/// The name of a message's type.
fn kind(message: &impl Debug) -> String {
    format!("{message:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// The fields of N2 SM information, by the name of the element that carries it (TS 38.413 §9.3.4).
fn transfer(name: &str, octets: &[u8]) -> Option<Vec<Field>> {
    macro_rules! of {
        ($($name:literal $type:ident),* $(,)?) => {
            match name {
                $($name => t::$type::decode(octets).ok().map(|m| fields(&m)),)*
                _ => None,
            }
        };
    }
    of! {
        "PDU session resource setup request transfer" PduSessionResourceSetupRequestTransfer,
        "PDU session resource setup response transfer" PduSessionResourceSetupResponseTransfer,
        "PDU session resource setup unsuccessful transfer" PduSessionResourceSetupUnsuccessfulTransfer,
        "PDU session resource modify request transfer" PduSessionResourceModifyRequestTransfer,
        "PDU session resource modify response transfer" PduSessionResourceModifyResponseTransfer,
        "PDU session resource release command transfer" PduSessionResourceReleaseCommandTransfer,
        "PDU session resource release response transfer" PduSessionResourceReleaseResponseTransfer,
        "path switch request transfer" PathSwitchRequestTransfer,
        "path switch request acknowledge transfer" PathSwitchRequestAcknowledgeTransfer,
        "handover required transfer" HandoverRequiredTransfer,
        "handover request acknowledge transfer" HandoverRequestAcknowledgeTransfer,
        "handover command transfer" HandoverCommandTransfer,
    }
}

#[cfg(test)]
mod tests;
