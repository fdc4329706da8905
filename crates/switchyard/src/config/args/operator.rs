//! The commands of operators: platforms, customers, tokens, institutions of UMA, and what only a
//! person can settle.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use domain::attention::Outcome;
use domain::currency::Currency;
use domain::event::EventNames;
use domain::id::{AttentionId, CustomerId, PlatformId, QuoteId, TokenId, TransactionId};
use domain::platform::BasisPoints;
use domain::token::{Permission, Permissions};
use domain::transaction::referenced;
use domain::uma_address::UmaDomain;
use rust_decimal::Decimal;

use super::super::checks::{
    parse_currency, parse_fixed_fee, parse_permission, parse_spread, parse_variable_fee_rate,
};

/// Commands for platforms.
#[derive(Debug, Clone, Subcommand)]
pub enum PlatformCommand {
    /// Lists all platforms.
    #[command(after_help = "Example:\n  switchyard platform list")]
    List,

    /// Makes a platform. It has no token yet: see switchyard token create.
    #[command(after_help = "Example:\n  \
        switchyard platform create --name \"Example Pay\" --uma-domain pay.example.com")]
    Create(CreatePlatform),

    /// Sets what a platform charges for a corridor, in place of the built-in price.
    #[command(
        after_help = "Example, 0.5 % on the rate and 2.00 USD for each payment from USD into another currency:\n  \
        switchyard platform set-pricing --platform PlatformConfig:... --from USD \
        --spread 0.005 --fixed-fee 200"
    )]
    SetPricing(SetPricing),

    /// Gives a platform another UMA domain. Addresses that it has given out stay.
    ///
    /// A domain is one platform's, live or sandbox. One that another platform has is refused.
    #[command(after_help = "Example:\n  \
        switchyard platform set-domain --platform PlatformConfig:... --uma-domain pay.example.com")]
    SetDomain(SetDomain),

    /// Sets rows of a platform's own for what payments and accounts do in the sandbox.
    #[command(
        after_help = "docs/sandbox.md says how rows are written. They come before the built-in \
        ones, and hold at once, also on servers that run:\n  \
        switchyard platform set-scenarios --platform PlatformConfig:... --file rows.toml"
    )]
    SetScenarios(SetScenarios),

    /// Sets how a platform's events are named from now on.
    #[command(after_help = "Example, for receivers written against the hosted API:\n  \
        switchyard platform set-events --platform PlatformConfig:... --names dotted")]
    SetEvents(SetEvents),

    /// Sets how much the invoice of another institution may cost more or less than its lookup said.
    ///
    /// Its rate, its fee and what is rounded count together. A quote on an invoice that differs
    /// more is refused.
    #[command(after_help = "Example, 2.5 %:\n  \
        switchyard platform set-cost-drift --platform PlatformConfig:... --max-basis-points 250")]
    SetCostDrift(SetCostDrift),
}

/// Options of `platform set-cost-drift`.
#[derive(Debug, Clone, Args)]
pub struct SetCostDrift {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// Hundredths of a percent, 0 to 10000. A new platform has 500, which is 5 %.
    #[arg(long, value_name = "POINTS", value_parser = basis_points)]
    pub max_basis_points: BasisPoints,
}

fn basis_points(text: &str) -> Result<BasisPoints, String> {
    let points = text.parse().ok().and_then(BasisPoints::new);
    points.ok_or_else(|| "basis points are 0 to 10000, where 100 are 1 %".to_owned())
}

/// Options of `platform set-domain`.
#[derive(Debug, Clone, Args)]
pub struct SetDomain {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// Domain of the addresses of its new customers.
    #[arg(long, value_name = "DOMAIN", value_parser = UmaDomain::parse)]
    pub uma_domain: UmaDomain,
}

/// Options of `platform set-events`.
#[derive(Debug, Clone, Args)]
pub struct SetEvents {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// plain: INVITATION_CLAIMED, as in the specification. dotted: INVITATION.CLAIMED, with the
    /// state in the name, as docs/webhooks.md lists them.
    #[arg(long, value_parser = event_names, value_name = "plain|dotted")]
    pub names: EventNames,
}

fn event_names(text: &str) -> Result<EventNames, String> {
    EventNames::from_name(text).ok_or_else(|| "events are named plain or dotted".to_owned())
}

/// Options of `platform set-scenarios`.
#[derive(Debug, Clone, Args)]
pub struct SetScenarios {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// The file with the rows. Without it, the built-in rows alone hold.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Options of `platform create`.
#[derive(Debug, Clone, Args)]
pub struct CreatePlatform {
    /// Its name, for the operator.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,

