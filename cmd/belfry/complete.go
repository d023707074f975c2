package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belfryhq/belfry/admin/operation"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/job"
)

// completeWithin is the deadline of a completion's query: a person waits for it.
const completeWithin = time.Second

// noFiles keeps the order of the values, such as newest first, and offers no names of files.
const noFiles = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completer completes words of the command line.
type completer struct{ app *app }

// addTo adds completions to the flags and file arguments of a command tree. cobra stores those of flags
// for the whole process, so that they are added only for a completion.
func (c completer) addTo(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.LocalNonPersistentFlags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil && cmd.PersistentFlags().Lookup(f.Name) == nil {
				return
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, c.flag(f)) // the error reports that it has one already
		})
	}
	if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "FILE") {
		cmd.ValidArgsFunction = filesAlone
	}
	for _, sub := range cmd.Commands() {
		c.addTo(sub)
	}
}

// flag returns the completion of a flag's value.
func (c completer) flag(f *pflag.Flag) cobra.CompletionFunc {
	if known, is := f.Value.(interface{ choices() []string }); is && known.choices() != nil {
		return fixed(known.choices())
	}
	if known := fixedFlags[f.Name]; known != nil && f.Annotations[keyAnnotation] != nil {
		return fixed(known)
	}
	param, is := f.Value.(*paramFlag)
	label, _ := pflag.UnquoteUsage(f)
	switch {
	case is && !param.param.File && !param.param.Secret:
		return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return c.parameter(cmd, param.param, "", typed)
		}
	case label == "DIRECTORY":
		return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	case label == "FILE", is:
		return filesAlone
	}
	return cobra.NoFileCompletions
}

// fixedFlags are the values of flags that stand for keys with few values.
var fixedFlags = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"auto", "json", "console"},
}

// filesAlone lets the shell offer files.
func filesAlone(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func words(list []string) []operation.Suggestion {
	offers := make([]operation.Suggestion, len(list))
	for i, word := range list {
		offers[i].Value = word
	}
	return offers
}

// fixed returns a completion that offers a list of words.
func fixed(list []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completions("", typed, words(list)), noFiles
	}
}

// arguments returns the completion of an operation's arguments.
func (c completer) arguments(o operation.Operation) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		given := args
		var keys []operation.Suggestion
		for _, p := range o.Params() {
			switch {
			case p.Place == operation.Argument && p.File && len(given) == 0:
				return filesAlone(cmd, args, typed)
			case p.Place == operation.Argument && (len(given) == 0 || p.Repeated):
				found, directive := c.parameter(cmd, p, "", typed)
				return slices.DeleteFunc(found, func(offer string) bool {
					value, _, _ := strings.Cut(offer, "\t")
					return slices.Contains(given, value)
				}), directive
			case p.Place == operation.Argument:
				given = given[1:]
			case p.Place != operation.Key:
			case strings.HasPrefix(typed, p.Name+"="):
				return c.parameter(cmd, p, p.Name+"=", typed)
			case !slices.ContainsFunc(given, func(arg string) bool { return strings.HasPrefix(arg, p.Name+"=") }):
				about := p.Help
				if about == "" {
					about = p.Allowed
				}
				keys = append(keys, operation.Suggestion{Value: p.Name + "=", About: about})
			}
		}
		return completions("", typed, keys), noFiles | cobra.ShellCompDirectiveNoSpace
	}
}

// parameter returns the values of a parameter, after the head of the word, which stays.
func (c completer) parameter(cmd *cobra.Command, p operation.Param, head, typed string) ([]string, cobra.ShellCompDirective) {
	offers := words(p.Choices())
	if list, field := p.Listed(); list != "" {
		offers = slices.Concat(c.listed(cmd, list, field), offers)
	}
	if p.SeveralIn() {
		head = typed[:max(len(head), strings.LastIndexByte(typed, ',')+1)]
	}
	return completions(head, typed, offers), noFiles
}

// completions returns the offers that begin with the typed word, in cobra's form.
func completions(head, typed string, offers []operation.Suggestion) (list []string) {
	for _, offer := range offers {
		if word := head + offer.Value; strings.HasPrefix(word, typed) {
			list = append(list, cobra.CompletionWithDesc(word, offer.About))
		}
	}
	return list
}

// listed returns the values that an operation lists. It reports no errors and does not wait for a query
// beyond the deadline: the process ends with the completion.
func (c completer) listed(cmd *cobra.Command, list, field string) []operation.Suggestion {
	ctx, cancel := context.WithTimeout(cmd.Context(), cmp.Or(c.app.lookupLimit, completeWithin))
	defer cancel()
	found := make(chan []operation.Suggestion, 1)
	go func() {
		o := operationNamed(list)
		var offers []operation.Suggestion
		if out, err := c.query(ctx, cmd, o); err == nil {
			offers, _ = o.Suggestions(out, field)
		}
		found <- offers
	}()
	select {
	case offers := <-found:
		return offers
	case <-ctx.Done():
		return nil
	}
}

// completePage is the limit of a list that a completion reads.
const completePage = "100"

// errNotQueried is the error of a query without a database.
var errNotQueried = errors.New("a private server is not started for a completion")

// query runs an operation that lists, on the configured database. It starts no private server and logs
// nothing.
func (c completer) query(ctx context.Context, cmd *cobra.Command, o operation.Operation) (any, error) {
	s, err := c.app.options(cmd).settings()
	if err != nil {
		return nil, err
	}
	in := o.NewInput()
	for _, p := range o.Params() {
		if p.Name == "limit" {
			if err := p.Set(in, completePage); err != nil {
				return nil, err
			}
		}
	}
	if s.Database.URL == "" {
		return nil, errNotQueried
	}
	db := &database{DSN: s.Database.URL}
	if err := db.prepare(ctx, s, zerolog.Nop()); err != nil {
		return nil, err
	}
	defer db.close() //nolint:errcheck // the query only reads
	env, err := c.app.env(s, db, job.NewStore(db.Pool))
	if err != nil {
		return nil, err
	}
	return o.Run(ctx, env, in)
}
