package cursor

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Window returns the predicate that selects the keys above after and at or
// below bound, and its arguments. It is a row comparison over the whole keyset:
//
//	("a", "b") > (@after_1::uuid, @after_2::bigint)
//	AND ("a", "b") <= (@bound_1::uuid, @bound_2::bigint)
//
// with COLLATE "C" on both sides of a text column. The arguments are named
// after_1… and bound_1…, are exactly those the predicate uses, and are the
// caller's to add to. The predicate binds as tightly as AND; put parentheses
// around it to combine it with OR.
//
// A zero after is the start and drops the lower comparison. A zero bound is
// below every key: nothing is at or below it, so the predicate is FALSE without
// arguments. A relation that was empty when the bound was read therefore gives
// an empty walk, not an unbounded one. It panics when Check refuses after or
// bound.
func (k Keyset) Window(after, bound Position) (predicate string, args pgx.StrictNamedArgs) {
	k.mustCheck(after)
	k.mustCheck(bound)
	args = make(pgx.StrictNamedArgs, 2*len(k.columns))
	if bound.IsZero() {
		return "FALSE", args
	}
	upper := k.compare("<=", "bound_", bound, args)
	if after.IsZero() {
		return upper, args
	}
	return k.compare(">", "after_", after, args) + " AND " + upper, args
}

// compare renders a row comparison and adds its arguments.
func (k Keyset) compare(operator, prefix string, p Position, args pgx.StrictNamedArgs) string {
	left := make([]string, len(k.columns))
	right := make([]string, len(k.columns))
	for i, c := range k.columns {
		name := prefix + strconv.Itoa(i+1)
		args[name] = p.at(i).argument(c.Type)
		left[i] = k.rendered[i].ident + k.rendered[i].collate
		right[i] = "@" + name + "::" + string(c.Type) + k.rendered[i].collate
	}
	return row(left) + " " + operator + " " + row(right)
}

// row renders a row constructor; a row of one is a scalar.
func row(fields []string) string {
	if len(fields) == 1 {
		return fields[0]
	}
	return "(" + strings.Join(fields, ", ") + ")"
}

// OrderBy returns the keyset's order for ORDER BY.
func (k Keyset) OrderBy() string {
	return k.join(func(r rendered) string { return r.ident + r.collate })
}

// OrderByDesc returns the reverse order, for reading the bound: the first row
// in it has the highest key. An index for OrderBy serves it too, backwards.
func (k Keyset) OrderByDesc() string {
	return k.join(func(r rendered) string { return r.ident + r.collate + " DESC" })
}

// SelectList returns the key columns for SELECT, the most significant first.
func (k Keyset) SelectList() string {
	return k.join(func(r rendered) string { return r.ident })
}

func (k Keyset) join(render func(rendered) string) string {
	parts := make([]string, len(k.rendered))
	for i, r := range k.rendered {
		parts[i] = render(r)
	}
	return strings.Join(parts, ", ")
}
