package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/abortcache"
)

// openCache returns the abort cache of the settings; nil when there is none. The
// caller closes it.
func openCache(s settings) (*abortcache.Cache, error) {
	if s.Abort.URL == "" {
		return nil, nil //nolint:nilnil // no cache is not an error
	}
	return abortcache.Open(s.Abort)
}

// stored calls do with a store that knows the abort cache, if there is one.
func stored(s settings, db *database, do func(*job.Store) error) (err error) {
	cache, err := openCache(s)
	if err != nil {
		return err
	}
	store := job.NewStore(db.Pool)
	if cache != nil {
		defer func() { err = errors.Join(err, cache.Close()) }()
		store = store.WithAbortCache(cache)
	}
	return do(store)
}

// withUnaskedDatabase is withDatabase for an abort with an abort cache: a database that
// does not answer keeps nobody from setting the flag, so it is not asked for its
// schema first.
func (a *app) withUnaskedDatabase(cmd *cobra.Command, need schemaNeed, limit time.Duration,
	do func(ctx context.Context, s settings, db *database) error,
) (err error) {
	s, err := a.settings(cmd)
	if err != nil {
		return err
	}
	if s.Abort.URL == "" || s.Database.URL == "" {
		return a.withDatabase(cmd, need, limit, do)
	}
	db := &database{DSN: s.Database.URL, writes: true}
	if err := db.prepare(cmd.Context(), s, a.briefLogger(s)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	return do(cmd.Context(), s, db)
}

// addActFlags adds --reason and --actor of an operator's act, kept in the named
// place. The returned function reads them once the flags are parsed.
func addActFlags(a *app, cmd *cobra.Command, place string) func() job.Act {
	reason := cmd.Flags().String("reason", "", "why, kept in "+place)
	actor := cmd.Flags().String("actor", "", "who, kept in "+place+" (default: user@host)")
	return func() job.Act {
		who := job.Act{Actor: *actor, Reason: *reason}
		if who.Actor == "" {
			who.Actor = a.whoami()
		}
		return who
	}
}
