package outbox

import (
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// The names of the job types this package provides.
const (
	TypeInbox = "inbox"
	TypePush  = "push"
)

// Types returns the job types inbox and push over the recipients of store.
func Types(store *channels.Store) []job.Type {
	who := job.RecipientIDs(store)
	return []job.Type{
		job.NewType[int64](TypeInbox, "a notification in each channel's notification centre", who, Inbox{},
			job.AsyncCommit(), job.FixedPath()),
		job.NewType[int64](TypePush, "a message to deliver to each channel", who, Push{}, job.FixedPath()),
	}
}
