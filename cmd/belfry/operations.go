package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/node/settings"
)

// nounCommand is the group of a noun's operations, and of commands that are none.
func (a *app) nounCommand(noun string, others ...*cobra.Command) *cobra.Command {
	nouns := admin.Nouns()
	i := slices.IndexFunc(nouns, func(n admin.Noun) bool { return n.Name == noun })
	group := newGroup(noun[strings.LastIndexByte(noun, ' ')+1:], nouns[i].Short)
	group.Aliases = nouns[i].Aliases
	for _, o := range admin.Operations() {
		if o.Noun() == noun {
			group.AddCommand(a.operationCommand(o))
		}
	}
	group.AddCommand(others...)
	return group
}

// verbCommand is the command of an operation without a noun.
func (a *app) verbCommand(name string) *cobra.Command {
	return a.operationCommand(operationNamed(name))
}

// operationNamed is one that there is.
func operationNamed(name string) admin.Operation {
	all := admin.Operations()
	return all[slices.IndexFunc(all, func(o admin.Operation) bool { return o.Name == name })]
}

// synonyms are other programs' words for a verb.
var synonyms = map[string][]string{
	"add": {"create", "new"}, "create": {"add", "new"}, "drop": {"delete", "remove", "rm"}, "list": {"ls"}, "remove": {"delete", "drop", "rm"},
	"revoke": {"delete", "remove", "rm"}, "set": {"edit", "update", "change"}, "show": {"get", "describe", "status"},
	"abort": {"stop", "pause", "cancel", "kill", "suspend"}, "halt": {"freeze"}, "unhalt": {"go", "resume-all", "start", "unfreeze"}, "recall": {"undo", "revoke"},
	"pause": {"stop", "cancel", "kill", "suspend", "freeze"}, "resume": {"start", "unpause", "continue"},
}

// operationCommand is the command of an operation.
func (a *app) operationCommand(o admin.Operation) *cobra.Command {
	return a.operationCommandOn(o, o.NewInput())
}

// operationCommandOn is the command of an operation, which gives its parameters to an input.
func (a *app) operationCommandOn(o admin.Operation, in any) *cobra.Command {
	cmd := &cobra.Command{
		Use: strings.TrimSpace(o.Verb() + " " + usageOf(o)), Short: o.Short, Long: longOf(o), Example: o.Example,
		Annotations:       annotationsOf(o),
		SuggestFor:        synonyms[o.Verb()],
		Args:              func(cmd *cobra.Command, args []string) error { return takeArguments(cmd, o, in, args) },
		ValidArgsFunction: a.argumentsOf(o),
	}
	cmd.Flags().SortFlags = false // they stand as in the input
	for _, p := range o.Params() {
		if p.Place != admin.Flag {
			continue
		}
		if p.Switch(in) {
			cmd.Flags().VarPF(&paramFlag{p, in, "bool", ""}, p.Flag, "", p.Help).NoOptDefVal = "true"
			continue
		}
		kind := p.Label
		if kind == "" {
			kind = "string"
		}
		cmd.Flags().Var(&paramFlag{p, in, kind, ""}, p.Flag, p.Help)
	}
	out, yes, every := addOperationOutput(cmd, o), new(bool), addWatch(cmd, o)
	if o.Confirm != nil {
		cmd.Flags().BoolVar(yes, "yes", false, "do it without asking")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.operate(cmd, o, in, out, *yes, every) }
	return cmd
}

// paramFlag is a parameter as a flag.
type paramFlag struct {
	param admin.Param
	in    any
	kind  string // what help shows for its value
	text  string
}

// Set understands the flag's value.
func (f *paramFlag) Set(text string) error {
	f.text = text
	return give(f.param, f.in, text)
}

func (f *paramFlag) String() string { return f.text }

// Type is what help shows.
func (f *paramFlag) Type() string { return f.kind }

