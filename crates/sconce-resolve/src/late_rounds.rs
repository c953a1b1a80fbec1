//! What resolved packages want in addition ([`find_limits`](crate::python::late_limits::find_limits)): all of it where
//! that resolves, and else as much of it as does.

use crate::python::late_limits::{LateLimit, LimitKind};

/// How limits were met.
#[derive(Debug)]
pub(crate) struct MetLimits<T> {
    /// Those that hold together, and what resolved with them; `None` where not even one does.
    pub(crate) taken: Option<(Vec<LateLimit>, T)>,
    /// Those with which nothing resolves.
    pub(crate) refused: Vec<LateLimit>,
}

/// Tries all limits together, and where nothing resolves with them one cause after another, each on top of those
/// that hold. Limits of one cause belong together: torch and torchaudio of one series.
pub(crate) fn meet_limits<T>(
    limits: Vec<LateLimit>,
    mut attempt: impl FnMut(&[LateLimit]) -> Option<T>,
) -> MetLimits<T> {
    if let Some(found) = attempt(&limits) {
        let taken = Some((limits, found));
        let refused = Vec::new();
        return MetLimits { taken, refused };
    }
    let causes: Vec<&[LateLimit]> = limits.chunk_by(|a, b| a.why == b.why).collect();
    let (mut taken, mut refused): (Option<(Vec<LateLimit>, T)>, Vec<LateLimit>) =
        (None, Vec::new());
    for cause in &causes {
        let before = taken.as_ref().map_or(&[][..], |(held, _)| held);
        let more = [before, cause].concat();
        // Alone, the only cause was tried above.
        match attempt(&more).filter(|_| causes.len() > 1) {
            Some(found) => taken = Some((more, found)),
            None => refused.extend_from_slice(cause),
        }
    }
    MetLimits { taken, refused }
}

/// What is asked of packages, a line for each cause: `torch==2.11.* and torchaudio==2.11.*, because of …`.
pub(crate) fn describe_limits(limits: &[LateLimit]) -> Vec<String> {
    let causes = limits.chunk_by(|a, b| a.why == b.why);
    let notes = causes.filter_map(|cause| {
        let packages = cause.iter().filter_map(|limit| match &limit.asks {
            LimitKind::Package(text) => Some(text.as_str()),
            LimitKind::Python(_) => None,
        });
        let packages: Vec<&str> = packages.collect();
        let why = &cause.first()?.why;
        (!packages.is_empty()).then(|| format!("{}, because of {why}", packages.join(" and ")))
    });
    notes.collect()
}

/// The reasons, each once.
pub(crate) fn list_reasons(limits: &[LateLimit]) -> String {
    let mut reasons: Vec<&str> = limits.iter().map(|limit| limit.why.as_str()).collect();
    reasons.dedup();
    reasons.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str, why: &str) -> LateLimit {
        LateLimit {
            asks: LimitKind::Package(text.to_owned()),
            why: why.to_owned(),
        }
    }

    fn texts(limits: &[LateLimit]) -> Vec<String> {
        let text = |limit: &LateLimit| match &limit.asks {
            LimitKind::Package(text) => text.clone(),
            LimitKind::Python(text) => (*text).to_owned(),
        };
        limits.iter().map(text).collect()
    }

    fn met(limits: &[(&str, &str)], bad: &str) -> (Vec<String>, Vec<String>, usize) {
        let limits = limits.iter().map(|(text, why)| limit(text, why)).collect();
        let mut attempts = 0;
        let met = meet_limits(limits, |limits| {
            attempts += 1;
            (!texts(limits).iter().any(|text| text == bad)).then_some(())
        });
        let taken = met.taken.map(|(taken, ())| texts(&taken));
        (taken.unwrap_or_default(), texts(&met.refused), attempts)
    }

    #[test]
    fn one_that_cannot_be_met_does_not_take_the_others_with_it() {
        let limits = [
            ("numpy<2", "a"),
            ("torch==1.*", "b"),
            ("torchaudio==1.*", "b"),
            ("x<3", "c"),
        ];
        let all = ["numpy<2", "torch==1.*", "torchaudio==1.*", "x<3"].map(str::to_owned);
        assert_eq!(met(&limits, ""), (all.to_vec(), vec![], 1));
        let without = (
            vec!["numpy<2".to_owned(), "x<3".to_owned()],
            vec!["torch==1.*".to_owned(), "torchaudio==1.*".to_owned()],
            4,
        );
        assert_eq!(met(&limits, "torchaudio==1.*"), without);
        assert_eq!(met(&[("a", "a")], "a").1, ["a"]);
        assert_eq!(
            describe_limits(&[limit("a==1", "x"), limit("b==1", "x"), limit("c", "y")]),
            ["a==1 and b==1, because of x", "c, because of y"]
        );
        assert_eq!(list_reasons(&[limit("a", "x"), limit("b", "x")]), "x");
    }
}
