//! Predicates that one SQL statement decides: it selects the uuid of every row that breaks one.
//!
//! Both engines run the same text. Predicates that need an opened value, a decoded history or the
//! arithmetic of the ledger are in the other modules.

use std::collections::BTreeSet;

use domain::approval::{Outcome, Status};
use domain::customer::KycStatus;

use super::Predicate::{
    self, A1, B1, B2, C1, C2, C3, C4, C5, E4, E5, E6, E7, H4, I1, P1, S4, T10, U1, W1,
};
use super::{Run, shown};
use crate::error::StoreError;
use crate::sql::{Row, Value};
use crate::timers::TimerKind;

/// One statement and the predicate whose breaks it selects.
struct Rule {
    predicate: Predicate,
    /// The table whose rows it judges.
    table: &'static str,
    /// The break in words; `{}` stands for the selected uuid.
    says: &'static str,
    /// One column: the uuid. Names in braces stand for [`fragments`].
    sql: &'static str,
}

const fn rule(
    predicate: Predicate,
    table: &'static str,
    says: &'static str,
    sql: &'static str,
) -> Rule {
    Rule { predicate, table, says, sql }
}

/// The events about everything but payments and accounts. They are few, and an index has them.
const OTHER_EVENTS: &str = "(select e.resource, e.number, e.platform, e.kind, e.at \
    from platforms p join events e on e.platform = p.id \
    and e.kind in ('INVITATION_CLAIMED', 'KYC_STATUS', 'BULK_UPLOAD', 'TEST'))";

/// The same, counted.
const COUNTED: &str = "(select resource, kind, count(*) as events, max(number) as last \
    from {other_events} o group by resource, kind)";

/// The timer that each payment under way must have. The payer within this server has none: its
/// payee, which U1 finds, has it.
const AWAITED: &str = "(select id, quote as subject, 'EXPIRE_QUOTE' as kind from transactions \
    where status = 'PENDING' and quote is not null \
    union all select id, id, case when status = 'PENDING' and route is not null \
    then 'DECIDE_PAYMENT' else 'ASK_RAIL' end from transactions t \
    where status = 'PENDING' and quote is null or status = 'PROCESSING' \
    and (route is null or route <> 'HERE' or direction = 'INCOMING' \
    or not exists (select 1 from postings where transaction_id = t.id)))";

/// The payments under way of each customer that hold no money in an account of this server.
const UNCOVERED: &str = "(select owner, count(*) as payments from transactions \
    where owner_kind = 'CUSTOMER' and (direction = 'INCOMING' and status = 'PENDING' \
    or status = 'PROCESSING' and (direction = 'INCOMING' or source_account is null \
    or source_account in (select id from external_accounts))) group by owner)";

/// Whether the payee `g` and the payer `p` within this server are two sides of one payment.
const SIDES_FIT: &str = "p.receiving_currency = g.receiving_currency \
    and p.receiving_minor = g.receiving_minor \
    and exists (select 1 from postings where transaction_id = p.id and movement = 'EXCHANGE') \
    and case when g.status in ('PENDING', 'PROCESSING') and not exists (select 1 from postings \
    where transaction_id = g.id and movement = 'DELIVERY' \
    and phase in ('POSTED', 'RESOLVED_POSTED')) then p.status = 'PROCESSING' \
    when g.status in ('PENDING', 'PROCESSING', 'COMPLETED') then p.status = 'COMPLETED' \
    when g.status = 'REJECTED' then p.status = 'REJECTED' \
    when g.status = 'FAILED' then p.status in ('FAILED', 'REFUNDED') else false end";

/// Texts that stand for their names in statements, outer ones first.
fn fragments() -> [(&'static str, String); 8] {
    let quoted = |names: &mut dyn Iterator<Item = &'static str>| {
        names.map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
    };
    let decided = Status::ALL.into_iter().map(|status| {
        let fits = match status.outcome() {
            Outcome::Open => "t.status = 'PENDING'".to_owned(),
            Outcome::Approved => "t.status <> 'PENDING'".to_owned(),
            Outcome::Rejected => "t.status = 'REJECTED'".to_owned(),
            Outcome::Failed(reason) => {
                format!("t.status = 'FAILED' and t.failure_reason = '{}'", reason.name())
            }
        };
        format!("when '{}' then {fits}", status.name())
    });
    let is_open = |status: &Status| status.outcome() == Outcome::Open;
    let decided = decided.collect::<Vec<_>>().join(" ");
    let open = quoted(&mut Status::ALL.into_iter().filter(is_open).map(Status::name));
    let undecided = KycStatus::ALL.into_iter().filter(|status| !status.is_final());
    [
        ("{counted}", COUNTED.to_owned()),
        ("{other_events}", OTHER_EVENTS.to_owned()),
        ("{awaited}", AWAITED.to_owned()),
        ("{uncovered}", UNCOVERED.to_owned()),
        ("{sides_fit}", SIDES_FIT.to_owned()),
        ("{decided}", format!("case a.status {decided} end")),
        ("{open}", open),
        ("{undecided}", quoted(&mut undecided.map(KycStatus::name))),
    ]
}

