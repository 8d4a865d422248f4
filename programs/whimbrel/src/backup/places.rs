//! Where a restore may write. It may run as root, and an archive names paths: only those are written that the operator's own configuration names, or
//! that are below a folder of the core's or one that the operator allows. Files are made and renamed relative to the descriptor of their
//! folder, below which no symbolic link is followed, so that a path keeps its meaning between its check and its use.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::suffixed;
use whimbrel_node::api_files::{accounts_file, api_key_file, certificate_file, charging_file};
use whimbrel_node::config::{self, PLACES};

/// Behind the name of a file that is not in its place yet.
pub(super) const STAGED: &str = ".restoring";
/// Behind the name of a file that was replaced.
pub(super) const FORMER: &str = ".before-restore";

/// Folders of the core, at any depth below which a backup may name files.
const CORE_FOLDERS: [&str; 2] = ["/etc/whimbrel", "/var/lib/whimbrel"];
/// Folders that several programs share: a configuration in one of them does not make other files in it the
/// core's.
const SHARED_FOLDERS: [&str; 8] =
    ["/usr/local", "/usr/local/etc", "/usr/lib", "/usr/bin", "/usr/sbin", "/var/lib", "/var/tmp", "/etc/opt"];

/// Paths that a restore may write to.
#[derive(Default)]
pub(super) struct Permitted {
    /// Paths that the operator named: the configuration, and its store with what is beside it.
    files: Vec<PathBuf>,
    /// Folders of these files, in which a backup may name files without a dot before the name, but no folders.
    own: Vec<PathBuf>,
    /// Folders at any depth below which a backup may name files.
    trees: Vec<PathBuf>,
}

impl Permitted {
    /// `configuration`: the file that the operator names or that was found. `allowed`: folders that the operator adds.
    pub(super) fn new(configuration: Option<&Path>, allowed: &[PathBuf]) -> Result<Self, String> {
        let mut permitted = Self::default();
        let places = PLACES.iter().map(Path::new);
        permitted.files.extend(places.chain(configuration).filter_map(|file| std::path::absolute(file).ok()));
        // A configuration that is damaged names no store.
        let present = configuration.filter(|file| file.exists());
        let stores =
            [config::store_of(None).ok(), present.and_then(|file| config::store_of(Some(file)).ok())];
        for store in stores.into_iter().flatten() {
            permitted.add_store(&store);
        }
        let charging = present.and_then(|file| config::charging_file_of(Some(file)).ok());
        permitted.files.extend(charging.and_then(|file| std::path::absolute(file).ok()));
        if let Some(folder) =
            configuration.and_then(|file| std::path::absolute(file).ok()?.parent().map(Path::to_path_buf))
        {
            permitted.own.push(folder);
        }
        permitted.own.retain(|folder| !is_shared(folder));
        permitted.trees.extend(CORE_FOLDERS.map(PathBuf::from));
        for folder in allowed {
            let absolute = std::path::absolute(folder).ok().filter(|_| folder.is_dir());
            permitted.trees.push(absolute.ok_or_else(|| {
                format!("{} is no folder: name one that exists with --allow", folder.display())
            })?);
        }
        Ok(permitted)
    }

    fn add_store(&mut self, store: &config::StoreConfig) {
        let path = &store.path;
        let files = [
            path.clone(),
            store.key_file.clone(),
            accounts_file(path),
            charging_file(path),
            certificate_file(path),
            api_key_file(path),
        ];
        self.files.extend(files.iter().filter_map(|file| std::path::absolute(file).ok()));
        // The default store is in the present folder, which may be any.
        if path.is_absolute() {
            self.own.extend(path.parent().map(Path::to_path_buf));
        }
    }

