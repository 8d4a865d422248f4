//! Other AMFs of this network, to whose gNBs connected UEs are handed over (TS 23.502 §4.9.1.3).

use std::net::SocketAddr;
use std::path::PathBuf;

use whimbrel_control::config as control;
use whimbrel_ids::{AmfId, Tac};

use super::Config;
use super::section::{Pass, Section};
use super::service::KeepUes;

/// The peer AMFs, and the address that they connect to.
#[derive(Clone, Debug)]
pub struct PeerAmfs {
    pub listen: Option<SocketAddr>,
    pub key_file: Option<PathBuf>,
    pub amfs: Vec<PeerAmfConfig>,
}

/// A peer AMF.
#[derive(Clone, Debug)]
pub struct PeerAmfConfig {
    pub name: String,
    pub amf_id: AmfId,
    pub tacs: Vec<Tac>,
    pub addresses: Vec<SocketAddr>,
    pub replicas: u32,
}

/// UEs whose states two AMFs exchange: as many as one may have (`limits.ues`).
const REPLICAS_MAX: u32 = 1 << 20;

impl PeerAmfConfig {
    pub(super) fn control(&self) -> control::PeerAmf {
        control::PeerAmf { name: self.name.clone(), amf_id: self.amf_id, tacs: self.tacs.clone() }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> PeerAmfs {
    let doc = "Other AMFs of this network, each in another core. UEs are handed over to their gNBs and register there, with their sessions at UPFs \
               that both cores have (docs/cluster.md).";
    root.section("peer_amfs", doc, |s| {
        let listen = s.optional("listen", "192.0.2.1:7390", "Address and TCP port that peer AMFs connect to.");
        let key_file = s.optional(
            "key_file",
            "/etc/whimbrel/peer-amfs.key",
            "File with the key that these AMFs share, 64 hexadecimal digits; it protects the UEs' keys on the way. Without it, only AMFs of this host \
             can connect, at loopback addresses.",
        );
        let doc = "Each has `name`, `region`, `set` and `pointer` as in its own `amf`, the `tacs` that it serves, and the `addresses` at which it \
                   listens (two if it is a pair). AMFs of one region and set are an AMF set: they serve the same tracking areas and each other's UEs.";
        let amfs = s.sections("amfs", 0, doc, |s, i| {
            let amf = PeerAmfConfig {
                name: s.value("name", format!("amf{}", i + 1), "Name in logs; of an AMF of the same set its own `amf.name`, by which gNBs know it."),
                amf_id: super::amf::amf_id(s),
                tacs: s.list("tacs", vec![], "The tracking areas that it serves; not needed for an AMF of the same set, which serves those of this one."),
                addresses: s.list("addresses", vec![], "Its addresses and TCP ports."),
                replicas: s.value(
                    "replicas",
                    0,
                    "UEs whose state it is sent ahead, so that a UE that goes there brings only what has changed; as many of its UEs are held here. The \
                     same number at both AMFs; 0: none.",
                ),
            };
            let is_within = amf.replicas <= REPLICAS_MAX;
            let what = format!("{} is out of bounds", amf.replicas);
            s.bound("replicas", is_within, what, format!("0 to {REPLICAS_MAX}"));
            amf
        });
        PeerAmfs { listen, key_file, amfs }
    })
}

impl Config {
    /// One sentence for each setting that works, and is likely not meant so.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let has_replicas = self.peer_amfs.amfs.iter().any(|amf| amf.replicas > 0);
        let is_lost = has_replicas && self.store.keep_ues != KeepUes::Always && self.cluster.pair.is_none();
        let lost = is_lost.then(|| {
            "if this core is killed and started again, its UEs register again, although peer AMFs have their states (`peer_amfs.amfs[].replicas`): \
             write `keep_ues: always` in `store`"
                .to_owned()
        });
        self.store.key_beside_database().into_iter().chain(lost)
    }

    /// The SMFs of an AMF set are an SMF set (TS 23.003 §28.14).
    pub(super) fn smf_set_id(&self) -> Option<String> {
        let own = self.amf.amf_id;
        let of_set =
            |peer: &PeerAmfConfig| (peer.amf_id.region, peer.amf_id.set()) == (own.region, own.set());
        self.peer_amfs.amfs.iter().any(of_set).then(|| {
            let ([a, b, c], (mnc, digits)) = (self.amf.plmn.mcc(), self.amf.plmn.mnc());
            let [d, e, f] = if digits == 2 { [0, mnc[0], mnc[1]] } else { mnc };
            format!("set{}-{}.smfset.5gc.mnc{d}{e}{f}.mcc{a}{b}{c}.3gppnetwork.org", own.region, own.set())
        })
    }
}

/// Reports contradictions between the items, and with other keys.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let PeerAmfs { listen, amfs, .. } = &config.peer_amfs;
    if !amfs.is_empty() && listen.is_none() {
        pass.refuse(
            "peer_amfs.listen",
            "peer AMFs cannot connect",
            "write the address and port that they connect to",
        );
    }
    if amfs.len() > u8::MAX.into() {
        pass.refuse("peer_amfs.amfs", "there are more than 255 peer AMFs", "list at most 255");
    }
    for (i, amf) in amfs.iter().enumerate() {
        let key = |key: &str| format!("peer_amfs.amfs[{i}].{key}");
        if amf.amf_id == config.amf.amf_id || amfs[..i].iter().any(|a| a.amf_id == amf.amf_id) {
            let what = "two AMFs have the same region, set and pointer";
            pass.refuse(&key("pointer"), what, "give each a pointer of its own (`amf.pointer` here)");
        }
        let of_set = |other: &AmfId| (other.region, other.set()) == (amf.amf_id.region, amf.amf_id.set());
        if amf.tacs.is_empty() && !of_set(&config.amf.amf_id) {
            pass.refuse(
                &key("tacs"),
                "without a tracking area no UE is handed over to it",
                "list the tracking areas that it serves",
            );
        }
        // AMFs of one set may serve the same tracking areas: any of them can serve a UE there.
        let served = |tac: &&Tac| {
            let here = config.amf.tacs.contains(tac) && !of_set(&config.amf.amf_id);
            here || amfs[..i].iter().any(|a| a.tacs.contains(tac) && !of_set(&a.amf_id))
        };
        if let Some(tac) = amf.tacs.iter().find(served) {
            let what = format!("TAC {} is served by two AMFs of different sets", tac.value());
            pass.refuse(
                &key("tacs"),
                what,
                "name each tracking area in one set, or give both AMFs one region and set",
            );
        }
        if amf.addresses.is_empty() && amf.amf_id > config.amf.amf_id {
            let what = "of two AMFs the one with the lower region, set and pointer connects to the other, whose address is missing";
            pass.refuse(&key("addresses"), what, "write the address at which that AMF listens");
        }
    }
}
