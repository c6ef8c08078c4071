//! The signature of a message: HMAC-SHA256 over its id, the time and the body (Standard Webhooks
//! 1.0.0, "Signature scheme").

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The value of `webhook-signature`; the time is in seconds since 1970.
pub(super) fn of(key: &[u8], (id, timestamp): (&str, u64), body: &str) -> String {
    let key = Key::new(HMAC_SHA256, key);
    let signed = format!("{id}.{timestamp}.{body}");
    format!("v1,{}", STANDARD.encode(sign(&key, signed.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of the specification's reference libraries.
    #[test]
    fn it_is_that_of_the_reference() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signature = of(&key, (id, 1_614_265_330), r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
