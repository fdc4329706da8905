//! Fills a database with payments, faster than clients could: through the same use cases, but each
//! from its beginning to its end in one unit of work, so that `switchyard verify` finds nothing.
//!
//! The generated data: one platform with the token of the benchmark, and others if they are wanted;
//! customers with a bank account and money each, and payments of all of them in an even order. Most
//! have settled; some were refused, and some are deposits. Each has its events, its postings and,
//! if a client would have asked for it, the answer under an idempotency key. Time is made up and
//! ends now, so the payments lie in the past as if they had come one by one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use adapters::clock::{ManualClock, SystemClock};
use adapters::entropy::SystemEntropy;
use anyhow::{Context as _, Result};
use api::extract::renderer;
use api::transactions::TransactionBody;
use domain::account_info::{AccountInfo, BeneficiaryDraft, FieldValue, types};
use domain::clock::Ahead;
use domain::currency::Currency;
use domain::customer::{Contact, Identity, Individual, KycStatus};
use domain::id::{
    ExternalAccountId, Id, InternalAccountId, Kind, Owner, PlatformId, TransactionId,
};
use domain::patch::Patch;
use domain::platform::Platform;
use domain::time::Timestamp;
use domain::transaction::{Direction, Event, RailRequest, StatusReason};
use domain::uma_address::UmaDomain;
use ledger::posting::Resolution;
use ports::clock::Clock as _;
use ports::entropy::Entropy as _;
use ports::rail::AccountReport;
use service::customers::{self, NewCustomer};
use service::external_accounts::{self, Duplicate, NewExternalAccount};
use service::once::Keyed;
use service::platforms::{self, ConfigChange, NewPlatform};
use service::transfers::{self, Transfer};
use service::{App, Error, balances, funding, lifecycle, owners};
use store::error::StoreError;
use store::idempotency::{Given, scope};
use store::timers::TimerKind;
use store::unit::Unit;
use switchyard::config::{self, Command};
use switchyard::{first_start, wiring};
use tokio::task::JoinHandle;

use crate::sessions::DESCRIPTION;
use crate::time::now;

/// The first balance of each, in the smallest unit: enough for all payments of a run from one
/// account.
const FUNDS_MINOR: i64 = 100_000_000_000;

/// Units of work that are under way at once: two group commits, so that one is ready when the
/// other is committed.
const UNITS_AHEAD: usize = 1_024;

/// Units after which the tables must follow those before: a store whose tables are far behind its
/// journal refuses more.
const FOLLOWED_EVERY: usize = 8_192;

/// Between two payments, so that 10^7 of them are three weeks of a busy platform.
const INTERVAL_MILLIS: i64 = 200;

/// How long a payment is under way.
const SETTLES_AFTER_MILLIS: i64 = 200;

/// Payments between two lines that tell that it goes on.
const SAID_EVERY: u64 = 1_000_000;

/// Of so many payments, one is a deposit.
const DEPOSIT_EVERY: u64 = 20;

/// Of so many payments, one is refused by its bank.
const REFUSED_EVERY: u64 = 50;

/// Of so many payments, one is the first customer's, beside its share of all: a customer whose list
/// is long in every database.
const BUSY_EVERY: u64 = 100;

/// A payer, as payments need it.
#[derive(Clone, Copy)]
struct Payer {
    internal: InternalAccountId,
    external: ExternalAccountId,
}

/// Fills the database, which must be empty: customers with a first deposit each, then payments.
/// With `endpoints` there is a platform for each of them, all of whose events are to go there.
pub fn run(database_url: &str, payers: u64, payments: u64, endpoints: &[String]) -> Result<()> {
    let line = ["switchyard", "serve", "--database-url", database_url];
    let line = line.map(std::ffi::OsString::from);
    let config = match config::read(line, &std::env::vars_os().collect()) {
        Ok(config) => config,
        Err(refusal) => {
            refusal.print();
            anyhow::bail!("the database cannot be opened");
        }
    };
    let Command::Serve(options) = &config.command else { unreachable!("the line says serve") };
    // Units begin in the order in which they are made only if one thread runs them all.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let platforms = endpoints.len().max(1) as u64;
        let times = i64::try_from((payments + 2 * payers) * platforms)?;
        let first = SystemClock.now().plus_millis(-times * INTERVAL_MILLIS);
        let clock = ManualClock::new(first);
        let mut env = wiring::default_env();
        env.clock = Arc::new(clock.clone());
        let opened = wiring::open(&config.database, &config.key, env)?;
        let app = opened.app.clone();
        let domain = options.uma_domain_at(options.listen.port);
        let made = first_start::run(&app, config.credentials.as_ref(), domain).await?;
        let mut platform = made.context("the database is not empty")?.platform;
        for number in 0..platforms {
            if number > 0 {
                platform = another_platform(&app, platform, number).await?;
            }
            let endpoint = endpoints.get(number as usize);
            let filling = Filling { app: app.clone(), clock: clock.clone(), platform };
            filling.run(payers, payments, endpoint).await?;
        }
        wiring::close(opened).await;
        Ok(())
    })
}

