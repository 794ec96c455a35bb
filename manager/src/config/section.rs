//! Sections of the file: typed keys below a name of their own.
//!
//! The runtime's sections are fields of [`ManagerConfiguration`](super::ManagerConfiguration). A program's
//! sections have types that this crate does not know; here they are trait objects, and go through the same
//! steps: deserialize, check, compare, apply.

use std::any::Any;
use std::sync::Arc;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::sync::watch;

use super::Problem;
use super::check::check;
use super::document::Document;
use super::messages::one_of;

/// A section that a program adds to the configuration file, beside those of the runtime.
///
/// An absent section has the type's `Default`, its doc comments become the comments of the default file, and
/// its schemars attributes are enforced: `range` for numbers, `extend("uniqueItems" = true)` for lists, and
/// `extend("x-mainstay-range" = ["1s", "1h"])` for a [`Duration`](super::Duration) or [`Size`](super::Size).
/// Attributes of fields inside an enum are not enforced; check such fields in `validate`.
///
/// A value must deserialize from its own serialized form unchanged: changes are found by comparing this form,
/// and keys that wait for the next start keep their old value through it.
///
/// Give the type `#[serde(default, deny_unknown_fields, rename_all = "camelCase")]`, and neither `flatten`
/// nor an untagged enum: serde loses the position of an error inside both.
///
/// ```
/// use mainstay::config::{ConfigSchema, Duration, Overrides, Problem, Section};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// The goods of the shop.
/// #[derive(Serialize, Deserialize, JsonSchema)]
/// #[serde(default, deny_unknown_fields, rename_all = "camelCase")]
/// struct ShopConfig {
///     /// The most open orders.
///     #[schemars(range(min = 1, max = 1000))]
///     max_orders: u32,
///     /// How long an order may stay open.
///     #[schemars(extend("x-mainstay-range" = ["1s", "24h"]))]
///     patience: Duration,
///     /// Fruit on sale.
///     fruit: Vec<String>,
/// }
///
/// impl Default for ShopConfig {
///     fn default() -> Self {
///         Self { max_orders: 10, patience: Duration::from_secs(60), fruit: vec!["apple".into()] }
///     }
/// }
///
/// impl Section for ShopConfig {
///     const RESTART: &'static [&'static str] = &["fruit"];
///
///     fn validate(&self) -> Vec<Problem> {
///         let empty = self.fruit.is_empty();
///         empty.then(|| Problem::new("fruit", &self.fruit, "at least one")).into_iter().collect()
///     }
/// }
///
/// let schema = ConfigSchema::new().section::<ShopConfig>("shop");
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     schema.parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default())
/// };
/// let loaded = read("shop: {patience: 90s}")?;
/// let shop = loaded.configuration.section::<ShopConfig>("shop").expect("declared above");
/// assert_eq!((shop.max_orders, shop.patience.as_secs()), (10, 90));
///
/// let error = read("shop: {maxOrders: 0, fruit: []}\nshutdown: {gracePeriod: 0s}").unwrap_err();
/// assert_eq!(error.lines(), [
///     "manager.yaml: shutdown.gracePeriod: \"0s\"; expected a duration from 1s to 1h",
///     "manager.yaml: shop.maxOrders: 0; expected a whole number from 1 to 1000",
///     "manager.yaml: shop.fruit: []; expected at least one",
/// ]);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
pub trait Section: DeserializeOwned + Serialize + JsonSchema + Default + Send + Sync + 'static {
    /// Keys of the section with changes that apply at the next start, as paths below the section, such as
    /// `regions` or `server.port`; `""` is the whole section. All other keys apply live.
    const RESTART: &'static [&'static str] = &[];

    /// Returns all problems of the section's values, also of their combinations. The bounds of the schema are
    /// checked separately.
    fn validate(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// The time at which a changed key of a saved configuration file applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// A changed key applies at once, in the running process.
    Live,
    /// A changed key applies when the process starts again.
    AtNextStart,
}

/// Error of a request for a section of the configuration by a name or a type that the program does not
/// declare.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// The program declares no section of the requested name.
    #[error("no section {name:?} is declared; the program has {}", one_of(.declared))]
    Unknown {
        /// The name of the requested section.
        name: String,
        /// The names of the sections that the program declares.
        declared: Vec<&'static str>,
    },
    /// The program declares the section with another type.
    #[error("section {name:?} is not of type {asked}")]
    Type {
        /// The name of the section that has another type.
        name: String,
        /// The name of the Rust type that was requested.
        asked: &'static str,
    },
}

