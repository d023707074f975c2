package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
)

// newNounCommand returns the command of a noun, with a subcommand for each of its operations and the
// given hand-written ones.
func newNounCommand(a *app, noun string, others ...*cobra.Command) *cobra.Command {
	nouns := operation.Nouns()
	i := slices.IndexFunc(nouns, func(n operation.Noun) bool { return n.Name == noun })
	group := newGroup(noun[strings.LastIndexByte(noun, ' ')+1:], nouns[i].Short)
	group.Aliases = nouns[i].Aliases
	for _, o := range admin.Operations() {
		if o.Noun() == noun {
			group.AddCommand(newOperationCommand(a, o))
		}
	}
	group.AddCommand(others...)
	return group
}

// newVerbCommand returns the command of an operation without a noun.
func newVerbCommand(a *app, name string) *cobra.Command {
	return newOperationCommand(a, operationNamed(name))
}

// operationNamed returns an existing operation by its name.
func operationNamed(name string) operation.Operation {
	all := admin.Operations()
	return all[slices.IndexFunc(all, func(o operation.Operation) bool { return o.Name == name })]
}

// synonyms are the words of other programs for a verb.
var synonyms = map[string][]string{
	"add": {"create", "new"}, "create": {"add", "new"}, "drop": {"delete", "remove", "rm"}, "list": {"ls"}, "remove": {"delete", "drop", "rm"},
	"revoke": {"delete", "remove", "rm"}, "set": {"edit", "update", "change"}, "show": {"get", "describe", "status"},
	"abort": {"stop", "pause", "cancel", "kill", "suspend"}, "halt": {"freeze"}, "unhalt": {"go", "resume-all", "start", "unfreeze"},
	"recall": {"undo", "revoke"},
	"pause":  {"stop", "cancel", "kill", "suspend", "freeze"}, "resume": {"start", "unpause", "continue"},
}

// operationOptions are the options of an operation's command.
type operationOptions struct {
	commandOptions

	operation operation.Operation
	input     any
	out       *output
	yes       bool
	watch     *parsed[time.Duration] // nil if the command has no --watch
}

// newOperationCommand returns the command of an operation.
func newOperationCommand(a *app, op operation.Operation) *cobra.Command {
	return newOperationCommandOn(a, op, op.NewInput())
}

// newOperationCommandOn returns the command of an operation, which sets its parameters in input.
func newOperationCommandOn(a *app, op operation.Operation, input any) *cobra.Command {
	o := operationOptions{operation: op, input: input}
	cmd := &cobra.Command{
		Use: strings.TrimSpace(op.Verb() + " " + op.UsageLine()), Short: op.Short, Long: longOf(op), Example: op.Example,
		Annotations:       annotationsOf(op),
		SuggestFor:        synonyms[op.Verb()],
		Args:              func(cmd *cobra.Command, args []string) error { return takeArguments(cmd, op, input, args) },
		ValidArgsFunction: completer{a}.arguments(op),
	}
	cmd.Flags().SortFlags = false // they keep the order of the input's fields
	for _, p := range op.Params() {
		if p.Place != operation.Flag {
			continue
		}
		if p.Switch(input) {
			cmd.Flags().VarPF(&paramFlag{p, input, "bool", ""}, p.Flag, "", p.Help).NoOptDefVal = "true"
			continue
		}
		kind := p.Label
		if kind == "" {
			kind = "string"
		}
		cmd.Flags().Var(&paramFlag{p, input, kind, ""}, p.Flag, flagHelp(p))
	}
	o.out, o.watch = addOperationOutput(cmd, op), addWatch(cmd, op)
	if op.Confirm != nil {
		cmd.Flags().BoolVar(&o.yes, "yes", false, "do it without asking")
	}
	cmd.RunE = a.run(&o.commandOptions, func(ctx context.Context) error { return runOperation(ctx, o) })
	return cmd
}

// flagHelp returns the help of a flag, with the use of files if the flag names one.
func flagHelp(p operation.Param) string {
	switch {
	case p.Secret:
		return "FILE with " + p.Help + ", or - for standard input (default: asked for at a terminal)"
	case p.File && p.Label == "FILE":
		return p.Help + "; - is standard input"
	}
	return p.Help
}

// paramFlag is a parameter as a flag.
type paramFlag struct {
	param operation.Param
	in    any
	kind  string // of the value, for the help
	text  string
}

// Set parses the flag's value.
func (f *paramFlag) Set(text string) error {
	f.text = text
	return give(f.param, f.in, text)
}

func (f *paramFlag) String() string { return f.text }

// Type implements pflag.Value.
func (f *paramFlag) Type() string { return f.kind }

