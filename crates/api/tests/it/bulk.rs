//! Imports of many customers (contract 6.5).

use domain::bulk_import::{Part, PartContent};
use domain::id::JobId;
use serde_json::{Value, json};
use service::jobs;
use store::bulk_imports::PartKey;

use crate::support::{Answer, Call, Client, Server, text};

const HEADER: &str = "umaAddress,platformCustomerId,customerType,fullName,birthDate,addressLine1,\
    city,state,postalCode,country,businessLegalName";

/// A row about a person, by its number.
fn person(number: usize) -> String {
    format!(
        "$person{number}@uma.test,person-{number},INDIVIDUAL,Ada Lovelace,1985-12-10,\
         \"1, High St\",London,LND,N1,GB,"
    )
}

fn file(rows: impl IntoIterator<Item = String>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    format!("{HEADER}\r\n{}\r\n", rows.join("\r\n"))
}

/// A form with one field.
fn form(name: &str, content: &[u8]) -> Call {
    let head = format!(
        "--edge\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"c.csv\"\r\n\
         content-type: text/csv\r\n\r\n"
    );
    let body = [head.as_bytes(), content, b"\r\n--edge--\r\n"].concat();
    Call::raw(body).header("content-type", "multipart/form-data; boundary=edge")
}

impl Client {
    async fn upload(&self, content: &[u8]) -> Answer {
        self.send("POST", "/customers/bulk/csv", form("file", content)).await
    }

    async fn import(&self, job: &Value) -> Value {
        self.get(&format!("/customers/bulk/jobs/{}", text(job))).await.expect(200).clone()
    }
}

impl Server {
    /// The events about an import.
    async fn notified_of_import(&self, job: &Value) -> Vec<Value> {
        let id = JobId::parse(&text(job)).expect("an id").uuid();
        let events = self.events_of(id).await;
        let body = |body: &[u8]| serde_json::from_slice(body).expect("JSON");
        events.iter().map(|event| body(&event.body)).collect()
    }
}

#[tokio::test]
async fn rows_become_customers_and_what_is_wrong_is_named() {
    let server = Server::new();
    let client = server.platform().await;
    let rows = [
        person(1),
        "$works@uma.test,works,BUSINESS,,,2 Side St,Berlin,BE,10115,DE,Works GmbH".to_owned(),
        // Its address was given to the first row.
        person(1).replace("person-1", "twin"),
        "$late@uma.test,late,INDIVIDUAL,,1985-13-10,,London,LND,N1,GB,".to_owned(),
        person(5).replace("1985-12-10", "1985-02-30").replace(",GB,", ",XX,"),
        person(6).replace("@uma.test", "@elsewhere.test"),
        "too,short".to_owned(),
        person(8).replace("person-8", ""),
        person(9).replace("INDIVIDUAL", "ROBOT"),
        person(10).replace("Ada Lovelace", "\"Ada\nLovelace\""),
    ];
    let taken = client.upload(file(rows).as_bytes()).await.expect(202).clone();
    assert_eq!(taken["status"], "PENDING");
    let job = &taken["jobId"];
    let before = client.import(job).await;
    assert_eq!(
        before,
        json!({
            "id": job,
            "status": "PENDING",
            "progress": { "total": 10, "processed": 0, "successful": 0, "failed": 0 },
            "errors": [],
        })
    );
    server.pass(0).await;
    let import = client.import(job).await;
    assert_eq!(import["status"], "COMPLETED");
    let progress = json!({ "total": 10, "processed": 10, "successful": 2, "failed": 8 });
    assert_eq!(import["progress"], progress);
    assert!(import["completedAt"].is_string());
    let errors = import["errors"].as_array().expect("errors");
    let shown: Vec<_> = errors
        .iter()
        .map(|error| {
            let fields = error["details"]["errors"].as_array().into_iter().flatten();
            let mut fields: Vec<_> = fields.map(|field| text(&field["field"])).collect();
            fields.sort();
            (text(&error["correlationId"]), text(&error["code"]), fields.join(" "))
        })
        .collect();
    let expected = [
        ("twin", "UMA_ADDRESS_EXISTS", ""),
        ("late", "INVALID_INPUT", "addressLine1 fullName"),
        ("person-5", "INVALID_INPUT", "birthDate country"),
        ("person-6", "INVALID_UMA_ADDRESS", ""),
        ("row_7", "INVALID_INPUT", ""),
        ("row_8", "INVALID_INPUT", "platformCustomerId"),
        ("person-9", "INVALID_INPUT", "customerType"),
        ("person-10", "INVALID_INPUT", "fullName"),
    ];
    let expected: Vec<_> = expected
        .iter()
        .map(|(id, code, fields)| ((*id).to_owned(), (*code).to_owned(), (*fields).to_owned()))
        .collect();
    assert_eq!(shown, expected);
    let list = client.get("/customers").await.expect(200).clone();
    assert_eq!(list["totalCount"], 2);
    let ada = &list["data"][1];
    assert_eq!(
        (&ada["platformCustomerId"], &ada["fullName"]),
        (&json!("person-1"), &json!("Ada Lovelace"))
    );
    assert_eq!(ada["address"]["line1"], "1, High St");
    assert_eq!(list["data"][0]["businessInfo"]["legalName"], "Works GmbH");
    let notified = server.notified_of_import(job).await;
    assert_eq!(notified.len(), 1);
    assert_eq!((&notified[0]["type"], &notified[0]["data"]), (&json!("BULK_UPLOAD"), &import));
    server.verify();
}