    /// For real money. Without it, a sandbox.
    ///
    /// This release connects to no payment rail and to no Lightning node. A live platform has
    /// customers, identity checks by the operator, accounts, quotes and payments between accounts
    /// of this server; it refuses external accounts, transfers in and out, quotes that are funded
    /// in real time, and addresses of other institutions. docs/operating.md has the list.
    #[arg(long)]
    pub live: bool,

    /// Domain of its customers' UMA addresses.
    #[arg(long, value_name = "DOMAIN", value_parser = UmaDomain::parse)]
    pub uma_domain: UmaDomain,

    /// It is a regulated institution, which checks its customers itself.
    #[arg(long)]
    pub regulated: bool,
}

/// Options of `platform set-pricing`.
#[derive(Debug, Clone, Args)]
pub struct SetPricing {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// The currency that pays; any, when left out.
    #[arg(long, value_name = "CURRENCY", value_parser = parse_currency)]
    pub from: Option<Currency>,

    /// The currency that is paid; any, when left out.
    #[arg(long, value_name = "CURRENCY", value_parser = parse_currency)]
    pub to: Option<Currency>,

    /// Fraction by which the rate is worse than the market's, such as 0.005.
    #[arg(long, value_name = "FRACTION", value_parser = parse_spread)]
    #[arg(allow_negative_numbers = true, required_unless_present_any = PRICE_OTHER_THAN_SPREAD)]
    pub spread: Option<Decimal>,

    /// Fee per payment in the smallest unit of the currency that pays, such as 200 for 2.00 USD.
    #[arg(long, value_name = "UNITS", value_parser = parse_fixed_fee)]
    #[arg(allow_negative_numbers = true)]
    pub fixed_fee: Option<i64>,

    /// Fee as a fraction of the amount charged, such as 0.003.
    #[arg(long, value_name = "FRACTION", value_parser = parse_variable_fee_rate)]
    #[arg(allow_negative_numbers = true)]
    pub variable_fee_rate: Option<Decimal>,
}

/// One part of a price at least must be set, or there is nothing to do.
const PRICE_OTHER_THAN_SPREAD: [&str; 2] = ["fixed_fee", "variable_fee_rate"];

/// Options of `show`.
#[derive(Debug, Clone, Args)]
pub struct Show {
    /// The id of a transaction or of a quote, or a reconciliation reference such as SY-....
    #[arg(value_name = "ID", value_parser = Shown::parse)]
    pub what: Shown,
}

/// A payment that is to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// By its id.
    Transaction(TransactionId),
    /// By the id of its quote.
    Quote(QuoteId),
    /// By the reference that went with it.
    Reference(String),
}

impl Shown {
    /// Reads what identifies a payment.
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(id) = TransactionId::parse(text) {
            return Ok(Self::Transaction(id));
        }
        if let Ok(id) = QuoteId::parse(text) {
            return Ok(Self::Quote(id));
        }
        match referenced(text) {
            Some(_) => Ok(Self::Reference(text.to_owned())),
            None => Err("not the id of a transaction or a quote, nor a reference such as \
                         SY-01A2202B91BC7001"
                .to_owned()),
        }
    }
}

/// Commands that read the ledger.
#[derive(Debug, Clone, Subcommand)]
pub enum LedgerCommand {
    /// Lists the ledger's accounts with what was posted to them and what is pending.
    #[command(after_help = "Example:\n  switchyard ledger accounts --platform PlatformConfig:...")]
    Accounts(LedgerOf),

    /// Prints the trial balance: what all accounts of a kind hold, and that both sides are equal.
    ///
    /// Exits with 1 if they are not.
    #[command(after_help = "Example:\n  switchyard ledger balances")]
    Balances(LedgerOf),
}

/// Options of `ledger accounts` and `ledger balances`.
#[derive(Debug, Clone, Args)]
pub struct LedgerOf {
    /// Only accounts of this platform and its customers.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: Option<PlatformId>,
}

/// Commands for customers.
#[derive(Debug, Clone, Subcommand)]
pub enum CustomerCommand {
    /// Lists the customers whose identity waits for a decision, without their personal data.
    #[command(after_help = "Example:\n  switchyard customer pending")]
    Pending,

    /// Approves a customer's identity: its money can move. The platform is notified.
    #[command(after_help = "Example:\n  switchyard customer approve Customer:...")]
    Approve(OneCustomer),

    /// Refuses a customer's identity. The platform is notified.
    #[command(after_help = "Example:\n  switchyard customer reject Customer:...")]
    Reject(OneCustomer),

    /// Erases the personal data of a deleted customer for good.
    ///
    /// Names, addresses, accounts, memos and what is known of others in the customer's payments go
    /// from records, events and stored answers, and what the journal has of them cannot be read any
    /// more. Amounts, ids, states and times stay, and switchyard verify holds. It may be run beside
    /// the server, and again if it was stopped. Backups that were made before still have the data.
    #[command(after_help = "Example:\n  switchyard customer erase Customer:...")]
    Erase(OneCustomer),
}

