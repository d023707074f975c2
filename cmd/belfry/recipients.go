package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/node/settings"
)

// withoutAddress returns a remark for each job whose messages have no address, because the relation has
// no column addresses.
func withoutAddress(ctx context.Context, db *database, s settings.Settings, jobs []job.Job) (remarks []string, err error) {
	store, err := channels.New(s.Channels)
	if err != nil {
		return nil, err
	}
	has, err := store.HasAddresses(ctx, db.Pool)
	if err != nil || has {
		return nil, err
	}
	own := s.Senders.Targeted() // media that need no address of the channel
	for _, j := range jobs {
		media := slices.DeleteFunc(slices.Clone(j.Route), func(medium string) bool { return slices.Contains(own, medium) })
		if j.Type == "push" && j.RowsWritten > 0 && len(media) > 0 {
			remarks = append(remarks, fmt.Sprintf("job %d: %s has no column addresses, so its messages find none for %s "+
				"and will be dead letters (no_address); `belfry channels check` says more",
				j.ID, store.Relation(), strings.Join(media, ", ")))
		}
	}
	return remarks, nil
}
