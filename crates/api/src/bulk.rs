//! Imports of many customers from a CSV file (contract 6.5).

mod table;

use axum::extract::multipart::MultipartRejection;
use axum::extract::{Multipart, Path};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use domain::bulk_import::{BulkImport, NewRow, Part, Refusal, Row};
use domain::country::Country;
use domain::id::JobId;
use domain::postcode::has_postal_codes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use service::bulk::{self, File, REFUSALS_SHOWN_MAX, refusals};
use service::customers::NewCustomer;
use service::once::Keyed;
use store::unit::Unit;
use utoipa::ToSchema;

use self::table::{Record, Refused, Table};
use crate::auth::Caller;
use crate::customers::CreateCustomer;
use crate::error::{ApiError, Code, Problem};
use crate::extract::{Acting, Once, not_received, ok};
use crate::validate::Schema as _;

/// Bytes of a file. A file is sealed and committed at once; larger files are split.
pub const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of the form around a file and of other fields, together with it: what is searched for the
/// file is held in memory.
pub const FORM_BYTES_MAX: usize = FILE_BYTES_MAX + 64 * 1024;

/// Rows of a file: 200 parts, which are a minute of work for a busy server.
pub const FILE_ROWS_MAX: usize = 10_000;

/// A CSV file, as a form.
#[derive(ToSchema)]
pub struct BulkFile {
    /// UTF-8 with a header row, separated by commas (RFC 4180), or by the separator of a first line
    /// such as `sep=;`. Empty columns and rows at the end are left out. Every row has `umaAddress`,
    /// `platformCustomerId` and `customerType`; a person also `fullName`, `birthDate`,
    /// `addressLine1`, `city`, `state`, `postalCode` (where the country has postal codes) and
    /// `country`; a business `businessLegalName` and the same address. Optional: `addressLine2`,
    /// `email`, `phoneNumber`, `nationality`, `businessRegistrationNumber`, `businessTaxId`. Other
    /// columns are ignored, but a name that is nearly one of these is refused. A stray quote, a
    /// column given twice and another separator fail the whole file, and no customer is made. A
    /// quote stands around a whole field, or is doubled inside one. At most 10000 rows and 4 MiB.
    #[schema(value_type = String, format = Binary, content_media_type = "text/csv")]
    #[expect(dead_code, reason = "it is only a schema: the form is read as a stream")]
    file: Vec<u8>,
}

/// An import that was taken in.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BulkUpload)]
pub struct BulkUploadBody {
    /// System id.
    #[schema(example = "Job:019542f5-b3e7-7d02-8000-000000000000")]
    job_id: String,
    /// `PENDING`.
    status: &'static str,
}

/// How far an import has come.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkProgress)]
pub struct ProgressBody {
    /// Rows of the file.
    total: u32,
    /// Rows that were gone through.
    processed: u32,
    /// Customers that were made.
    successful: u32,
    /// Rows that were refused.
    failed: u32,
}

/// A row that was refused.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BulkError)]
pub struct RefusalBody {
    /// The platform's name for the customer, or the number of the row such as `row_1`.
    correlation_id: String,
    /// A code of the catalogue, or `invalid_csv_format` for the file as a whole.
    code: String,
    /// The refusal, for people.
    message: String,
    /// More about it, by code.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, nullable = false)]
    details: Option<Map<String, Value>>,
}

/// An import.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BulkImportJob)]
pub struct BulkImportBody {
    /// System id.
    #[schema(example = "Job:019542f5-b3e7-7d02-8000-000000000000")]
    id: String,
    /// Its outcome.
    status: &'static str,
    /// How far it has come.
    progress: ProgressBody,
    /// The first 500 rows that were refused.
    #[schema(max_items = 500)]
    errors: Vec<RefusalBody>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    completed_at: Option<String>,
}

/// The stored data of a refused row, in the order in which it is shown.
#[derive(Serialize, Deserialize)]
struct Said {
    code: String,
    message: String,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    details: Map<String, Value>,
}

fn said(code: &str, message: String, details: Map<String, Value>) -> String {
    let said = Said { code: code.to_owned(), message, details };
    serde_json::to_string(&said).expect("a refusal has text keys only")
}

/// How the refusal of a row by a use case is kept for the report.
pub(crate) fn refusal(error: &service::Error, row: usize) -> String {
    row_said(in_columns(ApiError::from(error.clone())), row)
}

