//! The table of account types.

use super::field::{Field, FieldError, Rule};
use crate::checks::Check;
use crate::currency::Currency;
use crate::rail::Rail;

/// One kind of bank account or wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountType {
    /// The value of `accountType`.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Codes of the currencies it holds; the first is meant when nothing else is said.
    pub currencies: &'static [&'static str],
    /// The rails that reach it.
    pub rails: &'static [Rail],
    /// What describes it, besides `accountType`, `paymentRails` and `beneficiary`.
    pub fields: &'static [Field],
    /// Values of `cryptoNetwork` that fit; the first is the main network. Empty for bank accounts.
    pub networks: &'static [&'static str],
    /// Whether `cryptoNetwork` must be named (specification 2.8): one address is valid on several
    /// networks, and money that is sent on another one is lost.
    pub needs_network: bool,
    /// Who holds it.
    pub holder: Holder,
    /// Whether money can be pulled out of it. A wallet has to send by itself.
    pub can_pull: bool,
    /// What payment instructions of this type carry (`accountOrWalletInfo`), besides
    /// `accountType` and, for bank accounts, `paymentRails`. Empty examples are values that the
    /// server makes.
    pub instruction_fields: &'static [Field],
}

/// Who holds an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A person or business that must be named.
    Beneficiary {
        /// The fields that a person must have; a business needs its `legalName`.
        individual_needs: &'static [&'static str],
    },
    /// The holder of the keys. A beneficiary may be given and is kept.
    Wallet,
}

/// Every account type, in the order in which documents list them.
pub fn types() -> &'static [AccountType] {
    TYPES
}

/// Whether a kind of account holds a currency, so that a rail can move it. What has none can be
/// held here, and moves between accounts here.
pub fn has_rail(currency: Currency) -> bool {
    TYPES.iter().any(|kind| kind.holds(currency))
}

impl AccountType {
    /// The type with this name, which may be one of before 2026-02-23.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        let name =
            ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, current)| current);
        TYPES.iter().find(|kind| kind.name == name)
    }

    /// The `cryptoNetwork` of an account of this type, by the name that was given. The error's path
    /// is that of `cryptoNetwork`, which stands beside `accountInfo` and not in it.
    pub fn network(&self, named: Option<&str>) -> Result<Option<&'static str>, FieldError> {
        let refuse =
            |rule, message| Err(FieldError { field: "cryptoNetwork".to_owned(), rule, message });
        let (name, networks) = (self.name, self.networks.join(", "));
        let Some(named) = named else {
            let message = format!("is required for a {name}: one of {networks}");
            return if self.needs_network { refuse(Rule::Required, message) } else { Ok(None) };
        };
        match self.networks.iter().copied().find(|network| *network == named) {
            Some(network) => Ok(Some(network)),
            None if self.networks.is_empty() => {
                let message = format!("must be left out for a {name}, which is not a wallet");
                refuse(Rule::Other, message)
            }
            None => {
                let message = format!("must be one of {networks} for a {name}");
                refuse(Rule::Enum(self.networks.to_vec()), message)
            }
        }
    }

    /// A network that wallets of any type are on, by its name.
    pub fn known_network(name: &str) -> Option<&'static str> {
        TYPES.iter().flat_map(|kind| kind.networks).copied().find(|network| *network == name)
    }

    /// Whether accounts of this type are wallets on a network.
    pub fn is_on(&self, network: &str) -> bool {
        self.networks.contains(&network)
    }

    /// Whether accounts of this type hold `currency`.
    pub fn holds(&self, currency: Currency) -> bool {
        self.currencies.contains(&currency.code())
    }

    /// Whether this is a wallet and not an account at a bank or provider.
    pub fn is_wallet(&self) -> bool {
        self.holder == Holder::Wallet
    }

    /// The rails that reach any account of this type: besides those of the type, those of accounts
    /// with an IBAN outside of SEPA.
    pub fn every_rail(&self) -> Vec<Rail> {
        let elsewhere = if self.field("iban").is_some() { OUTSIDE_SEPA } else { &[] };
        self.rails.iter().chain(elsewhere).copied().collect()
    }

    pub(super) fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The rails of an account whose IBAN is of a country that SEPA does not reach.
pub(super) const OUTSIDE_SEPA: &[Rail] = &[Rail::BankTransfer];

