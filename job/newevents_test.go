package job_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// told looks, and returns what is new as "SUBJECT NAME KIND", with a star if somebody did it.
func told(t *testing.T, n *job.NewEvents, s *job.Store) (texts []string) {
	t.Helper()
	list, err := n.Poll(t.Context(), s)
	require.NoError(t, err)
	for _, e := range list {
		text := e.Subject + " " + e.Name + " " + e.Kind
		if e.Act {
			text += " *"
		}
		texts = append(texts, text)
	}
	return texts
}

func TestNewEvents_AreToldOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	first := b.enqueue(t, job.Spec{})
	var n job.NewEvents
	require.Contains(t, told(t, &n, b.jobs), fmt.Sprintf("job %d enqueued *", first), "what was there before")
	require.Empty(t, told(t, &n, b.jobs))
	_, err := b.jobs.Abort(t.Context(), job.One(first), job.Act{Actor: "ann"})
	require.NoError(t, err)
	_, err = b.jobs.PauseLane(t.Context(), "news", job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{fmt.Sprintf("job %d aborted *", first), "lane news paused *"}, told(t, &n, b.jobs))
	require.Empty(t, told(t, &n, b.jobs))
}

// The lower of two ids is committed after the other was seen.
func TestNewEvents_FindWhatIsCommittedLate(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	var n job.NewEvents
	told(t, &n, b.jobs)
	tx, err := b.db.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // it is committed
	var late int64
	require.NoError(t, tx.QueryRow(t.Context(), `INSERT INTO belfry.jobs (type, category, title) VALUES ('inbox', 'operator_notice', 'Late') RETURNING id`).Scan(&late))
	soon := b.enqueue(t, job.Spec{})
	require.Equal(t, []string{fmt.Sprintf("job %d enqueued *", soon)}, told(t, &n, b.jobs))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{fmt.Sprintf("job %d enqueued *", late)}, told(t, &n, b.jobs))
	for range 3 {
		_, err = b.db.Pool.Exec(t.Context(), `INSERT INTO belfry.job_events (job_id, kind, actor) SELECT $1, 'throttled', 'r' FROM generate_series(1, 500)`, soon)
		require.NoError(t, err)
		require.Len(t, told(t, &n, b.jobs), 500, "however many there are")
	}
}
