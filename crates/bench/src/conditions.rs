//! Machine, build and settings of a run. Figures without it say nothing.

use std::fs::OpenOptions;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use adapters::clock::SystemClock;
use anyhow::{Context as _, Result};
use ports::clock::Clock as _;
use serde::{Deserialize, Serialize};

use crate::time::now;

/// One fact about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its subject.
    pub name: String,
    /// The value.
    pub value: String,
}

impl Condition {
    /// A fact.
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// Bytes of one write of the disk's measurement: a page of most databases.
const SYNC_BYTES: usize = 4_096;

/// Writes until the same bytes are written again, as a log that is used again is.
const SYNC_PLACES: u32 = 64;

/// How long the disk is measured.
const SYNC_TIME: Duration = Duration::from_millis(500);

/// The conditions of this machine and this build. The disk is measured in `folder`.
pub fn of_machine(folder: &Path) -> Result<Vec<Condition>> {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
        value.unwrap_or("unknown").to_owned()
    };
    let cores = std::thread::available_parallelism()?;
    let processor = field(&file("/proc/cpuinfo"), "model name");
    let memory = field(&file("/proc/meminfo"), "MemTotal");
    let kernel = file("/proc/sys/kernel/osrelease").trim().to_owned();
    Ok(vec![
        Condition::new("date", SystemClock.now().to_string()),
        Condition::new("switchyard", format!("{}, {}", env!("CARGO_PKG_VERSION"), commit())),
        Condition::new("compiler", first_line("rustc", &["--version"])),
        Condition::new("processor", format!("{cores} cores, {processor}")),
        Condition::new("memory", memory),
        Condition::new("kernel", format!("{} {kernel}", std::env::consts::OS)),
        Condition::new("file system", file_system(folder)?),
        Condition::new("disk", sync_speed(folder)?),
    ])
}

/// The commit that was built, and whether anything was changed since.
fn commit() -> String {
    let commit = first_line("git", &["rev-parse", "--short=12", "HEAD"]);
    let changes = Command::new("git").args(["status", "--porcelain"]).output();
    let is_clean = changes.is_ok_and(|output| output.stdout.is_empty());
    if is_clean { commit } else { format!("{commit} with changes") }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let output = output.filter(|output| output.status.success()).map(|output| output.stdout);
    let text = output.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

/// The type of the file system that a folder is on. One in memory syncs for free, and its figures
/// belong to no process.
fn file_system(folder: &Path) -> Result<String> {
    let folder = folder.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        folder.starts_with(place).then_some((place.len(), kind))
    });
    Ok(mounted.max().map_or("unknown", |(_, kind)| kind).to_owned())
}

/// The mean time in which so many bytes are written over older ones and made durable.
pub fn sync_time(folder: &Path, bytes: usize) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(folder)?;
    let bytes = vec![1; bytes];
    for _ in 0..SYNC_PLACES {
        file.write_all(&bytes)?;
    }
    file.sync_all()?;
    let (mut times, began) = (0, now());
    while began.elapsed() < SYNC_TIME {
        if times % SYNC_PLACES == 0 {
            file.rewind()?;
        }
        file.write_all(&bytes)?;
        file.sync_data()?;
        times += 1;
    }
    Ok(began.elapsed() / times)
}

/// How often a second 4 kB can be appended and made durable.
fn sync_speed(folder: &Path) -> Result<String> {
    let path = folder.join("sync-speed");
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let mut file = file.with_context(|| format!("writing {}", path.display()))?;
    let mut times = Vec::new();
    let began = now();
    while began.elapsed() < SYNC_TIME {
        let one = now();
        file.write_all(&[0; SYNC_BYTES])?;
        file.sync_data()?;
        times.push(one.elapsed());
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).context("nothing was synced in time")?;
    let millis = median.as_secs_f64() * 1_000.0;
    Ok(format!("{per_second:.0} appends of 4 kB with fdatasync a second, median {millis:.2} ms"))
}
