//! Pages: one file each that opens without a network. Texts come from outside (names, lines, commands):
//! they reach a page through [`Html::push_text`] alone, and a page's policy lets it load nothing.

use std::fmt::Write as _;

/// The style of all pages.
pub const STYLE: &str = include_str!("html/style.css");
const PAGE: &str = include_str!("html/page.html");

/// Markup that is being written.
#[derive(Debug, Default)]
pub struct Html(String);

/// A part of a bar.
pub struct BarSegment {
    /// The colour's class in the style.
    pub colour: &'static str,
    /// What it is called in the legend.
    pub name: String,
    /// How much of the whole it is.
    pub bytes: u64,
}

impl Html {
    /// Adds markup, which is part of this program: nothing that was read can be of this type.
    pub fn push_markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds a text, as text.
    pub fn push_text(&mut self, text: &str) -> &mut Self {
        self.0.push_str(&escape_html(text));
        self
    }

    /// Adds a text in an element.
    pub fn push_element(&mut self, tag: &'static str, text: &str) -> &mut Self {
        self.push_markup("<")
            .push_markup(tag)
            .push_markup(">")
            .push_text(text);
        self.push_markup("</").push_markup(tag).push_markup(">\n")
    }

    /// Adds the paragraphs of a list; none where there is nothing to say.
    pub fn push_list(&mut self, items: &[String]) -> &mut Self {
        if items.is_empty() {
            return self;
        }
        self.push_markup("<ul>\n");
        for item in items {
            self.push_element("li", item);
        }
        self.push_markup("</ul>\n")
    }

    /// Adds a table of figures. Columns whose heading begins with `#` are numbers; a row of one cell spans all.
    pub fn push_table<const N: usize>(
        &mut self,
        heads: [&'static str; N],
        rows: &[[String; N]],
    ) -> &mut Self {
        self.push_markup("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
        for head in heads {
            match head.strip_prefix('#') {
                Some(head) => self
                    .push_markup("<th scope=\"col\" class=\"number\">")
                    .push_markup(head),
                None => self.push_markup("<th scope=\"col\">").push_markup(head),
            };
            self.push_markup("</th>");
        }
        self.push_markup("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.push_markup("<tr>");
            for (head, cell) in heads.iter().zip(row) {
                match head.starts_with('#') {
                    true => self.push_markup("<td class=\"number\">"),
                    false => self.push_markup("<td>"),
                };
                self.push_text(cell).push_markup("</td>");
            }
            self.push_markup("</tr>\n");
        }
        self.push_markup("</tbody></table></div>\n")
    }

    /// Adds a bar of parts of a whole, which may be more than they are; where they are more than `end`, a line
    /// stands there. `said` is the bar in words.
    pub fn push_bar(&mut self, parts: &[BarSegment], end: u64, said: &str) -> &mut Self {
        let whole = parts
            .iter()
            .fold(0, |sum: u64, part| sum.saturating_add(part.bytes));
        let whole = whole.max(end);
        let share = |bytes: u64| bytes as f64 * 100.0 / whole.max(1) as f64;
        self.push_markup("<div class=\"stack\" role=\"img\" aria-label=\"")
            .push_text(said)
            .push_markup("\">");
        for part in parts.iter().filter(|part| part.bytes > 0) {
            self.push_markup("<i class=\"")
                .push_markup(part.colour)
                .push_markup("\" style=\"width:");
            let _ = write!(self.0, "{:.3}%", share(part.bytes));
            self.push_markup("\"></i>");
        }
        if whole > end {
            let _ = write!(self.0, "<b style=\"left:{:.3}%\"></b>", share(end));
        }
        self.push_markup("</div>\n")
    }

    /// Adds the names of a bar's parts.
    pub fn push_legend(&mut self, parts: &[BarSegment]) -> &mut Self {
        self.push_markup("<ul class=\"legend\">");
        for part in parts.iter().filter(|part| part.bytes > 0) {
            self.push_markup("<li><i class=\"")
                .push_markup(part.colour)
                .push_markup("\"></i>");
            self.push_text(&part.name).push_markup("</li>");
        }
        self.push_markup("</ul>\n")
    }

    /// Returns the whole page.
    pub fn render_page(&self, title: &str, about: &str) -> String {
        fill_template(
            PAGE,
            &[
                ("TITLE", &escape_html(title)),
                ("ABOUT", &escape_html(about)),
                ("CSS", STYLE),
                ("BODY", &self.0),
            ],
        )
    }
}

/// Returns a page with its blanks filled; what is filled in has no blanks itself.
pub fn fill_template(page: &str, values: &[(&str, &str)]) -> String {
    let mut parts = page.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or(("", part));
        let value = values.iter().find(|(key, _)| *key == name);
        text += value.map_or("", |(_, value)| value);
        text += rest;
    }
    text
}

/// Returns a text that stands for itself, also in a quoted attribute.
pub fn escape_html(text: &str) -> String {
    let unseen =
        |letter: char| sconce_base::text::is_unprintable(letter) && !matches!(letter, '\n' | '\t');
    let text = text.replace(unseen, "\u{fffd}");
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_no_markup() {
        let hostile = "\"><script>alert(1)</script>&{{BODY}}";
        let mut html = Html::default();
        html.push_element("p", hostile)
            .push_list(&[hostile.to_owned()]);
        html.push_table(["a", "#b"], &[[hostile.to_owned(), hostile.to_owned()]]);
        let part = BarSegment {
            colour: "other",
            name: hostile.to_owned(),
            bytes: 1,
        };
        html.push_bar(std::slice::from_ref(&part), 3, hostile);
        html.push_legend(&[part]);
        let page = html.render_page(hostile, hostile);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert(1)"));
        assert_eq!(page.matches("{{BODY}}").count(), 9);
        assert!(page.contains("aria-label=\"&quot;&gt;&lt;script&gt;"));
        assert!(page.contains("style=\"width:33.333%\""));
        for word in ["http:", "https:", " src=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("default-src 'none'; style-src 'unsafe-inline'\""));
    }
}
