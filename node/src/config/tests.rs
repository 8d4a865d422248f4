//! The file as an operator writes it, right and wrong.

use std::path::Path;
use std::time::Duration;

use super::*;

fn read(text: &str) -> Result<Config, String> {
    parse(text, Path::new("w.yaml")).map_err(|e| e.to_string())
}

fn refused(text: &str) -> String {
    match read(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(sentences) => sentences,
    }
}

#[test]
fn an_empty_file_is_the_defaults() {
    let config = read("").unwrap();
    assert_eq!(config.amf.plmn.to_string(), "999/70");
    assert_eq!(config.data_networks.len(), 1);
    assert_eq!(config.data_networks[0].dnn.as_str(), "internet");
    assert_eq!(config.timers.t3550, Duration::from_secs(6));
    assert!(config.api.address.ip().is_loopback());
    assert_eq!(format!("{:?}", read("# nothing\n").unwrap()), format!("{config:?}"));
}

#[test]
fn the_printed_defaults_read_back_as_the_defaults() {
    let text = defaults();
    let mut config = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    // Only a text names files.
    assert!(!std::mem::take(&mut config.files).is_empty());
    assert_eq!(format!("{config:?}"), format!("{:?}", default()));
    let widest = text.lines().map(|l| l.chars().count()).max();
    assert!(widest <= Some(112), "{widest:?}");
    for (i, line) in text.lines().enumerate() {
        assert!(!line.ends_with(' '), "line {}", i + 1);
    }
}

