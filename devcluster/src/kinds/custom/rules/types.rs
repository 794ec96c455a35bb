//! The static types of CEL rules, and the type errors that the server reports for a definition.
//!
//! The check covers access to undeclared fields, unknown names and functions, and operators over types that
//! do not fit. Expressions beyond this check have the type [`Declared::Dyn`]; their errors occur only at run
//! time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr,
};
use serde_json::Value;

use super::functions;
use super::place::{Anchor, Places};
use super::value::{TYPE_NAMES, escape};
use crate::kinds::custom::patterns;
use crate::kinds::custom::structural::flag;
use crate::kinds::custom::text;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::kinds::custom) enum Declared {
    /// Any type, known only at run time.
    Dyn,
    /// The type with this name.
    Plain(&'static str),
    /// A list of items with this type.
    List(Arc<Declared>),
    /// A map from strings to values with this type.
    Map(Arc<Declared>),
    /// An object with these fields, under escaped names.
    Object(Arc<BTreeMap<String, Declared>>),
    /// An optional value.
    Optional(Arc<Declared>),
}

pub(super) const BOOL: Declared = Declared::Plain("bool");
pub(super) const INT: Declared = Declared::Plain("int");
pub(super) const STRING: Declared = Declared::Plain("string");
/// The type of the authorizer and of its checks. The library cannot run them, so they all have one type.
pub(super) const AUTHORIZER: Declared = Declared::Plain("kubernetes.authorization.Authorizer");

impl Declared {
    /// Returns the type of a schema; `None` if rules cannot access the value. `root` is set for whole
    /// objects.
    pub(in crate::kinds::custom) fn of(raw: &Value, root: bool) -> Option<Self> {
        if flag(raw, "x-kubernetes-int-or-string") {
            return Some(Self::Dyn);
        }
        let child = |raw: &Value| Self::of(raw, flag(raw, "x-kubernetes-embedded-resource"));
        match (text(raw, "type").as_str(), text(raw, "format").as_str()) {
            ("array", _) => Some(Self::List(Arc::new(child(raw.get("items")?)?))),
            ("object", _) => match raw.get("additionalProperties").filter(|values| values.is_object()) {
                Some(values) => Some(Self::Map(Arc::new(child(values)?))),
                None => Some(Self::object(raw, root, child)),
            },
            ("string", "byte") => Some(Self::Plain("bytes")),
            ("string", "duration") => Some(Self::Plain("google.protobuf.Duration")),
            ("string", "date" | "date-time") => Some(Self::Plain("google.protobuf.Timestamp")),
            ("string", _) => Some(STRING),
            ("boolean", _) => Some(BOOL),
            ("number", _) => Some(Self::Plain("double")),
            ("integer", _) => Some(INT),
            _ => None,
        }
    }

    fn object(raw: &Value, root: bool, child: impl Fn(&Value) -> Option<Self>) -> Self {
        let properties = raw.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut fields: BTreeMap<_, _> =
            properties.filter_map(|(name, raw)| Some((escape(name)?, child(raw)?))).collect();
        if root {
            let names = ["name", "generateName"].map(|name| (name.to_owned(), STRING));
            fields.insert("metadata".to_owned(), Self::Object(Arc::new(names.into_iter().collect())));
            fields.extend(["apiVersion", "kind"].map(|name| (name.to_owned(), STRING)));
        }
        Self::Object(Arc::new(fields))
    }

    /// Returns the type of a declared field; `None` if the object does not have it.
    pub(in crate::kinds::custom) fn field(&self, name: &str) -> Option<Self> {
        let Self::Object(fields) = self else { return None };
        fields.get(&escape(name)?).cloned()
    }

    /// Returns the type of an item or entry; `None` if the type is neither a list nor a map.
    pub(in crate::kinds::custom) fn item(&self) -> Option<Self> {
        match self {
            Self::List(item) | Self::Map(item) => Some(Self::clone(item)),
            _ => None,
        }
    }

    /// Returns the name of the type in messages. The server's name of an object type also has a random number
    /// and the path.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Plain(name) => (*name).to_owned(),
            Self::List(item) => format!("list({})", item.name()),
            Self::Map(value) => format!("map(string, {})", value.name()),
            Self::Optional(of) => format!("optional_type({})", of.name()),
            Self::Object(_) => "selfType".to_owned(),
        }
    }
}

