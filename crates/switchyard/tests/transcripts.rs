//! The walk-throughs of `docs/transcripts` are run as a reader would run them, and print what the
//! pages say.
//!
//! A page is Markdown. Its blocks of `sh` are run one after the other in one shell; what a block
//! prints is the block behind it. What is different in every run is written the same in each: ids,
//! times, references, codes and the port.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::expect_file;
use regex::Regex;
use testbed::instance::{CLIENT_ID, CLIENT_SECRET, Installation, Instance};
use testbed::recorder::Api;

/// Stands between what two blocks print.
const SEPARATOR: char = '\u{1e}';

/// What a page is made of.
enum Part<'a> {
    Prose(&'a str),
    Commands(&'a str),
}

/// The parts of a page, without what its commands print.
fn parts(page: &str) -> Vec<Part<'_>> {
    let block = Regex::new(r"(?ms)^```(\w+)\n(.*?)^```\n\n?").unwrap();
    let (mut parts, mut end) = (Vec::new(), 0);
    for found in block.captures_iter(page) {
        let whole = found.get(0).unwrap();
        if whole.start() > end {
            parts.push(Part::Prose(&page[end..whole.start()]));
        }
        if &found[1] == "sh" {
            parts.push(Part::Commands(found.get(2).unwrap().as_str()));
        }
        end = whole.end();
    }
    parts.push(Part::Prose(&page[end..]));
    parts
}

/// What each block of commands prints.
fn run(folder: &Path, base: &str, blocks: &[&str]) -> Vec<String> {
    let mut script = "set -euo pipefail\n".to_owned();
    for block in blocks {
        script += block;
        script += &format!("printf '{SEPARATOR}'\n");
    }
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(folder)
        .env("SY", format!("{base}/2025-10-13"))
        .env("SY_USER", format!("{CLIENT_ID}:{CLIENT_SECRET}"))
        .env("SY_JSON", "Content-Type: application/json")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), output.stderr);
    assert!(
        output.status.success(),
        "{}: {}\nafter it had printed:\n{out}",
        output.status,
        String::from_utf8_lossy(&err)
    );
    out.split_terminator(SEPARATOR).map(str::to_owned).collect()
}

/// Writes what differs between runs the same in each.
struct Evened {
    uuid: Regex,
    others: Vec<(Regex, &'static str)>,
    seen: HashMap<String, usize>,
}

impl Evened {
    fn new(base: &str) -> Self {
        let of = |pattern: &str, text| (Regex::new(pattern).unwrap(), text);
        let port = base.rsplit(':').next().unwrap();
        let others = vec![
            of(&format!(r":{port}\b"), ":8080"),
            of(r#""code": ?"[a-z0-9]{16}""#, r#""code": "aaaaaaaaaaaaaaaa""#),
            of("/i/[a-z0-9]{16}", "/i/aaaaaaaaaaaaaaaa"),
            of(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "2025-10-13T12:00:00.000Z"),
            of(r"\bSY-[0-9A-Z]{20}\b", "SY-00000000000000000000"),
            of(r"\bSBX([IO])[0-9A-F]{16}\b", "SBX${1}0000000000000000"),
        ];
        let uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
        Self { uuid: Regex::new(uuid).unwrap(), others, seen: HashMap::new() }
    }

    /// The same id is the same number on a page.
    fn text(&mut self, printed: &str) -> String {
        let seen = &mut self.seen;
        let mut text = self
            .uuid
            .replace_all(printed, |id: &regex::Captures<'_>| {
                let next = seen.len() + 1;
                let number = *seen.entry(id[0].to_owned()).or_insert(next);
                format!("01900000-0000-7000-8000-{number:012}")
            })
            .into_owned();
        for (pattern, even) in &self.others {
            text = pattern.replace_all(&text, *even).into_owned();
        }
        text
    }
}

/// A server on a new database in `folder`.
async fn server(folder: &Path) -> Instance {
    let database = format!("sqlite://{}", folder.join("transcript.db").display());
    let server = Installation::new(env!("CARGO_BIN_EXE_switchyard"), &database).start().unwrap();
    Api::new(&[server.base()]).unwrap().ready().await.unwrap();
    server
}

/// Runs a page and compares it with itself.
async fn holds(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcripts").join(name);
    let page = std::fs::read_to_string(&path).unwrap();
    let parts = parts(&page);
    let blocks = parts.iter().filter_map(|part| match part {
        Part::Commands(commands) => Some(*commands),
        Part::Prose(_) => None,
    });
    let blocks: Vec<_> = blocks.collect();
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path()).await;
    let base = server.base();
    let printed = run(folder.path(), &base, &blocks);
    assert_eq!(printed.len(), blocks.len(), "every block ends");
    let (mut evened, mut printed) = (Evened::new(&base), printed.into_iter());
    let mut now = String::new();
    for part in &parts {
        match part {
            Part::Prose(prose) => now += prose,
            Part::Commands(commands) => {
                now += &format!("```sh\n{commands}```\n\n");
                let text = evened.text(&printed.next().unwrap());
                let text = text.trim_end();
                if !text.is_empty() {
                    let kind = if text.starts_with(['{', '[']) { "json" } else { "text" };
                    now += &format!("```{kind}\n{text}\n```\n\n");
                }
            }
        }
    }
    let now = format!("{}\n", now.trim_end());
    expect_file![path].assert_eq(&now);
}

/// The guide that the OpenAPI document begins with is run as its reader would run it: as the server
/// serves it.
#[tokio::test]
async fn the_guide_moves_money() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path()).await;
    let served = run(folder.path(), &server.base(), &["curl -sS \"${SY%/*}/openapi.json\"\n"]);
    let document: serde_json::Value = serde_json::from_str(&served[0]).unwrap();
    let guide = document["info"]["description"].as_str().unwrap();
    let parts = parts(guide);
    let blocks: Vec<_> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Commands(commands) => Some(*commands),
            Part::Prose(_) => None,
        })
        .collect();
    assert_eq!(blocks.len(), 5, "{guide}");
    let printed = run(folder.path(), &server.base(), &blocks);
    let transaction: serde_json::Value = serde_json::from_str(printed.last().unwrap()).unwrap();
    assert_eq!(transaction["status"], "COMPLETED");
    assert_eq!(transaction["sentAmount"]["amount"], 100_000);
}

/// Every page has its test.
#[test]
fn docs_have_no_transcript_that_is_not_run() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/transcripts");
    let source = include_str!("transcripts.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(source.contains(&format!("holds(\"{name}\")")), "{name} is not run");
    }
}

#[tokio::test]
async fn docs_of_a_payout() {
    holds("payout.md").await;
}

#[tokio::test]
async fn docs_of_on_demand_funding() {
    holds("on-demand-funding.md").await;
}

#[tokio::test]
async fn docs_of_receiving() {
    holds("receive.md").await;
}

#[tokio::test]
async fn docs_of_an_invitation() {
    holds("invitation.md").await;
}

#[tokio::test]
async fn docs_of_bulk_onboarding() {
    holds("bulk-onboarding.md").await;
}
