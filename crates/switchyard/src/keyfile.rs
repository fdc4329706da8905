//! The file with the server's secret key, which seals what the database must not show.
//!
//! Guarantees: the file appears whole and durable or not at all, readable by its owner only; of two
//! processes that start at once, both get the same key; an existing file is written by [`replace`]
//! only. A key that was replaced stays in a file beside it, which is named by its fingerprint.
//!
//! Limits: it cannot know whether a key belongs to a database. A process that opens a database with
//! data in it uses [`load`], so that a lost key is an error and not a new key.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use store::keyring::{Keyring, Purpose};
use tempfile::NamedTempFile;

use crate::files::{self, beside};

/// Bytes of the server's secret key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a fingerprint: enough to tell the keys of one server apart.
const FINGERPRINT_BYTES: usize = 8;

/// The comment of a new file and its one line are a quarter of this.
const FILE_BYTES_MAX: u64 = 4 * 1024;

/// The comment before the key in a new file.
const HEADER: &str = "\
# The secret key of a Switchyard server. Without it, what the database has sealed is lost: personal
# data, webhook secrets and API tokens. Keep a copy apart from the database, and keep it secret.
";

/// Base64 as people paste it: with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why there is no key. One line that says what to do, without a byte of the key.
#[derive(Debug)]
pub struct KeyFileError {
    path: PathBuf,
    wrong: Wrong,
}

#[derive(Debug)]
enum Wrong {
    Read(io::Error),
    Create(io::Error),
    Remove(io::Error),
    Malformed(&'static str),
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.wrong {
            Wrong::Read(error) => write!(f, "key file {path} cannot be read: {error}"),
            Wrong::Create(error) => write!(
                f,
                "key file {path} cannot be created: {error}; make its folder writable or choose \
                 another place with --key-file"
            ),
            Wrong::Remove(error) => write!(f, "key file {path} cannot be removed: {error}"),
            Wrong::Malformed(what) => write!(
                f,
                "key file {path} {what}; restore it from its copy: a new key cannot open what the \
                 old one has sealed"
            ),
        }
    }
}

impl std::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.wrong {
            Wrong::Read(error) | Wrong::Create(error) | Wrong::Remove(error) => Some(error),
            Wrong::Malformed(_) => None,
        }
    }
}

/// The key in the file at `path`, which is made with bytes from `random` if it is not there.
pub fn load_or_create(
    path: &Path,
    random: impl FnOnce(&mut [u8; KEY_BYTES]),
) -> Result<[u8; KEY_BYTES], KeyFileError> {
    if let Some(key) = load(path)? {
        return Ok(key);
    }
    let mut key = [0; KEY_BYTES];
    random(&mut key);
    match create(path, &key) {
        Ok(()) => {
            let path = path.display();
            tracing::info!(%path, "made a new secret key: keep a copy of the file");
            Ok(key)
        }
        // Another process was first: its key is the key.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            load(path)?.ok_or_else(|| wrong(path, Wrong::Create(error)))
        }
        Err(error) => Err(wrong(path, Wrong::Create(error))),
    }
}

/// The key in the file at `path`; `None` if there is no such file.
pub fn load(path: &Path) -> Result<Option<[u8; KEY_BYTES]>, KeyFileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(path, Wrong::Read(error))),
    };
    if others_can_read(&file) {
        tracing::warn!(
            path = %path.display(),
            "other users of this machine can read the key file: run chmod 600 on it"
        );
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| wrong(path, Wrong::Read(error)))?;
    key_of(&text).map(Some).map_err(|what| wrong(path, Wrong::Malformed(what)))
}

/// Whether the key in the file at `path` was made by a start, which makes its database before.
/// Other keys may have been brought for a database that is still to be made.
pub fn was_made(path: &Path) -> bool {
    let first = HEADER.lines().next();
    std::fs::read_to_string(path).is_ok_and(|text| text.lines().next() == first)
}

/// Reads a key from text: 64 hexadecimal digits, or the base64 of 32 bytes.
pub fn parse_key(text: &str) -> Option<[u8; KEY_BYTES]> {
    let text = text.trim();
    let bytes = if text.len() == 2 * KEY_BYTES {
        hex::decode(text).ok()?
    } else {
        BASE64.decode(text).ok()?
    };
    bytes.try_into().ok()
}

fn key_of(text: &[u8]) -> Result<[u8; KEY_BYTES], &'static str> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("is far too long to be one");
    }
    let text = std::str::from_utf8(text).map_err(|_| "is not text")?;
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = lines.next().ok_or("holds no key")?;
    if lines.next().is_some() {
        return Err("holds more than one line that is not a comment");
    }
    parse_key(line).ok_or("holds no line of 64 hexadecimal digits")
}

