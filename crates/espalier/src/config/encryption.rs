//! `client_encryption_options`: its keys, and which of their values are accepted.

use super::Config;
use super::units::{boolean, class_name, scalar, text};
use crate::tls::{ClientAuth, Encryption, Secret};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Cassandra's text, and the name of the option that it is about.
const SSL_PORT_WITHOUT_TLS: &str = "native_transport_port_ssl: Encryption must be enabled in client_encryption_options \
                                    for native_transport_port_ssl";

/// The keys of the section.
pub(super) const KEYS: &[&str] = &[
    "enabled",
    "optional",
    "keystore",
    "keystore_password",
    "truststore",
    "truststore_password",
    "require_client_auth",
    "protocol",
    "accepted_protocols",
    "cipher_suites",
    "store_type",
    "ssl_context_factory",
    "algorithm",
    "require_endpoint_verification",
    "max_certificate_validity_period",
    "certificate_validity_warn_threshold",
];

/// The stores that are read. The content of a store decides between the two of Java.
const STORE_TYPES: [&str; 3] = ["JKS", "PKCS12", "PEM"];

/// The factories of Cassandra that are known.
const FACTORIES: [&str; 2] = ["DefaultSslContextFactory", "PEMBasedSslContextFactory"];

pub(super) fn client_encryption_options(config: &mut Config, value: &Value) -> Result<(), String> {
    let section = value.as_object().ok_or_else(|| format!("expected keys and values, got {value}"))?;
    let mut options = Encryption::default();
    for (key, value) in section.iter().filter(|(_, value)| !value.is_null()) {
        apply(&mut options, key, value).map_err(|error| format!("{key}: {error}"))?;
    }
    config.client_encryption = options;
    Ok(())
}

fn apply(options: &mut Encryption, key: &str, value: &Value) -> Result<(), String> {
    if !KEYS.contains(&key) {
        return Err("is no key of client_encryption_options".to_owned());
    }
    match key {
        "enabled" => options.enabled = boolean(value)?,
        "optional" => options.optional = Some(boolean(value)?),
        "keystore" => options.keystore = PathBuf::from(text(value)?),
        "keystore_password" => options.keystore_password = Some(secret(value)?),
        "truststore" => options.truststore = PathBuf::from(text(value)?),
        "truststore_password" => options.truststore_password = Some(secret(value)?),
        "require_client_auth" => options.client_auth = client_auth(value)?,
        "protocol" => options.protocols = protocols(text(value)?.split(','))?,
        "accepted_protocols" => options.accepted_protocols = protocols(list(value)?.iter().map(String::as_str))?,
        "cipher_suites" => options.cipher_suites = list(value)?,
        "store_type" => options.is_pem |= store_type(value)?,
        "ssl_context_factory" => factory(options, value)?,
        // Java's algorithm for key managers.
        "algorithm" => {}
        "require_endpoint_verification" if boolean(value)? => {
            return Err("true is not supported: the addresses of clients are not compared with certificates".to_owned());
        }
        "require_endpoint_verification" => {}
        _ => return Err("is not supported".to_owned()),
    }
    Ok(())
}

fn secret(value: &Value) -> Result<Secret, String> {
    // The value is not part of the error.
    scalar(value).map(Secret).ok_or_else(|| "expected a text".to_owned())
}

fn list(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        one => Ok(text(one)?.split(',').map(|name| name.trim().to_owned()).collect()),
    }
}

fn client_auth(value: &Value) -> Result<ClientAuth, String> {
    match text(value)?.to_lowercase().as_str() {
        "true" => Ok(ClientAuth::Required),
        "optional" => Ok(ClientAuth::Optional),
        "false" => Ok(ClientAuth::None),
        other => Err(format!("expected true, false or optional, got {other}")),
    }
}

/// The names of TLS versions; Java's `TLS` means all that are supported.
fn protocols<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<String>, String> {
    let mut accepted = Vec::new();
    for name in names.map(str::trim) {
        match name {
            "TLSv1.2" | "TLSv1.3" => accepted.push(name.to_owned()),
            _ if name.eq_ignore_ascii_case("TLS") => return Ok(Vec::new()),
            _ => return Err(format!("{name} is not supported; accepted: TLS, TLSv1.2, TLSv1.3")),
        }
    }
    Ok(accepted)
}

/// Whether the stores are PEM files.
fn store_type(value: &Value) -> Result<bool, String> {
    let name = text(value)?.to_uppercase();
    match STORE_TYPES.contains(&&*name) {
        true => Ok(name == "PEM"),
        false => Err(format!("{name} is not supported; accepted: {}", STORE_TYPES.join(", "))),
    }
}

fn factory(options: &mut Encryption, value: &Value) -> Result<(), String> {
    let class = class_name(value)?;
    if !FACTORIES.contains(&&*class) {
        return Err(format!("{class} is not supported; accepted: {}", FACTORIES.join(", ")));
    }
    options.is_pem |= class == FACTORIES[1];
    let none = Map::new();
    let parameters = value.get("parameters").and_then(Value::as_object).unwrap_or(&none);
    for (key, value) in parameters {
        let place = match key.as_str() {
            "private_key" => &mut options.private_key,
            "private_key_password" => &mut options.keystore_password,
            "trusted_certificates" => &mut options.trusted_certificates,
            _ => return Err(format!("{key}: is no parameter of {class}")),
        };
        *place = Some(secret(value)?);
    }
    Ok(())
}

/// Refuses a port for TLS without TLS.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let is_own = config.port_ssl.is_some_and(|port| port != config.port);
    match is_own && !config.client_encryption.is_used() {
        true => Err(SSL_PORT_WITHOUT_TLS.to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        config.apply_file(text).and_then(|()| check(&config)).map(|()| config)
    }

    fn refusal(options: &str) -> String {
        load(&format!("client_encryption_options: {{{options}}}\n")).unwrap_err()
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        for (options, key, value) in [
            ("protocol: TLSv1.1", "protocol", "TLSv1.1"),
            ("accepted_protocols: [TLSv1.2, SSLv3]", "accepted_protocols", "SSLv3"),
            ("store_type: BCFKS", "store_type", "BCFKS"),
            ("require_client_auth: perhaps", "require_client_auth", "perhaps"),
            ("require_endpoint_verification: true", "require_endpoint_verification", "true"),
            ("ssl_context_factory: {class_name: MyFactory}", "ssl_context_factory", "MyFactory"),
            ("keystor: x", "keystor", "is no key"),
        ] {
            let error = refusal(options);
            assert!(error.starts_with(&format!(":1: client_encryption_options: {key}: ")), "{error}");
            assert!(error.contains(value), "{error}");
        }
    }

    #[test]
    fn a_port_for_tls_needs_tls() {
        assert_eq!(load("native_transport_port_ssl: 9142\n").unwrap_err(), SSL_PORT_WITHOUT_TLS);
        let config = load("native_transport_port_ssl: 9142\nclient_encryption_options: {enabled: true}\n").unwrap();
        assert_eq!(config.port_ssl, Some(9142));
    }

    #[test]
    fn passwords_are_not_shown() {
        let config = load("client_encryption_options: {enabled: true, keystore_password: hunter2}\n").unwrap();
        assert_eq!(config.client_encryption.keystore_password, Some(Secret("hunter2".to_owned())));
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
