//! Bodies of several parts (`multipart/related`, RFC 2387): a JSON body first, then the N1 and N2 messages to which it refers (TS 29.500 §6.1.2.4,
//! TS 29.502 §6.1.2.2.2, TS 29.518 §6.1.2.2.2).
//!
//! Cores in use write a Content-Id with and without angle brackets, and refer to it without them: both are the same here.

use std::fmt;

/// Parts of a body at most: the JSON body, and as many N1 and N2 messages as any operation has, with room.
const PARTS_MAX: usize = 8;
/// Octets of a part's headers at most.
const HEADERS_OCTETS_MAX: usize = 2048;
/// Characters of a boundary at most (RFC 2046 §5.1.1).
const BOUNDARY_OCTETS_MAX: usize = 70;
/// The boundary of the bodies that are written here, unless a part contains it.
const BOUNDARY: &str = "whimbrel-part";

/// A message of 5GMM or 5GSM (TS 29.500 §6.1.2.4).
pub const NAS_5G: &str = "application/vnd.3gpp.5gnas";
/// An information element of NGAP.
pub const NGAP: &str = "application/vnd.3gpp.ngap";

/// A binary part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyPart<'a> {
    /// The identity by which the JSON body refers to the part, without angle brackets.
    pub content_id: &'a str,
    /// Its media type, such as [`NAS_5G`].
    pub content_type: &'a str,
    /// The content of the part.
    pub octets: &'a [u8],
}

/// A body of several parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multipart<'a> {
    /// The JSON body.
    pub json: &'a [u8],
    /// The other parts, in their order.
    pub parts: Vec<BodyPart<'a>>,
}

/// Why a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartError {
    /// The media type is not `multipart/related`, or has no boundary that RFC 2046 allows.
    ContentType,
    /// There is no first or no last boundary: the body was cut short.
    Truncated,
    /// The headers of a part are not headers, or too long.
    Headers,
    /// The first part is not JSON.
    NoJson,
    /// There are more parts than any operation has.
    TooManyParts,
    /// A part has no Content-Id, or that of another part.
    ContentId,
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ContentType => f.write_str("it is not multipart/related with a boundary"),
            Self::Truncated => f.write_str("a body of several parts was cut short"),
            Self::Headers => f.write_str("the headers of a part are malformed, or too long"),
            Self::NoJson => f.write_str("the first part is not JSON"),
            Self::TooManyParts => write!(f, "it has more than {PARTS_MAX} parts"),
            Self::ContentId => f.write_str("a part has no Content-Id, or that of another part"),
        }
    }
}

impl std::error::Error for MultipartError {}

impl<'a> Multipart<'a> {
    /// Reads a body. `content_type`: the header of the message. Parts are not copied.
    ///
    /// Errors: each [`MultipartError`].
    pub fn read(content_type: &str, body: &'a [u8]) -> Result<Self, MultipartError> {
        let boundary = boundary_of(content_type).ok_or(MultipartError::ContentType)?;
        let delimiter = [b"--", boundary.as_bytes()].concat();
        // What stands before the first boundary is no part (RFC 2046 §5.1.1).
        let first = match body.strip_prefix(delimiter.as_slice()) {
            Some(rest) => rest,
            None => {
                after(body, &[b"\r\n", delimiter.as_slice()].concat()).ok_or(MultipartError::Truncated)?.1
            }
        };
        let delimiter = [b"\r\n", delimiter.as_slice()].concat();
        let (mut rest, mut json, mut parts) = (first, None, Vec::<BodyPart<'a>>::new());
        while !rest.starts_with(b"--") {
            let (content, next) = after(rest, &delimiter).ok_or(MultipartError::Truncated)?;
            let content = content.strip_prefix(b"\r\n").ok_or(MultipartError::Headers)?;
            // Without headers the blank line follows at once.
            let (headers, octets) = match content.strip_prefix(b"\r\n") {
                Some(octets) => (&[][..], octets),
                None => after(content, b"\r\n\r\n").ok_or(MultipartError::Headers)?,
            };
            let headers = PartHeaders::read(headers)?;
            if json.is_none() {
                let is_json = headers.content_type.is_some_and(|of| is_media_type(of, "application/json"));
                json = Some(is_json.then_some(octets).ok_or(MultipartError::NoJson)?);
            } else {
                let content_id = headers.content_id.ok_or(MultipartError::ContentId)?;
                if parts.iter().any(|part| part.content_id == content_id) {
                    return Err(MultipartError::ContentId);
                }
                let content_type = headers.content_type.unwrap_or("text/plain");
                parts.push(BodyPart { content_id, content_type, octets });
            }
            if parts.len() >= PARTS_MAX {
                return Err(MultipartError::TooManyParts);
            }
            rest = next;
        }
        Ok(Self { json: json.ok_or(MultipartError::NoJson)?, parts })
    }

    /// The part to which the JSON body refers by this identity.
    pub fn part(&self, content_id: &str) -> Option<&BodyPart<'a>> {
        let content_id = without_brackets(content_id);
        self.parts.iter().find(|part| part.content_id == content_id)
    }

