package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/admin"
)

// agreed asks a person at a terminal; without one nobody agrees. A signal ends the question.
func (a *app) agreed(ctx context.Context, question string) (bool, error) {
	if _, ok := terminal(a.stderr, a.environ); !ok || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, nil
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() { // a terminal's read cannot be cut short: after a signal it ends with the process
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			line = "" // the terminal went away, or end of file: no answer
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return false, context.Cause(ctx)
	case said := <-answer:
		return said == "y" || said == "yes", nil
	}
}

// confirm asks what an operation wants to be agreed to. Without a yes it is not run.
func (a *app) confirm(ctx context.Context, by doer, o admin.Operation, in any, asJSON bool) error {
	q, err := by.Question(ctx, o, in)
	if err != nil || q.Text == "" {
		return err
	}
	if q.About != nil {
		err = a.show(o, in, q.About, asJSON)
	}
	agreed := false
	if err == nil && (q.About == nil || !asJSON) {
		agreed, err = a.agreed(ctx, q.Text)
	}
	if err == nil && !agreed {
		err = usagef("%s; say --yes if %s", cmp.Or(q.Why, "nothing was changed"), q.If)
	}
	return err
}
