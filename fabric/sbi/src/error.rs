//! Reasons for which a consumer has no response.

use core::fmt;
use std::time::Duration;

use tokio_rustls::rustls::{self, CertificateError};

use crate::endpoint::SbiEndpoint;

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The URI has no scheme `http` or `https`, or no host.
    Uri(Box<str>),
    /// The request cannot be written: a header or its URI is too long or has signs that HTTP lacks.
    Request(SbiEndpoint, Box<str>),
    /// `https` without a configuration of TLS.
    NoTls(SbiEndpoint),
    /// The name of the host has no address.
    Resolve(SbiEndpoint, Box<str>),
    /// No connection: refused, no route, or no answer in time.
    Connect(SbiEndpoint, Box<str>),
    /// The TLS certificate names another host.
    TlsName(SbiEndpoint),
    /// The TLS certificate has expired, or is not valid yet.
    TlsExpired(SbiEndpoint),
    /// The TLS certificate is of no authority that is trusted here.
    TlsUntrusted(SbiEndpoint),
    /// TLS failed in another way.
    Tls(SbiEndpoint, Box<str>),
    /// The peer does not speak HTTP/2.
    NotHttp2(SbiEndpoint),
    /// All streams to this peer are in use.
    Busy(SbiEndpoint, usize),
    /// The peer asked to be left alone for a time that ends after the request's own.
    RetryAfter(SbiEndpoint, Duration),
    /// The peer refused the stream or closed the connection before it looked at the request.
    Refused(SbiEndpoint),
    /// No response in time.
    TimedOut(SbiEndpoint, Duration),
    /// The peer reset the stream, with the code of RFC 9113 §7.
    Reset(SbiEndpoint, u32),
    /// The connection broke before the response had ended.
    Broken(SbiEndpoint, Box<str>),
    /// The body of the response is longer than this many octets.
    TooLong(SbiEndpoint, usize),
    /// The body of the response is neither JSON nor problem details, but this.
    ContentType(SbiEndpoint, Box<str>),
    /// No instance to send to.
    NoInstance,
}

impl SendError {
    /// True if the peer has certainly not acted on the request: it may be repeated elsewhere, whatever its method.
    pub fn is_unprocessed(&self) -> bool {
        match self {
            Self::Uri(_)
            | Self::Request(..)
            | Self::NoTls(_)
            | Self::Resolve(..)
            | Self::Connect(..)
            | Self::TlsName(_)
            | Self::TlsExpired(_)
            | Self::TlsUntrusted(_)
            | Self::Tls(..)
            | Self::NotHttp2(_)
            | Self::Busy(..)
            | Self::RetryAfter(..)
            | Self::Refused(_)
            | Self::NoInstance => true,
            Self::TimedOut(..)
            | Self::Reset(..)
            | Self::Broken(..)
            | Self::TooLong(..)
            | Self::ContentType(..) => false,
        }
    }

