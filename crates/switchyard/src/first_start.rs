//! The first start on an empty database: a platform, a token that may do everything, and what to
//! paste into a shell to see money move.
//!
//! Credentials that the operator has given are never printed. Those that are made here are printed
//! once, to standard output and never to the log; a later start prints nothing.

use domain::id::PlatformId;
use domain::platform::Mode;
use domain::token::Permissions;
use domain::uma_address::UmaDomain;
use serde_json::{Value, json};
use service::platforms::{self, NewPlatform};
use service::{App, tokens};
use store::error::StoreError;

use crate::command::{self, Failure};
use crate::config::{CLIENT_ID_VARIABLE, CLIENT_SECRET_VARIABLE, ClientCredentials};
use crate::database::Database;

/// The name of the first platform.
const PLATFORM_NAME: &str = "sandbox";

/// The name of its first token.
const TOKEN_NAME: &str = "first start";

/// Where a server is found.
pub struct Addresses {
    /// The address of the API.
    pub base_url: String,
    /// Where the operator finds the metrics, if anywhere.
    pub metrics_url: Option<String>,
    /// Whether only this machine reaches the server.
    pub is_local: bool,
}

impl Addresses {
    /// For people, in columns.
    fn lines(&self) -> String {
        let Self { base_url, metrics_url, is_local } = self;
        let origin = base_url.strip_suffix(api::VERSION).unwrap_or(base_url);
        let metrics = metrics_url.as_deref().unwrap_or("nowhere: give --admin-listen a free port");
        let reached_from = match is_local {
            true => "this machine only, until a request comes through a proxy",
            false => "other machines",
        };
        format!(
            "  API            {base_url}\n  documentation  {origin}docs\n  \
             metrics        {metrics}\n  reached from   {reached_from}\n"
        )
    }

    /// The same for programs, with what `more` has.
    fn described(&self, mut more: Value) -> Value {
        more["baseUrl"] = self.base_url.as_str().into();
        more["metricsUrl"] = self.metrics_url.as_deref().into();
        more["isLocal"] = self.is_local.into();
        more
    }
}

/// The platform and token of a first start.
pub struct FirstStart {
    /// The platform.
    pub platform: PlatformId,
    /// The credentials of its first token.
    pub credentials: ClientCredentials,
    /// Whether the operator knows the credentials already.
    were_given: bool,
}

/// Makes a sandbox platform and its first token, if there is no platform yet.
pub async fn run(
    app: &App,
    given: Option<&ClientCredentials>,
    uma_domain: UmaDomain,
) -> Result<Option<FirstStart>, Failure> {
    let platforms = app.store().read::<_, StoreError, _>(|view| view.platforms()).await?;
    if !platforms.is_empty() {
        warn_of_shared_domains(app).await?;
        return Ok(None);
    }
    let new = NewPlatform {
        name: PLATFORM_NAME.to_owned(),
        mode: Mode::Sandbox,
        uma_domain,
        // Its customers are its own to identify, so that a test can put them into any state.
        is_regulated: true,
    };
    let (name, all) = (TOKEN_NAME.to_owned(), Permissions::ALL);
    let created = platforms::create_first(app, new, |platform| match given {
        Some(ClientCredentials { id, secret }) => {
            tokens::with_credentials(app, platform, name, all, id.clone(), secret.clone())
        }
        None => tokens::draw(app, platform, name, all),
    })
    .await?;
    let Some((platform, token)) = created else { return Ok(None) };
    let credentials = ClientCredentials { id: token.token.client_id, secret: token.secret };
    Ok(Some(FirstStart { platform: platform.id, credentials, were_given: given.is_some() }))
}

/// Names platforms that an earlier release gave the domain of another.
async fn warn_of_shared_domains(app: &App) -> Result<(), Failure> {
    for (platform, holder) in platforms::claim_domains(app).await? {
        tracing::warn!(
            platform = %platform.id, domain = %platform.uma_domain, %holder,
            "two platforms have one UMA domain: give one another with switchyard platform set-domain"
        );
    }
    Ok(())
}

/// Says at a later start what is served, and how to get credentials again: those of the first
/// start are not kept in a form that could be shown.
pub async fn greet_again(app: &App, database: &Database, at: &Addresses) -> Result<(), Failure> {
    let platforms = app.store().read::<_, StoreError, _>(|view| view.platforms()).await?;
    let named = match database.url_to_repeat() {
        Some(url) => format!(" --database-url {url}"),
        None => String::new(),
    };
    let (which, platform) = match &*platforms {
        [one] => (format!("the {} platform {}", one.mode.name(), one.id), one.id.to_string()),
        all => (format!("{} platforms (switchyard platform list)", all.len()), "ID".to_owned()),
    };
    command::print(&format!(
        "Switchyard serves {which}.\n\n{lines}\n\
         Secrets were shown once and are not kept. Lost them? This makes others:\n\n  \
         switchyard token create --platform {platform} --name NAME \
         --permissions VIEW,TRANSACT,MANAGE{named}\n",
        lines = at.lines(),
    ))?;
    let ids: Vec<_> = platforms.iter().map(|platform| platform.id.to_string()).collect();
    command::emit(&at.described(json!({ "firstStart": false, "platforms": ids })))
}