/// Writes beside the place and then links into it, which fails if something is there already.
fn create(path: &Path, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    written(path, key)?.persist_noclobber(path).map_err(|error| error.error)?;
    // A power cut could take the name, and with it the key that rows on disk are sealed with.
    files::sync_folder(files::folder_of(path))
}

/// A file with a key beside the place, durable and without a name of its own yet.
fn written(path: &Path, key: &[u8; KEY_BYTES]) -> io::Result<NamedTempFile> {
    // A temporary file is made for its owner only.
    let mut file =
        tempfile::Builder::new().prefix(".switchyard-key-").tempfile_in(files::folder_of(path))?;
    file.write_all(format!("{HEADER}{}\n", hex::encode(key)).as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Puts another key into the file at `path`: whole and durable, or the old one stays.
pub fn replace(path: &Path, key: &[u8; KEY_BYTES]) -> Result<(), KeyFileError> {
    let written = written(path, key).and_then(|file| {
        file.persist(path).map_err(|error| error.error)?;
        files::sync_folder(files::folder_of(path))
    });
    written.map_err(|error| wrong(path, Wrong::Create(error)))
}

/// The name of a key, from which nothing of it follows.
pub fn fingerprint(key: &[u8; KEY_BYTES]) -> String {
    let hash = Keyring::new(key).hash(Purpose::KeyCheck, &[b"fingerprint of the server's key"]);
    hex::encode(&hash[..FINGERPRINT_BYTES])
}

/// Keeps a key that is about to be replaced in the file at `path`. Gives its file.
pub fn keep_old(path: &Path, key: &[u8; KEY_BYTES]) -> Result<PathBuf, KeyFileError> {
    let kept = beside(path, &format!(".{}", fingerprint(key)));
    match create(&kept, key) {
        // An earlier try has come so far.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if load(&kept)? == Some(*key) {
                Ok(kept)
            } else {
                Err(wrong(&kept, Wrong::Malformed("holds another key than its name says")))
            }
        }
        Err(error) => Err(wrong(&kept, Wrong::Create(error))),
        Ok(()) => Ok(kept),
    }
}

