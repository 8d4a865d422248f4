//! Profiles from samples of loads: what `perf script` prints of Intel's PEBS or AMD's IBS.
//!
//! A line is a sample if it has a data source (`|OP LOAD|LVL …`): the word before is the kernel's `perf_mem_data_src`, and behind it stand the
//! weight and the address of the instruction. An event, with its period, and the address of the data may stand before it:
//!
//! ```text
//! chase 4711/4711 12.000102: PERF_RECORD_MMAP2 4711/4711: [0x55d0c1a00000(0x1000) @ 0x1000 fe:00 1234 0]: r-xp /tmp/chase
//! chase 4711/4711 12.000345:  1003 cpu/mem-loads,ldlat=3/P: 7f26a1b2c3c0  1a29081042 |OP LOAD|LVL RAM hit|SNP N/A|TLB L2 hit|LCK N/A|BLK  N/A  412  55d0c1a00194
//! ```

use crate::code::Code;
use crate::elf::ElfProgram;
use crate::profile::{Counts, Profile};
use crate::refusal::ProgramRefusal;

/// The command whose output is read, as refusals name it.
const COMMAND: &str =
    "perf script -F comm,pid,tid,time,event,period,ip,addr,weight,data_src --show-mmap-events";

/// Digits that an address of code has at least: linkers put no program below 0x400000, and weights have sixteen bits.
const ADDRESS_DIGITS: usize = 6;

/// An instruction where samples do not say what one takes: four of them a nanosecond, as programs that compute run them.
const INSTRUCTION_NS: f64 = 0.25;

/// Loads that are counted from this number of cycles on leave out those that hit the first cache, which takes four or five.
const LATENCY_THRESHOLD_MAX: u64 = 4;

/// A part of an object that a process has mapped to run it.
struct MappedCode {
    from: u64,
    octets: u64,
    offset: u64,
}

/// One sample of a load.
#[derive(Debug, PartialEq, Eq)]
struct LoadSample {
    instruction: u64,
    period: u64,
    is_miss: bool,
}

/// Reads samples of one object. `program` is its file, by the path that processes have mapped.
///
/// Errors: no sample is of it, or the lines do not say what is needed.
pub(crate) fn profile(
    text: &str,
    program: &mut ElfProgram,
    path: &str,
    memory_ns: f64,
) -> Result<Profile, ProgramRefusal> {
    let mut mappings: Vec<MappedCode> = Vec::new();
    let mut profile = Profile { build: program.build.clone(), memory_ns, ..Profile::default() };
    profile.instruction_ns = INSTRUCTION_NS;
    let (mut samples, mut loads, mut threshold) = (0u64, 0u64, 0);
    for (number, line) in text.lines().enumerate() {
        if let Some((_, record)) = line.split_once("PERF_RECORD_MMAP") {
            mappings.extend(mapping(record, path));
            continue;
        }
        if !line.contains("|OP ") {
            continue;
        }
        samples += 1;
        threshold = threshold.max(latency_threshold(line));
        let sample = load_sample(line).map_err(|why| {
            ProgramRefusal::NoSamples(format!("line {}: {why}; print samples with `{COMMAND}`", number + 1))
        })?;
        let Some(sample) = sample else { continue };
        loads += 1;
        if let Some(at) = linked_address(program, &mappings, sample.instruction) {
            let counts = profile.instructions.entry(at).or_default();
            counts.loads = counts.loads.saturating_add(sample.period);
            counts.misses = counts.misses.saturating_add(if sample.is_miss { sample.period } else { 0 });
            counts.runs = counts.loads;
        }
    }
    if profile.instructions.is_empty() {
        let mapped =
            if mappings.is_empty() && !program.is_fixed { "and none says where it was mapped" } else { "" };
        return Err(ProgramRefusal::NoSamples(format!(
            "of {samples} samples {loads} are of loads, but none of {path} {mapped}; print samples with `{COMMAND}`"
        )));
    }
    profile.source = format!("perf, {loads} samples of loads");
    if threshold > LATENCY_THRESHOLD_MAX {
        profile.source +=
            &format!(", none under {threshold} cycles: record with ldlat=3, or miss rates are too high");
    }
    count_blocks(program, &mut profile);
    Ok(profile)
}

