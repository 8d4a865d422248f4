//! Properties: any octets return, what is read can be written and read again, and constructors keep to their bounds.

use super::common;

use common::unhex;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use std::time::Duration;
use whimbrel_ids::{FiveQi, PduSessionId, PlmnId, Qfi, Reader, SNssai, Supi, Tac, Tai};
use whimbrel_nas::ie::*;
use whimbrel_nas::{Envelope, Ie, mm, sm};

const VECTORS: &str = include_str!("../testdata/vectors.txt");

fn vectors() -> Vec<Vec<u8>> {
    VECTORS.lines().filter(|l| !l.starts_with('#')).map(|l| unhex(l.split(' ').next().unwrap())).collect()
}

/// `parse(emit(m)) == m` for whatever was read, and reading never costs more than the octets given.
fn reads_again(octets: &[u8]) -> Result<(), TestCaseError> {
    let _ = Envelope::parse(octets);
    if let Ok(m) = mm::Message::decode(octets) {
        prop_assert_eq!(mm::Message::decode(&m.to_octets()), Ok(m.clone()));
        let _ = format!("{m:?}");
    }
    if let Ok(m) = sm::Message::decode(octets) {
        prop_assert_eq!(sm::Message::decode(&m.to_octets()), Ok(m.clone()));
        let _ = format!("{m:?}");
    }
    let pco = ExtendedPco::decode(&mut Reader::new(octets));
    for direction in [PcoDirection::FromUe, PcoDirection::ToUe] {
        let containers: Vec<_> = pco.iter().flat_map(|p| p.containers(direction)).collect();
        if let Some(built) = ExtendedPco::new(direction, &containers) {
            prop_assert_eq!(built.containers(direction).collect::<Vec<_>>(), containers);
        }
    }
    if let Ok(Ok(rules)) = QosRules::decode(&mut Reader::new(octets)).map(|r| r.rules()) {
        prop_assert_eq!(QosRules::new(&rules).unwrap().rules(), Ok(rules));
    }
    if let Ok(Ok(flows)) = QosFlowDescriptions::decode(&mut Reader::new(octets)).map(|r| r.flows()) {
        prop_assert_eq!(QosFlowDescriptions::new(&flows).unwrap().flows(), Ok(flows));
    }
    if let Ok(m) = MultiplePayloads::decode(&mut Reader::new(octets)) {
        let mut out = Vec::new();
        m.encode(&mut out);
        prop_assert_eq!(MultiplePayloads::decode(&mut Reader::new(&out)), Ok(m));
    }
    let _ = Ipcp::parse(octets);
    Ok(())
}

