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

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/internal/printer"
)

// person reports whether somebody is at a terminal and may be asked.
func (a *app) person(cmd *cobra.Command) (bool, error) {
	if _, shown := terminal(a.stderr, a.environ); !shown || !term.IsTerminal(int(os.Stdin.Fd())) {
		return false, nil
	}
	s, err := a.settings(cmd)
	return !s.CLI.NoInput, err
}

// agreed asks a person at a terminal; without one nobody agrees. A signal ends the question.
func (a *app) agreed(ctx context.Context, cmd *cobra.Command, q admin.Question) (bool, error) {
	if somebody, err := a.person(cmd); err != nil || !somebody {
		return false, err
	}
	wanted, how := []string{"y", "yes"}, "[y/N]"
	if q.Count > 0 {
		wanted = []string{strconv.FormatInt(q.Count, 10), printer.Grouped(q.Count)}
		how = "Type " + wanted[1] + ", to how many it goes:"
	}
	fmt.Fprintf(a.stderr, "%s %s ", printer.OneLine(q.Text, 1000), how)
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
		return slices.Contains(wanted, said), nil
	}
}

// confirm asks what an operation wants to be agreed to. Without a yes it is not run.
func (a *app) confirm(ctx context.Context, cmd *cobra.Command, by executor, o admin.Operation, in any, form *output) error {
	q, err := by.Question(ctx, o, in)
	if err != nil || q.Text == "" {
		return err
	}
	if q.About != nil {
		err = a.show(o, in, q.About, form)
	}
	agreed := false
	if err == nil && (q.About == nil || !form.json()) {
		agreed, err = a.agreed(ctx, cmd, q)
	}
	if err == nil && !agreed {
		err = usagef("%s; say --yes if %s", cmp.Or(q.Why, "nothing was changed"), q.If)
	}
	return err
}
