package main

import (
	"errors"
	"fmt"
	"runtime"
)

// failure ends what is attempted at its first error, as FailNow ends a test: what measures
// has no errors to pass on, and what it has deferred runs. check and demand are for the
// goroutine of the attempt; what others meet comes to it by a channel or an errgroup.
type failure struct{ err error }

// attempt runs f to its end or its first error, and returns that, joined with what went
// wrong in what f had deferred.
func (f *failure) attempt(act func()) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		act()
	}()
	<-ended
	err := f.err
	f.err = nil
	return err
}

// check ends the attempt if there is an error.
func (f *failure) check(err error) {
	if err != nil {
		f.err = errors.Join(f.err, err)
		runtime.Goexit()
	}
}

// demand ends the attempt with an error of that text, unless what is demanded holds.
func (f *failure) demand(holds bool, format string, args ...any) {
	if !holds {
		f.check(fmt.Errorf(format, args...))
	}
}

// within is deferred: it says in which part an attempt has failed.
func (f *failure) within(part string) {
	if f.err != nil {
		f.err = fmt.Errorf("%s: %w", part, f.err)
	}
}