// operate asks if it has to, runs an operation and shows what came of it.
func (a *app) operate(cmd *cobra.Command, o admin.Operation, in any, form *output, yes bool, every *parsed[time.Duration]) error {
	if err := a.askSecrets(cmd, o, in); err != nil {
		return err
	}
	if err := o.Check(in, a.now()); err != nil {
		return operationProblem(o, err)
	}
	return a.withExecutor(cmd, o, func(ctx context.Context, by executor) error {
		if !yes {
			if err := a.confirm(ctx, cmd, by, o, in, form); err != nil {
				return operationProblem(o, err)
			}
		}
		if o.Item() != nil {
			return operationProblem(o, a.stream(ctx, by, o, in, form))
		}
		if every != nil && every.value != nil {
			return operationProblem(o, a.lookAgain(ctx, by.Run, o, in, form, *every.value))
		}
		out, err := by.Run(ctx, o, in)
		if out != nil {
			err = errors.Join(a.show(o, in, out, form), err)
		}
		return operationProblem(o, err)
	})
}

// The time between the looks of what looks again and again, on a terminal and elsewhere.
const (
	looksLive  = time.Second
	looksPlain = 5 * time.Second
)

// stream runs an operation whose result comes piece by piece, and shows each piece as it comes.
func (a *app) stream(ctx context.Context, by executor, o admin.Operation, in any, form *output) error {
	page, tell, rows := a.pageOf(form), o.Teller(in), a.newRows(form)
	by.env.Interval = looksPlain
	if page.Columns > 0 && form.forPeople() {
		by.env.Interval = looksLive
	}
	came := false
	out, err := by.Stream(ctx, o, in, func(item any) error {
		came = true
		switch form.form {
		case asJSON:
			return a.printLines(admin.Lines(item))
		case asCSV:
			if err := rows.add(o.Listed(item)); err != nil {
				return err
			}
			return rows.into.Flush()
		case asTable, asText:
		}
		if fd, is := terminal(a.stdout, a.environ); is { // it may have another size now
			page.Columns, page.Rows = sizeOf(fd)
		}
		tell(page, item)
		return a.written()
	})
	if form.form == asCSV && err == nil {
		err = rows.end()
	}
	if !came && err == nil && o.Nothing != "" {
		a.remark("%s", o.Nothing)
	}
	switch {
	case ctx.Err() != nil && page.Drawn():
		a.printf("\n") // what the terminal shows a Ctrl-C in
	case out == nil:
	case form.json():
		err = errors.Join(a.printLines([]any{out}), err)
	case form.forPeople():
		o.Text(page, in, out)
	}
	return err
}

// show shows a result of an operation; the error is also what is to be said of it.
func (a *app) show(o admin.Operation, in, out any, form *output) error {
	switch form.form {
	case asJSON:
		return errors.Join(a.printJSON(out), admin.Verdict(out))
	case asCSV:
		a.remarkNextPage(o, out)
		return errors.Join(a.printRows(form, o.Listed(out)), admin.Verdict(out))
	case asTable, asText:
	}
	o.Text(a.pageOf(form), in, out)
	return admin.Verdict(out)
}

// runOperation runs an operation within its deadline. On a terminal a line says how it goes.
func (a *app) runOperation(ctx context.Context, env *admin.Env, o admin.Operation, in any) (any, error) {
	if o.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Deadline)
		defer cancel()
	}
	show := a.newProgress()
	defer show.end()
	if show.width != nil {
		env.Progress = show.line
	}
	return o.Run(ctx, env, in)
}

// withEnv opens what an operation works with.
func (a *app) withEnv(cmd *cobra.Command, o admin.Operation, do func(context.Context, *admin.Env) error) error {
	open, schema := a.withDatabase, schemaCurrent
	switch o.Need {
	case admin.NeedSchema:
	case admin.NeedServer:
		schema = schemaAny
	case admin.NeedNothing:
		open = a.withUnaskedDatabase
	case admin.NeedConfiguration:
		open = a.withoutDatabase
	}
	return open(cmd, schema, 0, func(ctx context.Context, s settings.Settings, db *database) error {
		return stored(s, db, func(store *job.Store) error {
			env, err := a.wholeEnv(s, db, store)
			if err != nil {
				return err
			}
			env.InStep = func(ctx context.Context) error {
				return node.RecordRecipients(ctx, db.Pool, s.Channels, a.logger(s, a.stderr))
			}
			return do(ctx, env)
		})
	})
}

