//! Takes a server away when we end without doing so.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

/// Reads the process id of the server, line by line as it changes, until its input ends: that is
/// when we are gone, however that came. Then it stops the server, which may be frozen, and removes
/// the folder. A server that is no child of ours any more may stay a zombie for ever, so it is not
/// waited for without a limit.
const SCRIPT: &str = r#"
    server=
    while read -r line; do server=$line; done
    if [ -n "$server" ]; then
        kill -s QUIT "$server"
        kill -s CONT "$server"
        looks=0
        while kill -s 0 "$server" && [ "$looks" -lt 100 ]; do
            sleep 0.1
            looks=$((looks + 1))
        done
    fi
    rm -rf "$1"
"#;

/// A process that outlives us by a moment.
#[derive(Debug)]
pub struct Keeper {
    process: Child,
}

impl Keeper {
    /// A keeper of the server whose data are in `folder`. It is in a process group of its own: what
    /// interrupts or kills ours does not reach it.
    ///
    /// # Errors
    ///
    /// If no shell can be started.
    pub fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "keeper"]).arg(folder).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context("starting a shell to look after the server")?;
        Ok(Self { process })
    }

    /// Says which process the server is now, if any.
    ///
    /// # Errors
    ///
    /// If the keeper is gone.
    pub fn tell(&mut self, server: Option<u32>) -> Result<()> {
        let line = server.map(|server| server.to_string()).unwrap_or_default();
        let input = self.process.stdin.as_mut().context("the input was piped at the start")?;
        writeln!(input, "{line}").context("telling the keeper of the server")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Waiting closes its input first.
        let _ = self.process.wait();
    }
}
