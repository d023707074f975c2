package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

// A job takes its category's route as it was when it was enqueued, unless it has its
// own, and has it permanently once it has started.
func TestEnqueue_TakesTheCategorysRoute(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	ctx := t.Context()
	b.exec(t, `UPDATE belfry.categories SET route = '{push,sms}' WHERE name = 'operator_notice'`)
	spec := job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "x", Body: "y"}
	id, err := b.jobs.Enqueue(ctx, spec)
	require.NoError(t, err)
	spec.Route, spec.Variants = []string{"alimtalk", "sms"}, json.RawMessage(`{"ko": {"title": "가"}}`)
	ids, err := b.jobs.EnqueueGroup(ctx, []string{outbox.TypePush, outbox.TypeInbox}, spec)
	require.NoError(t, err)
	b.exec(t, `UPDATE belfry.categories SET route = '{email}' WHERE name = 'operator_notice'`)

	j, err := b.jobs.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, []string{"push", "sms"}, j.Route)
	require.JSONEq(t, `{}`, string(j.Variants))
	for _, id := range ids {
		j, err := b.jobs.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, []string{"alimtalk", "sms"}, j.Route)
		require.JSONEq(t, `{"ko": {"title": "가"}}`, string(j.Variants))
	}

	j, err = b.jobs.Set(ctx, id, job.Changes{"route": []string{"webhook"}}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{"webhook"}, j.Route)
	j, err = b.jobs.Set(ctx, id, job.Changes{"route": nil}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{"email"}, j.Route, "none of its own: the category's of now")
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.jobs SET bound = '10' WHERE id = $1`, id)
	_, err = b.jobs.Abort(ctx, job.One(id), job.Act{})
	require.NoError(t, err)
	var invalid *job.InvalidError
	_, err = b.jobs.Set(ctx, id, job.Changes{"route": []string{"sms"}}, job.Act{})
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "route", invalid.Column)

	spec.Variants = json.RawMessage(`{`)
	_, err = b.jobs.Enqueue(ctx, spec)
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "variants", invalid.Column)
}

// Variants are content: corrected with the rest of it, recorded, and what was written
// before keeps what it said.
func TestResumeEdited_KeepsTheVariantsOfBefore(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	ctx := t.Context()
	id, err := b.jobs.Enqueue(ctx, job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "x", Variants: json.RawMessage(`{"ko": {"title": "가"}}`)})
	require.NoError(t, err)
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.jobs SET bound = '100', "cursor" = '50' WHERE id = $1`, id)
	_, err = b.jobs.Abort(ctx, job.One(id), job.Act{})
	require.NoError(t, err)
	j, err := b.jobs.ResumeEdited(ctx, job.One(id), job.Changes{"variants": map[string]any{"ko": map[string]string{"title": "나"}}}, job.Act{Actor: "ann", Reason: "typo"})
	require.NoError(t, err)
	require.JSONEq(t, `{"ko": {"title": "나"}}`, string(j[0].Variants))
	revisions, err := b.jobs.Revisions(ctx, id)
	require.NoError(t, err)
	require.Len(t, revisions, 1)
	require.JSONEq(t, `{"ko": {"title": "가"}}`, string(revisions[0].Variants))
	require.Equal(t, "50", revisions[0].Cursor)
	events, err := b.jobs.Events(ctx, id, 0, 0)
	require.NoError(t, err)
	var changed []job.Event
	for _, e := range events {
		if e.Kind == job.EventChanged {
			changed = append(changed, e)
		}
	}
	require.Len(t, changed, 1)
	require.Contains(t, string(changed[0].Detail), `"before": {"variants": {"ko": {"title": "가"}}}`)
}

// Nothing of a job that FAILED before its first row went out: its route may still be corrected.
func TestSet_ChangesTheRouteOfAFailedJobWithoutRows(t *testing.T) {
	t.Parallel()
	b := setup(t, 10)
	id := b.enqueue(t, job.Spec{Type: outbox.TypePush, Category: "operator_notice", Title: "x"})
	b.exec(t, `UPDATE belfry.jobs SET status = 'RUNNING', fence = 1, runner = 'r', heartbeat_at = now(), started_at = now() WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.jobs SET bound = '10' WHERE id = $1`, id)
	b.exec(t, `UPDATE belfry.jobs SET status = 'FAILED', last_error = 'x', finished_at = now() WHERE id = $1`, id)
	j, err := b.jobs.Set(t.Context(), id, job.Changes{"route": []string{"sms"}}, job.Act{Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, []string{"sms"}, j.Route)
	b.exec(t, `UPDATE belfry.jobs SET rows_written = 1, channels_read = 1, channels_matched = 1, chunks = 1 WHERE id = $1`, id)
	_, err = b.jobs.Set(t.Context(), id, job.Changes{"route": []string{"push"}}, job.Act{Actor: "ann"})
	require.ErrorContains(t, err, "has started; allowed changes: none")
}
