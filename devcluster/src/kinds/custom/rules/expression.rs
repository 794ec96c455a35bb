//! The expressions of admission: match conditions of webhooks, and the parts of policies.
//!
//! They see whole objects without a schema, so only the fields of `request` and `namespaceObject` have types.
//! The library cannot ask the authorizer: an expression that uses `authorizer` fails when it runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube_cel::cel::common::ast::{Expr, IdedExpr};
use kube_cel::cel::{Context, Value as Cel};
use serde_json::Value;

use super::evaluate::{error_text, message};
use super::place::Places;
use super::types::{AUTHORIZER, BOOL, Checker, Declared, INT, STRING};
use super::value::{FUNCTIONS, plain};

/// A compiled expression.
#[derive(Debug)]
pub struct Expression {
    text: String,
    program: IdedExpr,
}

/// The variables that an expression may use, with their types.
#[derive(Clone, Debug)]
pub struct Environment {
    types: HashMap<String, Vec<Declared>>,
    /// The types of the variables that a policy declares so far; `None` if it declares none.
    composed: Option<BTreeMap<String, Declared>>,
}

/// The type that an expression must return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A boolean: conditions and validations.
    Bool,
    /// A string: messages.
    String,
    /// A string or null: audit annotations.
    StringOrNull,
    /// Any type: variables.
    Any,
}

/// The values of variables for one write.
pub struct Activation {
    context: Context<'static>,
    composed: Vec<(String, Result<Cel, String>)>,
}

// === impl Environment ===

impl Environment {
    /// Returns the variables of match conditions and policies. `params` and `authorizer` are not available
    /// everywhere.
    pub fn new(params: bool, authorizer: bool) -> Self {
        let mut types = HashMap::from([
            ("object".to_owned(), vec![Declared::Dyn]),
            ("oldObject".to_owned(), vec![Declared::Dyn]),
            ("request".to_owned(), vec![request_type()]),
            ("namespaceObject".to_owned(), vec![namespace_type()]),
        ]);
        if params {
            types.insert("params".to_owned(), vec![Declared::Dyn]);
        }
        if authorizer {
            types.insert("authorizer".to_owned(), vec![AUTHORIZER]);
        }
        Self { types, composed: None }
    }

    /// Lets expressions use variables of a policy, of which there are none so far.
    #[must_use]
    pub fn with_variables(mut self) -> Self {
        self.composed = Some(BTreeMap::new());
        self
    }

    /// Returns the same variables without `authorizer`, as messages see them.
    #[must_use]
    pub fn without_authorizer(&self) -> Self {
        let mut environment = self.clone();
        environment.types.remove("authorizer");
        environment
    }

    /// Compiles a variable of a policy, and declares it for later expressions.
    ///
    /// # Errors
    /// Returns the message of the server.
    pub fn declare(&mut self, name: &str, text: &str) -> Result<Expression, String> {
        let compiled = self.infer(text, Output::Any);
        let (found, program) = match compiled {
            Ok((found, program)) => (found, Ok(program)),
            Err(error) => (Declared::Dyn, Err(error)),
        };
        if let (Some(composed), Ok(_)) = (&mut self.composed, &program) {
            composed.insert(name.to_owned(), found);
        }
        program
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// Returns the message of the server.
    pub fn compile(&self, text: &str, output: Output) -> Result<Expression, String> {
        self.infer(text, output).map(|(_, program)| program)
    }

    fn infer(&self, text: &str, output: Output) -> Result<(Declared, Expression), String> {
        let failed = |error: String| format!("compilation failed: {error}");
        let program = super::parse(text).map_err(failed)?;
        let mut types = self.types.clone();
        if let Some(composed) = &self.composed {
            types.insert("variables".to_owned(), vec![Declared::Object(Arc::new(composed.clone()))]);
        }
        let mut checker = Checker { variables: types, places: Places::new(text), errors: Vec::new() };
        let found = checker.infer(&program);
        if !checker.errors.is_empty() {
            return Err(failed(checker.errors.join("\n")));
        }
        // The checker does not know every result, but it knows that an access to an object has no type.
        let untyped = match &program.expr {
            Expr::Ident(_) => true,
            Expr::Select(select) => !select.test,
            Expr::Call(call) => call.func_name == "_[_]",
            _ => false,
        };
        let (name, fits) = match output {
            Output::Bool => ("bool", found == BOOL),
            Output::String => ("string", found == STRING),
            Output::StringOrNull => {
                ("one of [string null_type]", found == STRING || found == Declared::Plain("null"))
            }
            Output::Any => ("", true),
        };
        if !fits && (found != Declared::Dyn || untyped) {
            return Err(format!("must evaluate to {name} but got {}", found.name()));
        }
        Ok((found, Expression { text: text.to_owned(), program }))
    }
}

// === impl Activation ===

impl Activation {
    /// Returns the values of variables; null stands for an absent object.
    pub fn new(object: &Value, old: &Value, request: &Value, namespace: &Value) -> Self {
        let mut context = FUNCTIONS.new_inner_scope();
        for (name, value) in
            [("object", object), ("oldObject", old), ("request", request), ("namespaceObject", namespace)]
        {
            context.add_variable_from_value(name, plain(value));
        }
        Self { context, composed: Vec::new() }
    }

