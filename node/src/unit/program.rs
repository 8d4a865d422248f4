//! The programs that the manager runs: the one that it runs itself, and those that an operator names. A program is opened once, checked, and from then on
//! run by its descriptor, so that what was checked is what runs, whatever becomes of its name.
//!
//! The functions of a unit parse what others send, so the manager takes no program that their user could have written: docs/security.md.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ring::signature::{ED25519, UnparsedPublicKey};
use rustix::fs::OFlags;
use tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Octets of a program at most: one with all debugging information has a third of it.
const PROGRAM_OCTETS_MAX: u64 = 1 << 30;
/// Octets of an Ed25519 signature (RFC 8032 §5.1.6), and of a file with a public key in PEM.
const SIGNATURE_OCTETS: usize = 64;
const KEY_FILE_OCTETS_MAX: u64 = 4096;
/// DER octets before the 32 octets of an Ed25519 public key in its SubjectPublicKeyInfo (RFC 8410 §4).
const KEY_HEADER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The owner of files whose owner a user namespace does not know (proc(5), overflowuid).
const UNKNOWN_OWNER: u32 = 65534;
/// Modes: the group, or everybody, may write; in a sticky folder only a file's owner may replace it.
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A program that may be run.
#[derive(Clone, Debug)]
pub(super) struct Program {
    path: PathBuf,
    file: Arc<OwnedFd>,
}

/// Rules for programs that the manager may run beside its own.
#[derive(Clone, Debug)]
pub(super) struct ProgramRules {
    /// Owner of the program that runs.
    owner: u32,
    /// The user that runs it.
    user: u32,
    /// Device and inode of the program that runs.
    own: (u64, u64),
    /// The key by which others are signed, if they have to be.
    key: Option<PathBuf>,
}

impl ProgramRules {
    /// Rules of this process. `key`: the file of the public key by which programs have to be signed. Errors:
    /// one sentence.
    pub(super) fn new(key: Option<&Path>) -> Result<Self, String> {
        let found =
            fs::metadata("/proc/self/exe").map_err(|e| format!("this program cannot be found: {e}"))?;
        let user = rustix::process::geteuid().as_raw();
        let own = (found.dev(), found.ino());
        let rules = Self { owner: found.uid(), user, own, key: key.map(Path::to_path_buf) };
        // A key that cannot be read would otherwise show when it is needed.
        rules.key.as_ref().map(|file| rules.public_key(file)).transpose()?;
        Ok(rules)
    }

    /// True for root, and for the owner of the running program unless the unit's functions run as that user.
    fn is_trusted(&self, owner: u32) -> bool {
        owner == 0 || owner == self.owner && owner != self.user
    }

    /// Reason why a user that may not choose the programs could change a file or folder; `None` if no
    /// such user could.
    fn change_of(&self, found: &Metadata) -> Option<String> {
        let writable = found.mode() & GROUP_OR_OTHERS_WRITE != 0;
        if writable && !(found.is_dir() && found.mode() & STICKY != 0) {
            return Some(format!("its group or others may write to it (mode {:o})", found.mode() & 0o7777));
        }
        // In a user namespace, folders of the host have no known owner.
        let is_unknown = found.is_dir() && found.uid() == UNKNOWN_OWNER;
        (!self.is_trusted(found.uid()) && !is_unknown).then(|| {
            format!(
                "user {} owns it, which is neither root nor the owner of the program that runs, or is the user of the unit's functions",
                found.uid()
            )
        })
    }

