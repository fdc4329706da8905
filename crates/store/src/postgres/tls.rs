//! TLS to PostgreSQL, and how much a server must prove about itself.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::StoreError;

/// The protocol's name, which a server that encrypts from the first byte wants to hear.
const PROTOCOL: &[u8] = b"postgresql";

/// How much of a server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verified {
    /// Nothing: encryption keeps out those who listen in, not those who answer in its place.
    Nothing,
    /// An authority that we believe has issued it, for whatever name.
    Issuer,
    /// It was issued for the name that we call the server by.
    IssuerAndName,
}

/// TLS to a server whose certificate is verified so, by the authorities in a file, or by those that
/// the operating system believes.
pub(super) fn connector(
    verified: Verified,
    roots: Option<&str>,
) -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let issuers = match verified {
        Verified::Nothing => None,
        Verified::Issuer | Verified::IssuerAndName => Some(issuers(roots, &provider)?),
    };
    let verifier = Verifier { provider: Arc::clone(&provider), verified, issuers };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Engine(format!("encryption cannot be used: {error}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn issuers(
    roots: Option<&str>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, StoreError> {
    let mut store = RootCertStore::empty();
    let place = match roots {
        None | Some("system") => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            "the certificates of this system".to_owned()
        }
        Some(path) => {
            let place = format!("sslrootcert={path}");
            let refused =
                |error: &dyn std::fmt::Display| StoreError::Engine(format!("{place}: {error}"));
            let found = CertificateDer::pem_file_iter(path).map_err(|error| refused(&error))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| refused(&error))?;
                store.add(certificate).map_err(|error| refused(&error))?;
            }
            place
        }
    };
    let verifier = WebPkiServerVerifier::builder_with_provider(store.into(), Arc::clone(provider));
    verifier.build().map_err(|error| {
        StoreError::Engine(format!(
            "{place}: {error}; name a file with the certificate of the server's authority in \
             sslrootcert"
        ))
    })
}

/// libpq's `sslmode`s, most of which ask for less than rustls does by itself.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    verified: Verified,
    /// `None` if nothing is verified.
    issuers: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(issuers) = &self.issuers else { return Ok(ServerCertVerified::assertion()) };
        let result =
            issuers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match result {
            // The name is verified last: everything else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.verified == Verified::Issuer => Ok(ServerCertVerified::assertion()),
            result => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
