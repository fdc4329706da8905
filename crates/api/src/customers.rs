//! Customers (specification 2.6, 4.5, 4.6; contract 6.3).

mod requests;

use axum::extract::{Path, Query};
use axum::response::Response;
use domain::country::Country;
use domain::currency::Currency;
use domain::customer::{BeneficialOwner, Contact, Customer, Identity, KycStatus};
use domain::id::CustomerId;
use domain::uma_address::UmaAddress;
use serde::{Deserialize, Serialize};
use service::customers::{self, CustomerChange, NewCustomer};
use service::error::CustomerError;
use service::expiry;
use service::once::Keyed;
use store::customers::CustomerFilter;
use utoipa::{IntoParams, ToSchema};

use crate::auth::Caller;
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{Acting, Json, Once, ok, respond};
use crate::page::{Cursors, List};
use crate::query;
use crate::validate::Checks;
use crate::wire::{AddressBody, Number};

pub use requests::{BeneficialOwnerBody, BusinessInfoBody, CreateCustomer, UpdateCustomer};

/// A customer; `customerType` selects the variant.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "customerType")]
#[schema(as = Customer)]
pub enum CustomerBody {
    /// A person.
    #[serde(rename = "INDIVIDUAL")]
    Individual(IndividualBody),
    /// A business.
    #[serde(rename = "BUSINESS")]
    Business(BusinessBody),
}

/// Adds the fields that every customer has to the body of one kind.
macro_rules! of_every_customer {
    ($(#[$about:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$about])*
        pub struct $name {
            $($fields)*
            /// E-mail address.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            email: Option<String>,
            /// Phone number, E.164.
            #[serde(skip_serializing_if = "Option::is_none")]
            #[schema(nullable = false)]
            phone_number: Option<String>,
            /// The currencies that the customer uses, if its platform named them.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            #[schema(required = false)]
            currencies: Vec<&'static str>,
            /// Whether it was deleted.
            is_deleted: bool,
            /// When it was made.
            #[schema(format = DateTime)]
            created_at: String,
            /// When it last changed.
            #[schema(format = DateTime)]
            updated_at: String,
        }
    };
}

of_every_customer! {
    /// A customer that is a person.
    #[derive(Debug, Serialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    #[schema(as = IndividualCustomer)]
    pub struct IndividualBody {
        /// System id.
        #[schema(example = "Customer:019542f5-b3e7-7d02-8000-000000000000")]
        id: String,
        /// The platform's own name for it.
        platform_customer_id: String,
        /// Its address.
        #[schema(example = "$ada@localhost:8080")]
        uma_address: String,
        /// Its identity status.
        kyc_status: &'static str,
        /// Full name.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        full_name: Option<String>,
        /// Date of birth.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, format = Date)]
        birth_date: Option<String>,
        /// ISO 3166-1 alpha-2 code.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        nationality: Option<&'static str>,
        /// Where the person lives.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, required = false)]
        address: Option<AddressBody>,
    }
}

of_every_customer! {
    /// A customer that is a business.
    #[derive(Debug, Serialize, ToSchema)]
    #[serde(rename_all = "camelCase")]
    #[schema(as = BusinessCustomer)]
    pub struct BusinessBody {
        /// System id.
        #[schema(example = "Customer:019542f5-b3e7-7d02-8000-000000000000")]
        id: String,
        /// The platform's own name for it.
        platform_customer_id: String,
        /// Its address.
        uma_address: String,
        /// Its identity status.
        kyb_status: &'static str,
        /// Where it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false, required = false)]
        address: Option<AddressBody>,
        /// Its entry in the register.
        business_info: BusinessInfoBody,
        /// The persons behind it.
        beneficial_owners: Vec<BeneficialOwnerBody>,
    }
}

/// The status of which an event about a customer tells.
pub(crate) fn identity_status(event: &[u8]) -> Option<KycStatus> {
    #[derive(Deserialize)]
    struct Envelope {
        data: Data,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        kyc_status: Option<String>,
        kyb_status: Option<String>,
    }
    let Envelope { data } = serde_json::from_slice(event).ok()?;
    KycStatus::from_name(&data.kyc_status.or(data.kyb_status)?)
}

impl From<&Customer> for CustomerBody {
    fn from(customer: &Customer) -> Self {
        let id = customer.id.to_string();
        let platform_customer_id = customer.platform_customer_id.clone();
        let uma_address = customer.uma_address.to_string();
        let status = customer.kyc.status().name();
        let Contact { email, phone_number, currencies } = customer.identity.contact().clone();
        let currencies = currencies.into_iter().map(Currency::code).collect();
        let is_deleted = customer.is_deleted;
        let created_at = customer.created_at.to_string();
        let updated_at = customer.updated_at.to_string();
        match &customer.identity {
            Identity::Individual(person) => Self::Individual(IndividualBody {
                id,
                platform_customer_id,
                uma_address,
                kyc_status: status,
                full_name: person.full_name.clone(),
                birth_date: person.birth_date.map(|date| date.to_string()),
                nationality: person.nationality.map(Country::code),
                address: person.address.as_ref().map(AddressBody::from),
                email,
                phone_number,
                currencies,
                is_deleted,
                created_at,
                updated_at,
            }),
            Identity::Business(business) => Self::Business(BusinessBody {
                id,
                platform_customer_id,
                uma_address,
                kyb_status: status,
                address: business.address.as_ref().map(AddressBody::from),
                business_info: BusinessInfoBody {
                    legal_name: business.legal_name.clone(),
                    registration_number: business.registration_number.clone(),
                    tax_id: business.tax_id.clone(),
                },
                beneficial_owners: business.beneficial_owners.iter().map(owner_body).collect(),
                email,
                phone_number,
                currencies,
                is_deleted,
                created_at,
                updated_at,
            }),
        }
    }
}

fn owner_body(owner: &BeneficialOwner) -> BeneficialOwnerBody {
    let share = owner.percentage_ownership.and_then(|share| {
        serde_json::to_string(&Number(share)).ok().and_then(|digits| digits.parse().ok())
    });
    BeneficialOwnerBody {
        full_name: owner.full_name.clone(),
        individual_type: owner.individual_type.to_owned(),
        email_address: owner.email_address.clone(),
        phone_number: owner.phone_number.clone(),
        tax_id: owner.tax_id.clone(),
        birth_date: owner.birth_date.map(|date| date.to_string()),
        nationality: owner.nationality.map(|country| country.to_string()),
        address: owner.address.as_ref().map(AddressBody::from),
        percentage_ownership: share,
        title: owner.title.clone(),
    }
}

fn body(customer: &Customer) -> CustomerBody {
    CustomerBody::from(customer)
}

impl From<CustomerError> for ApiError {
    fn from(error: CustomerError) -> Self {
        let plain = |code| Self::new(code, error.to_string());
        match &error {
            CustomerError::NotFound { id } => {
                plain(Code::UserNotFound).with("customerId", id.to_string())
            }
            CustomerError::Deleted { id } => {
                plain(Code::CustomerDeleted).with("customerId", id.to_string())
            }
            CustomerError::NotReady { id, status } => plain(Code::UserNotReady)
                .with("customerId", id.to_string())
                .with("kycStatus", status.name()),
            CustomerError::DataMissing { id, currency, fields } => {
                plain(Code::MissingMandatoryUserInfo)
                    .with("field", "customerId")
                    .with("customerId", id.to_string())
                    .with("currency", currency.code())
                    .with("missingFields", fields.clone())
            }
            CustomerError::UmaAddressTaken { address } => {
                plain(Code::UmaAddressExists).with("umaAddress", address.as_str())
            }
            CustomerError::IdentityCheckOver => plain(Code::Conflict),
        }
    }
}

/// The customer that a path names.
fn id(text: &str) -> Result<CustomerId, ApiError> {
    CustomerId::parse(text).map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        ApiError::new(Code::UserNotFound, format!("there is no customer {shown}"))
            .with("customerId", shown)
    })
}

