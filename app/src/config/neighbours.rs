//! Other AMFs of this network, to whose gNBs connected UEs are handed over (TS 23.502 §4.9.1.3).

use std::net::SocketAddr;
use std::path::PathBuf;

use whimbrel_control::config as control;
use whimbrel_ids::{AmfId, Tac};

use super::Config;
use super::section::{Pass, Section};

/// The other AMFs, and where they call.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) amfs: Vec<Neighbour>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Neighbour {
    pub(crate) name: String,
    pub(crate) amf_id: AmfId,
    pub(crate) tacs: Vec<Tac>,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Neighbour {
    pub(super) fn control(&self) -> control::Neighbour {
        control::Neighbour { name: self.name.clone(), amf_id: self.amf_id, tacs: self.tacs.clone() }
    }
}

pub(super) fn read(root: &mut Section<'_, '_>) -> Neighbours {
    let doc = "Other AMFs of this network, each a core of its own: connected UEs are handed over to their gNBs, with their sessions at UPFs \
               that both know (docs/cluster.md).";
    root.section("neighbours", doc, |s| {
        let listen = s.optional("listen", "192.0.2.1:7390", "Where other AMFs call.");
        let key_file = s.optional(
            "key_file",
            "/etc/whimbrel/neighbours.key",
            "File with the key that these AMFs share, 64 hexadecimal digits: UEs' keys pass between them. Without: AMFs of one host \
             only, at loopback addresses.",
        );
        let doc = "Each has `name`, `region`, `set` and `pointer` as in its own `amf`, the `tacs` that it serves, and the `addresses` at which it \
                   listens; two where it is a pair.";
        let amfs = s.sections("amfs", 0, doc, |s, i| Neighbour {
            name: s.value("name", format!("amf{}", i + 1), "What logs call it."),
            amf_id: super::amf::amf_id(s),
            tacs: s.list("tacs", vec![], "The tracking areas that it serves."),
            addresses: s.list("addresses", vec![], "Where it is called."),
        });
        Neighbours { listen, key_file, amfs }
    })
}

/// What the items may say alone, but not together with each other or with the rest.
pub(super) fn check(config: &Config, pass: &mut Pass) {
    let Neighbours { listen, amfs, .. } = &config.neighbours;
    if !amfs.is_empty() && listen.is_none() {
        pass.refuse("neighbours.listen", "other AMFs cannot call", "write where they do");
    }
    if amfs.len() > u8::MAX.into() {
        pass.refuse("neighbours.amfs", "so many have no numbers", "list at most 255");
    }
    for (i, amf) in amfs.iter().enumerate() {
        let key = |key: &str| format!("neighbours.amfs[{i}].{key}");
        if amf.amf_id == config.amf.amf_id || amfs[..i].iter().any(|a| a.amf_id == amf.amf_id) {
            let what = "two AMFs have the same region, set and pointer";
            pass.refuse(&key("pointer"), what, "give each a pointer of its own (`amf.pointer` here)");
        }
        if amf.tacs.is_empty() {
            pass.refuse(
                &key("tacs"),
                "no UE would be handed over to it",
                "list the tracking areas that it serves",
            );
        }
        let served =
            |tac: &&Tac| config.amf.tacs.contains(tac) || amfs[..i].iter().any(|a| a.tacs.contains(tac));
        if let Some(tac) = amf.tacs.iter().find(served) {
            let what = format!("TAC {} is served by two AMFs", tac.value());
            pass.refuse(&key("tacs"), what, "name each tracking area once, here or in `tacs`");
        }
        if amf.addresses.is_empty() && amf.amf_id > config.amf.amf_id {
            let what =
                "of two AMFs the one of the lesser region, set and pointer calls, and nothing says where";
            pass.refuse(&key("addresses"), what, "write where the other one listens");
        }
    }
}
