//! CEL expressions over one object, with a bound on what they cost.
//!
//! The interpreter has no limits of its own and cannot be interrupted, and a reconcile waits for it. So what it is given
//! is bounded before: how deep an expression nests, which bounds the stack, and how many steps it takes over how long
//! strings for an object of this size, which bounds time and memory. It recurses with large frames, and so has a thread
//! with a stack that is known to suffice: some tens of microseconds each time, most of them asleep.
//!
//! # Invariants
//! 1. Nothing is evaluated that may take more than [`MAX_WORK`].
//! 2. No text out of an object is in a failure, not even by way of the interpreter's own words.

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, ExecutionError, Program, Value as CelValue};
use serde_json::Value;

/// Of the thread that reads or evaluates. The deepest expression that is taken needs between 6 and 16 MiB in a debug
/// build; what is not touched costs no memory.
const STACK_BYTES: usize = 32 << 20;
/// Most brackets within each other.
const MAX_NESTING: usize = 24;
/// Most operators, brackets and dots: the tree has no more levels than that.
const MAX_OPERATORS: usize = 200;
/// Most macros such as `exists` within each other: each goes through a list for every element of the outer one.
const MAX_LOOPS: u32 = 3;
/// Longest object in bytes, as JSON.
pub(super) const MAX_OBJECT_BYTES: usize = 256 << 10;
/// Most steps times the bytes that each may copy or compare: some tens of milliseconds at the very worst.
pub(super) const MAX_WORK: u128 = 64 << 20;
/// What a step costs whatever it works on, in bytes copied.
const STEP_BYTES: u128 = 64;

/// An expression that can be evaluated.
#[derive(Debug)]
pub(super) struct Expression {
    program: Program,
    /// As written.
    text: String,
    shape: Shape,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It is no expression, or not one that is evaluated. For people.
    Invalid(String),
    /// It reads something that the object does not have; with its name, if it stands in the expression.
    Missing(Option<String>),
    /// It cannot be evaluated for this object.
    Failed,
    /// Its value is neither true nor false.
    NotBool,
    /// It would take too long for an object of this size.
    TooCostly,
    /// What else is looked at has left too little for it.
    TooMuch,
}

/// How large an expression is.
#[derive(Clone, Copy, Debug, Default)]
struct Shape {
    nodes: u128,
    /// Macros within each other.
    loops: u32,
    /// Additions: each may make a list longer by another one.
    additions: u128,
    /// Additions as written, each of which can make something twice as long, and lists and maps as written, of which
    /// each may hold the same thing many times.
    doublings: u32,
}

/// How large an object is.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    elements: u128,
    string_bytes: u128,
}

// === impl Expression ===

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Self, Failure> {
        check_nesting(text)?;
        let read = || {
            let program = Program::compile(text)
                .map_err(|errors| errors.errors.first().map(|error| error.msg.clone()).unwrap_or_default())?;
            let mut shape = Shape::default();
            shape.loops = shape.measure(program.expression());
            Ok((program, shape))
        };
        let read = on_a_large_stack(read).unwrap_or_else(|| Err("it is not understood".to_owned()));
        let (program, shape) =
            read.map_err(|problem| Failure::Invalid(format!("it cannot be read as CEL: {problem}")))?;
        if shape.loops > MAX_LOOPS {
            let text = format!("{} macros within each other; expected at most {MAX_LOOPS}", shape.loops);
            return Err(Failure::Invalid(text));
        }
        Ok(Self { program, text: text.to_owned(), shape })
    }

    /// Evaluates it for an object.
    ///
    /// # Errors
    /// Says why it has no value for this object.
    pub(super) fn is_true(&self, object: &Value) -> Result<bool, Failure> {
        if self.cost(object) > MAX_WORK {
            return Err(Failure::TooCostly);
        }
        let evaluate = || match self.value(object)? {
            CelValue::Bool(value) => Ok(value),
            _ => Err(Failure::NotBool),
        };
        on_a_large_stack(evaluate).unwrap_or(Err(Failure::Failed))
    }

    /// Bounds what evaluating it for an object costs: steps, times the bytes that each may copy or compare.
    pub(super) fn cost(&self, object: &Value) -> u128 {
        let mut extent = Extent { elements: self.shape.nodes, string_bytes: self.text.len() as u128 };
        extent.measure(object);
        self.shape.work(extent)
    }

    fn value(&self, object: &Value) -> Result<CelValue, Failure> {
        let mut context = Context::default();
        context.add_variable_from_value("object", cel::to_value(object).map_err(|_| Failure::Failed)?);
        self.program.execute(&context).map_err(|error| self.explain(&error))
    }

    fn explain(&self, error: &ExecutionError) -> Failure {
        match error {
            ExecutionError::NoSuchKey(name) | ExecutionError::UndeclaredReference(name) => {
                // A name that was computed would be a value out of the object.
                Failure::Missing(self.text.contains(name.as_str()).then(|| name.as_str().to_owned()))
            }
            _ => Failure::Failed,
        }
    }
}