#[test]
fn the_keys_of_operators_are_printed_alone_and_read_back_as_the_defaults() {
    let text = operator_defaults();
    let mut config = read(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    config.files.clear();
    assert_eq!(format!("{config:?}"), format!("{:?}", default()));
    for shown in ["plmn: 999/70", "  - dnn: internet", "  keep_ues: on-stop", "# listen: 127.0.0.1:7380"] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    for hidden in ["t3550", "refusals", "early_drop", "heartbeat", "foresight"] {
        assert!(!text.contains(hidden) && defaults().contains(hidden), "{hidden}\n{text}");
    }
}

#[test]
fn keys_in_3gpp_words() {
    let config = read(
        "plmn: 001/01\ntacs: 7\nslices: [1, 2-0000ab]\namf:\n  region: 128\n  set: 4\n  pointer: 1\nsecurity:\n  integrity: nia2\n\
         data_networks:\n  - dnn: internet\n    ipv4_pool: 10.60.0.0/16\n    ipv6_pool: none\n  - dnn: ims\n\
         timers:\n  t3560: 2s\n",
    )
    .unwrap();
    assert_eq!(config.amf.tacs.len(), 1);
    assert_eq!(config.amf.slices[1].to_string(), "2-0000ab");
    assert_eq!(config.amf.amf_id.octets(), [128, 1, 1]);
    assert_eq!(config.data_networks[0].ipv6_pool, None);
    assert_eq!(config.data_networks[1].ipv4_pool.unwrap().to_string(), "10.46.0.0/16");
    assert_eq!(config.timers.t3560, Duration::from_secs(2));
}

#[test]
fn problems_are_reported_with_line_column_and_fix() {
    for (text, sentence) in [
        ("tacs: 1\nplnm: 999/70\n", "w.yaml:2:1: `plnm` is not a configuration key; did you mean `plmn`?"),
        ("n2:\n  prot: 1\n", "w.yaml:2:3: `prot` is not a key of `n2`; did you mean `port`?"),
        ("plmn: 9997\n", "w.yaml:1:7: plmn: `9997` is not understood; write a PLMN of 3 digits (MCC)"),
        ("tacs: 16777216\n", "w.yaml:1:7: tacs: `16777216` is not understood; write a TAC of 0 to 16777215"),
        (
            "n2:\n  port: none\n",
            "w.yaml:2:9: n2.port: `none` is not understood; write a whole number of 0 to 65535",
        ),
        ("n2:\n  port: [1]\n", "w.yaml:2:9: n2.port: found a list; write a whole number"),
        ("n2: 7\n", "w.yaml:1:5: n2: found a single value where a map of keys is expected"),
        (
            "n2:\n  sctp: kernal\n",
            "w.yaml:2:9: n2.sctp: `kernal` is not understood; write kernel (known are auto",
        ),
        ("timers:\n  t3550: 6\n", "w.yaml:2:10: timers.t3550: `6` is not understood; write the unit too: 6s"),
        (
            "timers:\n  t3512: 54min\n",
            "w.yaml:2:10: timers.t3512: 54min cannot be coded in GPRS timer 3, in which UEs get it; write 50min",
        ),
        ("timers:\n  t3550: 0s\n", "w.yaml:2:10: timers.t3550: 0s is out of bounds"),
        ("amf:\n  set: 1024\n", "w.yaml:2:8: amf.set: 1024 does not fit in 10 bits; write 0 to 1023"),
        ("security:\n  integrity: [NIA0]\n", "w.yaml:2:14: security.integrity: NIA0 protects nothing"),
        (
            "security:\n  integrity: []\n",
            "w.yaml:2:14: security.integrity: the list is empty, so NAS could not be protected",
        ),
        ("security:\n  ciphering: [NEA0, NEA2]\n", "w.yaml:2:14: security.ciphering: every UE supports NEA0"),
        ("tacs: [1, 1]\n", "w.yaml:1:7: tacs: 1 is listed twice"),
        ("data_networks: []\n", "w.yaml:1:16: data_networks: without a data network"),
        ("data_networks:\n  dnn: internet\n", "a list is expected here; begin each entry with a hyphen"),
        (
            "data_networks:\n  - dnn: a\n    ipv4_pool: none\n    ipv6_pool: none\n",
            "w.yaml:3:16: data_networks[0].ipv4_pool: the data network `a` has neither",
        ),
        (
            "data_networks:\n  - dnn: a\n  - dnn: b\n    ipv4_pool: 10.45.8.0/24\n",
            "w.yaml:4:16: data_networks[1].ipv4_pool: 10.45.8.0/24 of `b` overlaps 10.45.0.0/16 of `a`",
        ),
        (
            "data_networks:\n  - dnn: a\n  - dnn: A\n",
            "w.yaml:3:10: data_networks[1].dnn: the data network `a` is listed twice",
        ),
        ("data_networks:\n  - dnn: a\n    ipv4_pool: 10.0.0.1/8\n", "ends in zeros after 8 bits"),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: eth2\n",
            "w.yaml:3:19: data_networks[0].n6_interface: an interface and its routers must be set together",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_routers: [192.0.2.1]\n",
            "w.yaml:3:17: data_networks[0].n6_routers: an interface and its routers must be set together",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: eth2\n    n6_routers: [192.0.2.1, 192.0.2.2]\n",
            "w.yaml:4:17: data_networks[0].n6_routers: there can be one router for each address family",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: v0\n    n6_routers: 192.0.2.1\n    n6_vlan:\n      interface: e\n      id: 4095\n",
            "w.yaml:7:11: data_networks[0].n6_vlan.id: 4095 is not a VLAN identifier; write 1 to 4094",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: v0\n    n6_routers: 192.0.2.1\n    n6_vlan:\n      id: 4\n",
            "data_networks[0].n6_vlan: a VLAN needs an interface and an identifier",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_vlan:\n      interface: e\n      id: 4\n",
            "data_networks[0].n6_vlan: a VLAN needs an `n6_interface`; give it `n6_interface`",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_gre:\n      local: 192.0.2.1\n      remote: 192.0.2.2\n",
            "data_networks[0].n6_gre: a tunnel needs an interface; give it `n6_interface`",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: e\n    n6_gre:\n      local: 192.0.2.1\n      remote: \"2001:db8::1\"\n",
            "w.yaml:6:15: data_networks[0].n6_gre.remote: a tunnel from 192.0.2.1 to 2001:db8::1 is not possible",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: e\n    n6_gre:\n      local: 192.0.2.1\n      key: 7\n",
            "data_networks[0].n6_gre: a tunnel has two ends; give it both",
        ),
        (
            "data_networks:\n  - dnn: a\n    n6_interface: e\n    n6_routers: 192.0.2.2\n    n6_gre:\n      local: 192.0.2.1\n      remote: 192.0.2.2\n",
            "data_networks[0].n6_gre: the router is the remote end of the tunnel; leave out `n6_routers`",
        ),
        ("n3:\n  io: dpdk\n", "w.yaml:2:7: n3.io: `dpdk` is not understood"),
        ("n3:\n  threads: 3\n", "w.yaml:2:12: n3.threads: 3 packet threads are not possible"),
        (
            "n3:\n  busy_poll_us: 2000000\n",
            "w.yaml:2:17: n3.busy_poll_us: busy polling for 2000000 microseconds",
        ),
        ("n3:\n  spread_by: port\n", "w.yaml:2:14: n3.spread_by: `port` is not understood"),
        (
            "n3:\n  io: af_xdp\n  spread_by: gnb_flow\n",
            "w.yaml:3:14: n3.spread_by: with AF_XDP the network card spreads packets over its queues",
        ),
        ("n3:\n  harvest: p95 30\n", "w.yaml:2:12: n3.harvest: `p95 30` is not understood"),
        ("n3:\n  harvest: p95 +0 %\n", "write off, or p95 and a percentage, such as p95 +30 %"),
        ("n3:\n  address: 10.45.0.9\n", "w.yaml:2:12: n3.address: 10.45.0.9 is in the pool of `internet`"),
        ("n3:\n  address: 0.0.0.0\n", "w.yaml:2:12: n3.address: gNBs cannot send to an unspecified address"),
        (
            "n2:\n  sctp_path_max_retrans: 0\n",
            "w.yaml:2:26: n2.sctp_path_max_retrans: 0 retransmissions are too few",
        ),
        (
            "amf:\n  time_zone: Europe/Berlinn\n",
            "w.yaml:2:14: amf.time_zone: `Europe/Berlinn` is not understood; write host, a name such as Europe/Berlin",
        ),
        (
            "amf:\n  time_zone: ../../etc/passwd\n",
            "w.yaml:2:14: amf.time_zone: `../../etc/passwd` is not understood",
        ),
        ("n2:\n  sctp_heartbeat_interval: 10ms\n", "HEARTBEATs would be sent too often"),
        ("n2:\n  sctp_rto_max: 100ms\n", "a timeout is at least 400 ms"),
        ("n2:\n  udp_port: 2152\n", "UDP port 2152 of 127.0.0.1 is taken by n3.port already"),
        (
            "n4:\n  smfs: [127.0.0.2:8805]\n",
            "w.yaml:2:9: n4.smfs: SMFs cannot answer a UPF that does not listen",
        ),
        ("n4:\n  smf_f_teids: true\n", "n4.smf_f_teids: no SMF reaches a UPF that does not listen"),
        ("n6:\n  device: a/b\n", "w.yaml:2:11: n6.device: `a/b` is not a valid name of a network device"),
        (
            "limits:\n  sessions_per_ue: 16\n",
            "w.yaml:2:20: limits.sessions_per_ue: 16 is out of bounds; write 1 to 15",
        ),
        (
            "home_network_keys:\n  - id: 1\n",
            "w.yaml:2:5: home_network_keys[0].private_key_file: the key is missing",
        ),
        (
            "home_network_keys:\n  - id: 1\n    private_key: \"00ff\"\n",
            "w.yaml:3:18: home_network_keys[0].private_key: the private key has 2 octets",
        ),
        ("a: [\n", "w.yaml:2:1: this is not YAML"),
    ] {
        let error = refused(text);
        assert!(error.contains(sentence), "{text}\n got: {error}\n want: {sentence}");
    }
}