    /// Sets the parameters of a policy.
    pub fn set_params(&mut self, params: &Value) {
        self.context.add_variable_from_value("params", plain(params));
        self.composed.clear();
    }

    /// Evaluates a variable of a policy for later expressions.
    pub fn declare(&mut self, name: &str, expression: &Expression) {
        let value = self.value(expression);
        self.composed.push((name.to_owned(), value));
        let known = self.composed.iter().filter_map(|(name, value)| {
            value.as_ref().ok().map(|value| (name.clone().into(), value.clone()))
        });
        let map = kube_cel::cel::objects::Map { map: Arc::new(known.collect()) };
        self.context.add_variable_from_value("variables", Cel::Map(map));
    }

    /// Returns whether a condition or validation holds.
    ///
    /// # Errors
    /// Returns the message of the server.
    pub fn holds(&self, expression: &Expression) -> Result<bool, String> {
        let value = self.value(expression).map_err(|error| explain(expression, &error))?;
        Ok(value == Cel::Bool(true))
    }

    /// Returns the text of a message expression; `None` if it fails or returns no usable text.
    pub fn message(&self, expression: &Expression) -> Option<String> {
        message(&expression.program, &self.context)
    }

    /// Returns the error of an audit annotation, which must be a string or null; `None` if it is one.
    pub fn annotation_error(&self, expression: &Expression) -> Option<String> {
        match self.value(expression) {
            Ok(Cel::String(_) | Cel::Null) => None,
            Ok(_) => Some(format!(
                "valueExpression '{}' resulted in unsupported return type: dyn. Return type must be either \
                 string or null.",
                expression.text
            )),
            Err(error) => Some(explain(expression, &error)),
        }
    }

    fn value(&self, expression: &Expression) -> Result<Cel, String> {
        Cel::resolve(&expression.program, &self.context).map_err(|error| {
            let error = error_text(&error);
            let failed = self.composed.iter().find_map(|(name, value)| {
                let cause = value.as_ref().err()?;
                (error == format!("no such key: {name}"))
                    .then(|| format!("composited variable \"{name}\" fails to evaluate: {cause}"))
            });
            failed.unwrap_or(error)
        })
    }
}

impl std::fmt::Debug for Activation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Activation").field("composed", &self.composed).finish_non_exhaustive()
    }
}

fn explain(expression: &Expression, error: &str) -> String {
    format!("expression '{}' resulted in error: {error}", expression.text)
}

fn object(fields: &[(&str, Declared)]) -> Declared {
    let fields = fields.iter().map(|(name, of)| ((*name).to_owned(), of.clone()));
    Declared::Object(Arc::new(fields.collect()))
}

fn request_type() -> Declared {
    let strings = Declared::List(Arc::new(STRING));
    let kind = object(&[("group", STRING), ("version", STRING), ("kind", STRING)]);
    let resource = object(&[("group", STRING), ("version", STRING), ("resource", STRING)]);
    let user = object(&[
        ("username", STRING),
        ("uid", STRING),
        ("groups", strings.clone()),
        ("extra", Declared::Map(Arc::new(strings))),
    ]);
    object(&[
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", STRING),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", STRING),
        ("name", STRING),
        ("namespace", STRING),
        ("operation", STRING),
        ("userInfo", user),
        ("dryRun", BOOL),
        ("options", Declared::Dyn),
    ])
}

fn namespace_type() -> Declared {
    let strings = Declared::List(Arc::new(STRING));
    let texts = Declared::Map(Arc::new(STRING));
    let time = Declared::Plain("google.protobuf.Timestamp");
    let condition = object(&[
        ("status", STRING),
        ("type", STRING),
        ("lastTransitionTime", time.clone()),
        ("message", STRING),
        ("reason", STRING),
    ]);
    let metadata = object(&[
        ("name", STRING),
        ("generateName", STRING),
        ("namespace", STRING),
        ("labels", texts.clone()),
        ("annotations", texts),
        ("UID", STRING),
        ("creationTimestamp", time.clone()),
        ("deletionGracePeriodSeconds", INT),
        ("deletionTimestamp", time),
        ("generation", INT),
        ("resourceVersion", STRING),
        ("finalizers", strings.clone()),
    ]);
    let conditions = Declared::List(Arc::new(condition));
    object(&[
        ("metadata", metadata),
        ("spec", object(&[("finalizers", strings)])),
        ("status", object(&[("phase", STRING), ("conditions", conditions)])),
    ])
}
