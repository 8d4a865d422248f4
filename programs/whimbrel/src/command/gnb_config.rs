//! `whimbrel gnb-config`: configurations of gNBs and UEs that attach to the core of this configuration with one of its
//! subscribers.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use whimbrel_cli::{Done, print};
use whimbrel_ids::{Dnn, PlmnId, SNssai, Supi, Tac};
use whimbrel_node::config::{self, Config, Scheme, SctpChoice};
use whimbrel_security::{LongTermKey, Opc};
use whimbrel_store::{OperatorCode, SessionType, Store, SubscriberRecord};

use super::subscriber::open;
use crate::cli::ConfigFile;

#[derive(Subcommand)]
pub(crate) enum GnbConfigCommand {
    /// Print a gNB's and a UE's configuration for UERANSIM.
    Ueransim(GnbConfigOptions),
    /// Print a configuration for PacketRusher.
    Packetrusher(GnbConfigOptions),
    /// Print the part of an srsRAN Project gNB's configuration that concerns the core.
    Srsran(GnbConfigOptions),
    /// Print the parts of an OpenAirInterface gNB's and UE's configuration that concern the core.
    Oai(GnbConfigOptions),
}

#[derive(Args)]
pub(crate) struct GnbConfigOptions {
    /// Subscriber of the UE; default: the first one that fits.
    #[arg(long)]
    supi: Option<Supi>,
    /// Address of the gNB.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    gnb_address: IpAddr,
    /// Write the files into this folder, readable by their owner only, instead of printing them. They contain the subscriber's keys.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

pub(crate) fn run(command: &GnbConfigCommand) -> Done {
    let (options, form): (_, fn(&Attachment) -> Vec<File>) = match command {
        GnbConfigCommand::Ueransim(options) => (options, ueransim),
        GnbConfigCommand::Packetrusher(options) => (options, packetrusher),
        GnbConfigCommand::Srsran(options) => (options, srsran),
        GnbConfigCommand::Oai(options) => (options, oai),
    };
    let (config, _) = config::load(options.config.config_file.as_deref()).map_err(|e| e.to_string())?;
    let subjects: Vec<Supi> = options.supi.into_iter().collect();
    let mut store = open(&options.config, "gnb-config with keys", &subjects)?;
    let attachment = attachment(&config, &mut store, options.supi, options.gnb_address)?;
    for hint in hints(&config, &attachment) {
        eprintln!("{hint}");
    }
    if let Some(folder) = &options.out {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|e| format!("the folder {} cannot be made: {e}", folder.display()))?;
    }
    for (name, text) in form(&attachment) {
        let Some(folder) = &options.out else {
            print(&format!("# {name}\n{text}\n"))?;
            continue;
        };
        let file = folder.join(name);
        let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file);
        let written = made.and_then(|mut f| f.write_all(text.as_bytes()));
        written.map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
        print(&format!("{}\n", file.display()))?;
    }
    Ok(())
}

