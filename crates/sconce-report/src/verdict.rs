//! What a report says is wrong with a run, in plain words, and what to change.

/// One thing that takes time, memory or a card away.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The rule that gave it, such as `starved-by-data`.
    pub rule: String,
    /// How much it matters.
    pub weight: Weight,
    /// One sentence with the figure.
    pub title: String,
    /// The figures that it stands on, one each, the threshold among them.
    pub evidence: Vec<String>,
    /// What mending it is thought to give, and how sure that is; absent where nobody can tell.
    pub gain: Option<String>,
    /// The share of the run's time that mending it would give back at most, 0 to 1.
    pub gain_share: Option<f64>,
    /// What to change, best first.
    pub mends: Vec<String>,
}

/// A rule that cannot be judged of a run: that there is no such verdict says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unjudged {
    /// The rule.
    pub rule: String,
    /// Why.
    pub why: String,
    /// There was too little of the run for it; else something was not measured.
    pub too_little: bool,
}

/// That so many rules wait for more of a run, and what most of them wait for; `None` where none does.
#[must_use]
pub fn not_judged_yet(unjudged: &[Unjudged]) -> Option<String> {
    let waiting = || unjudged.iter().filter(|one| one.too_little);
    let many = |why: &str| waiting().filter(|one| one.why == why).count();
    // Of as many, the first.
    let most = waiting().rev().max_by_key(|one| many(&one.why))?;
    let names: Vec<&str> = waiting().map(|one| one.rule.as_str()).collect();
    let which = match names.len() {
        ..=2 => names.join(" and "),
        count => format!("{count} of {} rules", crate::verdicts::count()),
    };
    Some(format!("{which}: {}", most.why))
}

/// How much a verdict matters; the heavier first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// The run ended of it, or will.
    Fatal,
    /// It costs a good part of the time, the memory or the card.
    Costly,
    /// Worth knowing.
    Note,
}

impl Weight {
    /// The word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Costly => "costly",
            Self::Note => "note",
        }
    }
}
