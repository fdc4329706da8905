//! Documents that are written from this crate (`cargo xtask docs`).

use expect_test::expect_file;

#[test]
fn docs_states_are_written_from_the_machines() {
    expect_file!["../../../docs/states.md"].assert_eq(&domain::states::markdown());
}

#[test]
fn docs_account_types_are_written_from_the_table() {
    let page = domain::account_info::reference::markdown();
    expect_file!["../../../docs/account-types.md"].assert_eq(&page);
}