/// How the refusal of a row is kept, with its number from 1.
fn row_said(error: ApiError, row: usize) -> String {
    let ApiError { code, message, mut details, .. } = error;
    details.insert("row".to_owned(), json!(row));
    said(code.name(), message, details)
}

impl BulkImportBody {
    /// An import with what was refused of it.
    pub fn new(import: &BulkImport, refused: &[Refusal]) -> Self {
        let (draft, progress) = (import.draft(), import.progress());
        let counts = progress.counts;
        let body = |refusal: &Refusal| {
            let said = serde_json::from_str::<Said>(&refusal.body).ok()?;
            Some(RefusalBody {
                correlation_id: refusal.label.clone(),
                code: said.code,
                message: said.message,
                details: (!said.details.is_empty()).then_some(said.details),
            })
        };
        Self {
            id: draft.id.to_string(),
            status: progress.status.name(),
            progress: ProgressBody {
                total: draft.total,
                processed: counts.successful + counts.failed,
                successful: counts.successful,
                failed: counts.failed,
            },
            errors: refused.iter().take(REFUSALS_SHOWN_MAX).filter_map(body).collect(),
            completed_at: progress.status.is_final().then(|| progress.updated_at.to_string()),
        }
    }
}

/// Columns without which a file is none.
const COLUMNS_OF_ALL: [&str; 3] = ["umaAddress", "platformCustomerId", "customerType"];

/// Further required fields of each type of customer, with their path in the body of a new customer.
type Columns = [(&'static str, &'static str)];

const OF_INDIVIDUAL: &Columns = &[
    ("fullName", "fullName"),
    ("birthDate", "birthDate"),
    ("addressLine1", "address.line1"),
    ("city", "address.city"),
    ("state", "address.state"),
    ("postalCode", "address.postalCode"),
    ("country", "address.country"),
];

const OF_BUSINESS: &Columns = &[
    ("businessLegalName", "businessInfo.legalName"),
    ("addressLine1", "address.line1"),
    ("city", "address.city"),
    ("state", "address.state"),
    ("postalCode", "address.postalCode"),
    ("country", "address.country"),
];

const OPTIONAL_OF_INDIVIDUAL: &Columns =
    &[("nationality", "nationality"), ("addressLine2", "address.line2"), EMAIL, PHONE_NUMBER];

const OPTIONAL_OF_BUSINESS: &Columns = &[
    ("addressLine2", "address.line2"),
    ("businessRegistrationNumber", "businessInfo.registrationNumber"),
    ("businessTaxId", "businessInfo.taxId"),
    EMAIL,
    PHONE_NUMBER,
];

const EMAIL: (&str, &str) = ("email", "email");
const PHONE_NUMBER: (&str, &str) = ("phoneNumber", "phoneNumber");

/// Every column that is read.
fn known_columns() -> Vec<&'static str> {
    let of_types = [OF_INDIVIDUAL, OF_BUSINESS, OPTIONAL_OF_INDIVIDUAL, OPTIONAL_OF_BUSINESS];
    let of_types = of_types.into_iter().flatten().map(|(column, _)| *column);
    COLUMNS_OF_ALL.into_iter().chain(of_types).collect()
}

/// Reads a file as rows. Each row has its own errors.
fn read(bytes: &[u8]) -> File {
    match Table::read(bytes, &COLUMNS_OF_ALL, &known_columns(), FILE_ROWS_MAX) {
        Ok(Table { header, rows }) => {
            let rows = (1..).zip(rows).map(|(number, record)| row(number, &header, record));
            File::Rows(rows.collect())
        }
        Err(refused) => broken(refused),
    }
}

/// The refusal of the file as a whole.
fn broken(refused: Refused) -> File {
    let Refused { reason, message, column, row, line } = refused;
    let mut details = Map::from_iter([("reason".to_owned(), json!(reason))]);
    details.extend(column.map(|column| ("column".to_owned(), json!(column))));
    details.extend(row.map(|row| ("row".to_owned(), json!(row))));
    details.extend(line.map(|line| ("line".to_owned(), json!(line))));
    let body = said("invalid_csv_format", message, details);
    File::Broken(Refusal { label: "file".to_owned(), body })
}