/// A name and a text.
type File = (&'static str, String);

/// What a gNB and a UE need to attach.
struct Attachment {
    plmn: PlmnId,
    tac: Tac,
    slices: Vec<SNssai>,
    amf: IpAddr,
    port: u16,
    gnb: IpAddr,
    supi: Supi,
    k: String,
    /// OP or OPc as UERANSIM has it, and OPc.
    code: (&'static str, String),
    opc: String,
    management_field: String,
    slice: SNssai,
    dnn: Dnn,
    session_type: &'static str,
    /// Identifier and public key of profile A, where the core has one.
    suci: Option<(u8, String)>,
}

fn attachment(
    config: &Config,
    store: &mut Store,
    supi: Option<Supi>,
    gnb: IpAddr,
) -> Result<Attachment, String> {
    let (record, slice, dnn, session_type) = match supi {
        Some(supi) => {
            let record = store.get(supi).map_err(|e| e.to_string())?;
            let record = record.ok_or_else(|| format!("{supi} is no subscriber"))?;
            let (slice, dnn, session_type) = session_of(config, &record).ok_or_else(|| {
                format!("{supi} subscribes to no slice of this core with one of its data networks: see `whimbrel subscriber show {supi}`")
            })?;
            (SubscriberRecord::clone(&record), slice, dnn, session_type)
        }
        None => first(config, store)?,
    };
    let (LongTermKey::K128(k), OperatorCode::Op(_) | OperatorCode::Opc(_)) =
        (&record.k, &record.operator_code)
    else {
        return Err(format!(
            "{} uses TUAK, which these programs do not know: name another one with --supi",
            record.supi
        ));
    };
    let opc = match &record.operator_code {
        OperatorCode::Op(op) => hex(Opc::derive(k, op).octets()),
        OperatorCode::Opc(opc) => hex(opc.octets()),
        OperatorCode::Top(_) | OperatorCode::Topc(_) => String::new(),
    };
    let code = match &record.operator_code {
        OperatorCode::Op(op) => ("OP", hex(op.octets())),
        _ => ("OPC", opc.clone()),
    };
    let amf = config.n2.addresses.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let suci = config.home_network_keys.iter().find(|key| key.scheme == Scheme::A);
    let suci = suci.and_then(|key| {
        let private = config::typed::private_key(key.scheme, key.private_key)?;
        Some((key.id, hex(&private.public_key().octets())))
    });
    Ok(Attachment {
        plmn: config.amf.plmn,
        tac: config.amf.tacs.first().copied().ok_or("the configuration has no tracking area")?,
        slices: config.amf.slices.clone(),
        // The core listens at all of its addresses.
        amf: if amf.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { amf },
        port: config.n2.port,
        gnb,
        supi: record.supi,
        k: hex(k.octets()),
        code,
        opc,
        management_field: hex(&record.amf.0),
        slice,
        dnn,
        session_type,
        suci,
    })
}

/// The first subscriber that fits the configuration.
fn first(
    config: &Config,
    store: &mut Store,
) -> Result<(SubscriberRecord, SNssai, Dnn, &'static str), String> {
    let page = store.list(None, whimbrel_store::PAGE_MAX).map_err(|e| e.to_string())?;
    let is_none = page.is_empty();
    let fits = page.into_iter().find_map(|record| {
        let is_milenage = matches!(record.operator_code, OperatorCode::Op(_) | OperatorCode::Opc(_));
        let session = session_of(config, &record).filter(|_| is_milenage)?;
        Some((record, session.0, session.1, session.2))
    });
    fits.ok_or_else(|| match is_none {
        true => "there is no subscriber yet: add one with `whimbrel subscriber add`".into(),
        false => "no subscriber fits a slice and a data network of this core: name one with --supi".into(),
    })
}

/// A slice and a data network that subscription and configuration have, and the session's type.
fn session_of(config: &Config, record: &SubscriberRecord) -> Option<(SNssai, Dnn, &'static str)> {
    let slices = record.subscription.slices.iter().filter(|s| config.amf.slices.contains(&s.s_nssai));
    let mut all = slices.flat_map(|slice| slice.dnns.iter().map(move |dnn| (slice, dnn)));
    let (slice, dnn) = all.find(|(_, dnn)| config.data_networks.iter().any(|n| n.dnn == dnn.dnn))?;
    let network = config.data_networks.iter().find(|n| n.dnn == dnn.dnn)?;
    let kind = match (dnn.session_type, network.ipv4_pool.is_some(), network.ipv6_pool.is_some()) {
        (SessionType::Ipv6, ..) | (SessionType::Ipv4v6, false, true) => "IPv6",
        (SessionType::Ipv4v6, true, true) => "IPv4v6",
        _ => "IPv4",
    };
    Some((slice.s_nssai, dnn.dnn.clone(), kind))
}

/// What the files cannot say.
fn hints(config: &Config, a: &Attachment) -> Vec<String> {
    let mut hints = Vec::new();
    if config.n2.sctp == SctpChoice::Udp {
        hints.push("warning: `n2.sctp` is udp, and these programs speak SCTP over IP alone: set it to auto, kernel or raw".into());
    }
    if a.amf.is_loopback() != a.gnb.is_loopback() {
        hints.push(format!(
            "warning: the core listens at {} and the gNB is at {}: set `n2.addresses` and `n3.address` to an address that the gNB reaches, \
             or --gnb-address",
            a.amf, a.gnb
        ));
    }
    hints
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn digits(digits: impl Iterator<Item = u8>) -> String {
    digits.map(|digit| char::from(b'0' + digit)).collect()
}

impl Attachment {
    fn mcc(&self) -> String {
        digits(self.plmn.digits().take(3))
    }

    fn mnc(&self) -> String {
        digits(self.plmn.digits().skip(3))
    }

    /// The digits of the SIM's own PLMN, of as many as the served one has, and the rest.
    fn home(&self) -> (String, String, String) {
        let (imsi, length) = (digits(self.supi.digits()), self.plmn.digits().count());
        let (plmn, msin) = imsi.split_at(length.min(imsi.len()));
        let (mcc, mnc) = plmn.split_at(3.min(plmn.len()));
        (mcc.into(), mnc.into(), msin.into())
    }
}

/// A slice as UERANSIM writes it, at that indentation.
fn ueransim_slice(slice: SNssai, indent: &str) -> String {
    let sd = slice.sd().map(|sd| format!("\n{indent}sd: 0x{sd:06x}")).unwrap_or_default();
    format!("sst: {}{sd}", slice.sst)
}

/// UERANSIM 3.3.0 has IPv4 sessions alone. Where the core is on the UE's machine, the kernel would deliver packets to the core's addresses
/// without the tunnel, unless the UE's device is in a namespace of its own.
fn ueransim(a: &Attachment) -> Vec<File> {
    let (mcc, mnc) = (a.mcc(), a.mnc());
    let (home_mcc, home_mnc, _) = a.home();
    let slices: String = a.slices.iter().map(|s| format!("  - {}\n", ueransim_slice(*s, "    "))).collect();
    let (tac, amf, port, address) = (a.tac.value(), a.amf, a.port, a.gnb);
    let gnb = format!(
        "mcc: '{mcc}'\nmnc: '{mnc}'\nnci: '0x000000010'\nidLength: 32\ntac: {tac}\nlinkIp: {address}\nngapIp: {address}\ngtpIp: {address}\n\
         amfConfigs:\n  - address: {amf}\n    port: {port}\nslices:\n{slices}ignoreStreamIds: true\n"
    );
    let suci = match &a.suci {
        Some((id, key)) => {
            format!("protectionScheme: 1\nhomeNetworkPublicKey: '{key}'\nhomeNetworkPublicKeyId: {id}\n")
        }
        None => "protectionScheme: 0\n".into(),
    };
    let (supi, k, amf, dnn) = (a.supi, &a.k, &a.management_field, &a.dnn);
    let kind = if a.session_type == "IPv6" { "IPv6" } else { "IPv4" };
    let namespace = if a.gnb.is_loopback() { "useNamespace: true\n" } else { "" };
    let (code_type, code) = (a.code.0, &a.code.1);
    let ue = format!(
        "supi: '{supi}'\nmcc: '{home_mcc}'\nmnc: '{home_mnc}'\n{suci}routingIndicator: '0000'\nkey: '{k}'\nop: '{code}'\nopType: '{code_type}'\n\
         amf: '{amf}'\nimei: '001010123456780'\nimeiSv: '0010101234567801'\n{namespace}gnbSearchList:\n  - {address}\n\
         uacAic:\n  mps: false\n  mcs: false\n\
         uacAcc:\n  normalClass: 0\n  class11: false\n  class12: false\n  class13: false\n  class14: false\n  class15: false\n\
         sessions:\n  - type: '{kind}'\n    apn: '{dnn}'\n    slice:\n      {}\n\
         configured-nssai:\n  - {}\ndefault-nssai:\n  - {}\n\
         integrity:\n  IA1: true\n  IA2: true\n  IA3: true\nciphering:\n  EA1: true\n  EA2: true\n  EA3: true\n\
         integrityMaxRate:\n  uplink: 'full'\n  downlink: 'full'\n",
        ueransim_slice(a.slice, "      "),
        ueransim_slice(a.slice, "    "),
        ueransim_slice(a.slice, "    "),
    );
    vec![("ueransim-gnb.yaml", gnb), ("ueransim-ue.yaml", ue)]
}

fn packetrusher(a: &Attachment) -> Vec<File> {
    let (mcc, mnc) = (a.mcc(), a.mnc());
    let (home_mcc, home_mnc, msin) = a.home();
    let (gnb, tac, amf, port) = (a.gnb, a.tac.value(), a.amf, a.port);
    let sd = |indent: &str| a.slice.sd().map(|sd| format!("{indent}sd: \"{sd:06x}\"\n")).unwrap_or_default();
    let suci = match &a.suci {
        Some((id, key)) => {
            format!(
                "  protectionScheme: 1\n  homeNetworkPublicKey: \"{key}\"\n  homeNetworkPublicKeyID: {id}\n"
            )
        }
        None => "  protectionScheme: 0\n".into(),
    };
    let (k, opc, field, dnn, sst) = (&a.k, &a.opc, &a.management_field, &a.dnn, a.slice.sst);
    let text = format!(
        "gnodeb:\n  controlif:\n    ip: \"{gnb}\"\n    port: 9487\n  dataif:\n    ip: \"{gnb}\"\n    port: 2152\n\
         \x20 plmnlist:\n    mcc: \"{mcc}\"\n    mnc: \"{mnc}\"\n    tac: \"{tac:06x}\"\n    gnbid: \"000001\"\n\
         \x20 slicesupportlist:\n    sst: \"{sst:02x}\"\n{}\
         ue:\n  hplmn:\n    mcc: \"{home_mcc}\"\n    mnc: \"{home_mnc}\"\n  msin: \"{msin}\"\n  key: \"{k}\"\n  opc: \"{opc}\"\n\
         \x20 amf: \"{field}\"\n  sqn: \"00000000\"\n{suci}  routingindicator: \"0000\"\n  dnn: \"{dnn}\"\n\
         \x20 snssai:\n    sst: {sst}\n{}\
         \x20 integrity:\n    nia0: false\n    nia1: true\n    nia2: true\n    nia3: true\n\
         \x20 ciphering:\n    nea0: true\n    nea1: true\n    nea2: true\n    nea3: true\n\
         amfif:\n  - ip: \"{amf}\"\n    port: {port}\nlogs:\n  level: 4\n",
        sd("    "),
        sd("    "),
    );
    vec![("packetrusher.yaml", text)]
}

/// The part of the core network, to be read beside a file with the cell and the radio.
fn srsran(a: &Attachment) -> Vec<File> {
    let (amf, port, gnb, tac) = (a.amf, a.port, a.gnb, a.tac.value());
    let plmn = a.mcc() + &a.mnc();
    let sd = |slice: &SNssai| slice.sd().map(|sd| format!("\n                sd: {sd}")).unwrap_or_default();
    let slices: String =
        a.slices.iter().map(|s| format!("              - sst: {}{}\n", s.sst, sd(s))).collect();
    let text = format!(
        "cu_cp:\n  amf:\n    addr: {amf}\n    port: {port}\n    bind_addr: {gnb}\n    supported_tracking_areas:\n      - tac: {tac}\n\
         \x20       plmn_list:\n          - plmn: \"{plmn}\"\n            tai_slice_support_list:\n{slices}\
         cu_up:\n  ngu:\n    socket:\n      - bind_addr: {gnb}\n\
         cell_cfg:\n  plmn: \"{plmn}\"\n  tac: {tac}\n"
    );
    vec![("srsran-core.yaml", text)]
}

/// The keys of the section `gNBs`, and the UE's section `uicc0`, as each release reads them. A gNB of 2024 ends if `ipv6`, `active`,
/// `preference` or `GNB_INTERFACE_NAME_FOR_NG_AMF` is missing (an empty name will do), and its UE reads the session from `uicc0` itself;
/// later ones read `ipv4` alone, and `pdu_sessions`. No release minds a key that it does not know.
fn oai(a: &Attachment) -> Vec<File> {
    let number = |digits: String| digits.parse().unwrap_or(0u16);
    let (mcc, mnc, length) = (number(a.mcc()), number(a.mnc()), a.mnc().len());
    let slice = |s: &SNssai| match s.sd() {
        Some(sd) => format!("{{ sst = {}; sd = 0x{sd:06x}; }}", s.sst),
        None => format!("{{ sst = {}; }}", s.sst),
    };
    let slices: Vec<String> = a.slices.iter().map(slice).collect();
    let (tac, amf, gnb, slices) = (a.tac.value(), a.amf, a.gnb, slices.join(", "));
    let (ipv4, ipv6, kind) = match amf {
        IpAddr::V4(_) => (amf, IpAddr::V6(Ipv6Addr::UNSPECIFIED), "ipv4"),
        IpAddr::V6(_) => (IpAddr::V4(Ipv4Addr::UNSPECIFIED), amf, "ipv6"),
    };
    let gnb_conf = format!(
        "tracking_area_code = {tac};\nplmn_list = ({{ mcc = {mcc}; mnc = {mnc}; mnc_length = {length}; snssaiList = ({slices}); }});\n\
         amf_ip_address = ({{ ipv4 = \"{ipv4}\"; ipv6 = \"{ipv6}\"; active = \"yes\"; preference = \"{kind}\"; }});\n\
         NETWORK_INTERFACES : {{\n  GNB_INTERFACE_NAME_FOR_NG_AMF = \"\";\n  \
         GNB_IPV4_ADDRESS_FOR_NG_AMF = \"{gnb}\";\n  GNB_IPV4_ADDRESS_FOR_NGU = \"{gnb}\";\n  GNB_PORT_FOR_S1U = 2152;\n}};\n"
    );
    let (imsi, k, opc, dnn, sst) = (digits(a.supi.digits()), &a.k, &a.opc, &a.dnn, a.slice.sst);
    let sd = a.slice.sd().map(|sd| format!(" nssai_sd = 0x{sd:06x};")).unwrap_or_default();
    let session = format!("dnn = \"{dnn}\"; nssai_sst = {sst};{sd}");
    let kind = a.session_type;
    let suci = a.suci.as_ref().map(|(id, key)| {
        format!(
            "  protection_scheme = 1;\n  home_network_public_key_id = {id};\n  home_network_public_key = \"{key}\";\n"
        )
    });
    let ue = format!(
        "uicc0 = {{\n  imsi = \"{imsi}\";\n  nmc_size = {};\n  key = \"{k}\";\n  opc = \"{opc}\";\n{}  {session}\n  \
         pdu_sessions = ({{ id = 1; type = \"{kind}\"; {session} }});\n}};\n",
        a.home().1.len(),
        suci.unwrap_or_default(),
    );
    vec![("oai-gnb.conf", gnb_conf), ("oai-ue.conf", ue)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use whimbrel_node::config::yaml::{self, Node, NodeValue};
    use whimbrel_node::subscribers;

    /// A YAML text as JSON.
    fn value(text: &str) -> Value {
        fn of(node: &Node) -> Value {
            match &node.value {
                NodeValue::Null => Value::Null,
                NodeValue::Text(text) => json!(text),
                NodeValue::List(items) => items.iter().map(of).collect(),
                NodeValue::Map(map) => {
                    Value::Object(map.iter().map(|(key, node)| (key.name.clone(), of(node))).collect())
                }
            }
        }
        of(&yaml::parse(text).unwrap())
    }

    const CONFIG: &str = "plmn: 001/01\ntacs: [300]\nslices: [1, 2-0000ab]\nn2: { addresses: [192.0.2.1], port: 38500 }\n\
        n3: { address: 192.0.2.1 }\nhome_network_keys:\n  - { id: 7, scheme: A, private_key: \
        \"c53c22208b61860b06c62e5406a7b330c2b577aa5558981510d128247d38bd1d\" }\n";
    /// The public key of that private key: TS 33.501 Annex C.4.3.
    const PUBLIC: &str = "5a8d38864820197c3394b92613b20b91633cbd897119273bf8e4a6f4eec0a650";

    fn attached(record: Value, supi: Option<&str>) -> Result<Attachment, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("s"), &folder.path().join("k")).unwrap();
        store.add(&subscribers::record_of(record).unwrap()).unwrap();
        let config = config::parse(CONFIG, std::path::Path::new("x")).unwrap_or_else(|e| panic!("{e}"));
        let gnb = "192.0.2.9".parse().unwrap();
        attachment(&config, &mut store, supi.map(|s| s.parse().unwrap()), gnb)
    }

    fn subscriber() -> Value {
        json!({
            "supi": "imsi-001010000000042", "k": "465b5ce8b199b49faa5f0a2ee238a6bc", "op": "cdc202d5123e20f62b6d676ac72cb318",
            "subscription": { "slices": [{ "s_nssai": "9", "dnns": [{ "dnn": "internet", "default": true }] },
                { "s_nssai": "2-0000ab", "dnns": [{ "dnn": "internet", "default": true }] }] },
        })
    }

    #[test] // TS 35.207 §3.3 test set 1: OPc of K and OP
    fn ueransim_gets_the_cores_network_and_the_subscribers_keys() {
        let files = ueransim(&attached(subscriber(), None).unwrap());
        let [gnb, ue] = [0, 1].map(|i| value(&files[i].1));
        let amf = json!([{ "address": "192.0.2.1", "port": "38500" }]);
        let slices = json!([{ "sst": "1" }, { "sst": "2", "sd": "0x0000ab" }]);
        for (key, expected) in [
            ("mcc", json!("001")),
            ("mnc", json!("01")),
            ("tac", json!("300")),
            ("ngapIp", json!("192.0.2.9")),
            ("gtpIp", json!("192.0.2.9")),
            ("amfConfigs", amf),
            ("slices", slices),
        ] {
            assert_eq!(gnb[key], expected, "{key}");
        }
        for (key, expected) in [
            ("supi", json!("imsi-001010000000042")),
            ("op", json!("cdc202d5123e20f62b6d676ac72cb318")),
            ("opType", json!("OP")),
            ("protectionScheme", json!("1")),
            ("homeNetworkPublicKey", json!(PUBLIC)),
            ("homeNetworkPublicKeyId", json!("7")),
            (
                "sessions",
                json!([{ "type": "IPv4", "apn": "internet", "slice": { "sst": "2", "sd": "0x0000ab" } }]),
            ),
            ("configured-nssai", json!([{ "sst": "2", "sd": "0x0000ab" }])),
            ("gnbSearchList", json!(["192.0.2.9"])),
        ] {
            assert_eq!(ue[key], expected, "{key}");
        }
        let mut here = attached(subscriber(), None).unwrap();
        here.gnb = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(
            (&ue["useNamespace"], &value(&ueransim(&here)[1].1)["useNamespace"]),
            (&Value::Null, &json!("true"))
        );
    }

    #[test] // TS 35.207 §3.3 test set 1: OPc of K and OP
    fn packetrusher_gets_opc_and_the_parts_of_the_imsi() {
        let files = packetrusher(&attached(subscriber(), Some("imsi-001010000000042")).unwrap());
        let all = value(&files[0].1);
        assert_eq!(all["ue"]["opc"], "cd63cb71954a9f4e48a5994e37a02baf");
        assert_eq!(all["ue"]["hplmn"], json!({ "mcc": "001", "mnc": "01" }));
        assert_eq!(
            (&all["ue"]["msin"], &all["gnodeb"]["plmnlist"]["tac"]),
            (&json!("0000000042"), &json!("00012c"))
        );
        assert_eq!(all["amfif"], json!([{ "ip": "192.0.2.1", "port": "38500" }]));
        assert_eq!(all["gnodeb"]["slicesupportlist"], json!({ "sst": "02", "sd": "0000ab" }));
        assert_eq!(all["ue"]["snssai"], json!({ "sst": "2", "sd": "0000ab" }));
    }

    #[test]
    fn srsran_gets_the_cores_network_and_its_own_addresses() {
        let all = value(&srsran(&attached(subscriber(), None).unwrap())[0].1);
        let slices = json!([{ "sst": "1" }, { "sst": "2", "sd": "171" }]);
        let area =
            json!([{ "tac": "300", "plmn_list": [{ "plmn": "00101", "tai_slice_support_list": slices }] }]);
        let amf = &all["cu_cp"]["amf"];
        assert_eq!((&amf["addr"], &amf["port"]), (&json!("192.0.2.1"), &json!("38500")));
        assert_eq!((&amf["bind_addr"], &amf["supported_tracking_areas"]), (&json!("192.0.2.9"), &area));
        assert_eq!(all["cu_up"]["ngu"]["socket"], json!([{ "bind_addr": "192.0.2.9" }]));
        assert_eq!(all["cell_cfg"], json!({ "plmn": "00101", "tac": "300" }));
    }

    #[test] // TS 35.207 §3.3 test set 1: OPc of K and OP
    fn oai_gets_the_plmn_as_numbers_and_the_subscribers_keys() {
        let files = oai(&attached(subscriber(), None).unwrap());
        let plmn = "plmn_list = ({ mcc = 1; mnc = 1; mnc_length = 2; snssaiList = ({ sst = 1; }, { sst = 2; sd = 0x0000ab; }); });";
        for line in [
            "tracking_area_code = 300;",
            plmn,
            "amf_ip_address = ({ ipv4 = \"192.0.2.1\"; ipv6 = \"::\"; active = \"yes\"; preference = \"ipv4\"; });",
            "  GNB_INTERFACE_NAME_FOR_NG_AMF = \"\";",
            "  GNB_IPV4_ADDRESS_FOR_NGU = \"192.0.2.9\";",
        ] {
            assert!(files[0].1.lines().any(|l| l == line), "{line}: {}", files[0].1);
        }
        for line in [
            "  imsi = \"001010000000042\";",
            "  opc = \"cd63cb71954a9f4e48a5994e37a02baf\";",
            "  nmc_size = 2;",
            "  protection_scheme = 1;",
            "  home_network_public_key_id = 7;",
            format!("  home_network_public_key = \"{PUBLIC}\";").as_str(),
            "  dnn = \"internet\"; nssai_sst = 2; nssai_sd = 0x0000ab;",
            "  pdu_sessions = ({ id = 1; type = \"IPv4v6\"; dnn = \"internet\"; nssai_sst = 2; nssai_sd = 0x0000ab; });",
        ] {
            assert!(files[1].1.lines().any(|l| l == line), "{line}: {}", files[1].1);
        }
        let mut ipv6 = attached(subscriber(), None).unwrap();
        ipv6.amf = "2001:db8::1".parse().unwrap();
        let line = "amf_ip_address = ({ ipv4 = \"0.0.0.0\"; ipv6 = \"2001:db8::1\"; active = \"yes\"; preference = \"ipv6\"; });";
        assert!(oai(&ipv6)[0].1.lines().any(|l| l == line), "{line}");
    }

    #[test]
    fn a_subscriber_that_cannot_attach_is_refused_with_the_reason() {
        let mut other = subscriber();
        other["subscription"]["slices"].as_array_mut().unwrap().truncate(1);
        let e = |record: Value, supi| attached(record, supi).err().unwrap();
        assert!(e(other.clone(), Some("001010000000042")).contains("subscribes to no slice of this core"));
        assert!(e(other, None).contains("no subscriber fits"));
        assert!(e(subscriber(), Some("001010000000043")).contains("is no subscriber"));
        let mut tuak = subscriber();
        tuak["topc"] = json!("ab".repeat(32));
        tuak.as_object_mut().unwrap().remove("op");
        assert!(e(tuak, Some("001010000000042")).contains("TUAK"));
    }
}
