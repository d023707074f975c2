package job

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/internal/db"
)

// Changes is what Set and ResumeEdited change, by column of belfry.jobs: category,
// title, body, data, variants, route, audience, lane, priority, schedule_at, deliver_at, expires_at,
// max_recipients, max_rows_per_second, duty_cycle, chunk_target_ms, max_chunk_rows, health_checks,
// max_skips. A nil value takes a setting back to the runner's own and a route to the
// category's, or lifts deliver_at, expires_at or max_recipients. Values are what encoding/json makes of them.
//
// Settings of the walk, priority and times may change at any time and take
// effect with the next chunk; content, audience and lane stand still while the job runs, content
// while it is PROCESSED, the audience once the walk is complete, and the route once it has
// started.
type Changes map[string]any

// Set changes a job, recorded with before and after. A column that cannot be set
// and a value that is not allowed are an *InvalidError; nothing was changed then.
func (s *Store) Set(ctx context.Context, id int64, changes Changes, act Act) (Job, error) {
	o, err := operation{"set", queries.jobSet, Statuses(), nil}.altering(changes)
	if err != nil {
		return Job{}, err
	}
	list, err := s.act(ctx, o, One(id), act)
	if err != nil {
		return Job{}, err
	}
	return list[0], nil
}

// ResumeEdited changes the content or the audience of ABORTED and FAILED jobs and lets them
// continue as Resume and Retry do, in one act. Notifications that were written and messages that a
// provider accepted keep their content (see Revisions); all messages that are not sent yet get the
// new content, whatever the cursor. A change that one of the jobs does not allow is an
// *InvalidError, and no job is changed. Otherwise as Resume.
func (s *Store) ResumeEdited(ctx context.Context, sel Selection, changes Changes, act Act) ([]Job, error) {
	o, err := resumeEditedOperation().altering(changes)
	if err != nil {
		return nil, err
	}
	return s.act(ctx, o, sel, act)
}

func resumeEditedOperation() operation {
	return operation{"resume --edit", queries.jobResumeEdited, []Status{Aborted, Failed}, nil}
}

// altering returns the operation with its changes.
func (o operation) altering(changes Changes) (operation, error) {
	if len(changes) == 0 {
		return o, &InvalidError{Column: "changes", Message: "belfry.jobs.changes: nothing is to be changed; allowed values: at least one column"}
	}
	encoded, err := json.Marshal(changes)
	if err != nil {
		return o, &InvalidError{Column: "changes", Message: "belfry.jobs.changes: " + err.Error()}
	}
	o.changes = encoded
	return o, nil
}

// Revision is the content and audience of a job before a correction after the start of its walk.
type Revision struct {
	JobID    int64           `json:"job_id" db:"job_id"`
	Revision int             `json:"revision" db:"revision"` // that this correction made; messages sent under the content have one less
	Cursor   string          `json:"cursor" db:"cursor"`     // rows up to here, above the revision before, were written under it
	Title    string          `json:"title" db:"title"`
	Body     string          `json:"body" db:"body" mask:"text"`
	Data     json.RawMessage `json:"data" db:"data" mask:"text"`
	Variants json.RawMessage `json:"variants" db:"variants" mask:"text"`
	Audience json.RawMessage `json:"audience" db:"audience" mask:"keys"`
	EditedAt time.Time       `json:"edited_at" db:"edited_at"`
	EditedBy string          `json:"edited_by" db:"edited_by"`
	Reason   string          `json:"reason" db:"reason"`
}

// Revisions returns a job's earlier contents, oldest first; ErrNotFound when there
// is no such job.
func (s *Store) Revisions(ctx context.Context, id int64) (list []Revision, err error) {
	err = s.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := get(ctx, tx, id); err != nil {
			return err
		}
		if list, err = db.All[Revision](ctx, tx, queries.jobRevisions, pgx.StrictNamedArgs{"job_id": id}); err != nil {
			return fmt.Errorf("revisions of job %d: %w", id, err)
		}
		return nil
	})
	return list, err
}