/// A vector with some octets changed, some cut out, and a piece of another vector put in.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let all = vectors();
    let n = all.len();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let cut = (any::<prop::sample::Index>(), 0usize..6);
    let piece = (0..n, any::<prop::sample::Index>(), 0usize..24);
    (0..n, changes, cut, piece).prop_map(move |(i, changes, (at, cut), (j, from, len))| {
        let mut octets = all[i].clone();
        for (index, value) in changes {
            let index = index.index(octets.len());
            octets[index] = value;
        }
        let at = at.index(octets.len());
        let end = (at + cut).min(octets.len());
        let from = from.index(all[j].len());
        let piece = all[j][from..(from + len).min(all[j].len())].to_vec();
        octets.splice(at..end, piece);
        octets
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn mutated_messages_return_and_read_again(octets in mutated()) {
        reads_again(&octets)?;
    }

    #[test]
    fn any_octets_return(head in prop::sample::select(vec![&[0x7e, 0][..], &[0x2e, 5, 1], &[]]),
                         kind in any::<u8>(), rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        let octets: Vec<u8> = head.iter().copied().chain([kind]).chain(rest).collect();
        reads_again(&octets)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test] // TS 24.008 §10.5.7.4a
    fn timers_round_up(secs in 0u64..36_000_000) {
        let d = Duration::from_secs(secs);
        let t = GprsTimer3::from_duration(d);
        prop_assert!(t.duration().unwrap() >= d.min(Duration::from_secs(31 * 1_152_000)));
        prop_assert_eq!(GprsTimer3::from_duration(t.duration().unwrap()).duration(), t.duration());
        let t = GprsTimer::from_duration(d);
        prop_assert!(t.duration().unwrap() >= d.min(Duration::from_secs(31 * 360)));
    }

    #[test] // TS 24.501 §9.11.4.14
    fn bit_rates_round_up(kbps in any::<u64>()) {
        let r = BitRate::from_kbps(kbps);
        let most = 256_000_000_000_000u64.saturating_mul(65_535);
        prop_assert!(r.kbps() >= kbps.min(most));
        if kbps <= 65_535 { prop_assert_eq!(r.kbps(), kbps) }
        // The next smaller value would be below.
        prop_assert!(kbps > most || r.kbps() - kbps < r.kbps().max(65_535) / 10_000 + 1);
    }

    #[test] // TS 24.008 §10.5.3.5a
    fn network_names_come_back(name in "[ -~äöüßΔéñ¿雁]{0,40}") {
        let Some(n) = NetworkName::new(&name) else { return Ok(()) };
        let mut out = Vec::new();
        n.encode(&mut out);
        prop_assert!(out.len() <= 255);
        let read = NetworkName::decode(&mut Reader::new(&out)).unwrap();
        prop_assert_eq!(read.as_str(), &name);
        prop_assert_eq!(read, n);
    }

    #[test] // TS 24.501 §9.11.3.9: no list is written that is longer than one octet of length can say
    fn any_list_of_areas_is_framed(tacs in proptest::collection::vec((0u32..1 << 24, any::<bool>()), 0..60), count in any::<u8>()) {
        let plmns = [PlmnId::TEST, "310/410".parse().unwrap()];
        let tais: Vec<Tai> = tacs.iter().map(|(t, p)| Tai { plmn: plmns[usize::from(*p)], tac: Tac::new(*t).unwrap() }).collect();
        let mut list: TaiList = tais.iter().copied().collect();
        prop_assert!(tais.iter().take(TAI_LIST_MAX).all(|t| list.contains(*t)));
        list.0.push(PartialTaiList::Tais(tais.clone()));
        if let Some(first) = tais.first() {
            list.0.push(PartialTaiList::Consecutive { first: *first, count });
        }
        let mut m = mm::RegistrationAccept::new(RegistrationResult::over(Accesses::ThreeGpp));
        m.tai_list = Some(list);
        m.t3512 = Some(GprsTimer3::DEACTIVATED);
        let mm::Message::RegistrationAccept(read) = mm::Message::decode(&mm::Message::from(m).to_octets()).unwrap()
            else { panic!("another message") };
        prop_assert_eq!(read.t3512, Some(GprsTimer3::DEACTIVATED), "what follows the list is found");
        prop_assert!(tais.iter().take(TAI_LIST_MAX).all(|t| read.tai_list.as_ref().unwrap().contains(*t)));
    }

    #[test] // TS 24.501 §9.11.3.4
    fn null_scheme_suci_gives_the_supi_back(digits in "[0-9]{8,15}", rid in "[0-9]{1,4}") {
        let supi: Supi = digits.parse().unwrap();
        for plmn in [&digits[..5], &digits[..6]] {
            let plmn: PlmnId = plmn.parse().unwrap();
            let rid: Vec<u8> = rid.bytes().map(|b| b - b'0').collect();
            let suci = Suci::null(supi, plmn, RoutingIndicator::from_digits(&rid).unwrap()).unwrap();
            let m = mm::Message::from(mm::IdentityResponse::new(MobileIdentity::Suci(suci.clone())));
            prop_assert_eq!(mm::Message::decode(&m.to_octets()), Ok(m.clone()));
            prop_assert_eq!(suci.plain_supi(), Some(supi));
        }
    }
}

#[test] // TS 24.501 §8.3.2: what an SMF sends, built through the API alone
fn establishment_accept_reads_again() {
    let qfi = Qfi::new(1).unwrap();
    let ambr = SessionAmbr { downlink: BitRate::from_kbps(1_000_000), uplink: BitRate::from_kbps(100_000) };
    let mut accept = sm::EstablishmentAccept::new(
        PduSessionType::Ipv4v6,
        SscMode::One,
        QosRules::new(&[QosRule::new_default(1, 255, qfi)]).unwrap(),
        ambr,
    );
    accept.pdu_address = Some(
        PduAddressKind::Ipv4v6 { ipv4: Ipv4Addr::new(10, 45, 0, 2), interface_id: [0, 0, 0, 0, 0, 0, 0, 1] }
            .into(),
    );
    accept.s_nssai = Some(SNssai::new(1, Some(0xab)).into());
    accept.qos_flow_descriptions = QosFlowDescriptions::new(&[QosFlowDescription::non_gbr(qfi, FiveQi(9))]);
    accept.dnn = Some("internet".parse().unwrap());
    accept.extended_pco = ExtendedPco::new(
        PcoDirection::ToUe,
        &[
            Container::dns_ipv4(Ipv4Addr::new(9, 9, 9, 9)),
            Container::ipv4_link_mtu(1400),
            Container::new(0x0023, vec![7; 300]),
        ],
    );
    let m = sm::Message::new(PduSessionId::new(5).unwrap(), sm::Pti(1), accept.clone());
    assert_eq!(sm::Message::decode(&m.to_octets()), Ok(m));
    let pco = accept.extended_pco.unwrap();
    let containers: Vec<_> = pco.containers(PcoDirection::ToUe).collect();
    assert_eq!(containers[0].as_ipv4(), Some(Ipv4Addr::new(9, 9, 9, 9)));
    assert_eq!(containers[1].as_u16(), Some(1400));
    assert_eq!(containers[2].contents.len(), 300, "a container whose length has two octets from the network");
    assert_eq!(accept.session_ambr.downlink.kbps(), 1_000_000);
}

#[test] // RFC 1877 in TS 24.008 §10.5.6.3: the UE asks for zeros, the network answers with a Configure-Nak
fn ipcp_requests_dns_and_gets_it() {
    let asked = Ipcp::parse(&unhex("01000010810600000000830600000000")).unwrap();
    let answer = asked.nak_with_dns(Some(Ipv4Addr::new(9, 9, 9, 9)), None).unwrap();
    assert_eq!(answer.octets(), unhex("0300000a810609090909"));
    assert_eq!(Ipcp::parse(&answer.octets()), Some(answer));
    assert_eq!(Ipcp::parse(&unhex("0100000281")), None, "a length below that of the header");
    assert_eq!(Ipcp::parse(&unhex("010000068101")), None, "an option shorter than its header");
}

#[test] // TS 24.008 §10.5.3.9
fn universal_time_of_the_epoch_and_of_a_leap_day() {
    let t = UniversalTime::from_unix_secs(0, TimeZone::UTC);
    assert_eq!(t.parts(), [70, 1, 1, 0, 0, 0]);
    let t = UniversalTime::from_unix_secs(1_709_251_199, TimeZone::from_quarters(-20).unwrap());
    assert_eq!(t.parts(), [24, 2, 29, 23, 59, 59]);
    let mut out = Vec::new();
    t.encode(&mut out);
    assert_eq!(out, unhex("4220923295950".get(..12).unwrap()).into_iter().chain([0x0a]).collect::<Vec<_>>());
    assert_eq!(UniversalTime::decode(&mut Reader::new(&out)), Ok(t));
}

#[test] // TS 24.008 §10.5.3.5a: seven characters leave seven spare bits, eight none
fn names_of_seven_and_eight_characters_keep_their_length() {
    for (name, head) in [("Network", 0x87), ("Network8", 0x80), ("Netwo@@", 0x87), ("Netwo@@@", 0x80)] {
        let mut out = Vec::new();
        NetworkName::new(name).unwrap().encode(&mut out);
        assert_eq!(out[0], head, "{name}");
        assert_eq!(NetworkName::decode(&mut Reader::new(&out)).unwrap().as_str(), name);
    }
}

#[test] // a message crosses several hands by value: its size is known, and grows only on purpose
fn sizes() {
    assert!(size_of::<mm::Message>() <= 704, "{}", size_of::<mm::Message>());
    assert!(size_of::<sm::Message>() <= 288, "{}", size_of::<sm::Message>());
}
