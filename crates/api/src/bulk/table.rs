//! A CSV file as a table, read strictly (RFC 4180), and with all that spreadsheets add: empty
//! columns and rows at the end, and a first line `sep=;`. Whatever a lenient reader would guess
//! about is refused with the row and the line where it stands: a guess swallows rows.

use csv::{ReaderBuilder, StringRecord, Trim};

/// Why a file is no table.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    /// A name for programs.
    pub reason: &'static str,
    /// The error and its remedy.
    pub message: String,
    /// The column that it is about.
    pub column: Option<String>,
    /// The row, from 1 behind the header.
    pub row: Option<u64>,
    /// The line of the file, from 1.
    pub line: Option<u64>,
}

impl Refused {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), column: None, row: None, line: None }
    }

    fn about(self, column: &str) -> Self {
        Self { column: Some(column.to_owned()), ..self }
    }

    fn at(self, (row, line): (u64, u64)) -> Self {
        let place = if row == 0 { "the header".to_owned() } else { format!("row {row}") };
        let message = format!("{place} (line {line}): {}", self.message);
        Self { message, row: Some(row), line: Some(line), ..self }
    }
}

/// A row, or how many fields it has where the header has another number of columns.
pub(super) type Record = Result<StringRecord, u64>;

/// The rows of a file below its header.
#[derive(Debug)]
pub(super) struct Table {
    /// The names of the columns.
    pub header: StringRecord,
    /// Every row of the file, in order.
    pub rows: Vec<Record>,
}

impl Table {
    /// Reads a file that has `required` among its columns, which are of `known`. Columns of other
    /// names are kept; a name that is nearly a known one is refused as the slip that it is.
    pub fn read(
        bytes: &[u8],
        required: &[&str],
        known: &[&str],
        rows_max: usize,
    ) -> Result<Self, Refused> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let good = &bytes[..error.valid_up_to()];
            let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
            let message = format!("the file is not UTF-8 (line {line}); save it as CSV UTF-8");
            Refused::new("not_utf8", message)
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (separator, text, first_line) = separator(text);
        if let Some(separator) = other_separator(text, separator, known) {
            let message = format!(
                "the columns are separated by {separator}; separate them with commas and save the \
                 file again"
            );
            return Err(Refused::new("wrong_separator", message));
        }
        let rows = quotes(text, separator, first_line)?;
        let mut reader = ReaderBuilder::new()
            .trim(Trim::All)
            .flexible(true)
            .delimiter(u8::try_from(separator).expect("separators are ASCII"))
            .from_reader(text.as_bytes());
        let unreadable = |_| Refused::new("unreadable_header", "the header row cannot be read");
        let header = without_empty_end(reader.headers().map_err(unreadable)?);
        check_header(&header, required, known)?;
        if rows == 0 {
            return Err(Refused::new("no_rows", "the file has no rows behind its header"));
        }
        if rows > rows_max {
            let message = format!("the file has more than {rows_max} rows; split it");
            return Err(Refused::new("too_many_rows", message));
        }
        // Neither the text nor its quotes can be wrong any more.
        let records = reader.records().map(Result::unwrap_or_default);
        let records = records.filter(|record| record.iter().any(|field| !field.is_empty()));
        let rows = records.map(|record| of_columns(&record, header.len())).collect();
        Ok(Self { header, rows })
    }
}

/// A record without the empty fields at its end, which spreadsheets add.
fn without_empty_end(record: &StringRecord) -> StringRecord {
    let empty = record.iter().rev().take_while(|field| field.is_empty()).count();
    record.iter().take(record.len() - empty).collect()
}

/// A row with a field for each column. Empty ones may stand behind them, and nothing else.
fn of_columns(record: &StringRecord, columns: usize) -> Record {
    let is_long = without_empty_end(record).len() > columns;
    if is_long || record.len() < columns {
        return Err(record.len() as u64);
    }
    Ok(record.iter().take(columns).collect())
}

/// Separators that a file may have, with their names.
const SEPARATORS: [(char, &str); 4] =
    [(',', "commas"), (';', "semicolons"), ('\t', "tabs"), ('|', "vertical bars")];

/// The separator, the text and the number of its first line. Spreadsheets write a line `sep=;` in
/// front of the header; without one the comma separates.
fn separator(text: &str) -> (char, &str, u64) {
    let end = text.find(['\r', '\n']).unwrap_or(text.len());
    let line = text[..end].trim_matches([' ', '"']).to_ascii_lowercase();
    let named = line.strip_prefix("sep=");
    let known =
        SEPARATORS.iter().find(|(it, _)| named.is_some_and(|named| named == it.to_string()));
    match known {
        Some((separator, _)) => {
            let rest = &text[end..];
            let rest = rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix(['\r', '\n']));
            (*separator, rest.unwrap_or_default(), 2)
        }
        None => (',', text, 1),
    }
}

