//! Identity of this network: PLMN, tracking areas, slices, and the AMF (TS 23.501 §5.9.4, §5.15).

use whimbrel_ids::{AmfId, PlmnId, SNssai, Tac};
use whimbrel_security::{CipheringAlgorithm, IntegrityAlgorithm};

use super::section::Section;
use super::time_zone::NetworkTimeZone;
use super::value::{TacSum, words};

/// The network and its AMF.
#[derive(Clone, Debug)]
pub struct Amf {
    pub plmn: PlmnId,
    pub tacs: Vec<Tac>,
    pub registration_areas: Vec<TacSum>,
    pub slices: Vec<SNssai>,
    pub name: String,
    pub amf_id: AmfId,
    pub relative_capacity: u8,
    pub integrity: Vec<IntegrityAlgorithm>,
    pub ciphering: Vec<CipheringAlgorithm>,
    pub network_name_full: String,
    pub network_name_short: String,
    pub ims_vops: bool,
    pub time_zone: NetworkTimeZone,
}

words! { IntegrityAlgorithm {
    IntegrityAlgorithm::Nia0 = "NIA0", IntegrityAlgorithm::Nia1 = "NIA1", IntegrityAlgorithm::Nia2 = "NIA2", IntegrityAlgorithm::Nia3 = "NIA3",
} }
words! { CipheringAlgorithm {
    CipheringAlgorithm::Nea0 = "NEA0", CipheringAlgorithm::Nea1 = "NEA1", CipheringAlgorithm::Nea2 = "NEA2", CipheringAlgorithm::Nea3 = "NEA3",
} }

pub(super) fn read(root: &mut Section<'_, '_>) -> Amf {
    let plmn = root.value(
        "plmn",
        PlmnId::TEST,
        "PLMN as MCC/MNC, the first digits of each SIM's IMSI. 999/70 is a test network that no operator owns.",
    );
    let tacs = root.list(
        "tacs",
        Tac::new(1).into_iter().collect(),
        "Tracking area codes served. A gNB must broadcast at least one of them with this PLMN.",
    );
    let registration_areas = root.list(
        "registration_areas",
        Vec::new(),
        "Registration areas: sets of tracking areas in which an idle UE moves without a registration and is paged: [1+2, 3+4+5]. \
         Empty: all of `tacs` are one area (TS 23.501 §5.9.4).",
    );
    let slices = root.list(
        "slices",
        vec![SNssai::sst(1)],
        "Slices offered (S-NSSAI), as SST or SST-SD: [1, 2-0000ab]. SST 1 is eMBB (TS 23.501 §5.15.2.2).",
    );
    let (integrity, ciphering) = root.section("security", "NAS security algorithms (TS 33.501 §5.5, §6.7).", |s| {
        (
            s.list(
                "integrity",
                vec![IntegrityAlgorithm::Nia2, IntegrityAlgorithm::Nia1, IntegrityAlgorithm::Nia3],
                "Integrity algorithms in order of preference; the first that the UE supports is used. NIA0 protects nothing and \
                 is not allowed.",
            ),
            s.list(
                "ciphering",
                vec![CipheringAlgorithm::Nea2, CipheringAlgorithm::Nea1, CipheringAlgorithm::Nea3],
                "Ciphering algorithms in order of preference. NEA0 does not cipher: list it, alone or last, only if captures \
                 must be readable or the law forbids ciphering.",
            ),
        )
    });
    root.section("amf", "The access and mobility management function.", |s| Amf {
        plmn,
        tacs,
        registration_areas,
        slices,
        name: amf_name(s),
        amf_id: amf_id(s),
        relative_capacity: s.value(
            "relative_capacity",
            255,
            "Relative AMF capacity: weight among the AMFs of one gNB (TS 38.413 §9.3.1.32).",
        ),
        integrity,
        ciphering,
        network_name_full: s.value(
            "network_name_full",
            "Whimbrel".to_string(),
            "Network name that UEs display (TS 24.501 §8.2.19); \"\": none is sent.",
        ),
        network_name_short: s.value("network_name_short", "Whimbrel".to_string(), "Short network name; \"\": none is sent."),
        ims_vops: s.value(
            "ims_voice_over_ps",
            false,
            "Indicates to UEs that IMS voice is supported (TS 24.501 §9.11.3.5). Set it only with a data network `ims` and \
             an IMS: without both, UEs avoid the network or drop calls.",
        ),
        time_zone: s.value(
            "time_zone",
            NetworkTimeZone::Host,
            "Time zone of the network, whose local time and daylight saving time UEs get with the network name (TS 24.008 §10.5.3.8, §10.5.3.12): \
             that of the host, a name of its time zone database (Europe/Berlin), or an offset from UTC. When the offset changes, connected \
             UEs get it at once and the others when they are connected next.",
        ),
    })
}

/// AMFName is a PrintableString (X.680 §41.4) of 1 to 150 characters.
fn amf_name(s: &mut Section<'_, '_>) -> String {
    let name = s.value("name", "whimbrel".to_string(), "AMF name sent to gNBs (TS 38.413 §9.3.3.21).");
    let printable = |c: char| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c);
    let is_valid = (1..=150).contains(&name.len()) && name.chars().all(printable);
    let what = format!("gNBs cannot read the AMF name `{name}`");
    s.bound("name", is_valid, what, "1 to 150 letters, digits, spaces and '()+,-./:=?");
    name
}

pub(super) fn amf_id(s: &mut Section<'_, '_>) -> AmfId {
    let region = s.value("region", 2u8, "AMF region, 0 to 255 (TS 23.003 §2.10.1).");
    let set = s.value("set", 1u16, "AMF set within the region, 0 to 1023.");
    let pointer = s.value("pointer", 0u8, "AMF pointer within the set, 0 to 63.");
    s.bound("set", set <= 1023, format!("{set} does not fit in 10 bits"), "0 to 1023");
    s.bound("pointer", pointer <= 63, format!("{pointer} does not fit in 6 bits"), "0 to 63");
    AmfId::from_octets([region, (set >> 2) as u8, (set << 6) as u8 | pointer & 0x3f])
}
