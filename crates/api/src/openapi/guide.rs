//! The text that the document begins with, and its sections: tags in the order in which people
//! need them. Both are Markdown as it is written, which no step may flow anew.

use serde_json::{Value, json};

/// The first steps. A test runs the commands as the server serves them.
const STEPS: &str = include_str!("../getting_started.md");

/// The outcomes of test numbers, written from the sandbox's own table.
const SANDBOX: &str = include_str!("../../../../docs/sandbox.md");

/// Where the tables of the page about the sandbox begin and end: the rest is for operators.
const TABLES: (&str, &str) = ("## Payments", "## Rows of one's own");

/// The section of events that a platform is sent. Generators make a class of a tag, and one name
/// for what a client calls and what it is sent would lose operations.
pub const EVENTS_TAG: &str = "Webhook events";

/// The sections.
const TAGS: [(&str, &str); 13] = [
    (
        "Platform",
        "The platform that the credentials belong to: its currencies with their limits, its UMA \
         domain, and where its webhooks go.",
    ),
    (
        "Customers",
        "Persons and businesses whose money moves: one at a time, or many from a CSV file. A \
         customer must be approved before it pays or is paid.",
    ),
    (
        "Internal accounts",
        "Balances that are held here: one account for each currency of each customer and of the \
         platform, with the instructions to pay in.",
    ),
    (
        "External accounts",
        "Bank accounts, mobile money and wallets elsewhere, to which money is paid out and from \
         which it is pulled.",
    ),
    (
        "Receivers",
        "Who has a UMA address, or how an external account can be paid: currencies, limits, and \
         what the other side must know about the payer.",
    ),
    (
        "Quotes",
        "A price that holds for some minutes: what is debited, what arrives, and the rate and fees \
         between. Executing it moves the money.",
    ),
    (
        "Transfers",
        "Money of one currency in and out, without a quote, and what a withdrawal to a wallet \
         costs.",
    ),
    ("Transactions", "Every payment, in and out, with its status; approving incoming ones."),
    ("Exchange rates", "What payments between the platform's currencies would cost now."),
    ("Invitations", "Links by which a customer invites a friend, who may be of another platform."),
    (
        "Webhooks",
        "Keys that verify deliveries, tests of the endpoint, what became of deliveries, and the \
         feed of all events.",
    ),
    ("Tokens", "Credentials of API clients, and what each may do."),
    (
        "Sandbox",
        "Simulated deposits, incoming payments and time, for sandbox platforms only. The tables at \
         the top say which test numbers lead to which outcome.",
    ),
];

/// Writes the text and the sections.
pub fn write(document: &mut Value) {
    document["info"]["description"] = json!(guide());
    let events = document.get("webhooks").is_some().then_some((
        EVENTS_TAG,
        "What the platform's endpoint is sent, and what its answers mean.",
    ));
    let tag =
        |(name, description): (&str, &str)| json!({ "name": name, "description": description });
    document["tags"] = TAGS.into_iter().chain(events).map(tag).collect();
}

/// The steps, and behind them the tables of the sandbox, one level below its heading.
fn guide() -> String {
    let (first, last) = TABLES;
    let start = SANDBOX.find(first).expect("a test compares the page with its table");
    let end = SANDBOX.find(last).expect("a test compares the page with its table");
    let tables = SANDBOX[start..end].replace("## ", "### ");
    format!("{}\n\n{}\n", STEPS.trim_end(), tables.trim_end())
}
