//! `whimbrel check`: is this configuration right, and what does it say?

use std::fmt::Write;
use std::path::Path;

use whimbrel_cli::Done;
use whimbrel_node::config::value::Value;
use whimbrel_node::config::{self, Config};

pub(crate) fn run(file: Option<&Path>) -> Done {
    let (config, file) = config::load(file).map_err(|e| e.to_string())?;
    let source = file.map_or("no file found, so the defaults".into(), |f| f.display().to_string());
    whimbrel_cli::print(&format!("OK: {source}\n{}", summary(&config)))
}

/// What the configuration comes to, a line an interface.
fn summary(c: &Config) -> String {
    let mut s = String::new();
    let amf = &c.amf;
    let _ =
        writeln!(s, "  network  PLMN {}, TAC {}, slices {}", amf.plmn, list(&amf.tacs), list(&amf.slices));
    let id = amf.amf_id;
    let _ = writeln!(
        s,
        "  AMF      {}, region {} set {} pointer {}",
        amf.name,
        id.region,
        id.set(),
        id.pointer()
    );
    for n in &c.data_networks {
        let v4 = n.ipv4_pool.map_or("no IPv4".into(), |p| p.to_string());
        let v6 = n.ipv6_pool.map_or("no IPv6".into(), |p| p.to_string());
        let _ = writeln!(s, "  DNN      {}: {v4}, {v6}, DNS {}", n.dnn, list(&n.dns));
    }
    let _ =
        writeln!(s, "  N2       SCTP {} port {} ({})", list(&c.n2.addresses), c.n2.port, c.n2.sctp.show());
    let _ = writeln!(s, "  N3       UDP {} port {}", c.n3.address, c.n3.port);
    let _ = writeln!(s, "  N6       devices {}, NAT {}", devices(c), if c.n6.nat { "on" } else { "off" });
    let _ = writeln!(s, "  store    {}", c.store.path.display());
    if let Some(postgres) = &c.store.postgres {
        let _ = writeln!(s, "           the replica of PostgreSQL at {}", postgres.hosts());
    }
    let _ = writeln!(s, "  API      http://{}", c.api.address);
    for warning in c.warnings() {
        let _ = writeln!(s, "  warning  {warning}");
    }
    if c.home_network_keys.is_empty() {
        let _ = writeln!(s, "  SUCI     null scheme only: no home network key is configured");
    } else {
        let keys: Vec<_> = c.home_network_keys.iter().map(|k| format!("{} ({:?})", k.id, k.scheme)).collect();
        let _ = writeln!(s, "  SUCI     keys {}", keys.join(", "));
    }
    s
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn devices(c: &Config) -> String {
    (0..c.data_networks.len()).map(|i| c.n6.device_of(i)).collect::<Vec<_>>().join(", ")
}
