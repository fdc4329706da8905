//! The request of a lookup: `GET /.well-known/lnurlp/$user` with signed parameters (UMAD-03).

use percent_encoding::percent_decode_str;

use crate::address::{Address, PeerDomain};
use crate::error::{ErrorCode, Refusal};
use crate::json::shown;
use crate::nonce::{Nonce, Stamp};
use crate::signature::{Signed, SigningKey, VerifyingKey, payload};
use crate::version::Version;

/// The path of lookups at the root of a domain; the payee follows.
pub const PATH: &str = "/.well-known/lnurlp/";

/// A lookup, of UMA or of plain LNURL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// With signed parameters.
    Uma(LookupRequest),
    /// Without any of them.
    Plain {
        /// The last part of the path.
        user: String,
    },
}

/// A lookup of UMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupRequest {
    /// The address that shall be paid.
    pub receiver: Address,
    /// The highest version that the sending institution speaks.
    pub version: Version,
    /// The sending institution, whose keys verify the signature.
    pub vasp_domain: PeerDomain,
    /// Whether the sending institution is subject to the travel rule.
    pub is_subject_to_travel_rule: bool,
    /// The signature over receiver, nonce and time.
    pub signed: Signed,
}

/// The parameters that come together or not at all.
const SIGNED_PARAMETERS: [&str; 5] =
    ["signature", "vaspDomain", "nonce", "timestamp", "umaVersion"];

impl LookupRequest {
    /// A signed request. The address is written in lower case: the receiving side puts the signed
    /// text together from the path and a host name, and host names lose their case on the way.
    pub fn new(
        key: &SigningKey,
        receiver: Address,
        version: Version,
        vasp_domain: PeerDomain,
        is_subject_to_travel_rule: bool,
        stamp: Stamp,
    ) -> Self {
        let receiver = receiver.normalised();
        let payload = payload::lookup_request(&receiver, &stamp);
        let signed = Signed::new(key, &payload, stamp);
        Self { receiver, version, vasp_domain, is_subject_to_travel_rule, signed }
    }

    /// The URL to get, with a literal `$`: some peers do not decode it.
    pub fn url(&self) -> String {
        let user = self.receiver.as_written().split('@').next().unwrap_or_default();
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.append_pair("signature", &self.signed.signature_hex);
        query.append_pair("vaspDomain", self.vasp_domain.as_str());
        query.append_pair("nonce", self.signed.stamp.nonce.as_str());
        query.append_pair("isSubjectToTravelRule", bool_text(self.is_subject_to_travel_rule));
        query.append_pair("timestamp", &self.signed.stamp.at_seconds.to_string());
        query.append_pair("umaVersion", &self.version.to_string());
        self.receiver.domain().url(&format!("{PATH}{user}?{}", query.finish()))
    }

    /// Refuses a request that the sending institution did not sign. `key` is that of
    /// [`Self::vasp_domain`].
    pub fn verify(&self, key: &VerifyingKey) -> Result<(), Refusal> {
        let payload = payload::lookup_request(&self.receiver, &self.signed.stamp);
        key.verify(&payload, &self.signed.signature_hex)
    }
}

impl Lookup {
    /// Reads the path and the query of a request to `domain`, which is the domain of the payee's
    /// address and not always that of the request.
    ///
    /// A major version that we do not support is refused before anything else is read, because its
    /// parameters may differ.
    pub fn read(path: &str, query: &str, domain: &PeerDomain) -> Result<Self, Refusal> {
        let user = user(path)?;
        let parameters = Parameters::read(query);
        let missing: Vec<_> = SIGNED_PARAMETERS
            .into_iter()
            .filter(|name| parameters.optional(name).is_none())
            .collect();
        if missing.len() == SIGNED_PARAMETERS.len() {
            return Ok(Self::Plain { user });
        }
        if let Some(text) = parameters.optional("umaVersion") {
            Version::parse(text)?.negotiate()?;
        }
        if !missing.is_empty() {
            let reason = format!("the parameters {} are missing", missing.join(", "));
            return Err(Refusal::new(ErrorCode::MissingRequiredUmaParameters, reason));
        }
        let version = Version::parse(parameters.text("umaVersion"))?;
        let receiver = Address::parse(&format!("{user}@{domain}"))
            .map_err(|error| unreadable(&error.to_string()))?;
        let vasp_domain = PeerDomain::parse(parameters.text("vaspDomain"))
            .map_err(|error| unreadable(&format!("vaspDomain: {error}")))?;
        let nonce = Nonce::parse(parameters.text("nonce"))?;
        let timestamp = parameters.text("timestamp");
        let at_seconds = seconds(timestamp).ok_or_else(|| {
            let shown = shown(timestamp);
            unreadable(&format!("timestamp '{shown}' is not a number of unix seconds"))
        })?;
        let signature_hex = parameters.text("signature").to_owned();
        let signed = Signed { stamp: Stamp { nonce, at_seconds }, signature_hex };
        let is_subject_to_travel_rule = parameters
            .optional("isSubjectToTravelRule")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"));
        Ok(Self::Uma(LookupRequest {
            receiver,
            version,
            vasp_domain,
            is_subject_to_travel_rule,
            signed,
        }))
    }
}

/// The payee: the one part behind the path of lookups. `%24` is read as `$`.
fn user(path: &str) -> Result<String, Refusal> {
    let rest = path.strip_prefix(PATH).filter(|rest| !rest.contains('/'));
    let rest = rest.ok_or_else(|| unreadable("the path is not /.well-known/lnurlp/ and a user"))?;
    let user = percent_decode_str(rest)
        .decode_utf8()
        .map_err(|_| unreadable("the user in the path is not UTF-8"))?;
    if user.is_empty() {
        return Err(unreadable("the path has no user"));
    }
    Ok(user.into_owned())
}

/// Digits only, as the signer has written them into the signed text.
fn seconds(text: &str) -> Option<i64> {
    let is_plain =
        text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

const fn bool_text(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}

fn unreadable(reason: &str) -> Refusal {
    Refusal::new(ErrorCode::ParseLnurlpRequestError, reason)
}

/// The parameters of a query, in their order.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(query: &str) -> Self {
        Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The first value by this name, unless it is empty.
    fn optional(&self, name: &str) -> Option<&str> {
        let first = self.0.iter().find(|(known, _)| known == name);
        first.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The first value by this name, empty if there is none.
    fn text(&self, name: &str) -> &str {
        self.optional(name).unwrap_or_default()
    }
}
