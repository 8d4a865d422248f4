//! The page of a program's command line in the documentation (`docs/reference/`).

use std::fmt::Write;

use clap::{Arg, Command};

/// Commands that exist in builds for measurements alone.
const OF_OTHER_BUILDS: [&str; 1] = ["bench"];

/// The page of a command line, which the command `written_by` prints; `more` are further sentences of its head.
pub fn page(mut command: Command, written_by: &str, more: &str) -> String {
    command.build();
    let name = command.get_name().to_owned();
    let title =
        if name == "whimbrel" { "Command reference".into() } else { format!("Command reference: {name}") };
    let mut page = format!(
        "# {title}\n\nThe program writes this page from its command line: `{written_by}`. `{name} COMMAND --help` prints the same.{}{more}\n\n\
         | command | what it does |\n| --- | --- |\n",
        if more.is_empty() { "" } else { " " }
    );
    let commands = leaves(&command, &name);
    for (line, command) in &commands {
        let anchor = line.replace(' ', "-");
        let about = about(command);
        let first = about.split(". ").next().unwrap_or_default();
        let _ = writeln!(page, "| [`{line}`](#{anchor}) | {} |", cell(first));
    }
    for (line, command) in &commands {
        write_command(&mut page, line, command);
    }
    page
}

/// The commands that do something, with the words that lead to each.
fn leaves<'c>(command: &'c Command, line: &str) -> Vec<(String, &'c Command)> {
    let below = command.get_subcommands().filter(|c| {
        let name = c.get_name();
        !c.is_hide_set() && name != "help" && !OF_OTHER_BUILDS.contains(&name)
    });
    let below: Vec<_> = below.flat_map(|c| leaves(c, &format!("{line} {}", c.get_name()))).collect();
    let does_something = below.is_empty() || !command.is_subcommand_required_set();
    does_something.then(|| (line.to_owned(), command)).into_iter().chain(below).collect()
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn write_command(page: &mut String, line: &str, command: &Command) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## {line}\n\n{}.\n", about.trim_end_matches('.'));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let _ = write!(page, "\n```text\n{usage}\n```\n");
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|a| !a.is_hide_set() && !matches!(a.get_id().as_str(), "help" | "version"))
        .collect();
    if !arguments.is_empty() {
        page.push_str("\n| argument | meaning | default |\n| --- | --- | --- |\n");
    }
    for argument in arguments {
        let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string);
        let words: Vec<String> =
            argument.get_possible_values().iter().map(|v| format!("`{}`", v.get_name())).collect();
        let takes_value = argument.get_action().takes_values();
        let words = match words.is_empty() || !takes_value {
            true => String::new(),
            false => format!(" One of {}.", words.join(", ")),
        };
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| takes_value)
            .map(|v| format!("`{}`", v.to_string_lossy()))
            .collect();
        let meaning = cell(&(help.unwrap_or_default() + &words));
        let _ = writeln!(page, "| `{}` | {meaning} | {} |", cell(&shown(argument)), defaults.join(", "));
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = write!(page, "\n{}\n", after.to_string().trim());
    }
}

/// An argument as it is typed.
fn shown(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let values: Vec<String> = names.iter().filter(|_| takes_value).map(|name| format!("<{name}>")).collect();
    let option = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, Some(long)) => format!("--{long}"),
        (None, None) => String::new(),
    };
    [option].into_iter().chain(values).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A text within a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\n\n", " ").replace('\n', " ")
}
