package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/settings"
)

// stored calls do with a store that knows the abort cache, if there is one.
func stored(s settings.Settings, db *database, do func(*job.Store) error) (err error) {
	cache, err := s.OpenCache()
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
	do func(ctx context.Context, s settings.Settings, db *database) error,
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