/// Spreadsheets leave empty columns and rows, and say in a first line what separates.
#[tokio::test]
async fn a_file_as_a_spreadsheet_writes_it_is_imported() {
    let server = Server::new();
    let client = server.platform().await;
    let empty = ",".repeat(12);
    let wide = format!(
        "\u{feff}{HEADER},,\r\n{},,\r\n{empty}\r\n{},,,\r\n{empty}\r\n",
        person(1),
        person(2)
    );
    let semicolons = file([person(3)]).replace("\"1, High St\"", "1 High St").replace(',', ";");
    let semicolons = format!("sep=;\r\n{semicolons}");
    for (content, rows) in [(wide, 2), (semicolons, 1)] {
        let taken = client.upload(content.as_bytes()).await.expect(202).clone();
        server.pass(0).await;
        let import = client.import(&taken["jobId"]).await;
        assert_eq!((&import["status"], &import["errors"]), (&json!("COMPLETED"), &json!([])));
        assert_eq!(import["progress"]["successful"], rows, "{content}");
    }
}

#[tokio::test]
async fn a_row_may_say_how_a_customer_is_reached() {
    let server = Server::new();
    let client = server.platform().await;
    let content = file([person(1) + ",ada@mail.example,+442079460001", person(2) + ",ada,"]);
    let content = content.replacen(HEADER, &format!("{HEADER},email,phoneNumber"), 1);
    let taken = client.upload(content.as_bytes()).await.expect(202).clone();
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    assert_eq!(import["progress"]["successful"], 1, "{import}");
    assert_eq!(import["errors"][0]["details"]["field"], "email");
    let list = client.get("/customers").await.expect(200).clone();
    let ada = &list["data"][0];
    assert_eq!(
        (&ada["email"], &ada["phoneNumber"]),
        (&json!("ada@mail.example"), &json!("+442079460001"))
    );
}

/// The example of the document is a file that can be imported.
#[tokio::test]
async fn the_example_of_a_file_is_imported() {
    let server = Server::new();
    let client = server.platform().await;
    client.patch("/config", &json!({ "umaDomain": "uma.example.com" })).await.expect(200);
    let document = api::document(&server.app);
    let content = &document["paths"]["/customers/bulk/csv"]["post"]["requestBody"]["content"];
    let example = text(&content["multipart/form-data"]["example"]["file"]);
    let taken = client.upload(example.as_bytes()).await.expect(202).clone();
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    assert_eq!((&import["status"], &import["errors"]), (&json!("COMPLETED"), &json!([])));
    let rows = example.lines().count() - 1;
    assert_eq!(import["progress"]["successful"], rows);
    // The same file again is another one than a file with other rows.
    let send = async |content: &str| {
        let call = form("file", content.as_bytes()).key("k");
        client.send("POST", "/customers/bulk/csv", call).await
    };
    send(&example).await.expect(202);
    for (content, differs) in [(example.clone(), false), (example + "\n", true)] {
        let again = send(&content).await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(again.headers.contains_key("idempotency-body-mismatch"), differs);
    }
}