#[test]
fn a_slice_has_one_rate() {
    let rates = |second: &str| {
        let first = "  - slice: 1\n    up: 50 Mbps\n    down: 1 Gbps\n";
        format!("slices: [1, 2]\nslice_rates:\n{first}  - slice: {second}\n    down: 20 Mbps\n")
    };
    let config = read(&rates("2")).expect("two slices");
    let [first, second] = config.slice_rates[..] else { panic!("{:?}", config.slice_rates) };
    assert_eq!((first.ul_kbps, first.dl_kbps), (50_000, 1_000_000));
    assert_eq!((second.ul_kbps, second.dl_kbps), (1_000_000, 20_000));
    let refused = read(&rates("1")).expect_err("two rates");
    assert!(refused.contains("slice 1 has two rates"), "{refused}");
}

#[test]
fn background_work_of_packet_threads_is_off_or_has_a_budget() {
    use whimbrel_user_io::Harvest;
    let of = |text: &str| read(&format!("n3:\n  harvest: {text}\n")).unwrap().n3.harvest;
    assert_eq!(read("").unwrap().n3.harvest, Harvest::Off);
    assert_eq!(of("off"), Harvest::Off);
    for text in ["p95 +30 %", "p95 +30%", "p95+30 %"] {
        assert_eq!(of(text), Harvest::p95(30), "{text}");
    }
}

