//! The shell completions: those from clap, and the options after `-o`, which are one text for clap.

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

use crate::cli::mount::options::{self, MountOption, Value};
use h5logfs_log::scan::LAYOUT_OPTIONS;

/// The commands that take options of layouts after `-o`.
const READING: [&str; 5] = ["inspect", "ls", "follow", "check", "settle"];

/// The commands for which `-o` names the output. They take options of layouts after `--option`, as those of [`READING`] do.
const WRITING: [&str; 3] = ["export", "compact", "report"];

/// The completions of a shell.
pub fn script(shell: Shell, command: &mut Command) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "h5logfs", &mut script);
    let script = String::from_utf8(script).context("clap's completions")?;
    match shell {
        Shell::Bash => {
            let registered = "complete -F _h5logfs ";
            let script = script.replace(registered, "complete -F _h5logfs_and_options ");
            Ok(script + &bash())
        }
        Shell::Zsh => zsh(&script),
        Shell::Fish => Ok(script + &fish()),
        _ => Ok(script),
    }
}

fn mount_options() -> Vec<MountOption> {
    options::all().collect()
}

fn layout_options() -> Vec<MountOption> {
    let options = LAYOUT_OPTIONS.iter();
    options.filter_map(|o| MountOption::named(o.name)).collect()
}

fn form(option: &MountOption) -> &'static str {
    match option.value {
        Value::Flag(_) => "",
        Value::Given { form, .. } => form,
    }
}

/// The name of an option, with `=` if a value follows.
fn start(option: &MountOption) -> String {
    let equals = if form(option).is_empty() { "" } else { "=" };
    format!("{}{equals}", option.name)
}

/// The literal values in the form of an option: `none` in `DIR|none`.
fn words(option: &MountOption) -> Vec<&'static str> {
    let alternatives = form(option).split('|');
    let is_word = |word: &&str| !word.is_empty() && !word.contains(char::is_uppercase);
    alternatives.filter(is_word).collect()
}

fn takes_path(option: &MountOption) -> bool {
    form(option).contains("DIR") || form(option).contains("PATH")
}

/// Completions for Bash, which ends words at `=` and `:`. So the word to replace may be a part of the option.
fn bash() -> String {
    let names = |options: &[MountOption]| options.iter().map(start).collect::<Vec<_>>().join(" ");
    let (all, of_layouts) = (names(&mount_options()), names(&layout_options()));
    let mut values = String::new();
    for option in mount_options() {
        let (name, words) = (option.name, words(&option).join(" "));
        let files = takes_path(&option);
        if files || !words.is_empty() {
            let action = if files { "-f " } else { "" };
            let compgen = format!("compgen {action}-W '{words}' -- \"$value\"");
            let _ = writeln!(
                values,
                "        {name}) mapfile -t COMPREPLY < <({compgen}) ;;"
            );
        }
    }
    let after_o = |commands: &[&str]| {
        let patterns: Vec<String> = commands
            .iter()
            .map(|command| format!("'{command} -o'"))
            .collect();
        patterns.join(" | ")
    };
    let (reading, writing) = (after_o(&READING), after_o(&WRITING));
    format!(
        r#"
# Completes mount options after -o and options of layouts after -o or --option; the rest is left to the function above.
_h5logfs_and_options() {{
    local line=${{COMP_LINE:0:COMP_POINT}}
    local word=${{line##*[[:blank:]]}} before names
    read -ra before <<<"${{line%"$word"}}"
    case "${{before[1]}} ${{before[${{#before[@]}}-1]}}" in
        *' --option') names='{of_layouts}' ;;
        {reading}) names='{of_layouts}' ;;
        {writing}) names= ;;
        *' -o') names='{all}' ;;
        *) names= ;;
    esac
    if [[ -z $names ]]; then
        _h5logfs "$@"
        return
    fi
    local replaced=${{COMP_WORDS[COMP_CWORD]}} last=${{word##*,}}
    COMPREPLY=()
    compopt +o default +o bashdefault 2>/dev/null
    if [[ $last != *=* ]]; then
        compopt -o nospace 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -P "${{replaced%"$last"}}" -W "$names" -- "$last")
        return
    fi
    local value=${{last##*[=:]}}
    compopt -o filenames 2>/dev/null
    case ${{last%%=*}} in
{values}    esac
}}
"#
    )
}