#[tokio::test]
async fn a_file_that_is_no_table_fails_as_a_whole() {
    let server = Server::new();
    let client = server.platform().await;
    let many = file((0..10_001).map(person));
    for (content, reason, column) in [
        (
            &b"platformCustomerId,customerType\r\na,INDIVIDUAL\r\n"[..],
            "missing_required_column",
            Some("umaAddress"),
        ),
        (b"", "missing_required_column", Some("umaAddress")),
        (
            b"umaAddress,umaAddress,platformCustomerId,customerType\r\n",
            "duplicate_column",
            Some("umaAddress"),
        ),
        (b"\xff\xfe\x00", "not_utf8", None),
        (HEADER.as_bytes(), "no_rows", None),
        (many.as_bytes(), "too_many_rows", None),
    ] {
        let taken = client.upload(content).await.expect(202).clone();
        assert_eq!(taken["status"], "PENDING", "{reason}");
        let import = client.import(&taken["jobId"]).await;
        assert_eq!(import["status"], "FAILED", "{reason}");
        let error = &import["errors"][0];
        assert_eq!(error["code"], "invalid_csv_format");
        assert_eq!(error["details"]["reason"], reason);
        assert_eq!(error["details"].get("column").and_then(Value::as_str), column);
        assert_eq!(server.notified_of_import(&taken["jobId"]).await[0]["data"], import);
    }
    assert_eq!(client.count("/customers").await, 0);
    server.verify();
}

#[tokio::test]
async fn what_is_no_form_with_a_file_is_refused() {
    let server = Server::new();
    let client = server.platform().await;
    let path = "/customers/bulk/csv";
    let send = async |call: Call| client.send("POST", path, call).await;
    send(Call::json(&json!({}))).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    send(Call::default()).await.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    send(form("data", b"x")).await.refused(400, "INVALID_INPUT");
    let torn = Call::raw("--edge\r\n").header("content-type", "multipart/form-data; boundary=edge");
    send(torn).await.refused(400, "INVALID_INPUT");
    let large = vec![b'x'; 4 * 1024 * 1024 + 1];
    send(form("file", &large)).await.refused(413, "PAYLOAD_TOO_LARGE");
    // Wherever it is large: in another field, before the first one, in what says which one it is.
    let larger = vec![b'x'; 5 * 1024 * 1024];
    send(form("other", &larger)).await.refused(413, "PAYLOAD_TOO_LARGE");
    for start in ["", "--edge\r\ncontent-disposition: form-data; name=\"file\"; x="] {
        let body = [start.as_bytes(), &larger].concat();
        let form = Call::raw(body).header("content-type", "multipart/form-data; boundary=edge");
        send(form).await.refused(413, "PAYLOAD_TOO_LARGE");
    }
    // A repeat is the first answer and no second import; a file that did not arrive has none.
    let content = file([person(1)]);
    let cut = form("file", content.as_bytes()).key("k").cut();
    send(cut).await.refused(408, "REQUEST_TIMEOUT");
    let first = send(form("file", content.as_bytes()).key("k")).await;
    let again = send(form("file", b"other").key("k")).await;
    assert_eq!(first.expect(202), again.expect(202));
    server.pass(0).await;
    assert_eq!(client.count("/customers").await, 1);
    for unknown in ["Job:00000000-0000-7000-8000-000000000000", "x", "Customer:x"] {
        let answer = client.get(&format!("/customers/bulk/jobs/{unknown}")).await;
        answer.refused(404, "BULK_UPLOAD_JOB_NOT_FOUND");
    }
    let other = server.platform().await;
    let job = text(&first.body["jobId"]);
    let answer = other.get(&format!("/customers/bulk/jobs/{job}")).await;
    answer.refused(404, "BULK_UPLOAD_JOB_NOT_FOUND");
    server.verify();
}

