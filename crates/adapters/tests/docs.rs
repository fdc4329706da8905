//! The document of the sandbox, written from its tables (`cargo xtask docs`).

use expect_test::expect_file;

#[test]
fn docs_sandbox_is_written_from_its_tables() {
    let page = adapters::rails::sandbox::markdown() + &adapters::uma::sandbox::markdown();
    expect_file!["../../../docs/sandbox.md"].assert_eq(&page);
}
