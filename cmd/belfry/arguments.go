package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/keys"
	"github.com/belfryhq/belfry/internal/text"
)

// takeArguments sets the parameters of the input from the arguments of a command line.
func takeArguments(cmd *cobra.Command, o operation.Operation, in any, args []string) error {
	var keys []operation.Param
	var names []string
	rest := args
	for _, p := range o.Params() {
		switch {
		case p.Place == operation.Key:
			keys, names = append(keys, p), append(names, p.Name)
		case p.Place != operation.Argument:
		case len(rest) == 0 && p.Required:
			return miscounted(cmd, o, len(args))
		default:
			n := min(1, len(rest))
			if p.Repeated {
				n = len(rest)
			}
			for _, text := range rest[:n] {
				if err := give(p, in, text); err != nil {
					return usagef("%w", argumentProblem(p, text, err))
				}
			}
			rest = rest[n:]
		}
	}
	if len(keys) == 0 && len(rest) > 0 || len(keys) > 0 && len(rest) == 0 && !strings.Contains(o.UsageLine(), "[KEY=VALUE") {
		return miscounted(cmd, o, len(args))
	}
	return takeKeys(keys, names, in, rest)
}

// argumentProblem names the argument whose text is not allowed.
func argumentProblem(p operation.Param, line string, err error) error {
	allowed := strings.HasPrefix(err.Error(), "allowed values")
	switch {
	case p.File:
		return errors.New(config.ReadProblem(line, err))
	case allowed && p.Is != "":
		return fmt.Errorf("%q is not %s; %w", text.OneLine(line, 60), p.Is, err)
	case allowed:
		return fmt.Errorf("%s: %q is not allowed; %w", p.Label, text.OneLine(line, 60), err)
	}
	return fmt.Errorf("%s: %w", p.Label, err)
}

// maxFile is the maximum size of a file with a parameter's value, in bytes.
const maxFile = 1 << 20

// give sets a parameter. For a long one, text that does not begin like JSON is the name of a file.
func give(p operation.Param, in any, line string) error {
	if p.Secret {
		return giveSecret(p, in, line)
	}
	if p.Reads(in) {
		file, _, err := openInput(line)
		if err == nil {
			p.From(in, file)
		}
		return err
	}
	start := strings.TrimSpace(line)
	if !p.File || p.Resets(line) || start == "" || strings.ContainsAny(start[:1], `{["`) {
		return p.Set(in, line)
	}
	file, _, err := openInput(line)
	if err != nil {
		return fmt.Errorf("%w; allowed values: %s", err, p.Allowed)
	}
	defer file.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w; allowed values: %s", err, p.Allowed)
	case len(content) > maxFile:
		return fmt.Errorf("%s has more than %d bytes; allowed values: %s", text.OneLine(line, 60), maxFile, p.Allowed)
	}
	return p.Set(in, string(content))
}

// miscounted returns the error for too few or too many arguments.
func miscounted(cmd *cobra.Command, o operation.Operation, n int) error {
	usage := o.UsageLine()
	optional := strings.HasPrefix(usage, "[") && !strings.Contains(usage, " ")
	switch {
	case usage == "":
		return usagef("%s takes no arguments, got %q", named(cmd), text.OneLine(cmd.Flags().Arg(0), 60))
	case optional:
		return usagef("%s takes one %s or none, got %s", named(cmd), strings.Trim(usage, "[]"), text.Counted(int64(n), "argument"))
	case n > 1 && strings.HasPrefix(usage, "{"): // an argument or a flag
		return usagef("%s takes one %s, got %s", named(cmd), strings.Fields(usage[1:])[0], text.Counted(int64(n), "argument"))
	case n == 0 && strings.HasPrefix(usage, "KEY=VALUE"):
		return usagef("%s takes %s, got none", named(cmd), usage)
	}
	return usagef("%s takes %s, got %s", named(cmd), usage, text.Counted(int64(n), "argument"))
}

// takeKeys sets parameters from KEY=VALUE arguments. It reports every invalid one.
func takeKeys(params []operation.Param, names []string, in any, args []string) error {
	var problems []string
	seen := make(map[string]bool)
	for _, arg := range args {
		key, value, ok := strings.Cut(arg, "=")
		i := slices.IndexFunc(params, func(p operation.Param) bool { return key == p.Name || key == p.Column && key != "" })
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%q is no change; write KEY=VALUE", text.OneLine(arg, 60)))
		case i < 0:
			problems = append(problems, fmt.Sprintf("%s: cannot be set; allowed keys: %s%s", text.OneLine(key, 60),
				strings.Join(names, ", "), keys.Hint(key, names)))
		case seen[names[i]]:
			problems = append(problems, key+": given twice")
		default:
			seen[names[i]] = true
			if key != names[i] && !params[i].Resets(value) {
				value += params[i].Unit
			}
			if err := give(params[i], in, value); err != nil {
				problems = append(problems, key+": "+err.Error())
			}
		}
	}
	if len(problems) > 0 {
		return usagef("%s", strings.Join(problems, "\n  "))
	}
	return nil
}
