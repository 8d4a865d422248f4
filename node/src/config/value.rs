//! Types of values: how each is read from the file and printed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use whimbrel_ids::{Dnn, PlmnId, SNssai, Tac};
use whimbrel_resilience::region::Region;

use super::problem::did_you_mean;

/// A value of the configuration.
pub trait Value: Sized {
    /// Whether its text must not be repeated in a message.
    const SECRET: bool = false;
    /// Whether it names a file.
    const FILE: bool = false;

    /// Reads the text of a scalar. Errors: what is expected, to follow the word "write".
    fn read(text: &str) -> Result<Self, String>;

    /// The text that reads back as this value.
    fn show(&self) -> String;
}

/// Values whose `FromStr` and `Display` are the form in the file.
macro_rules! plain_values {
    ($($type:ty: $expected:expr;)*) => {$(
        impl Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.trim().parse().map_err(|_| $expected.into())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

pub(crate) use plain_values;

plain_values! {
    PlmnId: "a PLMN of 3 digits (MCC), a slash and 2 or 3 digits (MNC), such as 999/70";
    SNssai: "a slice as SST or SST-SD (SD in six hexadecimal digits), such as 1 or 1-0000ab";
    Dnn: "a DNN of letters, digits, hyphens and dots, such as internet";
    Ipv4Addr: "an IPv4 address, such as 8.8.8.8";
    Ipv6Addr: "an IPv6 address, such as 2001:4860:4860::8888";
    Region: "a geohash of 2 to 24 digits 0 to 3, or the larger region's name and its own, such as north/harbour";
    u8: "a whole number of 0 to 255";
    u16: "a whole number of 0 to 65535";
    u32: "a whole number of 0 to 4294967295";
}

/// A value that begins with `${NAME}`, the address in an environment variable (a pod's address is known to its environment alone): NAME, and the rest.
fn variable_in(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("${")?.split_once('}')
}

/// The address in an environment variable.
fn address_in(name: &str) -> Result<IpAddr, String> {
    let address = std::env::var(name).ok().and_then(|text| text.trim().parse().ok());
    address.ok_or_else(|| format!("an IP address, or set the environment variable {name} to one"))
}

impl Value for IpAddr {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match variable_in(text) {
            Some((name, "")) => address_in(name),
            _ => text.parse().map_err(|_| "an IP address, such as 192.0.2.1 or 2001:db8::1".into()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for SocketAddr {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let expected = || "an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_string();
        let Some((name, rest)) = variable_in(text) else { return text.parse().map_err(|_| expected()) };
        let port = rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(expected)?;
        Ok(SocketAddr::new(address_in(name)?, port))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// Tracking areas that belong together, as `1+2+3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TacSum(pub Vec<Tac>);

impl Value for TacSum {
    fn read(text: &str) -> Result<Self, String> {
        let tacs: Result<Vec<Tac>, String> = text.split('+').map(Tac::read).collect();
        tacs.map(Self).map_err(|_| "TACs joined by plus signs, such as 1+2+3".into())
    }

    fn show(&self) -> String {
        self.0.iter().map(Value::show).collect::<Vec<_>>().join("+")
    }
}

impl Value for Tac {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let number = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        number.ok().and_then(Tac::new).ok_or_else(|| "a TAC of 0 to 16777215, such as 1 or 0x000001".into())
    }

    fn show(&self) -> String {
        self.value().to_string()
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Ok(true),
            "false" | "no" | "off" => Ok(false),
            _ => Err("true or false".into()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        quoted(self)
    }
}

impl Value for PathBuf {
    const FILE: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() { Err("a path".into()) } else { Ok(text.into()) }
    }

    fn show(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

/// Quotes a text where YAML would read it as something else.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | ' ');
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '/' | '.' | '_'));
    if first && text.chars().all(plain) && !text.ends_with(' ') {
        return text.into();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Units of durations, largest first: their word, and how many milliseconds they are.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

impl Value for Duration {
    /// A number and its unit.
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let expected = match (number, unit) {
            ("", _) => "a duration with its unit, such as 500ms, 6s, 54min or 1h".into(),
            (n, "") => format!("the unit too: {n}s, {n}min or {n}h"),
            _ => "a duration with its unit, such as 500ms, 6s, 54min or 1h".to_string(),
        };
        let scale = UNITS.iter().find(|(word, _)| *word == unit.trim()).map(|u| u.1);
        let millis = number.parse::<u64>().ok().zip(scale).and_then(|(n, scale)| n.checked_mul(scale));
        // A year is longer than any timer, and keeps all later sums in range.
        millis.filter(|m| *m <= 366 * 24 * 3_600_000).map(Duration::from_millis).ok_or(expected)
    }

    fn show(&self) -> String {
        let millis = self.as_millis() as u64;
        let (word, scale) =
            *UNITS.iter().find(|(_, scale)| millis.is_multiple_of(*scale)).unwrap_or(&UNITS[3]);
        if millis == 0 { "0s".into() } else { format!("{}{word}", millis / scale) }
    }
}

/// A network of IPv4 or IPv6 addresses, `10.45.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkPrefix<A> {
    /// Its first address.
    pub address: A,
    /// Length of the prefix in bits.
    pub length: u8,
}

/// What [`NetworkPrefix`] needs of an address.
pub trait Address: Copy + std::fmt::Display + std::str::FromStr {
    /// Bits of an address.
    const BITS: u8;
    /// Example of a prefix.
    const EXAMPLE: &'static str;
    /// As a number.
    fn number(self) -> u128;
}

impl Address for Ipv4Addr {
    const BITS: u8 = 32;
    const EXAMPLE: &'static str = "10.45.0.0/16";
    fn number(self) -> u128 {
        u32::from(self).into()
    }
}

impl Address for Ipv6Addr {
    const BITS: u8 = 128;
    const EXAMPLE: &'static str = "fd00:9997:45::/48";
    fn number(self) -> u128 {
        self.into()
    }
}

impl<A: Address> NetworkPrefix<A> {
    fn mask(length: u8) -> u128 {
        let bits = A::BITS - length;
        if bits == 128 { 0 } else { !0 << bits }
    }

    /// Whether both hold a common address.
    pub fn overlaps(&self, other: &Self) -> bool {
        let mask = Self::mask(self.length.min(other.length));
        self.address.number() & mask == other.address.number() & mask
    }

    /// Whether it holds the address.
    pub fn contains(&self, address: A) -> bool {
        (self.address.number() ^ address.number()) & Self::mask(self.length) == 0
    }
}

impl<A: Address> Value for NetworkPrefix<A> {
    fn read(text: &str) -> Result<Self, String> {
        let expected = || format!("a network in CIDR form, such as {}", A::EXAMPLE);
        let (address, length) = text.trim().split_once('/').ok_or_else(expected)?;
        let address: A = address.parse().map_err(|_| expected())?;
        let length: u8 = length.parse().ok().filter(|l| *l <= A::BITS).ok_or_else(expected)?;
        if address.number() & !Self::mask(length) != 0 {
            return Err(format!(
                "a network whose address ends in zeros after {length} bits, such as {}",
                A::EXAMPLE
            ));
        }
        Ok(Self { address, length })
    }

    fn show(&self) -> String {
        format!("{}/{}", self.address, self.length)
    }
}

impl<A: Address> std::fmt::Display for NetworkPrefix<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Octets in hexadecimal digits that no message repeats.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretHex(pub Vec<u8>);

impl Value for SecretHex {
    const SECRET: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        unhex(text.trim()).map(Self).ok_or_else(|| "an even number of hexadecimal digits, quoted".into())
    }

    fn show(&self) -> String {
        "…".into()
    }
}

impl std::fmt::Debug for SecretHex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretHex(…)")
    }
}

/// Octets of hexadecimal digits; `None` where the text is anything else.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |c: u8| (c as char).to_digit(16);
    digits.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

/// Reads one word out of a known few, with "did you mean".
pub fn word_of<T: Copy>(text: &str, known: &[(&'static str, T)]) -> Result<T, String> {
    let text = text.trim();
    if let Some((_, value)) = known.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return Ok(*value);
    }
    let words: Vec<&str> = known.iter().map(|k| k.0).collect();
    Err(match did_you_mean(text, words.iter().copied()) {
        Some(meant) if !text.is_empty() => format!("{meant} (known are {})", words.join(", ")),
        _ => format!("one of {}", words.join(", ")),
    })
}

/// Implements [`Value`] for a type that is written as one of a few words.
macro_rules! words {
    ($type:ty { $($value:path = $word:literal,)* }) => {
        impl $crate::config::value::Value for $type {
            fn read(text: &str) -> Result<Self, String> {
                $crate::config::value::word_of(text, &[$(($word, $value)),*])
            }
            fn show(&self) -> String {
                match self { $($value => $word.into(),)* }
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit() {
        assert_eq!(Duration::read("54min"), Ok(Duration::from_secs(54 * 60)));
        assert_eq!(Duration::read("12 min"), Ok(Duration::from_secs(12 * 60)));
        assert_eq!(Duration::read("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(Duration::read("6"), Err("the unit too: 6s, 6min or 6h".into()));
        assert!(Duration::read("99999999999999999999h").is_err());
        assert!(Duration::read("-3s").is_err());
        for s in ["1h", "54min", "6s", "1500ms", "0s"] {
            assert_eq!(Duration::read(s).unwrap().show(), s);
        }
    }

    #[test]
    fn an_address_can_be_that_of_an_environment_variable() {
        // What each test has in its environment is no address; tests/interop/packages.sh checks configurations with one.
        let name = "${CARGO_MANIFEST_DIR}";
        let refused =
            Err("an IP address, or set the environment variable CARGO_MANIFEST_DIR to one".to_string());
        assert_eq!(IpAddr::read(name), refused);
        assert_eq!(SocketAddr::read(&format!("{name}:7390")), refused.map(|_: IpAddr| unreachable!()));
        for bad in ["${NAME", "${NAME}", "${NAME}1", "${}", "${NAME}:7390"] {
            assert!(IpAddr::read(bad).is_err(), "{bad}");
        }
        for bad in ["${NAME}", "${NAME}:", "${NAME}:70000", "${NAME}7390"] {
            assert!(SocketAddr::read(bad).is_err(), "{bad}");
        }
        assert_eq!(variable_in("${POD_IP}:7390"), Some(("POD_IP", ":7390")));
    }

    #[test]
    fn prefixes_have_no_host_bits_and_know_their_overlap() {
        let p = |s| NetworkPrefix::<Ipv4Addr>::read(s);
        let a = p("10.45.0.0/16").unwrap();
        assert!(a.overlaps(&p("10.0.0.0/8").unwrap()) && a.overlaps(&p("10.45.3.0/24").unwrap()));
        assert!(!a.overlaps(&p("10.46.0.0/16").unwrap()));
        assert!(a.contains("10.45.255.255".parse().unwrap()) && !a.contains("10.46.0.0".parse().unwrap()));
        assert!(p("0.0.0.0/0").unwrap().overlaps(&a));
        for bad in ["10.45.0.1/16", "10.45.0.0/33", "10.45.0.0", "x/8"] {
            assert!(p(bad).is_err(), "{bad}");
        }
        let six = NetworkPrefix::<Ipv6Addr>::read("fd00:9997:45::/48").unwrap();
        assert_eq!(six.show(), "fd00:9997:45::/48");
        assert!(NetworkPrefix::<Ipv6Addr>::read("::/0").unwrap().overlaps(&six));
        assert!(NetworkPrefix::<Ipv6Addr>::read("fd00::1/64").is_err());
    }

    #[test]
    fn a_secret_is_not_repeated() {
        assert_eq!(unhex("00ff"), Some(vec![0, 255]));
        assert_eq!(unhex("0é"), None);
        assert_eq!(format!("{:?}", SecretHex(vec![1])), "SecretHex(…)");
    }
}
