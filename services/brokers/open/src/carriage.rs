//! How 5GS carries SAP: authReqU in a SUCI, the broker's answer in an EAP message.
//!
//! - Fast mode: the SUCI of REGISTRATION REQUEST has the SUPI type 1 (network specific identifier) and a protection scheme that
//!   TS 33.501 Annex C.1 leaves to operators, 0xC to 0xF. Its text is that of TS 23.003 §28.7.3.
//! - The answer is an EAP-Request of expanded type (RFC 3748 §5.7), in the EAP message of SECURITY MODE COMMAND; a refusal is
//!   one too, in that of REGISTRATION REJECT.

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

use crate::id::Domain;
use crate::msg::{AnswerU, AuthReqU, SignedRefusal};

/// The longest scheme output: 3,000 octets more than what is concealed (TS 33.501 Annex C.1), which is at most a network access
/// identifier of 253 octets.
pub const SCHEME_OUTPUT_OCTETS_MAX: usize = 3_000 + 253;

/// The longest EAP message (TS 24.501 §9.11.2.2).
pub const EAP_OCTETS_MAX: usize = 1_500;

/// Vendor-Id of the expanded type: the enterprise number for documentation (RFC 5612), until the project has one of its own.
pub const EAP_VENDOR_ID: u32 = 32_473;

/// Vendor-Type of the expanded type: SAP.
pub const EAP_VENDOR_TYPE: u32 = 1;

/// Octets before the data of an EAP packet of expanded type.
const EAP_HEAD: usize = 12;

const _: () = assert!(AuthReqU::OCTETS_MAX <= SCHEME_OUTPUT_OCTETS_MAX);
const _: () = assert!(EAP_HEAD + AnswerU::OCTETS_MAX <= EAP_OCTETS_MAX);
const _: () = assert!(EAP_HEAD + SignedRefusal::OCTETS_MAX <= EAP_OCTETS_MAX);

/// A protection scheme identifier that is left to the home network (TS 33.501 Annex C.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Protection scheme 0xC of the SUCI.
    C = 0xc,
    /// Protection scheme 0xD of the SUCI.
    D = 0xd,
    /// Protection scheme 0xE of the SUCI.
    E = 0xe,
    /// Protection scheme 0xF of the SUCI.
    F = 0xf,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::C, Self::D, Self::E, Self::F];
}

/// A SUCI of SUPI type 1 under such a scheme: the text of TS 23.003 §28.7.3,
/// `type1.rid0.schidc.hnkey7.out<hexadecimal>@broker.example`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuciNai {
    /// Routing indicator, as a number of one to four digits without leading zeros.
    pub routing_indicator: u16,
    /// Protection scheme of the SUCI.
    pub scheme: Scheme,
    /// Home network public key identifier.
    pub key_id: u8,
    /// Scheme output of the SUCI.
    pub output: Vec<u8>,
    /// Realm: the broker's domain.
    pub realm: Domain,
}

const SUCI: &str = "SUCI";

impl SuciNai {
    /// Of a request.
    pub fn of_request(request: &AuthReqU, scheme: Scheme) -> Self {
        Self {
            routing_indicator: 0,
            scheme,
            key_id: request.key_id(),
            output: request.to_scheme_output(),
            realm: request.broker().clone(),
        }
    }

    /// The request in it. Errors: [`DecodeError`].
    pub fn to_request(&self) -> Result<AuthReqU, DecodeError> {
        AuthReqU::from_scheme_output(self.realm.clone(), self.key_id, &self.output)
    }

    /// The NAI as text.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "type1.rid{}.schid{:x}.hnkey{}.out",
            self.routing_indicator, self.scheme as u8, self.key_id
        );
        for octet in &self.output {
            for nibble in [octet >> 4, octet & 0xf] {
                text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        text.push('@');
        text.push_str(self.realm.as_str());
        text
    }

    /// Parses the text of a SUCI. Hexadecimal digits may be capital letters; numbers have no leading zeros. Errors:
    /// [`DecodeError`] of kind `Unknown` for another SUPI type or protection scheme.
    pub fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let invalid = DecodeError::new(DecodeErrorKind::InvalidValue, SUCI, 0);
        if text.len() > 64 + 2 * SCHEME_OUTPUT_OCTETS_MAX + Domain::OCTETS_MAX {
            return Err(DecodeError::new(DecodeErrorKind::InvalidLength, SUCI, 0));
        }
        let text = core::str::from_utf8(text).map_err(|_| invalid)?;
        let (user, realm) = text.split_once('@').ok_or(invalid)?;
        let mut parts = user.split('.');
        let mut part = |name: &str| parts.next().and_then(|p| p.strip_prefix(name)).ok_or(invalid);
        let unknown = DecodeError::new(DecodeErrorKind::Unknown, SUCI, 0);
        if part("type")? != "1" {
            return Err(unknown);
        }
        let routing_indicator = number(part("rid")?).filter(|rid| *rid <= 9_999).ok_or(invalid)?;
        let scheme = part("schid")?;
        let scheme =
            Scheme::ALL.into_iter().find(|s| scheme.eq_ignore_ascii_case(&format!("{:x}", *s as u8)));
        let scheme = scheme.ok_or(unknown)?;
        let key_id = number(part("hnkey")?).and_then(|id| u8::try_from(id).ok()).ok_or(invalid)?;
        let output = octets(part("out")?).ok_or(invalid)?;
        if parts.next().is_some() || output.len() > SCHEME_OUTPUT_OCTETS_MAX {
            return Err(invalid);
        }
        let realm = realm.parse().map_err(|_| invalid)?;
        Ok(Self { routing_indicator, scheme, key_id, output, realm })
    }
}