/// The files of keys that were replaced in the file at `path`, in the order of their names.
fn old_files(path: &Path) -> Result<Vec<PathBuf>, KeyFileError> {
    let unreadable = |error| wrong(path, Wrong::Read(error));
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let is_old = |other: &OsStr| {
        let fingerprint = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        fingerprint.and_then(|ending| ending.strip_prefix(b".")).is_some_and(|fingerprint| {
            fingerprint.len() == 2 * FINGERPRINT_BYTES
                && fingerprint.iter().all(u8::is_ascii_hexdigit)
        })
    };
    let mut files = Vec::new();
    for entry in files::folder_of(path).read_dir().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if is_old(&entry.file_name()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

/// The file of the key that was replaced last in the file at `path`, if one was kept.
pub fn last_kept(path: &Path) -> Result<Option<PathBuf>, KeyFileError> {
    let written = |file: &PathBuf| file.metadata().and_then(|file| file.modified()).ok();
    Ok(old_files(path)?.into_iter().max_by_key(written))
}

/// The keys that were replaced in the file at `path`. A file that cannot be read is warned about.
pub fn old_keys(path: &Path) -> Result<Vec<[u8; KEY_BYTES]>, KeyFileError> {
    let read = |path: PathBuf| {
        let loaded = load(&path);
        loaded.unwrap_or_else(|error| {
            tracing::warn!(%error, "an old key is left out");
            None
        })
    };
    Ok(old_files(path)?.into_iter().filter_map(read).collect())
}

/// Removes the keys that were replaced in the file at `path`. Gives how many there were.
pub fn discard_old(path: &Path) -> Result<usize, KeyFileError> {
    let files = old_files(path)?;
    for file in &files {
        std::fs::remove_file(file).map_err(|error| wrong(file, Wrong::Remove(error)))?;
    }
    let synced = files::sync_folder(files::folder_of(path));
    synced.map_err(|error| wrong(path, Wrong::Remove(error)))?;
    Ok(files.len())
}

#[cfg(unix)]
fn others_can_read(file: &File) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn others_can_read(_file: &File) -> bool {
    false
}

fn wrong(path: &Path, wrong: Wrong) -> KeyFileError {
    KeyFileError { path: path.to_owned(), wrong }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_new_file_is_made_once_and_kept() {
        let folder = folder();
        let path = folder.path().join("switchyard.db.key");
        assert!(load(&path).unwrap().is_none());
        let made = load_or_create(&path, |key| key.fill(0xab)).unwrap();
        assert_eq!(made, [0xab; KEY_BYTES]);
        let again = load_or_create(&path, |_| panic!("there is a key")).unwrap();
        assert_eq!(again, made);
        assert_eq!(load(&path).unwrap(), Some(made));
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ") && text.ends_with(&format!("\n{}\n", "ab".repeat(32))));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = folder();
        let path = folder.path().join("key");
        load_or_create(&path, |key| key.fill(1)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // Wider permissions are an operator's decision, which is only warned about.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(load(&path).unwrap(), Some([1; KEY_BYTES]));
    }

    #[test]
    fn processes_that_start_at_once_get_the_same_key() {
        let folder = folder();
        let path = folder.path().join("key");
        let barrier = std::sync::Barrier::new(8);
        let keys: Vec<_> = std::thread::scope(|scope| {
            let starters: Vec<_> = (1..=8_u8)
                .map(|number| {
                    let (path, barrier) = (&path, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        load_or_create(path, |key| key.fill(number)).unwrap()
                    })
                })
                .collect();
            starters.into_iter().map(|starter| starter.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        assert_eq!(load(&path).unwrap(), Some(keys[0]));
    }

    #[test]
    fn old_keys_are_kept_by_their_fingerprints_until_they_are_discarded() {
        let folder = folder();
        let path = folder.path().join("switchyard.db.key");
        let (first, second) = ([1; KEY_BYTES], [2; KEY_BYTES]);
        load_or_create(&path, |key| *key = second).unwrap();
        assert_eq!(old_keys(&path).unwrap(), [[0; KEY_BYTES]; 0]);
        let kept = keep_old(&path, &first).unwrap();
        assert_eq!(keep_old(&path, &first).unwrap(), kept, "it was kept before");
        let name = kept.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("switchyard.db.key.{}", fingerprint(&first)));
        assert!(fingerprint(&first).len() == 16 && fingerprint(&first) != fingerprint(&second));
        // Other files are none of them.
        for other in ["switchyard.db.key.bak", "other.key.0123456789abcdef"] {
            fs::write(folder.path().join(other), "hello").unwrap();
        }
        assert_eq!(old_keys(&path).unwrap(), [first]);
        // A damaged one is left out, and written over by none.
        fs::write(&kept, "hello").unwrap();
        assert_eq!(old_keys(&path).unwrap(), [[0; KEY_BYTES]; 0]);
        keep_old(&path, &first).unwrap_err();
        assert_eq!(discard_old(&path).unwrap(), 1);
        assert_eq!(discard_old(&path).unwrap(), 0);
        assert_eq!(load(&path).unwrap(), Some(second));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_malformed_file_is_refused_and_kept() {
        let key = "ab".repeat(32);
        for (text, what) in [
            (String::new(), "holds no key"),
            ("# only a comment\n".to_owned(), "holds no key"),
            ("hello\n".to_owned(), "64 hexadecimal digits"),
            (key[..62].to_owned(), "64 hexadecimal digits"),
            (format!("{key}\n{key}\n"), "more than one line"),
            ("#".repeat(5_000), "far too long"),
        ] {
            let folder = folder();
            let path = folder.path().join("key");
            fs::write(&path, &text).unwrap();
            let error = load_or_create(&path, |_| panic!("must not be replaced")).unwrap_err();
            let line = error.to_string();
            assert!(line.contains(what) && !line.contains('\n'), "{line}");
            assert!(!line.contains(&key[..62]), "{line}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_place_that_does_not_exist_is_an_error_that_says_so() {
        let folder = folder();
        let path = folder.path().join("missing").join("key");
        let line = load_or_create(&path, |key| key.fill(1)).unwrap_err().to_string();
        assert!(line.contains("cannot be created") && line.contains("--key-file"), "{line}");
        let line = load_or_create(folder.path(), |key| key.fill(1)).unwrap_err().to_string();
        assert!(line.contains("cannot be read"), "{line}");
    }

    #[test]
    fn keys_are_hexadecimal_or_base64() {
        let key: [u8; KEY_BYTES] = std::array::from_fn(|index| 200 + index as u8);
        let hexadecimal = hex::encode(key);
        let base64 = base64::engine::general_purpose::STANDARD.encode(key);
        for text in [
            hexadecimal.clone(),
            hexadecimal.to_uppercase(),
            format!(" {hexadecimal}\n"),
            base64.clone(),
            base64.trim_end_matches('=').to_owned(),
        ] {
            assert_eq!(parse_key(&text), Some(key), "{text}");
        }
        for text in ["", "secret", &hexadecimal[..63], &base64[..40], &"zz".repeat(32)] {
            assert_eq!(parse_key(text), None, "{text}");
        }
    }
}
