//! `switchyard rates`: the rates of a server, which may run.

use std::fs::{self, Metadata};
use std::io::{self, Write as _};
use std::path::Path;

use adapters::clock::SystemClock;
use adapters::rates::FixedRates;
use domain::time::Timestamp;
use ports::clock::Clock as _;
use serde_json::json;

use super::Done;
use crate::command::{Failure, aligned};
use crate::config::{RatesCommand, SetRates, ShowRates};
use crate::files::{folder_of, sync_folder};

/// `switchyard rates …`.
pub fn run(command: &RatesCommand) -> Result<u8, Failure> {
    match command {
        RatesCommand::Show(options) => show(options)?.tell("rates show"),
        RatesCommand::Set(options) => set(options, SystemClock.machine())?.tell("rates set"),
    }
}

fn read(path: &Path) -> Result<FixedRates, Failure> {
    FixedRates::from_file(path)
        .map_err(|error| Failure::new(format!("the file of rates {error}")).as_usage())
}

fn show(options: &ShowRates) -> Result<Done, Failure> {
    let rates = options.rates_file.as_deref().map_or_else(|| Ok(FixedRates::builtin()), read)?;
    let source_of = |currency| match rates.is_priced_by_file(currency) {
        true => "file",
        false => "built in",
    };
    let prices: Vec<_> = rates.prices().collect();
    let header = ["currency", "US dollars", "source"].map(str::to_owned);
    let rows = prices.iter().map(|(currency, price)| {
        [currency.code().to_owned(), price.normalize().to_string(), source_of(*currency).to_owned()]
    });
    let as_of = rates.written_at();
    let note = match rates.is_from_file() {
        true => "live platforms are quoted those of the file",
        false => "live platforms are quoted none of them",
    };
    let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
    let text = format!("as of {as_of}; {note}\n\n{}", aligned(&rows));
    let currencies: Vec<_> = prices
        .iter()
        .map(|(currency, price)| {
            json!({
                "code": currency.code(),
                "usdPerUnit": price.normalize().to_string(),
                "isOfFile": rates.is_priced_by_file(*currency),
            })
        })
        .collect();
    let value = json!({ "asOf": as_of.to_string(), "currencies": currencies });
    Ok(Done { text, value, changed: None })
}

fn set(options: &SetRates, now: Timestamp) -> Result<Done, Failure> {
    let SetRates { file, rates_file } = options;
    let rates = read(file)?;
    let refused =
        |why: &str| Failure::new(format!("the file of rates {}: {why}", file.display())).as_usage();
    if !rates.is_dated() {
        return Err(refused("asOf is missing: say when the market was there"));
    }
    let as_of = rates.written_at();
    if as_of > now {
        return Err(refused(&format!("asOf is {as_of}, which has not come")));
    }
    replace(file, &rates, rates_file).map_err(|error| {
        Failure::new(format!("{} could not be replaced: {error}", rates_file.display()))
    })?;
    let shown = rates_file.display().to_string();
    let text = format!("{shown} has the rates of {as_of}; a server that runs reads them now\n");
    let value = json!({ "ratesFile": shown, "asOf": as_of.to_string() });
    Ok(Done { text, value, changed: Some(shown) })
}

/// Puts a copy of a file with these rates in the place of another one, which it becomes at once and
/// as a whole.
fn replace(file: &Path, rates: &FixedRates, target: &Path) -> io::Result<()> {
    // A link stays, and the file behind it is replaced.
    let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
    let folder = folder_of(&target);
    let mut copy = tempfile::NamedTempFile::new_in(folder)?;
    copy.write_all(&fs::read(file)?)?;
    if FixedRates::from_file(copy.path()).as_ref() != Ok(rates) {
        return Err(io::Error::other("the new rates have changed meanwhile: try again"));
    }
    like(copy.path(), target.metadata().ok().as_ref())?;
    copy.as_file().sync_all()?;
    copy.persist(&target).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Gives a file the owner and the permissions of the one that it replaces: the server must be able
/// to read it. A new one is for everybody to read, as rates are no secret.
#[cfg(unix)]
fn like(path: &Path, before: Option<&Metadata>) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    /// To be read by all, and written by the owner.
    const FOR_ALL: u32 = 0o644;
    let Some(before) = before else {
        return fs::set_permissions(path, fs::Permissions::from_mode(FOR_ALL));
    };
    let own = path.metadata()?;
    if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
        std::os::unix::fs::chown(path, Some(before.uid()), Some(before.gid()))?;
    }
    fs::set_permissions(path, before.permissions())
}

/// The system keeps them.
#[cfg(not(unix))]
fn like(_path: &Path, _before: Option<&Metadata>) -> io::Result<()> {
    Ok(())
}