const BIC: &str = "^[A-Z]{4}[A-Z]{2}[A-Z0-9]{2}([A-Z0-9]{3})?$";
const EVM_ADDRESS: &str = "^0x[0-9a-fA-F]{40}$";

const PLATFORM_ACCOUNT_ID: Field =
    Field::text("platformAccountId", "The platform's own identifier for the account", "payout-42")
        .optional();
const REFERENCE: Field = Field::text(
    "reference",
    "What the payer must put on the transfer, so that the money is recognised",
    "",
);

/// An account number where the country has no one pattern.
const fn account_number(example: &'static str) -> Field {
    Field::text("accountNumber", "Account number", example)
        .pattern("^[0-9A-Za-z][0-9A-Za-z \\-]{0,33}$", 1, 34)
        .primary()
}

const fn bank_name(example: &'static str) -> Field {
    Field::text("bankName", "Name of the bank", example)
}

const fn swift_code(example: &'static str) -> Field {
    Field::text("swiftCode", "SWIFT code (BIC) of the bank", example).pattern(BIC, 8, 11)
}

/// The older name of `swiftCode` on accounts with an IBAN.
const fn swift_bic(example: &'static str) -> Field {
    Field::text("swiftBic", "SWIFT code (BIC) of the bank, under its older name", example)
        .pattern(BIC, 8, 11)
        .optional()
}

const fn iban(example: &'static str) -> Field {
    Field::text("iban", "IBAN, in capitals and without spaces", example)
        .pattern("^[A-Z]{2}[0-9]{2}[A-Za-z0-9]{11,30}$", 15, 34)
        .primary()
        .checked(Check::Iban)
}

const fn phone(pattern: &'static str, min: u16, max: u16, example: &'static str) -> Field {
    Field::text(
        "phoneNumber",
        "Phone number of the mobile money account, with country code",
        example,
    )
    .pattern(pattern, min, max)
    .primary()
}

const fn provider(example: &'static str) -> Field {
    Field::text("provider", "Mobile money provider", example)
}

const fn countries(example: &'static str, values: &'static [&'static str]) -> Field {
    Field::text("countries", "Countries of the account, ISO 3166-1 alpha-2", example)
        .lengths(2, 2)
        .values(values)
        .list()
        .optional()
}

/// An address in a wallet's payment instructions.
const fn address(pattern: &'static str, min: u16, max: u16, example: &'static str) -> Field {
    Field::text("address", "Address of the wallet", example).pattern(pattern, min, max).primary()
}

const fn asset_type(values: &'static [&'static str]) -> Field {
    Field::text("assetType", "The asset to send", values[0]).values(values)
}

const USD_NUMBER: Field = Field::text("accountNumber", "Account number", "12345678901")
    .pattern("^[0-9]{1,17}$", 1, 17)
    .primary();
const USD_ROUTING: Field = Field::text("routingNumber", "ABA routing number", "021000021")
    .pattern("^[0-9]{9}$", 9, 9)
    .part()
    .checked(Check::AbaRouting);
const PIX_KEY: Field =
    Field::text("pixKey", "PIX key", "11144477735").lengths(1, 77).primary().checked(Check::PixKey);
const PIX_KEY_TYPE: Field =
    Field::text("pixKeyType", "Kind of PIX key: CPF, CNPJ, EMAIL, PHONE or RANDOM", "CPF")
        .lengths(1, 32);
const BRL_TAX_ID: Field =
    Field::text("taxId", "CPF or CNPJ of the holder, without punctuation", "11144477735")
        .pattern("^([0-9]{11}|[0-9A-Z]{12}[0-9]{2})$", 11, 14)
        .checked(Check::BrazilianTaxNumber);
const CLABE: Field = Field::text("clabeNumber", "CLABE", "032180000118359719")
    .pattern("^[0-9]{18}$", 18, 18)
    .primary()
    .checked(Check::Clabe);
const SORT_CODE: Field = Field::text("sortCode", "Sort code, with or without hyphens", "20-00-00")
    .pattern("^[0-9]{2}-?[0-9]{2}-?[0-9]{2}$", 6, 8)
    .part();
const GBP_NUMBER: Field = Field::text("accountNumber", "Account number", "55779911")
    .pattern("^[0-9]{8}$", 8, 8)
    .primary();