/// Create a customer.
///
/// Its internal accounts, one per supported currency, exist from now on.
#[utoipa::path(post, path = "/customers",
    operation_id = "createCustomer", tag = "Customers", request_body = CreateCustomer,
    responses(
        (status = 201, description = "The customer.", body = CustomerBody),
        (status = 409, description = "The UMA address is taken.", body = ErrorBody),
        (status = 410, description = "The customer of this idempotency key was erased.",
            body = ErrorBody),
    ))]
pub async fn create(
    Acting(app): Acting,
    request: Once,
    Json(new): Json<CreateCustomer>,
) -> Response {
    let new = match new.and_then(NewCustomer::try_from) {
        Ok(new) => new,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let drawn = customers::draw(&app, ahead);
    request.run(201, body, move |unit| customers::create(unit, platform, &new, &drawn)).await
}

/// Which customers are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub struct ListCustomers {
    /// Exactly this name of the platform's.
    platform_customer_id: Option<String>,
    /// `INDIVIDUAL` or `BUSINESS`.
    customer_type: Option<String>,
    /// Exactly this address.
    uma_address: Option<String>,
    /// Made then or later.
    #[param(format = DateTime)]
    created_after: Option<String>,
    /// Made then or earlier.
    #[param(format = DateTime)]
    created_before: Option<String>,
    /// Changed then or later.
    #[param(format = DateTime)]
    updated_after: Option<String>,
    /// Changed then or earlier.
    #[param(format = DateTime)]
    updated_before: Option<String>,
    /// Whether deleted customers are listed too.
    #[param(value_type = Option<bool>, default = false)]
    is_including_deleted: Option<String>,
    /// Rows of a page.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 100, default = 20)]
    limit: Option<String>,
    /// The `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List customers.
///
/// The newest come first.
#[utoipa::path(get, path = "/customers",
    operation_id = "listCustomers", tag = "Customers", params(ListCustomers),
    responses((status = 200, description = "A page of customers.", body = List<CustomerBody>)))]