#[tokio::test]
async fn a_crash_half_way_loses_no_row_and_makes_none_twice() {
    let server = Server::new();
    let client = server.platform().await;
    let platform = client.platform;
    let taken = client.upload(file((0..240).map(person)).as_bytes()).await.expect(202).clone();
    for done in [50, 100] {
        jobs::step(&server.app).await.expect("a step");
        let import = client.import(&taken["jobId"]).await;
        assert_eq!(import["status"], "PROCESSING");
        assert_eq!(import["progress"]["processed"], done);
        assert_eq!(client.count("/customers").await, done);
    }
    server.verify();
    let server = server.restart();
    let client = server.token(platform, domain::token::Permissions::ALL).await;
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    let progress = json!({ "total": 240, "processed": 240, "successful": 240, "failed": 0 });
    assert_eq!((&import["status"], &import["progress"]), (&json!("COMPLETED"), &progress));
    assert_eq!(client.count("/customers").await, 240);
    assert_eq!(server.notified_of_import(&taken["jobId"]).await.len(), 1);
    // Nothing of the file is left.
    let id = JobId::parse(&text(&taken["jobId"])).expect("an id");
    for number in 0..5 {
        let part =
            server.app.store().read(move |view| view.get::<Part>(&PartKey(id, number))).await;
        let part = part.map_err(service::Error::Store).expect("a read").expect("a part");
        assert_eq!(part.content, PartContent::Done(Vec::new()));
    }
    server.verify();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_rows_go_beside_other_requests() {
    let server = Server::new();
    let client = server.platform().await;
    let wrong = (0..2_000).map(person).map(|row| row.replace("Ada Lovelace", ""));
    let rows = (2_000..4_000).map(person).chain(wrong);
    let taken = client.upload(file(rows).as_bytes()).await.expect(202).clone();
    for number in 0..10 {
        jobs::step(&server.app).await.expect("a step");
        // A request in between waits for one part at most.
        client.customer().await;
        assert_eq!(
            client.import(&taken["jobId"]).await["progress"]["processed"],
            50 * (number + 1)
        );
    }
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    let progress =
        json!({ "total": 4_000, "processed": 4_000, "successful": 2_000, "failed": 2_000 });
    assert_eq!(import["progress"], progress);
    assert_eq!(import["errors"].as_array().expect("errors").len(), 500);
    assert_eq!(client.count("/customers").await, 2_010);
    server.verify();
}

/// A quote that does not close swallows what comes behind it: none of that is guessed.
#[tokio::test]
async fn a_stray_quote_fails_the_file_where_it_stands() {
    let server = Server::new();
    let client = server.platform().await;
    let many = |changed: usize, from: &str, to: &str| {
        file((1..=1_000).map(|number| {
            let row = person(number);
            if number == changed { row.replace(from, to) } else { row }
        }))
    };
    let unquoted = |content: String| content.replace("\"1, High St\"", "1 High St");
    for (content, reason, row) in [
        (many(2, "Ada Lovelace", "\"Ada Lovelace"), "stray_quote", 2),
        (unquoted(many(2, "Ada Lovelace", "\"Ada Lovelace")), "unclosed_quote", 2),
        (unquoted(many(2, "Ada Lovelace", "Ada \"Lovelace")), "stray_quote", 2),
        (many(7, "Ada Lovelace", "Ada Lovelace\""), "stray_quote", 7),
        (many(9, "Ada Lovelace", "\"Ada\" Lovelace"), "stray_quote", 9),
        (many(1_000, "N1", "\"N1"), "unclosed_quote", 1_000),
    ] {
        let taken = client.upload(content.as_bytes()).await.expect(202).clone();
        server.pass(0).await;
        let import = client.import(&taken["jobId"]).await;
        assert_eq!(import["status"], "FAILED", "{reason} {row}");
        let error = &import["errors"][0];
        assert_eq!(
            (&error["code"], &error["details"]["reason"]),
            (&json!("invalid_csv_format"), &json!(reason))
        );
        assert_eq!(
            (&error["details"]["row"], &error["details"]["line"]),
            (&json!(row), &json!(row + 1))
        );
        assert!(text(&error["message"]).contains(&format!("row {row} (line {})", row + 1)));
    }
    assert_eq!(client.count("/customers").await, 0);
    // As they should be written, all rows are there.
    let content = many(2, "Ada Lovelace", "\"Ada \"\"of\"\" Lovelace\"");
    let taken = client.upload(content.as_bytes()).await.expect(202).clone();
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    let progress = json!({ "total": 1_000, "processed": 1_000, "successful": 1_000, "failed": 0 });
    assert_eq!(import["progress"], progress, "{}", import["errors"]);
    server.verify();
}

#[tokio::test]
async fn a_file_of_another_make_is_refused_with_the_format() {
    let server = Server::new();
    let client = server.platform().await;
    let good = file([person(1)]);
    for (content, reason, says) in [
        (good.replace(',', ";"), "wrong_separator", "semicolons"),
        (good.replace(',', "\t"), "wrong_separator", "tabs"),
        (good.replace("fullName", "birthDate"), "duplicate_column", "birthDate"),
        (good.replace("businessLegalName", "fullName"), "duplicate_column", "fullName"),
        (good.replace("businessLegalName", "Full Name"), "unknown_column", "fullName"),
        (good.replace("businessLegalName", "nationalty"), "unknown_column", "nationality"),
        (good.replace("umaAddress", "uma_address"), "unknown_column", "umaAddress"),
    ] {
        let taken = client.upload(content.as_bytes()).await.expect(202).clone();
        let import = client.import(&taken["jobId"]).await;
        assert_eq!(import["status"], "FAILED", "{reason}");
        let error = &import["errors"][0];
        assert_eq!(error["details"]["reason"], reason);
        assert!(text(&error["message"]).contains(says), "{}", error["message"]);
    }
    // Whatever ends a line; columns of the platform's own are ignored.
    for (number, end) in ["\n", "\r", "\r\n"].into_iter().enumerate() {
        let content = file([person(2 * number), String::new(), person(2 * number + 1)]);
        let content = content.replace("businessLegalName", "note").replace("\r\n", end);
        let content = format!("\u{feff}{content}");
        let taken = client.upload(content.as_bytes()).await.expect(202).clone();
        server.pass(0).await;
        let import = client.import(&taken["jobId"]).await;
        let progress = json!({ "total": 2, "processed": 2, "successful": 2, "failed": 0 });
        assert_eq!(import["progress"], progress, "{}", import["errors"]);
    }
    server.verify();
}

#[tokio::test]
async fn every_row_is_a_customer_or_an_error_with_its_number() {
    let server = Server::new();
    let client = server.platform().await;
    let rows = (1..=120).map(|number| match number {
        3 => format!("{},too,many", person(3)),
        4 => person(4).replace(",GB,", ""),
        5 => person(5).replace("London", "Lon\0don"),
        6 => person(6).replace("London", "\"Lon\ndon\""),
        7 => person(7).replace("1985-12-10", "2025-10-14"),
        8 => person(8).replace("1985-12-10", "1899-12-31"),
        9 => person(9).replace("Ada Lovelace", "\u{3164}"),
        10 => person(10).replace(",N1,GB,", ",,HK,"),
        11 => person(11).replace(",N1,", ",,"),
        // Its address is that of row 1, in another part of the file.
        119 => person(1).replace("person-1", "person-119"),
        number => person(number),
    });
    let content = file(rows);
    let taken = client.upload(content.as_bytes()).await.expect(202).clone();
    server.pass(0).await;
    let import = client.import(&taken["jobId"]).await;
    let progress = json!({ "total": 120, "processed": 120, "successful": 111, "failed": 9 });
    assert_eq!(import["progress"], progress, "{}", import["errors"]);
    let errors = import["errors"].as_array().expect("errors");
    let shown: Vec<_> = errors
        .iter()
        .map(|error| {
            let field = error["details"]["errors"][0]["field"].as_str().unwrap_or_default();
            (error["details"]["row"].as_u64().expect("a number"), field)
        })
        .collect();
    let expected = [
        (3, ""),
        (4, ""),
        (5, "city"),
        (6, "city"),
        (7, "birthDate"),
        (8, "birthDate"),
        (9, "fullName"),
        (11, "postalCode"),
        (119, ""),
    ];
    assert_eq!(shown, expected);
    assert_eq!(client.count("/customers").await, 111);
    server.verify();
}

#[tokio::test]
async fn a_form_has_one_file() {
    let server = Server::new();
    let client = server.platform().await;
    let part = |content: &str| {
        format!(
            "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"c.csv\"\r\n\r\n\
             {content}\r\n"
        )
    };
    let body = format!("{}{}--edge--\r\n", part(&file([person(1)])), part(&file([person(2)])));
    let call = Call::raw(body).header("content-type", "multipart/form-data; boundary=edge");
    let answer = client.send("POST", "/customers/bulk/csv", call).await;
    assert_eq!(crate::support::fields(answer.refused(400, "INVALID_INPUT")), ["file"]);
    assert_eq!(client.count("/customers").await, 0);
}