// runOperation asks for secrets and for a confirmation if it must, runs the operation and shows its
// result.
func runOperation(ctx context.Context, o operationOptions) error {
	if err := o.promptSecrets(ctx); err != nil {
		return err
	}
	if err := o.operation.Check(o.input, o.now()); err != nil {
		return operationProblem(o.operation, err)
	}
	return o.withExecutor(ctx, o.operation, func(ctx context.Context, by executor) error {
		if !o.yes {
			if err := o.confirm(ctx, by); err != nil {
				return operationProblem(o.operation, err)
			}
		}
		if o.operation.Item() != nil {
			return operationProblem(o.operation, o.stream(ctx, by))
		}
		if o.watch != nil && o.watch.value != nil {
			return operationProblem(o.operation, watchOperation(ctx, o, by.Run, *o.watch.value))
		}
		out, err := by.Run(ctx, o.operation, o.input)
		if out != nil {
			err = errors.Join(o.show(out), err)
		}
		return operationProblem(o.operation, err)
	})
}

// The intervals at which a streamed operation polls, on a terminal and elsewhere.
const (
	pollLive  = time.Second
	pollPlain = 2 * time.Second
)

// stream runs an operation that returns its result item by item, and shows each item when it arrives.
func (o operationOptions) stream(ctx context.Context, by executor) error {
	op := o.operation
	page, render, rows := o.pageOf(o.out), op.Teller(o.input), newRows(o.streams, o.out)
	by.env.Interval = pollPlain
	if page.Columns > 0 && o.out.forPeople() {
		by.env.Interval = pollLive
	}
	came := false
	out, err := op.Stream(ctx, by.env, o.input, func(item any) error {
		came = true
		switch o.out.format {
		case asJSON:
			return o.printLines(operation.Lines(item)...)
		case asCSV:
			if err := rows.add(op.Listed(item)); err != nil {
				return err
			}
			return rows.into.Flush()
		case asTable, asText:
		}
		if fd, is := terminal(o.stdout, o.environ); is { // its size may have changed
			page.Columns, page.Rows = sizeOf(fd)
		}
		page.Show(func(d *text.Doc) { render(d, item) })
		return o.written()
	})
	if o.out.format == asCSV && err == nil {
		err = rows.end()
	}
	if !came && err == nil && op.Nothing != "" {
		o.remark("%s", op.Nothing)
	}
	switch {
	case ctx.Err() != nil && page.Drawn():
		o.printf("\n") // below the ^C that the terminal echoes
	case out == nil:
	case o.out.json():
		err = errors.Join(o.printLines(out), err)
	case o.out.forPeople():
		page.Show(func(d *text.Doc) { op.Text(d, o.input, out) })
	}
	return err
}

// show shows the result of the operation. It returns the problem that the result reports, if any.
func (o operationOptions) show(out any) error {
	switch o.out.format {
	case asJSON:
		return errors.Join(o.printJSON(out), operation.Verdict(out))
	case asCSV:
		o.remarkNextPage(out)
		return errors.Join(printRows(o.streams, o.out, o.operation.Listed(out)), operation.Verdict(out))
	case asTable, asText:
	}
	o.pageOf(o.out).Show(func(d *text.Doc) { o.operation.Text(d, o.input, out) })
	return operation.Verdict(out)
}

// longOf returns the help of an operation, including its keys.
func longOf(o operation.Operation) string {
	if !strings.Contains(o.Long, "{keys}") {
		return o.Long
	}
	width := 0
	for _, p := range o.Params() {
		if p.Place == operation.Key {
			width = max(width, len(p.Name))
		}
	}
	var lines []string
	for _, p := range o.Params() {
		if p.Place != operation.Key {
			continue
		}
		text := p.Help
		if text == "" {
			text = p.Allowed
		}
		lines = append(lines, wrapped(fmt.Sprintf("  %-*s  ", width, p.Name), text, 88))
	}
	return strings.ReplaceAll(o.Long, "{keys}", strings.Join(lines, "\n"))
}

// wrapped breaks text into lines of at most width characters. Lines after the first are indented to
// the end of head.
func wrapped(head, text string, width int) string {
	indent := strings.Repeat(" ", len(head))
	line, lines := head, []string(nil)
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > width && strings.TrimSpace(line) != strings.TrimSpace(head) {
			lines, line = append(lines, strings.TrimRight(line, " ")), indent
		}
		line += word + " "
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}

// operationProblem names the flags and arguments of an invalid input.
func operationProblem(o operation.Operation, err error) error {
	var bad *operation.InvalidError
	if !errors.As(err, &bad) {
		return err
	}
	if several, is := err.(interface{ Unwrap() []error }); is {
		var problems []error
		for _, one := range several.Unwrap() {
			problems = append(problems, operationProblem(o, one))
		}
		return errors.Join(problems...)
	}
	lines := make([]string, len(bad.Problems))
	for i, problem := range bad.Problems {
		lines[i] = problem.Text
		if problem.Param == "" {
			continue
		}
		name := problem.Param
		for _, p := range o.Params() {
			switch {
			case p.Name != name:
			case p.Place == operation.Flag:
				name = "--" + p.Flag
			case p.Place == operation.Argument:
				name = p.Label
			}
		}
		lines[i] = name + ": " + problem.Text
	}
	return usagef("%s", strings.Join(lines, "\n  "))
}
