//! URIs at which other functions want to be notified. This core sends there, so a URI that leads inwards would let its sender reach, through
//! this core, what it cannot reach itself.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use hyper::Uri;

/// Places to which no notification is sent.
pub(crate) struct CallbackPolicy {
    /// Addresses at which this core is reached.
    own: Vec<SocketAddr>,
}

impl CallbackPolicy {
    /// With the addresses at which this core is reached over HTTP.
    pub(crate) fn new(own: Vec<SocketAddr>) -> Self {
        Self { own }
    }

    /// The URI, where it leads to the function that asks for it, or to another host. The error says why it is refused.
    ///
    /// A name is refused, because it may have another address when the notification is sent than it has now.
    pub(crate) fn check(&self, uri: &str, sender: IpAddr) -> Result<Uri, &'static str> {
        let parsed: Uri = uri.parse().map_err(|_| "the callback is no URI")?;
        let default_port = match parsed.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err("the callback is no URI of http or https"),
        };
        let host = parsed.host().ok_or("the callback names no host")?;
        let port = parsed.port_u16().unwrap_or(default_port);
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let address: IpAddr =
            host.parse().map_err(|_| "the callback names its host by a name; an address is needed")?;
        self.check_endpoint(address, Some(port), sender)?;
        Ok(parsed)
    }

    /// Checks an address at which a function is reached. A function of this host may name each address of this host.
    pub(crate) fn check_endpoint(
        &self,
        address: IpAddr,
        port: Option<u16>,
        sender: IpAddr,
    ) -> Result<(), &'static str> {
        // Without a port it is none of this core's.
        let port = port.unwrap_or_default();
        let sender = sender.to_canonical();
        let is_of_sender = |address: IpAddr| {
            sender == address
                || is_of_this_host(sender) && (address.is_loopback() || is_of_this_host(address))
        };
        self.check_address(address, port, is_of_sender)
    }

    /// `is_of_sender` says of an address of this host, or of its link alone, that the sender may name it.
    fn check_address(
        &self,
        address: IpAddr,
        port: u16,
        is_of_sender: impl Fn(IpAddr) -> bool,
    ) -> Result<(), &'static str> {
        // ::ffff:127.0.0.1 is 127.0.0.1.
        let address = address.to_canonical();
        let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || is_broadcast {
            return Err("the callback leads to no single host");
        }
        let is_of_this_host = address.is_loopback() || is_of_this_host(address);
        let is_own = |own: &SocketAddr| {
            let own_address = own.ip().to_canonical();
            own.port() == port && (own_address == address || own_address.is_unspecified() && is_of_this_host)
        };
        if self.own.iter().any(is_own) {
            return Err("the callback leads to this core");
        }
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        match (is_of_this_host || is_link_local) && !is_of_sender(address) {
            true => Err("the callback leads to this host, or to its link alone"),
            false => Ok(()),
        }
    }
}

/// True for an address of an interface of this host: the kernel takes it as the source of packets to itself. No packet is sent.
pub(crate) fn is_of_this_host(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0; 16], 0).into(),
    };
    let source = UdpSocket::bind(any).and_then(|socket| {
        // The port of discard (RFC 863): a datagram socket that is connected has a source, whatever the port.
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: &str = "198.51.100.7";

    fn policy() -> CallbackPolicy {
        CallbackPolicy::new(vec!["192.0.2.1:7777".parse().unwrap(), "0.0.0.0:8080".parse().unwrap()])
    }

    fn check(uri: &str, sender: &str) -> Result<(), &'static str> {
        policy().check(uri, sender.parse().unwrap()).map(drop)
    }

    #[test] // TS 29.503 §5.3.2.3, §5.2.2.5: to the function that asks, or to another of its network
    fn a_callback_to_the_sender_or_to_another_host_is_taken() {
        for uri in
            ["http://198.51.100.7/cb", "https://198.51.100.9:8443/cb?a=b", "http://[2001:db8::7]:80/cb"]
        {
            assert_eq!(check(uri, SENDER), Ok(()), "{uri}");
        }
        // A function of the same host, whose callback is at the address that it comes from.
        assert_eq!(check("http://127.0.0.1:9000/cb", "127.0.0.1"), Ok(()));
        assert_eq!(check("http://[::ffff:127.0.0.1]:9000/cb", "127.0.0.1"), Ok(()));
        assert_eq!(check("http://127.0.0.1:9000/cb", "::ffff:127.0.0.1"), Ok(()));
        // Functions of one host have different addresses of it, and one port.
        assert_eq!(check("http://127.0.0.5:7777/cb", "127.0.0.1"), Ok(()));
        assert!(
            check("http://169.254.169.254/latest", "127.0.0.1").is_err(),
            "that is no address of this host"
        );
    }

    #[test]
    fn a_callback_to_this_host_or_to_no_host_is_refused() {
        for uri in [
            "http://127.0.0.1/",
            "http://127.0.0.1:9000/",
            "http://127.255.1.2/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]:9000/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://[::ffff:0.0.0.0]/",
            "http://255.255.255.255/",
            "http://224.0.0.1/",
            "http://[ff02::1]/",
            "http://169.254.169.254/latest",
            "http://[fe80::1]/",
        ] {
            assert!(check(uri, SENDER).is_err(), "{uri}");
        }
    }

    #[test] // Names that resolve to this host, numbers that a resolver reads as an address, and what is no URI
    fn a_callback_that_names_no_address_is_refused() {
        for uri in [
            "http://localhost/",
            "http://localhost.localdomain:8080/",
            "http://ip6-localhost/",
            "http://udm.example/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://[fe80::1%25lo]/",
            "ftp://198.51.100.9/",
            "198.51.100.9:80",
            "/callback",
            "",
            "http://",
            "http://a b/",
        ] {
            assert!(check(uri, "127.0.0.1").is_err(), "{uri}");
        }
        // The host is what follows the user, whose name looks like an address.
        assert!(check("http://198.51.100.9@127.0.0.1/", SENDER).is_err());
    }

    #[test] // Also where the sender is on the same host
    fn a_callback_to_an_address_of_this_core_is_refused_to_everyone() {
        for uri in [
            "http://192.0.2.1:7777/callbacks/udm/imsi-1/deregistration",
            "http://[::ffff:192.0.2.1]:7777/",
            "http://127.0.0.1:8080/api/v1/subscribers",
            "http://[::ffff:127.0.0.1]:8080/",
            "http://127.8.8.8:8080/",
            "http://[::1]:8080/",
        ] {
            for sender in [SENDER, "127.0.0.1", "::1", "192.0.2.1"] {
                assert_eq!(check(uri, sender), Err("the callback leads to this core"), "{uri} {sender}");
            }
        }
        assert_eq!(check("http://198.51.100.9:8080/", SENDER), Ok(()), "the same port of another host");
    }

    #[test]
    fn addresses_of_this_host_are_known() {
        assert!(is_of_this_host([127, 0, 0, 1].into()));
        assert!(!is_of_this_host([198, 51, 100, 9].into()));
        // The address of an interface beside loopback, where there is one.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("198.51.100.9:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_of_this_host(own), "{own}");
            assert!(check(&format!("http://{own}:9000/"), SENDER).is_err());
            assert!(check(&format!("http://{own}:8080/"), &own.to_string()).is_err());
            assert_eq!(check(&format!("http://{own}:9000/"), &own.to_string()), Ok(()));
        }
    }
}