// === impl Shape ===

impl Shape {
    /// Counts what is below a node, and returns how many macros are within each other there.
    fn measure(&mut self, node: &IdedExpr) -> u32 {
        self.nodes += 1;
        match &node.expr {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
            Expr::Select(select) => self.measure(&select.operand),
            Expr::Call(call) => {
                let adds = call.func_name == "_+_";
                self.additions += u128::from(adds);
                // What `map` and `filter` collect is no longer than what they go over; an addition as written makes
                // something longer of what may have been made so before.
                let collects = matches!(call.args.first().map(|first| &first.expr), Some(Expr::Ident(name)) if name.starts_with('@'));
                self.doublings += u32::from(adds && !collects);
                let target = call.target.as_ref().map_or(0, |target| self.measure(target));
                call.args.iter().map(|arg| self.measure(arg)).fold(target, u32::max)
            }
            Expr::List(list) => {
                self.repeats(list.elements.iter());
                list.elements.iter().map(|one| self.measure(one)).max().unwrap_or(0)
            }
            Expr::Map(map) => self.entries(map.entries.iter().map(|entry| &entry.expr)),
            Expr::Struct(made) => self.entries(made.entries.iter().map(|entry| &entry.expr)),
            Expr::Comprehension(loops) => {
                let once = self.measure(&loops.iter_range).max(self.measure(&loops.accu_init));
                let each = [&loops.loop_cond, &loops.loop_step, &loops.result].map(|part| self.measure(part));
                once.max(1 + each.into_iter().max().unwrap_or(0))
            }
        }
    }

    /// Counts what is written into a list or map and may be the same each time; what is itself written out is not.
    fn repeats<'a>(&mut self, values: impl Iterator<Item = &'a IdedExpr>) {
        let made = values.filter(|value| !matches!(value.expr, Expr::Literal(_))).count();
        self.doublings += made.next_power_of_two().ilog2();
    }

    fn entries<'a>(&mut self, entries: impl Iterator<Item = &'a EntryExpr> + Clone) -> u32 {
        self.repeats(entries.clone().map(|entry| match entry {
            EntryExpr::StructField(field) => &field.value,
            EntryExpr::MapEntry(entry) => &entry.value,
        }));
        let mut measure = |entry: &EntryExpr| match entry {
            EntryExpr::StructField(field) => self.measure(&field.value),
            EntryExpr::MapEntry(entry) => self.measure(&entry.key).max(self.measure(&entry.value)),
        };
        entries.map(&mut measure).max().unwrap_or(0)
    }

    fn work(&self, extent: Extent) -> u128 {
        let grown = 2_u128.saturating_pow(self.doublings);
        let list = extent.elements.saturating_mul(1 + self.additions).saturating_mul(grown);
        let steps = list.saturating_pow(self.loops).saturating_mul(self.nodes);
        steps.saturating_mul(extent.string_bytes.saturating_mul(grown).saturating_add(STEP_BYTES))
    }
}

// === impl Extent ===

