//! Fields that account types share, and those of one type that have a pattern of their own.

use crate::account_info::field::Field;
use crate::checks::Check;

pub(super) const BIC: &str = "^[A-Z]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$";
pub(super) const EVM_ADDRESS: &str = "^0x[0-9a-fA-F]{40}$";

pub(super) const PLATFORM_ACCOUNT_ID: Field =
    Field::text("platformAccountId", "The platform's own identifier for the account", "payout-42")
        .optional();
pub(super) const REFERENCE: Field = Field::text(
    "reference",
    "What the payer must put on the transfer, so that the money is recognised",
    "SYA-01A217B0A2367000B1A30CE89AD70348",
);
pub(super) const REFERENCE_IF: Field = REFERENCE.optional();

/// An account number where the country has no one pattern.
pub(super) const fn account_number(example: &'static str) -> Field {
    Field::text("accountNumber", "Account number", example)
        .pattern("^[0-9A-Za-z][0-9A-Za-z \\-]{0,33}$", 1, 34)
        .primary()
}

pub(super) const fn bank_name(example: &'static str) -> Field {
    Field::text("bankName", "Name of the bank", example)
}

pub(super) const fn swift_code(example: &'static str) -> Field {
    Field::text("swiftCode", "SWIFT code (BIC) of the bank", example).pattern(BIC, 8, 11)
}

/// The older name of `swiftCode` on accounts with an IBAN.
pub(super) const fn swift_bic(example: &'static str) -> Field {
    Field::text("swiftBic", "SWIFT code (BIC) of the bank, under its older name", example)
        .pattern(BIC, 8, 11)
        .optional()
}

pub(super) const fn iban(example: &'static str) -> Field {
    Field::text("iban", "IBAN, in capitals and without spaces", example)
        .pattern("^[A-Z]{2}[0-9]{2}[A-Za-z0-9]{11,30}$", 15, 34)
        .primary()
        .checked(Check::Iban)
}

pub(super) const fn phone(
    pattern: &'static str,
    min: u16,
    max: u16,
    example: &'static str,
) -> Field {
    Field::text(
        "phoneNumber",
        "Phone number of the mobile money account, with country code",
        example,
    )
    .pattern(pattern, min, max)
    .primary()
}

pub(super) const fn provider(example: &'static str) -> Field {
    Field::text("provider", "Mobile money provider", example)
}

pub(super) const fn countries(example: &'static str, values: &'static [&'static str]) -> Field {
    Field::text("countries", "Countries of the account, ISO 3166-1 alpha-2", example)
        .lengths(2, 2)
        .values(values)
        .list()
        .optional()
}

/// An address in a wallet's payment instructions.
pub(super) const fn address(
    pattern: &'static str,
    min: u16,
    max: u16,
    example: &'static str,
) -> Field {
    Field::text("address", "Address of the wallet", example).pattern(pattern, min, max).primary()
}

pub(super) const fn asset_type(values: &'static [&'static str]) -> Field {
    Field::text("assetType", "The asset to send", values[0]).values(values)
}

pub(super) const USD_NUMBER: Field = Field::text("accountNumber", "Account number", "12345678901")
    .pattern("^[0-9]{1,17}$", 1, 17)
    .primary();
pub(super) const USD_ROUTING: Field =
    Field::text("routingNumber", "ABA routing number", "021000021")
        .pattern("^[0-9]{9}$", 9, 9)
        .part()
        .checked(Check::AbaRouting);
pub(super) const PIX_KEY: Field =
    Field::text("pixKey", "PIX key", "11144477735").lengths(1, 77).primary().checked(Check::PixKey);
pub(super) const PIX_KEY_TYPE: Field =
    Field::text("pixKeyType", "Kind of PIX key: CPF, CNPJ, EMAIL, PHONE or RANDOM", "CPF")
        .lengths(1, 32);
pub(super) const BRL_TAX_ID: Field =
    Field::text("taxId", "CPF or CNPJ of the holder, without punctuation", "11144477735")
        .pattern("^([0-9]{11}|[0-9A-Z]{12}[0-9]{2})$", 11, 14)
        .checked(Check::BrazilianTaxNumber);
pub(super) const CLABE: Field = Field::text("clabeNumber", "CLABE", "032180000118359719")
    .pattern("^[0-9]{18}$", 18, 18)
    .primary()
    .checked(Check::Clabe);
pub(super) const SORT_CODE: Field =
    Field::text("sortCode", "Sort code, with or without hyphens", "20-00-00")
        .pattern("^[0-9]{2}-?[0-9]{2}-?[0-9]{2}$", 6, 8)
        .part();
pub(super) const GBP_NUMBER: Field = Field::text("accountNumber", "Account number", "55779911")
    .pattern("^[0-9]{8}$", 8, 8)
    .primary();
pub(super) const VPA: Field = Field::text("vpa", "Virtual payment address", "ramesh.kumar@okbank")
    .pattern("^[a-zA-Z0-9.\\-_]+@[a-zA-Z0-9]+$", 3, 255)
    .primary();
pub(super) const NGN_NUMBER: Field =
    Field::text("accountNumber", "Account number (NUBAN)", "0123456789")
        .pattern("^[0-9]{10}$", 10, 10)
        .primary();
pub(super) const CAD_BANK: Field =
    Field::text("bankCode", "Institution number", "001").pattern("^[0-9]{3}$", 3, 3).part();
pub(super) const CAD_BRANCH: Field =
    Field::text("branchCode", "Transit number", "00012").pattern("^[0-9]{5}$", 5, 5).part();
pub(super) const CAD_NUMBER: Field = Field::text("accountNumber", "Account number", "1234567")
    .pattern("^[0-9]{7,12}$", 7, 12)
    .primary();
pub(super) const IDR_PHONE: Field = Field::text(
    "phoneNumber",
    "Phone number of the holder",
    "+628123456789",
)
.pattern("^\\+62[0-9]{9,12}$", 12, 15);
pub(super) const ZAR_NUMBER: Field = Field::text("accountNumber", "Account number", "1234567890")
    .pattern("^[0-9]{9,13}$", 9, 13)
    .primary();
pub(super) const SPARK_ADDRESS: Field = address(
    "^[sS][pP][aA][rR][kK]([rR][tT]|[tTsSlL])?1[0-9A-Za-z]{20,120}$",
    26,
    128,
    "spark1pgssy7d7vel0nh9m4326qc54e6rskpczn07dktww9rv4nu5ptvt0s9uc489gg2",
)
.checked(Check::Bech32);
pub(super) const INVOICE: Field = Field::text(
    "invoice",
    "Lightning invoice (BOLT 11)",
    "lnbc2500u1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7enxv4jsxqzpu9qrsgquk0rl77nj30yxdy8j9vdx85fkpmdla2087ne0xh8nhedh8w27kyke0lp53ut353s06fv3qfegext0eh0ymjpf39tuven09sam30g4vgpfna3rh",
)
.pattern("^[lL][nN][bBtT][0-9A-Za-z]+$", 20, 4096)
.primary();
pub(super) const SOLANA_ADDRESS: Field =
    address("^[0-9A-Za-z]{32,44}$", 32, 44, "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV")
        .case_matters()
        .checked(Check::Base58);
pub(super) const TRON_ADDRESS: Field =
    address("^T[0-9A-Za-z]{33}$", 34, 34, "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8")
        .case_matters()
        .checked(Check::Base58);
pub(super) const ETHEREUM_ADDRESS: Field =
    address(EVM_ADDRESS, 42, 42, "0x52908400098527886E0F7030069857D2E4169EE7");
