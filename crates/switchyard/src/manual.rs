//! `switchyard completions` and `switchyard man`: what shells and manuals need, made from the same
//! definition that the command line is read by.

use std::path::Path;

use serde_json::json;

use crate::command::{Failure, emit, print};
use crate::config::{Completions, EXIT_OK, Man, definition};

/// The name of the program.
const NAME: &str = "switchyard";

/// Everybody reads manuals.
#[cfg(unix)]
const PAGE_MODE: u32 = 0o644;

/// Prints what a shell needs to complete commands and options.
pub fn completions(options: &Completions) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut definition(), NAME, &mut script);
    let script = String::from_utf8(script)
        .map_err(|error| Failure::new(format!("the script is no text: {error}")))?;
    print(&script)?;
    emit(&json!({ "shell": options.shell.to_string(), "script": script }))?;
    Ok(EXIT_OK)
}

/// Writes a manual page for the program and one for each command.
pub fn man(options: &Man) -> Result<u8, Failure> {
    let folder = &options.folder;
    if !folder.is_dir() {
        let line = format!("there is no folder {}: make it first", folder.display());
        return Err(Failure::new(line).as_usage());
    }
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    let mut files = Vec::new();
    pages(&command, folder, &mut files)?;
    let lines: String = files.iter().map(|file| format!("{file}\n")).collect();
    print(&lines)?;
    emit(&json!({ "files": files }))?;
    Ok(EXIT_OK)
}

/// Writes the page of a command, and those of the commands below it.
fn pages(command: &clap::Command, folder: &Path, files: &mut Vec<String>) -> Result<(), Failure> {
    let manual = clap_mangen::Man::new(command.clone());
    let path = folder.join(manual.get_filename());
    let unwritable = |error: std::io::Error| {
        Failure::new(format!("{} cannot be written: {error}", path.display()))
    };
    let mut page = Vec::new();
    manual.render(&mut page).map_err(unwritable)?;
    std::fs::write(&path, page).map_err(unwritable)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(PAGE_MODE);
        std::fs::set_permissions(&path, mode).map_err(unwritable)?;
    }
    files.push(path.display().to_string());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages(below, folder, files)?;
    }
    Ok(())
}
