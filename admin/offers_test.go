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

// What a parameter's tag names is an operation that looks, for everybody who may do anything, and
// offers what it lists; no recipient is named by anything that is offered.
func TestOffers_NameWhatThereIs(t *testing.T) {
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
			require.NotEmpty(t, list.Offers, "%s: %s: %s offers nothing", o.Name, p.Name, listing)
			require.Equal(t, operation.Viewer, list.Role, list.Name)
			require.False(t, list.Changes, list.Name)
			for name := range strings.FieldsSeq(list.Offers + " " + field) {
				require.Contains(t, list.Records().Names(), name, list.Name)
				require.NotContains(t, name, "external_id", list.Name)
				require.NotContains(t, name, "address", list.Name)
			}
			named++
		}
	}
	require.Greater(t, named, 30)
}

// What belfry offers as known words is what the schema begins with.
func TestOffers_VocabulariesAreTheSchemas(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	for name, table := range map[string]string{"types": "job_types", "media": "media", "platforms": "platforms"} {
		var words []string
		require.NoError(t, db.Pool.QueryRow(t.Context(), "SELECT array_agg(name) FROM belfry."+table).Scan(&words))
		require.ElementsMatch(t, words, operation.Vocabularies()[name], name)
	}
}

// A name that a shell would understand otherwise, or that would be a flag, is not offered.
func TestOffers_NeedNoQuotes(t *testing.T) {
	t.Parallel()
	all := Operations()
	o := all[slices.IndexFunc(all, func(o operation.Operation) bool { return o.Name == "users list" })]
	list := operation.List[access.User]{Items: []access.User{{Name: "ann@example.com"}, {Name: "$(id)"}, {Name: "--yes"}, {Name: "a b"}, {Name: ""}, {Name: "ann@example.com"}}}
	offers, err := o.Offered(list, "")
	require.NoError(t, err)
	require.Len(t, offers, 1)
	require.Equal(t, "ann@example.com", offers[0].Value)
}