    /// A file's place, its folder opened. Errors: one sentence, for the archive of that name.
    pub(super) fn place(&self, path: &Path, archive: &Path) -> Result<Place, String> {
        let cannot = |e: Errno| format!("the folder of {} cannot be opened: {e}", path.display());
        let absolute =
            std::path::absolute(path).map_err(|e| format!("{} is no path: {e}", path.display()))?;
        let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(format!("{} is damaged: it names {} as a file", archive.display(), path.display()));
        };
        let is_named = self.files.contains(&absolute);
        if !is_named && absolute.components().any(|part| part == Component::ParentDir) {
            return Err(format!(
                "{} names {}, a path with `..`: it was not written by whimbrel, do not use it",
                archive.display(),
                path.display()
            ));
        }
        let tree = self.trees.iter().find_map(|tree| Some((tree, folder.strip_prefix(tree).ok()?)));
        let is_own = self.own.iter().any(|own| own == folder) && !name.as_encoded_bytes().starts_with(b".");
        let opened = match tree {
            _ if is_named => open_folder(folder).map_err(cannot)?,
            Some((tree, below)) => open_below(tree, below).map_err(|e| match e {
                Errno::LOOP | Errno::NOTDIR => format!(
                    "{} names {}, and {} has a symbolic link on the way there: allow the folder that it leads to with --allow",
                    archive.display(),
                    path.display(),
                    tree.display()
                ),
                e => cannot(e),
            })?,
            None if is_own => open_folder(folder).map_err(cannot)?,
            None => {
                return Err(format!(
                    "{} would write {}, which is not a file of the core's: if you trust the backup, add --allow {}",
                    archive.display(),
                    path.display(),
                    folder.display()
                ));
            }
        };
        let place = Place { folder: opened, name: name.to_owned(), path: path.to_path_buf() };
        match place.kind().map_err(cannot)? {
            None | Some(FileType::RegularFile) => Ok(place),
            // The operator's own link is set aside, and not followed.
            Some(FileType::Symlink) if is_named => Ok(place),
            Some(_) => Err(format!("{} is no regular file: move it away, and restore again", path.display())),
        }
    }
}

/// True if several programs have files in the folder: `/`, the folders directly in it, and
/// [`SHARED_FOLDERS`].
fn is_shared(folder: &Path) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    real.components().count() <= 2 || SHARED_FOLDERS.iter().any(|shared| real == Path::new(shared))
}

