//! Replicas by default, which no guardrail may refuse.

use super::Config;

/// Refuses a number of replicas by default that a guardrail would refuse, with Cassandra's texts.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let guardrails = &config.guardrails;
    let default = guardrails.default_keyspace_rf.unwrap_or(1);
    let Some(default) = u64::try_from(default).ok().filter(|default| *default > 0) else {
        return Err("default_keyspace_rf cannot be less than 1".to_owned());
    };
    let (minimum, maximum) = (guardrails.minimum_replication_factor.fail, guardrails.maximum_replication_factor.fail);
    match (minimum, maximum) {
        (Some(minimum), _) if minimum > default => Err(format!(
            "minimum_replication_factor_fail_threshold to be set ({minimum}) cannot be greater than default_keyspace_rf ({default})"
        )),
        (_, Some(maximum)) if maximum < default => Err(format!(
            "maximum_replication_factor_fail_threshold to be set ({maximum}) cannot be lesser than default_keyspace_rf ({default})"
        )),
        _ => Ok(()),
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
    fn the_replicas_by_default_are_within_the_guardrails() {
        assert_eq!(load("default_keyspace_rf: 3\n").unwrap().guardrails.default_keyspace_rf, Some(3));
        load("default_keyspace_rf: 3\nminimum_replication_factor_fail_threshold: 3\n").unwrap();
        for (text, refused) in [
            ("default_keyspace_rf: 0\n", "default_keyspace_rf cannot be less than 1"),
            (
                "minimum_replication_factor_fail_threshold: 2\n",
                "to be set (2) cannot be greater than default_keyspace_rf (1)",
            ),
            (
                "default_keyspace_rf: 3\nmaximum_replication_factor_fail_threshold: 2\n",
                "to be set (2) cannot be lesser than default_keyspace_rf (3)",
            ),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(refused), "{error}");
        }
    }
}
