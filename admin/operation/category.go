package operation

import (
	"context"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// UnknownCategory returns the error of the input for a category that does not exist, with the existing ones.
func UnknownCategory(ctx context.Context, q channels.Querier, name string) error {
	list, err := channels.Categories(ctx, q)
	if err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	slices.Sort(names)
	return Invalid("category", "%q is not a category; allowed values: %s%s", text.OneLine(name, 60), strings.Join(names, ", "),
		keys.Hint(name, names))
}
