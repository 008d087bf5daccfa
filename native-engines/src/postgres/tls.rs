//! TLS by rustls, always verified.

use alkstore::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A connector that trusts `roots` (PEM), or the authorities of the operating system where there are none.
pub(super) fn connector(roots: &[Vec<u8>]) -> Result<MakeRustlsConnect> {
    let mut store = RootCertStore::empty();
    if roots.is_empty() {
        // Single authorities that do not load are left out, as the operating system's own tools do.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for pem in roots {
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let added = certificate
                .map_err(|_| ())
                .and_then(|certificate| store.add(certificate).map_err(|_| ()));
            if added.is_err() {
                return Err(refused("a root certificate does not parse: give PEM"));
            }
        }
    }
    if store.is_empty() {
        return Err(refused(
            "there is no certificate authority to verify the server with: give root_certificates",
        ));
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused("TLS cannot be set up").with_source(error))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn refused(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}
