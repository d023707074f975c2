package jobs_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/dev/admintest"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/job"
)

// What was looked at is approved, by somebody else, for as many as were counted.
func TestApprove_IsOfWhatWasShown(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	d.Exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 100) n`)
	d.Exec(`UPDATE belfry.categories SET approval_above = 10 WHERE name = 'operator_notice'`)
	d.As("kim", operation.Operator).Enqueue("push")
	require.Contains(t, d.Notes, "it waits for the approval of a second person: `belfry jobs approve 1 --dry-run`")
	d.Enqueue("push", "max_recipients", "10")
	require.NoError(t, d.Run("jobs list", "awaiting_approval", "on"))
	require.Contains(t, d.Out, "WAITS for approval")
	require.Contains(t, d.Out, "\n 1")
	require.NotContains(t, d.Out, "\n 2", "it reaches no more than its category lets it")
	require.NoError(t, d.Run("jobs show", "id", "1"))
	require.Contains(t, d.Out, "by an operator other than the author (kim)")

	own := d.Planned("jobs approve", "id", "1")
	require.Zero(t, own.Count)
	require.Equal(t, "kim enqueued or changed job 1; another person must approve it", own.Outcomes[0].Detail)
	d.As("lee", operation.Operator)
	p := d.Planned("jobs approve", "id", "1")
	require.EqualValues(t, 100, p.Count)
	require.Equal(t, operation.Outcome{Of: "job 1 (push)", Outcome: "approved", Count: 100, Detail: "sent to at most 105"}, p.Outcomes[0])
	for _, shown := range []string{"Hello", "everyone", "requested", "kim", "job 1: would be approved: 100 recipients"} {
		require.Contains(t, d.Out, shown)
	}
	require.Contains(t, d.Notes, "--plan "+p.Token+" does exactly this")
	seen := func(p operation.Plan, count int64) []string {
		return []string{"id", "1", "plan", admintest.Retoken(t, p.Token, &count, nil)}
	}
	none := d.Planned("jobs approve", "id", "2")

	before := d.Everything()
	for name, c := range map[string]struct {
		by    string
		role  operation.Role
		given []string
		want  string
		kind  db.Kind
	}{
		"no plan":                     {"lee", operation.Operator, []string{"id", "1"}, "requires --plan TOKEN from --dry-run", db.KindInvalid},
		"another job":                 {"lee", operation.Operator, []string{"id", "77", "plan", p.Token}, "plan: is the token of another request", db.KindInvalid},
		"another count":               {"lee", operation.Operator, seen(p, 94), "100 recipients would be approved", db.KindConflict},
		"too many":                    {"lee", operation.Operator, seen(p, 106), "100 recipients would be approved", db.KindConflict},
		"the author":                  {"kim", operation.Operator, seen(p, 100), "kim enqueued or changed job 1", db.KindConflict},
		"an author":                   {"lee", operation.Author, seen(p, 100), "jobs approve needs the role operator; this is author", db.KindDenied},
		"needs none":                  {"lee", operation.Operator, []string{"id", "2", "plan", none.Token}, "job 2 needs no approval", db.KindConflict},
		"the author, by the own plan": {"kim", operation.Operator, []string{"id", "1", "plan", own.Token}, "another person must approve it", db.KindConflict},
	} {
		err := d.As(c.by, c.role).Run("jobs approve", c.given...)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, c.kind, db.KindOf(err), name)
	}
	require.Equal(t, before, d.Everything())

	// It was changed since it was looked at; whoever did that is its author as well.
	require.NoError(t, d.As("max", operation.Operator).Run("jobs set", "id", "1", "title", "Other"))
	var changed job.Job
	require.NoError(t, json.Unmarshal([]byte(d.JSON), &changed))
	err := d.As("lee", operation.Operator).Run("jobs approve", seen(p, 100)...)
	require.Equal(t, db.KindStale, db.KindOf(err))
	require.ErrorContains(t, err, "job 1 was changed since: changed title by max")
	q := d.As("lee", operation.Operator).Planned("jobs approve", "id", "1")
	require.Equal(t, changed.Version, *q.Version)
	require.ErrorContains(t, d.As("max", operation.Operator).Run("jobs approve", seen(q, 100)...), "max enqueued or changed job 1")
	own = d.Planned("jobs approve", "id", "1")
	require.Zero(t, own.Count, "a plan says so too")
	require.Equal(t, "max enqueued or changed job 1; another person must approve it", own.Outcomes[0].Detail)
	require.NoError(t, d.As("lee", operation.Operator).Run("jobs approve", append(seen(q, 98), "reason", "read it")...))
	require.Contains(t, d.JSON, `"approved_by":"lee","approved_count":98,"approved_recipients":103`)
	require.Contains(t, d.JSON, `"receipt":{`)
	require.NoError(t, d.Run("jobs show", "id", "1"))
	require.Contains(t, d.Out, "for 98 recipients; at most 103 rows are written")
	require.NoError(t, d.Run("jobs events", "id", "1"))
	require.Contains(t, d.Out, "read it; approved_by null -> \"lee\"")
	require.ErrorContains(t, d.Run("jobs approve", seen(q, 100)...), "job 1 was changed since: approved by lee")
}

// The doctor says who is waited for, and a correction waits with what is left to send.
func TestApprove_IsAskedForByTheDoctor(t *testing.T) {
	t.Parallel()
	d := admintest.Troop(t)
	dbtest.Past(t, d.DB.Pool, `UPDATE belfry.jobs SET needs_approval = true, requested_by = 'kim' WHERE id IN (5, 1)`)
	require.NoError(t, d.Run("jobs show", "id", "5"))
	require.Contains(t, d.Out, "WAITS for approval")
	require.Contains(t, d.Out, "held, the job waits for approval; show the recipients: `belfry jobs approve 5 --dry-run`")
	require.Contains(t, d.Out, "8 held")
	require.NoError(t, d.Run("abort", "id", "5"))
	p := d.Planned("resume", "id", "5")
	require.Contains(t, p.Outcomes[0].Detail, "waits for approval")
}

// Whoever an approval binds does not lift the rule that demands it.
func TestApprove_RuleIsAnAdministrators(t *testing.T) {
	t.Parallel()
	d := admintest.NewDesk(t)
	for _, c := range [][]string{
		{"categories set", "category", "operator_notice", "approval_above", "100"}, {"categories set", "category", "operator_notice", "approval_above", "none"},
		{"categories add", "category", "mine", "approval_above", "100"},
	} {
		err := d.As("kim", operation.Operator).Run(c[0], c[1:]...)
		require.Equal(t, db.KindDenied, db.KindOf(err), c)
		require.ErrorContains(t, err, c[0]+" approval_above needs the role admin; this is operator")
		require.NoError(t, d.As("eva", operation.Admin).Run(c[0], c[1:]...))
	}
	require.Contains(t, d.Out, "approval_above 100")
	require.NoError(t, d.As("kim", operation.Operator).Run("categories set", "category", "mine", "max_recipients", "5"), "the others are an operator's")
	err := d.Run("categories add", "category", "unapproved")
	require.Equal(t, db.KindDenied, db.KindOf(err), "its jobs would need no approval")
	require.ErrorContains(t, err, "categories add, while categories have approval_above, needs the role admin; this is operator")
	require.NoError(t, d.Run("categories list"))
	require.Contains(t, d.Out, "APPROVAL ABOVE")
	require.NotContains(t, d.Out, "unapproved")
	d.Exec(`UPDATE belfry.categories SET approval_above = NULL`)
	require.NoError(t, d.Run("categories add", "category", "digest"))
}
