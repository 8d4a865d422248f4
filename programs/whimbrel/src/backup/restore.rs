//! Restoring a backup: everything is written beside what is there, checked, and then put in its place; what was there stays beside it.
//!
//! Where it may write is `places.rs`'s to say. A journal beside the store names the files while they are exchanged. A restore that finds one puts the former files back first, so
//! that a kill in the middle leaves no mixture.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use whimbrel_charging::{ChargingError, ChargingFunction};
use whimbrel_node::api_files::{accounts_file, api_key_file, certificate_file};
use whimbrel_node::config;
use whimbrel_node::core::stored_ues;
use whimbrel_node::subscribers;
use whimbrel_store::{LAYOUT, StoreError, release};

use super::manifest::{MANIFEST_OCTETS_MAX, Manifest, Part, VERSION};
use super::places::{FORMER, Permitted, Place};
use super::sealed::{self, Opener, StreamKey, Unlock, sealed_error};
use super::{
    ACCOUNTS, API_CERTIFICATE, API_KEY, CHARGING, CONFIGURATION, Digesting, MANIFEST, SUBSCRIBERS,
    SUBSCRIBERS_KEY, cannot_write, suffixed,
};
use crate::archive::{ReadError, Reader};

/// Octets that show whether a backup is sealed.
const BEGINNING_OCTETS: u64 = 15;

/// An archive, and the options with which it is restored.
pub(crate) struct RestoreOrder<'a> {
    pub(crate) archive: &'a Path,
    /// The file that the operator names.
    pub(crate) configuration: Option<&'a Path>,
    /// The archive's configuration replaces the present one.
    pub(crate) with_configuration: bool,
    /// Further folders in which the archive may name files.
    pub(crate) allowed: &'a [PathBuf],
    /// Key or passphrase for a sealed archive.
    pub(crate) unlock: Option<Unlock>,
    /// An archive that is not sealed is restored.
    pub(crate) unauthenticated: bool,
}

/// What was restored.
#[derive(Debug)]
pub(crate) struct Restored {
    pub(crate) subscribers: u64,
    pub(crate) created: String,
    /// The files in their places.
    pub(crate) files: Vec<PathBuf>,
    /// The former ones of these that were set aside.
    pub(crate) set_aside: Vec<PathBuf>,
    /// The store that the files belong to.
    pub(crate) store: PathBuf,
    /// Whether the archive's configuration was left out, because there is one.
    pub(crate) kept_configuration: bool,
}

/// A file on its way to its place.
struct Staged {
    place: Place,
    file: File,
}

/// Restores an archive to the places that the configuration names: the present one, or with `with_configuration`, or where there is
/// none, the archive's. Errors: one sentence; everything is then as it was.
pub(crate) fn restore(order: &RestoreOrder<'_>) -> Result<Restored, String> {
    let present = order.configuration.map(Path::to_path_buf).or_else(config::found);
    let is_kept = !order.with_configuration && present.as_ref().is_some_and(|file| file.exists());
    let source = Source::open(order)?;
    let permitted = Permitted::new(present.as_deref(), order.allowed)?;
    let mut plan = Plan { archive: order.archive, source, permitted, staged: BTreeMap::new() };
    let done = plan.run(present, is_kept);
    if done.is_err() {
        plan.staged.values().for_each(|staged| staged.place.unstage());
    }
    done
}

/// The archive's file, and what opens it.
struct Source {
    file: File,
    /// Where the chunks begin, and their key, if it is sealed.
    sealed: Option<(u64, StreamKey)>,
}

