package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"golang.org/x/term"
)

// maxSecret is the maximum size of a file with a secret parameter, in bytes.
const maxSecret = 64 << 10

// giveSecret sets a secret parameter from a file, or from standard input for "-": other processes and
// the shell's history can read a command line. A byte order mark and a final newline are removed.
func giveSecret(p operation.Param, in any, name string) error {
	from := os.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("%w; allowed values: a file with %s, or - for standard input", err, p.Allowed)
		}
		defer file.Close() //nolint:errcheck // it is only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxSecret))
	if err != nil {
		return fmt.Errorf("%w; allowed values: a file with %s, or - for standard input", err, p.Allowed)
	}
	return p.Set(in, strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(string(text), "\ufeff"), "\n"), "\r"))
}

// promptSecrets asks at a terminal for the required secret parameters that are not set, twice each and
// without echo. Without a terminal they stay unset.
func (o operationOptions) promptSecrets(ctx context.Context) error {
	for _, p := range o.operation.Params() {
		if !p.Secret || !p.Required || p.Given(o.input) {
			continue
		}
		if can, err := o.canPrompt(); err != nil || !can {
			return err
		}
		first, err := promptSecret(ctx, o.streams, cmp.Or(p.Name, "secret"))
		if err != nil {
			return err
		}
		second, err := promptSecret(ctx, o.streams, p.Name+" again")
		if err != nil {
			return err
		}
		if first != second {
			return usagef("the %ss differ; nothing was changed", p.Name)
		}
		if err := p.Set(o.input, first); err != nil {
			return err
		}
	}
	return nil
}

// promptSecret reads one line without echo. After a signal the terminal echoes again.
func promptSecret(ctx context.Context, x *streams, name string) (string, error) {
	fd := int(os.Stdin.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	text, err := prompt(ctx, x, name+": ", func() (string, error) {
		text, err := term.ReadPassword(fd)
		return string(text), err
	})
	if ctx.Err() != nil {
		return "", errors.Join(err, term.Restore(fd, before))
	}
	fmt.Fprintln(x.stderr)
	return text, err
}
