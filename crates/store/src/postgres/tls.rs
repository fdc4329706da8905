//! Encryption on the way to PostgreSQL, and how much a server must prove about itself.

use std::path::PathBuf;
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

/// Which authorities are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    /// Those that the operating system believes.
    System,
    /// Those in this file.
    File(PathBuf),
}

/// What a server must prove.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trust<'a> {
    /// Nothing: who listens in learns nothing, who answers in its place does.
    Anyone,
    /// That an authority gave it a certificate, for whatever name.
    Issued(&'a Roots),
    /// That an authority gave it a certificate for the name that we call it by.
    Named(&'a Roots),
}

/// What encrypts a connection to a server that proves as much as `trust` says.
pub(super) fn connector(trust: Trust<'_>) -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| StoreError::Engine(format!("encryption cannot be used: {error}")))?;
    let builder = match trust {
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Believer { provider, verifier: None })),
        Trust::Issued(roots) => {
            let verifier = verifier(roots, &provider)?;
            let verifier = Believer { provider, verifier: Some(verifier) };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
        Trust::Named(roots) => builder.with_webpki_verifier(verifier(roots, &provider)?),
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn verifier(
    roots: &Roots,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, StoreError> {
    let mut store = RootCertStore::empty();
    let place = match roots {
        Roots::System => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
            "the certificates of this system".to_owned()
        }
        Roots::File(path) => {
            let place = format!("sslrootcert={}", path.display());
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

/// Asks for less than a certificate with the right name.
#[derive(Debug)]
struct Believer {
    provider: Arc<CryptoProvider>,
    /// Who must have issued the certificate; `None` if that does not matter.
    verifier: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        let verified =
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last: everything else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
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
