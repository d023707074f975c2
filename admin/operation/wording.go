package operation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/internal/text"
)

// WithNames returns markup for callers of the API: a parameter is named `external_id` instead of
// --external-id. Flags that only the command line has stay.
func (o Operation) WithNames(markup string) string {
	line := text.Parse(markup)
	for i, c := range line {
		for _, p := range o.params {
			if !p.Local && p.Place == Flag && c == text.Param(strings.ReplaceAll(p.Flag, "-", "_")) {
				line[i] = text.Code(p.Name)
			}
		}
	}
	return line.String()
}

// SomeNames lists three names at most.
func SomeNames(names []string) string {
	const most = 3
	if n := len(names) - most; n > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("%d more", n))
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
