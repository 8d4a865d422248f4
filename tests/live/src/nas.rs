//! NAS messages by hand: each that a UE can send, with little but valid content (TS 24.501 §8.2, §8.3), and some that
//! only the network sends.

use crate::mutate;
use crate::rng::Rng;

/// The PLMN of the run, 999/70, as octets.
const PLMN: [u8; 3] = [0x99, 0xf9, 0x07];

/// Names that a message may bear.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// 5G-S-TMSIs heard in pagings or had by UEs: set and pointer, TMSI.
    pub(crate) tmsis: Vec<[u8; 6]>,
    /// The last ten digits of subscribers' IMSIs, canaries among them.
    pub(crate) msins: Vec<[u8; 5]>,
}

/// A plain 5GMM message, perhaps altered.
pub(crate) fn message(rng: &mut Rng, names: &Names) -> Vec<u8> {
    let mut m = valid(rng, names);
    match rng.below(4) {
        // Its mandatory parts missing.
        0 => {
            let keep = 3 + rng.below(m.len().saturating_sub(2));
            m.truncate(keep);
        }
        1 => mutate::octets(rng, &mut m),
        _ => {}
    }
    m
}

/// A plain 5GMM message as it should be.
pub(crate) fn valid(rng: &mut Rng, names: &Names) -> Vec<u8> {
    let mm = |kind: u8, body: &[u8]| [&[0x7e, 0x00, kind], body].concat();
    match rng.below(26) {
        0 | 1 => {
            let registration_type = [0x79, 0x7a, 0x7b, 0x01, 0x0a, 0x78, 0x7f][rng.below(7)];
            let identity = lv_e(&identity(rng, names));
            mm(0x41, &[&[registration_type][..], &identity, &[0x2e, 0x04, 0xf0, 0x70, 0xf0, 0x70]].concat())
        }
        2 => mm(0x43, &[]),
        3 => mm(0x45, &[&[0x01 | (rng.below(16) << 3) as u8][..], &lv_e(&identity(rng, names))].concat()),
        4 => mm(0x48, &[]),
        5 => mm(0x4c, &[&[(rng.below(11) << 4) as u8][..], &lv_e(&tmsi(rng, names))].concat()),
        6 => {
            mm(0x4c, &[&[0x10][..], &lv_e(&tmsi(rng, names)), &[0x40, 2, 0xff, 0xff, 0x50, 2, 0, 0]].concat())
        }
        7 => mm(0x55, &[]),
        8 => mm(0x57, &[&[0x2d, 0x10][..], &rng.octets(16)].concat()),
        9 => mm(0x59, &[0x14]),
        10 => mm(0x59, &[&[0x15, 0x30, 0x0e][..], &rng.octets(14)].concat()),
        11 => mm(0x59, &[[0x14, 0x15, 0x47, 0x1a][rng.below(4)]]),
        12 => mm(0x5c, &lv_e(&identity(rng, names))),
        13 => mm(0x5e, &[]),
        14 => {
            let inner = valid(rng, names);
            mm(0x5e, &[&[0x71][..], &lv_e(&inner)].concat())
        }
        15 => mm(0x5f, &[0x18]),
        16 => mm(0x64, &[rng.number() as u8]),
        17 => mm(0x66, &[]),
        18..=22 => {
            let (psi, sm) = session(rng);
            let payload_type = if rng.once_in(6) { rng.below(16) as u8 } else { 1 };
            let request = 0x80 | [1, 1, 1, 2, 3, 5][rng.below(6)];
            mm(0x67, &[&[payload_type][..], &lv_e(&sm), &[0x12, psi, request]].concat())
        }
        23 => {
            let inner = valid(rng, names);
            mm(0x67, &[&[0x0f, 0, (inner.len() + 4) as u8, 1, 0, inner.len() as u8][..], &inner].concat())
        }
        // Messages that only the network sends, and unassigned types.
        24 => mm(
            [0x42, 0x44, 0x4d, 0x4e, 0x54, 0x56, 0x58, 0x5b, 0x5d, 0x68, 0x47, 0x46][rng.below(12)],
            &[0; 20],
        ),
        _ => {
            let n = rng.below(20);
            mm(rng.number() as u8, &rng.octets(n))
        }
    }
}

/// A 5GSM message and the session that it is of.
fn session(rng: &mut Rng) -> (u8, Vec<u8>) {
    let psi = if rng.once_in(6) { rng.number() as u8 } else { 1 + rng.below(4) as u8 };
    let pti = if rng.once_in(6) { [0, 255][rng.below(2)] } else { 1 + rng.below(6) as u8 };
    let sm = |kind: u8, body: &[u8]| [&[0x2e, psi, pti, kind], body].concat();
    let body = match rng.below(10) {
        0..=2 => {
            let session_type = 0x90 | rng.below(8) as u8;
            let pco = [0x7b, 0x00, 0x04, 0x80, 0x00, 0x0d, 0x00];
            sm(
                0xc1,
                &[&[0xff, 0xff, session_type, 0xa1][..], if rng.once_in(2) { &pco } else { &[] }].concat(),
            )
        }
        3 => sm(0xc9, &[]),
        4 => {
            // Modification with a rule and a flow description asked for.
            let rule = [0x7a, 0x00, 0x09, 0x01, 0x00, 0x06, 0x31, 0x31, 0x01, 0x01, 0x09, 0x01];
            sm(0xc9, &[&rule[..], &[0x79, 0x00, 0x06, 0x01, 0x20, 0x41, 0x01, 0x01, 0x09]].concat())
        }
        5 => sm(0xcc, &[]),
        6 => sm(0xcd, &[0x1a]),
        7 => sm(0xd1, &[]),
        8 => sm(0xd4, &[]),
        _ => sm(0xd6, &[[0x51, 0x2b, 0x2f, 0x6f][rng.below(4)]]),
    };
    (psi, body)
}

fn identity(rng: &mut Rng, names: &Names) -> Vec<u8> {
    match rng.below(5) {
        0 => tmsi(rng, names),
        1 => {
            let t = tmsi(rng, names);
            [&[0xf2][..], &PLMN, &[[1, 0, 2][rng.below(3)]], t.get(1..).unwrap_or_default()].concat()
        }
        2 => vec![0x00],
        3 => [&[0x05][..], &rng.octets(8)].concat(),
        _ => {
            let msin = names.msins.get(rng.below(names.msins.len())).copied().unwrap_or_default();
            [&[0x01][..], &PLMN, &[0xf0, 0xff, 0x00, 0x00], &msin].concat()
        }
    }
}

fn tmsi(rng: &mut Rng, names: &Names) -> Vec<u8> {
    let known = names.tmsis.get(rng.below(names.tmsis.len())).copied();
    let name = known.filter(|_| !rng.once_in(4)).unwrap_or_else(|| {
        let o = rng.octets(4);
        [0x00, 0x40, o[0], o[1], o[2], o[3]]
    });
    [&[0xf4][..], &name].concat()
}

fn lv_e(value: &[u8]) -> Vec<u8> {
    [&(value.len() as u16).to_be_bytes()[..], value].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Most are what the codec takes: a fuzzer that is turned away at the door finds nothing.
    #[test]
    fn most_are_read_by_the_codec() {
        let names = Names { tmsis: vec![[0, 0x40, 1, 2, 3, 4]], msins: vec![[0x10; 5]] };
        let mut rng = Rng::new(9);
        let read =
            (0..2000).filter(|_| whimbrel_nas::mm::Message::decode(&valid(&mut rng, &names)).is_ok()).count();
        assert!(read > 1300, "{read} of 2000");
    }
}