impl Source {
    /// Opens an archive, and reads a sealed one to its end, so that nothing is written of one that was changed.
    fn open(order: &RestoreOrder<'_>) -> Result<Self, String> {
        let failed = |e: io::Error| failed(order.archive, &ReadError::Io(e));
        let mut file = File::open(order.archive).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(format!("{} is no regular file", order.archive.display()));
        }
        let mut beginning = Vec::new();
        (&file).take(BEGINNING_OCTETS).read_to_end(&mut beginning).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if !sealed::is_sealed(&beginning) {
            let source = Self { file, sealed: None };
            if !order.unauthenticated {
                // What is no backup at all is called that.
                source.manifest(order.archive)?;
                return Err(format!(
                    "{} is not sealed, so that anyone may have changed it: if you trust the place where it was kept, restore it with \
                     --unauthenticated",
                    order.archive.display()
                ));
            }
            return Ok(source);
        }
        let key = sealed::open_head(&mut file, order.unlock.as_ref()).map_err(failed)?;
        let at = file.stream_position().map_err(failed)?;
        let source = Self { file, sealed: Some((at, key)) };
        io::copy(&mut source.input().map_err(failed)?, &mut io::sink()).map_err(failed)?;
        Ok(source)
    }

    /// The archive from its beginning.
    fn input(&self) -> io::Result<Input<'_>> {
        let at = self.sealed.as_ref().map_or(0, |(at, _)| *at);
        (&self.file).seek(SeekFrom::Start(at))?;
        let input = BufReader::new(&self.file);
        Ok(match &self.sealed {
            Some((_, key)) => Input::Sealed(Box::new(Opener::new(input, key))),
            None => Input::Plain(input),
        })
    }

    fn reader(&self, archive: &Path) -> Result<Reader<Input<'_>>, String> {
        self.input().map(Reader::new).map_err(|e| failed(archive, &ReadError::Io(e)))
    }

    fn manifest(&self, archive: &Path) -> Result<Manifest, String> {
        let mut reader = self.reader(archive)?;
        let first = reader.next_file().map_err(|e| failed(archive, &e))?;
        let Some((_, length)) =
            first.filter(|(name, length)| name == MANIFEST && *length <= MANIFEST_OCTETS_MAX)
        else {
            return Err(failed(archive, &ReadError::Foreign));
        };
        let mut text = Vec::with_capacity(length as usize);
        reader.content(&mut text).map_err(|e| failed(archive, &e))?;
        let manifest = Manifest::of(&text).ok_or_else(|| failed(archive, &ReadError::Foreign))?;
        if manifest.version > VERSION || manifest.layout > LAYOUT {
            return Err(format!(
                "{} was written by a later version of whimbrel ({}): restore it with that version",
                archive.display(),
                manifest.program
            ));
        }
        Ok(manifest)
    }
}

/// The octets of an archive.
enum Input<'a> {
    Plain(BufReader<&'a File>),
    Sealed(Box<Opener<BufReader<&'a File>>>),
}

impl Read for Input<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(out),
            Self::Sealed(input) => input.read(out),
        }
    }
}

fn failed(archive: &Path, e: &ReadError) -> String {
    let file = archive.display();
    match e {
        ReadError::Foreign => format!("{file} is no backup of whimbrel"),
        ReadError::Short => format!("{file} was cut short: use another backup"),
        ReadError::Io(e) => match sealed_error(e) {
            Some(e) => format!("{file} {e}"),
            None => format!("{file} cannot be read: {e}"),
        },
    }
}

struct Plan<'a> {
    archive: &'a Path,
    source: Source,
    permitted: Permitted,
    /// By the name in the archive.
    staged: BTreeMap<String, Staged>,
}

