//! The check that commands in documents exist: a document shows commands of all programs, and each program knows its own.

use std::fs;
use std::path::Path;

use clap::Command;

/// Folders whose documents show commands.
const FOLDERS: [&str; 13] = [
    "",
    "docs",
    "docs/design",
    "docs/ran",
    "docs/reference",
    "node",
    "api",
    "programs/whimbrel",
    "programs/broker",
    "programs/lab",
    "programs/bench",
    "tests/interop",
    "tests/live",
];

/// Each command line of `command`'s program that the documents of this repository show: its place, the line, and why no such command exists,
/// if it does not.
pub fn commands(command: &Command) -> Vec<(String, Result<(), String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut command) = (Vec::new(), command.clone());
    command.build();
    for folder in FOLDERS {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            if !name.ends_with(".md") || name == "CHANGELOG.md" {
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for line in commands_in(&text, command.get_name()) {
                let place = format!("{folder}/{name}: `{} {line}`", command.get_name());
                found.push((place, exists(&command, &line)));
            }
        }
    }
    found
}

/// The words behind the program's name at the beginning of a line of code, of a word in back ticks, or of what follows a `;`.
fn commands_in(text: &str, program: &str) -> Vec<String> {
    let mut commands = Vec::new();
    for (i, part) in text.split("```").enumerate() {
        let pieces: Vec<&str> = if i % 2 == 1 {
            part.lines().flat_map(|line| line.split("; ")).collect()
        } else {
            part.split('`').skip(1).step_by(2).collect()
        };
        let own =
            pieces.into_iter().filter_map(|piece| piece.trim().strip_prefix(program)?.strip_prefix(' '));
        commands.extend(
            own.map(|c| c.split([';', '&', '|', '#', '>']).next().unwrap_or_default().trim().to_owned()),
        );
    }
    commands
}

/// Follows the words through the commands, and finds each option at the command that it stands behind. A hidden command is none.
fn exists(mut command: &Command, line: &str) -> Result<(), String> {
    for word in line.split_whitespace() {
        if let Some(long) = word.strip_prefix("--") {
            let long = long.split('=').next().unwrap_or_default();
            let known = command.get_arguments().any(|a| a.get_long() == Some(long));
            if !long.is_empty() && !known {
                return Err(format!("`{}` has no option --{long}", command.get_name()));
            }
            if long.is_empty() {
                return Ok(());
            }
        } else if let Some(below) = command.find_subcommand(word).filter(|c| !c.is_hide_set()) {
            command = below;
        } else if command.has_subcommands() && word.chars().all(|c| c.is_ascii_lowercase()) {
            return Err(format!("`{}` has no command {word}", command.get_name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_one_program_are_found_in_code_and_in_back_ticks() {
        let text = "`whimbrel run` and `whimbrel-lab ran`\n```sh\nwhimbrel why x; whimbrel-lab demo # shows it\n```\n";
        assert_eq!(commands_in(text, "whimbrel"), ["run", "why x"]);
        assert_eq!(commands_in(text, "whimbrel-lab"), ["ran", "demo"]);
    }

    #[test]
    fn a_command_or_option_that_does_not_exist_is_named() {
        let below = Command::new("run").arg(clap::Arg::new("strict").long("strict"));
        let command = Command::new("whimbrel").subcommand(below).subcommand(Command::new("ran").hide(true));
        assert_eq!(exists(&command, "run --strict -c FILE"), Ok(()));
        assert_eq!(exists(&command, "run --lenient"), Err("`run` has no option --lenient".into()));
        assert_eq!(exists(&command, "ran --ues 3"), Err("`whimbrel` has no command ran".into()));
    }
}
