//! Restoring a backup: everything is written beside what is there, checked, and then put in its place; what was there stays beside it.
//!
//! A journal beside the store names the files while they are exchanged. A restore that finds one puts the former files back first, so
//! that a kill in the middle leaves no mixture.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use whimbrel_store::{LAYOUT, StoreError, release};

use super::{
    ACCOUNTS, API_CERTIFICATE, API_KEY, CONFIGURATION, Digesting, MANIFEST, Manifest, Part, SUBSCRIBERS,
    SUBSCRIBERS_KEY, VERSION, cannot_write, manifest_of, suffixed, sync_folder,
};
use crate::api::{accounts_file, api_key_file, certificate_file};
use crate::archive::{ReadError, Reader};
use crate::core::stored_ues;
use crate::{config, subscribers};

/// Behind the name of a file that is not in its place yet.
const STAGED: &str = ".restoring";
/// Behind the name of a file that was replaced.
const FORMER: &str = ".before-restore";
/// Octets of a manifest at most.
const MANIFEST_OCTETS_MAX: u64 = 1 << 20;

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
    staged: PathBuf,
    target: PathBuf,
}

/// Restores an archive to the places that the configuration names: the present one, or with `with_configuration`, or where there is
/// none, the archive's. Errors: one sentence; everything is then as it was.
pub(crate) fn restore(
    archive: &Path,
    configuration: Option<&Path>,
    with_configuration: bool,
) -> Result<Restored, String> {
    let present = configuration.map(Path::to_path_buf).or_else(config::found);
    let is_kept = !with_configuration && present.as_ref().is_some_and(|file| file.exists());
    let mut plan = Plan { archive, staged: BTreeMap::new(), journal: None };
    let done = plan.run(present, is_kept);
    if done.is_err() {
        // What SQLite has put beside a store that was opened to be checked goes with it.
        let left =
            plan.staged.values().flat_map(|s| ["", "-wal", "-shm"].map(|end| suffixed(&s.staged, end)));
        left.for_each(|file| drop(fs::remove_file(file)));
    }
    done
}

struct Plan<'a> {
    archive: &'a Path,
    /// By the name in the archive.
    staged: BTreeMap<String, Staged>,
    journal: Option<PathBuf>,
}