impl Plan<'_> {
    fn run(&mut self, present: Option<PathBuf>, is_kept: bool) -> Result<Restored, String> {
        let manifest = self.source.manifest(self.archive)?;
        let (place, charging, mut targets) = self.places(&manifest, present, is_kept)?;
        let store = place.path.clone();
        // The archive's configuration may have chosen the store: a journal is followed beside a permitted one alone.
        self.permitted.place(&store, self.archive)?;
        undo_interrupted(&suffixed(&store, ".restore"))?;
        targets.insert(SUBSCRIBERS.into(), store.clone());
        // The key in force may be a credential of the service; it is not this program's to replace.
        if place.credential().is_none() {
            targets.insert(SUBSCRIBERS_KEY.into(), place.key_file.clone());
        }
        targets.insert(CHARGING.into(), charging);
        targets.insert(ACCOUNTS.into(), accounts_file(&store));
        targets.insert(API_CERTIFICATE.into(), certificate_file(&store));
        targets.insert(API_KEY.into(), api_key_file(&store));
        self.stage(&manifest, &targets)?;
        self.check(&manifest, &place)?;
        self.release(&store)?;
        let set_aside = self.exchange(&store)?;
        Ok(Restored {
            subscribers: manifest.subscribers,
            created: manifest.created,
            files: self.staged.values().map(|s| s.place.path.clone()).collect(),
            set_aside,
            store,
            kept_configuration: is_kept && manifest.files.iter().any(|part| part.name == CONFIGURATION),
        })
    }

    fn failed(&self, e: &ReadError) -> String {
        failed(self.archive, e)
    }

    /// The store and the accounts that the configuration names, and the places of the configuration and of the files that it names.
    fn places(
        &mut self,
        manifest: &Manifest,
        present: Option<PathBuf>,
        is_kept: bool,
    ) -> Result<(config::StoreConfig, PathBuf, BTreeMap<String, PathBuf>), String> {
        let read = |file: Option<&Path>| {
            let store = config::store_of(file).map_err(|e| e.to_string())?;
            Ok::<_, String>((store, config::charging_file_of(file).map_err(|e| e.to_string())?))
        };
        let mut targets = BTreeMap::new();
        let archived = manifest.files.iter().find(|part| part.name == CONFIGURATION);
        let Some(part) = archived.filter(|_| !is_kept) else {
            let (store, charging) = read(present.filter(|_| is_kept).as_deref())?;
            return Ok((store, charging, targets));
        };
        let place = present.unwrap_or_else(|| part.path.clone());
        targets.insert(CONFIGURATION.into(), place);
        for part in manifest.files.iter().filter(|part| part.name.starts_with("named/")) {
            targets.insert(part.name.clone(), part.path.clone());
        }
        self.stage(manifest, &targets)?;
        let staged = self.staged.get(CONFIGURATION).map(|s| s.place.staged_path());
        let (store, charging) = read(staged.as_deref())?;
        Ok((store, charging, targets))
    }

    /// Writes files of the archive beside their places, unless they are there already, and compares them with the manifest.
    fn stage(&mut self, manifest: &Manifest, targets: &BTreeMap<String, PathBuf>) -> Result<(), String> {
        let archive = self.archive;
        let mut missing: BTreeMap<&str, &Part> =
            manifest.files.iter().map(|p| (p.name.as_str(), p)).collect();
        // All places are permitted before the first file is written.
        let mut places = BTreeMap::new();
        for (name, target) in targets {
            if !self.staged.contains_key(name) && missing.contains_key(name.as_str()) {
                places.insert(name.clone(), self.permitted.place(target, archive)?);
            }
        }
        let taken = self.staged.values().map(|s| &s.place).chain(places.values());
        let mut taken: Vec<_> = taken.filter_map(|place| std::path::absolute(&place.path).ok()).collect();
        taken.sort();
        if let Some(twice) = taken.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} is damaged: it has {} twice", archive.display(), twice[0].display()));
        }
        let mut reader = self.source.reader(archive)?;
        while let Some((name, length)) = reader.next_file().map_err(|e| failed(archive, &e))? {
            let Some(part) = missing.remove(name.as_str()) else { continue };
            let Some(place) = places.remove(&name) else { continue };
            let staged = place.staged_path();
            let cannot = |e: &io::Error| cannot_write(&staged, e);
            let file = place.stage().map_err(|e| cannot(&e))?;
            let kept = file.try_clone();
            let file = match kept {
                Ok(kept) => {
                    self.staged.insert(name.clone(), Staged { place, file: kept });
                    file
                }
                Err(e) => {
                    place.unstage();
                    return Err(cannot(&e));
                }
            };
            let mut out = Digesting { out: BufWriter::new(file), context: Context::new(&SHA256) };
            reader.content(&mut out).map_err(|e| match e {
                // What can be read can fail to be written alone, unless it was changed meanwhile.
                ReadError::Io(e) if sealed_error(&e).is_none() => cannot(&e),
                other => failed(archive, &other),
            })?;
            let Digesting { out, context } = out;
            let file = out.into_inner().map_err(|e| cannot(e.error()))?;
            file.sync_all().map_err(|e| cannot(&e))?;
            let digest = Digesting { out: (), context }.finish();
            if length != part.octets || digest != part.sha256 {
                return Err(format!(
                    "{} is damaged: {name} is not what its manifest says; use another backup",
                    archive.display()
                ));
            }
        }
        match places.is_empty() {
            false => Err(failed(archive, &ReadError::Short)),
            true => Ok(()),
        }
    }

    /// Opens the staged store with its key, which brings its layout to this version's.
    fn check(&self, manifest: &Manifest, place: &config::StoreConfig) -> Result<(), String> {
        let Some(staged) = self.staged.get(SUBSCRIBERS) else { return Err(self.failed(&ReadError::Foreign)) };
        let key = match self.staged.get(SUBSCRIBERS_KEY) {
            Some(key) => key.place.staged_path(),
            None => place.key_in_force(),
        };
        if !key.exists() {
            return Err(format!(
                "{} was made without the key file, and there is none at {}: put the key file of that store there first",
                self.archive.display(),
                key.display()
            ));
        }
        let path = staged.place.staged_path();
        let beside = config::StoreConfig { path: path.clone(), key_file: key, ..place.clone() };
        let opened = subscribers::open_with(&beside.path, &beside.key_file)?;
        opened.verify().map_err(|e| e.to_string())?;
        let count = opened.count().map_err(|e| e.to_string())?;
        drop(opened);
        release(&path).map_err(|e| e.to_string())?;
        if count != manifest.subscribers {
            return Err(format!(
                "{} is damaged: it has {count} subscribers and says {}",
                self.archive.display(),
                manifest.subscribers
            ));
        }
        self.check_charging()
    }

    /// The staged accounts are balanced.
    fn check_charging(&self) -> Result<(), String> {
        let Some(staged) = self.staged.get(CHARGING) else { return Ok(()) };
        let path = staged.place.staged_path();
        let policy = config::default().chf.policy;
        let accounts = ChargingFunction::open(&path, policy).map_err(|e| e.to_string())?;
        let verified = accounts.verify().map_err(|e| e.to_string())?;
        verified.map_err(|e| format!("{} is damaged: {e}", self.archive.display()))?;
        drop(accounts);
        ChargingFunction::release(&path).map_err(|e| e.to_string())
    }

    /// No process may use the store that is replaced; a damaged one may be replaced.
    fn release(&self, store: &Path) -> Result<(), String> {
        match if store.exists() { release(store) } else { Ok(()) } {
            Ok(()) | Err(StoreError::Corrupt { .. }) => Ok(()),
            Err(StoreError::Locked { .. }) => Err(format!(
                "the store {} is in use: stop the core (`systemctl stop whimbrel`), and try again",
                store.display()
            )),
            Err(e) => Err(e.to_string()),
        }?;
        let charging = self.staged.get(CHARGING).map(|staged| &staged.place.path);
        match charging.filter(|path| path.exists()).map(|path| ChargingFunction::release(path)) {
            None | Some(Ok(()) | Err(ChargingError::Corrupt(_))) => Ok(()),
            Some(Err(e)) => Err(e.to_string()),
        }
    }

    /// Puts the files in their places. Returns the former ones that were set aside.
    fn exchange(&self, store: &Path) -> Result<Vec<PathBuf>, String> {
        let Some(database) = self.staged.get(SUBSCRIBERS) else {
            return Err(self.failed(&ReadError::Foreign));
        };
        let cannot = |e: &io::Error| cannot_write(store, e);
        let beside = |path: PathBuf| database.place.beside(path).map_err(|e| cannot(&e));
        let journal = beside(suffixed(store, ".restore"))?;
        // What SQLite keeps beside a store must not be applied to another one; and UEs that were registered with the former
        // subscribers have to register again.
        let mut leftovers = Vec::new();
        for path in [suffixed(store, "-wal"), suffixed(store, "-shm"), stored_ues::path_of(store)] {
            leftovers.push(beside(path)?);
        }
        if let Some(Staged { place, .. }) = self.staged.get(CHARGING) {
            for end in ["-wal", "-shm"] {
                leftovers.push(place.beside(suffixed(&place.path, end)).map_err(|e| cannot(&e))?);
            }
        }
        leftovers.retain(Place::exists);
        let mut moves: Vec<_> = leftovers
            .iter()
            .map(|place| (Entry { target: place.path.clone(), had: true, staged: None }, place, None))
            .collect();
        moves.extend(self.staged.values().map(|s| {
            let (target, staged) = (s.place.path.clone(), Some(s.place.staged_path()));
            (Entry { target, had: s.place.exists(), staged }, &s.place, Some(&s.file))
        }));
        let entries: Vec<_> = moves.iter().map(|(entry, ..)| entry).collect();
        let exchanged = || -> io::Result<()> {
            for (_, place, file) in &moves {
                if let Some(file) = file
                    && !place.is_staged(file)?
                {
                    let path = place.staged_path();
                    return Err(io::Error::other(format!("{} was exchanged meanwhile", path.display())));
                }
            }
            journal.write_new(&serde_json::to_vec(&entries)?)?;
            for (entry, place, file) in &moves {
                if entry.had {
                    place.set_aside()?;
                }
                if file.is_some() {
                    place.put_in_place()?;
                }
            }
            journal.remove()
        };
        if let Err(e) = exchanged() {
            undo_interrupted(&journal.path)?;
            return Err(cannot(&e));
        }
        Ok(entries.iter().filter(|e| e.had).map(|e| suffixed(&e.target, FORMER)).collect())
    }
}

