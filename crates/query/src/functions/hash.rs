//! The digests of `mask_hash`: those of Java's own provider, with its names.

use md5::digest::DynDigest;
use types::{CqlType, utf8};

use super::Function;
use super::native::{cannot_infer, check_type};
use crate::QueryError;
use crate::preparing::Preparing;
use crate::terms::Assignable;

const NAME: &str = "mask_hash";
const PARAMETERS: &str = "any, [text]";
const DEFAULT_ALGORITHM: &str = "SHA-256";

/// `mask_hash` of these arguments.
pub(super) fn function(arguments: &[&dyn Assignable], preparing: &Preparing<'_>) -> Result<Function, QueryError> {
    let (value, types) = match arguments {
        [value] => (*value, 1),
        [value, _] => (*value, 2),
        _ => {
            let message = format!("Invalid number of arguments for function system.{NAME}({PARAMETERS})");
            return Err(QueryError::invalid(message));
        }
    };
    let ty = value.compatible_type(preparing).ok_or_else(|| cannot_infer(value, NAME, PARAMETERS))?;
    if let Some(algorithm) = arguments.get(1) {
        check_type(NAME, *algorithm, &CqlType::Text, preparing)?;
    }
    let types = [ty, CqlType::Text][..types].to_vec();
    let mask = Function::scalar(NAME, types, CqlType::Blob, |_, arguments| {
        let name = arguments.get(1).copied().flatten().map(utf8::to_str);
        let mut digest = digest(name.as_deref().unwrap_or(DEFAULT_ALGORITHM))?;
        let Some(value) = arguments[0] else { return Ok(None) };
        digest.update(value);
        Ok(Some(digest.finalize().into_vec()))
    });
    Ok(mask.checking(1, |_, algorithm| digest(&utf8::to_str(algorithm)).map(|_| ())))
}

fn digest(name: &str) -> Result<Box<dyn DynDigest>, QueryError> {
    let upper = name.to_ascii_uppercase();
    Ok(match upper.strip_prefix("OID.").unwrap_or(&upper) {
        "MD2" => Box::new(md2::Md2::default()),
        "MD5" => Box::new(md5::Md5::default()),
        "SHA" | "SHA1" | "SHA-1" | "1.3.14.3.2.26" => Box::new(sha1::Sha1::default()),
        "SHA224" | "SHA-224" | "2.16.840.1.101.3.4.2.4" => Box::new(sha2::Sha224::default()),
        "SHA256" | "SHA-256" | "2.16.840.1.101.3.4.2.1" => Box::new(sha2::Sha256::default()),
        "SHA384" | "SHA-384" | "2.16.840.1.101.3.4.2.2" => Box::new(sha2::Sha384::default()),
        "SHA512" | "SHA-512" | "2.16.840.1.101.3.4.2.3" => Box::new(sha2::Sha512::default()),
        "SHA512/224" | "SHA-512/224" | "2.16.840.1.101.3.4.2.5" => Box::new(sha2::Sha512_224::default()),
        "SHA512/256" | "SHA-512/256" | "2.16.840.1.101.3.4.2.6" => Box::new(sha2::Sha512_256::default()),
        "SHA3-224" | "2.16.840.1.101.3.4.2.7" => Box::new(sha3::Sha3_224::default()),
        "SHA3-256" | "2.16.840.1.101.3.4.2.8" => Box::new(sha3::Sha3_256::default()),
        "SHA3-384" | "2.16.840.1.101.3.4.2.9" => Box::new(sha3::Sha3_384::default()),
        "SHA3-512" | "2.16.840.1.101.3.4.2.10" => Box::new(sha3::Sha3_512::default()),
        _ => return Err(QueryError::invalid(format!("Hash algorithm not found: {name}"))),
    })
}