fn row(number: usize, header: &csv::StringRecord, record: Record) -> Row {
    let numbered = format!("row_{number}");
    let refuse =
        |label: String, error: ApiError| Row { label, content: Err(row_said(error, number)) };
    let record = match record {
        Ok(record) => record,
        Err(fields) => {
            let columns = header.len();
            let message = format!("the row has {fields} fields, and the header {columns} columns");
            return refuse(numbered, ApiError::new(Code::InvalidInput, message));
        }
    };
    let cells = || header.iter().zip(record.iter());
    let field = |name: &str| {
        let value = cells().find(|(column, _)| *column == name).map(|(_, value)| value);
        value.filter(|value| !value.is_empty())
    };
    let label =
        field("platformCustomerId").map_or(numbered, |name| name.chars().take(255).collect());
    let problems: Vec<_> = cells()
        .filter(|(_, value)| value.chars().any(char::is_control))
        .map(|(column, value)| {
            let is_broken = value.contains(['\r', '\n']);
            let what =
                if is_broken { "a line break between quotes" } else { "a control character" };
            Problem::new(column, format!("must not have {what}"))
        })
        .collect();
    let new = match problems.is_empty() {
        true => customer(field),
        false => Err(ApiError::fields(Code::InvalidInput, problems)),
    };
    match new {
        Ok(new) => Row { label, content: Ok(new) },
        Err(error) => refuse(label, in_columns(error)),
    }
}

/// The customer that a row asks for, checked like the body of a single one.
fn customer<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Result<NewRow, ApiError> {
    let customer_type = field("customerType").unwrap_or_default();
    let (required, optional) = match customer_type {
        "BUSINESS" => (OF_BUSINESS, OPTIONAL_OF_BUSINESS),
        _ => (OF_INDIVIDUAL, OPTIONAL_OF_INDIVIDUAL),
    };
    let country = field("country").and_then(|code| Country::parse(code).ok());
    let has_postal_codes = country.is_none_or(has_postal_codes);
    let needed = COLUMNS_OF_ALL.into_iter().chain(required.iter().map(|(column, _)| *column));
    let missing: Vec<_> = needed
        .filter(|column| *column != "postalCode" || has_postal_codes)
        .filter(|column| field(column).is_none())
        .map(|column| Problem::new(column, "is required"))
        .collect();
    if !missing.is_empty() {
        return Err(ApiError::fields(Code::InvalidInput, missing));
    }
    let mut body = json!({
        "customerType": customer_type,
        "platformCustomerId": field("platformCustomerId"),
        "umaAddress": field("umaAddress"),
    });
    for (column, place) in required.iter().chain(optional) {
        if let Some(value) = field(column) {
            match place.split_once('.') {
                Some((object, name)) => body[object][name] = json!(value),
                None => body[*place] = json!(value),
            }
        }
    }
    CreateCustomer::check(&body)?;
    let new = serde_json::from_value::<CreateCustomer>(body).map_err(|_| {
        ApiError::new(Code::InvalidInput, "the row has a value that is not allowed").at("row")
    })?;
    let new = NewCustomer::try_from(new)?;
    Ok(NewRow {
        platform_customer_id: new.platform_customer_id.unwrap_or_default(),
        uma_address: new.uma_address.unwrap_or_default(),
        identity: new.identity,
    })
}

/// The refusal with the names of columns in the place of the names of fields.
fn in_columns(mut error: ApiError) -> ApiError {
    let all = [OF_INDIVIDUAL, OF_BUSINESS, OPTIONAL_OF_INDIVIDUAL, OPTIONAL_OF_BUSINESS];
    let column = |value: &mut Value| {
        let known = all.into_iter().flatten().find(|(_, place)| *value == *place);
        if let Some((column, _)) = known {
            *value = json!(column);
        }
    };
    if let Some(field) = error.details.get_mut("field") {
        column(field);
    }
    let errors = error.details.get_mut("errors").and_then(Value::as_array_mut);
    for entry in errors.into_iter().flatten() {
        column(&mut entry["field"]);
    }
    error
}