/// The name of another separator, if the first line has known columns between it only.
fn other_separator(text: &str, separator: char, known: &[&str]) -> Option<&'static str> {
    let line = text.split(['\r', '\n']).find(|line| !line.trim().is_empty())?;
    let columns = |separator: char| {
        let names = line.split(separator).map(|name| name.trim().trim_matches('"'));
        names.filter(|name| known.contains(name)).count()
    };
    if columns(separator) > 0 {
        return None;
    }
    SEPARATORS.into_iter().find(|(separator, _)| columns(*separator) > 1).map(|(_, name)| name)
}

/// Where a reader of quotes is.
#[derive(Clone, Copy)]
enum At {
    Start,
    Plain,
    Quoted,
    Closed,
}

/// Checks that quotes stand around whole fields, and are doubled inside of them. Gives the number
/// of rows below the header; rows without a field that says anything are none.
fn quotes(text: &str, separator: char, first_line: u64) -> Result<usize, Refused> {
    let (mut at, mut is_blank, mut records, mut line) = (At::Start, true, 0_u64, first_line);
    let mut opened = (0, first_line);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_end = matches!(letter, '\r' | '\n');
        let was_closed = matches!(at, At::Closed);
        at = match (at, letter) {
            (At::Start, '"') => {
                opened = (records, line);
                At::Quoted
            }
            (At::Plain, '"') => {
                let message = "a quote stands inside a field; put the whole field in quotes and \
                               double the quote";
                return Err(Refused::new("stray_quote", message).at((records, line)));
            }
            (At::Quoted, '"') => At::Closed,
            (At::Quoted, _) | (At::Closed, '"') => At::Quoted,
            (At::Start | At::Plain | At::Closed, it) if is_end || it == separator => At::Start,
            (At::Start | At::Plain, _) => At::Plain,
            (At::Closed, _) => {
                let message = format!(
                    "the field that opens with a quote here goes on behind its next quote (line \
                     {line}); double quotes that belong to a field"
                );
                return Err(Refused::new("stray_quote", message).at(opened));
            }
        };
        match at {
            At::Start if is_end && !is_blank => {
                records += 1;
                is_blank = true;
            }
            // A doubled quote is one of the field itself.
            At::Quoted if letter == '"' => is_blank &= !was_closed,
            At::Start | At::Closed => {}
            At::Plain | At::Quoted => is_blank &= letter.is_whitespace(),
        }
        if letter == '\n' || (letter == '\r' && letters.peek() != Some(&'\n')) {
            line += 1;
        }
    }
    if matches!(at, At::Quoted) {
        let message = "a field opens with a quote that is never closed";
        return Err(Refused::new("unclosed_quote", message).at(opened));
    }
    records += u64::from(!is_blank);
    Ok(usize::try_from(records.saturating_sub(1)).unwrap_or(usize::MAX))
}

/// Columns of a file at most: each is compared with all others and with the known names.
const COLUMNS_MAX: usize = 200;

/// Characters of a column's name at most: each is compared with the names that are known.
const COLUMN_NAME_MAX: usize = 200;

fn check_header(header: &StringRecord, required: &[&str], known: &[&str]) -> Result<(), Refused> {
    if header.len() > COLUMNS_MAX {
        let message = format!("the file has {} columns, {COLUMNS_MAX} are allowed", header.len());
        return Err(Refused::new("unreadable_header", message));
    }
    if header.iter().any(|name| name.chars().count() > COLUMN_NAME_MAX) {
        let message = format!("the name of a column has more than {COLUMN_NAME_MAX} characters");
        return Err(Refused::new("unreadable_header", message));
    }
    let has = |column: &str| header.iter().any(|name| name == column);
    for (place, name) in header.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        if name.chars().any(char::is_control) {
            let message = "the name of a column has a line break or control character";
            return Err(Refused::new("unreadable_header", message));
        }
        if header.iter().take(place).any(|other| other == name) {
            let message = format!("the column {name} stands there twice");
            return Err(Refused::new("duplicate_column", message).about(name));
        }
        let meant = known.iter().find(|column| {
            folded(column) == folded(name)
                || (!has(column) && strsim::osa_distance(&folded(column), &folded(name)) == 1)
        });
        if let Some(meant) = meant.filter(|_| !known.contains(&name)) {
            let message =
                format!("the column {name} is unknown; rename it to {meant} or take it out");
            return Err(Refused::new("unknown_column", message).about(name));
        }
    }
    let Some(missing) = required.iter().find(|column| !has(column)) else { return Ok(()) };
    let message = match header.is_empty() {
        true => format!("the file is empty: the column {missing} is missing"),
        false => format!("the column {missing} is missing"),
    };
    Err(Refused::new("missing_required_column", message).about(missing))
}

