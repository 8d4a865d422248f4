//! One DNS question and its answer: RFC 1035 §4, RFC 3596.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use whimbrel_ids::{DecodeError, DecodeErrorKind, Reader};

const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
const CLASS_IN: u16 = 1;
/// Limit of evaluated records: more than 512 octets can hold.
const RECORDS_MAX: u16 = 64;

/// A query for the addresses of a name; `None` if it is invalid (RFC 1035 §2.3.4: labels up to 63 octets, 255 in all).
pub(super) fn query(id: u16, name: &str, ipv6: bool) -> Option<Vec<u8>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return None;
    }
    let mut out = Vec::with_capacity(name.len() + 18);
    out.extend_from_slice(&id.to_be_bytes());
    // Recursion desired; one question.
    out.extend_from_slice(&[0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        let len = u8::try_from(label.len()).ok().filter(|n| (1..=63).contains(n))?;
        out.push(len);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&(if ipv6 { TYPE_AAAA } else { TYPE_A }).to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    Some(out)
}

/// An answer: the response code, and the addresses of the requested type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsAnswer {
    pub(super) rcode: u8,
    pub(super) addresses: Vec<IpAddr>,
}

/// Decodes the answer to the query `id`. Errors: invalid, or of another query.
pub(super) fn answer(id: u16, octets: &[u8]) -> Result<DnsAnswer, DecodeError> {
    let mut r = Reader::new(octets);
    let wrong = r.error(DecodeErrorKind::InvalidValue, "DNS header");
    if r.u16("DNS ID")? != id {
        return Err(wrong);
    }
    let flags = r.u16("DNS flags")?;
    if flags & 0x8000 == 0 {
        return Err(wrong);
    }
    let (questions, answers) = (r.u16("QDCOUNT")?, r.u16("ANCOUNT")?);
    r.u32("NSCOUNT, ARCOUNT")?;
    for _ in 0..questions.min(RECORDS_MAX) {
        skip_name(&mut r)?;
        r.u32("QTYPE, QCLASS")?;
    }
    let mut addresses = Vec::new();
    for _ in 0..answers.min(RECORDS_MAX) {
        skip_name(&mut r)?;
        let kind = r.u16("TYPE")?;
        r.take(6, "CLASS, TTL")?;
        let len = r.u16("RDLENGTH")?;
        let mut data = r.sub(usize::from(len), "RDATA")?;
        match (kind, len) {
            (TYPE_A, 4) => addresses.push(Ipv4Addr::from(data.array::<4>("A")?).into()),
            (TYPE_AAAA, 16) => addresses.push(Ipv6Addr::from(data.array::<16>("AAAA")?).into()),
            _ => {}
        }
    }
    Ok(DnsAnswer { rcode: (flags & 0xf) as u8, addresses })
}

/// Skips a name; a compression pointer ends it (RFC 1035 §4.1.4).
fn skip_name(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    loop {
        match r.u8("NAME")? {
            0 => return Ok(()),
            n if n & 0xc0 == 0xc0 => return r.u8("NAME").map(|_| ()),
            n => r.take(usize::from(n), "NAME").map(|_| ())?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // RFC 1035 §4
    fn question_and_answer() {
        let query = query(0x1234, "www.example.test", false).unwrap();
        assert_eq!(query.len(), 12 + 18 + 4);
        let mut answer_octets = query.clone();
        answer_octets[2] = 0x81;
        answer_octets[7] = 1;
        answer_octets.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1]);
        let expected = DnsAnswer { rcode: 0, addresses: vec![[192, 0, 2, 1].into()] };
        assert_eq!(answer(0x1234, &answer_octets), Ok(expected));
        assert!(answer(0x1235, &answer_octets).is_err());
        assert!(answer(0x1234, &query).is_err());
    }

    #[test]
    fn names_that_are_none() {
        for bad in ["", ".", "a..b", &"x".repeat(64), &"ab.".repeat(90)] {
            assert_eq!(query(1, bad, true), None, "{bad:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn any_octets_are_read_to_an_end(octets: Vec<u8>) {
            let _ = answer(0, &octets);
        }
    }
}