#[test]
fn a_key_of_a_former_version_is_refused_with_the_value_in_force() {
    for (path, value) in removed_keys::REMOVED_KEYS {
        let (section, key) = path.split_once('.').unwrap();
        let problem = refused(&format!("{section}:\n  {key}: 1\n"));
        let sentence =
            format!("w.yaml:2:3: `{key}` is not a key of `{section}` any more: {value}; delete the line");
        assert_eq!(problem, sentence);
    }
}

#[test]
fn the_values_of_keys_of_former_versions_are_those_in_force() {
    let config = default();
    assert_eq!(config.cluster.logs().outdated_after, Duration::from_secs(30));
    let own = config.control();
    assert_eq!((own.overload.start_samples, own.overload.stop_delay), (3, Duration::from_millis(100)));
    assert_eq!(own.timers.release_delay, Duration::from_millis(200));
    assert_eq!(own.timers.session_setup, Duration::from_secs(64));
    assert_eq!(whimbrel_user::Config::FLOWS_SECOND, 262_144);
    // The delay at which overload ends is never above the one at which it begins.
    let early = read("overload: { start_delay_ms: 50 }\n").unwrap().overload;
    assert_eq!((early.start_delay, early.stop_delay), (Duration::from_millis(50), Duration::from_millis(50)));
    assert!(refused("overload: { start_delay_ms: 0 }\n").contains("write 1 or more"));
}

#[test]
fn bounds_of_what_waits_for_ues() {
    let config = read("buffering:\n  octets: 1000000\n  age: 5s\n  early_drop: true\n").expect("bounds");
    let bounds = config.buffering;
    assert_eq!((bounds.octets, bounds.age.as_secs(), bounds.early_drop), (1_000_000, 5, true));
    assert_eq!(bounds.packets_per_session, 1_500);
    for (key, value) in [
        ("packets_per_session", "3001"),
        ("octets", "0"),
        ("packets", "300000"),
        ("strays", "1025"),
        ("age", "4h"),
    ] {
        let refused = read(&format!("buffering:\n  {key}: {value}\n")).expect_err("out of bounds");
        assert!(refused.contains(key) && refused.contains("out of bounds"), "{refused}");
    }
}

#[test]
fn applications_are_described_by_flows_and_names() {
    let text = "detection:\n  resolvers: 192.0.2.53\n  applications:\n    - id: video\n      names: [\"*.video.example\", tls video.example]\n    \
                - id: games\n      flows: [permit out 17 from any 7000-7999 to assigned]\n    - id: video\n      names: dns cdn.example\n";
    let detection = read(text).expect("applications").detection;
    let all: Vec<_> = detection.known.iter().map(|a| (&*a.id, a.pfds.len())).collect();
    assert_eq!(all, [("video", 2), ("games", 1)]);
    for (item, sentence) in [
        ("names: a.example", "a description of nothing"),
        ("id: video", "has neither flows nor names"),
        ("id: video\n      names: \"[a-z].example\"", "write a name such as"),
        ("id: video\n      flows: deny", "write a flow such as"),
    ] {
        let refused = read(&format!("detection:\n  applications:\n    - {item}\n")).expect_err(item);
        assert!(refused.contains(sentence), "{refused}");
    }
}

/// The SMF where UPFs reach it, and this list.
fn with_upfs(list: &str) -> String {
    format!("n4:\n  node_id: 192.0.2.1\nupfs:\n{list}")
}

#[test] // TS 23.501 §6.3.3: the operator says what each UPF serves
fn several_upfs() {
    let config = read(&with_upfs(
        "  - name: here\n    priority: 1\n  - name: east\n    address: 192.0.2.2:8805\n    dnns: internet\n    tacs: [1]\n    slices: [1]\n    weight: 300\n",
    ))
    .unwrap();
    assert_eq!(config.upfs[0].address, None);
    assert_eq!(config.upfs[1].address, Some("192.0.2.2:8805".parse().unwrap()));
    let upfs = config.control().smf.upfs;
    assert_eq!((upfs[0].priority, upfs[0].weight), (1, 100));
    assert_eq!((upfs[1].name.as_str(), upfs[1].weight, upfs[1].tacs.len()), ("east", 300, 1));
    let east = "  - name: east\n    address: 192.0.2.2:8805\n    interface_types: true\n    n3_ip_version: ipv4\n    ue_pools:\n      - dnn: internet\n        \
                ipv4_pool: 10.46.0.0/16\n";
    let foreign = &read(&with_upfs(east)).unwrap().control().smf.upfs[0];
    assert!(foreign.interface_types);
    assert_eq!(foreign.n3_ip_version, whimbrel_control::config::N3IpVersion::Ipv4);
    assert_eq!(foreign.ue_pools[0].ipv4, Some(([10, 46, 0, 0].into(), 16)));
    // Without a list there is one, which serves everything.
    let upfs = default().control().smf.upfs;
    assert_eq!(upfs, [whimbrel_control::config::Upf::default()]);
}

