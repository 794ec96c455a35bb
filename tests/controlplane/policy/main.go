// Command policy writes the Roles, ClusterRoles and bindings that a new cluster has, an object a line, from the
// packages of Kubernetes themselves. The aggregated ClusterRoles have the rules that their controller gives them.
//
// Usage, from tests/controlplane:
//
//	go run ./policy > ../../devcluster/data/policy.jsonl
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	roles := append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...)
	slices.SortFunc(roles, func(a, b rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	// admin selects the labels of edit, and edit those of view, so a second round finds nothing new.
	for range 3 {
		aggregate(roles)
	}
	for _, role := range roles {
		write(out, "ClusterRole", role)
	}
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		write(out, "ClusterRoleBinding", binding)
	}
	for _, namespace := range namespaces(bootstrappolicy.NamespaceRoles()) {
		for _, role := range bootstrappolicy.NamespaceRoles()[namespace] {
			write(out, "Role", role)
		}
	}
	for _, namespace := range namespaces(bootstrappolicy.NamespaceRoleBindings()) {
		for _, binding := range bootstrappolicy.NamespaceRoleBindings()[namespace] {
			write(out, "RoleBinding", binding)
		}
	}
}

// aggregate gives each ClusterRole with an aggregation rule the rules of the roles that it selects, by name.
func aggregate(roles []rbacv1.ClusterRole) {
	for i := range roles {
		if roles[i].AggregationRule == nil {
			continue
		}
		var rules []rbacv1.PolicyRule
		for _, of := range roles[i].AggregationRule.ClusterRoleSelectors {
			selector, err := metav1.LabelSelectorAsSelector(&of)
			check(err)
			for _, role := range roles {
				if role.Name == roles[i].Name || !selector.Matches(labels.Set(role.Labels)) {
					continue
				}
				for _, rule := range role.Rules {
					same := func(known rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(known, rule) }
					if !slices.ContainsFunc(rules, same) {
						rules = append(rules, rule)
					}
				}
			}
		}
		roles[i].Rules = rules
	}
}

func namespaces[T any](of map[string][]T) []string {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// write prints an object without the fields that the server sets.
func write(out *bufio.Writer, kind string, object any) {
	text, err := json.Marshal(object)
	check(err)
	var fields map[string]any
	check(json.Unmarshal(text, &fields))
	fields["kind"] = kind
	delete(fields, "apiVersion")
	delete(fields["metadata"].(map[string]any), "creationTimestamp")
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(fields))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
