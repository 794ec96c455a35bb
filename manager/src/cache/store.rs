//! The cached objects of one kind and scope: filled by lists, watches and own writes, indexed, compressed,
//! and delivered to handlers.

mod counts;
mod dispatcher;
mod function;
mod index;
mod left_out;
mod object_store;
mod packer;
mod required;
mod select;
mod slots;
mod status;
mod sub_scope;
mod table;
mod untyped_store;

pub use dispatcher::{DeltaHandler, SLOW_HANDLER, Subscription};
pub use function::IndexError;
pub use packer::Pack;
pub use required::Required;
pub use select::{LabelSelector, Scope, ScopedKind, Select, SelectorError};
pub use status::{HandlerTrouble, KindStatus, PartStatus};
pub use untyped_store::UntypedStore;

pub(super) use dispatcher::Dispatcher;
pub(super) use function::IndexFunction;
pub(super) use object_store::{DeliveryGuard, Limits, ObjectStore, Received};
pub(super) use packer::{Packer, Rules, SharedCompressor};
pub(super) use required::RequiredKinds;
pub(super) use sub_scope::SubScope;
pub(super) use table::Removal;

use counts::Counts;
use dispatcher::{Job, Subscriber};
use index::{Indexes, Plan, Values, merged};
use left_out::LeftOut;
use packer::{Dictionaries, PackQueue, STALL_TIMEOUT};
use select::IndexValue;
use slots::{Number, Slot, Slots};
use table::{Arrival, Table};