#[test] // TS 23.501 §6.3.3: contradictions are reported with line, column and fix
fn upfs_that_cannot_serve() {
    let east = |more: &str| with_upfs(&format!("  - name: east\n    address: 192.0.2.2:8805\n{more}"));
    for (text, sentence) in [
        (
            "upfs:\n  - address: 192.0.2.2:8805\n".to_string(),
            "w.yaml:1:1: n4.node_id: the UPF `upf1` at 192.0.2.2 cannot answer to 127.0.0.1, `n4.node_id`; write the address of this host that UPFs reach",
        ),
        (
            with_upfs("  - address: 192.0.2.1:8805\n"),
            "w.yaml:4:14: upfs[0].address: the UPF `upf1` has the address of this core's SMF",
        ),
        (with_upfs("  - address: 0.0.0.0:8805\n"), "upfs[0].address: nothing can be sent to 0.0.0.0:8805"),
        (
            with_upfs("  - address: \"[2001:db8::1]:8805\"\n"),
            "are of two families; give both IPv4 or both IPv6",
        ),
        (
            with_upfs("  - address: 192.0.2.2\n"),
            "`192.0.2.2` is not understood; write an IP address and a port",
        ),
        (
            with_upfs("  - name: a\n  - name: a\n    address: 192.0.2.2:8805\n"),
            "w.yaml:5:11: upfs[1].name: two UPFs are called `a`",
        ),
        (
            with_upfs("  - name: a\n  - name: b\n"),
            "two UPFs have no address, and there is one in this program",
        ),
        (east("  - name: b\n    address: 192.0.2.2:8806\n"), "two UPFs are at 192.0.2.2; give each"),
        (
            east("    dnns: [internet, ims]\n"),
            "w.yaml:6:11: upfs[0].dnns: the UPF `east` is to serve `ims`, which is not in `data_networks`",
        ),
        (
            east("    slices: [2]\n"),
            "upfs[0].slices: the UPF `east` is to serve slice 2, which is not offered",
        ),
        (east("    tacs: [9]\n"), "upfs[0].tacs: the UPF `east` is to serve TAC 9, which is not served"),
        (east("    weight: 0\n"), "upfs[0].weight: a weight of 0 gives the UPF `east` no session"),
        (
            east("    ue_pools:\n      - dnn: internet\n"),
            "upfs[0].ue_pools[0].ipv4_pool: no address is given for UEs of `internet`; write `ipv4_pool` or",
        ),
        (
            east("    ue_pools:\n      - dnn: ims\n        ipv4_pool: 10.46.0.0/16\n"),
            "w.yaml:7:14: upfs[0].ue_pools[0].dnn: there is no data network `ims`; add it",
        ),
        (
            east("    ue_pools: [{ ipv4_pool: 10.46.0.0/16 }, { ipv6_pool: \"fd00:9::/48\" }]\n"),
            "upfs[0].ue_pools[1].dnn: the UPF `east` has two pools for `internet`; take one",
        ),
        (
            east(
                "    ue_pools: [{ ipv4_pool: 10.46.0.0/16 }]\n  - name: west\n    address: 192.0.2.3:8805\n    \
                 ue_pools: [{ ipv4_pool: 10.46.7.0/24 }]\n",
            ),
            "upfs[1].ue_pools[0].ipv4_pool: a part of the pool is the UPF `east`'s too, for `internet`; choose",
        ),
        (
            with_upfs("  - name: here\n    ue_pools: [{ ipv4_pool: 10.46.0.0/16 }]\n"),
            "the UPF of this program allocates UE addresses itself; write the pools in `data_networks`",
        ),
        (
            east("    ue_pools: [{ ipv4_pool: 10.46.0.0/30 }]\n"),
            "/30 is not a valid size of a pool; write a prefix of /8 to /29",
        ),
        (east("    wieght: 1\n"), "`wieght` is not a key of `upfs[0]`; did you mean `weight`?"),
        (
            format!("data_networks:\n  - dnn: internet\n  - dnn: ims\n{}", east("    dnns: [internet]\n")),
            "no UPF serves the data network `ims`, so no session is possible there",
        ),
        (
            with_upfs(
                &(0..17).map(|n| format!("  - address: 192.0.2.{}:8805\n", n + 10)).collect::<String>(),
            ),
            "w.yaml:4:3: upfs: 17 UPFs are more than one SMF serves; list at most 16",
        ),
        (
            format!("{}n3:\n  address: 192.0.2.1\n  port: 8805\n", east("")),
            "UDP port 8805 of 192.0.2.1 is taken by n3.port already",
        ),
    ] {
        let error = refused(&text);
        assert!(error.contains(sentence), "{text}\n got: {error}\n want: {sentence}");
    }
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_file() {
    let error = refused("zebra: 1\nplmn: 9\ntacs: x\n");
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 3, "{error}");
    assert!(
        lines[0].contains(":1:1:") && lines[1].contains(":2:7:") && lines[2].contains(":3:7:"),
        "{error}"
    );
}

