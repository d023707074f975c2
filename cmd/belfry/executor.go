package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/admin"
)

// executor runs operations on the database.
type executor struct {
	app *app
	env *admin.Env
}

// Question returns the confirmation that the operation asks for; the zero value if it asks for none.
func (x executor) Question(ctx context.Context, o admin.Operation, in any) (admin.Question, error) {
	if o.Confirm == nil {
		return admin.Question{}, nil
	}
	return o.Confirm(ctx, x.env, in)
}

// Run runs an operation within its deadline. On a terminal a line shows its progress.
func (x executor) Run(ctx context.Context, o admin.Operation, in any) (any, error) {
	return x.app.runOperation(ctx, x.env, o, in)
}

// Stream runs an operation whose result comes item by item.
func (x executor) Stream(ctx context.Context, o admin.Operation, in any, each func(item any) error) (any, error) {
	return o.Stream(ctx, x.env, in, each)
}

// withExecutor connects to the database and runs do.
func (a *app) withExecutor(cmd *cobra.Command, o admin.Operation, do func(context.Context, executor) error) error {
	return a.withEnv(cmd, o, func(ctx context.Context, env *admin.Env) error { return do(ctx, executor{a, env}) })
}
