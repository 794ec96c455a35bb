//! The message of a panic.

use std::any::Any;

/// Returns the message of a panic, or a fixed text if its payload is not a string.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("panic without a text")
}