/// All instructions of a block run as often as its loads: what loops take is added up from them.
fn count_blocks(program: &mut ElfProgram, profile: &mut Profile) {
    let code = Code::read(program);
    let sampled: Vec<(u64, u64)> = profile.instructions.iter().map(|(&at, c)| (at, c.runs)).collect();
    for (at, runs) in sampled {
        let Some(index) = code.index_of(at) else { continue };
        for n in &code.instructions[code.block(index)] {
            let counts: &mut Counts = profile.instructions.entry(n.ip()).or_default();
            counts.runs = counts.runs.max(runs);
        }
    }
}

/// Reads what follows `PERF_RECORD_MMAP`: `2 PID/TID: [0xADDRESS(0xOCTETS) @ 0xOFFSET …]: r-xp PATH`.
fn mapping(record: &str, path: &str) -> Option<MappedCode> {
    let (numbers, rest) = record.split_once('[')?.1.split_once("]: ")?;
    let (access, mapped) = rest.split_once(' ')?;
    if !access.contains('x') || mapped != path {
        return None;
    }
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let (from, rest) = numbers.split_once('(')?;
    let (octets, rest) = rest.split_once(')')?;
    let offset = rest.trim_start_matches([' ', '@']).split(' ').next()?;
    let offset = if offset == "0" { 0 } else { hexadecimal(offset)? };
    Some(MappedCode { from: hexadecimal(from)?, octets: hexadecimal(octets)?, offset })
}

/// The address in the file of one in a process. Without mappings, that of a program that is not moved when it is loaded.
fn linked_address(program: &ElfProgram, mappings: &[MappedCode], at: u64) -> Option<u64> {
    if mappings.is_empty() && program.is_fixed {
        return program.function_at(at).map(|_| at);
    }
    let mapping = mappings.iter().rev().find(|m| at.checked_sub(m.from).is_some_and(|by| by < m.octets))?;
    let offset = mapping.offset.checked_add(at - mapping.from)?;
    let (address, file) =
        program.code.iter().find(|(_, file)| (file.start as u64..file.end as u64).contains(&offset))?;
    Some(address + (offset - file.start as u64))
}

