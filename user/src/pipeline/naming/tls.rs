//! The server name of a TLS ClientHello (RFC 8446 §4.1.2, RFC 6066 §3), as far as one packet has it.

use super::name::Name;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Extensions that are looked at: a browser sends some twenty.
const EXTENSIONS_MAX: usize = 64;

/// Whether it may be one, by its first octets.
#[inline]
pub(super) fn may_be_hello(payload: &[u8]) -> bool {
    matches!(payload, [HANDSHAKE, 3, _, _, _, CLIENT_HELLO, ..])
}

/// The name that a greeting at the beginning of a segment names. A greeting that goes on in the next segment is read as far as it is here.
pub(super) fn server_name(payload: &[u8]) -> Option<Name> {
    if !may_be_hello(payload) {
        return None;
    }
    // Record and handshake header, version and random.
    let mut rest = payload.get(5 + 4 + 2 + 32..)?;
    take_counted::<1>(&mut rest)?; // session identifier
    take_counted::<2>(&mut rest)?; // cipher suites
    take_counted::<1>(&mut rest)?; // compression methods
    let len = usize::from(u16::from_be_bytes(*take(&mut rest, 2)?.first_chunk()?));
    let mut extensions = rest.get(..len).unwrap_or(rest);
    for _ in 0..EXTENSIONS_MAX {
        let kind = u16::from_be_bytes(*take(&mut extensions, 2)?.first_chunk()?);
        let mut data = take_counted::<2>(&mut extensions)?;
        if kind == SERVER_NAME {
            let mut list = take_counted::<2>(&mut data)?;
            // RFC 6066 §3: there is one of each type, and no other type.
            let host = take(&mut list, 1)? == [HOST_NAME];
            let name = take_counted::<2>(&mut list)?;
            return host.then(|| Name::of_text(name))?;
        }
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(n)?;
    *rest = left;
    Some(taken)
}

/// What stands behind its length, which is of so many octets.
fn take_counted<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take(rest, N)?.iter().fold(0, |len, octet| len << 8 | usize::from(*octet));
    take(rest, len)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn counted2(octets: &[u8]) -> Vec<u8> {
        [&(octets.len() as u16).to_be_bytes()[..], octets].concat()
    }

    /// A greeting with an extension before the name's.
    pub(in crate::pipeline::naming) fn hello(name: &[u8]) -> Vec<u8> {
        let entry = [&[HOST_NAME][..], &counted2(name)].concat();
        let extension = [vec![0, 0], counted2(&counted2(&entry))].concat();
        let extensions = [vec![0, 43, 0, 3, 2, 3, 4], extension].concat();
        let body =
            [&[3, 3][..], &[7; 32], &[2, 9, 9], &[0, 4, 0x13, 1, 0x13, 2], &[1, 0], &counted2(&extensions)]
                .concat();
        let handshake = [&[CLIENT_HELLO, 0][..], &counted2(&body)].concat();
        [&[HANDSHAKE, 3, 1][..], &counted2(&handshake)].concat()
    }

    #[test]
    fn a_greeting_names_its_server() {
        let m = hello(b"WWW.video.Example");
        assert_eq!(server_name(&m).map(|n| n.octets().to_vec()), Some(b"www.video.example".to_vec()));
        assert!(server_name(&hello(b"")).is_none());
        assert!(server_name(&hello(b"a b")).is_none());
        assert!(server_name(&hello(&[b'a'; 300])).is_none());
    }

    #[test]
    fn one_that_is_cut_names_none_until_its_name_is_whole() {
        let m = hello(b"video.example");
        let found: Vec<bool> = (0..=m.len()).map(|n| server_name(&m[..n]).is_some()).collect();
        assert_eq!(found.iter().filter(|f| **f).count(), 1, "whole alone: the name is its last");
        let mut other = m;
        other[5] = 2;
        assert!(server_name(&other).is_none(), "a server's");
    }
}
