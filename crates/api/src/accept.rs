//! The types that a client takes: the headers of proactive negotiation (RFC 9110, 12.5).

use axum::http::{HeaderMap, HeaderName};

/// The names in a header such as `Accept`, in small letters, with their weights in thousandths. A
/// weight that cannot be read is 0.
pub fn accepted(headers: &HeaderMap, header: &HeaderName) -> Vec<(String, u32)> {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    let item = |item: &str| {
        let mut parts = item.split(';').map(|part| part.trim().to_ascii_lowercase());
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").map(thousandths));
        (name, weight.unwrap_or(1_000))
    };
    values.flat_map(|value| value.split(',')).map(item).collect()
}

/// A weight of at most three decimals.
fn thousandths(text: &str) -> u32 {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let is_weight = matches!(whole, "0" | "1") && decimals.len() <= 3;
    if is_weight { format!("{whole}{decimals:0<3}").parse().unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header::ACCEPT};

    #[test]
    fn names_come_with_their_weights() {
        let check = |value: &'static str, expected: &[(&str, u32)]| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(value));
            let found = accepted(&headers, &ACCEPT);
            let found: Vec<_> = found.iter().map(|(name, weight)| (&**name, *weight)).collect();
            assert_eq!(found, expected, "{value}");
        };
        check("text/HTML, */*;q=0.8", &[("text/html", 1_000), ("*/*", 800)]);
        check("gzip; q=0.25,br;q=1.000", &[("gzip", 250), ("br", 1_000)]);
        check("text/html;level=1;q=0.001", &[("text/html", 1)]);
        check(
            "a;q=0, b;q=, c;q=2, d;q=x, e;q=0.0001",
            &[("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 0)],
        );
        assert!(accepted(&HeaderMap::new(), &ACCEPT).is_empty());
    }
}
