//! Two institutions that pay each other: how many lookups and payments a second two servers on one
//! machine exchange over the wire, against yardsticks of the same run.
//!
//! Both are the server of all other measurements, each with a database of its own, and the machine
//! has to do the work of both. Payments are settled hash-locked, as sandbox platforms do. At the
//! end the books of both must hold, and what left one must have arrived at the other.

mod institution;
mod payments;

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use self::institution::Institution;
use self::payments::{Amounts, Payments};
use crate::child::{self, Starter};
use crate::conditions::Condition;
use crate::load::{self, Outcome, Pace, Phase};
use crate::place::Ground;
use crate::rows::Throughput;
use crate::samples::{Sample, Samples};
use crate::sessions::{AMOUNT_MINOR, DESCRIPTION, Posts, Reads};
use crate::yardsticks;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How often each load is measured.
    pub rounds: usize,
    /// Before each.
    pub warm_up: Duration,
    /// How long each is measured.
    pub duration: Duration,
    /// Clients at once. Few: each keeps requests open on two servers.
    pub clients: usize,
    /// Customers of each institution.
    pub customers: usize,
}

impl Plan {
    /// The subject of figures.
    pub const FULL: Self = Self {
        rounds: 3,
        warm_up: Duration::from_secs(2),
        duration: Duration::from_secs(10),
        clients: 16,
        customers: 200,
    };

    /// Shows whether something is far off.
    pub const QUICK: Self = Self {
        rounds: 2,
        warm_up: Duration::from_millis(500),
        duration: Duration::from_secs(2),
        ..Self::FULL
    };

    fn phase(&self) -> Phase {
        Phase {
            sessions: self.clients,
            warm_up: self.warm_up,
            duration: self.duration,
            pace: Pace::Closed,
        }
    }

    /// The plan as conditions of its figures.
    pub fn conditions(&self) -> Vec<Condition> {
        let Self { rounds, warm_up, duration, clients, customers } = self;
        let load = format!(
            "{rounds} rounds in turn, {duration:?} each after {warm_up:?}, {clients} clients, \
             {customers} customers of each institution"
        );
        vec![Condition::new("load", load)]
    }
}

/// A kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    NoopPost,
    Lookup,
    Within,
    Between,
}

impl Load {
    const ALL: [Self; 4] = [Self::NoopPost, Self::Lookup, Self::Within, Self::Between];

    fn name(self) -> &'static str {
        match self {
            Self::NoopPost => "no-op POST",
            Self::Lookup => "lookup at the other server",
            Self::Within => "payment within one server",
            Self::Between => "payment between two servers",
        }
    }
}

/// The figures.
pub struct Report(Samples<Load>);

impl Report {
    /// The figures as a table. Latency of a payment is from the answer that accepts it to its
    /// completion at the payee's institution.
    pub fn table(&self) -> String {
        let mut table = "| load | per second | p50 | p99 | ÷ no-op POST | ÷ within one server |\n\
                         |---|---:|---:|---:|---:|---:|\n"
            .to_owned();
        for load in Load::ALL {
            let figures = self.0.throughput(load, load.name());
            let Throughput { per_second, p50_millis, p99_millis, .. } = figures;
            let against = |yardstick| format!("{:.3}", self.0.ratio(load, yardstick));
            let within = match load {
                Load::Between => against(Load::Within),
                Load::NoopPost | Load::Lookup | Load::Within => String::new(),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "| {} | {per_second:.0} | {p50_millis:.2} ms | {p99_millis:.2} ms | {} | {within} |",
                load.name(),
                against(Load::NoopPost)
            );
        }
        table
    }
}

/// Starts two institutions, measures every load, and checks the books of both.
pub fn run(starter: &Starter, folder: &Path, plan: &Plan) -> Result<Report> {
    let ground = Ground::Sqlite(folder.to_owned());
    let here = Institution::start(&ground, starter, "uma-payers", plan.customers)?;
    let there = Institution::start(&ground, starter, "uma-payees", plan.customers)?;
    here.allow(&there)?;
    there.allow(&here)?;
    here.fund()?;
    let amounts = Amounts::new();
    let samples = Samples::take(plan.rounds, &Load::ALL, |load| {
        let sample = measure(load, &here, &there, &amounts, &plan.phase())?;
        println!("{:<32} {}", load.name(), sample.line());
        Ok(sample)
    })?;
    let (left, arrived) = (here.books()?.sent_to(&there.domain), there.books()?.received());
    ensure!(left == arrived, "{left} cents have left one institution, {arrived} have arrived");
    here.verify()?;
    there.verify()?;
    println!("the books of both hold: {left} cents have left one and arrived at the other");
    Ok(Report(samples))
}

fn measure(
    load: Load,
    here: &Institution,
    there: &Institution,
    amounts: &Amounts,
    phase: &Phase,
) -> Result<Sample> {
    // As in every measurement: what earlier loads left in memory is written before this one.
    nix::unistd::sync();
    let (heads, address) = (child::heads(), here.server.address());
    let outcome = match load {
        Load::NoopPost => {
            let bodies = here.customers.iter().map(|payer| {
                json!({
                    "source": { "accountId": payer.usd },
                    "destination": { "accountId": payer.usd },
                    "amount": AMOUNT_MINOR,
                    "description": DESCRIPTION,
                })
            });
            let posts = Posts::new(&heads, yardsticks::TRANSFER_OUT, bodies);
            load::run(phase, async |_| posts.open(address).await)?
        }
        Load::Lookup => {
            let pairs = here.customers.iter().zip(&there.customers);
            let paths: Vec<_> = pairs.map(|(payer, payee)| payer.lookup_path(payee)).collect();
            let reads = Reads::new(&heads, paths.iter().map(String::as_str));
            load::run(phase, async |_| reads.open(address).await)?
        }
        Load::Within => pay(here, here, amounts, phase)?,
        Load::Between => pay(here, there, amounts, phase)?,
    };
    Ok(Sample { outcome, settled_after: None, window: None })
}

/// Payments from one institution to customers of one. Counted is what the payees' institution has
/// completed, over the time that all of it took.
fn pay(here: &Institution, to: &Institution, amounts: &Amounts, phase: &Phase) -> Result<Outcome> {
    let payments = Payments::new(here, to, amounts)?;
    let address = here.server.address();
    let accepted = load::run(phase, async |_| payments.open(address).await)?;
    let settled_after = here.server.settle()? + to.server.settle()?;
    let accepting = Sample { outcome: accepted, settled_after: Some(settled_after), window: None };
    println!("{:<32} {}", "  quote + execute", accepting.line());
    let latencies = payments.latencies(&to.books()?)?;
    Outcome::counted(accepting.outcome.took + settled_after, latencies)
}
