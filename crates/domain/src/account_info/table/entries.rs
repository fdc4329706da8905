//! An entry for each account type.

use super::fields::{
    BRL_TAX_ID, CAD_BANK, CAD_BRANCH, CAD_NUMBER, CLABE, ETHEREUM_ADDRESS, GBP_NUMBER, IDR_PHONE,
    INVOICE, NGN_NUMBER, PIX_KEY, PIX_KEY_TYPE, PLATFORM_ACCOUNT_ID, REFERENCE, REFERENCE_IF,
    SOLANA_ADDRESS, SORT_CODE, SPARK_ADDRESS, TRON_ADDRESS, USD_NUMBER, USD_ROUTING, VPA,
    ZAR_NUMBER, account_number, asset_type, bank_name, countries, iban, phone, provider, swift_bic,
    swift_code,
};
use super::{AccountType, Holder};
use crate::account_info::field::Field;
use crate::rail::Rail;

/// Defaults of bank accounts.
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
/// Defaults of mobile money accounts.
const MOBILE: AccountType = AccountType { rails: &[Rail::MobileMoney], ..BANK };
/// Defaults of wallets.
const WALLET: AccountType =
    AccountType { holder: Holder::Wallet, can_pull: false, needs_network: true, ..BANK };

/// Every account type, in the order in which documents list them.
pub(super) static TYPES: &[AccountType] = &[
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
        instruction_fields: &[PIX_KEY, PIX_KEY_TYPE, BRL_TAX_ID, REFERENCE_IF],
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
        instruction_fields: &[VPA, REFERENCE_IF],
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
        instruction_fields: &[
            SPARK_ADDRESS,
            asset_type(&["BTC", "USDB"]),
            INVOICE.optional(),
            REFERENCE_IF,
        ],
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
        instruction_fields: &[INVOICE, REFERENCE_IF],
        ..WALLET
    },
    AccountType {
        name: "SOLANA_WALLET",
        title: "Solana wallet",
        currencies: &["USDC", "USDT"],
        rails: &[Rail::Solana],
        fields: &[SOLANA_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["SOLANA_MAINNET", "SOLANA_DEVNET", "SOLANA_TESTNET"],
        instruction_fields: &[
            SOLANA_ADDRESS,
            asset_type(&["USDC", "USDT"]).optional(),
            REFERENCE_IF,
        ],
        ..WALLET
    },
    AccountType {
        name: "TRON_WALLET",
        title: "Tron wallet",
        currencies: &["USDT"],
        rails: &[Rail::Tron],
        fields: &[TRON_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["TRON_MAINNET", "TRON_TESTNET"],
        instruction_fields: &[TRON_ADDRESS, asset_type(&["USDT"]).optional(), REFERENCE_IF],
        ..WALLET
    },
    AccountType {
        name: "POLYGON_WALLET",
        title: "Polygon wallet",
        currencies: &["USDC"],
        rails: &[Rail::Polygon],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["POLYGON_MAINNET", "POLYGON_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional(), REFERENCE_IF],
        ..WALLET
    },
    AccountType {
        name: "BASE_WALLET",
        title: "Base wallet",
        currencies: &["USDC"],
        rails: &[Rail::Base],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["BASE_MAINNET", "BASE_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional(), REFERENCE_IF],
        ..WALLET
    },
    AccountType {
        name: "ETHEREUM_WALLET",
        title: "Ethereum wallet",
        currencies: &["USDC"],
        rails: &[Rail::Ethereum],
        fields: &[ETHEREUM_ADDRESS, PLATFORM_ACCOUNT_ID],
        networks: &["ETHEREUM_MAINNET", "ETHEREUM_TESTNET"],
        instruction_fields: &[ETHEREUM_ADDRESS, asset_type(&["USDC"]).optional(), REFERENCE_IF],
        ..WALLET
    },
];

const XOF_COUNTRIES: &[&str] = &["BJ", "CI", "SN", "TG"];

/// Senegal, Côte d'Ivoire, Togo, and Benin before and after its numbers grew in 2024.
const XOF_PHONE: &str = "^\\+(221[0-9]{9}|225[0-9]{10}|228[0-9]{8}|229([0-9]{8}|[0-9]{10}))$";
