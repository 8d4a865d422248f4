//! Backups: one archive with the subscribers, their key file, the accounts of the charging function, the API's users and certificate, the configuration and the files that it
//! names. It is sealed for a key or with a passphrase; opened, it is an archive that `tar` reads. Its first file, `manifest.json`, has the
//! length and the digest of each of the others.

mod keys;
mod manifest;
mod places;
mod restore;
mod sealed;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use whimbrel_broker_common::crypto::Seed;
use whimbrel_node::accounts;
use whimbrel_node::api_files::{accounts_file, api_key_file, certificate_file};
use whimbrel_node::clock;
use whimbrel_node::config::{self, Config};
use whimbrel_node::entropy::SystemEntropy;
use whimbrel_node::subscribers;
use whimbrel_store::LAYOUT;

use crate::archive::Writer;

pub(crate) use keys::{make_key, passphrase, private_key, public_key};
use manifest::{FORMAT, Manifest, Part, VERSION};
#[cfg(test)]
use restore::Restored;
pub(crate) use restore::{RestoreOrder, restore};
use sealed::Sealer;
pub(crate) use sealed::{Lock, Unlock};

/// Octets of a file that the configuration names, at most: keys and certificates have a hundredth.
const NAMED_OCTETS_MAX: u64 = 1 << 20;

const MANIFEST: &str = "manifest.json";
const SUBSCRIBERS: &str = "subscribers.db";
const SUBSCRIBERS_KEY: &str = "subscribers.key";
const ACCOUNTS: &str = "accounts.json";
const API_CERTIFICATE: &str = "api.crt";
const API_KEY: &str = "api.key";
/// Accounts, open sessions and records of the charging function.
const CHARGING: &str = "charging.db";
const CONFIGURATION: &str = "configuration.yaml";

/// What a backup holds.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) subscribers: u64,
    /// Paths of the files in it.
    pub(crate) files: Vec<PathBuf>,
    /// Whether the subscribers' keys can be read with it.
    pub(crate) with_key: bool,
}

