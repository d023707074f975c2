package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/admin/client"
	"github.com/belfryhq/belfry/internal/config"
	"github.com/belfryhq/belfry/internal/settings"
)

// doer does operations: a database that is at hand, or a server.
type doer interface {
	// Question is what a person has to agree to first.
	Question(ctx context.Context, o admin.Operation, in any) (admin.Question, error)
	// Run is admin's Operation.Run.
	Run(ctx context.Context, o admin.Operation, in any) (any, error)
	// Stream is admin's Operation.Stream.
	Stream(ctx context.Context, o admin.Operation, in any, each func(item any) error) (any, error)
}

// atHand does operations in this process.
type atHand struct {
	app *app
	env *admin.Env
}

// Question is what the operation's Confirm says.
func (d atHand) Question(ctx context.Context, o admin.Operation, in any) (admin.Question, error) {
	if o.Confirm == nil {
		return admin.Question{}, nil
	}
	return o.Confirm(ctx, d.env, in)
}

// Run runs an operation within its deadline. On a terminal a line says how it goes.
func (d atHand) Run(ctx context.Context, o admin.Operation, in any) (any, error) {
	return d.app.runOperation(ctx, d.env, o, in)
}

// Stream runs an operation whose result comes piece by piece.
func (d atHand) Stream(ctx context.Context, o admin.Operation, in any, each func(item any) error) (any, error) {
	return o.Stream(ctx, d.env, in, each)
}

// withDoer opens what does an operation.
func (a *app) withDoer(cmd *cobra.Command, o admin.Operation, do func(context.Context, doer) error) error {
	s, err := a.settings(cmd)
	if err != nil {
		return err
	}
	if throughServer(s) {
		there, err := client.New(s.Client, a.variable(config.TokenVariable))
		if err != nil {
			return err
		}
		defer there.Close()
		return do(cmd.Context(), there)
	}
	return a.withEnv(cmd, o, func(ctx context.Context, env *admin.Env) error { return do(ctx, atHand{a, env}) })
}

// throughServer reports whether a server does the operations. A database that a flag names is
// at hand, unless a flag names a server as well.
func throughServer(s settings.Settings) bool {
	named := s.Source("client.server").Kind
	return s.Client.Server != "" && (named == config.FromFlag || s.Source("database.url").Kind != config.FromFlag)
}

// serverFlags are about a server that does operations.
var serverFlags = []string{"server", "token-file", "ca-file"}

// onlyHere refuses a server for whatever it does not do: what is no operation.
func onlyHere(cmd *cobra.Command, _ []string) error {
	for _, name := range serverFlags {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && cmd.Annotations[operationAnnotation] == "" {
			return usagef("%s is done here and not through a server; leave --%s out", named(cmd), name)
		}
	}
	return nil
}
