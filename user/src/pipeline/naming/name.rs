//! A domain name as it stands in a packet.

use crate::applications::NAME_OCTETS_MAX;

/// A name in lower case, its labels joined by dots.
#[derive(Clone, Copy)]
pub(super) struct Name {
    octets: [u8; NAME_OCTETS_MAX],
    len: u8,
}

impl Name {
    pub(super) const EMPTY: Self = Self { octets: [0; NAME_OCTETS_MAX], len: 0 };

    pub(super) fn octets(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// One label more. `None` if the name is too long then, or the label is none that a name of a host has.
    pub(super) fn push_label(&mut self, label: &[u8]) -> Option<()> {
        let dot = usize::from(self.len > 0);
        let at = usize::from(self.len) + dot;
        let place = self.octets.get_mut(at - dot..at + label.len())?;
        for (to, octet) in place[dot..].iter_mut().zip(label) {
            let fits = octet.is_ascii_graphic() && *octet != b'.';
            *to = fits.then(|| octet.to_ascii_lowercase())?;
        }
        if dot == 1 {
            place[0] = b'.';
        }
        self.len = (at + label.len()) as u8; // within 255, as the place was
        Some(())
    }

    /// Of a name in text.
    pub(super) fn of_text(text: &[u8]) -> Option<Self> {
        let mut name = Self::EMPTY;
        let text = text.strip_suffix(b".").unwrap_or(text);
        for label in text.split(|o| *o == b'.') {
            if label.is_empty() {
                return None;
            }
            name.push_label(label)?;
        }
        Some(name)
    }
}
