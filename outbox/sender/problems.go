package sender

import (
	"errors"
	"fmt"
)

// Problems gathers what is wrong with a sender's settings.
type Problems struct {
	Path string // of the section, before each key
	all  []error
}

// Check notes a problem with key unless ok.
func (p *Problems) Check(ok bool, key, format string, args ...any) {
	if !ok {
		p.all = append(p.all, fmt.Errorf("%s.%s: %s", p.Path, key, fmt.Sprintf(format, args...)))
	}
}

// Err returns every problem and then more, or nil.
func (p *Problems) Err(more ...error) error { return errors.Join(append(p.all, more...)...) }
