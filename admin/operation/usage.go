package operation

import (
	"slices"
	"strings"
)

// UsageLine returns the parameters of the operation as its usage line has them.
func (o Operation) UsageLine() string {
	if o.Usage != "" {
		return o.Usage
	}
	var parts []string
	for _, p := range o.Params() {
		text := p.Label
		if p.Repeated {
			text += "..."
		}
		switch {
		case p.Place == Key:
			if text = "KEY=VALUE..."; slices.Contains(parts, text) {
				continue
			}
		case p.Place == Flag && p.Required:
			text = "--" + p.Flag + " " + p.Label
		case p.Place == Flag:
			continue
		case !p.Required:
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}
