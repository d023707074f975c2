package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/belfryhq/belfry/admin"
)

// maxSecret bounds a file with a secret parameter.
const maxSecret = 64 << 10

// giveSecret sets a secret parameter from a file, or from standard input: other processes and
// the shell's history see what stands on a command line. An editor's newline at the end and byte
// order mark are none of it.
func giveSecret(p admin.Param, in any, name string) error {
	from := os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("%w; allowed values: %s", err, p.Allowed)
		}
		defer file.Close() //nolint:errcheck // it was only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxSecret))
	if err != nil {
		return fmt.Errorf("%w; allowed values: %s", err, p.Allowed)
	}
	return p.Set(in, strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(string(text), "\ufeff"), "\n"), "\r"))
}

// askSecrets asks at a terminal for the secret parameters that are required and were not given,
// twice, without showing them. Elsewhere they are missing.
func (a *app) askSecrets(cmd *cobra.Command, o admin.Operation, in any) error {
	for _, p := range o.Params() {
		if !p.Secret || !p.Required || p.Given(in) {
			continue
		}
		if somebody, err := a.person(cmd); err != nil || !somebody {
			return err
		}
		ctx := cmd.Context()
		first, err := a.askSecret(ctx, cmp.Or(p.Name, "secret"))
		if err != nil {
			return err
		}
		second, err := a.askSecret(ctx, p.Name+" again")
		if err != nil {
			return err
		}
		if first != second {
			return usagef("the %ss differ; nothing was changed", p.Name)
		}
		if err := p.Set(in, first); err != nil {
			return err
		}
	}
	return nil
}

// askSecret asks once. A signal ends the question, and the terminal shows what is typed again.
func (a *app) askSecret(ctx context.Context, what string) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(a.stderr, "%s: ", what)
	type answer struct {
		text []byte
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // a terminal's read cannot be cut short: after a signal it ends with the process
		text, err := term.ReadPassword(fd)
		answers <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return "", errors.Join(context.Cause(ctx), term.Restore(fd, before))
	case said := <-answers:
		fmt.Fprintln(a.stderr)
		return string(said.text), said.err
	}
}
