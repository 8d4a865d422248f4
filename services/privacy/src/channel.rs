//! How the operator reaches the broker: which anonymous channels of chapter 4.4.2, step iii, may be used, and
//! how they fail. The channels themselves are at the operator's edge.
//!
//! A channel belongs to one token. It is opened before the token is broadcast, serves the token's session group, and is closed with
//! it; no two tokens share one. What cannot be anonymous fails: [`permit`] refuses [`Kind::Direct`] unless it is forced.

/// How a channel hides where the operator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Not at all: the broker sees the operator's address. For tests.
    Direct,
    /// Two relays that do not collude: the first sees the operator's address, the second the broker's.
    RelayPair,
    /// A circuit of Tor for each token.
    Tor,
}

impl Kind {
    /// True if the broker, which sees one end alone, does not see where the other is.
    pub const fn hides_address(self) -> bool {
        match self {
            Self::Direct => false,
            Self::RelayPair | Self::Tor => true,
        }
    }
}

impl core::fmt::Display for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::RelayPair => "relay pair",
            Self::Tor => "Tor",
        })
    }
}

/// That a kind may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permitted(Kind);

impl Permitted {
    /// The kind of channel.
    pub const fn kind(self) -> Kind {
        self.0
    }
}

/// The kind does not hide the operator's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnonymous(pub Kind);

impl core::fmt::Display for NotAnonymous {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "a {} channel shows the broker the operator's address", self.0)
    }
}

impl core::error::Error for NotAnonymous {}

/// Whether a configuration may use a kind: one that hides nothing only if `forced` is set.
pub const fn permit(kind: Kind, forced: bool) -> Result<Permitted, NotAnonymous> {
    if kind.hides_address() || forced { Ok(Permitted(kind)) } else { Err(NotAnonymous(kind)) }
}

/// Why a channel gave no answer. The operator then asks by no other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// There is no channel of this token.
    NotOpen,
    /// The circuit or tunnel ended.
    Closed,
    /// No answer came in time.
    TimedOut,
}

impl core::fmt::Display for Failure {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotOpen => "no channel to the broker is open for this token",
            Self::Closed => "the channel to the broker ended",
            Self::TimedOut => "the broker did not answer through the channel in time",
        })
    }
}

impl core::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_that_hides_nothing_is_refused_unless_forced() {
        assert_eq!(permit(Kind::Direct, false), Err(NotAnonymous(Kind::Direct)));
        assert_eq!(permit(Kind::Direct, true).map(Permitted::kind), Ok(Kind::Direct));
        for kind in [Kind::RelayPair, Kind::Tor] {
            assert_eq!(permit(kind, false).map(Permitted::kind), Ok(kind));
        }
        let error = NotAnonymous(Kind::Direct).to_string();
        assert_eq!(error, "a direct channel shows the broker the operator's address");
    }
}
