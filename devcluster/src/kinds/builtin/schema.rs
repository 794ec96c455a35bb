//! Builds the schema of a built-in kind from its struct types.

use std::collections::HashMap;
use std::sync::Arc;

use super::types::{Field, Shape, find_type};
use crate::kinds::schema::{Fields, Form, List, Merge, Schema};

/// Returns the schema of a struct type.
pub(super) fn schema(type_name: &'static str) -> Arc<Schema> {
    Builder::default().object(type_name)
}

#[derive(Default)]
struct Builder {
    /// The finished schemas by type. `None` marks a type under construction.
    done: HashMap<&'static str, Option<Arc<Schema>>>,
}

impl Builder {
    /// Returns the schema of a struct type. A type inside itself (only `JSONSchemaProps` contains itself)
    /// becomes `Any`: server-side apply then deduces the same structure, because all lists in the type are
    /// atomic.
    fn object(&mut self, type_name: &'static str) -> Arc<Schema> {
        match self.done.get(type_name) {
            Some(Some(schema)) => return Arc::clone(schema),
            Some(None) => return plain(Form::Any),
            None => {}
        }
        let Some(of) = find_type(type_name) else { return plain(Form::Any) };
        self.done.insert(type_name, None);
        let mut fields = Fields { atomic: of.atomic, ..Fields::default() };
        self.add_fields(&mut fields, &of.fields);
        let schema = plain(Form::Object(Arc::new(fields)));
        self.done.insert(type_name, Some(Arc::clone(&schema)));
        schema
    }

    fn add_fields(&mut self, into: &mut Fields, fields: &'static [Field]) {
        for field in fields {
            if field.name.is_empty() {
                if let Some(embedded) = struct_name(field.shape).and_then(find_type) {
                    self.add_fields(into, &embedded.fields);
                }
                continue;
            }
            let mut schema = self.shape(field, field.shape);
            if field.atomic || field.default.is_some() {
                schema = adjusted(&schema, field);
            }
            into.fields.insert(field.name.to_owned(), schema);
        }
    }

    fn shape(&mut self, field: &'static Field, shape: Shape) -> Arc<Schema> {
        plain(match shape {
            Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime => Form::String,
            Shape::Int32 | Shape::Int64 | Shape::Uint8 => Form::Integer,
            Shape::Float => Form::Number,
            Shape::Bool => Form::Boolean,
            Shape::IntOrString | Shape::Quantity => Form::IntOrString,
            Shape::RawExtension | Shape::Json | Shape::Fields | Shape::SchemaOr(_) => Form::Any,
            Shape::Strings => Form::List { items: plain(Form::String), list: List::Atomic, merge: None },
            Shape::Struct(name) => return self.object(name),
            Shape::Pointer(target) => return self.shape(field, *target),
            Shape::List(items) => Form::List {
                items: self.shape(field, *items),
                list: match &field.list {
                    None => List::Atomic,
                    Some(keys) if keys.is_empty() => List::Set,
                    Some(keys) => List::Map(keys.iter().map(|key| (*key).to_owned()).collect()),
                },
                merge: field
                    .merge
                    .map(|key| if key.is_empty() { Merge::Scalars } else { Merge::Key(key.to_owned()) }),
            },
            Shape::Map(values) => Form::Map { values: self.shape(field, *values), atomic: field.atomic },
        })
    }
}

/// Returns a copy of the schema with the properties that only this field declares.
fn adjusted(schema: &Arc<Schema>, field: &Field) -> Arc<Schema> {
    let mut schema = Schema::clone(schema);
    if let Form::Object(fields) = &mut schema.form {
        let fields = Arc::make_mut(fields);
        fields.atomic |= field.atomic;
    }
    schema.default.clone_from(&field.default);
    Arc::new(schema)
}

fn struct_name(shape: Shape) -> Option<&'static str> {
    match shape {
        Shape::Struct(name) => Some(name),
        Shape::Pointer(target) => struct_name(*target),
        _ => None,
    }
}

fn plain(form: Form) -> Arc<Schema> {
    Arc::new(Schema { form, nullable: false, default: None, checks: None })
}