const VPA: Field = Field::text("vpa", "Virtual payment address", "ramesh.kumar@okbank")
    .pattern("^[a-zA-Z0-9.\\-_]+@[a-zA-Z0-9]+$", 3, 255)
    .primary();
const NGN_NUMBER: Field = Field::text("accountNumber", "Account number (NUBAN)", "0123456789")
    .pattern("^[0-9]{10}$", 10, 10)
    .primary();
const CAD_BANK: Field =
    Field::text("bankCode", "Institution number", "001").pattern("^[0-9]{3}$", 3, 3).part();
const CAD_BRANCH: Field =
    Field::text("branchCode", "Transit number", "00012").pattern("^[0-9]{5}$", 5, 5).part();
const CAD_NUMBER: Field = Field::text("accountNumber", "Account number", "1234567")
    .pattern("^[0-9]{7,12}$", 7, 12)
    .primary();
const IDR_PHONE: Field = Field::text("phoneNumber", "Phone number of the holder", "+628123456789")
    .pattern("^\\+62[0-9]{9,12}$", 12, 15);
const ZAR_NUMBER: Field = Field::text("accountNumber", "Account number", "1234567890")
    .pattern("^[0-9]{9,13}$", 9, 13)
    .primary();
const SPARK_ADDRESS: Field = address(
    "^[sS][pP][aA][rR][kK]([rR][tT]|[tTsSlL])?1[0-9A-Za-z]{20,120}$",
    26,
    128,
    "spark1pgssy7d7vel0nh9m4326qc54e6rskpczn07dktww9rv4nu5ptvt0s9uc489gg2",
)
.checked(Check::Bech32);
const INVOICE: Field = Field::text(
    "invoice",
    "Lightning invoice (BOLT 11)",
    "lnbc2500u1pvjluezsp5zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zyg3zygspp5qqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqqqsyqcyq5rqwzqfqypqdq5xysxxatsyp3k7enxv4jsxqzpu9qrsgquk0rl77nj30yxdy8j9vdx85fkpmdla2087ne0xh8nhedh8w27kyke0lp53ut353s06fv3qfegext0eh0ymjpf39tuven09sam30g4vgpfna3rh",
)
.pattern("^[lL][nN][bBtT][0-9A-Za-z]+$", 20, 4096)
.primary();
const SOLANA_ADDRESS: Field =
    address("^[0-9A-Za-z]{32,44}$", 32, 44, "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV")
        .case_matters()
        .checked(Check::Base58);
const TRON_ADDRESS: Field =
    address("^T[0-9A-Za-z]{33}$", 34, 34, "TJRabPrwbZy45sbavfcjinPJC18kjpRTv8")
        .case_matters()
        .checked(Check::Base58);
const ETHEREUM_ADDRESS: Field =
    address(EVM_ADDRESS, 42, 42, "0x52908400098527886E0F7030069857D2E4169EE7");

/// What bank accounts share.
const BANK: AccountType = AccountType {
    name: "",
    title: "",
    currencies: &[],
    rails: &[Rail::BankTransfer],
    fields: &[],
    networks: &[],
    needs_network: false,
    holder: Holder::Beneficiary { individual_needs: &["fullName"] },
    can_pull: true,
    instruction_fields: &[],
};
/// What mobile money accounts share.
const MOBILE: AccountType = AccountType { rails: &[Rail::MobileMoney], ..BANK };
/// What wallets share.
const WALLET: AccountType =
    AccountType { holder: Holder::Wallet, can_pull: false, needs_network: true, ..BANK };

