package template

// The bounds, in characters.
const (
	MaxTitle = maxTitle
	MaxBody  = maxBody
)
