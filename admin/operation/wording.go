package operation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// flagged is a parameter in a text for the command line; quoted is one in a text for callers of
// the API.
var (
	flagged = regexp.MustCompile(`--[a-z]+(?:-[a-z]+)*`)
	quoted  = regexp.MustCompile("`[a-z]+(?:_[a-z]+)*`")
)

// WithNames is a text for the command line as a caller of the API reads it: a parameter by its
// name, `external_id`, rather than by its flag, --external-id. Commands in it, and flags of
// the command line alone, stay.
func (o Operation) WithNames(text string) string {
	parts := strings.Split(text, "`")
	for n := 0; n < len(parts); n += 2 { // the others are commands
		parts[n] = flagged.ReplaceAllStringFunc(parts[n], func(flag string) string {
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

// WithFlags is what WithNames made, as it was before.
func (o Operation) WithFlags(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(name string) string {
		for _, p := range o.params {
			if !p.Local && p.Place == Flag && "`"+p.Name+"`" == name {
				return "--" + p.Flag
			}
		}
		return name
	})
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