/// The declaration of one section of the configuration file, independent of its Rust type.
#[derive(Clone, derive_more::Debug)]
#[debug("DeclaredSection {{ name: {:?}, .. }}", self.name)]
pub(super) struct DeclaredSection {
    pub(super) name: &'static str,
    pub(super) schema: Json,
    pub(super) default: SectionValue,
    /// Deserializes the value of the declared section from a document, or returns its default.
    pub(super) read: fn(&mut Document<'_>, &Self) -> SectionValue,
}

/// The value of a section of any Rust type. Immutable.
pub(super) type SectionValue = Arc<dyn AnySection>;

/// The value of a section, independent of its Rust type.
pub(super) trait AnySection: Any + Send + Sync {
    /// Returns every key of the section with its value as JSON, as the file spells it.
    fn tree(&self) -> &Json;
    /// Returns every key of the section with its value as JSON text, in the order of the fields.
    fn text(&self) -> String;
    /// Returns the keys of the section that apply at the next start: [`Section::RESTART`].
    fn restart(&self) -> &'static [&'static str];
    /// Returns all problems of the section's values, from [`Section::validate`].
    fn validate(&self) -> Vec<Problem>;
    /// Deserializes a tree into a value of the same section type; `None` if the type cannot deserialize its
    /// own serialized form.
    fn reread(&self, tree: Json) -> Option<SectionValue>;
    /// Returns a new channel for values of this section, a `watch::Sender` of the section's type, that holds
    /// this value.
    fn open(&self) -> Channel;
    /// Publishes this value on a channel that [`open`](Self::open) returned for a section of the same type.
    fn publish(&self, channel: &Channel);
}

/// The value of a section with its Rust type, and its serialized form.
pub(super) struct TypedSection<S> {
    pub(super) section: Arc<S>,
    tree: Json,
}

/// Publishes each new value of one section to its subscribers: a `watch::Sender` of the section's type.
pub(super) type Channel = Box<dyn Any + Send + Sync>;

// === impl DeclaredSection ===

impl DeclaredSection {
    pub(super) fn of<S: Section>(name: &'static str) -> Self {
        Self {
            name,
            schema: schema_of::<S>(),
            default: TypedSection::<S>::new(S::default()),
            read: |document, declared| {
                TypedSection::<S>::new(document.section(declared.name, &declared.schema))
            },
        }
    }

    /// Returns those keys of [`Section::RESTART`] that the type of the section does not have.
    pub(super) fn unknown_restart_keys(&self) -> impl Iterator<Item = &'static str> {
        let has = |path: &str| {
            let mut names = path.split('.').filter(|name| !name.is_empty());
            // The schema of an optional section has no properties at this level; its keys are not checked.
            names.try_fold(&self.schema, |schema, name| match schema.get("properties") {
                Some(keys) => keys.get(name),
                None => Some(schema),
            })
        };
        self.default.restart().iter().copied().filter(move |path| has(path).is_none())
    }

    /// Adds all problems of a section: values of `tree`, the section as it is written, that are out of
    /// bounds, and `own`, the problems that its type reports.
    pub(super) fn check(&self, tree: &Json, own: Vec<Problem>, problems: &mut Vec<Problem>) {
        check(&self.schema, tree, self.name, problems);
        problems.extend(own.into_iter().map(|problem| problem.below(self.name)));
    }
}

/// Returns the JSON Schema of a type, with all subschemas inline.
pub(super) fn schema_of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    schema.into()
}

/// Returns whether a path of keys equals the path `key` or is below it; every path is below `""`.
pub(super) fn is_within(path: &str, key: &str) -> bool {
    let rest = path.strip_prefix(key);
    rest.is_some_and(|rest| key.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns when a change of the key at `path` applies. `restart` has the keys that apply at the next start. A
/// mapping with such a key also applies at the next start if it is added or removed as a whole.
pub(super) fn applies(path: &str, restart: &[&str]) -> Applies {
    let waits = restart.iter().any(|key| is_within(path, key) || is_within(key, path));
    if waits { Applies::AtNextStart } else { Applies::Live }
}

// === impl TypedSection ===

impl<S: Section> TypedSection<S> {
    #[expect(clippy::new_ret_no_self, reason = "every caller needs the trait object")]
    fn new(section: S) -> SectionValue {
        let tree = serde_json::to_value(&section).unwrap_or(Json::Null);
        Arc::new(Self { section: Arc::new(section), tree })
    }
}

impl<S: Section> AnySection for TypedSection<S> {
    fn tree(&self) -> &Json {
        &self.tree
    }

    fn text(&self) -> String {
        serde_json::to_string(&*self.section).unwrap_or_default()
    }

    fn restart(&self) -> &'static [&'static str] {
        S::RESTART
    }

    fn validate(&self) -> Vec<Problem> {
        self.section.validate()
    }

    fn reread(&self, tree: Json) -> Option<SectionValue> {
        serde_json::from_value::<S>(tree).ok().map(Self::new)
    }

    fn open(&self) -> Channel {
        Box::new(watch::Sender::new(Arc::clone(&self.section)))
    }

    fn publish(&self, channel: &Channel) {
        if let Some(sender) = channel.downcast_ref::<watch::Sender<Arc<S>>>() {
            sender.send_replace(Arc::clone(&self.section));
        }
    }
}

#[cfg(test)]
mod tests;
