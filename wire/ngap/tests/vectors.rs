//! Every message and transfer as pycrate encodes it (`testdata/generate.py`): it decodes to the fields that pycrate was
//! given, and encodes to the same octets.

use whimbrel_ngap::*;

const VECTORS: &str = include_str!("../testdata/vectors.txt");

struct Vector {
    name: &'static str,
    octets: Vec<u8>,
    leaves: Vec<&'static str>,
}

fn vectors() -> impl Iterator<Item = Vector> {
    VECTORS.lines().map(|line| {
        let mut fields = line.split('\t');
        let (name, hex, json) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        let leaves = json.trim_matches(['[', ']']).split(',').filter(|l| !l.is_empty());
        Vector { name, octets: octets(hex), leaves: leaves.map(|l| l.trim_matches('"')).collect() }
    })
}

/// Octets of hexadecimal text, in which `(N)` stands for N zero octets.
fn octets(mut text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    while !text.is_empty() {
        if let Some((zeros, rest)) = text.strip_prefix('(').and_then(|t| t.split_once(')')) {
            out.resize(out.len() + zeros.parse::<usize>().unwrap(), 0);
            text = rest;
        } else {
            out.push(u8::from_str_radix(&text[..2], 16).unwrap());
            text = &text[2..];
        }
    }
    out
}

/// Letters, digits and colons, so that the spelling of Rust and that of ASN.1 come out the same.
fn plain(debug: &str) -> String {
    let text = debug.replace("Some(", "");
    text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == ':').collect::<String>().to_lowercase()
}

/// Decodes and encodes a value of the type: its print, and its octets.
fn there_and_back(name: &str, octets: &[u8]) -> (String, Vec<u8>) {
    macro_rules! transfers {
        ($($t:ident),*) => {
            match name.to_lowercase().as_str() {
                $( t if t == stringify!($t).to_lowercase() => {
                    let v = $t::decode(octets).unwrap_or_else(|e| panic!("{name}: {e}"));
                    (format!("{v:?}"), v.to_vec())
                } )*
                _ => {
                    let v = Message::decode(octets).unwrap_or_else(|e| panic!("{name}: {e}"));
                    assert_eq!(plain(v.name()), plain(name));
                    (format!("{v:?}"), v.to_vec())
                }
            }
        };
    }
    transfers!(
        PduSessionResourceSetupRequestTransfer,
        PduSessionResourceSetupResponseTransfer,
        PduSessionResourceSetupUnsuccessfulTransfer,
        PduSessionResourceReleaseCommandTransfer,
        PduSessionResourceReleaseResponseTransfer,
        PduSessionResourceModifyRequestTransfer,
        PduSessionResourceModifyResponseTransfer,
        PduSessionResourceModifyUnsuccessfulTransfer,
        PduSessionResourceModifyIndicationTransfer,
        PduSessionResourceModifyConfirmTransfer,
        PduSessionResourceModifyIndicationUnsuccessfulTransfer,
        PduSessionResourceNotifyTransfer,
        PduSessionResourceNotifyReleasedTransfer,
        PathSwitchRequestTransfer,
        PathSwitchRequestAcknowledgeTransfer,
        PathSwitchRequestSetupFailedTransfer,
        PathSwitchRequestUnsuccessfulTransfer,
        HandoverRequiredTransfer,
        HandoverCommandTransfer,
        HandoverRequestAcknowledgeTransfer,
        HandoverPreparationUnsuccessfulTransfer,
        HandoverResourceAllocationUnsuccessfulTransfer,
        SecondaryRatDataUsageReportTransfer
    )
}

#[test] // TS 38.413 §9.2, §9.3.4; X.691
fn encodings_of_pycrate_come_back_octet_for_octet() {
    let mut seen = 0;
    for v in vectors() {
        let (_, again) = there_and_back(v.name, &v.octets);
        assert!(again == v.octets, "{} differs:\n{:02x?}\n{:02x?}", v.name, v.octets, again);
        seen += 1;
    }
    assert!(seen > 300, "only {seen} vectors");
}

#[test]
fn fields_are_those_that_pycrate_was_given() {
    let mut seen = 0;
    for v in vectors() {
        let (debug, _) = there_and_back(v.name, &v.octets);
        let text = plain(&debug);
        // The root of a sequence precedes its extensions in the octets as in the print, so leaves come in order.
        let mut rest = text.as_str();
        for leaf in &v.leaves {
            let at =
                rest.find(leaf).unwrap_or_else(|| panic!("{} has no {leaf}, or not here: {debug}", v.name));
            rest = &rest[at + leaf.len()..];
            seen += 1;
        }
    }
    assert!(seen > 1000, "only {seen} fields");
}