    /// The same for a file and all folders above it.
    fn change_on_the_way(&self, path: &Path, found: &Metadata) -> Result<(), String> {
        let refused = |path: &Path, why: String| {
            Err(format!("{}: {why}; write `chown root` and `chmod go-w`", path.display()))
        };
        if let Some(why) = self.change_of(found) {
            return refused(path, why);
        }
        for folder in path.ancestors().skip(1) {
            let found = fs::metadata(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            if let Some(why) = self.change_of(&found) {
                return refused(folder, why);
            }
        }
        Ok(())
    }

    /// The key in a file. Errors: one sentence.
    fn public_key(&self, path: &Path) -> Result<[u8; 32], String> {
        let wrong = |what: String| format!("unit.upgrade_key: {}: {what}", path.display());
        let path = &path.canonicalize().map_err(|e| wrong(e.to_string()))?;
        let (file, found) = open_regular(path, KEY_FILE_OCTETS_MAX).map_err(wrong)?;
        self.change_on_the_way(path, &found).map_err(|why| format!("unit.upgrade_key: {why}"))?;
        let mut text = String::new();
        file.take(KEY_FILE_OCTETS_MAX).read_to_string(&mut text).map_err(|e| wrong(e.to_string()))?;
        key_of(&text).ok_or_else(|| {
            wrong("it has no Ed25519 public key in PEM; write one with `openssl pkey -in KEY -pubout`".into())
        })
    }

    /// Checks the detached signature of a program. Errors: one sentence.
    fn check_signature(&self, path: &Path, program: &File, octets: u64) -> Result<(), String> {
        let Some(key) = &self.key else { return Ok(()) };
        let key = self.public_key(key)?;
        let mut beside = path.as_os_str().to_owned();
        beside.push(".sig");
        let beside = PathBuf::from(beside);
        let wrong = |what: &dyn std::fmt::Display| {
            format!(
                "{} is not run: unit.upgrade_key asks for its signature, and {}: {what}; write it with `openssl pkeyutl -sign -rawin -inkey KEY \
                 -in PROGRAM -out PROGRAM.sig`",
                path.display(),
                beside.display()
            )
        };
        let (file, _) = open_regular(&beside, KEY_FILE_OCTETS_MAX).map_err(|e| wrong(&e))?;
        let mut signature = Vec::new();
        file.take(KEY_FILE_OCTETS_MAX).read_to_end(&mut signature).map_err(|e| wrong(&e))?;
        if signature.len() != SIGNATURE_OCTETS {
            return Err(wrong(&format!("it has {} octets, not {SIGNATURE_OCTETS}", signature.len())));
        }
        let mut message = vec![0; usize::try_from(octets).unwrap_or(0)];
        program.read_exact_at(&mut message, 0).map_err(|e| wrong(&e))?;
        let verified = UnparsedPublicKey::new(&ED25519, key).verify(&message, &signature);
        verified.map_err(|_| wrong(&"it is of another program, or of another key"))
    }
}

impl Program {
    /// The program that this process runs. Errors: one sentence.
    pub(super) fn own() -> Result<Self, String> {
        let cannot = |e: io::Error| format!("this program cannot be found: {e}");
        let path = std::env::current_exe().map_err(cannot)?;
        // To run it, not to read it: its owner may not permit that.
        let flags = OFlags::PATH.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open("/proc/self/exe").map_err(cannot)?;
        Ok(Self { path, file: Arc::new(file.into()) })
    }

    /// Opens a program that an operator has named, or an earlier manager has run. Errors: one sentence that says why it is not run.
    pub(super) fn open(path: &Path, rules: &ProgramRules) -> Result<Self, String> {
        let not_run = |why: &dyn std::fmt::Display| format!("{} is not run: {why}", path.display());
        let path = &path.canonicalize().map_err(|e| not_run(&e))?;
        let (file, found) = open_regular(path, PROGRAM_OCTETS_MAX).map_err(|e| not_run(&e))?;
        // The program that runs needs no check: no process can write to its file meanwhile.
        if (found.dev(), found.ino()) != rules.own {
            rules.change_on_the_way(path, &found).map_err(|why| not_run(&why))?;
            rules.check_signature(path, &file, found.len())?;
        }
        let mut begin = [0; 2];
        let is_script = file.read_exact_at(&mut begin, 0).is_ok() && begin == *b"#!";
        let file = OwnedFd::from(file);
        // The interpreter of a script opens the descriptor once more, so it has to outlive the start.
        let file = if is_script { rustix::io::dup(&file).map_err(|e| not_run(&e))? } else { file };
        Ok(Self { path: path.clone(), file: Arc::new(file) })
    }

    /// Its name when it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs it by its descriptor, as fexecve(3) does.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0(&self.path);
        command
    }

    /// Its code number. Errors: one sentence.
    pub(super) fn code(&self) -> Result<String, String> {
        let cannot = |e: &dyn std::fmt::Display| format!("{} is not a whimbrel: {e}", self.path.display());
        let output = self.command().arg("--version").output().map_err(|e| cannot(&e))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let code = text.trim().strip_prefix("whimbrel ").and_then(|rest| rest.split_once("(code "));
        match code.and_then(|(_, code)| code.strip_suffix(')')) {
            Some(code) if output.status.success() => Ok(code.to_owned()),
            _ => Err(cannot(&"it does not print its version")),
        }
    }
}

/// Opens a regular file of at most `octets_max` octets; neither a link nor a pipe. Errors: one sentence
/// without its name.
fn open_regular(path: &Path, octets_max: u64) -> Result<(File, Metadata), String> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(|e| e.to_string())?;
    let found = file.metadata().map_err(|e| e.to_string())?;
    if !found.is_file() {
        return Err("it is no regular file".into());
    }
    if found.len() > octets_max {
        return Err(format!("it has {} octets, more than {octets_max}", found.len()));
    }
    Ok((file, found))
}

