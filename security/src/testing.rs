//! Reads the test sets of `testdata/`: one set a line, fields between spaces, `#` begins a comment.

/// A test set of the specification.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    fields: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// The fields after the name; a test set with another number of them is a mistake in the file.
    pub(crate) fn fields<const N: usize>(&self) -> [&'a str; N] {
        self.fields
            .clone()
            .try_into()
            .unwrap_or_else(|_| panic!("{} has {} fields", self.name, self.fields.len()))
    }
}

pub(crate) fn lines(text: &str) -> Vec<Line<'_>> {
    let sets = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    sets.map(|l| {
        let mut fields = l.split(' ');
        Line { name: fields.next().unwrap(), fields: fields.collect() }
    })
    .collect()
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "{hex}");
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

pub(crate) fn octets<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().unwrap()
}

/// Key, COUNT, BEARER, DIRECTION and LENGTH as the files of ciphers begin.
pub(crate) fn cipher_input(f: &[&str; 7]) -> ([u8; 16], u32, crate::Bearer, crate::Direction, usize) {
    let hex = |s| u32::from_str_radix(s, 16).unwrap();
    let direction = if f[3] == "0" { crate::Direction::Uplink } else { crate::Direction::Downlink };
    (octets(f[0]), hex(f[1]), crate::Bearer::new(hex(f[2]) as u8).unwrap(), direction, f[4].parse().unwrap())
}
