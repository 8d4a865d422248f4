//! Figure 20: how many octets real messages have in ASN.1, FlatBuffers, and FlatBuffers with single-value unions.

use std::io;
use std::path::Path;

use serde_json::json;
use whimbrel_ngap::fast::Form;

use super::finish;
use crate::codec::messages;
use crate::plot::{Axis, Plot, Series};

pub(super) fn run(plots: &Path) -> io::Result<()> {
    println!("figure 20: octets of real messages");
    println!(
        "paper: FlatBuffers up to 300 octets more than ASN.1; single-value unions save up to 32 of them\n"
    );
    println!(
        "{:<42}{:>8}{:>14}{:>16}{:>8}{:>8}",
        "", "ASN.1", "FlatBuffers", "single values", "more", "saved"
    );
    let mut sizes: [Vec<(f64, f64)>; 3] = Default::default();
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    let (mut most_more, mut most_saved) = (0, 0);
    for (i, (name, message)) in messages::all().into_iter().enumerate() {
        let fast = |form| {
            let mut out = Vec::new();
            message.encode_fast(form, &mut out);
            out.len()
        };
        let [asn1, plain, single] = [message.to_vec().len(), fast(Form::Plain), fast(Form::SingleValue)];
        let (more, saved) = (plain - asn1, plain - single);
        println!("{name:<42}{asn1:>8}{plain:>14}{single:>16}{more:>8}{saved:>8}");
        for (sizes, size) in sizes.iter_mut().zip([asn1, plain, single]) {
            sizes.push((i as f64, size as f64));
        }
        (most_more, most_saved) = (most_more.max(more), most_saved.max(saved));
        rows.push(json!({ "message": name, "asn1": asn1, "flatbuffers": plain, "single_values": single }));
        names.push(name.to_owned());
    }
    println!("\nFlatBuffers: up to {most_more} octets more than ASN.1 (paper: 300)");
    println!("single-value unions: up to {most_saved} octets saved (paper: 32)");
    let labels = ["ASN.1", "FlatBuffers", "FlatBuffers, single values"];
    Plot {
        title: "Octets of real messages (Neutrino, figure 20)",
        x: "",
        y: "octets",
        log_y: false,
        axis: Axis::Names(names),
        series: labels.iter().zip(sizes).map(|(l, points)| Series { name: (*l).into(), points }).collect(),
    }
    .write(plots, "neutrino-fig20")?;
    finish("fig20", &json!({ "octets": rows, "most_more": most_more, "most_saved": most_saved }));
    Ok(())
}
