//! N1 and N2 messages beside a JSON body (TS 29.502 §6.1.2.4, TS 29.518 §6.1.2.4).

use hyper::header::HeaderValue;
use serde::de::DeserializeOwned;
use whimbrel_control::sm_contexts::{N2Part, N2SmKind};
use whimbrel_sbi::message::{JSON, MULTIPART};
use whimbrel_sbi_types::common::{RefToBinaryData, ShortText};
use whimbrel_sbi_types::from_slice;
use whimbrel_sbi_types::multipart::{BodyPart, Multipart, NAS_5G, NGAP};
use whimbrel_sbi_types::nsmf_pdu_session::{
    N2SmInfoType, SmContextCreateError, SmContextUpdateError, SmContextUpdatedData,
};

/// Identities of the parts that are written here.
const N1: &str = "n1-sm-message";
const N2: &str = "n2-sm-information";

/// The longest N1 or N2 message that is taken: more than a NAS message or a transfer with 64 flows has.
pub(super) const MESSAGE_OCTETS_MAX: usize = 8 << 10;

/// The messages of a body that is being written.
#[derive(Default)]
pub(super) struct PartsWriter {
    n1: Option<Vec<u8>>,
    n2: Option<Vec<u8>>,
}

impl PartsWriter {
    /// Adds a 5GSM message.
    pub(super) fn n1(&mut self, octets: &[u8]) -> RefToBinaryData {
        self.n1 = Some(octets.to_vec());
        reference(N1)
    }

    /// Adds an information element of NGAP.
    pub(super) fn n2(&mut self, octets: &[u8]) -> RefToBinaryData {
        self.n2 = Some(octets.to_vec());
        reference(N2)
    }

    /// The header with the media type, and the body: JSON alone where there are no messages.
    pub(super) fn write(&self, json: &[u8]) -> (HeaderValue, Vec<u8>) {
        let n1 = self.n1.iter().map(|octets| BodyPart { content_id: N1, content_type: NAS_5G, octets });
        let n2 = self.n2.iter().map(|octets| BodyPart { content_id: N2, content_type: NGAP, octets });
        let parts: Vec<BodyPart<'_>> = n1.chain(n2).collect();
        if parts.is_empty() {
            return (HeaderValue::from_static(JSON), json.to_vec());
        }
        let (content_type, octets) = Multipart { json, parts }.write();
        let content_type =
            HeaderValue::try_from(content_type).unwrap_or_else(|_| HeaderValue::from_static(MULTIPART));
        (content_type, octets)
    }
}

fn reference(content_id: &str) -> RefToBinaryData {
    RefToBinaryData { content_id: ShortText::new(content_id).expect("a short text") }
}

/// A body with its messages.
pub(super) struct ReceivedParts<'a> {
    json: &'a [u8],
    parts: Vec<BodyPart<'a>>,
}

impl<'a> ReceivedParts<'a> {
    /// Reads a body; `None` if there is none. The error is a sentence without an end.
    pub(super) fn of(content_type: &str, body: &'a [u8]) -> Result<Option<Self>, String> {
        if body.is_empty() {
            return Ok(None);
        }
        let media_type = content_type.split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case(MULTIPART) {
            return Ok(Some(Self { json: body, parts: Vec::new() }));
        }
        let Multipart { json, parts } = Multipart::read(content_type, body).map_err(|e| e.to_string())?;
        Ok(Some(Self { json, parts }))
    }

    /// The JSON body as a type.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, whimbrel_sbi_types::BodyError> {
        from_slice(self.json)
    }

    /// The message to which a reference leads.
    pub(super) fn message(&self, reference: &RefToBinaryData) -> Result<Vec<u8>, String> {
        let content_id = reference.content_id.as_str();
        let content_id =
            content_id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(content_id);
        let part = self.parts.iter().find(|part| part.content_id == content_id);
        let octets = part.ok_or("it names a part that is not there")?.octets;
        if octets.len() > MESSAGE_OCTETS_MAX {
            return Err(format!("a part has more than {MESSAGE_OCTETS_MAX} octets"));
        }
        Ok(octets.to_vec())
    }

    /// The messages that a body of this type refers to.
    pub(super) fn messages<T: MessageReferences>(&self) -> Result<(Option<Vec<u8>>, Option<N2Part>), String> {
        let (n1, n2) = self.json::<T>().map_err(|e| e.to_string())?.references();
        let n1 = n1.map(|reference| self.message(&reference)).transpose()?;
        let n2 = match n2 {
            (Some(reference), Some(kind)) => {
                let kind = kind_of(&kind).ok_or("its n2SmInfoType is not known")?;
                Some((kind, self.message(&reference)?))
            }
            (None, _) => None,
            (Some(_), None) => return Err("it has n2SmInfo without n2SmInfoType".into()),
        };
        Ok((n1, n2))
    }
}

/// A body that may refer to an N1 and an N2 message.
pub(super) trait MessageReferences: DeserializeOwned {
    /// The references, and the kind of the N2 message.
    fn references(self) -> (Option<RefToBinaryData>, (Option<RefToBinaryData>, Option<N2SmInfoType>));
}

macro_rules! refers {
    ($($type:ty),*) => {$(
        impl MessageReferences for $type {
            fn references(self) -> (Option<RefToBinaryData>, (Option<RefToBinaryData>, Option<N2SmInfoType>)) {
                (self.n1_sm_msg, (self.n2_sm_info, self.n2_sm_info_type))
            }
        }
    )*};
}
refers!(SmContextUpdatedData, SmContextUpdateError, SmContextCreateError);

macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// The kind of N2 SM information as text.
        pub(in super::super) fn type_of(kind: N2SmKind) -> N2SmInfoType {
            match kind {
                $(N2SmKind::$kind => N2SmInfoType::$kind,)*
            }
        }

        /// The kind of N2 SM information; `None`: of a later release.
        pub(in super::super) fn kind_of(text: &N2SmInfoType) -> Option<N2SmKind> {
            match text {
                $(N2SmInfoType::$kind => Some(N2SmKind::$kind),)*
                N2SmInfoType::Unknown(_) => None,
            }
        }
    };
}
kinds! {
    PduResSetupReq,
    PduResSetupRsp,
    PduResSetupFail,
    PduResRelCmd,
    PduResRelRsp,
    PduResModReq,
    PduResModRsp,
    PduResModFail,
    PduResNty,
    PduResNtyRel,
    PduResModInd,
    PduResModCfm,
    PathSwitchReq,
    PathSwitchSetupFail,
    PathSwitchReqAck,
    PathSwitchReqFail,
    HandoverRequired,
    HandoverCmd,
    HandoverPrepFail,
    HandoverReqAck,
    HandoverResAllocFail,
    SecondaryRatUsage,
}
