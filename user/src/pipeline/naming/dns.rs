//! What UEs ask name servers, and what these answer: as much of RFC 1035 §4 and RFC 3596 as names an address.
//!
//! Whatever the octets are, reading them is bounded: by the records that are looked at, and by pointers, each of which leads
//! further to the front.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::name::Name;

/// The port of name servers.
pub(super) const PORT: u16 = 53;
/// Records of an answer that are read: a few aliases and two dozen addresses fit into what UDP carries.
const RECORDS_MAX: usize = 32;

const HEADER_OCTETS: usize = 12;
const CLASS_IN: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_AAAA: u16 = 28;
/// An answer: QR.
const ANSWER: u16 = 1 << 15;
/// What has to be zero besides: the operation, truncation, the outcome.
const OTHERS: u16 = 0xf << 11 | 1 << 9 | 0xf;

/// A message of one question.
pub(super) struct Message<'a> {
    octets: &'a [u8],
    /// Identifies the question.
    pub(super) id: u16,
    /// What is asked about.
    pub(super) name: Name,
    /// Behind the question.
    at: usize,
    records: u16,
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..at + 2).and_then(|w| w.try_into().ok()).map(u16::from_be_bytes)
}

impl<'a> Message<'a> {
    /// A question about addresses.
    pub(super) fn question(octets: &'a [u8]) -> Option<Self> {
        Self::read(octets, 0)
    }

    /// An answer to one.
    pub(super) fn answer(octets: &'a [u8]) -> Option<Self> {
        Self::read(octets, ANSWER)
    }

    fn read(octets: &'a [u8], kind: u16) -> Option<Self> {
        let flags = word(octets, 2)?;
        if flags & (ANSWER | OTHERS) != kind || word(octets, 4)? != 1 {
            return None;
        }
        let (name, end) = name(octets, HEADER_OCTETS)?;
        let asked = word(octets, end)?;
        let known = matches!(asked, TYPE_A | TYPE_AAAA) && word(octets, end + 2)? == CLASS_IN;
        known.then_some(Self { octets, id: word(octets, 0)?, name, at: end + 4, records: word(octets, 6)? })
    }

    /// The addresses of the name, each with the seconds for which it is to be known. An alias is followed to records behind its own, where
    /// name servers have them.
    pub(super) fn addresses(&self, mut found: impl FnMut(IpAddr, u32)) {
        let (mut at, mut of, mut ttl_max) = (self.at, self.name, u32::MAX);
        for _ in 0..RECORDS_MAX.min(self.records.into()) {
            let Some((owner, r)) = name(self.octets, at) else { return };
            let Some(head) = self.octets.get(r..r + 10) else { return };
            let of_class = [head[2], head[3]] == CLASS_IN.to_be_bytes();
            let ttl = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            // RFC 2181 §8: one with the highest bit is none.
            let ttl = if ttl >> 31 != 0 { 0 } else { ttl }.min(ttl_max);
            let data_at = r + 10;
            at = data_at + usize::from(u16::from_be_bytes([head[8], head[9]]));
            let Some(data) = self.octets.get(data_at..at) else { return };
            if !of_class || owner.octets() != of.octets() {
                continue;
            }
            match (u16::from_be_bytes([head[0], head[1]]), data.len()) {
                (TYPE_A, 4) => found(Ipv4Addr::new(data[0], data[1], data[2], data[3]).into(), ttl),
                (TYPE_AAAA, 16) => {
                    if let Ok(a) = <[u8; 16]>::try_from(data) {
                        found(Ipv6Addr::from(a).into(), ttl);
                    }
                }
                (TYPE_CNAME, _) => {
                    let Some((alias, _)) = name(self.octets, data_at) else { return };
                    (of, ttl_max) = (alias, ttl);
                }
                _ => {}
            }
        }
    }
}