/// Options of `customer approve`, `customer reject` and `customer erase`.
#[derive(Debug, Clone, Args)]
pub struct OneCustomer {
    /// Id of the customer.
    #[arg(value_parser = CustomerId::parse)]
    pub id: CustomerId,
}

/// Commands for keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeyCommand {
    /// Replaces the server's key: the database opens with a new one, and with the old one no more.
    ///
    /// Servers that run go on; each needs the new key when it starts again. Backups that were made
    /// before open with the old key. A key that was stolen with a copy of the database takes
    /// --reencrypt.
    #[command(
        after_help = "Examples:\n  switchyard key rotate\n  switchyard key rotate --reencrypt"
    )]
    Rotate(RotateKey),

    /// Gives the journal another key: what is written from now on is sealed with it.
    #[command(after_help = "Example:\n  switchyard key rotate-journal")]
    RotateJournal,
}

/// Options of `key rotate`.
#[derive(Debug, Clone, Args)]
pub struct RotateKey {
    /// The file with the new key, made if it is not there. Without it, a new key takes the place of
    /// the old one in the key file.
    #[arg(long, value_name = "FILE")]
    pub new_key_file: Option<PathBuf>,

    /// Keeps no old key beside the new one, neither of this rotation nor of those before: backups
    /// that they open cannot be read any more. Without it, each stays in a file that is named by
    /// its fingerprint.
    #[arg(long)]
    pub discard_old_key: bool,

    /// Also draws another secret that seals, and seals tables and keys again with it, beside
    /// servers. A thief with the old key and an old copy of the database cannot read them in later
    /// copies. Rows of the journal from before stay as they are. If the command was stopped, run
    /// it again: it goes on.
    #[arg(long)]
    pub reencrypt: bool,
}

/// Commands for API tokens.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Lists tokens, without their secrets.
    #[command(after_help = "Example:\n  switchyard token list")]
    List(ListTokens),

    /// Makes a token and prints its secret, once.
    #[command(after_help = "Example:\n  switchyard token create --platform PlatformConfig:... \
        --name reporting --permissions VIEW")]
    Create(CreateToken),

    /// Revokes a token at once and for good.
    #[command(after_help = "Example:\n  switchyard token revoke Token:...")]
    Revoke(RevokeToken),
}

/// Options of `token list`.
#[derive(Debug, Clone, Args)]
pub struct ListTokens {
    /// Id of the platform; all, when left out.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: Option<PlatformId>,

    /// Also those that were revoked.
    #[arg(long)]
    pub all: bool,
}

/// Options of `token create`.
#[derive(Debug, Clone, Args)]
pub struct CreateToken {
    /// Id of the platform.
    #[arg(long, value_name = "ID", value_parser = PlatformId::parse)]
    pub platform: PlatformId,

    /// Its name, for the operator.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: String,

    /// Its permissions, with commas between: VIEW, TRANSACT, MANAGE. None implies another.
    #[arg(long, required = true, value_delimiter = ',', value_parser = parse_permission)]
    permissions: Vec<Permission>,
}

impl CreateToken {
    /// The token's permissions; at least one.
    pub fn permissions(&self) -> Permissions {
        self.permissions.iter().copied().collect()
    }
}

/// Options of `token revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeToken {
    /// Id of the token.
    #[arg(value_parser = TokenId::parse)]
    pub id: TokenId,
}

/// Commands for other institutions of UMA.
#[derive(Debug, Clone, Subcommand)]
pub enum UmaCommand {
    /// Lists the institutions that platforms have met: rule, keys, version and last exchange.
    #[command(after_help = "Example:\n  switchyard uma peers --json")]
    Peers,

    /// Deals with an institution again, or marks it as known.
    #[command(after_help = "Example:\n  switchyard uma allow bank.example")]
    Allow(PeerRule),

    /// Pays an institution nothing more and takes nothing more from it.
    #[command(after_help = "Example:\n  switchyard uma block bank.example")]
    Block(PeerRule),

    /// Drops the keys that are kept of an institution: its key document is read again.
    #[command(after_help = "Example:\n  switchyard uma forget bank.example")]
    Forget(PeerDomain),

    /// Makes new keys for a domain. They are used an hour later, when no peer keeps the old ones.
    #[command(after_help = "Example:\n  switchyard uma rotate-keys pay.example.com")]
    RotateKeys(RotateUmaKeys),

    /// Prints the id of this server's Lightning node, for --lightning-peer of its peers.
    #[cfg(feature = "ldk")]
    #[command(after_help = "Example:\n  switchyard uma node")]
    Node,
}