const RULES: &[Rule] = &[
    rule(
        T10,
        "transactions",
        "Transaction:{} is under way and has no timer",
        "select w.id from {awaited} w left join timers m \
         on m.subject = w.subject and m.kind = w.kind where m.subject is null",
    ),
    rule(
        U1,
        "transactions",
        "Transaction:{} names its payer where it should not, or names none",
        "select id from transactions \
         where (outgoing is not null) <> (coalesce(route, '') = 'HERE' and direction = 'INCOMING')",
    ),
    rule(
        U1,
        "transactions",
        "Transaction:{} has no payee",
        "select p.id from transactions p where p.route = 'HERE' and p.direction = 'OUTGOING' \
         and exists (select 1 from postings where transaction_id = p.id and movement = 'EXCHANGE') \
         and p.id not in (select outgoing from transactions where outgoing is not null)",
    ),
    rule(
        U1,
        "transactions",
        "Transaction:{} does not fit its payer",
        "select g.id from transactions g left join transactions p on p.id = g.outgoing \
         and p.route = 'HERE' and p.direction = 'OUTGOING' where g.route = 'HERE' \
         and g.direction = 'INCOMING' and not coalesce({sides_fit}, false)",
    ),
    rule(
        U1,
        "transactions",
        "Transaction:{} has more than one payee",
        "select outgoing from transactions where outgoing is not null \
         group by outgoing having count(*) > 1",
    ),
    rule(
        B1,
        "quotes",
        "Quote:{} pays a UMA address without a lookup",
        "select id from quotes where lookup is null and route is not null",
    ),
    // The first six bytes of an id are its time. Lookups are swept once their time is over.
    rule(
        B1,
        "quotes",
        "Quote:{} stands on a lookup that is another's, later, or was over",
        "select q.id from quotes q left join lookups l on l.id = q.lookup \
         where substr(q.lookup, 1, 6) > substr(q.id, 1, 6) or l.platform <> q.platform \
         or l.sender <> q.owner or l.expires_at <= q.created_at",
    ),
    rule(
        P1,
        "platforms",
        "the clock of PlatformConfig:{} was moved, and its money is real",
        "select id from platforms where mode = 'LIVE' and clock_ahead <> 0",
    ),
    rule(
        S4,
        "tokens",
        "Token:{} is of a platform that is not there",
        "select id from tokens where platform not in (select id from platforms)",
    ),
    rule(
        S4,
        "customers",
        "Customer:{} is of a platform that is not there",
        "select id from customers where platform not in (select id from platforms)",
    ),
    rule(
        S4,
        "external_accounts",
        "ExternalAccount:{} belongs to an owner who is not its platform's",
        "select x.id from external_accounts x where not exists (select 1 from customers c \
         where x.owner_kind = 'CUSTOMER' and c.id = x.owner and c.platform = x.platform) \
         and not exists (select 1 from platforms p \
         where x.owner_kind = 'PLATFORM' and p.id = x.owner and p.id = x.platform)",
    ),
    rule(
        S4,
        "external_account_fingerprints",
        "a fingerprint is of ExternalAccount:{}, which is not there",
        "select external_account from external_account_fingerprints \
         where external_account not in (select id from external_accounts)",
    ),
    rule(
        S4,
        "lookups",
        "Lookup:{} was made by a customer who is not its platform's",
        "select l.id from lookups l where not exists \
         (select 1 from customers c where c.id = l.sender and c.platform = l.platform)",
    ),
    rule(
        S4,
        "invitations",
        "Invitation:{} is of an inviter who is not its platform's",
        "select i.id from invitations i where not exists \
         (select 1 from customers c where c.id = i.inviter and c.platform = i.platform)",
    ),
    rule(
        S4,
        "identity_checks",
        "the identity check {} is of a customer who is not its platform's",
        "select k.id from identity_checks k where not exists \
         (select 1 from customers c where c.id = k.customer and c.platform = k.platform)",
    ),
    rule(
        S4,
        "attention",
        "Attention:{} is about nothing of its platform's",
        "select a.id from attention a where not exists \
         (select 1 from transactions t where t.id = a.subject and t.platform = a.platform) \
         and not exists (select 1 from platforms p where p.id = a.subject and p.id = a.platform)",
    ),
    rule(
        S4,
        "approvals",
        "the approval of Transaction:{} is another platform's to give",
        "select a.transaction_id from approvals a join transactions t on t.id = a.transaction_id \
         where t.direction = 'INCOMING' and t.platform <> a.platform",
    ),
    rule(
        S4,
        "events",
        "an event of {} goes to another platform",
        "select e.resource from {other_events} e join (select id, platform from customers \
         union all select id, platform from invitations \
         union all select id, platform from bulk_imports) r on r.id = e.resource \
         where r.platform <> e.platform",
    ),
    rule(
        C1,
        "customers",
        "Customer:{} has a default deposit account that is not its own, or was switched off",
        "select c.id from customers c where c.default_uma_deposit_account is not null \
         and not exists (select 1 from external_accounts x \
         where x.id = c.default_uma_deposit_account and x.owner_kind = 'CUSTOMER' \
         and x.owner = c.id and x.status <> 'INACTIVE')",
    ),
    rule(
        C2,
        "uma_addresses",
        "Customer:{} has an address and is not there",
        "select customer from uma_addresses where customer not in (select id from customers)",
    ),
    rule(
        B2,
        "payment_hashes",
        "Transaction:{} has a payment hash and is not there",
        "select payment from payment_hashes where payment not in (select id from transactions)",
    ),
    rule(
        C3,
        "invitations",
        "Invitation:{} has ended without a time, or has a time and has not ended",
        "select id from invitations where (status = 'PENDING') <> (ended_at is null)",
    ),
    rule(
        C3,
        "invitations",
        "Invitation:{} ended before it was made",
        "select id from invitations where ended_at < created_at",
    ),
    rule(
        C3,
        "invitations",
        "Invitation:{} is open and has no timer, or the other way round",
        "select i.id from invitations i \
         where (i.status = 'PENDING' and i.expires_at is not null) <> exists \
         (select 1 from timers m where m.subject = i.id and m.kind = 'EXPIRE_INVITATION')",
    ),
    rule(
        C4,
        "identity_checks",
        "the identity check {} is open, and its customer waits for another or for none",
        "select k.id from identity_checks k where k.status = 'OPEN' and not exists \
         (select 1 from customers c where c.id = k.customer and c.identity_check = k.id \
         and c.kyc_status in ({undecided}))",
    ),
    rule(
        C4,
        "customers",
        "the latest identity check of Customer:{} is not there",
        "select c.id from customers c where c.identity_check is not null and not exists \
         (select 1 from identity_checks k where k.id = c.identity_check and k.customer = c.id)",
    ),
    rule(
        C4,
        "identity_checks",
        "the identity check {} is open and has no timer, or the other way round",
        "select k.id from identity_checks k where (k.status = 'OPEN') <> exists \
         (select 1 from timers m where m.subject = k.id and m.kind = 'EXPIRE_IDENTITY_CHECK')",
    ),
    rule(
        C5,
        "bulk_imports",
        "the import {} has other parts than it says",
        "select b.id from bulk_imports b left join (select import, count(*) as parts, \
         min(number) as first, max(number) as last from bulk_parts group by import) f \
         on f.import = b.id \
         where coalesce(f.parts, 0) <> b.parts or f.first <> 0 or f.last <> b.parts - 1",
    ),
    // The only part of a file that cannot be read says why.
    rule(
        C5,
        "bulk_parts",
        "the parts of the import {} were not gone through in order",
        "select b.id from bulk_imports b join bulk_parts f on f.import = b.id where f.done <> \
         case when b.status in ('COMPLETED', 'FAILED') or f.number < b.parts_done \
         then 1 else 0 end",
    ),
    rule(
        C5,
        "bulk_parts",
        "the import {} has parts and is not there",
        "select import from bulk_parts where import not in (select id from bulk_imports)",
    ),
    rule(
        C5,
        "bulk_imports",
        "the import {} has more to do and no timer, or the other way round",
        "select b.id from bulk_imports b where (b.status not in ('COMPLETED', 'FAILED')) <> exists \
         (select 1 from timers m where m.subject = b.id and m.kind = 'IMPORT_CUSTOMERS')",
    ),
    rule(
        A1,
        "approvals",
        "the approval of Transaction:{} is of no incoming payment",
        "select transaction_id from approvals where transaction_id not in \
         (select id from transactions where direction = 'INCOMING')",
    ),
    rule(
        A1,
        "approvals",
        "Transaction:{} is not where the decision about it led",
        "select a.transaction_id from approvals a join transactions t on t.id = a.transaction_id \
         where t.direction = 'INCOMING' and not coalesce({decided}, false)",
    ),
    rule(
        A1,
        "approvals",
        "the approval of Transaction:{} waits without a timer, or the other way round",
        "select a.transaction_id from approvals a join transactions t on t.id = a.transaction_id \
         where t.direction = 'INCOMING' and (a.status in ({open})) <> exists (select 1 \
         from timers m where m.subject = a.transaction_id and m.kind = 'DECIDE_PAYMENT')",
    ),
    rule(
        A1,
        "approvals",
        "Transaction:{} waits for an approval that was not requested",
        "select subject from timers where kind = 'DECIDE_PAYMENT' \
         and subject not in (select transaction_id from approvals) \
         and subject not in (select id from transactions where status = 'CREATED')",
    ),
    rule(
        H4,
        "open_payments",
        "Customer:{} has another number of payments under way than it counts",
        "select coalesce(t.owner, c.customer) from {uncovered} t \
         full join open_payments c on c.customer = t.owner \
         where coalesce(t.payments, 0) <> coalesce(c.count, 0) or c.count < 1",
    ),
    rule(
        E4,
        "events",
        "an event of Customer:{} is before the one before it",
        "select resource from (select resource, at, \
         lag(at) over (partition by resource order by number) as before \
         from {other_events} e where kind = 'KYC_STATUS') s where at < before",
    ),
    rule(
        E4,
        "events",
        "the event of Invitation:{} is not of the time of its claim",
        "select i.id from {other_events} e join invitations i on i.id = e.resource \
         where e.kind = 'INVITATION_CLAIMED' and e.at <> coalesce(i.ended_at, e.at - 1)",
    ),
    rule(
        E5,
        "customers",
        "the KYC status of Customer:{} is not that of its last event",
        "select c.id from customers c left join {counted} e \
         on e.resource = c.id and e.kind = 'KYC_STATUS' where case when c.kyc_status in \
         ({undecided}) then coalesce(e.last, -1) >= c.kyc_changes \
         else coalesce(e.last, 0) <> c.kyc_changes end",
    ),
    rule(
        E5,
        "invitations",
        "Invitation:{} was claimed and has not one event, or was not and has one",
        "select i.id from invitations i left join {counted} e \
         on e.resource = i.id and e.kind = 'INVITATION_CLAIMED' \
         where coalesce(e.events, 0) <> case i.status when 'CLAIMED' then 1 else 0 end \
         or e.last <> 1",
    ),
    rule(
        E5,
        "bulk_imports",
        "the import {} has ended and has not one event, or has not and has one",
        "select b.id from bulk_imports b left join {counted} e \
         on e.resource = b.id and e.kind = 'BULK_UPLOAD' where coalesce(e.events, 0) <> \
         case when b.status in ('COMPLETED', 'FAILED') then 1 else 0 end or e.last <> 1",
    ),
    rule(
        E5,
        "events",
        "an event of {} has no cause",
        "select resource from {other_events} e where case kind \
         when 'KYC_STATUS' then resource not in (select id from customers) \
         when 'INVITATION_CLAIMED' then resource not in (select id from invitations) \
         when 'BULK_UPLOAD' then resource not in (select id from bulk_imports) \
         else resource <> platform end",
    ),
    rule(
        E6,
        "outboxes",
        "the events of PlatformConfig:{} are not numbered from 1 without a gap",
        "select platform from events group by platform \
         having min(ordinal) <> 1 or max(ordinal) <> count(*)",
    ),
    rule(
        E6,
        "outboxes",
        "PlatformConfig:{} has another number of events than its outbox says",
        "select o.platform from outboxes o where o.head <> coalesce \
         ((select max(e.ordinal) from events e where e.platform = o.platform), 0)",
    ),
    rule(
        E6,
        "outboxes",
        "PlatformConfig:{} has events and no count of them",
        "select distinct platform from events \
         where platform not in (select platform from outboxes)",
    ),
    rule(
        E7,
        "ledger_accounts",
        "InternalAccount:{} has another number of events than it says",
        "select e.account from (select substr(account, 2) as account, notified_count \
         from ledger_accounts where must_stay_covered = 1) e left join \
         (select resource, count(*) as events, max(number) as last from events \
         where kind = 'ACCOUNT_STATUS' group by resource) s on s.resource = e.account \
         where coalesce(s.events, 0) <> e.notified_count or coalesce(s.last, 0) <> e.notified_count",
    ),
    rule(
        E7,
        "ledger_accounts",
        "InternalAccount:{} has events and no balance",
        "select distinct resource from events where kind = 'ACCOUNT_STATUS' and resource not in \
         (select substr(account, 2) from ledger_accounts where must_stay_covered = 1)",
    ),
    // Nothing was to be delivered where there was no endpoint.
    rule(
        W1,
        "outboxes",
        "the events of PlatformConfig:{} that were taken have not one delivery each",
        "select o.platform from outboxes o where \
         case o.endpoint when 'NONE' then 0 else o.taken - o.opened end <> \
         (select count(*) from deliveries d where d.platform = o.platform \
         and d.ordinal > o.opened and d.ordinal <= o.taken)",
    ),
    rule(
        I1,
        "idempotency",
        "the answer {} has a status that is not kept",
        "select scope from idempotency where status between 300 and 399",
    ),
];