impl Plan<'_> {
    fn run(&mut self, present: Option<PathBuf>, is_kept: bool) -> Result<Restored, String> {
        let manifest = self.manifest()?;
        let (place, mut targets) = self.places(&manifest, present, is_kept)?;
        let store = place.path.clone();
        let journal = suffixed(&store, ".restore");
        undo_interrupted(&journal)?;
        self.journal = Some(journal);
        targets.insert(SUBSCRIBERS.into(), store.clone());
        targets.insert(SUBSCRIBERS_KEY.into(), place.key_file.clone());
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
            files: self.staged.values().map(|s| s.target.clone()).collect(),
            set_aside,
            store,
            kept_configuration: is_kept && manifest.files.iter().any(|part| part.name == CONFIGURATION),
        })
    }

    fn open(&self) -> Result<Reader<BufReader<File>>, String> {
        let opened = whimbrel_files::open(self.archive);
        opened.map(|f| Reader::new(BufReader::new(f))).map_err(|e| self.failed(&ReadError::Io(e)))
    }

    fn failed(&self, e: &ReadError) -> String {
        let file = self.archive.display();
        match e {
            ReadError::Foreign => format!("{file} is no backup of whimbrel"),
            ReadError::Short => format!("{file} was cut short: use another backup"),
            ReadError::Io(e) => format!("{file} cannot be read: {e}"),
        }
    }

    fn manifest(&self) -> Result<Manifest, String> {
        let mut reader = self.open()?;
        let first = reader.next_file().map_err(|e| self.failed(&e))?;
        let Some((_, length)) =
            first.filter(|(name, length)| name == MANIFEST && *length <= MANIFEST_OCTETS_MAX)
        else {
            return Err(self.failed(&ReadError::Foreign));
        };
        let mut text = Vec::with_capacity(length as usize);
        reader.content(&mut text).map_err(|e| self.failed(&e))?;
        let manifest = manifest_of(&mut text.as_slice()).ok_or_else(|| self.failed(&ReadError::Foreign))?;
        if manifest.version > VERSION || manifest.layout > LAYOUT {
            return Err(format!(
                "{} was written by a later version of whimbrel ({}): restore it with that version",
                self.archive.display(),
                manifest.program
            ));
        }
        Ok(manifest)
    }

    /// The store that the configuration names, and the places of the configuration and of the files that it names.
    fn places(
        &mut self,
        manifest: &Manifest,
        present: Option<PathBuf>,
        is_kept: bool,
    ) -> Result<(config::Store, BTreeMap<String, PathBuf>), String> {
        let mut targets = BTreeMap::new();
        let archived = manifest.files.iter().find(|part| part.name == CONFIGURATION);
        let Some(part) = archived.filter(|_| !is_kept) else {
            let store =
                config::store_of(present.filter(|_| is_kept).as_deref()).map_err(|e| e.to_string())?;
            return Ok((store, targets));
        };
        let place = present.unwrap_or_else(|| part.path.clone());
        targets.insert(CONFIGURATION.into(), place);
        for part in manifest.files.iter().filter(|part| part.name.starts_with("named/")) {
            targets.insert(part.name.clone(), part.path.clone());
        }
        self.stage(manifest, &targets)?;
        let staged = self.staged.get(CONFIGURATION).map(|s| s.staged.clone());
        let store = config::store_of(staged.as_deref()).map_err(|e| e.to_string())?;
        Ok((store, targets))
    }

    /// Writes files of the archive beside their places, unless they are there already, and compares them with the manifest.
    fn stage(&mut self, manifest: &Manifest, targets: &BTreeMap<String, PathBuf>) -> Result<(), String> {
        let mut reader = self.open()?;
        let mut missing: BTreeMap<&str, &Part> =
            manifest.files.iter().map(|p| (p.name.as_str(), p)).collect();
        while let Some((name, length)) = reader.next_file().map_err(|e| self.failed(&e))? {
            let (Some(target), Some(part)) = (targets.get(&name), missing.remove(name.as_str())) else {
                continue;
            };
            if self.staged.contains_key(&name) {
                continue;
            }
            let staged = suffixed(target, STAGED);
            let _ = fs::remove_file(&staged);
            let cannot = |e: &io::Error| cannot_write(&staged, e);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged);
            let out = BufWriter::new(made.map_err(|e| cannot(&e))?);
            self.staged.insert(name.clone(), Staged { staged: staged.clone(), target: target.clone() });
            let mut out = Digesting { out, context: Context::new(&SHA256) };
            reader.content(&mut out).map_err(|e| match e {
                // What can be read can fail to be written alone.
                ReadError::Io(e) => cannot(&e),
                other => self.failed(&other),
            })?;
            let Digesting { out, context } = out;
            let file = out.into_inner().map_err(|e| cannot(e.error()))?;
            file.sync_all().map_err(|e| cannot(&e))?;
            let digest = Digesting { out: (), context }.finish();
            if length != part.octets || digest != part.sha256 {
                return Err(format!(
                    "{} is damaged: {name} is not what its manifest says; use another backup",
                    self.archive.display()
                ));
            }
        }
        match missing.into_keys().find(|name| targets.contains_key(*name) && !self.staged.contains_key(*name))
        {
            Some(_) => Err(self.failed(&ReadError::Short)),
            None => Ok(()),
        }
    }

    /// Opens the staged store with its key, which brings its layout to this version's.
    fn check(&self, manifest: &Manifest, place: &config::Store) -> Result<(), String> {
        let Some(staged) = self.staged.get(SUBSCRIBERS) else { return Err(self.failed(&ReadError::Foreign)) };
        let key = self.staged.get(SUBSCRIBERS_KEY).map_or(&place.key_file, |key| &key.staged);
        if !key.exists() {
            return Err(format!(
                "{} was made without the key file, and there is none at {}: put the key file of that store there first",
                self.archive.display(),
                key.display()
            ));
        }
        let beside = config::Store { path: staged.staged.clone(), key_file: key.clone(), ..place.clone() };
        let opened = subscribers::open(&beside)?;
        opened.verify().map_err(|e| e.to_string())?;
        let count = opened.count().map_err(|e| e.to_string())?;
        drop(opened);
        release(&staged.staged).map_err(|e| e.to_string())?;
        if count != manifest.subscribers {
            return Err(format!(
                "{} is damaged: it has {count} subscribers and says {}",
                self.archive.display(),
                manifest.subscribers
            ));
        }
        Ok(())
    }

    /// No process may use the store that is replaced; a damaged one may be replaced.
    fn release(&self, store: &Path) -> Result<(), String> {
        if !store.exists() {
            return Ok(());
        }
        match release(store) {
            Ok(()) | Err(StoreError::Corrupt { .. }) => Ok(()),
            Err(StoreError::Locked { .. }) => Err(format!(
                "the store {} is in use: stop the core (`systemctl stop whimbrel`), and try again",
                store.display()
            )),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Puts the files in their places. Returns the former ones that were set aside.
    fn exchange(&self, store: &Path) -> Result<Vec<PathBuf>, String> {
        let Some(journal) = &self.journal else { return Ok(Vec::new()) };
        // What SQLite keeps beside a store must not be applied to another one; and UEs that were registered with the former
        // subscribers have to register again.
        let leftovers = [suffixed(store, "-wal"), suffixed(store, "-shm"), stored_ues::path_of(store)];
        let mut entries: Vec<Entry> = leftovers
            .into_iter()
            .filter(|file| file.exists())
            .map(|target| Entry { target, had: true, staged: None })
            .collect();
        entries.extend(self.staged.values().map(|s| Entry {
            target: s.target.clone(),
            had: s.target.exists(),
            staged: Some(s.staged.clone()),
        }));
        let exchanged = || -> io::Result<()> {
            fs::write(journal, serde_json::to_vec(&entries)?)?;
            File::open(journal)?.sync_all()?;
            sync_folder(journal)?;
            for entry in &entries {
                if entry.had {
                    fs::rename(&entry.target, suffixed(&entry.target, FORMER))?;
                }
                if let Some(staged) = &entry.staged {
                    fs::rename(staged, &entry.target)?;
                    sync_folder(&entry.target)?;
                }
            }
            fs::remove_file(journal)?;
            sync_folder(journal)
        };
        if let Err(e) = exchanged() {
            undo_interrupted(journal)?;
            return Err(cannot_write(store, &e));
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

/// Octets of a journal: a line for each file that an archive may have.
const JOURNAL_OCTETS_MAX: u64 = 64 << 20;

/// Puts back what an exchange that did not end has moved.
fn undo_interrupted(journal: &Path) -> Result<(), String> {
    let Ok(text) = whimbrel_files::read(journal, JOURNAL_OCTETS_MAX) else { return Ok(()) };
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