impl Extent {
    fn measure(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.string_bytes = self.string_bytes.max(text.len() as u128),
            Value::Array(list) => {
                self.elements = self.elements.max(list.len() as u128);
                for one in list {
                    self.measure(one);
                }
            }
            Value::Object(map) => {
                self.elements = self.elements.max(map.len() as u128);
                for one in map.values() {
                    self.measure(one);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

// === private ===

/// Returns `None` if it panics, which is the expression's fault, and nobody else's; and if there is no thread to be had.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("expression".to_owned()).stack_size(STACK_BYTES);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

/// Refuses what would make a deep tree, before anything recursive looks at it. Text in quotes counts too: that is simpler
/// than to tell all kinds of quotes apart, and costs nobody much.
fn check_nesting(text: &str) -> Result<(), Failure> {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_NESTING {
        let text = format!("{deepest} brackets within each other; expected at most {MAX_NESTING}");
        return Err(Failure::Invalid(text));
    }
    let operators = text.bytes().filter(|byte| b"([{.?!+-*/%<>=&|".contains(byte)).count();
    if operators > MAX_OPERATORS {
        let text = format!("{operators} operators, brackets and dots; expected at most {MAX_OPERATORS}");
        return Err(Failure::Invalid(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn evaluate(text: &str, object: &Value) -> Result<bool, Failure> {
        Expression::read(text)?.is_true(object)
    }

    fn job() -> Value {
        json!({
            "metadata": {"name": "migrate", "labels": {"secret": "hunter2"}},
            "spec": {"completions": 2},
            "status": {"succeeded": 2, "conditions": [
                {"type": "Suspended", "status": "False"},
                {"type": "Complete", "status": "True"},
            ]},
        })
    }

    #[test]
    fn what_grows_with_each_addition_is_not_begun() {
        let text = "x".repeat(700);
        let chain = ".map(a, a + a)".repeat(8);
        // Small in memory, and compared element by element.
        let lists = ".map(a, [a, a, a, a, a, a, a, a, a, a])".repeat(7);
        for text in [
            format!("['{text}']{}.size() == 1", ".map(a, a + a + a + a + a)".repeat(7)),
            format!("[object.metadata.name]{chain}.size() == 1"),
            format!("[[1, 2, 3]]{chain}.size() == 1"),
            format!("[[1, 1]{lists}].all(each, each[0] == each[1])"),
        ] {
            assert_eq!(evaluate(&text, &job()), Err(Failure::TooCostly), "{text}");
        }
        let sum = "object.status.succeeded + object.spec.completions == 4";
        assert_eq!(evaluate(sum, &job()), Ok(true), "a sum costs little");
    }

    #[test]
    fn an_expression_is_true_or_not() {
        for (text, expected) in [
            ("object.status.succeeded >= 2", true),
            ("object.status.succeeded > object.spec.completions", false),
            ("object.status.conditions.exists(c, c.type == 'Complete' && c.status == 'True')", true),
            ("object.status.conditions.all(c, c.status == 'True')", false),
            ("object.status.conditions.filter(c, c.status == 'True').size() == 1", true),
            ("has(object.status.failed) && object.status.failed > 0", false),
            ("object.metadata.name.startsWith('mig') ? true : false", true),
            ("'secret' in object.metadata.labels", true),
        ] {
            assert_eq!(evaluate(text, &job()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_failure_tells_nothing_out_of_the_object() {
        let missing = |name: &str| Err(Failure::Missing(Some(name.to_owned())));
        for (text, expected) in [
            ("object.status.failed > 0", missing("failed")),
            ("object.spec[object.metadata.labels.secret] == 1", Err(Failure::Missing(None))),
            ("subject.status", missing("subject")),
            ("object.metadata.labels.secret > 1", Err(Failure::Failed)),
            ("object.metadata.labels.secret", Err(Failure::NotBool)),
            ("object.status.succeeded / 0 == 1", Err(Failure::Failed)),
            ("object.status.conditions[7].status == 'True'", Err(Failure::Failed)),
        ] {
            let told = evaluate(text, &job());
            assert_eq!(told, expected, "{text}");
            assert!(!format!("{told:?}").contains("hunter2"));
        }
    }

    #[test]
    fn what_is_no_expression_or_a_deep_one_is_refused() {
        let nested = |open: &str, close: &str| format!("{}true{}", open.repeat(25), close.repeat(25));
        for (text, problem) in [
            ("object.status.", "it cannot be read as CEL"),
            ("if (x) {}", "it cannot be read as CEL"),
            ("", "it cannot be read as CEL"),
            (&*nested("(", ")"), "25 brackets within each other; expected at most 24"),
            (&*nested("[", "]"), "25 brackets within each other"),
            (&*format!("{}true", "!".repeat(201)), "201 operators"),
            (&*format!("1{} > 1", "+1".repeat(300)), "301 operators"),
            (
                "[1].all(a, [1].all(b, [1].all(c, [1].all(d, true))))",
                "4 macros within each other; expected at most 3",
            ),
        ] {
            let Err(Failure::Invalid(told)) = Expression::read(text) else { panic!("{text} was taken") };
            assert!(told.contains(problem), "{text}: {told}");
        }
    }

    #[test]
    fn what_is_taken_is_shallow_enough_for_the_stack() {
        let most = MAX_OPERATORS - 2;
        let brackets = format!("{}true{}", "(".repeat(24), ")".repeat(24));
        let calls = format!("{}1{} == 1", "int(".repeat(24), ")".repeat(24));
        let ternaries = format!("{}true", "true ? true : ".repeat(most / 2).replace("true :", "true:"));
        for text in [
            brackets,
            calls,
            ternaries,
            format!("object{}", ".a".repeat(most)),
            format!("{}true", "!".repeat(most)),
            format!("{}1 == 1", "-".repeat(most - 2)),
            format!("1{} > 1", "+1".repeat(most)),
            format!("true{}", "&&true".repeat(most / 2)),
            format!("true{}", "||true".repeat(most / 2)),
            format!("object{}", "[0]".repeat(most)),
            format!("{}1{}", "[".repeat(24), "]".repeat(24)),
            "[1].all(a, [1].all(b, [1].all(c, true)))".to_owned(),
        ] {
            // Whatever comes of it, it comes.
            let _outcome = evaluate(&text, &job()).is_ok();
        }
    }

    #[test]
    fn what_would_take_long_is_not_begun() {
        let numbers: Vec<u32> = (0..2_000).collect();
        let (small, large) = (json!({"list": [1, 2, 3]}), json!({"list": numbers}));
        let twice = "object.list.all(a, object.list.all(b, a + b >= 0))";
        assert_eq!(evaluate(twice, &small), Ok(true));
        assert_eq!(evaluate(twice, &large), Err(Failure::TooCostly));
        assert_eq!(evaluate("object.list.all(a, a >= 0)", &large), Ok(true));
        let text = json!({"list": numbers, "text": "x".repeat(100_000)});
        let copies = "object.list.map(a, object.text + object.text).size() > 0";
        assert_eq!(evaluate(copies, &text), Err(Failure::TooCostly), "it would fill the memory");
    }

    /// What a value takes in memory, with everything in it that is not shared.
    fn size(value: &CelValue) -> u128 {
        match value {
            CelValue::String(text) => text.len() as u128,
            CelValue::List(list) => list.iter().map(size).sum::<u128>() + 1,
            CelValue::Map(map) => map.map.values().map(size).sum::<u128>() + 1,
            _ => 1,
        }
    }

    proptest! {
        #[test]
        fn what_is_evaluated_makes_no_more_than_it_may_cost(
            first in prop::sample::select(vec![
                "'xxxxxxxxxxxxxxxx'", "[1, 2, 3]", "object.metadata.name", "object.status.conditions", "object",
            ]),
            each in prop::sample::select(vec![
                "a + a", "a + a + a", "{'b': a, 'c': a}", "[a, a, a, a, a, a, a, a, a, a]",
            ]),
            times in 0..9_usize,
        ) {
            let text = format!("[{first}]{}", format!(".map(a, {each})").repeat(times));
            let expression = Expression::read(&text).unwrap();
            let cost = expression.cost(&job());
            prop_assume!(cost <= MAX_WORK);
            if let Ok(value) = expression.value(&job()) {
                prop_assert!(size(&value) <= cost, "{} of {cost}: {text}", size(&value));
            }
        }

        #[test]
        fn no_text_brings_it_down(text in "[a-c0-9.()\\[\\]{}!?:+<>=&|,'\" -]{0,80}") {
            let _outcome = evaluate(&text, &job());
        }

        #[test]
        fn no_mixture_of_its_own_words_brings_it_down(
            words in proptest::collection::vec(
                prop::sample::select(vec![
                    "object", ".status", ".conditions", ".all(c, ", ".exists(c, ", ".map(c, ", "has(", "(", ")", "[", "]",
                    "{", "}", "'x'", "1", "-1", "1.5", "1u", "b'x'", "true", "null", "!", "-", "+", "*", "/", "%", "&&",
                    "||", "==", "<", " in ", "? ", ": ", ", ", "c", "c.type", "size(", "int(", "string(", "dyn(", "type(",
                ]),
                0..24,
            ),
        ) {
            let _outcome = evaluate(&words.concat(), &job());
        }
    }
}