    /// The header and the octets of the body.
    pub fn write(&self) -> (String, Vec<u8>) {
        let is_in = |text: &str| {
            let contains = |octets: &[u8]| octets.windows(text.len()).any(|window| window == text.as_bytes());
            contains(self.json) || self.parts.iter().any(|part| contains(part.octets))
        };
        let mut boundary = BOUNDARY.to_owned();
        let mut n = 0u64;
        while is_in(&boundary) {
            n += 1;
            boundary = format!("{BOUNDARY}-{n}");
        }
        let mut body = format!("--{boundary}\r\nContent-Type: application/json\r\n\r\n").into_bytes();
        body.extend_from_slice(self.json);
        for BodyPart { content_id, content_type, octets } in &self.parts {
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Id: {content_id}\r\n\r\n"
            );
            body.extend_from_slice(head.as_bytes());
            body.extend_from_slice(octets);
        }
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        // Deviation: without the parameter `type` of RFC 2387 §3.1, by which free5GC takes the whole body for JSON. Open5GS and free5GC write none.
        (format!("multipart/related; boundary=\"{boundary}\""), body)
    }
}

/// The headers of a part that count here.
#[derive(Default)]
struct PartHeaders<'a> {
    content_type: Option<&'a str>,
    content_id: Option<&'a str>,
}

impl<'a> PartHeaders<'a> {
    fn read(octets: &'a [u8]) -> Result<Self, MultipartError> {
        let text = std::str::from_utf8(octets).ok().filter(|text| text.len() <= HEADERS_OCTETS_MAX);
        let mut headers = Self::default();
        for line in text.ok_or(MultipartError::Headers)?.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(MultipartError::Headers)?;
            match name.to_ascii_lowercase().as_str() {
                "content-type" => headers.content_type = Some(value.trim()),
                "content-id" => {
                    headers.content_id = Some(without_brackets(value.trim())).filter(|id| !id.is_empty());
                }
                _ => {}
            }
        }
        Ok(headers)
    }
}

fn without_brackets(content_id: &str) -> &str {
    content_id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(content_id)
}

fn is_media_type(content_type: &str, expected: &str) -> bool {
    content_type.split(';').next().is_some_and(|of| of.trim().eq_ignore_ascii_case(expected))
}

/// The boundary of `multipart/related` (RFC 2046 §5.1.1).
fn boundary_of(content_type: &str) -> Option<&str> {
    if !is_media_type(content_type, "multipart/related") {
        return None;
    }
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.trim().split_once('='));
    let mut of_boundary = parameters.filter(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"));
    let value = of_boundary.next()?.1.trim();
    let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "'()+_,-./:=? ".contains(c);
    let fits = (1..=BOUNDARY_OCTETS_MAX).contains(&value.len());
    (fits && value.chars().all(is_allowed) && !value.ends_with(' ')).then_some(value)
}

