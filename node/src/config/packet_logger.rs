//! A packet logger in front of two UPFs on two hosts (docs/design/packet-logger.md).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use super::section::{Pass, Section};

/// Bounds of `detection`.
const DETECTION: std::ops::RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_secs(10);
/// Bounds of `packets`: 1 GiB of buffers at most.
const PACKETS: std::ops::RangeInclusive<u32> = 64..=262_144;

/// The packet logger.
#[derive(Clone, Debug)]
pub struct PacketLogger {
    /// `None`: there is none.
    pub address: Option<SocketAddr>,
    pub key_file: Option<PathBuf>,
    pub packets: u32,
    pub detection: Duration,
}

pub(super) fn read(root: &mut Section<'_, '_>) -> PacketLogger {
    let doc = "A packet logger (`whimbrel packet-logger`) in front of two UPFs (`whimbrel upf`) on two hosts, one the replica of the other \
               (docs/design/packet-logger.md). All three have the same `n3`, `n4`, `n6` and `data_networks`: the addresses are the logger's.";
    root.section("packet_logger", doc, |s| {
        let logger = PacketLogger {
            address: s.optional(
                "address",
                "192.0.2.8:7390",
                "Address and port (TCP and UDP) at which the logger and its UPFs reach each other. Without it there is no logger.",
            ),
            key_file: s.optional(
                "key_file",
                "/etc/whimbrel/cluster.key",
                "File with the key of their links, 64 hexadecimal digits, the same on the three hosts. Without it, only processes of one host can \
                 be connected, at loopback addresses.",
            ),
            packets: s.value(
                "packets",
                16_384u32,
                "Packets that the logger keeps in each direction until the UPF has done with them, 64 to 262,144, of some 2 KiB each.",
            ),
            detection: s.value(
                "detection",
                Duration::from_millis(20),
                "A UPF whose packet thread gives no sign of life for this long is replaced: 5 ms to 10 s. One whose process ends is replaced at once.",
            ),
        };
        let what = format!("{} packets are too few for a burst, or too many", logger.packets);
        s.bound("packets", PACKETS.contains(&logger.packets), what, "64 to 262144");
        s.bound("detection", DETECTION.contains(&logger.detection), "a busy host stalls for milliseconds", "5ms to 10s");
        logger
    })
}

/// Reports contradictions with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let Some(address) = config.packet_logger.address else { return };
    if config.n4.listen.is_none() {
        let what = "no SMF could reach the UPFs behind the packet logger";
        pass.refuse("n4.listen", what, "write the address and port at which the logger takes PFCP");
    }
    if config.packet_logger.key_file.is_none() && !address.ip().is_loopback() {
        let what = format!("links at {address} would carry the sessions' state unprotected");
        pass.refuse("packet_logger.key_file", what, "name the file with the key");
    }
    if config.data_networks.iter().any(|n| n.ethernet || n.n6_link.is_some()) {
        let what = "a packet logger has TUN devices alone: no Ethernet sessions, and no interface of a data network's own";
        pass.refuse("packet_logger.address", what, "leave out `ethernet` and `n6_interface`, or the logger");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn problems(yaml: &str) -> String {
        match crate::config::parse(yaml, Path::new("u.yaml")) {
            Ok(_) => String::new(),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn what_contradicts_a_packet_logger_is_named_with_its_key() {
        let n4 = "n4: { listen: \"127.0.0.1:8805\" }\n";
        let good = format!("{n4}packet_logger: {{ address: \"127.0.0.1:7390\" }}");
        assert_eq!(problems(&good), "");
        for (yaml, key) in [
            ("packet_logger: { address: \"127.0.0.1:7390\" }".to_string(), "n4.listen"),
            (format!("{n4}packet_logger: {{ address: \"192.0.2.8:7390\" }}"), "packet_logger.key_file"),
            (format!("{good}\nunit: {{ enabled: true }}"), "packet_logger.address"),
            (format!("{n4}packet_logger: {{ packets: 7 }}"), "packet_logger.packets"),
            (format!("{n4}packet_logger: {{ detection: 1ms }}"), "packet_logger.detection"),
        ] {
            assert!(problems(&yaml).contains(key), "{yaml}: {}", problems(&yaml));
        }
    }
}