/// Checks a rule or a message expression. Returns whether it uses `oldSelf`.
///
/// # Errors
///
/// Returns the message of the server.
pub(in crate::kinds::custom) fn compile(
    source: &str,
    declared: &Declared,
    optional_old: bool,
    output: &str,
) -> Result<bool, String> {
    let what = if output == "bool" { "" } else { "messageExpression " };
    let program = super::parse(source).map_err(|error| format!("{what}compilation failed: {error}"))?;
    let old = if optional_old { Declared::Optional(Arc::new(declared.clone())) } else { declared.clone() };
    let mut checker = Checker { variables: HashMap::new(), places: Places::new(source), errors: Vec::new() };
    checker.variables.insert("self".to_owned(), vec![declared.clone()]);
    checker.variables.insert("oldSelf".to_owned(), vec![old]);
    let found = checker.infer(&program);
    if !checker.errors.is_empty() {
        return Err(format!("{what}compilation failed: {}", checker.errors.join("\n")));
    }
    if found != Declared::Dyn && found != Declared::Plain(if output == "bool" { "bool" } else { "string" }) {
        return Err(if output == "bool" {
            "cel expression must evaluate to a bool".to_owned()
        } else {
            "messageExpression must evaluate to a string".to_owned()
        });
    }
    Ok(program.references().has_variable("oldSelf"))
}

pub(super) struct Checker<'a> {
    /// The types of variables by name. The type of the innermost scope comes last.
    pub(super) variables: HashMap<String, Vec<Declared>>,
    pub(super) places: Places<'a>,
    pub(super) errors: Vec<String>,
}