pub async fn list(
    Acting(app): Acting,
    caller: Caller,
    Query(query): Query<ListCustomers>,
) -> Result<Response, ApiError> {
    let mut checks = Checks::new();
    let cursors = Cursors::new(&app, caller.platform.id, "customers");
    let (limit, cursor) = (query.limit.as_deref(), query.cursor.as_deref());
    let page = cursors.request(&mut checks, limit, cursor, Default::default());
    let including_deleted = query.is_including_deleted.as_deref();
    let mut filter = CustomerFilter {
        customer_type: checks.named_if("customerType", query.customer_type.as_deref(), |name| {
            Identity::TYPES.into_iter().find(|known| *known == name)
        }),
        uma_address: None,
        created_after: checks.time_if("createdAfter", query.created_after.as_deref()),
        created_before: checks.time_if("createdBefore", query.created_before.as_deref()),
        updated_after: checks.time_if("updatedAfter", query.updated_after.as_deref()),
        updated_before: checks.time_if("updatedBefore", query.updated_before.as_deref()),
        including_deleted: checks
            .named_if("isIncludingDeleted", including_deleted, |name| name.parse().ok())
            .unwrap_or(false),
        platform_customer_id: query.platform_customer_id,
        kyc_status: None,
    };
    if let Some(text) = query.uma_address {
        let parsed = UmaAddress::parse(&text);
        if let Err(error) = &parsed
            && checks.is_clean()
        {
            let reason = format!("{error}{}", query::hint(&text));
            return Err(service::Error::Uma(service::error::UmaError::InvalidAddress {
                address: text,
                reason,
            })
            .into());
        }
        filter.uma_address = checks.take("umaAddress", parsed);
    }
    checks.done()?;
    let platform = caller.platform.id;
    expiry::catch_up(&app, platform).await?;
    let page = app.store().read(move |view| view.customers(platform, &filter, page)).await?;
    Ok(ok(&cursors.list(page, |customer| customer.id.uuid(), body)))
}

/// Get a customer.
///
/// A deleted one too.
#[utoipa::path(get, path = "/customers/{customerId}",
    operation_id = "getCustomer", tag = "Customers",
    params(("customerId" = String, Path, description = "System id of the customer.")),
    responses((status = 200, description = "The customer.", body = CustomerBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(customer): Path<String>,
) -> Result<Response, ApiError> {
    let customer = expiry::customer(&app, &caller.platform, id(&customer)?).await?;
    Ok(ok(&body(&customer)))
}

/// Update a customer.
#[utoipa::path(patch, path = "/customers/{customerId}",
    operation_id = "updateCustomer", tag = "Customers",
    request_body = UpdateCustomer,
    params(("customerId" = String, Path, description = "System id of the customer.")),
    responses(
        (status = 200, description = "The customer.", body = CustomerBody),
        (status = 409, description = "The UMA address is taken.", body = ErrorBody),
        (status = 410, description = "The customer was deleted.", body = ErrorBody),
    ))]
pub async fn update(
    Acting(app): Acting,
    request: Once,
    Path(customer): Path<String>,
    Json(change): Json<UpdateCustomer>,
) -> Response {
    let change = match change.and_then(CustomerChange::try_from) {
        Ok(change) => change,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let id = match id(&customer) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let work = move |unit: &mut store::unit::Unit<'_, '_>| {
        customers::update(&app, unit, platform, id, &change, now)
    };
    request.run(200, body, work).await
}

/// Delete a customer.
///
/// It must have no money and no payment under way. Its records stay readable.
#[utoipa::path(delete, path = "/customers/{customerId}",
    operation_id = "deleteCustomer", tag = "Customers",
    params(("customerId" = String, Path, description = "System id of the customer.")),
    responses(
        (status = 200, description = "The customer, deleted.", body = CustomerBody),
        (status = 409, description = "It has money or a payment under way.", body = ErrorBody),
        (status = 410, description = "It was deleted before.", body = ErrorBody),
    ))]
pub async fn delete(Acting(app): Acting, request: Once, Path(customer): Path<String>) -> Response {
    let id = match id(&customer) {
        Ok(id) => id,
        Err(refusal) => return request.refuse(refusal).await,
    };
    let render = request.renderer(200, body);
    respond(customers::delete(&app, request.keyed(), id, render).await)
}