    /// The meaning of a failed TLS handshake.
    pub(crate) fn of_tls(at: &SbiEndpoint, e: &std::io::Error) -> Self {
        let at = at.clone();
        let cause = e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(cause)) => match cause {
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::TlsName(at)
                }
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::TlsExpired(at),
                // A signature that is wrong is that of another authority of the same name.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::TlsUntrusted(at),
                other => Self::Tls(at, other.to_string().into()),
            },
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol)) => {
                Self::NotHttp2(at)
            }
            _ => Self::Tls(at, e.to_string().into()),
        }
    }

    /// The reason for which a connection without any response ended, where it says more than that it did: an alert of TLS, or octets that
    /// are no HTTP/2.
    pub(crate) fn of_connection(at: &SbiEndpoint, e: &hyper::Error) -> Option<Self> {
        /// The sentence of rustls on an alert. Its type does not come through h2.
        const ALERT: &str = "received fatal alert";
        let mut source = core::error::Error::source(e);
        while let Some(cause) = source {
            let h2 = cause.downcast_ref::<h2::Error>();
            let text = h2.and_then(h2::Error::get_io).map_or_else(|| cause.to_string(), ToString::to_string);
            if text.contains(ALERT) {
                return Some(Self::Tls(at.clone(), text.into()));
            }
            source = cause.source();
        }
        Some(Self::of_http(at, e, false)).filter(|e| matches!(e, Self::NotHttp2(_)))
    }

    /// The meaning of an error of an exchange. `answered`: the connection has had a response before.
    pub(crate) fn of_http(at: &SbiEndpoint, e: &hyper::Error, answered: bool) -> Self {
        let at = at.clone();
        let mut source = core::error::Error::source(e);
        while let Some(cause) = source {
            if let Some(cause) = cause.downcast_ref::<h2::Error>() {
                return Self::of_h2(at, cause, answered);
            }
            source = cause.source();
        }
        if e.is_canceled() {
            // Handed back before it was written.
            return Self::Refused(at);
        }
        Self::Broken(at, e.to_string().into())
    }

    fn of_h2(at: SbiEndpoint, e: &h2::Error, answered: bool) -> Self {
        match e.reason() {
            Some(h2::Reason::REFUSED_STREAM) if e.is_reset() && e.is_remote() => Self::Refused(at),
            // RFC 9113 §6.8: the stream is above the last that the peer looked at, or its request was not complete (`RequestBody`).
            Some(_) if e.is_go_away() && e.is_remote() => Self::Refused(at),
            Some(reason) if e.is_reset() && e.is_remote() => Self::Reset(at, reason.into()),
            // The first octets were no frames of HTTP/2.
            Some(h2::Reason::FRAME_SIZE_ERROR | h2::Reason::PROTOCOL_ERROR)
                if !answered && !e.is_remote() =>
            {
                Self::NotHttp2(at)
            }
            _ => Self::Broken(at, e.to_string().into()),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(uri) => write!(f, "{uri} is no URI of http or https with a host"),
            Self::Request(at, e) => write!(f, "the request to {at} cannot be written: {e}"),
            Self::NoTls(at) => write!(f, "{at} needs TLS, for which no trusted authority is configured"),
            Self::Resolve(at, e) => write!(f, "the name in {at} has no address: {e}"),
            Self::Connect(at, e) => write!(f, "no connection to {at}: {e}"),
            Self::TlsName(at) => write!(f, "the TLS certificate of {at} names another host"),
            Self::TlsExpired(at) => write!(f, "the TLS certificate of {at} has expired or is not valid yet"),
            Self::TlsUntrusted(at) => {
                write!(f, "no authority that is trusted here signed the TLS certificate of {at}")
            }
            Self::Tls(at, e) => write!(f, "TLS with {at} fails: {e}"),
            Self::NotHttp2(at) => write!(f, "{at} does not speak HTTP/2"),
            Self::Busy(at, streams) => write!(f, "all {streams} requests to {at} at once are in progress"),
            Self::RetryAfter(at, wait) => {
                write!(f, "{at} is overloaded and takes requests again in {} s", wait.as_secs_f32().ceil())
            }
            Self::Refused(at) => write!(f, "{at} closed the connection before it looked at the request"),
            Self::TimedOut(at, within) => {
                write!(f, "{at} has not answered within {} ms", within.as_millis())
            }
            Self::Reset(at, code) => {
                write!(f, "{at} reset the request with error {code} of HTTP/2")
            }
            Self::Broken(at, e) => write!(f, "the connection to {at} broke: {e}"),
            Self::TooLong(at, most) => {
                write!(f, "the response of {at} is longer than {most} octets, the most that is read")
            }
            Self::ContentType(at, media_type) => {
                write!(f, "the response of {at} is {media_type}, where JSON is expected")
            }
            Self::NoInstance => f.write_str("there is no instance to send the request to"),
        }
    }
}

impl core::error::Error for SendError {}