/// A name without its capitals and separators.
fn folded(name: &str) -> String {
    name.chars().filter(|it| it.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KNOWN: [&str; 4] = ["id", "fullName", "country", "addressLine1"];

    fn read(text: &str) -> Result<Table, Refused> {
        Table::read(text.as_bytes(), &["id"], &KNOWN, 1_000)
    }

    #[track_caller]
    fn refused(text: &str) -> (&'static str, Option<u64>, Option<u64>) {
        let refused = read(text).expect_err("no table");
        (refused.reason, refused.row, refused.line)
    }

    #[test]
    fn a_header_is_bounded() {
        let columns = |count: usize| {
            let names: Vec<_> = (1..count).map(|number| format!("extra{number}")).collect();
            format!("id,{}\n1{}\n", names.join(","), ",x".repeat(count - 1))
        };
        assert!(read(&columns(COLUMNS_MAX)).is_ok());
        assert_eq!(refused(&columns(COLUMNS_MAX + 1)).0, "unreadable_header");
        let name = "x".repeat(COLUMN_NAME_MAX + 1);
        assert!(read(&format!("id,{}\n1,2\n", &name[1..])).is_ok());
        assert_eq!(refused(&format!("id,{name}\n1,2\n")).0, "unreadable_header");
    }

    #[test]
    fn every_row_is_there_whatever_ends_its_line() {
        for end in ["\n", "\r\n", "\r"] {
            let rows =
                ["id,fullName", "1,Ada", "", "2,\"Lovelace, Ada\"", "3", "", "4,\"\"\"A\"\"\""];
            for last in ["", end] {
                let table = read(&format!("\u{feff}{}{last}", rows.join(end))).expect("a table");
                let lengths: Vec<_> =
                    table.rows.iter().map(|row| row.as_ref().map(StringRecord::len)).collect();
                assert_eq!(lengths, [Ok(2), Ok(2), Err(&1), Ok(2)]);
                assert_eq!(&table.rows[3].as_ref().expect("a row")[1], "\"A\"");
            }
        }
    }

    #[test]
    fn a_file_as_a_spreadsheet_writes_it_is_read() {
        for text in [
            "id,fullName,,\r\n1,Ada,,\r\n2,B\r\n",
            "id,fullName\r\n1,Ada,,,\r\n2,B,\r\n",
            "id,fullName\r\n1,Ada\r\n2,B\r\n,\r\n",
            "id,fullName,,\r\n1,Ada,,\r\n,,,\r\n2,B,,\r\n,,,\r\n,,,",
            "id,fullName\r\n1,Ada\r\n2,B\r\n\"\",\" \"\r\n",
            "sep=;\r\nid;fullName\r\n1;Ada\r\n2;B\r\n",
            "\u{feff}sep=;\nid;fullName;;\n1;Ada;;\n2;\"B\"\n;;;\n",
            "\"sep=,\"\rid,fullName\r1,Ada\r2,B",
            "SEP=\t\nid\tfullName\n1\tAda\n2\tB",
        ] {
            let table = read(text).unwrap_or_else(|refused| panic!("{text:?}: {refused:?}"));
            assert_eq!(table.header, StringRecord::from(vec!["id", "fullName"]), "{text:?}");
            let rows = [vec!["1", "Ada"], vec!["2", "B"]].map(|row| Ok(StringRecord::from(row)));
            assert_eq!(table.rows, rows, "{text:?}");
        }
        // A comma in a field is no separator there, and a field too many has no column.
        let table = read("sep=;\nid;fullName\n1;Lovelace, Ada\n2;B;;x\n").expect("a table");
        assert_eq!(&table.rows[0].as_ref().expect("a row")[1], "Lovelace, Ada");
        assert_eq!(table.rows[1], Err(4));
        assert_eq!(refused("sep=;\nid;fullName\n1;A\"da\n"), ("stray_quote", Some(1), Some(3)));
        assert_eq!(refused("sep=;\nid,fullName\n1,Ada\n"), ("wrong_separator", None, None));
        assert_eq!(refused("sep=;\n"), ("missing_required_column", None, None));
        assert_eq!(refused("id,fullName\n,\n,,,\n"), ("no_rows", None, None));
    }

    #[test]
    fn stray_quotes_are_found_where_they_stand() {
        for (text, expected) in [
            ("id,fullName\n1,Ada\n2,A\"da\n3,B\n", ("stray_quote", Some(2), Some(3))),
            ("id,fullName\n1,Ada\n2,Ada\"\n", ("stray_quote", Some(2), Some(3))),
            ("id,fullName\n1,Ada\n\n2,\"Ada\n3,B\n", ("unclosed_quote", Some(2), Some(4))),
            ("id,fullName\n1,\"Ada\n2,\"B\"\n3,C\n", ("stray_quote", Some(1), Some(2))),
            ("id,fullName\r1,\"Ada\" \r", ("stray_quote", Some(1), Some(2))),
            ("id,fullName\n1, \"Ada\"\n", ("stray_quote", Some(1), Some(2))),
            ("id,\"fullName\n1,Ada\n", ("unclosed_quote", Some(0), Some(1))),
            ("\"", ("unclosed_quote", Some(0), Some(1))),
        ] {
            assert_eq!(refused(text), expected, "{text:?}");
        }
    }

    #[test]
    fn headers_name_each_column_once_and_rightly() {
        for (header, reason, column) in [
            ("id,country,country", "duplicate_column", Some("country")),
            ("id,note,note", "duplicate_column", Some("note")),
            ("id,fullname", "unknown_column", Some("fullname")),
            ("id,full_name", "unknown_column", Some("full_name")),
            ("id,fullName,Full Name", "unknown_column", Some("Full Name")),
            ("id,fulName", "unknown_column", Some("fulName")),
            ("id,ocuntry", "unknown_column", Some("ocuntry")),
            ("id,county", "unknown_column", Some("county")),
            ("ID", "unknown_column", Some("ID")),
            ("fullName", "missing_required_column", Some("id")),
            ("", "missing_required_column", Some("id")),
            ("\n\n", "missing_required_column", Some("id")),
            ("id;fullName;country", "wrong_separator", None),
            ("\"id\"\t\"fullName\"", "wrong_separator", None),
            ("id|fullName", "wrong_separator", None),
            ("id,a\0b", "unreadable_header", None),
            ("id,\"a\nb\"", "unreadable_header", None),
            ("id", "no_rows", None),
        ] {
            let refused = read(header).expect_err("no table");
            assert_eq!((refused.reason, refused.column.as_deref()), (reason, column), "{header:?}");
        }
        // Columns of the platform's own, and an empty one that a spreadsheet leaves.
        for header in ["id,note,email,,", "id,country,county,addressLine1,addressLine9"] {
            assert!(read(&format!("{header}\n1")).is_ok(), "{header}");
        }
        let torn = b"id,fullName\n1,Ada\n2,\xff\n";
        let refused = Table::read(torn, &["id"], &KNOWN, 1_000).expect_err("no text");
        assert_eq!(refused.reason, "not_utf8");
        assert!(refused.message.contains("line 3"), "{}", refused.message);
    }

    proptest! {
        /// Both readers see the same rows, so none is lost between them.
        #[test]
        fn what_is_counted_is_read(text in "[a\", \r\n;é\0]{0,60}") {
            if let Ok(rows) = quotes(&text, ',', 1) {
                let mut reader = ReaderBuilder::new()
                    .flexible(true)
                    .has_headers(false)
                    .trim(Trim::All)
                    .from_reader(text.as_bytes());
                let says = |it: &StringRecord| it.iter().any(|field| !field.is_empty());
                let records = reader.records().map(|it| it.expect("text"));
                prop_assert_eq!(records.filter(says).count().saturating_sub(1), rows);
            }
        }

        #[test]
        fn no_file_breaks_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Table::read(&bytes, &["id"], &KNOWN, 3);
        }

        #[test]
        fn what_a_writer_writes_is_read_back(
            rows in prop::collection::vec(prop::collection::vec("a[a\",\r\né]{0,5}", 2), 1..6),
        ) {
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(["id", "fullName"]).expect("a header");
            for row in &rows {
                writer.write_record(row).expect("a row");
            }
            let bytes = writer.into_inner().expect("bytes");
            let table = Table::read(&bytes, &["id"], &KNOWN, 1_000);
            let table = table.map_err(|refused| TestCaseError::fail(refused.message))?;
            let read: Vec<Vec<_>> = table
                .rows
                .iter()
                .map(|row| row.as_ref().expect("two fields").iter().map(str::to_owned).collect())
                .collect();
            let trimmed: Vec<Vec<_>> = rows
                .iter()
                .map(|row| row.iter().map(|field| field.trim().to_owned()).collect())
                .collect();
            prop_assert_eq!(read, trimmed);
        }
    }
}
