package admin

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/dbtest"
)

// The tag values of a parameter names a list that every role may read and that has suggestions. No suggestion
// names a recipient.
func TestSuggestions_NameWhatThereIs(t *testing.T) {
	t.Parallel()
	all := Operations()
	named := 0
	for _, o := range all {
		for _, p := range o.Params() {
			listing, field := p.Listed()
			if listing == "" {
				continue
			}
			i := slices.IndexFunc(all, func(other operation.Operation) bool { return other.Name == listing })
			require.GreaterOrEqual(t, i, 0, "%s: %s: %s is no operation", o.Name, p.Name, listing)
			list := all[i]
			require.NotEmpty(t, list.Suggests, "%s: %s: %s suggests nothing", o.Name, p.Name, listing)
			require.Equal(t, operation.Viewer, list.Role, list.Name)
			require.False(t, list.Changes, list.Name)
			for name := range strings.FieldsSeq(list.Suggests + " " + field) {
				require.Contains(t, list.Records().Names(), name, list.Name)
				require.NotContains(t, name, "external_id", list.Name)
				require.NotContains(t, name, "address", list.Name)
			}
			named++
		}
	}
	require.Greater(t, named, 30)
}

// The enums are those of the schema.
func TestSuggestions_EnumsAreTheSchemas(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for name, table := range map[string]string{"types": "job_types", "media": "media", "platforms": "platforms"} {
		var words []string
		require.NoError(t, db.Pool.QueryRow(t.Context(), "SELECT array_agg(name) FROM belfry."+table).Scan(&words))
		require.ElementsMatch(t, words, operation.Enums()[name], name)
	}
}

// A name that a shell would interpret, or that looks like a flag, is not suggested.
func TestSuggestions_NeedNoQuotes(t *testing.T) {
	t.Parallel()
	all := Operations()
	o := all[slices.IndexFunc(all, func(o operation.Operation) bool { return o.Name == "users list" })]
	list := operation.List[access.User]{Items: []access.User{{Name: "ann@example.com"}, {Name: "$(id)"}, {Name: "--yes"}, {Name: "a b"}, {Name: ""}, {Name: "ann@example.com"}}}
	offers, err := o.Suggestions(list, "")
	require.NoError(t, err)
	require.Len(t, offers, 1)
	require.Equal(t, "ann@example.com", offers[0].Value)
}