/// The octets before and after the first place of a pattern.
fn after<'a>(octets: &'a [u8], pattern: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = octets.windows(pattern.len()).position(|window| window == pattern)?;
    Some((octets.get(..at)?, octets.get(at + pattern.len()..)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/related; boundary=b";

    fn read(body: &str) -> Result<Multipart<'_>, MultipartError> {
        Multipart::read(TYPE, body.as_bytes())
    }

    #[test]
    fn parts_are_found_by_their_identities_with_and_without_brackets() {
        let body = "ignored\r\n--b\r\ncontent-type: application/json; charset=utf-8\r\n\r\n{}\r\n--b\r\nContent-Id: <n1>\r\nContent-Type: application/vnd.3gpp.5gnas\r\nContent-Transfer-Encoding: binary\r\n\r\n\x01\r\n\r\n\x02\r\n--b\r\nContent-ID:n2\r\n\r\n\r\n--b--\r\n";
        let read = read(body).unwrap();
        assert_eq!(read.json, b"{}");
        let n1 = BodyPart { content_id: "n1", content_type: NAS_5G, octets: b"\x01\r\n\r\n\x02" };
        assert_eq!((read.part("n1"), read.part("<n1>")), (Some(&n1), Some(&n1)));
        assert_eq!(read.part("n2").map(|part| part.octets), Some(&b""[..]));
        assert_eq!(read.part("n3"), None);
    }

    #[test]
    fn what_is_no_body_of_parts_is_refused_by_its_fault() {
        for content_type in [
            "application/json",
            "multipart/related",
            "multipart/related; boundary=",
            "multipart/mixed; boundary=b",
            "multipart/related; boundary=\"a\u{e4}\"",
            &format!("multipart/related; boundary={}", "b".repeat(71)),
        ] {
            assert_eq!(
                Multipart::read(content_type, b"--b--"),
                Err(MultipartError::ContentType),
                "{content_type}"
            );
        }
        let json = "--b\r\nContent-Type: application/json\r\n\r\n{}";
        let part = "\r\n--b\r\nContent-Id: n1\r\n\r\n\x01";
        let many: String = (0..PARTS_MAX).map(|n| format!("\r\n--b\r\nContent-Id: {n}\r\n\r\n")).collect();
        for (body, error) in [
            (String::new(), MultipartError::Truncated),
            ("--b".into(), MultipartError::Truncated),
            ("--b--".into(), MultipartError::NoJson),
            (format!("{json}\r\n"), MultipartError::Truncated),
            (format!("{json}{part}"), MultipartError::Truncated),
            ("--b\r\nContent-Type: text/plain\r\n\r\n{}\r\n--b--".into(), MultipartError::NoJson),
            ("--b\r\n\r\n{}\r\n--b--".into(), MultipartError::NoJson),
            ("--b\r\nno header\r\n\r\n{}\r\n--b--".into(), MultipartError::Headers),
            ("--b\r\nA: b\r\n--b--".into(), MultipartError::Headers),
            (
                format!("--b\r\nA: {}\r\n\r\n{{}}\r\n--b--", "a".repeat(HEADERS_OCTETS_MAX)),
                MultipartError::Headers,
            ),
            (format!("{json}{part}{part}\r\n--b--"), MultipartError::ContentId),
            (format!("{json}\r\n--b\r\n\r\n\x01\r\n--b--"), MultipartError::ContentId),
            (format!("{json}{many}\r\n--b--"), MultipartError::TooManyParts),
        ] {
            assert_eq!(read(&body), Err(error), "{body:?}");
        }
    }

    /// A body that free5GC's client writes (openapi v1.2.5): Nsmf_PDUSession_CreateSMContext of its AMF.
    #[test]
    fn a_body_of_free5gc_is_read() {
        let body = include_bytes!("../testdata/multipart/free5gc-post-sm-contexts.body");
        let content_type = include_str!("../testdata/multipart/free5gc-post-sm-contexts.type").trim();
        let read = Multipart::read(content_type, body).unwrap();
        let data: crate::nsmf_pdu_session::SmContextCreateData = crate::from_slice(read.json).unwrap();
        let reference = data.n1_sm_msg.unwrap().content_id;
        let part = read.part(reference.as_str()).unwrap();
        assert_eq!((part.content_type, part.octets.first(), read.parts.len()), (NAS_5G, Some(&0x2e), 1));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_every_beginning_of_it_is_refused(
            json in "[ -~]{0,40}",
            parts in prop::collection::vec((proptest::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..4),
        ) {
            let parts: Vec<(String, Vec<u8>)> = parts
                .into_iter()
                .enumerate()
                // Some parts have the boundary itself.
                .map(|(n, (octets, has))| (n.to_string(), if has { [&octets[..], b"\r\n--whimbrel-part--"].concat() } else { octets }))
                .collect();
            let part = |(content_id, octets): &'_ (String, Vec<u8>)| -> (String, Vec<u8>) { (content_id.clone(), octets.clone()) };
            let owned: Vec<_> = parts.iter().map(part).collect();
            let parts = owned.iter().map(|(id, octets)| BodyPart { content_id: id, content_type: NGAP, octets });
            let multipart = Multipart { json: json.as_bytes(), parts: parts.collect() };
            let (content_type, body) = multipart.write();
            prop_assert_eq!(Multipart::read(&content_type, &body), Ok(multipart));
            for end in 0..body.len() - 4 {
                prop_assert!(Multipart::read(&content_type, &body[..end]).is_err());
            }
        }

        #[test]
        fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..200), content_type in "[ -~]{0,60}") {
            let _ = Multipart::read(&content_type, &octets);
            let body = [b"--b\r\n", &octets[..], b"\r\n--b--"].concat();
            let _ = Multipart::read(TYPE, &body);
        }
    }
}
