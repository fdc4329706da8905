//! Packs the script of the documentation page, so that the binary holds it compressed only.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// Mistakes of the library that keep people with a screen reader out, and what is right. Each
/// stands in the script once.
const CORRECTIONS: [(&str, &str); 4] = [
    // An input of the try-out form says that it has a list of choices, and has none.
    ("role:e.withVariables?`combobox`:`textbox`", "role:`textbox`"),
    // A button says that it is none.
    ("role:r.value?`alert`:`none`", "role:r.value?`alert`:void 0"),
    // The field with an answer has no name.
    (
        "role:`textbox`,\"aria-multiline\":`true`}",
        "role:`textbox`,\"aria-label\":`Content`,\"aria-multiline\":`true`}",
    ),
    // A button controls something that is not there.
    (
        "D(IH),{\"aria-controls\":D(r),content:c()},null,8,[`aria-controls`,`content`]",
        "D(IH),{content:c()},null,8,[`content`]",
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let script = scalar_api_reference::get_asset("scalar.js").ok_or("the library has a script")?;
    let mut script = String::from_utf8(script)?;
    for (wrong, right) in CORRECTIONS {
        if script.matches(wrong).count() != 1 {
            return Err(format!("scalar.js has changed: does it still need {right}?").into());
        }
        script = script.replace(wrong, right);
    }
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(script.as_bytes())?;
    let folder = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&folder).join("scalar.js.gz"), compressed.finish()?)?;
    println!("cargo::rustc-env=SCALAR_HASH={}", hex::encode(Sha256::digest(script.as_bytes())));
    Ok(())
}