/// Writes a backup of the store of this configuration, whether a core uses it or not, sealed with the lock if there is one. Errors: one
/// sentence; no file is left then.
pub(crate) fn write(
    config: &Config,
    file: Option<&Path>,
    to: &Path,
    with_key: bool,
    lock: Option<&Lock>,
) -> Result<Written, String> {
    if to.exists() {
        return Err(format!("{} exists: name another file, or remove it", to.display()));
    }
    let [copy, charging, draft] = [".copy", ".charging", ".partial"].map(|end| suffixed(to, end));
    for left in [&copy, &charging, &draft] {
        // Of a command that was killed.
        let _ = fs::remove_file(left);
    }
    let written = write_draft(config, file, [&copy, &charging, &draft], with_key, lock).and_then(|written| {
        fs::rename(&draft, to).and_then(|()| sync_folder(to)).map_err(|e| cannot_write(to, &e))?;
        Ok(written)
    });
    let _ = fs::remove_file(&copy);
    let _ = fs::remove_file(&charging);
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Writes a backup to a stream: out of a container, from which no other program could copy a file. It is made beside the store first. Errors: one sentence.
pub(crate) fn stream(
    config: &Config,
    file: Option<&Path>,
    out: &mut impl Write,
    with_key: bool,
    lock: Option<&Lock>,
) -> Result<Written, String> {
    let made = suffixed(&config.store.path, ".backup");
    // Of a command that was killed.
    let _ = fs::remove_file(&made);
    let written = write(config, file, &made, with_key, lock)?;
    let copied =
        whimbrel_files::open(&made).and_then(|mut made| io::copy(&mut made, out)).and_then(|_| out.flush());
    let _ = fs::remove_file(&made);
    copied.map_err(|e| format!("the backup cannot be written: {e}"))?;
    Ok(written)
}

fn write_draft(
    config: &Config,
    file: Option<&Path>,
    [copy, charging, draft]: [&Path; 3],
    with_key: bool,
    lock: Option<&Lock>,
) -> Result<Written, String> {
    if !config.store.path.exists() {
        return Err(format!(
            "there is no store at {}: name the core's configuration with -c",
            config.store.path.display()
        ));
    }
    let store = subscribers::open(&config.store)?;
    // Of the copy: subscribers may be added meanwhile.
    let subscribers = store.copy_to(copy).map_err(|e| e.to_string())?;

    // Each with its name in the archive, the file that is read, and where it belongs.
    let store = &config.store.path;
    let mut sources = vec![(SUBSCRIBERS.to_owned(), copy.to_path_buf(), store.clone())];
    if config.charging_file().exists() {
        accounts::open(config)?.copy_to(charging).map_err(|e| e.to_string())?;
        sources.push((CHARGING.to_owned(), charging.to_path_buf(), config.charging_file()));
    }
    let mut add = |name: &str, path: &Path| {
        if path.exists() {
            sources.push((name.to_owned(), path.to_path_buf(), path.to_path_buf()));
        }
    };
    if with_key {
        add(SUBSCRIBERS_KEY, &config.store.key_in_force());
    }
    add(ACCOUNTS, &accounts_file(store));
    add(API_CERTIFICATE, &certificate_file(store));
    add(API_KEY, &api_key_file(store));
    if let Some(file) = file {
        add(CONFIGURATION, file);
        let named = config::marked(file).map_err(|e| e.to_string())?.files;
        let named = named.iter().filter(|path| {
            **path != config.store.path
                && **path != config.store.key_file
                && **path != config.charging_file()
                && fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= NAMED_OCTETS_MAX)
        });
        named.enumerate().for_each(|(i, path)| add(&format!("named/{i}"), path));
    }
    let mut files = Vec::new();
    for (name, source, path) in &sources {
        let (octets, sha256) =
            digest_of(source).map_err(|e| format!("{} cannot be read: {e}", source.display()))?;
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        files.push(Part { name: name.clone(), octets, sha256, path });
    }
    let manifest = Manifest {
        format: FORMAT.into(),
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").into(),
        created: clock::rfc3339(clock::now()),
        layout: LAYOUT,
        subscribers,
        files: files.clone(),
    };
    let stream = lock.map(|lock| {
        let mut entropy = SystemEntropy::new()?;
        sealed::begin(lock, &Seed::new(entropy.octets()), &entropy.octets()).map_err(str::to_owned)
    });
    let stream = stream.transpose()?;
    let archived = || -> io::Result<()> {
        let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
        let mut out = BufWriter::new(out);
        let out = match &stream {
            Some((head, key)) => {
                out.write_all(head)?;
                Output::Sealed(Box::new(Sealer::new(out, key)))
            }
            None => Output::Plain(out),
        };
        let mut archive = Writer::new(out);
        archive.octets(MANIFEST, &serde_json::to_vec_pretty(&manifest)?)?;
        for ((_, source, _), part) in sources.iter().zip(&files) {
            archive.file(&part.name, part.octets, &mut whimbrel_files::open(source)?)?;
        }
        let out = match archive.finish()? {
            Output::Plain(out) => out,
            Output::Sealed(sealer) => sealer.finish()?,
        };
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    };
    archived().map_err(|e| cannot_write(draft, &e))?;
    Ok(Written { subscribers, files: files.into_iter().map(|part| part.path).collect(), with_key })
}

/// Where an archive's octets go.
enum Output {
    Plain(BufWriter<File>),
    Sealed(Box<Sealer<BufWriter<File>>>),
}

impl Write for Output {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(octets),
            Self::Sealed(out) => out.write(octets),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(out) => out.flush(),
            Self::Sealed(out) => out.flush(),
        }
    }
}

fn cannot_write(file: &Path, e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no room is left for {}: nothing was changed; free space and try again", file.display())
        }
        _ => format!("{} cannot be written: {e}", file.display()),
    }
}

/// The path with something behind its name.
fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes the names in a file's folder durable.
fn sync_folder(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// The length and the SHA-256 of a file.
fn digest_of(file: &Path) -> io::Result<(u64, String)> {
    let mut digest = Digesting { out: io::sink(), context: Context::new(&SHA256) };
    let octets = io::copy(&mut whimbrel_files::open(file)?, &mut digest)?;
    Ok((octets, digest.finish()))
}

/// Digests what passes.
struct Digesting<W> {
    out: W,
    context: Context,
}

impl<W> Digesting<W> {
    fn finish(self) -> String {
        self.context.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let written = self.out.write(octets)?;
        self.context.update(&octets[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
