//! Options about roles.

use super::Config;
use super::units::class_name;
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

/// Refuses classes that do not belong together, with Cassandra's text.
pub(super) fn check(config: &Config) -> Result<(), String> {
    match config.auth.permissions && !config.auth.passwords {
        true => Err("authorizer: AllowAllAuthenticator can't be used with CassandraAuthorizer".to_owned()),
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
            assert!(config.auth.passwords && config.auth.permissions, "{authenticator}");
        }
        let config = load("authenticator: AllowAllAuthenticator\nrole_manager: CassandraRoleManager\n").unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn permissions_without_passwords_are_refused() {
        let error = load("authorizer: CassandraAuthorizer\n").unwrap_err();
        assert_eq!(error, "authorizer: AllowAllAuthenticator can't be used with CassandraAuthorizer");
        assert!(load("role_manager: MyRoleManager\n").is_err());
    }
}
