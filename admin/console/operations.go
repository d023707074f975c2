package console

import (
	"net/http"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"
)

// operationsPage lists operations by noun.
type operationsPage struct {
	Query  string
	Groups []operationGroup
}

// operationGroup is the operations of a noun.
type operationGroup struct {
	Name       string
	Operations []operationEntry
}

// operationEntry is an operation. Link is empty if its page is about one object that no list has.
type operationEntry struct{ Name, About, Link string }

// allOperations renders the list of all operations, or of the operations that match a search.
func (h *handler) allOperations() {
	query := strings.TrimSpace(h.req.URL.Query().Get("q"))
	page := operationsPage{Query: query, Groups: h.operationGroups(func(o operation.Operation) bool {
		for word := range strings.FieldsSeq(strings.ToLower(query)) {
			if !strings.Contains(strings.ToLower(o.Name+" "+o.Short+" "+words.Label(o.Short)), word) {
				return false
			}
		}
		return true
	})}
	h.show(http.StatusOK, "operations", layout{Title: "All operations", Page: page})
}

// operationGroups returns the operations that the caller may run and match accepts, by noun.
func (h *handler) operationGroups(match func(operation.Operation) bool) (groups []operationGroup) {
	for _, o := range h.operations {
		if o.Shared || o.Allowed(h.role) != nil || !match(o) {
			continue
		}
		name := nounOf(o)
		if name == "" {
			name = "General"
		}
		i := slices.IndexFunc(groups, func(g operationGroup) bool { return g.Name == name })
		if i < 0 {
			i, groups = len(groups), append(groups, operationGroup{Name: name})
		}
		groups[i].Operations = append(groups[i].Operations, operationEntry{verbOf(o), words.Label(o.Short), h.entrance(o)})
	}
	return groups
}

// entrance returns the page of an operation without an object: its own page, its empty form, or the list of
// the objects.
func (h *handler) entrance(o operation.Operation) string {
	switch to := h.linkWith(o, nil); {
	case to != "":
		return to
	case o.Changes:
		return h.link(barePath(o))
	}
	of, _ := arguments(o)[0].Listed()
	if list, there := h.allowed(of); there {
		return h.linkWith(list, nil)
	}
	return ""
}
