//! The code version that logs are bound to: a digest of the sources, so that no number has to be raised by hand.
#![expect(clippy::disallowed_methods, reason = "a build script reads files")]

use std::path::{Path, PathBuf};

/// Whatever a replay's outputs, or what a CTA replica makes of the same inputs, can depend on.
const SOURCES: [&str; 9] = [
    "src",
    "../control/src",
    "../services/brokers/open/src",
    "../security/src",
    "../wire/fastwire/src",
    "../wire/ids/src",
    "../wire/nas/src",
    "../wire/ngap/src",
    "../wire/pfcp/src",
];

fn main() {
    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        collect(Path::new(source), &mut files);
    }
    files.sort();
    // FNV-1a: names and octets, each with its length.
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut take = |octets: &[u8]| {
        for octet in (octets.len() as u64).to_be_bytes().iter().chain(octets) {
            digest = (digest ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for file in &files {
        take(file.to_string_lossy().as_bytes());
        take(&std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display())));
    }
    let version = (digest >> 32) as u32 ^ digest as u32;
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    std::fs::write(out.join("code_version"), format!("{version:#010x}")).expect("written");
}

/// The Rust sources below a folder, but for tests.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for path in entries.map(|entry| entry.expect("a folder that stays").path()) {
        let is_tests = path.file_stem().is_some_and(|stem| stem == "tests");
        if path.is_dir() && !is_tests {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_tests {
            files.push(path);
        }
    }
}
