//! An NGAP message taken apart, to be put together as no encoder would (TS 38.413 §9.4, X.691 §11.9).

/// Kind, procedure and criticality; then the elements: identifier and criticality, value.
#[derive(Clone)]
pub(crate) struct Pdu {
    pub(crate) head: Vec<u8>,
    pub(crate) elements: Vec<([u8; 3], Vec<u8>)>,
}

impl Pdu {
    pub(crate) fn of(octets: &[u8]) -> Self {
        Self::parse(octets).expect("a message without fragments")
    }

    fn parse(octets: &[u8]) -> Option<Self> {
        let (&[_, hi, lo], mut rest) = open(octets.get(3..)?)?.0.split_first_chunk::<3>()?;
        let mut elements = Vec::new();
        for _ in 0..u16::from_be_bytes([hi, lo]) {
            let (head, after) = rest.split_first_chunk::<3>()?;
            let (value, after) = open(after)?;
            elements.push((*head, value.to_vec()));
            rest = after;
        }
        Some(Self { head: octets.get(..3)?.to_vec(), elements })
    }

    /// The value of an element.
    pub(crate) fn value(&self, id: u16) -> Option<&[u8]> {
        self.elements.iter().find(|(head, _)| head[..2] == id.to_be_bytes()).map(|(_, v)| v.as_slice())
    }

    /// Gives an element another value.
    pub(crate) fn set(&mut self, id: u16, value: &[u8]) {
        for (head, old) in &mut self.elements {
            if head[..2] == id.to_be_bytes() {
                *old = value.to_vec();
            }
        }
    }

    /// The message; a length of more than 16,383 goes out in fragments.
    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut body = vec![0];
        body.extend((self.elements.len() as u16).to_be_bytes());
        for (head, value) in &self.elements {
            body.extend(head);
            length(&mut body, value);
        }
        let mut out = self.head.clone();
        length(&mut out, &body);
        out
    }
}

fn open(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n, rest) = match *octets.first()? {
        n @ 0..=0x7f => (usize::from(n), octets.get(1..)?),
        n @ 0x80..=0xbf => (usize::from(n & 0x3f) << 8 | usize::from(*octets.get(1)?), octets.get(2..)?),
        _ => return None,
    };
    rest.split_at_checked(n)
}

fn length(out: &mut Vec<u8>, mut value: &[u8]) {
    while value.len() >= 16_384 {
        let pieces = (value.len() / 16_384).min(4);
        let (fragment, rest) = value.split_at(pieces * 16_384);
        out.push(0xc0 | pieces as u8);
        out.extend(fragment);
        value = rest;
    }
    match value.len() {
        n @ 0..=0x7f => out.push(n as u8),
        n => out.extend([0x80 | (n >> 8) as u8, n as u8]),
    }
    out.extend(value);
}