#[test] // TS 38.413 §9.3.3.21: a gNB refused an NG SETUP RESPONSE with an underscore in the name
fn an_amf_name_that_gnbs_cannot_read_is_refused() {
    for name in ["whimbrel_1", "", "Wühlmaus"] {
        let error = refused(&format!("amf: {{ name: \"{name}\" }}\n"));
        assert!(
            error.contains(&format!("amf.name: gNBs cannot read the AMF name `{name}`; write 1 to 150")),
            "{error}"
        );
    }
    assert_eq!(read("amf: { name: \"site 1 (north)\" }\n").unwrap().amf.name, "site 1 (north)");
}

#[test]
fn a_secret_is_never_repeated() {
    let text = "home_network_keys:\n  - id: 1\n    private_key: \"c53c22208b61860b06c62e5406a7b330c2b577aa55589815\"\n";
    assert!(!refused(text).contains("c53c22"));
    let text = "home_network_keys:\n  - id: 1\n    private_key: \"not a key c53c22\"\n";
    assert!(!refused(text).contains("c53c22"));
    let good = format!("home_network_keys:\n  - private_key: \"{}\"\n", "c5".repeat(32));
    assert!(!format!("{:?}", read(&good).unwrap()).contains("197"));
}

#[test]
fn a_database_of_subscribers_has_a_whole_url_no_password_in_it_and_tls_beyond_loopback() {
    let store = |rest: &str| format!("store: {{ {rest} }}\n");
    let near = read(&store("postgres: \"postgresql://w@127.0.0.1:5432/w\", sqn_slot: 31")).unwrap().store;
    assert_eq!(near.postgres.unwrap().hosts(), "127.0.0.1:5432");
    assert!(near.sqn_slot.is_some());
    let far = "postgres: \"postgresql://w@db1,db2/w\"";
    assert!(refused(&store(far)).contains("store.postgres_ca_file"));
    assert!(read(&store(&format!("{far}, postgres_ca_file: ca.pem"))).is_ok());
    let secret = refused(&store("postgres: \"postgresql://w:hush@127.0.0.1/w\""));
    assert!(secret.contains("postgres_password_file") && !secret.contains("hush"), "{secret}");
    assert!(refused(&store("postgres_password_file: p")).contains("write `store.postgres`"));
    assert!(refused(&store("sqn_slot: 32")).contains("0 to 31"));
    assert!(read("").unwrap().store.postgres.is_none());
}

#[test]
fn a_pair_of_ctas_lacks_nothing_or_is_refused_with_what_it_lacks() {
    let upfs = "n4: { node_id: 192.0.2.1 }\nupfs: [{ address: \"192.0.2.3:8805\" }]\n";
    let pair = |rest: &str| format!("{upfs}cluster: {{ etcd: [\"http://192.0.2.9:2379\"], {rest} }}\n");
    let good = read(&pair("listen: \"127.0.0.1:7380\", cta: 2")).unwrap();
    let of = good.cluster.pair.unwrap();
    assert_eq!((of.number, of.home, of.name.as_str()), (2, 1, "whimbrel"));
    assert_eq!(of.lease, Duration::from_secs(5));
    assert!(refused(&pair("listen: \"127.0.0.1:7380\"")).contains("the number of this CTA is missing"));
    assert!(refused(&pair("cta: 1")).contains("write `listen`"));
    assert!(refused("cluster: { cta: 1 }\n").contains("without etcd"));
    let at = |rest: &str| pair(&format!("listen: \"127.0.0.1:7380\", cta: 1, {rest}"));
    assert!(refused(&at("etcd_user: whimbrel")).contains("`etcd_password_file`"));
    assert!(refused(&at("etcd_certificate_file: a.pem")).contains("needs its key"));
    assert!(
        refused(&at("x: 1").replace("http:", "https:").replace("x: 1", "")).contains("write `etcd_ca_file`")
    );
    let all = "etcd_ca_file: ca.pem, etcd_certificate_file: a.pem, etcd_certificate_key_file: a.key, etcd_user: w, etcd_password_file: p";
    let of = read(&at(all).replace("http:", "https:")).unwrap().cluster.pair.unwrap().etcd;
    assert!(of.ca_file.is_some() && of.certificate.is_some() && of.user.is_some());
    let with_upf = "cluster: { listen: \"127.0.0.1:7380\", etcd: [\"http://192.0.2.9:2379\"], cta: 1 }\n";
    assert!(refused(with_upf).contains("whimbrel upf"));
}

