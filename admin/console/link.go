package console

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/console/words"
	"github.com/belfryhq/belfry/admin/operation"

	"github.com/belfryhq/belfry/internal/text"
)

// pagesOf has the page of an object by its kind: an operation, and the parameter with the object's id.
var pagesOf = map[string]struct{ operation, param string }{
	"job": {views.JobOperation, "id"}, "group": {jobsList, "group"}, "channel": {views.PersonOperation, "channel"},
	"person":   {views.PersonOperation, "external_id"},
	"schedule": {"schedules show", "name"}, "lane": {jobsList, "lane"}, "category": {jobsList, "category"},
	"sender": {views.SenderEventsOperation, "sender"},
}

// pageFor returns the page of an object, or "" if it has none. Single messages have ids below 1 and no
// page.
func (c *Console) pageFor(kind, id string) string {
	page := pagesOf[kind]
	o, there := c.named(page.operation)
	if !there || id == "" || id == operation.Masked || strings.HasPrefix(id, "-") {
		return ""
	}
	return c.linkWith(o, url.Values{page.param: {id}})
}

// allowed returns the operation with a name if the caller may run it.
func (c *Console) allowed(name string) (operation.Operation, bool) {
	o, there := c.named(name)
	return o, there && o.Allowed(c.role) == nil
}

// linkWith returns the address of an operation's page with values of its parameters. It is empty if a
// value of the path is missing.
func (c *Console) linkWith(o operation.Operation, values url.Values) string {
	path, query := pathOf(o), url.Values{}
	for name, texts := range values {
		if place := "{" + name + "}"; strings.Contains(path, place) && len(texts) == 1 {
			path = strings.ReplaceAll(path, place, url.PathEscape(texts[0]))
			continue
		}
		query[name] = texts
	}
	if strings.Contains(path, "{") {
		return ""
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.link(path)
}

// linkTo returns the page of a command with its parameters, or the empty form if the reader has to
// complete them. It is empty without such a page, and if the caller may not run the operation.
func (c *Console) linkTo(command text.CommandCell) string {
	o, allowed := c.allowed(command.Operation)
	switch {
	case !allowed:
		return ""
	case o.Shared: // a part of /live, which the overview shows
		return c.link("/")
	}
	values := make(url.Values)
	if args := arguments(o); len(args) > 0 {
		for i, arg := range command.Args {
			values.Add(args[min(i, len(args)-1)].Name, arg)
		}
	}
	for _, f := range command.Flags {
		name := strings.ReplaceAll(f.Name, "-", "_")
		if name == planParam(o) { // each form shows its plan
			continue
		}
		if !slices.ContainsFunc(o.Params(), func(p operation.Param) bool { return p.Name == name && !p.Local }) {
			return ""
		}
		if f.Alone {
			f.Value = "on"
		}
		values.Add(name, f.Value)
	}
	if to := c.linkWith(o, values); to != "" || !o.Changes {
		return to
	}
	return c.link(barePath(o))
}

// action returns a link to the page of an operation with values. A label that is "" is the operation's
// verb. An act without its object has its empty form. It returns nothing if the caller may not run the operation.
func (c *Console) action(name, label string, values url.Values) []tab {
	o, allowed := c.allowed(name)
	if !allowed {
		return nil
	}
	to := c.linkWith(o, values)
	if to == "" && o.Changes {
		to = c.link(barePath(o))
	}
	return []tab{{Name: cmp.Or(label, verbOf(o)+"…"), Link: to}}
}

// showPageOf returns the page of an object in a list, or "" if it has none.
func (c *Console) showPageOf(list operation.Operation, key string) string {
	o, there := c.named(list.Noun() + " show")
	if args := arguments(o); there && key != "" && len(args) == 1 {
		return c.linkWith(o, url.Values{args[0].Name: {key}})
	}
	return ""
}

// actionsOn returns links to the acts on an object of a list.
func (c *Console) actionsOn(list operation.Operation, key string) (actions []tab) {
	for _, o := range c.operations {
		args := arguments(o)
		if !o.Changes || len(args) == 0 {
			continue
		}
		if of, field := args[0].Listed(); of != list.Name || field != "" {
			continue
		}
		label := verbOf(o)
		if o.Verb() == "add" { // the object exists
			label = "Change"
		}
		actions = append(actions, c.action(o.Name, label, url.Values{args[0].Name: {key}})...)
	}
	return actions
}

// arguments returns the positional parameters of an operation.
func arguments(o operation.Operation) (args []operation.Param) {
	for _, p := range o.Params() {
		if p.Place == operation.Argument && !p.Local {
			args = append(args, p)
		}
	}
	return args
}

// verbOf and nounOf return the words of an operation's name for a label: "Test send", "Failed messages".
func verbOf(o operation.Operation) string {
	return words.Sentence(words.Label(strings.ReplaceAll(o.Verb(), "-", " ")))
}

func nounOf(o operation.Operation) string {
	return words.Sentence(words.Label(strings.ReplaceAll(o.Noun(), "-", " ")))
}
