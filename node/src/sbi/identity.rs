//! Identities as they stand in paths and bodies (TS 29.571 §5.3.2, TS 29.503 §6.3.3.2).

use std::fmt::Write;

use whimbrel_control::udm::Identity;
use whimbrel_ids::{PlmnId, Supi};
use whimbrel_nas::ie::{Msin, Octets, RoutingIndicator, SchemeId, SchemeOutput, Suci};

/// Octets of a scheme output that are read: more than profile A or B gives an MSIN.
const OUTPUT_MAX: usize = 512;

/// `imsi-…`, or the NAI as `nai-…`.
pub(crate) fn supi_text(supi: Supi) -> String {
    match supi.is_nai() {
        true => format!("nai-{}", supi.value()),
        false => format!("imsi-{}", supi.value()),
    }
}

/// Reads [`supi_text`]. A UDM has the IMSIs of USIMs alone.
pub(crate) fn supi_of(text: &str) -> Option<Supi> {
    text.strip_prefix("imsi-")?.parse().ok()
}

/// The SUCI of an IMSI, as `suci-0-999-70-0-1-1-…`; `None` for the SUCI of another kind of SUPI.
pub(crate) fn suci_text(suci: &Suci) -> Option<String> {
    let Suci::Imsi { plmn, routing_indicator, output } = suci else { return None };
    let digits = |digits: &[u8]| digits.iter().map(|d| char::from(b'0' + d % 10)).collect::<String>();
    let (mnc, len) = plmn.mnc();
    let mut text =
        format!("suci-0-{}-{}-{routing_indicator}-", digits(&plmn.mcc()), digits(&mnc[..len.min(3)]));
    match output {
        SchemeOutput::Null(msin) => write!(text, "0-0-{}", digits(msin.digits())),
        SchemeOutput::Concealed { scheme, key_id, output } => {
            let hex: String = output.iter().map(|octet| format!("{octet:02x}")).collect();
            write!(text, "{:x}-{key_id}-{hex}", scheme.value())
        }
    }
    .ok()?;
    Some(text)
}

/// Reads what [`suci_text`] has written.
pub(crate) fn suci_of(text: &str) -> Option<Suci> {
    let mut parts = text.strip_prefix("suci-0-")?.splitn(6, '-');
    let mut part = || parts.next();
    let plmn: PlmnId = format!("{}/{}", part()?, part()?).parse().ok()?;
    let routing_indicator = RoutingIndicator::from_digits(&digits_of(part()?, 4)?)?;
    let scheme = u8::from_str_radix(part()?, 16).ok()?;
    let (key_id, output) = (part()?.parse().ok()?, part()?);
    let output = match SchemeId::new(scheme) {
        None if scheme == 0 => SchemeOutput::Null(Msin::from_digits(digits_of(output, 10)?)?),
        None => return None,
        Some(scheme) => SchemeOutput::Concealed { scheme, key_id, output: Octets::new(octets_of(output)?)? },
    };
    Some(Suci::Imsi { plmn, routing_indicator, output })
}

/// A SUPI or a SUCI, as `supiOrSuci`.
pub(crate) fn identity_text(identity: &Identity) -> Option<String> {
    match identity {
        Identity::Supi(supi) => Some(supi_text(*supi)),
        Identity::Suci(suci) => suci_text(suci),
    }
}

/// Reads what [`identity_text`] has written.
pub(crate) fn identity_of(text: &str) -> Option<Identity> {
    match text.starts_with("suci-") {
        true => suci_of(text).map(Identity::Suci),
        false => supi_of(text).map(Identity::Supi),
    }
}

fn digits_of(text: &str, max: usize) -> Option<Vec<u8>> {
    let digit = |c: u8| c.is_ascii_digit().then(|| c - b'0');
    (text.len() <= max).then(|| text.bytes().map(digit).collect())?
}

fn octets_of(hex: &str) -> Option<Vec<u8>> {
    let even = hex.is_ascii() && hex.len().is_multiple_of(2) && hex.len() <= 2 * OUTPUT_MAX;
    even.then(|| (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).ok()).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.003 §28.7.3
    fn a_suci_is_written_as_it_is_read() {
        for text in [
            "suci-0-999-70-0-0-0-0000000001",
            "suci-0-001-001-0123-0-0-12345678",
            "suci-0-999-70-0-1-27-a7e3d9ffb800b5ad38c05a0f94ec4e01d5f2a6a9a5be9f0d3cfa5f4f7c2b1a00b4d3c2b1a0ffee",
            "suci-0-999-70-0-2-255-02aa",
        ] {
            let suci = suci_of(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(suci_text(&suci).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_is_no_identity_is_refused() {
        for text in [
            "",
            "imsi-",
            "imsi-12a",
            "suci-",
            "suci-1-999-70-0-0-0-1",
            "suci-0-999-70-0-0-0",
            "suci-0-999-70-0-0-0-12345678901",
            "suci-0-99-70-0-0-0-1",
            "suci-0-999-70-01234-0-0-1",
            "suci-0-999-70-0-10-1-aa",
            "suci-0-999-70-0-1-256-aa",
            "suci-0-999-70-0-1-1-aaa",
            "suci-0-999-70-0-1-1-zz",
            "suci-0-999-70-0-1-1-é1",
        ] {
            assert!(identity_of(text).is_none(), "{text}");
        }
        assert!(identity_of(&format!("suci-0-999-70-0-1-1-{}", "ab".repeat(4000))).is_none());
    }
}
