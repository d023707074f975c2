package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// seedCommand is the argument before the flags that fills a database rather than measures.
const seedCommand = "seed"

// seedAt fills the database of the connection string with what lists looks at, and leaves it there:
// for a look by hand, at pages of a console with a long past behind them. The past is written
// without triggers and is not true, so that a database that has belfry's tables is left alone.
func seedAt(ctx context.Context, c config) error {
	e := &env{config: c, failure: &failure{}, size: c.channels, dsn: c.databaseURL}
	return e.attempt(func() {
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		defer e.within(seedCommand)
		defer e.close()
		e.pool = e.connect(ctx, e.dsn, application, nil)
		var used bool
		var name string
		e.look(ctx, e.pool, queries.databaseUsed, nil, &name, &used)
		e.demand(!used, "database %s has a schema belfry; name an empty one: a past that never was is not mixed with yours", name)
		e.fill(ctx)
		e.seed(ctx)
		e.say("database %s has them; look at them with BELFRY_DATABASE_URL set to it: belfry jobs list", name)
	})
}

// seed fills the tables of the past.
func (e *env) seed(ctx context.Context) {
	e.clear(ctx)
	e.do(ctx, e.pool, queries.jobsEmpty)
	args := pgx.StrictNamedArgs{"jobs": e.jobs}
	of := pgx.StrictNamedArgs{"history": e.history, "every": e.every()}
	e.say("seeding %s jobs and %s messages", grouped(e.jobs), grouped(e.history))
	for _, step := range []struct {
		statement string
		args      pgx.StrictNamedArgs
	}{
		{queries.seedLanes, nil}, {queries.seedJobs, args}, {queries.seedEvents, nil}, {queries.seedActs, args},
		{queries.seedDeliveries, of}, {queries.seedMessages, of}, {queries.seedAttempts, of},
	} {
		e.check(pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, queries.seedBegin); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, step.statement, step.args); err != nil {
				return fmt.Errorf("%s: %w", db.QueryName(queries, step.statement), err)
			}
			return nil
		}))
	}
	e.do(ctx, e.pool, queries.seedVacuum)
}
