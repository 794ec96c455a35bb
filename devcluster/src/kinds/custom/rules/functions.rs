//! The result types of CEL operators and functions.

use std::sync::Arc;

use super::types::{BOOL, Declared, INT, STRING, common};

const DURATION: Declared = Declared::Plain("google.protobuf.Duration");
const TIMESTAMP: Declared = Declared::Plain("google.protobuf.Timestamp");
const DOUBLE: Declared = Declared::Plain("double");
const UINT: Declared = Declared::Plain("uint");
const BYTES: Declared = Declared::Plain("bytes");

/// Returns whether a name is a namespace of functions, like `math` in `math.abs(1)`.
pub(super) fn is_namespace(name: &str) -> bool {
    matches!(
        name,
        "math" | "sets" | "optional" | "ip" | "cidr" | "strings" | "base64" | "format" | "cel" | "lists"
    )
}

/// Returns the symbol of an operator in expressions; `None` if `name` is not an operator.
pub(super) fn operator_symbol(name: &str) -> Option<&str> {
    Some(match name {
        "_?_:_" => "?",
        "_[_]" | "_[?_]" => "[",
        "_?._" => ".?",
        "@in" => "in",
        "-_" => "-",
        "!_" => "!",
        _ => name.strip_prefix('_')?.strip_suffix('_')?,
    })
}

/// Returns the type of an operator's result; `None` if the types of the operands do not fit.
pub(super) fn operator_result(name: &str, operands: &[Declared]) -> Option<Declared> {
    let any = operands.contains(&Declared::Dyn);
    let numeric = |of: &Declared| [INT, UINT, DOUBLE, Declared::Dyn].contains(of);
    match (name, operands) {
        ("_&&_" | "_||_" | "!_", operands) => {
            operands.iter().all(|of| [BOOL, Declared::Dyn].contains(of)).then_some(BOOL)
        }
        ("_==_" | "_!=_", [left, right]) => fits(left, right).then_some(BOOL),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => {
            let ordered = any
                || numeric(left) && numeric(right)
                || left == right && [BOOL, STRING, BYTES, DURATION, TIMESTAMP].contains(left);
            ordered.then_some(BOOL)
        }
        ("_+_", [left, right]) if !any => match (left, right) {
            (Declared::List(left), Declared::List(right)) if fits(left, right) => {
                Some(Declared::List(Arc::new(if **left == Declared::Dyn {
                    (**right).clone()
                } else {
                    (**left).clone()
                })))
            }
            _ if *left == TIMESTAMP && *right == DURATION || *left == DURATION && *right == TIMESTAMP => {
                Some(TIMESTAMP)
            }
            _ => (left == right && [INT, UINT, DOUBLE, STRING, BYTES, DURATION].contains(left))
                .then(|| left.clone()),
        },
        ("_-_", [left, right]) if !any => {
            if *left == TIMESTAMP && [DURATION, TIMESTAMP].contains(right) {
                return Some(if *right == DURATION { TIMESTAMP } else { DURATION });
            }
            (left == right && [INT, UINT, DOUBLE, DURATION].contains(left)).then(|| left.clone())
        }
        ("_*_" | "_/_", [left, right]) if !any => {
            (left == right && [INT, UINT, DOUBLE].contains(left)).then(|| left.clone())
        }
        ("_%_", [left, right]) if !any => (left == right && [INT, UINT].contains(left)).then(|| left.clone()),
        ("-_", [of]) if !any => [INT, DOUBLE].contains(of).then(|| of.clone()),
        ("_?_:_", [condition, yes, no]) => {
            let result = common(&[yes.clone(), no.clone()]);
            [BOOL, Declared::Dyn].contains(condition).then_some(result)
        }
        ("_[_]", [Declared::List(item), index]) => numeric(index).then(|| (**item).clone()),
        ("_[_]", [Declared::Map(value), key]) => {
            [STRING, Declared::Dyn].contains(key).then(|| (**value).clone())
        }
        ("_[_]", [Declared::Plain(_), _]) => None,
        ("_[?_]", [Declared::List(of) | Declared::Map(of), _]) => Some(Declared::Optional(Arc::clone(of))),
        ("@in", _) => Some(BOOL),
        _ => Some(Declared::Dyn),
    }
}