/// One file of an exchange.
#[derive(Serialize, Deserialize)]
struct Entry {
    target: PathBuf,
    /// Whether there was one before.
    had: bool,
    staged: Option<PathBuf>,
}

/// The journal of an exchange that did not end. It says which files are moved and removed, so it has to be ours or root's: the store's
/// folder may belong to a user with fewer rights.
fn journal_text(journal: &Path) -> Result<Option<Vec<u8>>, String> {
    let cannot = |e: io::Error| format!("{} cannot be read: {e}", journal.display());
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let opened = fs::OpenOptions::new().read(true).custom_flags(flags).open(journal);
    let file = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
    };
    let found = file.metadata().map_err(cannot)?;
    let own = rustix::process::geteuid().as_raw();
    if !found.is_file() || (found.uid() != own && found.uid() != 0) {
        return Err(format!(
            "{} was not written by a restore of yours, so it is not followed: look at it, remove it, and restore again",
            journal.display()
        ));
    }
    let mut text = Vec::new();
    file.take(MANIFEST_OCTETS_MAX).read_to_end(&mut text).map_err(cannot)?;
    Ok(Some(text))
}

/// Puts back what an exchange that did not end has moved.
fn undo_interrupted(journal: &Path) -> Result<(), String> {
    let Some(text) = journal_text(journal)? else { return Ok(()) };
    // A journal that was not written whole: nothing had been moved yet.
    let entries: Vec<Entry> = serde_json::from_slice(&text).unwrap_or_default();
    for entry in entries.iter().rev() {
        let former = suffixed(&entry.target, FORMER);
        let is_staged = entry.staged.as_ref().is_some_and(|s| s.exists());
        // A former file of an earlier restore is no sign that this one moved anything.
        let was_moved = if entry.staged.is_some() && !is_staged { true } else { !entry.target.exists() };
        let cannot = |e: io::Error| format!("{} cannot be put back: {e}", entry.target.display());
        match entry.had {
            true if was_moved && former.exists() => fs::rename(&former, &entry.target).map_err(cannot)?,
            false if !is_staged && entry.target.exists() => fs::remove_file(&entry.target).map_err(cannot)?,
            _ => {}
        }
        if let Some(staged) = &entry.staged {
            let _ = fs::remove_file(staged);
        }
    }
    fs::remove_file(journal).map_err(|e| cannot_write(journal, &e))
}