/// A platform as the first one is.
async fn another_platform(app: &App, like: PlatformId, number: u64) -> Result<PlatformId> {
    let found = app.store().read(move |view| view.get::<Platform>(&like)).await;
    let found = found?.context("the first platform is there")?;
    let new = NewPlatform {
        name: "another".to_owned(),
        mode: found.mode,
        uma_domain: UmaDomain::parse(&format!("localhost:{}", 20_000 + number))?,
        is_regulated: found.is_regulated,
    };
    Ok(platforms::create(app, new).await?.id)
}

struct Filling {
    app: App,
    clock: ManualClock,
    platform: PlatformId,
}

impl Filling {
    async fn run(&self, payers: u64, payments: u64, endpoint: Option<&String>) -> Result<()> {
        let began = now();
        if let Some(endpoint) = endpoint {
            self.set_endpoint(endpoint).await?;
        }
        let payers = self.payers(payers).await?;
        let (count, customers_took) = (payers.len(), seconds(began.elapsed()));
        let began = now();
        let mut units = Units::new(&self.app);
        for number in 0..payments {
            if number > 0 && number.is_multiple_of(SAID_EVERY) {
                println!("{number} of {payments} payments");
            }
            let payment = self.payment(&payers, number);
            let (app, platform) = (self.app.clone(), self.platform);
            units.begin(move |unit| payment.make(&app, unit, platform)).await?;
        }
        units.finish().await?;
        let took = began.elapsed();
        let rate = payments as f64 / took.as_secs_f64();
        println!(
            "{count} customers with accounts in {customers_took}, {payments} payments in {}, \
             {rate:.0} a second",
            seconds(took)
        );
        Ok(())
    }

    async fn set_endpoint(&self, endpoint: &str) -> Result<()> {
        let (platform, ahead) = (self.platform, Ahead::NONE);
        let keyed = Keyed { scope: None, body: None, platform, ahead };
        let webhook_endpoint = Patch::Set(endpoint.to_owned());
        let change = ConfigChange { webhook_endpoint, ..ConfigChange::default() };
        let render = renderer(&[], 200, |_: &Platform| ());
        platforms::configure(&self.app, keyed, change, render).await?;
        Ok(())
    }

    fn new_id<K: Kind>(&self, at: Timestamp) -> Id<K> {
        self.app.new_id(Ahead::NONE, at)
    }

    fn tick(&self) -> Timestamp {
        self.clock.advance_millis(INTERVAL_MILLIS)
    }

    /// Makes the customers, each with a bank account and money.
    async fn payers(&self, count: u64) -> Result<Vec<Payer>> {
        let usd = Currency::from_code("USD").context("USD is in the table")?;
        let mut units = Units::new(&self.app);
        for number in 0..count {
            self.tick();
            let drawn = customers::draw(&self.app, Ahead::NONE);
            let at = self.tick();
            let (external, deposit) = (self.new_id(at), self.new_id(at));
            let (app, platform) = (self.app.clone(), self.platform);
            let make = move |unit: &mut Unit<'_, '_>| {
                let customer = customers::create(unit, platform, &customer(number), &drawn)?;
                let internal = InternalAccountId::of(Owner::Customer(customer.id), usd);
                let account = bank_account(number, &customer, usd)?;
                let refused = Duplicate::Refused;
                let usable = Ok(AccountReport::usable());
                let account = &account;
                external_accounts::create(unit, platform, account, external, refused, &usable, at)?;
                funding::deposit(&app, unit, platform, internal, FUNDS_MINOR, deposit, at)?;
                balances::tell(app.env(), unit)?;
                Ok(Payer { internal, external })
            };
            units.begin(make).await?;
        }
        units.finish().await
    }

    fn payment(&self, payers: &[Payer], number: u64) -> Payment {
        let at = self.tick();
        let is_busy = number % BUSY_EVERY == BUSY_EVERY / 2;
        let payer = payers[if is_busy { 0 } else { number as usize % payers.len() }];
        let key = format!("{:016x}-{number:016x}", SystemEntropy.number());
        Payment { payer, number, id: self.new_id(at), at, key }
    }
}

/// Units of work on their way to a commit, and what those before them gave.
struct Units<T> {
    app: App,
    under_way: VecDeque<JoinHandle<Result<T, Error>>>,
    /// The tables follow what was committed a while ago.
    following: Option<JoinHandle<Result<(), StoreError>>>,
    begun: usize,
    done: Vec<T>,
}

