//! Those to whom events are delivered while deliveries are measured, in a process of their own: one
//! receiver that answers at once, and one that never answers.
//!
//! The process counts the events that the fast one has, each once, and gives its count to each
//! GET.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use testbed::receiver::{Answer, Received, Receiver};

use crate::child;
use crate::http::Client;
use crate::time::{now, pause};

/// Between two counts: what comes within it is kept in memory whole.
const COUNT_EVERY: Duration = Duration::from_millis(20);

/// Nothing new for so long means that everything has come, or that nothing will. A build with
/// debug assertions beside other tests may take a second for what it writes between two events.
const QUIET: Duration = Duration::from_secs(5);

/// Between two questions how much has come.
const POLL: Duration = Duration::from_millis(50);

/// No measurement of deliveries takes longer.
const DONE_WITHIN: Duration = Duration::from_secs(600);

/// The count so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Events, each counted once.
    pub events: u64,
    /// Requests with them: an event can come more than once.
    pub requests: u64,
    /// From the first to the last event that was new, in microseconds.
    pub micros: u64,
    /// Requests that the other receiver did not answer.
    pub hanging: u64,
}

impl Counted {
    /// Events a second.
    pub fn per_second(&self) -> f64 {
        self.events as f64 / (self.micros as f64 / 1e6)
    }
}

#[derive(Default)]
struct Count {
    seen: HashSet<String>,
    counted: Counted,
    first: Option<Instant>,
}

impl Count {
    fn add(&mut self, received: &Received) {
        self.counted.requests += 1;
        if !self.seen.insert(received.header("webhook-id").to_owned()) {
            return;
        }
        let first = *self.first.get_or_insert(received.at);
        self.counted.events += 1;
        let micros = received.at.duration_since(first).as_micros();
        self.counted.micros = u64::try_from(micros).unwrap_or(u64::MAX);
    }
}

/// The process: prints where the two receive, and runs until it is ended.
pub fn run() -> Result<u8> {
    let (fast, hanging) = (Receiver::start()?, Receiver::start()?);
    let count = Arc::new(Mutex::new(Count::default()));
    hanging.answer(Answer::status(200).held());
    fast.answer_by({
        let count = Arc::clone(&count);
        move |received| {
            let answer = Answer::status(200);
            if received.method == "POST" {
                return answer;
            }
            let counted = count.lock().unwrap_or_else(PoisonError::into_inner).counted;
            answer.body(serde_json::to_vec(&counted).expect("numbers are JSON"))
        }
    });
    println!("{} {}", fast.url("/hooks"), hanging.url("/hooks"));
    std::io::stdout().flush()?;
    loop {
        pause(COUNT_EVERY);
        let mut count = count.lock().unwrap_or_else(PoisonError::into_inner);
        for received in fast.take().iter().filter(|received| received.method == "POST") {
            count.add(received);
        }
        count.counted.hanging += hanging.take().len() as u64;
    }
}

/// The process, as its parent sees it.
pub struct Receivers {
    process: Child,
    /// The endpoint that answers at once.
    pub fast: String,
    /// The endpoint that never answers.
    pub hanging: String,
    client: Client,
}

impl Receivers {
    /// Waits until a process of receivers has said where they are.
    pub fn of(mut process: Child) -> Result<Self> {
        let output = process.stdout.take().context("its output is read here")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let (fast, hanging) = line.trim().split_once(' ').context("the receivers have ended")?;
        let (fast, hanging) = (fast.to_owned(), hanging.to_owned());
        let host = fast.strip_prefix("http://").and_then(|rest| rest.split('/').next());
        let address = host.context("an endpoint has a host")?.parse()?;
        Ok(Self { process, fast, hanging, client: Client::new(address, child::heads()) })
    }

    /// The count once nothing new comes any more.
    pub fn when_quiet(&mut self) -> Result<Counted> {
        let began = now();
        let (mut last, mut since) = (Counted::default(), now());
        loop {
            let counted: Counted = serde_json::from_value(self.client.get("/")?)?;
            if counted.events > last.events {
                (last, since) = (counted, now());
            }
            if last.events > 0 && since.elapsed() > QUIET {
                return Ok(last);
            }
            ensure!(began.elapsed() < DONE_WITHIN, "still {last:?} after {DONE_WITHIN:?}");
            pause(POLL);
        }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and need not be.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
