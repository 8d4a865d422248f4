//! Why a program is not instrumented.

use std::fmt;

/// Why a whole program is refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProgramRefusal {
    NotElf(String),
    Architecture(String),
    AlreadyInstrumented,
    Static,
    WritableCode,
    NoSymbols,
    NoRelocations,
    NoSpareHeader,
    NoWritableSegment,
    OtherBuild { profile: String, program: String },
    Import { name: String, reason: &'static str },
    CopiedData(String),
    NoMain,
    ThreadVariables,
    Go,
    NoLibraryName,
    NoSamples(String),
    Encoding(String),
    Profile(String),
}

impl fmt::Display for ProgramRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf(why) => write!(f, "not an ELF program that can be read: {why}"),
            Self::Architecture(what) => write!(f, "{what}: only 64-bit x86-64 programs are instrumented"),
            Self::AlreadyInstrumented => write!(f, "this program is instrumented already"),
            Self::Static => {
                write!(f, "the program is static: the runtime cannot be loaded into it; link it dynamically")
            }
            Self::WritableCode => write!(
                f,
                "a segment is both writable and executable: code that changes itself cannot be instrumented"
            ),
            Self::NoSymbols => write!(f, "no symbols of functions: keep .symtab (do not strip the program)"),
            Self::NoRelocations => write!(
                f,
                "no relocations: link the program with --emit-relocs (gcc -Wl,-q), or not all targets of jumps are known"
            ),
            Self::NoSpareHeader => {
                write!(f, "no note segment whose program header could be used for the new code")
            }
            Self::NoWritableSegment => write!(f, "no writable segment that could hold the flag"),
            Self::OtherBuild { profile, program } => {
                write!(f, "the profile is of build {profile}, the program is build {program}")
            }
            Self::Import { name, reason } => write!(f, "the program calls {name}: {reason}"),
            Self::CopiedData(name) => write!(
                f,
                "the program has a copy of {name} of a library, which a scavenger does not share; compile it with -fPIC"
            ),
            Self::NoMain => write!(f, "no function `main`: a scavenger begins there"),
            Self::ThreadVariables => write!(
                f,
                "the program has variables of a thread (thread_local), which it would find where the primary has its own"
            ),
            Self::Go => write!(
                f,
                "a Go program: its goroutines have stacks of a few KiB, which leave no room for what a yield saves"
            ),
            Self::NoLibraryName => write!(
                f,
                "the library has no name (DT_SONAME), by which it would be loaded in place of the original: link it with -Wl,-soname,NAME"
            ),
            Self::NoSamples(why) => write!(f, "{why}"),
            Self::Encoding(why) => write!(f, "the new code cannot be encoded: {why}"),
            Self::Profile(why) => write!(f, "the profile cannot be read: {why}"),
        }
    }
}

impl std::error::Error for ProgramRefusal {}

/// Why one load, or one loop, has no yield.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SkipReason {
    RareMisses,
    OverBound,
    NotRun,
    ShortBlock(usize),
    Function(&'static str),
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RareMisses => write!(f, "its miss rate is under the threshold"),
            Self::OverBound => write!(f, "its hits would cost more than is left of the bound"),
            Self::NotRun => write!(f, "it did not run in the profile"),
            Self::ShortBlock(octets) => write!(f, "its block has {octets} octets, and a jump takes five"),
            Self::Function(why) => write!(f, "its function {why}"),
        }
    }
}
