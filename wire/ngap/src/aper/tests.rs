//! The encoding rules by themselves, against forms worked out from X.691.

use super::codec::{Bits, BitsExt, Int, IntExt, List, Octets, StringExt};
use super::{Aper, Codec, Fault, Reader, Writer};

fn write<T, C: Codec<T>>(v: &T) -> Vec<u8> {
    let mut out = Vec::new();
    C::write(v, &mut Writer::new(&mut out));
    out
}

fn read<T, C: Codec<T>>(octets: &[u8]) -> Result<T, Fault> {
    C::read(&mut Reader::new(octets, 0, "test"))
}

#[track_caller]
fn both<T: PartialEq + core::fmt::Debug, C: Codec<T>>(v: T, octets: &[u8]) {
    assert_eq!(write::<T, C>(&v), octets);
    assert_eq!(read::<T, C>(octets), Ok(v));
}

#[test]
fn bits_of_any_number_stand_one_behind_the_other() {
    for (before, n, after) in (0..=8).flat_map(|b| (0..=64).flat_map(move |n| [(b, n, 0), (b, n, 13)])) {
        let runs = [(0xa5_u64, before), (0x9234_5678_9abc_def1, n), (0x1fff, after)];
        let runs = runs.map(|(v, n)| (if n == 0 { 0 } else { v & u64::MAX >> (64 - n) }, n));
        let (mut out, mut expected) = (Vec::new(), String::new());
        let mut w = Writer::new(&mut out);
        for (v, n) in runs.into_iter().filter(|(_, n)| *n > 0) {
            w.bits(v, n);
            expected += &format!("{v:0width$b}", width = n as usize);
        }
        let written: String = out.iter().map(|octet| format!("{octet:08b}")).collect();
        assert_eq!(written, format!("{expected:0<width$}", width = expected.len().next_multiple_of(8)));
        let mut r = Reader::new(&out, 0, "test");
        assert_eq!(runs.map(|(_, n)| r.bits(n)), runs.map(|(v, _)| Ok(v)), "{before}, {n} and {after} bits");
        assert!(r.bits(8).is_err(), "fewer are left");
    }
}

#[test] // X.691 §11.5.7.1: a range of up to 255 is a bit field
fn small_ranges_are_bit_fields() {
    both::<u8, Int<0, 7>>(5, &[0b1010_0000]);
    both::<u8, Int<1, 15>>(1, &[0]);
    both::<u8, Int<0, 254>>(254, &[254]);
    both::<u8, Int<7, 7>>(7, &[]);
}

#[test] // X.691 §11.5.7.2, §11.5.7.3: one octet for 256 values, two up to 64 K, aligned
fn middle_ranges_are_aligned_octets() {
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.bit(true);
    <Int<0, 255>>::write(&0xabu8, &mut w);
    w.bit(true);
    <Int<0, 65_535>>::write(&0x1234u16, &mut w);
    assert_eq!(out, [0x80, 0xab, 0x80, 0x12, 0x34]);
}

#[test] // X.691 §11.5.7.4: above 64 K the octets needed, after their number
fn large_ranges_carry_a_length() {
    both::<u32, Int<0, 0xffff_ffff>>(0, &[0x00, 0x00]);
    both::<u32, Int<0, 0xffff_ffff>>(0x0102_0304, &[0xc0, 1, 2, 3, 4]);
    both::<u64, Int<0, 0xff_ffff_ffff>>(1 << 32, &[0x80, 1, 0, 0, 0, 0]);
}

