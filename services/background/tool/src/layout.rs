//! What instrumented code and the runtime agree on.

/// Begins the added segment of an instrumented file, and names the version of all that is below.
pub(crate) const MAGIC: [u8; 16] = *b"whimbrelharvest1";
/// Octets of the header: the magic, then seven words of eight octets: see the positions below.
pub(crate) const HEADER_OCTETS: usize = 72;
/// Address of an octet that the runtime sets to one: without it, every yield is passed over.
pub(crate) const HEADER_FLAG: usize = 16;
/// Address of `main`; zero if it is not known.
pub(crate) const HEADER_MAIN: usize = 24;
/// One for a primary, two for a scavenger.
pub(crate) const HEADER_ROLE: usize = 32;
/// Of a scavenger's yields at loads, those that go on to the next scavenger, in a thousand.
pub(crate) const HEADER_SPECIAL: usize = 40;
/// Address and octets of the program's code, which may not be made writable.
pub(crate) const HEADER_TEXT: usize = 48;
/// Where the report begins in the file, and its octets in the next word: see [`HEADER_TEXT`] for the two words before.
pub(crate) const HEADER_REPORT: usize = 64;

pub(crate) const ROLE_PRIMARY: u64 = 1;
pub(crate) const ROLE_SCAVENGER: u64 = 2;

// A thread's context, at the base of GS.

/// One while the primary runs and has scavengers.
pub(crate) const ENABLED: i64 = 0x00;
/// The primary: stack and instruction pointer; a slot like those of scavengers.
pub(crate) const PRIMARY: i64 = 0x08;
/// The scavenger that the primary yields to: address of its slot.
pub(crate) const FIRST: i64 = 0x18;
/// The scavenger that runs: address of its slot.
pub(crate) const CURRENT: i64 = 0x20;
/// Yields of the primary so far.
pub(crate) const YIELDS: i64 = 0x28;
/// What is left of a scavenger's distance, in sixteenths of a nanosecond; a signed word of four octets.
pub(crate) const BUDGET: i64 = 0x30;

// A slot.

/// Slot of the stack pointer.
pub(crate) const SLOT_STACK: i64 = 0;
/// Slot of the instruction pointer.
pub(crate) const SLOT_INSTRUCTION: i64 = 8;
/// Where yields that stand too close together go on: address of the next slot, or of the primary.
pub(crate) const SLOT_NEXT: i64 = 16;