static TYPES: &[AccountType] = &[
    AccountType {
        name: "USD_ACCOUNT",
        title: "United States bank account",
        currencies: &["USD"],
        rails: &[Rail::Ach, Rail::Wire, Rail::Rtp, Rail::FedNow],
        fields: &[
            USD_NUMBER,
            USD_ROUTING,
            Field::text("accountCategory", "Kind of account", "CHECKING")
                .values(&["CHECKING", "SAVINGS"])
                .optional(),
            bank_name("First Community Bank").optional(),
            PLATFORM_ACCOUNT_ID,
        ],
        holder: Holder::Beneficiary { individual_needs: &["fullName", "birthDate", "nationality"] },
        instruction_fields: &[
            USD_NUMBER,
            USD_ROUTING,
            bank_name("First Community Bank").optional(),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "BRL_ACCOUNT",
        title: "Brazilian account with a PIX key",
        currencies: &["BRL"],
        rails: &[Rail::Pix],
        fields: &[PIX_KEY, PIX_KEY_TYPE, BRL_TAX_ID, PLATFORM_ACCOUNT_ID],
        instruction_fields: &[PIX_KEY, PIX_KEY_TYPE, BRL_TAX_ID, REFERENCE.optional()],
        ..BANK
    },
    AccountType {
        name: "MXN_ACCOUNT",
        title: "Mexican bank account",
        currencies: &["MXN"],
        rails: &[Rail::Spei],
        fields: &[CLABE, PLATFORM_ACCOUNT_ID],
        instruction_fields: &[CLABE, REFERENCE],
        ..BANK
    },
    AccountType {
        name: "EUR_ACCOUNT",
        title: "Euro bank account",
        currencies: &["EUR"],
        rails: &[Rail::Sepa, Rail::SepaInstant],
        fields: &[
            iban("DE89370400440532013000"),
            swift_code("COBADEFFXXX").optional(),
            swift_bic("COBADEFFXXX"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[iban("DE89370400440532013000"), swift_bic("COBADEFFXXX"), REFERENCE],
        ..BANK
    },
    AccountType {
        name: "DKK_ACCOUNT",
        title: "Danish bank account",
        currencies: &["DKK"],
        rails: &[Rail::Sepa, Rail::SepaInstant],
        fields: &[
            iban("DK5000400440116243"),
            swift_code("DABADKKK").optional(),
            swift_bic("DABADKKK"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[iban("DK5000400440116243"), swift_bic("DABADKKK"), REFERENCE],
        ..BANK
    },
    AccountType {
        name: "GBP_ACCOUNT",
        title: "United Kingdom bank account",
        currencies: &["GBP"],
        rails: &[Rail::FasterPayments],
        fields: &[SORT_CODE, GBP_NUMBER, PLATFORM_ACCOUNT_ID],
        instruction_fields: &[SORT_CODE, GBP_NUMBER, REFERENCE],
        ..BANK
    },
    AccountType {
        name: "INR_ACCOUNT",
        title: "Indian account with a UPI address",
        currencies: &["INR"],
        rails: &[Rail::Upi],
        fields: &[VPA, PLATFORM_ACCOUNT_ID],
        instruction_fields: &[VPA],
        ..BANK
    },
    AccountType {
        name: "NGN_ACCOUNT",
        title: "Nigerian bank account",
        currencies: &["NGN"],
        fields: &[NGN_NUMBER, bank_name("First Bank of Nigeria").part(), PLATFORM_ACCOUNT_ID],
        instruction_fields: &[NGN_NUMBER, bank_name("First Bank of Nigeria"), REFERENCE],
        ..BANK
    },
    AccountType {
        name: "CAD_ACCOUNT",
        title: "Canadian bank account",
        currencies: &["CAD"],
        fields: &[CAD_BANK, CAD_BRANCH, CAD_NUMBER, PLATFORM_ACCOUNT_ID],
        instruction_fields: &[CAD_BANK, CAD_BRANCH, CAD_NUMBER, REFERENCE],
        ..BANK
    },
    AccountType {
        name: "HKD_ACCOUNT",
        title: "Hong Kong bank account",
        currencies: &["HKD"],
        fields: &[
            bank_name("Hang Seng Bank"),
            account_number("123456789012"),
            swift_code("HASEHKHH").part(),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("Hang Seng Bank"),
            account_number("123456789012"),
            swift_code("HASEHKHH"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "IDR_ACCOUNT",
        title: "Indonesian bank account",
        currencies: &["IDR"],
        fields: &[
            account_number("1234567890"),
            bank_name("Bank Central Asia"),
            swift_code("CENAIDJA").part(),
            IDR_PHONE,
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            account_number("1234567890"),
            bank_name("Bank Central Asia"),
            swift_code("CENAIDJA"),
            IDR_PHONE,
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "MYR_ACCOUNT",
        title: "Malaysian bank account",
        currencies: &["MYR"],
        fields: &[
            bank_name("Maybank"),
            account_number("114012345678"),
            swift_code("MBBEMYKL").part(),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("Maybank"),
            account_number("114012345678"),
            swift_code("MBBEMYKL"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "PHP_ACCOUNT",
        title: "Philippine bank account",
        currencies: &["PHP"],
        fields: &[
            bank_name("Bank of the Philippine Islands").part(),
            account_number("001234567890"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("Bank of the Philippine Islands"),
            account_number("001234567890"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "SGD_ACCOUNT",
        title: "Singapore bank account",
        currencies: &["SGD"],
        rails: &[Rail::PayNow, Rail::Fast, Rail::BankTransfer],
        fields: &[
            bank_name("DBS Bank"),
            swift_code("DBSSSGSG").part(),
            account_number("0012345678"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("DBS Bank"),
            swift_code("DBSSSGSG"),
            account_number("0012345678"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "THB_ACCOUNT",
        title: "Thai bank account",
        currencies: &["THB"],
        fields: &[
            bank_name("Kasikornbank"),
            account_number("1234567890"),
            swift_code("KASITHBK").part(),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("Kasikornbank"),
            account_number("1234567890"),
            swift_code("KASITHBK"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "VND_ACCOUNT",
        title: "Vietnamese bank account",
        currencies: &["VND"],
        fields: &[
            bank_name("Vietcombank"),
            account_number("0011001234567"),
            swift_code("BFTVVNVX").part(),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            bank_name("Vietcombank"),
            account_number("0011001234567"),
            swift_code("BFTVVNVX"),
            REFERENCE,
        ],
        ..BANK
    },
    AccountType {
        name: "ZAR_ACCOUNT",
        title: "South African bank account",
        currencies: &["ZAR"],
        fields: &[ZAR_NUMBER, bank_name("Standard Bank").part(), PLATFORM_ACCOUNT_ID],
        instruction_fields: &[ZAR_NUMBER, bank_name("Standard Bank"), REFERENCE],
        ..BANK
    },
    AccountType {
        name: "KES_ACCOUNT",
        title: "Kenyan mobile money account",
        currencies: &["KES"],
        fields: &[
            phone("^\\+254[0-9]{9}$", 13, 13, "+254712345678"),
            provider("M-PESA"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+254[0-9]{9}$", 13, 13, "+254712345678"),
            provider("M-PESA"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "TZS_ACCOUNT",
        title: "Tanzanian mobile money account",
        currencies: &["TZS"],
        fields: &[
            phone("^\\+255[0-9]{9}$", 13, 13, "+255754123456"),
            provider("VODACOM"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+255[0-9]{9}$", 13, 13, "+255754123456"),
            provider("VODACOM"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "ZMW_ACCOUNT",
        title: "Zambian mobile money account",
        currencies: &["ZMW"],
        fields: &[
            phone("^\\+260[0-9]{9}$", 13, 13, "+260971234567"),
            provider("AIRTEL"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+260[0-9]{9}$", 13, 13, "+260971234567"),
            provider("AIRTEL"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "RWF_ACCOUNT",
        title: "Rwandan mobile money account",
        currencies: &["RWF"],
        fields: &[
            phone("^\\+250[0-9]{9}$", 13, 13, "+250788123456"),
            provider("MTN"),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+250[0-9]{9}$", 13, 13, "+250788123456"),
            provider("MTN"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "MWK_ACCOUNT",
        title: "Malawian mobile money account",
        currencies: &["MWK"],
        fields: &[
            phone("^\\+265[0-9]{9}$", 13, 13, "+265991234567"),
            provider("TNM"),
            countries("MW", &["MW"]),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+265[0-9]{9}$", 13, 13, "+265991234567"),
            provider("TNM"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "UGX_ACCOUNT",
        title: "Ugandan mobile money account",
        currencies: &["UGX"],
        fields: &[
            phone("^\\+256[0-9]{9}$", 13, 13, "+256772123456"),
            provider("MTN"),
            countries("UG", &["UG"]),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone("^\\+256[0-9]{9}$", 13, 13, "+256772123456"),
            provider("MTN"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "XOF_ACCOUNT",
        title: "West African mobile money account",
        currencies: &["XOF"],
        fields: &[
            phone(XOF_PHONE, 12, 14, "+221771234567"),
            provider("ORANGE"),
            countries("SN", XOF_COUNTRIES),
            Field::text("region", "Country of the account", "SN")
                .values(XOF_COUNTRIES)
                .optional(),
            PLATFORM_ACCOUNT_ID,
        ],
        instruction_fields: &[
            phone(XOF_PHONE, 12, 14, "+221771234567"),
            provider("ORANGE"),
            REFERENCE,
        ],
        ..MOBILE
    },
    AccountType {
        name: "SPARK_WALLET",
        title: "Spark wallet",
        currencies: &["BTC"],
        rails: &[Rail::Spark],
        fields: &[SPARK_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["SPARK_MAINNET", "SPARK_TESTNET", "SPARK_REGTEST"],
        instruction_fields: &[SPARK_ADDRESS, asset_type(&["BTC", "USDB"]), INVOICE.optional()],
        ..WALLET
    },
    AccountType {
        name: "LIGHTNING",
        title: "Lightning wallet",
        currencies: &["BTC"],
        rails: &[Rail::Lightning],
        fields: &[
            INVOICE.one_of("destination"),
            Field::text(
                "bolt12",
                "Lightning offer (BOLT 12)",
                "lno1pqps7sjqpgtyzm3qv4uxzmtsd3jjqer9wd3hy6tsw35k7msjzfpy7nz5yqcnygrfdej82um5wf5k2uckyypwa3eyt44h6txtxquqh7lz5djge4afgfjn7k4rgrkuag0jsd5xvxg",
            )
            .pattern("^[lL][nN][oO]1[0-9A-Za-z]+$", 20, 4096)
            .primary()
            .one_of("destination"),
            Field::text("lightningAddress", "Lightning address", "maria@wallet.example")
                .pattern("^[a-zA-Z0-9.\\-_+]+@[a-zA-Z0-9.\\-]+(:[0-9]{1,5})?$", 3, 255)
                .primary()
                .one_of("destination"),
            PLATFORM_ACCOUNT_ID,
        ],
        networks: &["LIGHTNING_MAINNET", "LIGHTNING_TESTNET", "LIGHTNING_REGTEST"],
        // An invoice says itself which network it is for, and an address leads to an invoice.
        needs_network: false,
        instruction_fields: &[INVOICE],
        ..WALLET
    },
    AccountType {
        name: "SOLANA_WALLET",
        title: "Solana wallet",
        currencies: &["USDC", "USDT"],
        rails: &[Rail::Solana],
        fields: &[SOLANA_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["SOLANA_MAINNET", "SOLANA_DEVNET", "SOLANA_TESTNET"],
        instruction_fields: &[SOLANA_ADDRESS, asset_type(&["USDC", "USDT"]).optional()],
        ..WALLET
    },
    AccountType {
        name: "TRON_WALLET",
        title: "Tron wallet",
        currencies: &["USDT"],
        rails: &[Rail::Tron],
        fields: &[TRON_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["TRON_MAINNET", "TRON_TESTNET"],
        instruction_fields: &[TRON_ADDRESS, asset_type(&["USDT"]).optional()],
        ..WALLET
    },
    AccountType {
        name: "POLYGON_WALLET",
        title: "Polygon wallet",
        currencies: &["USDC"],
        rails: &[Rail::Polygon],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["POLYGON_MAINNET", "POLYGON_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional()],
        ..WALLET
    },
    AccountType {
        name: "BASE_WALLET",
        title: "Base wallet",
        currencies: &["USDC"],
        rails: &[Rail::Base],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["BASE_MAINNET", "BASE_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional()],
        ..WALLET
    },
    AccountType {
        name: "ETHEREUM_WALLET",
        title: "Ethereum wallet",
        currencies: &["USDC"],
        rails: &[Rail::Ethereum],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["ETHEREUM_MAINNET", "ETHEREUM_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional()],
        ..WALLET
    },
];

const XOF_COUNTRIES: &[&str] = &["BJ", "CI", "SN", "TG"];

/// Senegal, Côte d'Ivoire, Togo, and Benin before and after its numbers grew in 2024.
const XOF_PHONE: &str = "^\\+(221[0-9]{9}|225[0-9]{10}|228[0-9]{8}|229([0-9]{8}|[0-9]{10}))$";

/// Names that account types had before 2026-02-23. Old clients still send them; nothing here
/// answers with them.
pub(super) const ALIASES: [(&str, &str); 5] = [
    ("US_ACCOUNT", "USD_ACCOUNT"),
    ("PIX", "BRL_ACCOUNT"),
    ("CLABE", "MXN_ACCOUNT"),
    ("IBAN", "EUR_ACCOUNT"),
    ("UPI", "INR_ACCOUNT"),
];