/// A name, and where what stands behind it begins. RFC 1035 §4.1.4: a pointer leads to an earlier name.
fn name(octets: &[u8], at: usize) -> Option<(Name, usize)> {
    let (mut name, mut at, mut end) = (Name::EMPTY, at, None);
    loop {
        let len = usize::from(*octets.get(at)?);
        match len >> 6 {
            0 if len == 0 => return Some((name, end.unwrap_or(at + 1))),
            0 => {
                name.push_label(octets.get(at + 1..at + 1 + len)?)?;
                at += 1 + len;
            }
            3 => {
                let to = usize::from(word(octets, at)? & 0x3fff);
                end = end.or(Some(at + 2));
                // Labels are of one octet at least, and a name of 255 at most, so the steps between two pointers are bounded too.
                at = (to < at).then_some(to)?;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Labels of a name.
    pub(in crate::pipeline::naming) fn labels(name: &str) -> Vec<u8> {
        let label = |l: &str| [&[l.len() as u8], l.as_bytes()].concat();
        [name.split('.').flat_map(label).collect(), vec![0]].concat()
    }

    pub(in crate::pipeline::naming) fn message(
        flags: u16,
        question: &str,
        records: &[(&str, u16, u32, Vec<u8>)],
    ) -> Vec<u8> {
        let mut m: Vec<u8> =
            [7, flags, 1, records.len() as u16, 0, 0].into_iter().flat_map(u16::to_be_bytes).collect();
        m.extend(labels(question));
        m.extend([0, 1, 0, 1]);
        for (owner, kind, ttl, data) in records {
            m.extend(if *owner == question { vec![0xc0, 12] } else { labels(owner) });
            m.extend(kind.to_be_bytes());
            m.extend([0, 1]);
            m.extend(ttl.to_be_bytes());
            m.extend((data.len() as u16).to_be_bytes());
            m.extend(data);
        }
        m
    }

    fn addresses(octets: &[u8]) -> Vec<(IpAddr, u32)> {
        let mut all = Vec::new();
        if let Some(m) = Message::answer(octets) {
            m.addresses(|a, ttl| all.push((a, ttl)));
        }
        all
    }

    #[test]
    fn a_question_has_a_name_and_an_answer_addresses() {
        let q = message(0x0100, "WWW.Video.example", &[]);
        let question = Message::question(&q).expect("a question");
        assert_eq!((question.id, question.name.octets()), (7, &b"www.video.example"[..]));
        assert!(Message::answer(&q).is_none());
        let answer = message(
            0x8180,
            "www.video.example",
            &[
                ("www.video.example", TYPE_CNAME, 30, labels("cdn.example")),
                ("other.example", TYPE_A, 60, vec![192, 0, 2, 9]),
                ("cdn.example", TYPE_A, 60, vec![192, 0, 2, 1]),
                ("cdn.example", TYPE_AAAA, 20, vec![0x20; 16]),
            ],
        );
        assert!(Message::question(&answer).is_none());
        let six = Ipv6Addr::from([0x20; 16]);
        assert_eq!(addresses(&answer), [(Ipv4Addr::new(192, 0, 2, 1).into(), 30), (six.into(), 20)]);
    }

    #[test]
    fn failures_other_classes_and_several_questions_name_nothing() {
        let record = [("a.b", TYPE_A, 60, vec![192, 0, 2, 1])];
        for flags in [0x8183, 0x8380, 0x9180, 0x0100] {
            assert_eq!(addresses(&message(flags, "a.b", &record)), [], "{flags:x}");
        }
        let mut two = message(0x8180, "a.b", &record);
        two[5] = 2;
        assert_eq!(addresses(&two), []);
        let mut chaos = message(0x8180, "a.b", &record);
        let class_at = chaos.len() - 4 - 2 - 4 - 1;
        chaos[class_at] = 3;
        assert_eq!(addresses(&chaos), []);
    }

    #[test]
    fn pointers_that_lead_in_a_circle_or_ahead_end() {
        let mut m = message(0x8180, "a.b", &[("a.b", TYPE_A, 60, vec![192, 0, 2, 1])]);
        let pointer = m.len() - 16;
        assert_eq!(m[pointer], 0xc0);
        m[pointer + 1] = pointer as u8;
        assert_eq!(addresses(&m), [], "to itself");
        m[pointer + 1] = pointer as u8 + 4;
        assert_eq!(addresses(&m), [], "ahead");
        m[HEADER_OCTETS] = 0x80;
        assert!(Message::answer(&m).is_none(), "a label of a kind that there is not");
    }

    #[test]
    fn what_is_cut_anywhere_is_read_to_there() {
        let m = message(
            0x8180,
            "a.b",
            &[("a.b", TYPE_A, 60, vec![192, 0, 2, 1]), ("a.b", TYPE_AAAA, 1, vec![0; 16])],
        );
        let found: Vec<usize> = (0..=m.len()).map(|n| addresses(&m[..n]).len()).collect();
        assert!(found.is_sorted() && found.last() == Some(&2));
    }
}
