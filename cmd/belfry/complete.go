package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/job"
)

// completeWithin bounds a look for what a word may become: a person waits for it.
const completeWithin = time.Second

// Few values come in an order of their own, newest first, and none is the name of a file.
const noFiles = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completing reports whether a command line asks what a word may become.
func completing(args []string) bool {
	return len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd)
}

// completeFlags says of each flag what its value may be. cobra keeps that for the whole process,
// so that it is asked for only where it is needed.
func (a *app) completeFlags(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.LocalNonPersistentFlags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil && cmd.PersistentFlags().Lookup(f.Name) == nil {
				return
			}
			_ = cmd.RegisterFlagCompletionFunc(f.Name, a.flagCompletion(f)) // an error is that it has one
		})
	}
	if cmd.ValidArgsFunction == nil && strings.Contains(cmd.Use, "FILE") {
		cmd.ValidArgsFunction = filesAlone
	}
	for _, c := range cmd.Commands() {
		a.completeFlags(c)
	}
}

// flagCompletion is what completes a flag's value.
func (a *app) flagCompletion(f *pflag.Flag) cobra.CompletionFunc {
	if known, is := f.Value.(interface{ choices() []string }); is && known.choices() != nil {
		return offering(func(*cobra.Command) []admin.Offer { return words(known.choices()) })
	}
	if known := fixedFlags[f.Name]; known != nil && f.Annotations[keyAnnotation] != nil {
		return offering(func(*cobra.Command) []admin.Offer { return words(known) })
	}
	param, is := f.Value.(*paramFlag)
	label, _ := pflag.UnquoteUsage(f)
	switch {
	case is && !param.param.File && !param.param.Secret:
		return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.offersOf(cmd, param.param, "", typed)
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

// fixedFlags are the values of flags for keys that have few.
var fixedFlags = map[string][]string{
	"log-level":  {"debug", "info", "warn", "error"},
	"log-format": {"auto", "json", "console"},
}

// filesAlone has the shell offer files.
func filesAlone(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

func words(list []string) []admin.Offer {
	offers := make([]admin.Offer, len(list))
	for i, word := range list {
		offers[i].Value = word
	}
	return offers
}

// offering completes with offers as they are.
func offering(offers func(*cobra.Command) []admin.Offer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completions("", typed, offers(cmd)), noFiles
	}
}

// argumentsOf completes the arguments of an operation.
func (a *app) argumentsOf(o admin.Operation) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		given := args
		var keys []admin.Offer
		for _, p := range o.Params() {
			switch {
			case p.Place == admin.Argument && p.File && len(given) == 0:
				return filesAlone(cmd, args, typed)
			case p.Place == admin.Argument && (len(given) == 0 || p.Repeated):
				found, directive := a.offersOf(cmd, p, "", typed)
				return slices.DeleteFunc(found, func(offer string) bool {
					value, _, _ := strings.Cut(offer, "\t")
					return slices.Contains(given, value)
				}), directive
			case p.Place == admin.Argument:
				given = given[1:]
			case p.Place != admin.Key:
			case strings.HasPrefix(typed, p.Name+"="):
				return a.offersOf(cmd, p, p.Name+"=", typed)
			case !slices.ContainsFunc(given, func(arg string) bool { return strings.HasPrefix(arg, p.Name+"=") }):
				about := p.Help
				if about == "" {
					about = p.Allowed
				}
				keys = append(keys, admin.Offer{Value: p.Name + "=", About: about})
			}
		}
		return completions("", typed, keys), noFiles | cobra.ShellCompDirectiveNoSpace
	}
}

// offersOf are what a parameter may be, after a head of the word that stands.
func (a *app) offersOf(cmd *cobra.Command, p admin.Param, head, typed string) ([]string, cobra.ShellCompDirective) {
	offers := words(p.Choices())
	if operation, field := p.Listed(); operation != "" {
		offers = slices.Concat(a.offers(cmd, operation, field), offers)
	}
	if p.SeveralIn() {
		head = typed[:max(len(head), strings.LastIndexByte(typed, ',')+1)]
	}
	return completions(head, typed, offers), noFiles
}

// completions are the offers that go on with what is typed, as cobra has them.
func completions(head, typed string, offers []admin.Offer) (list []string) {
	for _, offer := range offers {
		if word := head + offer.Value; strings.HasPrefix(word, typed) {
			list = append(list, cobra.CompletionWithDesc(word, offer.About))
		}
	}
	return list
}

// offers are what an operation lists. It says nothing of what goes wrong, and does not wait for
// what has not answered in time: the process ends with the completion.
func (a *app) offers(cmd *cobra.Command, operation, field string) []admin.Offer {
	ctx, cancel := context.WithTimeout(cmd.Context(), cmp.Or(a.lookLimit, completeWithin))
	defer cancel()
	found := make(chan []admin.Offer, 1)
	go func() {
		o := operationNamed(operation)
		var offers []admin.Offer
		if out, err := a.lookUp(ctx, cmd, o); err == nil {
			offers, _ = o.Offered(out, field)
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

// completePage is how many of a list are looked at.
const completePage = "100"

// errNotAsked is why nothing was looked up.
var errNotAsked = errors.New("a private server is not started for a completion")

// lookUp runs an operation that lists, through the server or on the database that any command
// would use. It starts no private server, and logs nothing.
func (a *app) lookUp(ctx context.Context, cmd *cobra.Command, o admin.Operation) (any, error) {
	s, err := a.settings(cmd)
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
		return nil, errNotAsked
	}
	db := &database{DSN: s.Database.URL}
	if err := db.prepare(ctx, s, zerolog.Nop()); err != nil {
		return nil, err
	}
	defer db.close() //nolint:errcheck // it was only read
	env, err := a.wholeEnv(s, db, job.NewStore(db.Pool))
	if err != nil {
		return nil, err
	}
	return o.Run(ctx, env, in)
}
