//! Answers, in either encoding. A list or a map has two names, as in requests.
//!
//! What surprises: XML carries a carriage return only as a reference (parsers make a plain one a
//! line feed, and the body's MD5 would not fit), and other control characters not at all, which is
//! why bodies must not have them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::fields::EntryNames;
use crate::message_attributes::is_message_char;

/// Most answers are no longer.
const USUAL_BYTES: usize = 1_024;

/// Collects the members of an answer.
pub(crate) struct Writer {
    out: Vec<u8>,
    is_json: bool,
    /// Whether what comes next is the first of its object or list.
    is_first: bool,
}

impl Writer {
    pub(super) fn json() -> Writer {
        Writer::beginning_with(b"{", true)
    }

    pub(super) fn xml() -> Writer {
        Writer::beginning_with(b"<?xml version=\"1.0\"?>", false)
    }

    fn beginning_with(head: &[u8], is_json: bool) -> Writer {
        let mut out = Vec::with_capacity(USUAL_BYTES);
        out.extend(head);
        Writer { out, is_json, is_first: is_json }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.is_json {
            self.out.push(b'}');
        }
        self.out
    }

    pub(super) fn open_xml(&mut self, name: &str) {
        self.out.push(b'<');
        self.out.extend(name.as_bytes());
        self.out.push(b'>');
    }

    pub(super) fn close_xml(&mut self, name: &str) {
        self.out.extend(b"</");
        self.out.extend(name.as_bytes());
        self.out.push(b'>');
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        if self.is_json {
            self.key(name);
            self.json_text(text);
        } else {
            self.open_xml(name);
            self.xml_text(text);
            self.close_xml(name);
        }
    }

    /// A text that may be absent.
    pub(crate) fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.bare(name, &number.to_string());
    }

    pub(crate) fn flag(&mut self, name: &str, flag: bool) {
        self.bare(name, if flag { "true" } else { "false" });
    }

    pub(crate) fn bytes(&mut self, name: &str, bytes: &[u8]) {
        self.text(name, &BASE64_STANDARD.encode(bytes));
    }

    pub(crate) fn texts(&mut self, json: &str, xml: &str, texts: &[String]) {
        if self.is_json {
            self.key(json);
            self.open(b'[');
            for text in texts {
                self.separate();
                self.json_text(text);
            }
            self.close(b']');
        } else {
            texts.iter().for_each(|text| self.text(xml, text));
        }
    }

    pub(crate) fn structures<T>(
        &mut self,
        json: &str,
        xml: &str,
        elements: &[T],
        write: impl Fn(&mut Writer, &T),
    ) {
        if self.is_json {
            self.key(json);
            self.open(b'[');
        }
        for element in elements {
            if self.is_json {
                self.separate();
                self.open(b'{');
                write(self, element);
                self.close(b'}');
            } else {
                self.open_xml(xml);
                write(self, element);
                self.close_xml(xml);
            }
        }
        if self.is_json {
            self.close(b']');
        }
    }

    pub(crate) fn map<'a>(
        &mut self,
        json: &str,
        xml: &str,
        names: &EntryNames,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) {
        let entries = entries.into_iter();
        if self.is_json {
            self.key(json);
            self.open(b'{');
            entries.for_each(|(key, value)| self.text(key, value));
            self.close(b'}');
        } else {
            for (key, value) in entries {
                self.open_xml(xml);
                self.text(names.key, key);
                self.text(names.value, value);
                self.close_xml(xml);
            }
        }
    }

    /// A map whose values are structures; in XML its keys are names.
    pub(crate) fn structure_map<'a, T>(
        &mut self,
        json: &str,
        xml: &str,
        entries: impl Iterator<Item = (&'a str, T)>,
        write: impl Fn(&mut Writer, T),
    ) {
        if self.is_json {
            self.key(json);
            self.open(b'{');
        }
        for (key, value) in entries {
            if self.is_json {
                self.key(key);
                self.open(b'{');
                write(self, value);
                self.close(b'}');
            } else {
                self.open_xml(xml);
                self.text("Name", key);
                self.open_xml("Value");
                write(self, value);
                self.close_xml("Value");
                self.close_xml(xml);
            }
        }
        if self.is_json {
            self.close(b'}');
        }
    }

    fn bare(&mut self, name: &str, value: &str) {
        if self.is_json {
            self.key(name);
            self.out.extend(value.as_bytes());
        } else {
            self.text(name, value);
        }
    }

    fn key(&mut self, name: &str) {
        self.separate();
        self.json_text(name);
        self.out.push(b':');
    }

    fn separate(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    fn open(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.is_first = true;
    }

    fn close(&mut self, bracket: u8) {
        self.out.push(bracket);
        self.is_first = false;
    }

    fn json_text(&mut self, text: &str) {
        serde_json::to_writer(&mut self.out, text).expect("a text is JSON, and memory takes it");
    }

    /// What XML cannot carry at all, such as in a refusal that repeats a wrong name, is replaced.
    fn xml_text(&mut self, text: &str) {
        let mut plain_from = 0;
        for (at, char) in text.char_indices() {
            let instead = match char {
                '&' => "&amp;",
                '<' => "&lt;",
                '>' => "&gt;",
                '"' => "&quot;",
                '\r' => "&#xD;",
                _ if is_message_char(char) => continue,
                _ => "\u{fffd}",
            };
            self.out.extend(&text.as_bytes()[plain_from..at]);
            self.out.extend(instead.as_bytes());
            plain_from = at + char.len_utf8();
        }
        self.out.extend(&text.as_bytes()[plain_from..]);
    }
}
