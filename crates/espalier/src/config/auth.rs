//! Options about roles.

use super::Config;
use super::units::{boolean, class_name, text};
use crate::tls::ClientAuth;
use query::{Authenticator, CidrChecks};
use serde_json::Value;

/// One of two classes: whether it is the second one.
fn second_class(value: &Value, classes: [&str; 2]) -> Result<bool, String> {
    let class = class_name(value)?;
    let place = classes.iter().position(|known| *known == class);
    let accepted = format!("`{}`, `{}`", classes[0], classes[1]);
    place
        .map(|place| place == 1)
        .ok_or_else(|| format!("is not supported with the value {value}; accepted: {accepted}"))
}

/// The authenticators, by the names of their classes.
const AUTHENTICATORS: [(&str, Authenticator); 4] = [
    ("AllowAllAuthenticator", Authenticator::AllowAll),
    ("PasswordAuthenticator", Authenticator::Password),
    ("MutualTlsAuthenticator", Authenticator::MutualTls),
    ("MutualTlsWithPasswordFallbackAuthenticator", Authenticator::MutualTlsOrPassword),
];

/// The class that reads the identity of a certificate.
const VALIDATOR: &str = "SpiffeCertificateValidator";

pub(super) fn authenticator(config: &mut Config, value: &Value) -> Result<(), String> {
    let class = class_name(value)?;
    let Some((_, authenticator)) = AUTHENTICATORS.iter().find(|(name, _)| *name == class) else {
        let names = AUTHENTICATORS.map(|(name, _)| format!("`{name}`")).join(", ");
        return Err(format!("is not supported with the value {value}; accepted: {names}"));
    };
    if authenticator.takes_certificates() {
        let validator = parameters(value).find(|(name, _)| *name == "validator_class_name").map(|(_, class)| class);
        let validator = validator.ok_or("authenticator.parameters.validator_class_name is not set")?;
        if class_name(validator)? != VALIDATOR {
            return Err(format!("validator_class_name: {validator} is not supported; accepted: {VALIDATOR}"));
        }
    }
    config.auth.authenticator = *authenticator;
    Ok(())
}

pub(super) fn authorizer(config: &mut Config, value: &Value) -> Result<(), String> {
    config.auth.permissions = second_class(value, ["AllowAllAuthorizer", "CassandraAuthorizer"])?;
    Ok(())
}

pub(super) fn network_authorizer(config: &mut Config, value: &Value) -> Result<(), String> {
    let classes = ["AllowAllNetworkAuthorizer", "CassandraNetworkAuthorizer"];
    config.auth.access.data_centers = second_class(value, classes)?;
    Ok(())
}

