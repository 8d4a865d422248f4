//! Places that requests go to.

use core::fmt;
use core::str::FromStr;

use hyper::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};

use crate::error::SendError;

/// Scheme, host and port of a peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SbiEndpoint {
    /// `https` instead of `http`.
    pub tls: bool,
    /// Name or address, an IPv6 address without brackets.
    pub host: Box<str>,
    /// Port of TCP.
    pub port: u16,
}

impl SbiEndpoint {
    /// The peer that a URI names.
    pub fn of(uri: &Uri) -> Result<Self, SendError> {
        let wrong = || SendError::Uri(uri.to_string().chars().take(200).collect::<String>().into());
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { tls, host: host.to_ascii_lowercase().into(), port })
    }
}

impl fmt::Display for SbiEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

/// Scheme, authority and prefix before the path of an API: `{apiRoot}` of TS 29.501 §4.4.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRoot {
    root: Uri,
    /// The prefix without a slash at its end.
    prefix: Box<str>,
}

impl ApiRoot {
    /// The URI of a path below the root. `path_and_query` begins with a slash.
    pub fn uri(&self, path_and_query: &str) -> Result<Uri, SendError> {
        let wrong = || SendError::Uri(path_and_query.chars().take(200).collect::<String>().into());
        if !path_and_query.starts_with('/') {
            return Err(wrong());
        }
        let mut parts = self.root.clone().into_parts();
        let path = PathAndQuery::try_from(format!("{}{path_and_query}", self.prefix));
        parts.path_and_query = Some(path.map_err(|_| wrong())?);
        Uri::from_parts(parts).map_err(|_| wrong())
    }

    /// The peer behind it.
    pub fn endpoint(&self) -> Result<SbiEndpoint, SendError> {
        SbiEndpoint::of(&self.root)
    }
}

impl FromStr for ApiRoot {
    type Err = SendError;

    fn from_str(text: &str) -> Result<Self, SendError> {
        let wrong = || SendError::Uri(text.chars().take(200).collect::<String>().into());
        let root: Uri = text.parse().map_err(|_| wrong())?;
        SbiEndpoint::of(&root)?;
        if root.query().is_some() {
            return Err(wrong());
        }
        let prefix = root.path().trim_end_matches('/').into();
        Ok(Self { root, prefix })
    }
}

impl fmt::Display for ApiRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.root.authority().map_or("", |a| a.as_str());
        write!(f, "{}://{authority}{}", self.root.scheme_str().unwrap_or_default(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // TS 29.501 §4.4.1: {apiRoot} has a scheme, an authority and an optional prefix
    fn roots_give_uris_and_endpoints() {
        let root: ApiRoot = "https://UDM.example:8443/core/".parse().unwrap();
        assert_eq!(root.to_string(), "https://UDM.example:8443/core");
        let uri = root.uri("/nudm-sdm/v2/imsi-1/am-data?plmn-id=1").unwrap();
        assert_eq!(uri, "https://udm.example:8443/core/nudm-sdm/v2/imsi-1/am-data?plmn-id=1");
        assert_eq!(root.endpoint().unwrap().to_string(), "https://udm.example:8443");
        let of = |uri: &str| SbiEndpoint::of(&uri.parse().unwrap()).map(|e| e.to_string());
        assert_eq!(of("http://[::1]/x").unwrap(), "http://[::1]:80");
        assert_eq!(of("https://10.0.0.1/x").unwrap(), "https://10.0.0.1:443");
        assert!(of("/nudm-sdm").is_err() && of("ftp://a/").is_err());
        for wrong in ["", "udm:80", "http://", "http://a/?b", "https:///x"] {
            assert!(wrong.parse::<ApiRoot>().is_err(), "{wrong}");
        }
        assert!(root.uri("nudm").is_err() && root.uri("/a b").is_err());
    }
}
