//! The text of a warning as cells broadcast it: TS 23.041 §9.4.2.2.5 (CB data), TS 23.038 §5, §6.2.1 (coding).

/// How a text is coded (TS 23.038 §5: CBS data coding scheme).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextCoding {
    /// GSM 7 bit default alphabet, language unspecified.
    Gsm7,
    /// UCS2, 16 bits.
    Ucs2,
}

impl TextCoding {
    /// The coding that a text needs.
    pub fn of(text: &str) -> Self {
        if text.chars().all(|c| gsm7(c).is_some()) { Self::Gsm7 } else { Self::Ucs2 }
    }

    /// Its data coding scheme.
    pub const fn scheme(self) -> u8 {
        match self {
            Self::Gsm7 => 0x0f,
            Self::Ucs2 => 0x48,
        }
    }
}

/// Octets of one page (TS 23.041 §9.4.2.2.5).
const PAGE_OCTETS: usize = 82;

/// Pages of one message (TS 23.041 §9.4.2.2.5).
const PAGES_MAX: usize = 15;

/// A text as pages: their number, then for each 82 octets and how many of them are used. `None` if it does not fit, or is
/// empty.
pub fn cbs_pages(text: &str) -> Option<(TextCoding, Vec<u8>)> {
    let coding = TextCoding::of(text);
    let pages: Vec<Vec<u8>> = match coding {
        TextCoding::Gsm7 => {
            let septets: Vec<u8> = text.chars().filter_map(gsm7).collect();
            septets.chunks(PAGE_OCTETS * 8 / 7).map(packed).collect()
        }
        TextCoding::Ucs2 => {
            let units: Vec<u16> = text.encode_utf16().collect();
            units.chunks(PAGE_OCTETS / 2).map(|p| p.iter().flat_map(|u| u.to_be_bytes()).collect()).collect()
        }
    };
    if pages.is_empty() || pages.len() > PAGES_MAX {
        return None;
    }
    let mut out = vec![pages.len() as u8];
    for page in pages {
        let used = page.len();
        out.extend(page);
        out.resize(out.len() + PAGE_OCTETS - used, 0);
        out.push(used as u8);
    }
    Some((coding, out))
}

/// Septets packed into octets, least significant bits first (TS 23.038 §6.1.2.2.1). Seven unused bits at the end are filled
/// with a carriage return: zeros would read as `@`.
fn packed(septets: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAGE_OCTETS);
    let (mut bits, mut held) = (0u32, 0u32);
    let filler = (septets.len() % 8 == 7).then_some(0x0d);
    for septet in septets.iter().copied().chain(filler) {
        held |= u32::from(septet) << bits;
        bits += 7;
        while bits >= 8 {
            out.push(held as u8);
            held >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(held as u8);
    }
    out.truncate(PAGE_OCTETS);
    out
}

/// The code of a character in the GSM 7 bit default alphabet (TS 23.038 §6.2.1), as far as it agrees with ASCII, and the few
/// signs that it has elsewhere.
fn gsm7(c: char) -> Option<u8> {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '\n' | '\r' | ' ' => Some(c as u8),
        '!' | '"' | '#' | '%' | '&' | '\'' | '(' | ')' | '*' | '+' | ',' | '-' | '.' | '/' => Some(c as u8),
        ':' | ';' | '<' | '=' | '>' | '?' => Some(c as u8),
        '@' => Some(0x00),
        '$' => Some(0x02),
        '_' => Some(0x11),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 23.038 §6.1.2.2.1
    fn septets_are_packed_from_the_least_significant_bit() {
        assert_eq!(packed(b"hellohello"), [0xe8, 0x32, 0x9b, 0xfd, 0x46, 0x97, 0xd9, 0xec, 0x37]);
    }

    #[test] // TS 23.041 §9.4.2.2.5
    fn pages_are_counted_and_filled() {
        let (coding, octets) = cbs_pages(&"a".repeat(94)).unwrap();
        assert_eq!((coding, octets[0], octets.len()), (TextCoding::Gsm7, 2, 1 + 2 * 83));
        assert_eq!((octets[83], octets[166]), (82, 1));
        let (coding, octets) = cbs_pages("Größe 水").unwrap();
        assert_eq!((coding, octets[0], octets[83]), (TextCoding::Ucs2, 1, 14));
        assert_eq!(coding.scheme(), 0x48);
    }

    #[test] // TS 23.041 §9.4.2.2.5
    fn a_text_that_does_not_fit_is_refused() {
        assert!(cbs_pages("").is_none());
        assert!(cbs_pages(&"a".repeat(93 * 15)).is_some());
        assert!(cbs_pages(&"a".repeat(93 * 15 + 1)).is_none());
        assert!(cbs_pages(&"水".repeat(41 * 15 + 1)).is_none());
    }
}