/// The Ed25519 public key in a text in PEM.
fn key_of(text: &str) -> Option<[u8; 32]> {
    let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?;
    der.as_ref().strip_prefix(&KEY_HEADER)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    /// Rules under which the files of this test's user are another user's than that of the functions.
    fn rules(key: Option<PathBuf>) -> ProgramRules {
        let me = rustix::process::geteuid().as_raw();
        ProgramRules { owner: me, user: me.wrapping_add(1), own: (0, 0), key }
    }

    /// A folder that only its owner may write to, with a program.
    fn folder(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().canonicalize().unwrap().join("whimbrel");
        fs::write(&program, text).unwrap();
        set(&program, 0o755);
        (folder, program)
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    const VERSION: &str = "#!/bin/sh\necho 'whimbrel 1.0 (code 00000009)'\n";

    #[test]
    fn a_program_that_is_no_whimbrel_is_refused() {
        for program in ["/bin/true", "/bin/ls"] {
            let error = Program::open(Path::new(program), &rules(None)).unwrap().code().unwrap_err();
            assert!(error.contains("is not a whimbrel"), "{error}");
        }
        let error = Program::open(Path::new("/nonexistent/program"), &rules(None)).unwrap_err();
        assert!(error.starts_with("/nonexistent/program is not run"), "{error}");
    }

    #[test]
    fn a_program_that_others_could_have_written_is_refused() {
        let (folder, program) = folder(VERSION);
        assert_eq!(Program::open(&program, &rules(None)).unwrap().code().unwrap(), "00000009");
        let refused = |why: &str| {
            let error = Program::open(&program, &rules(None)).unwrap_err();
            assert!(error.contains(why) && error.contains("is not run"), "{error}");
        };
        for mode in [0o757, 0o775, 0o777] {
            set(&program, mode);
            refused("may write to it");
        }
        set(&program, 0o755);
        set(folder.path(), 0o777);
        refused("may write to it");
        set(folder.path(), 0o1777);
        Program::open(&program, &rules(None)).unwrap();
        // An owner that is neither root nor the program's owner, and one that is the user of the functions.
        let me = rustix::process::geteuid().as_raw();
        let (others, own) = (rules(None), ProgramRules { user: me, owner: me, ..rules(None) });
        let others = ProgramRules { owner: me.wrapping_add(2), ..others };
        if me != 0 {
            for rules in [others, own] {
                let error = Program::open(&program, &rules).unwrap_err();
                assert!(error.contains("owns it"), "{error}");
            }
        }
        for no_file in [folder.path(), Path::new("/dev/zero")] {
            let error = Program::open(no_file, &rules(None)).unwrap_err();
            assert!(error.contains("no regular file"), "{error}");
        }
    }

    #[test]
    fn what_was_checked_is_what_runs_when_its_name_leads_elsewhere_meanwhile() {
        let (folder, program) = folder(VERSION);
        let opened = Program::open(&program, &rules(None)).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, VERSION.replace('9', "6")).unwrap();
        set(&other, 0o755);
        fs::rename(other, &program).unwrap();
        assert_eq!(opened.code().unwrap(), "00000009");
        assert_eq!(Program::open(&program, &rules(None)).unwrap().code().unwrap(), "00000006");
        fs::remove_file(&program).unwrap();
        assert_eq!(opened.code().unwrap(), "00000009");
        assert_eq!(opened.path(), program);
    }

    #[test]
    fn a_program_without_the_signature_of_the_key_is_refused() {
        let (folder, program) = folder(VERSION);
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let der = [&KEY_HEADER[..], pair.public_key().as_ref()].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        let key = folder.path().join("upgrade.pem");
        fs::write(&key, pem).unwrap();
        set(&key, 0o644);
        let signed = rules(Some(key.clone()));
        let refused = |why: &str| {
            let error = Program::open(&program, &signed).unwrap_err();
            assert!(error.contains(why) && error.contains("unit.upgrade_key"), "{error}");
        };
        refused("No such file");
        let signature = folder.path().join("whimbrel.sig");
        fs::write(&signature, "short").unwrap();
        refused("5 octets");
        fs::write(&signature, pair.sign(VERSION.as_bytes())).unwrap();
        Program::open(&program, &signed).unwrap();
        fs::write(&program, VERSION.replace('9', "8")).unwrap();
        refused("of another program");
        fs::write(
            &signature,
            Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap().sign(VERSION.as_bytes()),
        )
        .unwrap();
        fs::write(&program, VERSION).unwrap();
        refused("of another key");
        fs::write(&key, "no key").unwrap();
        refused("no Ed25519 public key");
        set(&key, 0o666);
        refused("may write to it");
    }
}
