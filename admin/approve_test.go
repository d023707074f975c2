package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/internal/errkind"
	"github.com/belfryhq/belfry/job"
)

// as has somebody else sit at the desk.
func (d *desk) as(actor string, role admin.Role) *desk {
	d.env.Actor, d.env.Role = actor, role
	return d
}

// What was looked at is approved, by somebody else, for as many as were counted.
func TestApprove_IsOfWhatWasShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(`INSERT INTO belfry.channels (external_id, platform) SELECT 'u' || n, 'ios' FROM generate_series(1, 100) n`)
	d.exec(`UPDATE belfry.categories SET approval_above = 10 WHERE name = 'operator_notice'`)
	d.as("kim", admin.Operator).enqueue("push")
	require.Contains(t, d.notes, "it waits for the approval of a second person: `belfry jobs approve 1 --dry-run`")
	d.enqueue("push", "max_recipients", "10")
	require.NoError(t, d.run("jobs list", "awaiting_approval", "on"))
	require.Contains(t, d.out, "WAITS for approval")
	require.Contains(t, d.out, "\n 1")
	require.NotContains(t, d.out, "\n 2", "it reaches no more than its category lets it")
	require.NoError(t, d.run("jobs show", "id", "1"))
	require.Contains(t, d.out, "by an operator who did not write it (kim did)")

	own := d.planned("jobs approve", "id", "1")
	require.Zero(t, own.Count)
	require.Equal(t, "kim enqueued or changed job 1; a second person approves it, who did neither", own.Outcomes[0].Detail)
	d.as("lee", admin.Operator)
	p := d.planned("jobs approve", "id", "1")
	require.EqualValues(t, 100, p.Count)
	require.Equal(t, admin.Outcome{Of: "job 1 (push)", Outcome: "approved", Count: 100, Detail: "goes out to 105 at most"}, p.Outcomes[0])
	for _, shown := range []string{"Hello", "everyone", "requested", "kim", "job 1: would be approved: 100 recipients"} {
		require.Contains(t, d.out, shown)
	}
	require.Contains(t, d.notes, "--plan "+p.Token+" does exactly this")
	seen := func(p admin.Plan, count int64) []string {
		return []string{"id", "1", "plan", admin.Retoken(p.Token, &count, nil)}
	}
	none := d.planned("jobs approve", "id", "2")

	before := d.everything()
	for name, c := range map[string]struct {
		by    string
		role  admin.Role
		given []string
		want  string
		kind  errkind.Kind
	}{
		"no plan":       {"lee", admin.Operator, []string{"id", "1"}, "takes --plan TOKEN, which --dry-run shows", errkind.Invalid},
		"another job":   {"lee", admin.Operator, []string{"id", "77", "plan", p.Token}, "plan: is the token of another request", errkind.Invalid},
		"another count": {"lee", admin.Operator, seen(p, 94), "100 recipients would be approved", errkind.Conflict},
		"too many":      {"lee", admin.Operator, seen(p, 106), "100 recipients would be approved", errkind.Conflict},
		"the author":    {"kim", admin.Operator, seen(p, 100), "kim enqueued or changed job 1", errkind.Conflict},
		"an author":     {"lee", admin.Author, seen(p, 100), "jobs approve needs the role operator; this is author", errkind.Denied},
		"needs none":    {"lee", admin.Operator, []string{"id", "2", "plan", none.Token}, "would be approved", errkind.Conflict},
	} {
		err := d.as(c.by, c.role).run("jobs approve", c.given...)
		require.ErrorContains(t, err, c.want, name)
		require.Equal(t, c.kind, errkind.Of(err), name)
	}
	require.Equal(t, before, d.everything())

	// It was changed since it was looked at; whoever did that is its author as well.
	require.NoError(t, d.as("max", admin.Operator).run("jobs set", "id", "1", "title", "Other"))
	var changed job.Job
	require.NoError(t, json.Unmarshal([]byte(d.json), &changed))
	err := d.as("lee", admin.Operator).run("jobs approve", seen(p, 100)...)
	require.Equal(t, errkind.Stale, errkind.Of(err))
	require.ErrorContains(t, err, "job 1 was changed since: changed title by max")
	q := d.as("lee", admin.Operator).planned("jobs approve", "id", "1")
	require.Equal(t, changed.Version, *q.Version)
	require.ErrorContains(t, d.as("max", admin.Operator).run("jobs approve", seen(q, 100)...), "max enqueued or changed job 1")
	own = d.planned("jobs approve", "id", "1")
	require.Zero(t, own.Count, "a plan says so too")
	require.Equal(t, "max enqueued or changed job 1; a second person approves it, who did neither", own.Outcomes[0].Detail)
	require.NoError(t, d.as("lee", admin.Operator).run("jobs approve", append(seen(q, 98), "reason", "read it")...))
	require.Contains(t, d.json, `"approved_by":"lee","approved_count":98,"approved_recipients":103`)
	require.Contains(t, d.json, `"receipt":{`)
	require.NoError(t, d.run("jobs show", "id", "1"))
	require.Contains(t, d.out, "for 98 recipients; no more than 103 rows are written")
	require.NoError(t, d.run("jobs events", "id", "1"))
	require.Contains(t, d.out, "read it; approved_by null -> \"lee\"")
	require.ErrorContains(t, d.run("jobs approve", seen(q, 100)...), "job 1 was changed since: approved by lee")
}

// The doctor says who is waited for, and a correction waits with what is left to send.
func TestApprove_IsAskedForByTheDoctor(t *testing.T) {
	t.Parallel()
	d := troop(t)
	require.NoError(t, d.run("doctor"))
	require.Contains(t, d.out, "no job waits for approval")
	dbtest.Past(t, d.db.Pool, `UPDATE belfry.jobs SET needs_approval = true, requested_by = 'kim' WHERE id IN (5, 1)`)
	_ = d.run("doctor")
	require.Contains(t, d.out, "2 jobs to be approved; job 1, which kim requested, waits for ")
	require.Contains(t, d.out, "`belfry jobs list --awaiting-approval` lists them, `belfry jobs approve 1 --dry-run` shows this one")
	require.NoError(t, d.run("jobs show", "id", "5"))
	require.Contains(t, d.out, "WAITS for approval")
	require.Contains(t, d.out, "held, the job waits for approval: `belfry jobs approve 5 --dry-run` shows what would go out")
	require.Contains(t, d.out, "8 held")
	require.NoError(t, d.run("abort", "id", "5"))
	p := d.planned("resume", "id", "5")
	require.Contains(t, p.Outcomes[0].Detail, "waits for approval")
}

// Whoever an approval binds does not lift the rule that demands it.
func TestApprove_RuleIsAnAdministrators(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, c := range [][]string{
		{"categories set", "category", "operator_notice", "approval_above", "100"}, {"categories set", "category", "operator_notice", "approval_above", "none"},
		{"categories add", "category", "mine", "approval_above", "100"},
	} {
		err := d.as("kim", admin.Operator).run(c[0], c[1:]...)
		require.Equal(t, errkind.Denied, errkind.Of(err), c)
		require.ErrorContains(t, err, c[0]+" approval_above needs the role admin; this is operator")
		require.NoError(t, d.as("eva", admin.Admin).run(c[0], c[1:]...))
	}
	require.Contains(t, d.out, "approval_above 100")
	require.NoError(t, d.as("kim", admin.Operator).run("categories set", "category", "mine", "max_recipients", "5"), "the others are an operator's")
	require.NoError(t, d.run("categories list"))
	require.Contains(t, d.out, "APPROVAL ABOVE")
}
