//! `GET /openapi.json`: the description of this API for machines. A committed file, so that a
//! change of the API is a change that somebody reads.

use axum::http::{HeaderName, HeaderValue, header};

const DOCUMENT: &str = include_str!("../openapi.json");

pub(crate) async fn handle() -> ([(HeaderName, HeaderValue); 1], &'static str) {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::api_error::Code;
    use crate::routes::routes;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    #[test]
    fn the_document_has_every_operation_and_no_other() {
        let document = document();
        let mut described = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys().filter(|key| *key != "parameters")
            {
                described.insert((method.clone(), path.clone()));
            }
        }
        let served: BTreeSet<_> =
            routes().iter().map(|r| (r.method.to_owned(), r.path.to_owned())).collect();
        assert_eq!(described, served);
    }

    #[test]
    fn the_document_has_every_error_code_and_no_other() {
        let document = document();
        let codes = &document["components"]["schemas"]["ErrorCode"]["enum"];
        let described: BTreeSet<_> =
            codes.as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
        let known: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(described, known);
    }

    #[test]
    fn every_reference_in_the_document_leads_somewhere() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        found.push(reference.clone());
                    }
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(!found.is_empty());
        for reference in found {
            let target = document.pointer(reference.trim_start_matches('#'));
            assert!(target.is_some(), "{reference}");
        }
    }

    #[test]
    fn the_guide_explains_every_error_code_with_its_status() {
        let guide = include_str!("../../../docs/http.md");
        for code in Code::ALL {
            let row = format!("| `{}` | {} |", code.as_str(), code.status().as_u16());
            assert!(guide.contains(&row), "docs/http.md lacks {row}");
        }
    }
}
