package job_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/job"
)

// Whoever enqueues decides how large content and audiences are. An act on several jobs reads neither, so that it takes
// no longer. An act on one job returns all of it.
func TestAbort_OfSeveralJobsReadsNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprint("nobody-", i))
	}
	group := uuid.New()
	spec := job.Spec{
		Body: "body", Data: json.RawMessage(`{"a": 1}`), Variants: json.RawMessage(`{"ko": {"title": "x"}}`),
		Audience: channels.WithExternalIDs(ids...), GroupID: &group,
	}
	for range 3 {
		b.enqueue(t, spec)
	}
	one := b.enqueue(t, spec)
	list, err := b.jobs.Abort(t.Context(), job.One(one), job.Act{})
	require.NoError(t, err)
	require.Equal(t, "body", list[0].Body)
	require.Equal(t, ids, list[0].Audience.ExternalIDs)
	list, err = b.jobs.Abort(t.Context(), job.Selection{Group: &group}, job.Act{})
	require.NoError(t, err)
	require.Len(t, list, 4)
	for _, j := range list {
		require.Equal(t, job.Aborted, j.Status)
		require.Empty(t, j.Body)
		require.JSONEq(t, "{}", string(j.Data))
		require.JSONEq(t, "{}", string(j.Variants))
		require.Equal(t, ids[:10], j.Audience.ExternalIDs)
	}
}

// Runs of many jobs return summaries, and lists do if they are asked for them.
func TestRunDue_ReturnsNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	var ids []int64
	for range 12 {
		ids = append(ids, int64(len(ids)+1))
	}
	b.enqueue(t, job.Spec{Body: "body", Data: json.RawMessage(`{"a": 1}`), Variants: json.RawMessage(`{"ko": {"title": "x"}}`), Audience: channels.WithIDs(ids...)})
	list, err := b.jobs.List(t.Context(), job.Filter{Summary: true})
	require.NoError(t, err)
	require.Len(t, list, 1)
	whole, err := b.jobs.List(t.Context(), job.Filter{})
	require.NoError(t, err)
	require.Equal(t, "body", whole[0].Body)
	out := b.runDue(t, b.runner(t, "r"))
	require.Len(t, out.Jobs, 1)
	require.Equal(t, job.Processed, out.Jobs[0].Status)
	for _, j := range append(list, out.Jobs...) {
		require.Empty(t, j.Body)
		require.JSONEq(t, "{}", string(j.Data))
		require.JSONEq(t, "{}", string(j.Variants))
		require.Equal(t, ids[:10], j.Audience.IDs)
	}
}

// A change of the status, and a chunk, read no content.
func TestStatus_ChangesReadNoContent(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := one[int64](t, b, `INSERT INTO belfry.jobs (type, category, title, audience)
		SELECT 'inbox', 'operator_notice', 'x', jsonb_build_object('kind', 'channels', 'external_ids', jsonb_agg(md5(g::text) || md5((-g)::text))) FROM generate_series(1, 10000) g
		RETURNING id`)
	for _, sql := range []string{
		`SELECT belfry.abort($1)`, `SELECT belfry.resume($1)`,
		`UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`,
		`UPDATE belfry.jobs SET bound = '9', "cursor" = '9', chunks = 1 WHERE id = $1`, `UPDATE belfry.jobs SET status = 'PROCESSED' WHERE id = $1`,
	} {
		tx, err := b.db.Pool.Begin(t.Context())
		require.NoError(t, err)
		const read = `SELECT pg_stat_get_xact_tuples_returned(i.indexrelid) FROM pg_index i WHERE i.indrelid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'belfry.jobs'::regclass)`
		var before, after int64
		require.NoError(t, tx.QueryRow(t.Context(), read).Scan(&before))
		_, err = tx.Exec(t.Context(), sql, id)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(t.Context(), read).Scan(&after))
		require.NoError(t, tx.Commit(t.Context()))
		require.Zero(t, after-before, sql)
	}
	var read int64
	require.NoError(t, b.db.Pool.QueryRow(t.Context(), `SELECT length(audience::text) FROM belfry.jobs WHERE id = $1`, id).Scan(&read))
	require.Greater(t, read, int64(600_000))
}

// A list of channels has a size that one row, or a page of them, can have.
func TestEnqueue_RefusesAHugeList(t *testing.T) {
	t.Parallel()
	b := setup(t, 1)
	var ids []string
	for i := range 2_000 {
		ids = append(ids, fmt.Sprint(i, strings.Repeat("😀", 160)))
	}
	_, err := b.jobs.Enqueue(t.Context(), job.Spec{Type: "inbox", Category: "operator_notice", Title: "x", Audience: channels.WithExternalIDs(ids...)})
	require.ErrorContains(t, err, "belfry.jobs.audience.external_ids: has 1")
	require.ErrorContains(t, err, "bytes; allowed values: lists of up to 1048576 bytes")
}

// One job is returned without its content as well, if the act asks for a summary.
func TestResume_OfASelectionReturnsASummary(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{Body: "body"})
	_, err := b.jobs.Abort(t.Context(), job.One(id), job.Act{})
	require.NoError(t, err)
	list, err := b.jobs.Resume(t.Context(), job.Selection{IDs: []int64{id}, Summary: true}, job.Act{})
	require.NoError(t, err)
	require.Equal(t, job.Pending, list[0].Status)
	require.Empty(t, list[0].Body)
}
