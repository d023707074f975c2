package sender

import (
	"errors"
	"fmt"
)

// ValidationErrors collects the errors of settings.
type ValidationErrors struct {
	Path string // of the section, before each key
	all  []error
}

// Check adds an error about key unless ok.
func (p *ValidationErrors) Check(ok bool, key, format string, args ...any) {
	if !ok {
		p.all = append(p.all, fmt.Errorf("%s.%s: %s", p.Path, key, fmt.Sprintf(format, args...)))
	}
}

// Err returns all errors followed by more, or nil.
func (p *ValidationErrors) Err(more ...error) error { return errors.Join(append(p.all, more...)...) }