#[test]
fn a_gnb_is_in_one_region_whose_cpfs_may_connect() {
    let cluster = |areas: &str| format!("cluster:\n  other_regions: [home/next]\n  areas:\n{areas}");
    let good =
        cluster("    - { region: home/next, tacs: [2, 3], gnbs: 7 }\n    - { region: home/site, gnbs: 8 }\n");
    let areas = read(&good).unwrap().cluster.areas;
    assert_eq!(areas.region_of(7, &[]).map(ToString::to_string).as_deref(), Some("home/next"));
    assert!(refused(&cluster("    - { region: home/nowhere, tacs: 2 }\n")).contains("other_regions"));
    assert!(refused(&cluster("    - { region: home/next }\n")).contains("lists no gNB"));
    let twice = cluster("    - { region: home/next, tacs: 2 }\n    - { region: home/site, tacs: 2 }\n");
    assert!(refused(&twice).contains("the tracking area 2 is configured in home/next and in home/site"));
}

#[test]
fn two_regions_of_one_name_are_refused_with_both() {
    let of = |region: &str, other: &str| {
        refused(&format!("cluster: {{ region: \"{region}\", other_regions: [\"{other}\"] }}\n"))
    };
    let twice = of("north/harbour", "south/harbour");
    assert!(twice.contains("north/harbour") && twice.contains("south/harbour"), "{twice}");
    let within = of("1233", "123330");
    assert!(within.contains("the region 123330 is within the region 1233:"), "{within}");
}

#[test]
fn a_peer_amf_needs_its_own_identity_tracking_areas_and_an_address() {
    let peer_amfs =
        |rest: &str| format!("peer_amfs:\n  listen: \"127.0.0.1:7390\"\n  amfs:\n    - {{ {rest} }}\n");
    let good =
        read(&peer_amfs("name: south, pointer: 1, tacs: [2], addresses: [\"127.0.0.2:7390\"]")).unwrap();
    let peers = good.control().amf.peer_amfs;
    assert_eq!((peers.len(), peers[0].name.as_str(), peers[0].amf_id.pointer()), (1, "south", 1));
    let caller = "pointer: 1, tacs: [2]";
    let with_replicas = peer_amfs("name: south, pointer: 1, addresses: [\"127.0.0.2:7390\"], replicas: 9");
    for (store, warned) in [("", true), ("store: { keep_ues: always }\n", false)] {
        let config = read(&format!("{with_replicas}{store}")).unwrap();
        assert_eq!(config.warnings().any(|w| w.contains("keep_ues: always")), warned);
    }
    assert!(refused(&peer_amfs(caller)).contains("whose address is missing"));
    assert!(refused(&peer_amfs("tacs: [2]")).contains("the same region, set and pointer"));
    let with = |rest| peer_amfs(&format!("pointer: 1, addresses: [\"127.0.0.2:7390\"]{rest}"));
    assert!(refused(&with(", set: 2")).contains("list the tracking areas"));
    assert!(refused(&with(", set: 2, tacs: [1]")).contains("TAC 1 is served by two AMFs of different sets"));
    // TS 23.501 §5.19: AMFs of one set serve the same tracking areas.
    assert!(read(&with("")).is_ok() && read(&with(", tacs: [1]")).is_ok());
    let mute = "peer_amfs: { amfs: [{ pointer: 1, tacs: 2, addresses: [\"127.0.0.2:7390\"] }] }\n";
    assert!(refused(mute).contains("cannot connect"));
}

