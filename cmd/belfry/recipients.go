package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// recordRecipients brings what the database knows of channels.relation in step with the
// configuration; the log says what changed, and what keeps it from that.
func (d *database) recordRecipients(ctx context.Context, s settings, logger zerolog.Logger) error {
	store, err := channels.New(s.Channels)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statementDeadline)
	defer cancel()
	was, err := store.Record(ctx, d.Pool)
	switch {
	case err != nil:
		logger.Warn().Err(err).Msg("cannot record channels.relation in the database")
	case was != "":
		logger.Info().Str("detail", was+" before, "+store.Relation()+" now").Msg("channels.relation recorded in the database")
	}
	return nil
}

// withoutAddress says which of the jobs' messages find no address, because the relation
// has no column for them.
func withoutAddress(ctx context.Context, db *database, s settings, jobs []job.Job) (remarks []string, err error) {
	store, err := channels.New(s.Channels)
	if err != nil {
		return nil, err
	}
	has, err := store.HasAddresses(ctx, db.Pool)
	if err != nil || has {
		return nil, err
	}
	for _, j := range jobs {
		if media := addressed(j.Route, s); j.Type == "push" && j.RowsWritten > 0 && len(media) > 0 {
			remarks = append(remarks, fmt.Sprintf("job %d: %s has no column addresses, so its messages find none for %s and will be dead letters (no_address); `belfry channels check` says more",
				j.ID, store.Relation(), strings.Join(media, ", ")))
		}
	}
	return remarks, nil
}

// addressed are the media of a route that need an address of the channel.
func addressed(route []string, s settings) []string {
	own := s.Senders.targeted()
	return slices.DeleteFunc(slices.Clone(route), func(medium string) bool { return slices.Contains(own, medium) })
}

// channelFlags name one channel.
type channelFlags struct {
	id       *parsed[int64]
	external *string
}

// with opens the database and calls do with the channel, which exists.
func (c channelFlags) with(a *app, cmd *cobra.Command, do func(context.Context, *database, int64) error) error {
	byExternal := cmd.Flags().Changed("external-id")
	if (c.id.value != nil) == byExternal {
		return usagef("%s takes either --channel ID or --external-id ID", named(cmd))
	}
	return a.withDatabase(cmd, schemaCurrent, statementDeadline, func(ctx context.Context, s settings, db *database) error {
		store, err := channels.New(s.Channels)
		if err != nil {
			return err
		}
		if byExternal {
			id, err := store.Resolve(ctx, db.Pool, *c.external)
			if err != nil {
				return err
			}
			return do(ctx, db, id)
		}
		found, err := store.Recipients(ctx, db.Pool, []int64{*c.id.value})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%w with id %d in %s", channels.ErrNoChannel, *c.id.value, store.Relation())
		}
		return do(ctx, db, *c.id.value)
	})
}
