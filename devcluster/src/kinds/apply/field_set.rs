//! Sets of field paths, stored as a trie, and their `fieldsV1` form.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::element::{Element, Numbers};

/// A set of field paths.
///
/// The set is a trie: each node is one step of a path. Every node is a member or has children, so an empty
/// set has no nodes. Nodes are sorted, so every operation is one pass over both sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) nodes: Vec<Node>,
}

/// One step of the paths of a [`FieldSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: Element,
    /// Whether the path that ends here is in the set.
    pub(super) member: bool,
    pub(super) children: FieldSet,
}

impl FieldSet {
    /// Returns the set of these paths, each a list of field names.
    #[must_use]
    pub fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(path.iter().map(|name| Element::Field((*name).to_owned())));
        }
        set
    }

    /// Parses the `fieldsV1` form.
    ///
    /// # Errors
    ///
    /// Returns a description of the first key that is not a valid path element.
    pub fn from_json(fields: &Value) -> Result<Self, String> {
        read(fields).map(|(_, set)| set)
    }

    /// Returns the `fieldsV1` form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.entries(false))
    }

    /// Returns whether the set has no paths.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn entries(&self, member: bool) -> Map<String, Value> {
        let this = member.then(|| (".".to_owned(), Value::Object(Map::new())));
        let children = self.nodes.iter().map(|node| {
            let member = node.member && !node.children.is_empty();
            (node.element.write(), Value::Object(node.children.entries(member)))
        });
        this.into_iter().chain(children).collect()
    }

    pub(super) fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut path = path.into_iter();
        let Some(first) = path.next() else { return };
        let mut set = self;
        let mut next = Some(first);
        while let Some(element) = next.take() {
            next = path.next();
            let node = set.descend(element);
            node.member |= next.is_none();
            set = &mut node.children;
        }
    }

    fn position(&self, element: &Element) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    fn descend(&mut self, element: Element) -> &mut Node {
        let index = match self.position(&element) {
            Ok(index) => index,
            Err(index) => {
                self.nodes.insert(index, Node { element, member: false, children: Self::default() });
                index
            }
        };
        &mut self.nodes[index]
    }

    /// Adds a node unless it is empty. Nodes normally arrive in order; a node out of order costs a search.
    pub(super) fn push(&mut self, node: Node) {
        if !node.member && node.children.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.element < node.element) {
            self.nodes.push(node);
            return;
        }
        let present = self.descend(node.element);
        present.member |= node.member;
        present.children = present.children.union(&node.children);
    }

    pub(super) fn get(&self, element: &Element) -> Option<&Node> {
        self.position(element).ok().and_then(|index| self.nodes.get(index))
    }

    pub(super) fn contains(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.children.contains(rest)),
        }
    }

    /// Returns whether every path of this set is in `other`.
    pub(super) fn is_subset(&self, other: &Self) -> bool {
        join(self, other).all(|pair| match pair {
            (Some(a), Some(b)) => (b.member || !a.member) && a.children.is_subset(&b.children),
            (a, _) => a.is_none(),
        })
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        combine(self, other, |pair| match pair {
            (Some(a), Some(b)) => Some(node(&a.element, a.member || b.member, a.children.union(&b.children))),
            (a, b) => a.or(b).cloned(),
        })
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        combine(self, other, |pair| match pair {
            (Some(a), Some(b)) => {
                Some(node(&a.element, a.member && b.member, a.children.intersection(&b.children)))
            }
            _ => None,
        })
    }

    /// Returns the paths of this set that are not in `other`.
    #[must_use]
    pub(super) fn difference(mut self, other: &Self) -> Self {
        self.nodes.retain_mut(|node| {
            if let Some(removed) = other.get(&node.element) {
                node.member &= !removed.member;
                node.children = std::mem::take(&mut node.children).difference(&removed.children);
            }
            node.member || !node.children.is_empty()
        });
        self
    }

    /// Returns the paths of this set that are neither in `other` nor below one of its paths.
    #[must_use]
    pub(super) fn without(mut self, other: &Self) -> Self {
        self.nodes.retain_mut(|node| match other.get(&node.element) {
            Some(removed) => {
                node.children = std::mem::take(&mut node.children).without(&removed.children);
                !removed.member && (node.member || !node.children.is_empty())
            }
            None => true,
        });
        self
    }

    /// Calls `visit` with each path. At each level, paths that end there come before longer ones.
    pub(super) fn each(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in &self.nodes {
            path.push(node.element.clone());
            node.children.each(path, visit);
            path.pop();
        }
    }
}

/// Returns the path in the form used in error messages: `.spec.ports[name="x"].port`.
pub(super) fn display(path: &[Element]) -> String {
    path.iter().map(|element| element.display(Numbers::Decoded)).collect()
}

fn node(element: &Element, member: bool, children: FieldSet) -> Node {
    Node { element: element.clone(), member, children }
}

/// Returns whether the root of the subtree is a member, and the paths below it.
fn read(fields: &Value) -> Result<(bool, FieldSet), String> {
    let fields = match fields {
        Value::Object(fields) => fields,
        Value::Null => return Ok((true, FieldSet::default())),
        other => return Err(format!("expected an object: {other}")),
    };
    let mut set = FieldSet::default();
    let mut member = false;
    for (key, below) in fields {
        if key == "." {
            member = true;
        } else if let Some(element) = Element::parse(key)? {
            let (member, children) = read(below)?;
            set.push(Node { element, member, children });
        }
    }
    Ok((member || set.is_empty(), set))
}

type Pair<'a> = (Option<&'a Node>, Option<&'a Node>);

/// Returns the nodes of both sets in order; two nodes with the same element form one pair.
fn join<'a>(a: &'a FieldSet, b: &'a FieldSet) -> impl Iterator<Item = Pair<'a>> {
    let (mut a, mut b) = (a.nodes.iter().peekable(), b.nodes.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) => x.element.cmp(&y.element),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        Some(match order {
            Ordering::Less => (a.next(), None),
            Ordering::Greater => (None, b.next()),
            Ordering::Equal => (a.next(), b.next()),
        })
    })
}

fn combine(a: &FieldSet, b: &FieldSet, pick: impl Fn(Pair<'_>) -> Option<Node>) -> FieldSet {
    let nodes = join(a, b).filter_map(pick).filter(|node| node.member || !node.children.is_empty());
    FieldSet { nodes: nodes.collect() }
}