impl FirstStart {
    /// Prints the credentials, if they were made here, and how to use them. Nothing else has the
    /// secret, so if it cannot be printed the error says how to make another.
    pub fn print(&self, at: &Addresses) {
        let printed = command::print(&self.banner(at))
            .and_then(|()| command::emit(&at.described(self.described())));
        if let Err(error) = printed {
            tracing::error!(
                %error, platform = %self.platform,
                "the first credentials were not printed; make others with switchyard token create"
            );
        }
    }

    /// The same for programs.
    fn described(&self) -> Value {
        let credentials = (!self.were_given).then(|| {
            let ClientCredentials { id, secret } = &self.credentials;
            json!({ "clientId": id, "clientSecret": secret })
        });
        json!({
            "firstStart": true,
            "platform": self.platform.to_string(),
            "credentials": credentials,
        })
    }

    fn banner(&self, at: &Addresses) -> String {
        let (notice, user) = if self.were_given {
            let notice = format!(
                "Its credentials are in {CLIENT_ID_VARIABLE} and {CLIENT_SECRET_VARIABLE}."
            );
            (notice, format!("${{{CLIENT_ID_VARIABLE}}}:${{{CLIENT_SECRET_VARIABLE}}}"))
        } else {
            let ClientCredentials { id, secret } = &self.credentials;
            let notice = format!(
                "Its credentials are shown this once, keep them:\n\n  \
                 client id      {id}\n  client secret  {secret}"
            );
            (notice, format!("{id}:{secret}"))
        };
        format!(
            "Switchyard serves a new sandbox platform, {platform}.\n\n{addresses}\n{notice}\n\n\
             Pasted in order, these lines move money:\n\n{lines}\n\
             # After the first two of them, these show events on your machine and make one:\n\
             # switchyard listen --forward-to http://localhost:3000/hooks\n\
             # switchyard trigger payment.failed\n",
            platform = self.platform,
            addresses = at.lines(),
            lines = curl_lines(&at.base_url, &user),
        )
    }
}

/// Lines for a shell with `curl` and `sed`: each keeps what the next one needs. There are no
/// comments between them, because not every shell that people paste into takes them.
fn curl_lines(base_url: &str, user: &str) -> String {
    format!(
        r#"export SY={base_url}
export SY_USER="{user}"
export SY_JSON='Content-Type: application/json'

CUSTOMER=$(curl -sS -u "$SY_USER" -H "$SY_JSON" "$SY/customers" \
  -d '{{"customerType":"INDIVIDUAL","fullName":"Ada Lovelace"}}' \
  | sed -n 's/.*"id":"\(Customer:[^"]*\)".*/\1/p'); echo "$CUSTOMER"

USD=$(curl -sS -u "$SY_USER" \
  "$SY/customers/internal-accounts?customerId=$CUSTOMER&currency=USD" \
  | sed -n 's/.*"id":"\(InternalAccount:[^"]*\)".*/\1/p'); echo "$USD"

curl -sS -u "$SY_USER" -H "$SY_JSON" "$SY/sandbox/internal-accounts/$USD/fund" \
  -d '{{"amount":100000}}'; echo

EUR=$(curl -sS -u "$SY_USER" \
  "$SY/customers/internal-accounts?customerId=$CUSTOMER&currency=EUR" \
  | sed -n 's/.*"id":"\(InternalAccount:[^"]*\)".*/\1/p'); echo "$EUR"

QUOTE=$(curl -sS -u "$SY_USER" -H "$SY_JSON" "$SY/quotes" \
  -d '{{"source":{{"sourceType":"ACCOUNT","accountId":"'"$USD"'"}},
      "destination":{{"destinationType":"ACCOUNT","accountId":"'"$EUR"'"}},
      "lockedCurrencySide":"SENDING","lockedCurrencyAmount":100000}}'); echo "$QUOTE"

QUOTE_ID=$(echo "$QUOTE" | sed -n 's/.*"id":"\(Quote:[^"]*\)".*/\1/p')
TRANSACTION=$(echo "$QUOTE" | sed -n 's/.*"transactionId":"\([^"]*\)".*/\1/p')

curl -sS -u "$SY_USER" -X POST "$SY/quotes/$QUOTE_ID/execute"; echo

curl -sS -u "$SY_USER" "$SY/transactions/$TRANSACTION"; echo
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README shows the output of the binary, but for the credentials.
    #[test]
    fn the_readme_shows_what_is_printed() {
        let first = FirstStart {
            platform: PlatformId::parse("PlatformConfig:01a1fda4-87d5-7000-b9c0-a990afab0000")
                .expect("an id"),
            credentials: ClientCredentials {
                id: "d137c997b138e78608fc225215ab2ed4".to_owned(),
                secret: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                    .to_owned(),
            },
            were_given: false,
        };
        let banner = first.banner(&Addresses {
            base_url: format!("http://127.0.0.1:8080/{}", api::VERSION),
            metrics_url: Some("http://127.0.0.1:8080/metrics".to_owned()),
            is_local: true,
        });
        let readme = include_str!("../../../README.md");
        let shown = banner.trim_end();
        assert!(readme.contains(shown), "the README lacks what is printed:\n{shown}");
    }
}