impl Checker<'_> {
    fn error(&mut self, anchor: &Anchor<'_>, message: &str) {
        self.errors.push(self.places.located(anchor, message));
    }

    pub(super) fn infer(&mut self, expression: &IdedExpr) -> Declared {
        match &expression.expr {
            Expr::Literal(literal) => Declared::Plain(match literal {
                LiteralValue::Boolean(_) => "bool",
                LiteralValue::Bytes(_) => "bytes",
                LiteralValue::Double(_) => "double",
                LiteralValue::Int(_) => "int",
                LiteralValue::Null => "null",
                LiteralValue::String(_) => "string",
                LiteralValue::UInt(_) => "uint",
            }),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|item| self.infer(item)).collect();
                Declared::List(Arc::new(common(&items)))
            }
            Expr::Map(map) => {
                let mut values = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key);
                        values.push(self.infer(&entry.value));
                    }
                }
                Declared::Map(Arc::new(common(&values)))
            }
            Expr::Struct(_) | Expr::Unspecified => Declared::Dyn,
            Expr::Comprehension(of) => self.comprehension(of),
        }
    }

    fn ident(&mut self, name: &str) -> Declared {
        let anchor = Anchor::Ident(name);
        self.places.pass(&anchor);
        if let Some(found) = self.variables.get(name).and_then(|scopes| scopes.last()) {
            return found.clone();
        }
        if !TYPE_NAMES.contains(&name) && !functions::is_namespace(name) && !name.starts_with('@') {
            self.error(&anchor, &format!("undeclared reference to '{name}' (in container '')"));
        }
        Declared::Dyn
    }

    fn select(&mut self, select: &SelectExpr) -> Declared {
        let of = self.infer(&select.operand);
        let field = Anchor::Select(&select.field);
        self.places.pass(&field);
        let has = Anchor::Call("has");
        if select.test {
            self.places.pass(&has);
        }
        let anchor = if select.test { has } else { field };
        let found = self.member(&of, &select.field, &anchor);
        if select.test { BOOL } else { found }
    }

    fn member(&mut self, of: &Declared, field: &str, anchor: &Anchor<'_>) -> Declared {
        match of {
            Declared::Dyn => Declared::Dyn,
            of if *of == AUTHORIZER => AUTHORIZER,
            Declared::Map(value) => Declared::clone(value),
            Declared::Optional(of) => Declared::Optional(Arc::new(self.member(of, field, anchor))),
            Declared::Object(fields) => {
                if let Some(found) = fields.get(field) {
                    return found.clone();
                }
                self.error(anchor, &format!("undefined field '{field}'"));
                Declared::Dyn
            }
            Declared::Plain(_) | Declared::List(_) => {
                let name = of.name();
                self.error(anchor, &format!("type '{name}' does not support field selection"));
                Declared::Dyn
            }
        }
    }

    fn call(&mut self, call: &CallExpr) -> Declared {
        let name = call.func_name.as_str();
        if let Some(symbol) = functions::operator_symbol(name) {
            return self.operator(call, name, symbol);
        }
        let namespace = call
            .target
            .as_deref()
            .is_some_and(|target| matches!(&target.expr, Expr::Ident(name) if functions::is_namespace(name)));
        let target = call.target.as_deref().filter(|_| !namespace).map(|target| self.infer(target));
        let anchor = Anchor::Call(name);
        self.places.pass(&anchor);
        let arguments: Vec<_> = call.args.iter().map(|argument| self.infer(argument)).collect();
        if target == Some(AUTHORIZER) {
            return match name {
                "allowed" | "errored" => BOOL,
                "error" | "reason" => STRING,
                _ => AUTHORIZER,
            };
        }
        if let (Some(Declared::Optional(of)), "value" | "orValue") = (&target, name) {
            return Declared::clone(of);
        }
        if let Some(target) = target.as_ref().filter(|target| !functions::takes(name, target, &arguments)) {
            let names = arguments.iter().map(Declared::name).collect::<Vec<_>>().join(", ");
            let target = target.name();
            self.error(
                &anchor,
                &format!("found no matching overload for '{name}' applied to '{target}.({names})'"),
            );
        }
        if let ("matches", Some(Expr::Literal(LiteralValue::String(pattern)))) =
            (name, call.args.last().map(|of| &of.expr))
            && patterns::compile(pattern.inner()).is_err()
        {
            self.error(&anchor, "invalid matches argument");
        }
        functions::result(name, target.as_ref(), &arguments).unwrap_or_else(|| {
            self.error(&anchor, &format!("undeclared reference to '{name}' (in container '')"));
            Declared::Dyn
        })
    }

    fn operator(&mut self, call: &CallExpr, name: &str, symbol: &str) -> Declared {
        let mut operands = Vec::new();
        let anchor = Anchor::Operator(symbol);
        for (index, argument) in call.target.as_deref().into_iter().chain(&call.args).enumerate() {
            if index == 1 || call.args.len() == 1 && call.target.is_none() {
                self.places.pass(&anchor);
            }
            if let (true, Expr::Literal(LiteralValue::String(field))) = (name == "_?._", &argument.expr) {
                let of = operands.pop().unwrap_or(Declared::Dyn);
                let found = self.member(&of, field.inner(), &Anchor::Select(field.inner()));
                let found = if let Declared::Optional(of) = found { of } else { Arc::new(found) };
                return Declared::Optional(found);
            }
            let operand = self.infer(argument);
            if matches!(name, "_&&_" | "_||_") && ![BOOL, Declared::Dyn].contains(&operand) {
                let found = operand.name();
                self.error(&outermost(argument), &format!("expected type 'bool' but found '{found}'"));
                operands.push(BOOL);
                continue;
            }
            operands.push(operand);
        }
        if let Some(result) = functions::operator_result(name, &operands) {
            return result;
        }
        let names = operands.iter().map(Declared::name).collect::<Vec<_>>().join(", ");
        self.error(&anchor, &format!("found no matching overload for '{name}' applied to '({names})'"));
        Declared::Dyn
    }

    fn comprehension(&mut self, of: &ComprehensionExpr) -> Declared {
        let item = match self.infer(&of.iter_range) {
            Declared::List(item) => Declared::clone(&item),
            Declared::Map(_) => STRING,
            _ => Declared::Dyn,
        };
        let start = self.infer(&of.accu_init);
        self.variables.entry(of.iter_var.clone()).or_default().push(item);
        self.variables.entry(of.accu_var.clone()).or_default().push(start.clone());
        self.infer(&of.loop_cond);
        let step = self.infer(&of.loop_step);
        if let Some(scopes) = self.variables.get_mut(&of.iter_var) {
            scopes.pop();
        }
        let grown = if matches!(start, Declared::List(_)) { step } else { start };
        if let Some(accumulated) = self.variables.get_mut(&of.accu_var).and_then(|scopes| scopes.last_mut()) {
            *accumulated = grown;
        }
        let result = self.infer(&of.result);
        if let Some(scopes) = self.variables.get_mut(&of.accu_var) {
            scopes.pop();
        }
        result
    }
}

/// Returns the position of an error about a whole expression.
fn outermost(expression: &IdedExpr) -> Anchor<'_> {
    match &expression.expr {
        Expr::Ident(name) => Anchor::Ident(name),
        Expr::Select(select) => Anchor::Select(&select.field),
        Expr::Call(call) => match functions::operator_symbol(&call.func_name) {
            Some(symbol) => Anchor::Operator(symbol),
            None => Anchor::Call(&call.func_name),
        },
        _ => Anchor::Ident(""),
    }
}

/// Returns the common type of values: their type if all types are equal, else [`Declared::Dyn`].
pub(super) fn common(types: &[Declared]) -> Declared {
    match types.split_first() {
        Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
        _ => Declared::Dyn,
    }
}