#[test] // X.691 §13.1, §11.8: beyond the root an extensible integer is an unconstrained one
fn extensible_integers() {
    both::<u8, IntExt<0, 63>>(9, &[0b0001_0010]);
    both::<u8, IntExt<0, 63>>(200, &[0x80, 2, 0, 200]);
    both::<u64, IntExt<0, 4_000_000_000_000>>(
        5_000_000_000_000,
        &[0x80, 6, 0x04, 0x8c, 0x27, 0x39, 0x50, 0x00],
    );
    // A negative number, or one beyond 64 bits, is of no use to anyone here.
    assert_eq!(read::<u8, IntExt<0, 63>>(&[0x80, 1, 0xff]), Err(Fault::NotComprehended));
    assert_eq!(
        read::<u64, IntExt<0, 63>>(&[0x80, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(Fault::NotComprehended)
    );
}

#[test] // X.691 §16.9, §16.10: bit strings of more than 16 bits are aligned
fn bit_strings() {
    both::<u16, Bits<10>>(0x3ff, &[0xff, 0xc0]);
    both::<u16, BitsExt<16>>(0xe000, &[0x70, 0x00, 0x00]);
    let mut out = Vec::new();
    let mut w = Writer::new(&mut out);
    w.bit(true);
    <Bits<20>>::write(&0xabcdeu32, &mut w);
    w.bit(true);
    assert_eq!(out, [0x80, 0xab, 0xcd, 0xe8]);
}

#[test] // X.691 §30.5: characters of eight bits, aligned, after a constrained length
fn strings() {
    both::<String, StringExt<1, 150>>("AMF".into(), &[0x01, 0x00, b'A', b'M', b'F']);
    both::<String, StringExt<1, 2>>("AMF".into(), &[0x80, 3, b'A', b'M', b'F']);
    assert_eq!(write::<String, StringExt<1, 150>>(&"Å".into()), [0, 0, b'?']);
    assert_eq!(read::<String, StringExt<1, 150>>(&[0, 0, 0xc5]), Err(Fault::NotComprehended));
}

#[test] // X.691 §11.9.3.8: fragments of 16 K, then the rest, which may be empty
fn fragments() {
    for (n, head, tail) in [(16_383, vec![0xbf, 0xff], 0), (16_384, vec![0xc1], 1), (70_000, vec![0xc4], 2)] {
        let v = vec![7; n];
        let octets = write::<_, Octets>(&v);
        assert!(octets.starts_with(&head));
        assert_eq!(octets.len(), head.len() + n + tail);
        assert_eq!(read::<_, Octets>(&octets), Ok(v));
    }
}

#[test] // X.691 §11.9.4.1: a bound of 64 K or more counts as none
fn long_lists_count_without_bound() {
    both::<Vec<bool>, List<1, 65_536>>(vec![true, false], &[2, 0x80]);
    both::<Vec<bool>, List<1, 65_535>>(vec![true, false], &[0, 1, 0x80]);
    let many = vec![true; 40_000];
    let octets = write::<_, List<1, 65_536>>(&many);
    assert_eq!(octets[0], 0xc2);
    assert_eq!(read::<Vec<bool>, List<1, 65_536>>(&octets), Ok(many));
    assert!(matches!(read::<Vec<bool>, List<1, 65_536>>(&[0]), Err(Fault::Syntax(_))));
    // Fragments that together exceed the bound.
    let mut octets = vec![0xc4];
    octets.extend(vec![0; 8192]);
    octets.push(1);
    octets.push(0);
    assert!(matches!(read::<Vec<bool>, List<1, 65_536>>(&octets), Err(Fault::Syntax(_))));
}

#[test] // X.691 §11.1.3: an open type has one octet at least; its length grows in place
fn open_types() {
    for (n, expected) in [(0, vec![1]), (127, vec![127]), (128, vec![0x80, 128]), (300, vec![0x81, 0x2c])] {
        let mut out = vec![0xee];
        let content = vec![9; n];
        Writer::new(&mut out).open(|w| w.octets(&content));
        assert_eq!(out[1..=expected.len()], expected);
        let read = Reader::new(&out[1..], 0, "test").open(|r| Ok(r.octets(n)?.to_vec()));
        assert_eq!(read, Ok(content));
    }
}

#[test] // X.691 §11.6
fn normally_small_numbers() {
    for v in [0, 63, 64, 255, 256, 1 << 40] {
        let mut out = Vec::new();
        Writer::new(&mut out).normally_small(v);
        assert_eq!(Reader::new(&out, 0, "test").normally_small(), Ok(v));
    }
}

#[test]
fn a_count_without_items_is_truncated_and_costs_nothing() {
    // 65536 octet strings claimed, one octet there.
    let fault = read::<Vec<[u8; 4]>, List<1, 65_535>>(&[0xff, 0xfd, 0]);
    assert!(matches!(fault, Err(Fault::Syntax(_))));
    assert!(<[u8; 4]>::read(&mut Reader::new(&[1, 2, 3], 0, "test")).is_err());
}
