package operation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// flagPattern matches a flag in a text for the command line.
var flagPattern = regexp.MustCompile(`--[a-z]+(?:-[a-z]+)*`)

// WithNames converts a text for the command line into a text for the API: it replaces flags such as
// --external-id by names of parameters such as `external_id`. Commands and flags that only the command line
// has stay.
func (o Operation) WithNames(text string) string {
	parts := strings.Split(text, "`")
	for n := 0; n < len(parts); n += 2 { // the others are commands
		parts[n] = flagPattern.ReplaceAllStringFunc(parts[n], func(flag string) string {
			for _, p := range o.params {
				if !p.Local && p.Place == Flag && "--"+p.Flag == flag {
					return "`" + p.Name + "`"
				}
			}
			return flag
		})
	}
	return strings.Join(parts, "`")
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