/// Opens a folder that the operator named: his links are followed.
fn open_folder(folder: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a folder below another one. No component may be a symbolic link or lead upwards.
fn open_below(tree: &Path, below: &Path) -> rustix::io::Result<OwnedFd> {
    let mut folder = open_folder(tree)?;
    for part in below.components() {
        let Component::Normal(name) = part else { return Err(Errno::LOOP) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = openat(&folder, name, flags, Mode::empty())?;
    }
    Ok(folder)
}

/// A file's place: its folder, open, and its name in it.
pub(super) struct Place {
    folder: OwnedFd,
    name: OsString,
    /// As messages name it.
    pub(super) path: PathBuf,
}

impl Place {
    /// The place of what SQLite and the core keep beside the file.
    pub(super) fn beside(&self, path: PathBuf) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self { folder: self.folder.try_clone()?, name, path })
    }

    fn kind(&self) -> rustix::io::Result<Option<FileType>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) fn exists(&self) -> bool {
        !matches!(self.kind(), Ok(None))
    }

    fn suffixed(&self, suffix: &str) -> OsString {
        [&self.name, OsStr::new(suffix)].into_iter().collect()
    }

    /// Where the file is until all of them are checked.
    pub(super) fn staged_path(&self) -> PathBuf {
        suffixed(&self.path, STAGED)
    }

    /// Makes the file that is staged: new, no link, of the former file's owner or the folder's, and readable by its group where the folder is.
    pub(super) fn stage(&self) -> io::Result<File> {
        let name = self.suffixed(STAGED);
        let _ = unlinkat(&self.folder, &name, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, &name, flags, Mode::from_raw_mode(0o600))?);
        let folder = File::from(self.folder.try_clone()?).metadata()?;
        let (uid, gid, is_groups) = match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(former) if FileType::from_raw_mode(former.st_mode) == FileType::RegularFile => {
                (former.st_uid, former.st_gid, former.st_mode & 0o040 != 0)
            }
            // The packaged configuration's folder: root's, and the core's group reads it.
            _ => (
                folder.uid(),
                folder.gid(),
                folder.uid() == 0 && folder.gid() != 0 && folder.mode() & 0o040 != 0,
            ),
        };
        if rustix::process::geteuid().is_root() {
            fchown(&file, Some(uid), Some(gid))?;
            file.set_permissions(Permissions::from_mode(if is_groups { 0o640 } else { 0o600 }))?;
        }
        Ok(file)
    }

    /// True if the staged file has not been replaced since it was created.
    pub(super) fn is_staged(&self, made: &File) -> io::Result<bool> {
        let made = made.metadata()?;
        let found = statat(&self.folder, self.suffixed(STAGED), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((made.dev(), made.ino()) == (found.st_dev, found.st_ino))
    }

    /// Removes the staged file and what SQLite has put beside it.
    pub(super) fn unstage(&self) {
        for end in ["", "-wal", "-shm"] {
            let name = [self.suffixed(STAGED).as_os_str(), OsStr::new(end)].into_iter().collect::<OsString>();
            let _ = unlinkat(&self.folder, &name, AtFlags::empty());
        }
    }

    /// Renames the file to its former name.
    pub(super) fn set_aside(&self) -> io::Result<()> {
        Ok(renameat(&self.folder, &self.name, &self.folder, self.suffixed(FORMER))?)
    }

    /// Renames the staged file to its name, durably.
    pub(super) fn put_in_place(&self) -> io::Result<()> {
        renameat(&self.folder, self.suffixed(STAGED), &self.folder, &self.name)?;
        self.sync()
    }

    /// Writes a new file with this content, durably.
    pub(super) fn write_new(&self, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, &self.name, flags, Mode::from_raw_mode(0o600))?);
        io::Write::write_all(&mut &file, content)?;
        file.sync_all()?;
        self.sync()
    }

    /// Removes the file, durably.
    pub(super) fn remove(&self) -> io::Result<()> {
        unlinkat(&self.folder, &self.name, AtFlags::empty())?;
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.folder)?)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn refused(permitted: &Permitted, path: &Path) -> String {
        permitted.place(path, Path::new("b")).map(|_| ()).unwrap_err()
    }

    #[test]
    fn only_files_of_the_core_and_of_allowed_folders_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [etc, state, other] = ["etc", "state", "other"].map(|name| root.join(name));
        for folder in [&etc, &state, &other.join("deep")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let file = etc.join("w.yaml");
        std::fs::write(&file, format!("store: {{ path: {0}/w.db, key_file: {0}/w.key }}", state.display()))
            .unwrap();
        let permitted = Permitted::new(Some(&file), &[]).unwrap();
        for good in [
            &file,
            &etc.join("suci.key"),
            &state.join("w.db"),
            &state.join("w.db.accounts"),
            &state.join("x"),
        ] {
            assert!(permitted.place(good, Path::new("b")).is_ok(), "{}", good.display());
        }
        std::fs::create_dir(etc.join("cron.d")).unwrap();
        for bad in
            [other.join("x"), etc.join("cron.d/x"), etc.join(".profile"), "/etc/cron.d/x".into(), "/x".into()]
        {
            assert!(refused(&permitted, &bad).contains("--allow"), "{}", bad.display());
        }
        assert!(refused(&permitted, &etc.join("../other/x")).contains("`..`"));
        let allowed = Permitted::new(Some(&file), std::slice::from_ref(&other)).unwrap();
        assert!(allowed.place(&other.join("deep/x"), Path::new("b")).is_ok());
        assert!(refused(&allowed, &other.join("deep/../../x")).contains("`..`"));
        assert!(Permitted::new(Some(&file), &[root.join("none")]).is_err());
    }

    #[test]
    fn links_and_devices_are_not_followed_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let [tree, other] = ["tree", "other"].map(|name| root.join(name));
        std::fs::create_dir(&tree).unwrap();
        std::fs::create_dir(&other).unwrap();
        symlink(&other, tree.join("link")).unwrap();
        symlink(other.join("x"), tree.join("file")).unwrap();
        symlink("/dev/null", tree.join("null")).unwrap();
        std::fs::create_dir(tree.join("folder")).unwrap();
        let permitted = Permitted::new(None, std::slice::from_ref(&tree)).unwrap();
        assert!(refused(&permitted, &tree.join("link/x")).contains("symbolic link"));
        for name in ["file", "null", "folder"] {
            assert!(refused(&permitted, &tree.join(name)).contains("no regular file"), "{name}");
        }
        // A link that takes the staged file's name is replaced, not written through.
        let place = permitted.place(&tree.join("good"), Path::new("b")).unwrap();
        symlink(other.join("x"), tree.join("good.restoring")).unwrap();
        let made = place.stage().unwrap();
        assert!(!other.join("x").exists() && place.is_staged(&made).unwrap());
        // One that takes it later is found.
        std::fs::remove_file(tree.join("good.restoring")).unwrap();
        std::fs::write(tree.join("good.restoring"), "of another").unwrap();
        assert!(!place.is_staged(&made).unwrap());
    }

    #[test]
    fn a_configuration_in_a_shared_folder_does_not_open_it() {
        for shared in ["/", "/etc", "/root", "/var/lib", "/usr/local/etc"] {
            let permitted = Permitted::new(Some(&Path::new(shared).join("w.yaml")), &[]).unwrap();
            let e = refused(&permitted, &Path::new(shared).join("passwd-of-another"));
            assert!(e.contains("--allow"), "{shared}: {e}");
        }
    }
}
