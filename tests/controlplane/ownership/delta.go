package main

import (
	"reflect"
	"strconv"
)

// delta returns the change that leads from one JSON value to another, so that the fixture stays small: 0 where
// the value is gone, [v] where it is replaced by v, an object with the changes of its entries for a map, and
// for a list one with the changes by index and the new length as "#".
func delta(from, to any) any {
	out := object{}
	entry := func(name string, from, to any, had, has bool) {
		switch {
		case !has:
			out[name] = 0
		case !had:
			out[name] = []any{to}
		case !reflect.DeepEqual(from, to):
			out[name] = delta(from, to)
		}
	}
	if to, ok := to.(object); ok {
		from, ok := from.(object)
		if !ok {
			return []any{to}
		}
		for name := range from {
			value, has := to[name]
			entry(name, from[name], value, true, has)
		}
		for name := range to {
			value, had := from[name]
			entry(name, value, to[name], had, true)
		}
		return out
	}
	if to, ok := to.([]any); ok {
		from, ok := from.([]any)
		if !ok {
			return []any{to}
		}
		if len(from) != len(to) {
			out["#"] = len(to)
		}
		for n := range to {
			if n < len(from) {
				entry(strconv.Itoa(n), from[n], to[n], true, true)
			} else {
				entry(strconv.Itoa(n), nil, to[n], false, true)
			}
		}
		return out
	}
	return []any{to}
}
