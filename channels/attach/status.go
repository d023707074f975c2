package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/db"
)

// Status is the state of the attached table.
type Status struct {
	Relation   string          `json:"relation"`
	ExternalID string          `json:"external_id"`   // the column
	Columns    json.RawMessage `json:"columns"`       // the source of each column of a channel
	Filled     int64           `json:"rows_filled"`   // rows that Backfill has processed
	Unusable   int64           `json:"rows_unusable"` // rows without a usable external id that Backfill has read
	Rows       int64           `json:"rows"`          // the planner's estimate; 0 means unknown
	AttachedAt time.Time       `json:"attached_at"`
	FilledAt   *time.Time      `json:"filled_at"`   // nil until Backfill has processed all rows
	VerifiedAt *time.Time      `json:"verified_at"` // nil before the first Verify
	Exists     bool            `json:"exists"`      // the table exists
	Following  bool            `json:"following"`   // its triggers exist and are enabled
	// Changes lists the changes of the table that prevent its rows from being followed.
	Changes []string `json:"changes"`
	// Missed counts writes without a channel since the last Verify, to 100,000; MissedBy has the
	// SQLSTATEs of their errors.
	Missed   int64    `json:"missed"`
	MissedBy []string `json:"missed_by"`
}

// Read returns the status of the attached table, or nil if no table is attached.
func Read(ctx context.Context, q channels.Querier) (*Status, error) {
	list, err := db.Collect(ctx, q, queries.attachmentRead, nil, func(row pgx.CollectableRow) (s Status, err error) {
		err = row.Scan(&s.Relation, &s.ExternalID, &s.Columns, &s.Filled, &s.Unusable, &s.Rows, &s.AttachedAt, &s.FilledAt, &s.VerifiedAt,
			&s.Exists, &s.Following, &s.Changes, &s.Missed, &s.MissedBy)
		return s, err
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// Faults returns the faults of the attached table, as channels.Store.Check returns the faults of
// belfry.channels. A nil Status has none.
func (s *Status) Faults() (list []channels.Fault) {
	if s == nil {
		return nil
	}
	add := func(fatal bool, problem, remedy string) {
		list = append(list, channels.Fault{Problem: problem, Remedy: remedy, Fatal: fatal})
	}
	if !s.Exists {
		add(true, s.Relation+", which it follows, does not exist any more", "`belfry channels detach`, then attach the new one")
		return list
	}
	for _, c := range s.Changes {
		add(true, s.Relation+" cannot be followed: "+c,
			"repeat `belfry channels attach` with the table as it is now, which brings all rows over again, or undo the change; "+
				"then `belfry channels verify`")
	}
	if !s.Following {
		add(true, "is not kept in step with "+s.Relation+": its triggers are missing or disabled",
			"ALTER TABLE "+s.Relation+" ENABLE TRIGGER USER, or attach it again; then `belfry channels verify`")
	}
	if s.FilledAt == nil {
		add(false, fmt.Sprintf("%d rows of %s are brought over, and some are left", s.Filled, s.Relation),
			"repeat `belfry channels attach`, which goes on")
	}
	if s.Missed > 0 {
		add(false, fmt.Sprintf("%d writes of %s were not followed (SQLSTATE %s)", s.Missed, s.Relation, strings.Join(s.MissedBy, ", ")),
			"`belfry channels verify`, which repairs what differs")
	}
	return list
}

// changed returns an error if a step would read other columns than the attached ones.
func (s *Status) changed() error {
	if len(s.Changes) == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot be followed: %s; repeat `belfry channels attach` with the table as it is now, or undo the change",
		s.Relation, strings.Join(s.Changes, "; "))
}

// UnlistedPlatforms returns up to ten platforms of active channels that belfry.platforms does not
// list, so that no audience can name them. It reads all channels.
func UnlistedPlatforms(ctx context.Context, q channels.Querier) (names []string, err error) {
	if err := q.QueryRow(ctx, queries.platformsUnlisted).Scan(&names); err != nil {
		return nil, fmt.Errorf("channels: read the platforms: %w", err)
	}
	return names, nil
}
