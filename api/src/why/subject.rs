//! The subject of a `whimbrel why` question.

use std::net::{IpAddr, SocketAddr};

use whimbrel_control::UeId;
use whimbrel_ids::{PlmnId, Supi};

/// Parts of the core.
const PARTS: [&str; 12] =
    ["n2", "n3", "n4", "n6", "upf", "store", "api", "cta", "cta_replica", "cpfs", "sbfd", "postgres"];

/// The subject, by the form of the name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum WhySubject {
    /// `imsi-999700000000001`, or its digits.
    Ue(Supi),
    /// `imei-…` or `imeisv-…`; 16 digits alone are an IMEISV.
    Equipment(String),
    /// `ue-1a.2`, as logs name a UE.
    Unidentified(UeId),
    /// A 5G-GUTI or a 5G-TMSI: the 5G-TMSI's 8 hexadecimal digits.
    Tmsi(String),
    /// `gnb-999/70-1` or `999/70-1`: without the prefix.
    Gnb(String),
    /// An IP address, with or without a port.
    Address(IpAddr),
    /// A part of the core.
    Part(&'static str),
    /// None of these: perhaps a gNB's name.
    Other,
}

impl WhySubject {
    /// By the form of a name.
    pub(crate) fn parse(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        if let Some(part) = PARTS.iter().find(|p| **p == lower) {
            return Self::Part(part);
        }
        if let Some(tmsi) = tmsi(&lower) {
            return Self::Tmsi(tmsi);
        }
        if let Some(pei) = pei(&lower) {
            return Self::Equipment(pei);
        }
        if let Ok(supi) = lower.parse() {
            return Self::Ue(supi);
        }
        if let Some(ue) = lower.strip_prefix("ue-").and_then(ue) {
            return Self::Unidentified(ue);
        }
        let address = lower.strip_prefix("gnb-at-").unwrap_or(&lower);
        if let Ok(address) = address.parse::<SocketAddr>().map(|a| a.ip()).or_else(|_| address.parse()) {
            return Self::Address(address);
        }
        match gnb(&lower) {
            Some(id) => Self::Gnb(id),
            None => Self::Other,
        }
    }
}

fn tmsi(text: &str) -> Option<String> {
    let hex = |t: &str| t.len() == 8 && t.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(guti) = text.strip_prefix("5g-guti-") {
        let tmsi = guti.get(guti.len().checked_sub(8)?..)?;
        return hex(tmsi).then(|| tmsi.into());
    }
    let bare = text.strip_prefix("5g-tmsi-").or(text.strip_prefix("0x")).unwrap_or(text);
    hex(bare).then(|| bare.into())
}

fn pei(text: &str) -> Option<String> {
    let digits = |t: &str, n: usize| t.len() == n && t.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('-') {
        Some(("imei", rest)) if digits(rest, 15) => Some(text.into()),
        Some(("imeisv", rest)) if digits(rest, 16) => Some(text.into()),
        None if digits(text, 16) => Some(format!("imeisv-{text}")),
        _ => None,
    }
}

fn ue(text: &str) -> Option<UeId> {
    let (slot, generation) = text.split_once('.')?;
    let slot = u32::from_str_radix(slot, 16).ok()?;
    Some(UeId { slot, generation: u16::from_str_radix(generation, 16).ok()? })
}

fn gnb(text: &str) -> Option<String> {
    let bare = text.strip_prefix("gnb-").unwrap_or(text);
    let (plmn, id) = bare.rsplit_once('-')?;
    let plmn: PlmnId = plmn.parse().ok()?;
    Some(format!("{plmn}-{:x}", u32::from_str_radix(id, 16).ok()?))
}

/// The answer to a name that is not understood.
pub(super) fn not_understood(text: &str) -> String {
    format!(
        "`{text}` is not the name of a known UE or gNB: `whimbrel why` understands a SUPI (imsi-999700000000001 or its digits), \
         an IMEI or IMEISV (imei-490154203237518, imeisv-4370816125816151), a 5G-GUTI or 5G-TMSI (5g-guti-99970020040c0ffee01, \
         c0ffee01), an IP address of a UE or a gNB (10.45.0.2), a gNB's identity or name (gnb-999/70-1), a UE's name in the log \
         (ue-1a.2) or at its gNB (gnb-999/70-1-ran-ue-7), and the parts of the core ({})",
        PARTS.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_understood() {
        let supi: Supi = "imsi-999700000000001".parse().unwrap();
        for (text, subject) in [
            ("imsi-999700000000001", WhySubject::Ue(supi)),
            ("999700000000001", WhySubject::Ue(supi)),
            ("imei-490154203237518", WhySubject::Equipment("imei-490154203237518".into())),
            ("4370816125816151", WhySubject::Equipment("imeisv-4370816125816151".into())),
            ("ue-1a.2", WhySubject::Unidentified(UeId { slot: 26, generation: 2 })),
            ("5g-guti-99970020040C0FFEE01", WhySubject::Tmsi("c0ffee01".into())),
            ("12345678", WhySubject::Tmsi("12345678".into())),
            ("gnb-999/70-1F", WhySubject::Gnb("999/70-1f".into())),
            ("999/70-1", WhySubject::Gnb("999/70-1".into())),
            ("10.45.0.2", WhySubject::Address([10, 45, 0, 2].into())),
            ("gnb-at-192.0.2.1:38412", WhySubject::Address([192, 0, 2, 1].into())),
            ("N4", WhySubject::Part("n4")),
            ("foo", WhySubject::Other),
            ("gnb-999/70-1-ran-ue-7", WhySubject::Other),
        ] {
            assert_eq!(WhySubject::parse(text), subject, "{text}");
        }
    }

    #[test]
    fn the_answer_to_an_unknown_name_lists_all_forms() {
        let text = not_understood("foo");
        for form in ["`foo`", "SUPI", "IMEISV", "5G-GUTI", "gnb-999/70-1", "10.45.0.2", "ue-1a.2", "upf"] {
            assert!(text.contains(form), "{form}: {text}");
        }
    }
}