/// The least cycles that a sampled load took, where the event says so.
fn latency_threshold(line: &str) -> u64 {
    let digits = line.split_once("ldlat=").map_or("", |(_, rest)| rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// Reads one line. `None`: the sample is of no load. Errors: the line is cut short.
fn load_sample(line: &str) -> Result<Option<LoadSample>, &'static str> {
    let (before, after) = line.split_once("|OP ").ok_or("no data source")?;
    let mut before = before.trim_end().rsplitn(2, char::is_whitespace);
    let source = before.next().and_then(|word| u64::from_str_radix(word, 16).ok());
    let source = DataSource(source.ok_or("no number before the data source")?);
    if !source.is_load() {
        return Ok(None);
    }
    let instruction = after
        .split_whitespace()
        .filter(|word| word.len() >= ADDRESS_DIGITS)
        .find_map(|word| u64::from_str_radix(word, 16).ok())
        .ok_or("no address of the instruction behind the data source")?;
    let words: Vec<&str> = before.next().unwrap_or_default().split_whitespace().collect();
    let event = words.iter().rposition(|word| word.ends_with(':'));
    let period = event.and_then(|event| words[..event].last()?.parse().ok()).unwrap_or(1);
    Ok(Some(LoadSample { instruction, period, is_miss: source.is_miss() }))
}

/// The kernel's `perf_mem_data_src` (include/uapi/linux/perf_event.h).
struct DataSource(u64);

impl DataSource {
    /// `PERF_MEM_OP_LOAD` of `mem_op`.
    fn is_load(&self) -> bool {
        self.0 & 0x02 != 0
    }

    /// Memory, another processor's cache, or a miss of the third cache: what a yield is for. A hit on a line that is being loaded is none: the load that
    /// fetches it has waited.
    fn is_miss(&self) -> bool {
        const LEVEL_MISS: u64 = 0x04;
        const LEVEL_L3: u64 = 0x40;
        // Local and remote memory, and remote caches.
        const LEVEL_FAR: u64 = 0x0f80;
        let level = self.0 >> 5 & 0x3fff;
        let number = self.0 >> 33 & 0x0f;
        let is_remote = self.0 >> 37 & 1 != 0;
        // CXL, memory, persistent memory.
        matches!(number, 0x9 | 0xd | 0xe)
            || is_remote
            || level & LEVEL_FAR != 0
            || level & LEVEL_MISS != 0 && level & LEVEL_L3 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that others have published of `perf script`: of PEBS with the kernel's changes "perf script: Fix output type for dynamically allocated
    /// core PMU's" (2024) and "perf bpf filter: Add logical OR operator" (2023, without address), of IBS in perf's own documentation of how
    /// `perf mem report` weighs samples. The last has no sample: an event that counts no memory.
    const PEBS: &str = "chromium-browse   46572 [002] 544966.882384:      10000 \tcpu_core/MEM_UOPS_RETIRED.LOAD_LATENCY/: 7ffdf1391b0c     10268100142  |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK    N/A    5   7    0   7fad7c47425d [unknown] (/usr/lib64/libglib-2.0.so.0.8000.3)";
    const PEBS_WITHOUT_ADDRESS: &str =
        "     10668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A\t\t    47";
    const IBS: [&str; 2] = [
        "  100000    629080842 |OP LOAD|LVL L3 hit|...     20       7e69b93ca524 strcmp",
        "  100000   1a29081042 |OP LOAD|LVL RAM hit|...   180   ffffffff82429168 memcpy",
    ];

    #[test]
    fn published_lines_of_pebs_and_ibs_are_read() {
        let sample = |line| load_sample(line).expect("a sample").expect("of a load");
        let of = |instruction, period, is_miss| LoadSample { instruction, period, is_miss };
        assert_eq!(sample(PEBS), of(0x7fad_7c47_425d, 10_000, false));
        // Without an event the word before the data source may as well be an address: each sample counts as one.
        assert_eq!(sample(IBS[0]), of(0x7e69_b93c_a524, 1, false));
        assert_eq!(sample(IBS[1]), of(0xffff_ffff_8242_9168, 1, true));
        assert_eq!(
            load_sample(PEBS_WITHOUT_ADDRESS),
            Err("no address of the instruction behind the data source")
        );
    }

    /// Values of `perf_mem_data_src`: those of published lines, and those that the kernel's header composes.
    #[test]
    fn memory_and_remote_caches_are_misses_and_lines_under_way_are_not() {
        let of = |source: u64| (DataSource(source).is_load(), DataSource(source).is_miss());
        for hit in [0x102_6810_0142, 0x104_6810_0442, 0x106_6810_0842, 0x118_6810_0242, 0x6_2908_0842] {
            assert_eq!(of(hit), (true, false), "{hit:#x}");
        }
        // IBS: memory. Levels alone, as older kernels have them: local and remote memory, a remote cache, a miss of the third cache.
        for miss in [0x1a_2908_1042, 0x02 | 0x82 << 5, 0x02 | 0x102 << 5, 0x02 | 0x402 << 5, 0x02 | 0x44 << 5]
        {
            assert_eq!(of(miss), (true, true), "{miss:#x}");
        }
        assert_eq!(of(0x1e_0508_0021), (false, false), "no memory");
        assert_eq!(of(0x2_2908_0144), (false, false), "a store");
    }

    #[test]
    fn a_mapping_is_read_as_perf_prints_it() {
        // As perf 6.1 prints it.
        let line = "2 29451/29451: [0x5557b2f9c000(0x16000) @ 0x4000 fe:00 247493 0]: r-xp /usr/bin/ls";
        let mapping = |path| mapping(line, path).map(|m| (m.from, m.octets, m.offset));
        assert_eq!(mapping("/usr/bin/ls"), Some((0x5557_b2f9_c000, 0x16000, 0x4000)));
        assert_eq!(mapping("/usr/bin/cat"), None);
        assert!(
            super::mapping("2 1/1: [0x1000(0x1000) @ 0 fe:00 1 0]: rw-p /usr/bin/ls", "/usr/bin/ls")
                .is_none()
        );
        for cut in 0..line.len() {
            super::mapping(&line[..cut], "/usr/bin/ls");
        }
    }

    #[test]
    fn a_line_that_is_cut_short_is_refused() {
        for cut in 0..PEBS.len() {
            let _ = load_sample(&PEBS[..cut]);
        }
        assert!(load_sample("|OP LOAD|LVL L1 hit").is_err());
        assert!(load_sample("zz |OP LOAD|LVL L1 hit|BLK N/A 5 7fad7c47425d").is_err());
        assert_eq!(latency_threshold(PEBS), 0);
        assert_eq!(latency_threshold("1 cpu/mem-loads,ldlat=30/P: 1"), 30);
    }
}