/// A decimal number without leading zeros or sign.
fn number(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn octets(text: &str) -> Option<Vec<u8>> {
    let nibble = |b: u8| char::from(b).to_digit(16).map(|v| v as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

/// Code of an EAP packet that has a type (RFC 3748 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EapCode {
    /// From the network.
    Request = 1,
    /// From the UE.
    Response = 2,
}

/// An EAP packet of our expanded type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EapExpanded {
    /// Code of the EAP packet.
    pub code: EapCode,
    /// Identifier of the EAP packet.
    pub identifier: u8,
    data: Box<[u8]>,
}

impl EapExpanded {
    /// `None` if the packet would be longer than [`EAP_OCTETS_MAX`].
    pub fn new(code: EapCode, identifier: u8, data: &[u8]) -> Option<Self> {
        (EAP_HEAD + data.len() <= EAP_OCTETS_MAX).then(|| Self { code, identifier, data: data.into() })
    }

    /// The SAP message in it.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The octets that `MESSAGES.md` lays out.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut out = vec![self.code as u8, self.identifier];
        out.extend_from_slice(&((EAP_HEAD + self.data.len()) as u16).to_be_bytes());
        out.extend_from_slice(&(254 << 24 | EAP_VENDOR_ID).to_be_bytes());
        out.extend_from_slice(&EAP_VENDOR_TYPE.to_be_bytes());
        out.extend_from_slice(&self.data);
        out
    }

    /// Parses one. Octets behind the length that the packet names are padding (RFC 3748 §4). Errors: [`DecodeError`] of kind
    /// `Unknown` for another type or vendor.
    pub fn parse(octets: &[u8]) -> Result<Self, DecodeError> {
        const IE: &str = "EAP packet";
        let mut r = Reader::new(octets);
        let unknown = r.error(DecodeErrorKind::Unknown, IE);
        let code = match r.u8(IE)? {
            1 => EapCode::Request,
            2 => EapCode::Response,
            _ => return Err(unknown),
        };
        let identifier = r.u8(IE)?;
        let length = usize::from(r.u16(IE)?);
        if !(EAP_HEAD..=EAP_OCTETS_MAX).contains(&length) {
            return Err(r.error(DecodeErrorKind::InvalidLength, IE));
        }
        let mut r = r.sub(length - 4, IE)?;
        if r.u32(IE)? != 254 << 24 | EAP_VENDOR_ID || r.u32(IE)? != EAP_VENDOR_TYPE {
            return Err(unknown);
        }
        Ok(Self { code, identifier, data: r.take_rest().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suci(output: Vec<u8>) -> SuciNai {
        let realm = "b.example".parse().unwrap();
        SuciNai { routing_indicator: 12, scheme: Scheme::C, key_id: 255, output, realm }
    }

    #[test] // TS 23.003 §28.7.3
    fn a_suci_is_written_in_the_form_of_a_network_access_identifier() {
        let one = suci(vec![0x0a, 0xff]);
        assert_eq!(one.to_text(), "type1.rid12.schidc.hnkey255.out0aff@b.example");
        assert_eq!(SuciNai::parse(b"type1.rid12.schidC.hnkey255.out0AFF@b.example"), Ok(one));
    }

    #[test] // TS 33.501 Annex C.1
    fn a_suci_of_a_standard_scheme_or_an_imsi_is_not_ours() {
        for (text, kind) in [
            ("type1.rid0.schid0.userid1@b.example", DecodeErrorKind::Unknown),
            ("type1.rid0.schid1.hnkey1.ecckey00.cip00.mac00@b.example", DecodeErrorKind::Unknown),
            ("type0.rid0.schidc.hnkey1.out00@b.example", DecodeErrorKind::Unknown),
            ("type1.rid0.schidb.hnkey1.out00@b.example", DecodeErrorKind::Unknown),
            ("type1.rid10000.schidc.hnkey1.out00@b.example", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey256.out00@b.example", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey01.out00@b.example", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey1.out0@b.example", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey1.out00.x@b.example", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey1.out00@10.0.0.1", DecodeErrorKind::InvalidValue),
            ("type1.rid0.schidc.hnkey1.out00", DecodeErrorKind::InvalidValue),
        ] {
            assert_eq!(SuciNai::parse(text.as_bytes()).unwrap_err().kind, kind, "{text}");
        }
    }

    #[test] // TS 33.501 Annex C.1: at most 3,000 octets more than the input
    fn a_scheme_output_beyond_the_bound_is_refused() {
        let longest = suci(vec![7; SCHEME_OUTPUT_OCTETS_MAX]);
        assert_eq!(SuciNai::parse(longest.to_text().as_bytes()), Ok(longest));
        assert!(SuciNai::parse(suci(vec![7; SCHEME_OUTPUT_OCTETS_MAX + 1]).to_text().as_bytes()).is_err());
    }

    #[test] // RFC 3748 §4, §5.7; TS 24.501 §9.11.2.2
    fn an_eap_packet_is_of_our_expanded_type_and_at_most_1500_octets() {
        let packet = EapExpanded::new(EapCode::Request, 9, b"data").unwrap();
        let mut octets = packet.to_octets();
        assert_eq!(octets, *b"\x01\x09\x00\x10\xfe\x00\x7e\xd9\x00\x00\x00\x01data");
        octets.extend_from_slice(b"padding");
        assert_eq!(EapExpanded::parse(&octets), Ok(packet));
        octets[6] ^= 1;
        assert_eq!(EapExpanded::parse(&octets).unwrap_err().kind, DecodeErrorKind::Unknown);
        assert!(EapExpanded::new(EapCode::Request, 9, &[0; EAP_OCTETS_MAX - 12]).is_some());
        assert!(EapExpanded::new(EapCode::Request, 9, &[0; EAP_OCTETS_MAX - 11]).is_none());
    }
}
