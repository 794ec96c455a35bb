package main

import (
	"fmt"
	"math/rand"
	"sort"
)

// generator makes random writes of a Widget.
type generator struct{ *rand.Rand }

func (g *generator) one(of ...string) string { return of[g.Intn(len(of))] }

func (g *generator) chance(percent int) bool { return g.Intn(100) < percent }

func (g *generator) text() any { return g.one("a", "b", "c") }

func (g *generator) number() any { return int64(g.Intn(3)) }

// fields returns some of the fields.
func (g *generator) fields(percent int, of map[string]func() any) object {
	out := object{}
	for _, name := range sortedKeys(of) {
		if g.chance(percent) {
			out[name] = of[name]()
		}
	}
	return out
}

// keyed returns a list of items that differ in their key.
func (g *generator) keyed(max int, item func(n int) any) any {
	out := []any{}
	for _, n := range g.Perm(max) {
		if g.chance(45) {
			out = append(out, item(n))
		}
	}
	return out
}

func (g *generator) granular() any {
	return g.fields(40, map[string]func() any{"a": g.text, "b": g.text, "c/d": g.text})
}

func (g *generator) free(depth int) any {
	switch g.Intn(6) {
	case 0:
		return g.text()
	case 1:
		return g.number()
	case 2:
		return []any{g.text()}
	case 3:
		return nil
	default:
		if depth == 0 {
			return object{}
		}
		below := func() any { return g.free(depth - 1) }
		return g.fields(50, map[string]func() any{"a": below, "b": below, "c": below})
	}
}

func (g *generator) spec(percent int) object {
	return g.fields(percent, map[string]func() any{
		"replicas": g.number,
		"name":     g.text,
		"flag":     func() any { return g.chance(50) },
		"port": func() any {
			if g.chance(50) {
				return g.text()
			}
			return g.number()
		},
		"labels":   g.granular,
		"selector": g.granular,
		"config":   func() any { return g.fields(50, map[string]func() any{"a": g.text, "b": func() any { return 1.5 }}) },
		"list":     func() any { return g.keyed(3, func(n int) any { return fmt.Sprint(n) }) },
		"tags":     func() any { return g.keyed(4, func(n int) any { return fmt.Sprint("t", n) }) },
		"numbers":  func() any { return g.keyed(3, func(n int) any { return int64(n * 1000000) }) },
		"ports": func() any {
			return g.keyed(4, func(n int) any {
				port := g.fields(40, map[string]func() any{"name": g.text, "opts": g.granular})
				port["port"] = int64(80 + n/2)
				if n%2 == 1 {
					port["protocol"] = "UDP"
				} else if g.chance(50) {
					port["protocol"] = "TCP"
				}
				return port
			})
		},
		"containers": func() any {
			return g.keyed(3, func(n int) any {
				container := g.fields(40, map[string]func() any{
					"image": g.text,
					"args":  func() any { return []any{g.text()} },
					"env": func() any {
						return g.keyed(3, func(n int) any { return object{"name": fmt.Sprint("E", n), "value": g.text()} })
					},
					"resources": func() any {
						return g.fields(70, map[string]func() any{"limits": g.granular})
					},
				})
				container["name"] = fmt.Sprint("c", n)
				return container
			})
		},
		"any": func() any {
			return g.fields(60, map[string]func() any{"a": func() any { return g.free(2) }, "b": g.number})
		},
		"free": func() any { return g.free(2) },
		"nested": func() any {
			return g.fields(60, map[string]func() any{
				"inner": func() any { return g.fields(60, map[string]func() any{"x": g.number, "y": g.text}) },
				"m": func() any {
					entry := func() any { return g.fields(60, map[string]func() any{"p": g.number, "q": g.number}) }
					return g.fields(50, map[string]func() any{"a": entry, "b": entry})
				},
			})
		},
	})
}

func (g *generator) status() object {
	return g.fields(60, map[string]func() any{
		"phase": g.text,
		"conditions": func() any {
			return g.keyed(3, func(n int) any { return object{"type": fmt.Sprint("C", n), "status": g.text()} })
		},
	})
}

func (g *generator) widget(version string, percent int) object {
	meta := g.fields(15, map[string]func() any{
		"labels":      g.granular,
		"annotations": g.granular,
		"finalizers":  func() any { return g.keyed(2, func(n int) any { return fmt.Sprint("f", n) }) },
		"ownerReferences": func() any {
			return g.keyed(2, func(n int) any { return object{"uid": fmt.Sprint(n), "name": g.text()} })
		},
	})
	meta["name"] = "w"
	out := object{"apiVersion": version, "kind": "Widget", "metadata": meta}
	if spec := g.spec(percent); len(spec) > 0 || g.chance(20) {
		out["spec"] = spec
	}
	if g.chance(25) {
		out["status"] = g.status()
	}
	return out
}

// change replaces, adds and removes some of the content of live by that of other.
func (g *generator) change(live, other object) {
	for _, name := range sortedKeys(other) {
		below, ok := other[name].(object)
		present, okPresent := live[name].(object)
		if ok && okPresent && g.chance(70) {
			g.change(present, below)
		} else {
			live[name] = other[name]
		}
	}
	for _, name := range sortedKeys(live) {
		if g.chance(12) && name != "apiVersion" && name != "kind" && name != "metadata" && name != "uid" && name != "name" {
			delete(live, name)
		}
	}
}

func (g *generator) writes() []func(live object) *step {
	configs := map[string]object{}
	two := g.chance(25)
	write := func(live object) *step {
		s := &step{Version: "example.com/v1"}
		if two && g.chance(40) {
			s.Version = "example.com/v2"
		}
		if live != nil && g.chance(12) {
			s.Subresource = "status"
		}
		if g.chance(60) {
			s.Op, s.Force = "apply", g.chance(50)
			s.Manager = g.one("alice", "bob", "carol", "kubectl")
			config := configs[s.Manager]
			switch {
			case config != nil && g.chance(10):
			case config != nil && g.chance(50):
				config = clone(config)
				g.change(config, g.widget(s.Version, 15))
			default:
				config = g.widget(s.Version, 25)
			}
			configs[s.Manager] = config
			config = clone(config)
			config["apiVersion"] = s.Version
			s.Input = config
			return s
		}
		s.Op, s.Manager = "update", g.one("uma", "ulf", "alice")
		if live == nil {
			s.Input = g.widget(s.Version, 40)
			return s
		}
		live["apiVersion"] = s.Version
		other := g.widget(s.Version, 20)
		delete(other["metadata"].(object), "name")
		entries := live["metadata"].(object)["managedFields"]
		g.change(live, other)
		if g.chance(50) || s.Subresource != "" {
			live["metadata"].(object)["managedFields"] = entries
		}
		if live["metadata"].(object)["managedFields"] == nil {
			delete(live["metadata"].(object), "managedFields")
		}
		if g.chance(4) {
			live["metadata"].(object)["managedFields"] = []any{object{}}
		}
		s.Input = live
		return s
	}
	writes := make([]func(object) *step, 4+g.Intn(4))
	for n := range writes {
		writes[n] = write
	}
	return writes
}

func sortedKeys[V any](in map[string]V) []string {
	names := make([]string, 0, len(in))
	for name := range in {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
