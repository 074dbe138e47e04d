//! How a command writes and reads ids.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use xuid_engine::{Form, Id, PrefixError, Prefixed, UnknownForm};

use crate::text::exit::{Usage, usage};

/// The flags of a command that writes or reads ids.
#[derive(Debug, clap::Args)]
pub(crate) struct FormArgs {
    /// How an id is written
    #[arg(long, value_name = "FORM", default_value_t, value_parser = forms())]
    form: Form,
    /// What stands before each id, as in ord_
    #[arg(long, value_name = "TEXT", value_parser = prefix)]
    prefix: Option<String>,
}

impl FormArgs {
    /// The form with its prefix.
    pub(crate) fn prefixed(&self) -> Result<Prefixed<'_>, PrefixError> {
        self.form.prefixed(self.prefix.as_deref().unwrap_or_default())
    }

    /// Whether it is another than that of numbers.
    pub(crate) fn is_given(&self) -> bool {
        self.form != Form::Decimal || self.prefix.is_some()
    }
}

/// A text of an id, as a message calls what is allowed.
pub(crate) fn example(form: Prefixed<'_>) -> String {
    // Of 2026: 63 bits are in use.
    let id = Id::from_raw(1_128_275_363_336_683_521).unwrap_or_default();
    form.text(id).to_string()
}

/// No id is given to a command that takes some.
pub(crate) fn no_id(form: Prefixed<'_>) -> Usage {
    let form = form.form();
    usage(format!("no id is given; allowed are ids in {form}, as arguments or on standard input"))
}

fn forms() -> impl TypedValueParser<Value = Form> {
    PossibleValuesParser::new(Form::ALL.map(Form::name))
        .try_map(|name| -> Result<Form, UnknownForm> { name.parse() })
}

fn prefix(text: &str) -> Result<String, PrefixError> {
    Form::default().prefixed(text).map(|_| text.to_owned())
}