/// Completions for zsh, whose `_values` knows lists separated by commas.
fn zsh(script: &str) -> Result<String> {
    let functions = [
        zsh_function("_h5logfs_mount_options", &mount_options()),
        zsh_function("_h5logfs_layout_options", &layout_options()),
    ];
    let (head, body) = script
        .split_once("_h5logfs() {")
        .context("clap's completions for zsh have another form")?;
    let body = body
        .replace(":OPTIONS:_default'", ":OPTIONS:_h5logfs_mount_options'")
        .replace(
            ":OPTION=VALUE:_default'",
            ":OPTION=VALUE:_h5logfs_layout_options'",
        );
    Ok(format!("{head}{}_h5logfs() {{{body}", functions.concat()))
}

fn zsh_function(name: &str, options: &[MountOption]) -> String {
    let mut function = format!("{name}() {{\n    _values -s , option");
    for option in options {
        let words = words(option).join(" ");
        let value = match (form(option), takes_path(option)) {
            ("", _) => String::new(),
            (form, true) if words.is_empty() => format!(":{}:_files", zsh_text(form)),
            (form, true) => format!(":{}:{{ compadd {words}; _files }}", zsh_text(form)),
            (form, false) => format!(":{}:({words})", zsh_text(form)),
        };
        let _ = write!(
            function,
            " \\\n        '{}[{}]{value}'",
            option.name,
            zsh_text(option.help)
        );
    }
    function + "\n}\n\n"
}

/// Escapes a text in single quotes and brackets.
fn zsh_text(text: &str) -> String {
    let mut quoted = String::new();
    for c in text.chars() {
        match c {
            '\'' => quoted += r"'\''",
            '[' | ']' | ':' | '\\' => quoted.extend(['\\', c]),
            _ => quoted.push(c),
        }
    }
    quoted
}

fn fish() -> String {
    let (reading, writing) = (READING.join(" "), WRITING.join(" "));
    format!(
        "\n{}{}{}{}{}",
        fish_function("__h5logfs_mount_options", &mount_options()),
        fish_function("__h5logfs_layout_options", &layout_options()),
        fish_rule("mount run", "-s o", "__h5logfs_mount_options"),
        fish_rule(&reading, "-s o -l option", "__h5logfs_layout_options"),
        fish_rule(&writing, "-l option", "__h5logfs_layout_options"),
    )
}

fn fish_rule(commands: &str, option: &str, function: &str) -> String {
    format!(
        "complete -c h5logfs -n \"__fish_h5logfs_using_subcommand {commands}\" {option} -x -a \
         \"(__fish_complete_list , {function})\"\n"
    )
}

/// Prints each option, and each literal value of its form, with the help.
fn fish_function(name: &str, options: &[MountOption]) -> String {
    let mut function = format!("function {name}\n");
    for option in options {
        let start = start(option);
        let values = words(option)
            .into_iter()
            .map(|word| format!("{start}{word}"));
        for text in [start.clone()].into_iter().chain(values) {
            let help = option.help.replace('\\', r"\\").replace('\'', r"\'");
            let _ = writeln!(function, "    printf '%s\\t%s\\n' '{text}' '{help}'");
        }
    }
    function + "end\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_an_option_tells_its_values() {
        let named = |name| MountOption::named(name).unwrap();
        assert_eq!(words(&named("index_dir")), ["none"]);
        assert_eq!(words(&named("chunk")), ["auto"]);
        assert!(words(&named("threads")).is_empty() && words(&named("allow_other")).is_empty());
        assert!(takes_path(&named("log_file")) && !takes_path(&named("threads")));
        assert_eq!(start(&named("allow_other")), "allow_other");
        assert_eq!(start(&named("threads")), "threads=");
    }
}