#[test] // docs/n2.md
fn gnbs_are_listed_with_their_networks_and_the_list_is_reloaded() {
    let text = "n2:\n  gnbs:\n    - { gnb: 999/70-1a, networks: [192.0.2.0/24, \"2001:db8::7\"] }\n";
    let listed = read(text).unwrap();
    let gnbs = listed.control().amf.gnbs;
    assert_eq!((gnbs.len(), gnbs[0].gnb_id, gnbs[0].networks.len()), (1, 0x1a, 2));
    let within = |address: &str| gnbs[0].networks.iter().any(|n| n.contains(address.parse().unwrap()));
    assert!(within("192.0.2.255") && within("::ffff:192.0.2.1") && within("2001:db8::7"));
    assert!(!within("192.0.3.0") && !within("2001:db8::8"));
    let entry = |rest: &str| format!("n2:\n  gnbs:\n    - {{ {rest} }}\n");
    let mute = refused(&entry("gnb: 999/70-1"));
    assert!(
        mute.contains("w.yaml:3:") && mute.contains("without a network the gNB cannot connect"),
        "{mute}"
    );
    assert!(refused(&entry("networks: [192.0.2.0/24]")).contains("the entry names no gNB"));
    assert!(refused(&entry("gnb: 999/70-1, networks: [192.0.2.0/33]")).contains("a network in CIDR form"));
    let twice = format!("{text}    - {{ gnb: 999/70-1A, networks: [192.0.2.1] }}\n");
    assert!(refused(&twice).contains("999/70-1a is listed twice"));
    let ReloadedConfig { config, kept } = in_place_of(&listed, read("").unwrap());
    assert!(kept.is_empty() && config.n2.gnbs.is_empty(), "{kept:?}");
}

#[test] // docs/foresight.md
fn prediction_of_handovers_is_off_until_it_is_enabled_and_spares_excluded_ues() {
    let off = read("").unwrap().control();
    assert!(!off.amf.signs && !off.smf.upfs[0].predicts);
    let text = "foresight: { enabled: true, early_containers: true, excluded: [imsi-999700000000001] }\n\
                data_networks: [{ dnn: internet }, { dnn: private, ipv4_pool: 10.46.0.0/16, ipv6_pool: none, predicted: false }]\n";
    let on = read(text).unwrap().control();
    assert!(on.amf.signs && on.smf.upfs[0].predicts && on.amf.prediction.early_containers);
    let dnns: Vec<String> = on.amf.prediction.excluded_dnns.iter().map(ToString::to_string).collect();
    assert_eq!(dnns, ["private"]);
    assert_eq!(on.amf.prediction.excluded_supis.len(), 1);
    assert!(refused("foresight: { enabled: true, model: m }\n").contains("no key is trusted"));
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = std::env::temp_dir().join(format!("whimbrel-config-test-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("suci.key");
    std::fs::write(&file, format!("{}\n", "0a".repeat(32))).unwrap();
    let text = format!("home_network_keys:\n  - private_key_file: {}\n", file.display());
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(refused(&text).contains("chmod 600"));
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(read(&text).unwrap().home_network_keys[0].private_key, [10; 32]);
    std::fs::remove_dir_all(&dir).unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(200))]

    /// Any text is read or refused; none panics.
    #[test]
    fn any_text_is_answered(text in "[ -~\\n]{0,200}") {
        let _ = read(&text);
    }

    /// What fuzzing kept, as it is and damaged, is read or refused.
    #[test]
    fn kept_configurations_are_answered(
        which in proptest::arbitrary::any::<proptest::sample::Index>(),
        at in proptest::arbitrary::any::<proptest::sample::Index>(),
        cut in 0usize..12,
        with in "[ -~\\n]{0,6}",
    ) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/config");
        let kept: Vec<String> = std::fs::read_dir(folder).unwrap().map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap()).collect();
        kept.iter().for_each(|text| drop(read(text)));
        let mut text: Vec<char> = which.get(&kept).chars().collect();
        let at = at.index(text.len());
        let end = (at + cut).min(text.len());
        text.splice(at..end, with.chars());
        let _ = read(&text.into_iter().collect::<String>());
    }

    /// Damaged defaults are read or refused.
    #[test]
    fn damaged_defaults_are_answered(at in 0usize..4000, with in "[ -~\\n]{0,3}") {
        let mut text: Vec<char> = defaults().chars().collect();
        let at = at.min(text.len());
        let end = (at + with.len()).min(text.len());
        text.splice(at..end, with.chars());
        let _ = read(&text.into_iter().collect::<String>());
    }
}
