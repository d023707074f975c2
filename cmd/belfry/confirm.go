package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"golang.org/x/term"

	"github.com/belfryhq/belfry/internal/text"
)

// canPrompt reports whether a person is at a terminal and may be asked.
func (c commandOptions) canPrompt() (bool, error) {
	if _, shown := terminal(c.stderr, c.environ); !shown || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, nil
	}
	s, err := c.settings()
	return !s.CLI.NoInput, err
}

// prompt writes a question and returns the answer that read reads. A signal ends it: the read of a
// terminal cannot be interrupted, and ends with the process.
func prompt(ctx context.Context, x *streams, question string, read func() (string, error)) (string, error) {
	fmt.Fprint(x.stderr, question)
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := read()
		answers <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(x.stderr)
		return "", context.Cause(ctx)
	case given := <-answers:
		return given.text, given.err
	}
}

// agreed asks a person to confirm q. Without a terminal the answer is no.
func (c commandOptions) agreed(ctx context.Context, q operation.Question) (bool, error) {
	if can, err := c.canPrompt(); err != nil || !can {
		return false, err
	}
	yes, how := []string{"y", "yes"}, "[y/N]"
	if q.Count > 0 {
		yes = []string{strconv.FormatInt(q.Count, 10), text.Grouped(q.Count)}
		how = "Type " + yes[1] + ", to how many it goes:"
	}
	answer, err := prompt(ctx, c.streams, fmt.Sprintf("%s %s ", text.OneLine(q.Text, 1000), how), func() (string, error) {
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		if err != nil {
			line = "" // end of file, or the terminal is gone: no answer
		}
		return line, nil
	})
	return slices.Contains(yes, strings.ToLower(strings.TrimSpace(answer))), err
}

// confirm asks for the confirmation that an operation needs. Without it the operation does not run.
func (o operationOptions) confirm(ctx context.Context, by executor) error {
	q, err := by.Question(ctx, o.operation, o.input)
	if err != nil || q.Text == "" {
		return err
	}
	if q.About != nil {
		err = o.show(q.About)
	}
	agreed := false
	if err == nil && (q.About == nil || !o.out.json()) {
		agreed, err = o.agreed(ctx, q)
	}
	if err == nil && !agreed {
		err = usagef("%s; say --yes if %s", cmp.Or(q.Why, "nothing was changed"), q.If)
	}
	return err
}