impl<T: Send + 'static> Units<T> {
    fn new(app: &App) -> Self {
        let under_way = VecDeque::new();
        Self { app: app.clone(), under_way, following: None, begun: 0, done: Vec::new() }
    }

    /// Puts a unit into the commit queue, and waits for the oldest if too many are under way.
    async fn begin<F>(&mut self, work: F) -> Result<()>
    where
        F: FnMut(&mut Unit<'_, '_>) -> Result<T, Error> + Send + 'static,
    {
        let app = self.app.clone();
        self.under_way
            .push_back(tokio::spawn(async move { app.store().write(app.origin(), work).await }));
        if self.under_way.len() > UNITS_AHEAD
            && let Some(oldest) = self.under_way.pop_front()
        {
            self.done.push(oldest.await??);
        }
        self.begun += 1;
        if self.begun.is_multiple_of(FOLLOWED_EVERY) {
            let next = tokio::spawn(followed(self.app.clone()));
            if let Some(before) = self.following.replace(next) {
                before.await??;
            }
        }
        Ok(())
    }

    /// The results of all units, in their order.
    async fn finish(mut self) -> Result<Vec<T>> {
        for unit in self.under_way {
            self.done.push(unit.await??);
        }
        Ok(self.done)
    }
}

/// Waits until the tables follow what is committed now.
async fn followed(app: App) -> Result<(), StoreError> {
    loop {
        match app.store().read(|_| Ok::<_, StoreError>(())).await {
            // It waits for some seconds only.
            Err(StoreError::Busy) => {}
            done => return done,
        }
    }
}

/// One payment of the past.
struct Payment {
    payer: Payer,
    number: u64,
    id: TransactionId,
    at: Timestamp,
    key: String,
}

impl Payment {
    /// From one to a hundred whole units, and never twice the same in a row.
    fn amount_minor(&self) -> i64 {
        100 + (self.number % 9_901) as i64
    }

    fn make(&self, app: &App, unit: &mut Unit<'_, '_>, platform: PlatformId) -> Result<(), Error> {
        let Self { payer, id, at, .. } = self;
        if self.number.is_multiple_of(DEPOSIT_EVERY) {
            let amount = self.amount_minor();
            funding::deposit(app, unit, platform, payer.internal, amount, *id, *at)?;
            return balances::tell(app.env(), unit);
        }
        let transfer = Transfer {
            internal: payer.internal,
            external: payer.external,
            amount_minor: self.amount_minor(),
            currency: None,
            description: Some(DESCRIPTION.to_owned()),
            rail_request: RailRequest::default(),
        };
        let way = Direction::Outgoing;
        let transaction = transfers::transfer(app, unit, platform, &transfer, way, *id, *at)?;
        let row = owners::platform(unit, platform)?;
        let render = renderer(&[], 201, TransactionBody::of(app, &row));
        let (status, body) = render(&Ok(transaction.clone()));
        let scope = scope(unit.keyring(), platform, "POST", "/transfer-out", &self.key);
        unit.keep_answer(scope, *at, &Given::new(status, body));

        // The job's work after the rail has answered.
        let later = at.plus_millis(SETTLES_AFTER_MILLIS);
        let (event, resolution) = if self.number % REFUSED_EVERY == 1 {
            (Event::Refused(StatusReason::REJECTED_BY_RECEIVER), Resolution::Void)
        } else {
            (Event::Settled, Resolution::Post)
        };
        let transaction = lifecycle::advance(app, unit, transaction, Event::Started, *at)?;
        unit.resolve(*id, resolution, later)?;
        lifecycle::advance(app, unit, transaction, event, later)?;
        unit.clear_timer((id.uuid(), TimerKind::AskRail));
        // In production each payment is a unit of its own.
        balances::tell(app.env(), unit)
    }
}

fn customer(number: u64) -> NewCustomer {
    NewCustomer {
        platform_customer_id: Some(format!("customer-{number}")),
        uma_address: None,
        kyc_status: Some(KycStatus::Approved),
        identity: Identity::Individual(Individual {
            full_name: Some(format!("Ada Number {number}")),
            birth_date: None,
            nationality: None,
            address: None,
            contact: Contact::default(),
        }),
    }
}

/// An account that everything can be paid to: its number ends in digits that steer nothing.
fn bank_account(
    number: u64,
    customer: &domain::customer::Customer,
    currency: Currency,
) -> Result<NewExternalAccount, Error> {
    let kind = types().iter().find(|kind| kind.name == "USD_ACCOUNT");
    let kind = kind.ok_or_else(|| Error::Internal("no account type for USD".to_owned()))?;
    let field = |name: &str, text: String| (name.to_owned(), FieldValue::Text(text));
    let fields = BTreeMap::from([
        field("accountNumber", format!("{number:09}100")),
        field("routingNumber", "021000021".to_owned()),
    ]);
    let beneficiary = BeneficiaryDraft {
        beneficiary_type: Some("INDIVIDUAL".to_owned()),
        full_name: Some(format!("Ada Number {number}")),
        birth_date: Some("1985-12-10".to_owned()),
        nationality: Some("GB".to_owned()),
        ..BeneficiaryDraft::default()
    };
    let info = AccountInfo::new(kind, fields, None, Some(beneficiary)).map_err(Error::Invalid)?;
    Ok(NewExternalAccount {
        customer_id: Some(customer.id),
        path: "",
        currency,
        info,
        platform_account_id: None,
        default_uma_deposit_account: false,
        crypto_network: None,
    })
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
