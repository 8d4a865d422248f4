//! Mutations: of octets, of the information elements of NGAP, of the TLVs of PFCP.

use crate::rng::Rng;

/// Octets at which parsers err: bounds of signed and unsigned numbers, of flags and lengths.
const CORNERS: [u8; 9] = [0x00, 0x01, 0x02, 0x7e, 0x7f, 0x80, 0x81, 0xfe, 0xff];
/// What a message may grow to by mutation: more than any peer takes in one piece, little enough to send thousands.
const OCTETS_MAX: usize = 70_000;

/// One to four edits of octets.
pub(crate) fn octets(rng: &mut Rng, m: &mut Vec<u8>) {
    for _ in 0..=rng.below(4) {
        edit(rng, m);
    }
    m.truncate(OCTETS_MAX);
}

fn edit(rng: &mut Rng, m: &mut Vec<u8>) {
    let at = rng.below(m.len());
    let end = (at + 1 + rng.below(8)).min(m.len());
    match rng.below(9) {
        0 | 1 => {
            if let Some(o) = m.get_mut(at) {
                *o ^= 1 << rng.below(8);
            }
        }
        2 | 3 => {
            let corner = CORNERS[rng.below(CORNERS.len())];
            if let Some(o) = m.get_mut(at) {
                *o = corner;
            }
        }
        4 => m.truncate(at),
        5 => drop(m.drain(at.min(end)..end)),
        6 => {
            let piece: Vec<u8> = m.get(at..end).unwrap_or_default().to_vec();
            let times = if rng.once_in(16) { 4000 } else { 1 + rng.below(3) };
            (0..times).for_each(|_| drop(m.splice(at..at, piece.iter().copied())));
        }
        7 => {
            let n = rng.below(6);
            let piece = rng.octets(n);
            m.splice(at..at, piece);
        }
        _ => {
            let to = rng.below(m.len());
            let piece: Vec<u8> = m.get(at..end).unwrap_or_default().to_vec();
            for (o, new) in m.iter_mut().skip(to).zip(piece) {
                *o = new;
            }
        }
    }
}

/// An element of an NGAP message: identifier, criticality in the upper bits, value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) id: u16,
    pub(crate) criticality: u8,
    pub(crate) value: Vec<u8>,
}

/// An NGAP message taken apart as far as its elements (X.691; TS 38.413 §9.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pdu {
    /// Initiating 0x00, successful 0x20, unsuccessful 0x40; procedure code; criticality.
    pub(crate) head: [u8; 3],
    pub(crate) elements: Vec<Element>,
}

impl Pdu {
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let (head, rest) = octets.split_first_chunk::<3>()?;
        let (body, _) = open_type(rest)?;
        let (&[_, hi, lo], mut rest) = body.split_first_chunk::<3>()?;
        let mut elements = Vec::new();
        for _ in 0..u16::from_be_bytes([hi, lo]) {
            let (&[a, b, criticality], after) = rest.split_first_chunk::<3>()?;
            let (value, after) = open_type(after)?;
            elements.push(Element { id: u16::from_be_bytes([a, b]), criticality, value: value.to_vec() });
            rest = after;
        }
        Some(Self { head: *head, elements })
    }

    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let count = u16::try_from(self.elements.len()).unwrap_or(u16::MAX);
        let mut body = vec![0];
        body.extend_from_slice(&count.to_be_bytes());
        for e in &self.elements {
            body.extend_from_slice(&e.id.to_be_bytes());
            body.push(e.criticality);
            length(&mut body, e.value.len());
            body.extend_from_slice(&e.value);
        }
        let mut octets = self.head.to_vec();
        length(&mut octets, body.len());
        octets.extend_from_slice(&body);
        octets
    }

    /// Puts another value into an element, if it is there.
    pub(crate) fn set(&mut self, id: u16, value: &[u8]) {
        for e in self.elements.iter_mut().filter(|e| e.id == id) {
            e.value = value.to_vec();
        }
    }

    pub(crate) fn value(&self, id: u16) -> Option<&[u8]> {
        self.elements.iter().find(|e| e.id == id).map(|e| e.value.as_slice())
    }
}

