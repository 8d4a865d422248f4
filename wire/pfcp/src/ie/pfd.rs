//! PFD Contents: how an application's packets are detected.

use whimbrel_ids::{DecodeErrorKind, Reader};

use crate::codec::Ie;
use crate::error::Error;
use crate::ie::identity::text;

/// Values of one kind in one PFD, at most. With the bounds below a PFD always fits into its element.
const VALUES_MAX: usize = 32;
/// Octets of a value, at most: a domain name has 255, a flow description of eight ports each way fewer than 300.
const VALUE_OCTETS_MAX: usize = 448;
/// Octets of custom content, at most; it is not interpreted here.
const CUSTOM_OCTETS_MAX: usize = 4_096;

/// One packet flow description (TS 29.244 §8.2.39). A packet matches if it meets one value of each kind given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PfdContents {
    /// IPFilterRules, as of an SDF filter.
    pub flow_descriptions: Vec<Box<str>>,
    /// Significant parts of URLs.
    pub urls: Vec<Box<str>>,
    /// Domain names, and the protocol field that has them.
    pub domain_names: Vec<PfdDomainName>,
    /// Custom content of operator and vendor.
    pub custom: Option<Box<[u8]>>,
}

/// A domain name of a PFD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PfdDomainName {
    /// The name, or an expression for several.
    pub name: Box<str>,
    /// Where it is looked for, in the words of TS 29.122 §5.14.2.2: `DNS_QNAME`, `TLS_SNI`, `TLS_SAN` or `TLS_SCN`. Without: anywhere.
    pub protocol: Option<Box<str>>,
}

mod flag {
    pub(super) const FD: u8 = 1;
    pub(super) const URL: u8 = 1 << 1;
    pub(super) const DN: u8 = 1 << 2;
    pub(super) const CP: u8 = 1 << 3;
    pub(super) const DNP: u8 = 1 << 4;
    pub(super) const AFD: u8 = 1 << 5;
    pub(super) const AURL: u8 = 1 << 6;
    pub(super) const ADNP: u8 = 1 << 7;
}

const NAME: &str = "PFD Contents";

/// A length in two octets, and as many octets.
fn octets<'a>(r: &mut Reader<'a>, most: usize) -> Result<&'a [u8], Error> {
    let len = usize::from(r.u16(NAME)?);
    if len > most {
        return Err(Error::new(DecodeErrorKind::InvalidLength, NAME, r.offset()));
    }
    Ok(r.take(len, NAME)?)
}

fn word(r: &mut Reader<'_>) -> Result<Box<str>, Error> {
    let at = r.offset();
    Ok(text(octets(r, VALUE_OCTETS_MAX)?, NAME, at)?.into())
}

/// The further values of a kind, within a length of their own.
fn further<T>(
    r: &mut Reader<'_>,
    list: &mut Vec<T>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Error>,
) -> Result<(), Error> {
    let len = r.u16(NAME)?;
    let mut r = r.sub(len.into(), NAME)?;
    while !r.is_empty() {
        if list.len() == VALUES_MAX {
            return Err(Error::new(DecodeErrorKind::TooMany, NAME, r.offset()));
        }
        list.push(read(&mut r)?);
    }
    Ok(())
}

/// The value after the name: text, or no octets if there is none.
fn protocol(r: &mut Reader<'_>) -> Result<Option<Box<str>>, Error> {
    Ok(Some(word(r)?).filter(|w| !w.is_empty()))
}

impl Ie for PfdContents {
    const NAME: &'static str = NAME;

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let flags = r.u8(NAME)?;
        r.u8(NAME)?; // spare
        let has = |bit: u8| flags & bit != 0;
        let mut c = Self::default();
        if has(flag::FD) {
            c.flow_descriptions.push(word(r)?);
        }
        if has(flag::URL) {
            c.urls.push(word(r)?);
        }
        let first = if has(flag::DN) { Some(word(r)?) } else { None };
        if has(flag::CP) {
            c.custom = Some(octets(r, CUSTOM_OCTETS_MAX)?.into());
        }
        let of_first = if has(flag::DNP) { protocol(r)? } else { None };
        c.domain_names.extend(first.map(|name| PfdDomainName { name, protocol: of_first }));
        if has(flag::AFD) {
            further(r, &mut c.flow_descriptions, word)?;
        }
        if has(flag::AURL) {
            further(r, &mut c.urls, word)?;
        }
        if has(flag::ADNP) {
            further(r, &mut c.domain_names, |r| {
                Ok(PfdDomainName { name: word(r)?, protocol: protocol(r)? })
            })?;
        }
        Ok(c)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (flow, flows) = ends(&self.flow_descriptions);
        let (url, urls) = ends(&self.urls);
        let (name, names) = ends(&self.domain_names);
        let protocol = name.and_then(|n| n.protocol.as_ref());
        let bits = [
            (flow.is_some(), flag::FD),
            (url.is_some(), flag::URL),
            (name.is_some(), flag::DN),
            (self.custom.is_some(), flag::CP),
            (protocol.is_some(), flag::DNP),
            (!flows.is_empty(), flag::AFD),
            (!urls.is_empty(), flag::AURL),
            (!names.is_empty(), flag::ADNP),
        ];
        let flags = bits.iter().filter(|(there, _)| *there).fold(0, |flags, (_, bit)| flags | bit);
        out.extend_from_slice(&[flags, 0]);
        let first = [flow, url, name.map(|n| &n.name)];
        first.into_iter().flatten().for_each(|w| write_value(w, out));
        if let Some(custom) = &self.custom {
            write_octets(&custom[..custom.len().min(CUSTOM_OCTETS_MAX)], out);
        }
        if let Some(protocol) = protocol {
            write_value(protocol, out);
        }
        for more in [flows, urls].into_iter().filter(|more| !more.is_empty()) {
            let mut list = Vec::new();
            more.iter().for_each(|w| write_value(w, &mut list));
            write_octets(&list, out);
        }
        if !names.is_empty() {
            let mut list = Vec::new();
            for n in names {
                write_value(&n.name, &mut list);
                write_value(n.protocol.as_deref().unwrap_or_default(), &mut list);
            }
            write_octets(&list, out);
        }
    }
}

/// The first, which has a field of its own, and the others, of which those beyond the bound are left out.
fn ends<T>(list: &[T]) -> (Option<&T>, &[T]) {
    list.get(..VALUES_MAX)
        .unwrap_or(list)
        .split_first()
        .map_or((None, &[]), |(first, rest)| (Some(first), rest))
}

fn write_value(value: &str, out: &mut Vec<u8>) {
    // Cut, never wrapped.
    write_octets(&value.as_bytes()[..value.len().min(VALUE_OCTETS_MAX)], out);
}

fn write_octets(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(octets.len() as u16).to_be_bytes());
    out.extend_from_slice(octets);
}
