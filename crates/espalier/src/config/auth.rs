//! Options about roles.

use super::Config;
use super::units::{boolean, class_name, text};
use query::CidrChecks;
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

pub(super) fn authenticator(config: &mut Config, value: &Value) -> Result<(), String> {
    config.auth.passwords = second_class(value, ["AllowAllAuthenticator", "PasswordAuthenticator"])?;
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
    match needing_logins.iter().find(|(_, is_set, _)| *is_set && !config.auth.passwords) {
        Some((option, _, class)) => Err(format!("{option}: AllowAllAuthenticator can't be used with {class}")),
        None => Ok(()),
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
            assert!(config.auth.passwords && config.auth.permissions, "{authenticator}");
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
    fn permissions_without_passwords_are_refused() {
        let error = load("authorizer: CassandraAuthorizer\n").unwrap_err();
        assert_eq!(error, "authorizer: AllowAllAuthenticator can't be used with CassandraAuthorizer");
        assert!(load("role_manager: MyRoleManager\n").is_err());
    }
}
