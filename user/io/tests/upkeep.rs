//! Changes that other programs make to the host while the user plane runs. The set-up of the user plane is
//! put back; other changes are reported.

use super::common;

use std::net::UdpSocket;

use common::*;
use whimbrel_ids::Teid;
use whimbrel_user_io::{HostProblem, N3Io, UserPlane};

/// The UE's ping is answered by the server.
fn passes(gnb: &UdpSocket, teid: Teid, ue: std::net::Ipv4Addr) {
    exchange(gnb, teid, &ping4(ue, SERVER, 7, 64), |p| p.len() == 92 && p[20] == 0);
}

/// Waits for a line of the log that says what was put back.
fn put_back(net: &Control, change: &str) {
    let mut all = Vec::new();
    let begun = std::time::Instant::now();
    while !all.iter().any(|line: &String| line.contains(change)) {
        assert!(begun.elapsed() < SURELY, "{change}: {all:?}; {:?}", net.handle.host_report().problems);
        std::thread::sleep(std::time::Duration::from_millis(5));
        all.extend(net.handle.host_report().put_back);
    }
}

/// Waits until the only problem is one of these, or there is none.
fn problem(net: &Control, expected: impl Fn(Option<&HostProblem>) -> bool) -> String {
    eventually(
        || {
            let problems = net.handle.host_report().problems;
            problems.len() < 2 && expected(problems.first())
        },
        || format!("{:?}", net.handle.host_report().problems),
    );
    net.handle.host_report().problems.first().map(ToString::to_string).unwrap_or_default()
}

fn has(tool: &str) -> bool {
    std::process::Command::new(tool).arg("--version").output().is_ok()
}

const IO: [(&str, N3Io); 2] = [("udp", N3Io::Udp), ("udp/threads", N3Io::Udp)];

#[test]
fn devices_addresses_and_translation_that_another_program_removes_are_put_back() {
    with_io("devices_addresses_and_translation_that_another_program_removes_are_put_back", &IO, |io, ran| {
        let _server = Namespace::server();
        let mut config = config(io);
        config.devices[0].nat = true;
        let Some(mut net) = Control::start(config) else { return };
        let (_, teid, ue, _) = net.session();
        let gnb = ran.socket(GNB.into());
        passes(&gnb, teid, ue);
        let addresses = || sh("ip -o address show dev upf0 scope global | awk '{ print $4 }'");
        let own = addresses();
        assert_eq!(own.lines().count(), 2, "{own}");
        for (change, line) in [
            ("ip link delete upf0", "the interface upf0 was deleted"),
            ("ip address flush dev upf0 scope global", "of upf0 was removed"),
            ("ip link set upf0 down", "upf0 was taken down"),
            ("ip link set upf0 down && ip link set upf0 up", "upf0"),
            ("nft flush ruleset", "the nftables table inet whimbrel-upf0 was removed"),
        ] {
            if change.starts_with("nft") && !has("nft") {
                continue;
            }
            sh(change);
            put_back(&net, line);
            passes(&gnb, teid, ue);
            assert_eq!(addresses(), own, "{change}");
        }
        net.handle.stop().unwrap();
        assert!(!sh("ip -o link").contains("upf0"), "it is not put back when the program ends");
    });
}

#[test]
fn settings_of_others_that_keep_ues_from_the_data_network_are_named_with_the_command_that_permits_it() {
    with_io(
        "settings_of_others_that_keep_ues_from_the_data_network_are_named_with_the_command_that_permits_it",
        &IO[..1],
        |io, ran| {
            let _server = Namespace::server();
            let mut config = config(io);
            config.devices[0].nat = true;
            let Some(mut net) = Control::start(config) else { return };
            let (_, teid, ue, _) = net.session();
            let gnb = ran.socket(GNB.into());
            let none = |problem: Option<&HostProblem>| problem.is_none();
            problem(&net, none);
            // The command stands between backquotes.
            let fix = |sentence: &str| {
                let command = sentence.rsplit_once("; fix: `").unwrap().1;
                sh(command.strip_suffix('`').unwrap());
            };
            sh("echo 0 >/proc/sys/net/ipv4/ip_forward");
            let off = problem(&net, |p| matches!(p, Some(HostProblem::ForwardingOff { .. })));
            assert!(off.contains("net.ipv4.ip_forward"), "{off}");
            sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
            problem(&net, none);
            if has("nft") {
                sh("nft add table inet theirs && \
                    nft add chain inet theirs forward \"{ type filter hook forward priority 0; policy drop; }\"");
                let dropped = problem(&net, |p| matches!(p, Some(HostProblem::Dropped { .. })));
                assert!(dropped.contains("the nftables table inet theirs"), "{dropped}");
                fix(&dropped);
                problem(&net, none);
            }
            passes(&gnb, teid, ue);
            sh("ip link add late type veth peer name later && ip address add 10.45.7.1/24 dev late");
            let overlap = problem(&net, |p| matches!(p, Some(HostProblem::PoolOverlaps { .. })));
            assert!(
                overlap.contains("10.45.0.0/16 of `internet` overlaps 10.45.7.0/24, the network of late"),
                "{overlap}"
            );
            sh("ip link delete late");
            problem(&net, none);
            sh(&format!("ip address delete {UPF}/24 dev n3"));
            problem(&net, |p| matches!(p, Some(HostProblem::NoN3Address(_))));
            sh(&format!("ip address add {UPF}/24 dev n3"));
            problem(&net, none);
            passes(&gnb, teid, ue);
        },
    );
}

#[test]
fn pool_that_is_one_of_the_hosts_networks_is_refused_at_the_start() {
    with_io("pool_that_is_one_of_the_hosts_networks_is_refused_at_the_start", &IO[..1], |io, _ran| {
        sh("ip link add late type veth peer name later && ip address add 10.45.7.1/24 dev late");
        let Err(e) = UserPlane::start(config(io)) else { panic!("it starts") };
        let sentence = e.to_string();
        assert!(
            sentence.starts_with("the pool 10.45.0.0/16 of `internet` overlaps 10.45.7.0/24"),
            "{sentence}"
        );
        assert!(!sh("ip -o link").contains("upf0"), "nothing was made");
        sh("ip address flush dev late && ip address add 10.45.7.1/32 dev late");
        UserPlane::start(config(io)).unwrap();
    });
}