/// Returns whether values of both types can be compared.
fn fits(left: &Declared, right: &Declared) -> bool {
    match (left, right) {
        (Declared::Dyn, _) | (_, Declared::Dyn) => true,
        (Declared::Plain("null"), other) | (other, Declared::Plain("null")) => {
            left == right || ![INT, UINT, DOUBLE, STRING, BOOL, BYTES].contains(other)
        }
        (Declared::List(left), Declared::List(right))
        | (Declared::Map(left), Declared::Map(right))
        | (Declared::Optional(left), Declared::Optional(right)) => fits(left, right),
        (Declared::Object(_), Declared::Map(_)) | (Declared::Map(_), Declared::Object(_)) => false,
        (left, right) => left == right,
    }
}

/// Returns whether the target and the arguments of a string method are strings. Always true for other
/// functions, which are checked when they run.
pub(super) fn takes(name: &str, target: &Declared, arguments: &[Declared]) -> bool {
    let text = |of: &Declared| [STRING, Declared::Dyn].contains(of);
    match name {
        "startsWith" | "endsWith" | "matches" => text(target) && arguments.iter().all(text),
        "contains" if *target == STRING => arguments.iter().all(text),
        _ => true,
    }
}

/// The functions that return a boolean.
const BOOLEANS: [&str; 31] = [
    "@not_strictly_false",
    "bool",
    "contains",
    "containsCIDR",
    "containsIP",
    "endsWith",
    "equivalent",
    "hasValue",
    "intersects",
    "ip.isCanonical",
    "isCIDR",
    "isCanonical",
    "isFinite",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isIPv4",
    "isInf",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isNaN",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "matches",
    "startsWith",
];

/// The functions that return an integer.
const INTEGERS: [&str; 28] = [
    "asInteger",
    "bitAnd",
    "bitNot",
    "bitOr",
    "bitShiftLeft",
    "bitShiftRight",
    "bitXor",
    "compareTo",
    "family",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "indexOf",
    "int",
    "lastIndexOf",
    "major",
    "minor",
    "patch",
    "prefixLength",
    "sign",
    "size",
];

/// The functions that return a string.
const STRINGS: [&str; 18] = [
    "charAt",
    "encode",
    "find",
    "format",
    "getEscapedPath",
    "getHost",
    "getHostname",
    "getPort",
    "getScheme",
    "join",
    "lowerAscii",
    "quote",
    "replace",
    "reverse",
    "string",
    "substring",
    "trim",
    "upperAscii",
];

/// The functions that return a float.
const DOUBLES: [&str; 6] = ["asApproximateFloat", "ceil", "double", "floor", "round", "trunc"];

/// The functions with a result type that depends on their arguments.
const UNKNOWN: [&str; 57] = [
    "abs",
    "add",
    "all",
    "bind",
    "byte",
    "cidr",
    "date",
    "datetime",
    "dns1035Label",
    "dns1035LabelPrefix",
    "dns1123Label",
    "dns1123LabelPrefix",
    "dns1123Subdomain",
    "dns1123SubdomainPrefix",
    "dyn",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "first",
    "getQuery",
    "greatest",
    "has",
    "ip",
    "labelValue",
    "last",
    "least",
    "lists",
    "map",
    "masked",
    "max",
    "min",
    "named",
    "none",
    "of",
    "ofNonZeroValue",
    "optFlatMap",
    "optMap",
    "or",
    "orValue",
    "qualifiedName",
    "quantity",
    "range",
    "semver",
    "sub",
    "sum",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "type",
    "unwrap",
    "unwrapOpt",
    "uri",
    "url",
    "uuid",
    "validate",
    "value",
];

/// Returns the type of a function's result; `None` if the function does not exist.
pub(super) fn result(name: &str, target: Option<&Declared>, arguments: &[Declared]) -> Option<Declared> {
    let of = target.or(arguments.first());
    match name {
        "findAll" | "split" => return Some(Declared::List(Arc::new(STRING))),
        "uint" => return Some(UINT),
        "bytes" | "decode" => return Some(BYTES),
        "duration" => return Some(DURATION),
        "timestamp" => return Some(TIMESTAMP),
        "min" | "max" | "sum" if target.is_some() && arguments.is_empty() => {
            return Some(of.and_then(Declared::item).unwrap_or(Declared::Dyn));
        }
        "flatten" | "slice" | "distinct" | "sort" | "sortBy" => return of.cloned(),
        _ => {}
    }
    let tables: [(&[&str], Declared); 5] = [
        (&BOOLEANS, BOOL),
        (&INTEGERS, INT),
        (&STRINGS, STRING),
        (&DOUBLES, DOUBLE),
        (&UNKNOWN, Declared::Dyn),
    ];
    tables.into_iter().find(|(names, _)| names.contains(&name)).map(|(_, result)| result)
}