pub(super) fn cidr_authorizer(config: &mut Config, value: &Value) -> Result<(), String> {
    let access = &mut config.auth.access;
    if !second_class(value, ["AllowAllCIDRAuthorizer", "CassandraCIDRAuthorizer"])? {
        access.cidrs = CidrChecks::Off;
        return Ok(());
    }
    access.cidrs = CidrChecks::Monitor;
    for (name, value) in parameters(value) {
        let applied = match name.as_str() {
            "cidr_authorizer_mode" => cidr_checks(value).map(|checks| access.cidrs = checks),
            "cidr_checks_for_superusers" => boolean(value).map(|checks| access.cidrs_of_superusers = checks),
            // Groups are in memory, and a change holds at once.
            "cidr_groups_cache_refresh_interval" | "ip_cache_max_size" => Ok(()),
            _ => Err("is no parameter of CassandraCIDRAuthorizer".to_owned()),
        };
        applied.map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn cidr_checks(value: &Value) -> Result<CidrChecks, String> {
    match text(value)?.to_uppercase().as_str() {
        "MONITOR" => Ok(CidrChecks::Monitor),
        "ENFORCE" => Ok(CidrChecks::Enforce),
        other => Err(format!("expected MONITOR or ENFORCE, got {other}")),
    }
}

/// The parameters of a class, in either of Cassandra's spellings: a map, or a list of one map.
fn parameters(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let parameters = value.get("parameters").or_else(|| value.get(0)?.get("parameters"));
    parameters.and_then(|value| value.as_object().or_else(|| value.get(0)?.as_object())).into_iter().flatten()
}

/// Refuses classes that do not belong together, with Cassandra's text.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let access = config.auth.access;
    let needing_logins = [
        ("authorizer", config.auth.permissions, "CassandraAuthorizer"),
        ("network_authorizer", access.data_centers, "CassandraNetworkAuthorizer"),
        ("cidr_authorizer", access.cidrs != CidrChecks::Off, "CassandraCIDRAuthorizer"),
    ];
    match needing_logins.iter().find(|(_, is_set, _)| *is_set && !config.auth.authenticator.is_required()) {
        Some((option, _, class)) => Err(format!("{option}: AllowAllAuthenticator can't be used with {class}")),
        None => check_certificates(config),
    }
}

/// Refuses logins by certificate where clients need not have one, with Cassandra's text.
fn check_certificates(config: &Config) -> Result<(), String> {
    let encryption = &config.client_encryption;
    let have_certificates = encryption.enabled && encryption.client_auth == ClientAuth::Required;
    match config.auth.authenticator == Authenticator::MutualTls && !have_certificates {
        true => Err("authenticator: MutualTlsAuthenticator requires client_encryption_options.enabled to be true & \
                     client_encryption_options.require_client_auth to be true"
            .to_owned()),
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

    #[test]
    fn the_classes_are_found_in_all_of_cassandras_spellings() {
        for authenticator in [
            "PasswordAuthenticator",
            "org.apache.cassandra.auth.PasswordAuthenticator",
            "{class_name: PasswordAuthenticator}",
            "{class_name: org.apache.cassandra.auth.PasswordAuthenticator, parameters: {}}",
        ] {
            let config = load(&format!("authenticator: {authenticator}\nauthorizer: CassandraAuthorizer\n")).unwrap();
            assert!(config.auth.authenticator == Authenticator::Password && config.auth.permissions, "{authenticator}");
        }
        let config = load("authenticator: AllowAllAuthenticator\nrole_manager: CassandraRoleManager\n").unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn places_are_checked_as_the_parameters_say() {
        let with = |text: &str| {
            load(&format!("authenticator: PasswordAuthenticator\n{text}")).map(|config| config.auth.access)
        };
        let access = with("network_authorizer: CassandraNetworkAuthorizer\ncidr_authorizer: CassandraCIDRAuthorizer\n");
        let access = access.unwrap();
        assert!(access.data_centers && access.cidrs == CidrChecks::Monitor && !access.cidrs_of_superusers);
        let enforced = "cidr_authorizer:\n  class_name: CassandraCIDRAuthorizer\n  parameters:\n    cidr_authorizer_mode: ENFORCE\n    \
                        cidr_checks_for_superusers: true\n    cidr_groups_cache_refresh_interval: 5\n    ip_cache_max_size: 100\n";
        let access = with(enforced).unwrap();
        assert!(access.cidrs == CidrChecks::Enforce && access.cidrs_of_superusers);
        assert!(with(&enforced.replace("ENFORCE", "ASK")).unwrap_err().contains("expected MONITOR or ENFORCE"));
        assert!(with(&enforced.replace("ip_cache", "cache")).unwrap_err().contains("cache_max_size: is no parameter"));
        let error = load("network_authorizer: CassandraNetworkAuthorizer\n").unwrap_err();
        assert_eq!(error, "network_authorizer: AllowAllAuthenticator can't be used with CassandraNetworkAuthorizer");
    }

    #[test]
    fn logins_by_certificate_need_certificates() {
        let mutual = "authenticator:\n  class_name: org.apache.cassandra.auth.MutualTlsAuthenticator\n  parameters:\n    \
                      validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator\n";
        let required = "client_encryption_options: {enabled: true, require_client_auth: true}\n";
        let config = load(&format!("{mutual}{required}")).unwrap();
        assert_eq!(config.auth.authenticator, Authenticator::MutualTls);
        assert!(load(mutual).unwrap_err().contains("requires client_encryption_options.enabled to be true"));
        let optional = required.replace("auth: true", "auth: optional");
        assert!(load(&format!("{mutual}{optional}")).unwrap_err().contains("require_client_auth to be true"));
        let fallback = mutual.replace("MutualTlsAuthenticator", "MutualTlsWithPasswordFallbackAuthenticator");
        let config = load(&format!("{fallback}{optional}")).unwrap();
        assert_eq!(config.auth.authenticator, Authenticator::MutualTlsOrPassword);
        assert!(
            load("authenticator: MutualTlsAuthenticator\n").unwrap_err().contains("validator_class_name is not set")
        );
        assert!(load(&mutual.replace("Spiffe", "My")).unwrap_err().contains("accepted: SpiffeCertificateValidator"));
    }

    #[test]
    fn permissions_without_passwords_are_refused() {
        let error = load("authorizer: CassandraAuthorizer\n").unwrap_err();
        assert_eq!(error, "authorizer: AllowAllAuthenticator can't be used with CassandraAuthorizer");
        assert!(load("role_manager: MyRoleManager\n").is_err());
    }
}