// withoutDatabase is withDatabase where none is needed.
func (a *app) withoutDatabase(cmd *cobra.Command, _ schemaNeed, _ time.Duration, do func(context.Context, settings.Settings, *database) error) error {
	s, err := a.settings(cmd)
	if err != nil {
		return err
	}
	return do(cmd.Context(), s, new(database))
}

// wholeEnv is what operations work with, jobs through that store.
func (a *app) wholeEnv(s settings.Settings, db *database, store *job.Store) (*admin.Env, error) {
	recipients, err := channels.New(s.Channels)
	if err != nil {
		return nil, err
	}
	env := a.env(s, db)
	env.Jobs, env.Channels, env.Carrier, env.Setup = store, recipients, a.operated(s), setupOf(s, db)
	return env, nil
}

// setupOf is how this process is set up, for the doctor.
func setupOf(s settings.Settings, db *database) admin.Setup {
	setup := admin.Setup{
		Configuration: readFrom(s), OpenFiles: s.OpenFiles(), Database: "given by " + s.Source("database.url").String(), Address: db.Address.String(), Private: db.Private != nil,
		Listens: s.Runner.Listen || s.Delivery.Relay.Listen, StaleAfter: s.Runner.StaleAfter, Health: s.Runner.Load.Health,
	}
	if db.Private != nil {
		setup.Database = "private server, PostgreSQL " + db.Private.Install().Version + " of " + db.Private.Install().BinDir
	}
	return setup
}

// env is what needs neither jobs nor channels of it.
func (a *app) env(s settings.Settings, db *database) *admin.Env {
	env := &admin.Env{DB: db.Pool, Actor: a.whoami(), Role: admin.Admin, Now: a.now, Compose: s.Delivery.Compose, Retention: s.Retention}
	for _, sender := range s.Senders {
		env.Senders, env.Media = append(env.Senders, sender.Name), append(env.Media, sender.Medium)
	}
	env.Compose.NoAddress = s.Senders.Targeted()
	for _, file := range s.Files {
		env.ConfigFlags += " --config " + printer.ShellWord(file)
	}
	return env
}

// usageOf is how an operation's parameters are written.
func usageOf(o admin.Operation) string {
	if o.Usage != "" {
		return o.Usage
	}
	var parts []string
	for _, p := range o.Params() {
		text := p.Label
		if p.Repeated {
			text += "..."
		}
		switch {
		case p.Place == admin.Key:
			if text = "KEY=VALUE..."; slices.Contains(parts, text) {
				continue
			}
		case p.Place == admin.Flag && p.Required:
			text = "--" + p.Flag + " " + p.Label
		case p.Place == admin.Flag:
			continue
		case !p.Required:
			text = "[" + text + "]"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// longOf is an operation's help, with its keys.
func longOf(o admin.Operation) string {
	if !strings.Contains(o.Long, "{keys}") {
		return o.Long
	}
	width := 0
	for _, p := range o.Params() {
		if p.Place == admin.Key {
			width = max(width, len(p.Name))
		}
	}
	var lines []string
	for _, p := range o.Params() {
		if p.Place != admin.Key {
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

// wrapped breaks a text into lines of at most so many characters, each but the first under
// the first's text.
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

// operationProblem says what is wrong with an input as the command line has it.
func operationProblem(o admin.Operation, err error) error {
	var bad *admin.InvalidError
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
			case p.Place == admin.Flag:
				name = "--" + p.Flag
			case p.Place == admin.Argument:
				name = p.Label
			}
		}
		lines[i] = name + ": " + problem.Text
	}
	return usagef("%s", strings.Join(lines, "\n  "))
}