/// Commands for what only a person can settle.
#[derive(Debug, Clone, Subcommand)]
pub enum AttentionCommand {
    /// Lists what waits for a person, oldest first.
    #[command(after_help = "Example:\n  switchyard attention list --json")]
    List(ListMatters),

    /// Shows one with its payment, and what the rail has said in its own words.
    #[command(after_help = "Example:\n  switchyard attention show Attention:...")]
    Show(OneMatter),

    /// Resolves one as a person has found it, with the reason.
    ///
    /// An outcome that moves money is booked as if the rail had said it, and cannot be taken back.
    #[command(after_help = "Example:\n  switchyard attention resolve Attention:... \
        --outcome settled --reason \"the bank's statement of 5 May has it\"")]
    Resolve(ResolveMatter),
}

/// Options of `attention list`.
#[derive(Debug, Clone, Args)]
pub struct ListMatters {
    /// Also resolved ones.
    #[arg(long)]
    pub all: bool,
}

/// Options of `attention show`.
#[derive(Debug, Clone, Args)]
pub struct OneMatter {
    /// Its id, as attention list shows it.
    #[arg(value_name = "ID", value_parser = AttentionId::parse)]
    pub id: AttentionId,
}

/// Options of `attention resolve`.
#[derive(Debug, Clone, Args)]
pub struct ResolveMatter {
    /// Which.
    #[command(flatten)]
    pub matter: OneMatter,

    /// Why it is so. It is kept, sealed, with who says it.
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub reason: String,

    /// The outcome that was found. Needed where there is more than one possibility: settled or
    /// failed for UNKNOWN_OUTCOME, settled or returned for RAIL_CONTRADICTION.
    #[arg(long, value_name = "OUTCOME", value_parser = parse_outcome)]
    pub outcome: Option<Outcome>,
}

/// Characters of a reason: some sentences.
const REASON_MAX: usize = 1_000;

fn parse_reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    let has_control = text.chars().any(|it| it.is_control() && it != '\n');
    match text.chars().count() {
        1..=REASON_MAX if !has_control => Ok(text.to_owned()),
        _ => Err(format!("must be 1 to {REASON_MAX} characters that can be seen")),
    }
}

fn parse_outcome(text: &str) -> Result<Outcome, String> {
    Outcome::from_name(&text.to_ascii_uppercase()).ok_or_else(|| {
        let names = Outcome::ALL.map(|outcome| outcome.name().to_ascii_lowercase());
        format!("must be one of {}", names.join(", "))
    })
}

/// Options of `uma allow` and `uma block`.
#[derive(Debug, Clone, Args)]
pub struct PeerRule {
    /// Domain of the institution's addresses.
    #[arg(value_parser = UmaDomain::parse)]
    pub domain: UmaDomain,

    /// Id of the platform; may be left out where there is one.
    #[arg(long, value_parser = PlatformId::parse)]
    pub platform: Option<PlatformId>,
}

/// Options of `uma forget`.
#[derive(Debug, Clone, Args)]
pub struct PeerDomain {
    /// Domain of the institution's addresses.
    #[arg(value_parser = UmaDomain::parse)]
    pub domain: UmaDomain,
}

/// Options of `uma rotate-keys`.
#[derive(Debug, Clone, Args)]
pub struct RotateUmaKeys {
    /// Domain of a platform of this server.
    #[arg(value_parser = UmaDomain::parse)]
    pub domain: UmaDomain,
}

/// Commands for rates.
#[derive(Debug, Clone, Subcommand)]
pub enum RatesCommand {
    /// Shows the rates that a server with this file has.
    #[command(after_help = "Example:\n  switchyard rates show --rates-file rates.json")]
    Show(ShowRates),

    /// Checks a file of rates and puts it in the place of the server's, which then reads it.
    ///
    /// The file must say in asOf when the market was there. docs/rates.md has its format. The
    /// server's file is replaced at once and as a whole, and keeps its owner and permissions.
    #[command(after_help = "Example:\n  \
        switchyard rates set today.json --rates-file /etc/switchyard/rates.json")]
    Set(SetRates),
}

/// Options of `rates show`.
#[derive(Debug, Clone, Args)]
pub struct ShowRates {
    /// The server's file of rates [default: the built-in rates].
    #[arg(long, value_name = "FILE", env = "SWITCHYARD_RATES_FILE")]
    pub rates_file: Option<PathBuf>,
}

/// Options of `rates set`.
#[derive(Debug, Clone, Args)]
pub struct SetRates {
    /// The new rates.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The server's file of rates, which is replaced.
    #[arg(long, value_name = "FILE", env = "SWITCHYARD_RATES_FILE")]
    pub rates_file: PathBuf,
}
