//! What the document says about a billion payments a day follows from the results that are kept.

use std::path::Path;

use bench::cells::{self, Cell};
use bench::report::Report;

#[test]
fn the_document_is_what_the_results_lead_to() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let document = std::fs::read_to_string(docs.join("scaling.md")).expect("the document");
    let report = Report::read(&docs.join("benchmarks")).expect("results");
    let text = cells::text(Cell::measured(&report).expect("a run on PostgreSQL"));
    let expected = cells::replaced(&document, &text).expect("the marks");
    assert!(document == expected, "docs/scaling.md is stale: run cargo xtask bench cells");
}
