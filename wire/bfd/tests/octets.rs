//! The packet octet for octet, and what is made of octets that are none.

use std::num::NonZeroU8;

use proptest::prelude::*;
use whimbrel_bfd::{ControlPacket, Diagnostic, Discriminator, Invalid, OCTETS, State};

/// The probe of an initiator that is up: written by hand from RFC 5880 §4.1.
const PROBE: [u8; OCTETS] = [
    0x20, 0xc2, 3, 24, 0x01, 0x02, 0x03, 0x04, 0xc0, 0x00, 0x02, 0x01, 0, 0, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0,
    0,
];

fn probe() -> ControlPacket {
    ControlPacket {
        diagnostic: Diagnostic::NONE,
        state: State::Up,
        poll: false,
        r#final: false,
        control_plane_independent: false,
        demand: true,
        multiplier: NonZeroU8::new(3).unwrap(),
        mine: Discriminator::new(0x0102_0304).unwrap(),
        yours: Discriminator::new(0xc000_0201),
        desired_min_tx_us: 5_000,
        required_min_rx_us: 0,
        required_min_echo_rx_us: 0,
    }
}

/// The probe with one octet changed.
fn with(at: usize, octet: u8) -> [u8; OCTETS] {
    let mut octets = PROBE;
    octets[at] = octet;
    octets
}

#[test] // RFC 5880 §4.1: the fields of the mandatory section
fn a_probe_has_the_octets_of_the_figure() {
    assert_eq!(probe().to_octets(), PROBE);
    assert_eq!(ControlPacket::parse(&PROBE), Ok(probe()));
    let longer = [&PROBE[..], &[9; 7]].concat();
    assert_eq!(ControlPacket::parse(&longer), Ok(probe()), "octets behind the packet");
}

#[test] // RFC 5880 §6.8.6: what is discarded before a session is looked up
fn each_rule_of_reception_discards_what_breaks_it() {
    let refused = |octets: &[u8]| ControlPacket::parse(octets).unwrap_err();
    for version in [0, 2, 7] {
        assert_eq!(refused(&with(0, version << 5)), Invalid::Version);
    }
    assert_eq!(refused(&with(3, 23)), Invalid::Length);
    assert_eq!(refused(&with(3, 25)), Invalid::Truncated);
    for len in 0..OCTETS {
        assert_eq!(refused(&PROBE[..len]), Invalid::Truncated, "{len} octets");
    }
    assert_eq!(refused(&with(2, 0)), Invalid::Multiplier);
    assert_eq!(refused(&with(1, 0xc3)), Invalid::Multipoint);
    let mut octets = PROBE;
    octets[4..8].fill(0);
    assert_eq!(refused(&octets), Invalid::MyDiscriminator);
    let mut octets = PROBE;
    octets[8..12].fill(0);
    assert_eq!(refused(&octets), Invalid::YourDiscriminator, "in the state Up");
    octets[1] = 0x42;
    assert_eq!(ControlPacket::parse(&octets).unwrap().yours, None, "in the state Down");
    assert_eq!(refused(&with(1, 0xc6)), Invalid::Authentication);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads the corpus")]
fn the_kept_inputs_of_the_fuzzer_are_read_or_refused_as_their_names_say() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/parse");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let outcome = ControlPacket::parse(&std::fs::read(file.path()).unwrap());
        let expected = Invalid::ALL.into_iter().find(|why| name == format!("refused-{}", why.label()));
        assert_eq!(outcome.err(), expected, "{name}");
        count += 1;
    }
    assert!(count > Invalid::ALL.len(), "{count} inputs");
}

proptest! {
    #[test]
    fn a_packet_reads_as_it_was_written(
        code in 0..32u8, state in 0..4usize, flags: [bool; 4], multiplier in 1..=255u8, mine in 1..=u32::MAX, yours: u32, tx: u32, rx: u32, echo: u32,
        behind in prop::collection::vec(any::<u8>(), 0..9),
    ) {
        let state = [State::AdminDown, State::Down, State::Init, State::Up][state];
        let yours = if matches!(state, State::Init | State::Up) { yours.max(1) } else { yours };
        let packet = ControlPacket {
            diagnostic: Diagnostic::new(code).unwrap(),
            state,
            poll: flags[0],
            r#final: flags[1],
            control_plane_independent: flags[2],
            demand: flags[3],
            multiplier: NonZeroU8::new(multiplier).unwrap(),
            mine: Discriminator::new(mine).unwrap(),
            yours: Discriminator::new(yours),
            desired_min_tx_us: tx,
            required_min_rx_us: rx,
            required_min_echo_rx_us: echo,
        };
        let octets = [&packet.to_octets()[..], &behind].concat();
        prop_assert_eq!(ControlPacket::parse(&octets), Ok(packet));
    }

    #[test]
    fn any_octets_are_refused_or_written_again(octets in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(packet) = ControlPacket::parse(&octets) {
            let again = packet.to_octets();
            prop_assert_eq!(&again[..3], &octets[..3]);
            prop_assert_eq!(&again[4..], &octets[4..OCTETS]);
        }
    }

    #[test] // most random octets have another version: these have not
    fn octets_that_begin_as_a_packet_are_refused_or_written_again(mut octets: [u8; OCTETS], at in 24..30u8) {
        octets[0] = octets[0] & 0x1f | 0x20;
        octets[3] = at;
        match ControlPacket::parse(&octets) {
            Ok(packet) => prop_assert_eq!(packet.to_octets(), octets),
            Err(why) => prop_assert!(why != Invalid::Version && (why == Invalid::Truncated) == (at > 24)),
        }
    }
}