/// What a length determinant announces, if it is not in fragments (X.691 §11.9.3).
fn open_type(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = octets.split_first()?;
    let (n, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x80..=0xbf => {
            let (&second, rest) = rest.split_first()?;
            (usize::from(first & 0x3f) << 8 | usize::from(second), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(n)
}

fn length(out: &mut Vec<u8>, n: usize) {
    match n {
        0..=0x7f => out.push(n as u8),
        _ => out.extend_from_slice(&[0x80 | (n >> 8 & 0x3f) as u8, n as u8]),
    }
}

/// Mutates an NGAP message: its elements where it can be taken apart, else its octets.
pub(crate) fn ngap(rng: &mut Rng, m: &mut Vec<u8>) {
    let Some(mut pdu) = Pdu::parse(m).filter(|_| !rng.once_in(4)) else { return octets(rng, m) };
    for _ in 0..=rng.below(3) {
        elements(rng, &mut pdu);
    }
    *m = pdu.to_octets();
    if rng.once_in(8) {
        octets(rng, m);
    }
}

fn elements(rng: &mut Rng, pdu: &mut Pdu) {
    let n = pdu.elements.len();
    let (at, other) = (rng.below(n), rng.below(n));
    if n == 0 {
        return pdu.elements.push(Element { id: rng.number() as u16, criticality: 0, value: vec![0] });
    }
    match rng.below(12) {
        0 => drop(pdu.elements.remove(at)),
        1 => {
            let twin = pdu.elements[at].clone();
            pdu.elements.insert(other, twin);
        }
        2 => pdu.elements.swap(at, other),
        3 => pdu.elements[at].id = rng.below(400) as u16,
        4 => pdu.elements[at].criticality = (rng.below(4) << 6) as u8,
        5 | 6 => octets(rng, &mut pdu.elements[at].value),
        7 => {
            let size = if rng.once_in(8) { 12_000 } else { 12 };
            let size = rng.below(size);
            pdu.elements[at].value = rng.octets(size);
        }
        8 => pdu.elements[at].value = pdu.elements[other].value.clone(),
        9 => pdu.head[1] = rng.below(70) as u8,
        10 => pdu.head[0] = [0x00, 0x20, 0x40, 0x60][rng.below(4)],
        _ => {
            let (id, size) = (rng.number() as u16, rng.below(20));
            let strange = Element { id, criticality: (rng.below(3) << 6) as u8, value: rng.octets(size) };
            pdu.elements.insert(at, strange);
        }
    }
}

/// Mutates a PFCP message (TS 29.244 §5.4, §8.1.1): one of its elements at any depth, the header, or its octets.
pub(crate) fn pfcp(rng: &mut Rng, m: &mut Vec<u8>) {
    if rng.once_in(4) {
        return octets(rng, m);
    }
    let header = if m.first().is_some_and(|o| o & 1 == 1) { 16 } else { 8 };
    let Some((head, body)) = m.split_at_checked(header) else { return octets(rng, m) };
    let (mut head, mut body) = (head.to_vec(), body.to_vec());
    (0..=rng.below(3)).for_each(|_| tlv(rng, &mut body, 0));
    if rng.once_in(8) {
        head[1] = rng.number() as u8;
    }
    let octets_long = u16::try_from(head.len() + body.len() - 4).unwrap_or(u16::MAX);
    head[2..4].copy_from_slice(&octets_long.to_be_bytes());
    if rng.once_in(12) {
        let at = rng.below(head.len());
        head[at] ^= 1 << rng.below(8);
    }
    head.extend_from_slice(&body);
    *m = head;
}

fn tlv(rng: &mut Rng, m: &mut Vec<u8>, depth: usize) {
    let mut all = Vec::new();
    let mut rest = m.as_slice();
    while let Some((&[a, b, c, d], after)) = rest.split_first_chunk::<4>() {
        let Some((value, after)) = after.split_at_checked(usize::from(u16::from_be_bytes([c, d]))) else {
            break;
        };
        all.push((u16::from_be_bytes([a, b]), value.to_vec()));
        rest = after;
    }
    let (at, other) = (rng.below(all.len()), rng.below(all.len()));
    let most = if rng.once_in(8) { 3000 } else { 12 };
    let size = rng.below(most);
    if all.is_empty() {
        return octets(rng, m);
    }
    match rng.below(10) {
        0 => drop(all.remove(at)),
        1 => {
            let twin = all[at].clone();
            all.insert(other, twin);
        }
        2 => all.swap(at, other),
        3 => all[at].0 = rng.below(330) as u16,
        4 => all[at].1 = rng.octets(size),
        5 => all[at].1.clear(),
        6 => {
            // A group within itself.
            let mut group = all[at].0.to_be_bytes().to_vec();
            group.extend_from_slice(&(all[at].1.len() as u16).to_be_bytes());
            group.extend_from_slice(&all[at].1);
            all[at].1 = group;
        }
        7 | 8 if depth < 3 && all[at].1.len() > 8 => tlv(rng, &mut all[at].1, depth + 1),
        _ => octets(rng, &mut all[at].1),
    }
    m.clear();
    for (kind, value) in all {
        m.extend_from_slice(&kind.to_be_bytes());
        m.extend_from_slice(&(value.len() as u16).to_be_bytes());
        m.extend_from_slice(&value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_taken_apart_is_put_together_again() {
        let mut source = whimbrel_ngap::Source::without_fragments(7);
        for _ in 0..500 {
            let octets = whimbrel_ngap::Message::sample(&mut source).to_vec();
            if octets.len() < 16_000 {
                assert_eq!(Pdu::parse(&octets).expect("a message").to_octets(), octets);
            }
        }
    }

    #[test]
    fn mutations_end_whatever_they_meet() {
        let mut rng = Rng::new(3);
        for n in 0..3000 {
            let mut m = rng.octets(n % 40);
            ngap(&mut rng, &mut m);
            pfcp(&mut rng, &mut m);
            assert!(m.len() < 300_000);
        }
    }
}