/// Tables whose rows can have timers.
const TIMED: [&str; 6] = [
    "transactions",
    "quotes",
    "invitations",
    "identity_checks",
    "bulk_imports",
    "external_accounts",
];

/// Timers of rows of a table that are due by another platform's clock.
fn foreign_timers(table: &str) -> String {
    format!(
        "select m.subject from timers m join {table} r on r.id = m.subject \
         where r.platform <> m.platform"
    )
}

/// Timers that no program sets.
fn unknown_timers() -> String {
    let kinds = TimerKind::ALL.map(|kind| format!("'{}'", kind.name())).join(", ");
    format!("select subject from timers where kind not in ({kinds})")
}

/// Each statement with its predicate, the table that it judges, and its break in words.
fn all() -> Vec<(Predicate, &'static str, &'static str, String)> {
    let fragments = fragments();
    let text = |rule: &Rule| {
        fragments.iter().fold(rule.sql.to_owned(), |sql, (name, text)| sql.replace(name, text))
    };
    let of_timers = TIMED.iter().map(|table| {
        let says = "the timer of {} is due by another platform's clock";
        (S4, "timers", says, foreign_timers(table))
    });
    let unknown = (T10, "timers", "the timer of {} is of an unknown kind", unknown_timers());
    let fixed = RULES.iter().map(|rule| (rule.predicate, rule.table, rule.says, text(rule)));
    fixed.chain(of_timers).chain([unknown]).collect()
}

fn count_of(table: &str) -> String {
    format!("select count(*) from {table}")
}

pub(super) fn statements() -> impl Iterator<Item = String> {
    all().into_iter().flat_map(|(_, table, _, sql)| [sql, count_of(table)])
}

/// Runs every statement. One that the engine cannot run to its end does not stop the others.
pub(super) fn check(run: &mut Run<'_>) -> Result<(), StoreError> {
    let mut counted = BTreeSet::new();
    for (predicate, table, says, sql) in all() {
        run.tolerate(|run| {
            let Run { connection, findings, .. } = run;
            if counted.insert((predicate.name(), table)) {
                connection.query(&count_of(table), &[], 1, &mut |values| {
                    let rows = Row::new(table, &["count"], values).int()?;
                    findings.saw(predicate, usize::try_from(rows).unwrap_or(0));
                    Ok(())
                })?;
            }
            connection.query(&sql, &[], 1, &mut |values: Vec<Value>| {
                findings.broke(predicate, says.replace("{}", &shown(values.first())));
                Ok(())
            })
        })?;
    }
    Ok(())
}
