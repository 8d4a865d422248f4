//! Elements that are names.

use core::fmt;

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::Ie;
use crate::error::Error;

/// Longest name taken, octets: a domain name's 255 (RFC 1035 §2.3.4).
const NAME_OCTETS_MAX: usize = 255;

/// Reads a name that is DNS labels or, as some peers send it, plain text.
pub(crate) fn read_name(octets: &[u8], ie: &'static str, at: usize) -> Result<String, Error> {
    if octets.is_empty() || octets.len() > NAME_OCTETS_MAX {
        return Err(Error::new(DecodeErrorKind::InvalidLength, ie, at));
    }
    let plain =
        || core::str::from_utf8(octets).ok().filter(|s| !s.chars().any(char::is_control)).map(str::to_owned);
    labels(octets).or_else(plain).ok_or(Error::new(DecodeErrorKind::InvalidValue, ie, at))
}

/// The labels joined by dots, if the octets are exactly labels (a closing root label is allowed).
fn labels(octets: &[u8]) -> Option<String> {
    let octets = octets.strip_suffix(&[0]).unwrap_or(octets);
    let mut name = String::with_capacity(octets.len());
    let mut rest = octets;
    while let Some((&len, tail)) = rest.split_first() {
        let label = tail.get(..usize::from(len)).filter(|l| (1..=63).contains(&l.len()))?;
        if !label.iter().all(|c| c.is_ascii_graphic() && *c != b'.') {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(core::str::from_utf8(label).ok()?);
        rest = &tail[label.len()..];
    }
    (!name.is_empty()).then_some(name)
}

/// Writes a name as labels where it is a domain name, as plain text otherwise.
pub(crate) fn write_labels(name: &str, out: &mut Vec<u8>) {
    let fits = |l: &str| (1..=63).contains(&l.len()) && l.bytes().all(|c| c.is_ascii_graphic());
    if !name.split('.').all(fits) {
        out.extend_from_slice(name.as_bytes());
        return;
    }
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
}

/// Network Instance (TS 29.244 §8.2.4): which of the UP function's networks a packet comes from or goes to.
///
/// Sent as labels, as a DNN is; read as labels or plain text. Comparison ignores case: held in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetworkInstance(Box<str>);

impl NetworkInstance {
    /// `None` if the name is empty, over 254 octets, or holds control characters.
    pub fn new(name: &str) -> Option<Self> {
        let ok = !name.is_empty() && name.len() < NAME_OCTETS_MAX && !name.chars().any(char::is_control);
        ok.then(|| Self(name.to_ascii_lowercase().into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NetworkInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Ie for NetworkInstance {
    const NAME: &'static str = "Network Instance";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        Ok(Self(read_name(r.take_rest(), Self::NAME, at)?.to_ascii_lowercase().into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        write_labels(&self.0, out);
    }
}

/// Name of rules that the UP function was configured with (TS 29.244 §8.2.72, §8.2.73).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredefinedRules(pub Box<str>);

impl Ie for PredefinedRules {
    const NAME: &'static str = "Predefined Rules Name";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let at = r.offset();
        Ok(Self(text(r.take_rest(), Self::NAME, at)?.into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.as_bytes());
    }
}

/// Name of a pool of UE addresses at the UP function (table 8.1.2-1, type 177).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UeIpAddressPoolIdentity(pub Box<str>);

impl Ie for UeIpAddressPoolIdentity {
    const NAME: &'static str = "UE IP Address Pool Identity";
    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let len = r.u16(Self::NAME)?;
        let at = r.offset();
        Ok(Self(text(r.take(len.into(), Self::NAME)?, Self::NAME, at)?.into()))
    }
    fn write(&self, out: &mut Vec<u8>) {
        // Cut, never wrapped.
        let name = &self.0.as_bytes()[..self.0.len().min(NAME_OCTETS_MAX)];
        out.extend_from_slice(&(name.len() as u16).to_be_bytes());
        out.extend_from_slice(name);
    }
}

/// Plain text of an element.
pub(crate) fn text<'a>(octets: &'a [u8], ie: &'static str, at: usize) -> Result<&'a str, Error> {
    core::str::from_utf8(octets).map_err(|_| Error::new(DecodeErrorKind::InvalidValue, ie, at))
}