/// The bytes of the form's `file`.
async fn upload(form: Result<Multipart, MultipartRejection>) -> Result<Vec<u8>, ApiError> {
    let refuse = |_| {
        let message = "send Content-Type: multipart/form-data with the field file";
        ApiError::new(Code::UnsupportedMediaType, message)
    };
    let mut form = form.map_err(refuse)?;
    let unreadable = |error: axum::extract::multipart::MultipartError| {
        // The form may be right: its bytes have not all arrived.
        if error.status().is_server_error() {
            return not_received(&error);
        }
        if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let message = format!("the form is larger than {FORM_BYTES_MAX} bytes; split the file");
            return ApiError::new(Code::PayloadTooLarge, message);
        }
        let message = "is not in the form: check its boundary and its parts";
        ApiError::fields(Code::InvalidInput, vec![Problem::new("file", message)])
    };
    let mut file = None;
    while let Some(mut field) = form.next_field().await.map_err(unreadable)? {
        if field.name() != Some("file") {
            continue;
        }
        if file.is_some() {
            let problem = Problem::new("file", "is given twice; send one file at a time");
            return Err(ApiError::fields(Code::InvalidInput, vec![problem]));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = field.chunk().await.map_err(unreadable)? {
            if bytes.len() + chunk.len() > FILE_BYTES_MAX {
                let message = format!("the file is larger than {FILE_BYTES_MAX} bytes; split it");
                return Err(ApiError::new(Code::PayloadTooLarge, message));
            }
            bytes.extend_from_slice(&chunk);
        }
        file = Some(bytes);
    }
    let missing =
        || ApiError::fields(Code::InvalidInput, vec![Problem::new("file", "is required")]);
    file.ok_or_else(missing)
}

/// Import customers from a CSV file.
///
/// The rows are taken one part of the file after another; the platform is notified with
/// `BULK_UPLOAD` when all were.
#[utoipa::path(post, path = "/customers/bulk/csv",
    operation_id = "importCustomers", tag = "Customers",
    request_body(content = BulkFile, content_type = "multipart/form-data"),
    responses((status = 202, description = "The import.", body = BulkUploadBody)))]
pub async fn create(
    Acting(app): Acting,
    request: Once,
    form: Result<Multipart, MultipartRejection>,
) -> Response {
    let bytes = match upload(form).await {
        Ok(bytes) => bytes,
        // A body that stops in the middle is the client's to repeat, so this is no first answer.
        Err(refusal) if refusal.code == Code::RequestTimeout => return refusal.into_response(),
        Err(refusal) => return request.refuse(refusal).await,
    };
    request.has_body(&bytes);
    // Thousands of rows are checked, which would keep a thread of the runtime from others.
    let file = match tokio::task::spawn_blocking(move || read(&bytes)).await {
        Ok(file) => file,
        Err(error) => {
            let what = format!("a file could not be read: {error}");
            return ApiError::from(service::Error::Internal(what)).into_response();
        }
    };
    let Keyed { platform, ahead, .. } = request.keyed();
    let now = app.now(ahead);
    let id = app.new_id(ahead, now);
    let body = |import: &BulkImport| BulkUploadBody {
        job_id: import.id().to_string(),
        status: import.progress().status.name(),
    };
    let work = move |unit: &mut Unit<'_, '_>| bulk::begin(&app, unit, platform, &file, id, now);
    request.run(202, body, work).await
}

/// Get a customer import.
///
/// Says how far an import has come, and which rows were refused.
#[utoipa::path(get, path = "/customers/bulk/jobs/{jobId}",
    operation_id = "getCustomerImport", tag = "Customers",
    params(("jobId" = String, Path, description = "System id of the import.")),
    responses((status = 200, description = "The import.", body = BulkImportBody)))]
pub async fn get(
    Acting(app): Acting,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Response, ApiError> {
    let not_found = || {
        let shown: String = job.chars().take(80).collect();
        ApiError::new(Code::BulkUploadJobNotFound, format!("there is no import {shown}"))
            .with("jobId", shown)
    };
    let id = JobId::parse(&job).map_err(|_| not_found())?;
    let platform = caller.platform.id;
    let found = app
        .store()
        .read(move |view| {
            let import = view.get::<BulkImport>(&id)?;
            let Some(import) = import.filter(|import| import.draft().platform == platform) else {
                return Ok::<_, store::error::StoreError>(None);
            };
            let refused = refusals(import.draft().parts, id, |key| view.get::<Part>(key))?;
            Ok(Some(BulkImportBody::new(&import, &refused)))
        })
        .await?;
    Ok(ok(&found.ok_or_else(not_found)?))
}
