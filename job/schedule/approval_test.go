package schedule_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/job"
)

// What a schedule fires waits for a second person where its template says so, or the row of its
// query, and where the category does. Whoever wrote the schedule is not that person.
func TestFire_AsksForApprovalWhereTheTemplateOrTheRowDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Template.NeedsApproval = true
	b.put(t, d, "05-01 08:00:00")
	awaits := func(at string) string {
		t.Helper()
		b.fire(t, at)
		return one[string](t, b, `SELECT string_agg(awaits_approval::text, ' ' ORDER BY id) FROM belfry.jobs WHERE schedule_at = $1`, b.now)
	}
	require.Equal(t, "true", awaits("05-01 09:00:00"))
	id := one[int64](t, b, `SELECT max(id) FROM belfry.jobs`)
	_, err := b.jobs.Approve(t.Context(), id, 10, operator)
	var own *job.OwnJobError
	require.ErrorAs(t, err, &own, "who wrote the schedule")
	j, err := b.jobs.Approve(t.Context(), id, 10, job.Act{Actor: "lee"})
	require.NoError(t, err)
	require.False(t, j.AwaitsApproval())

	b.exec(t, `UPDATE belfry.schedules SET template = template - 'type' || '{"types": ["inbox", "push"]}'`)
	require.Equal(t, "true true", awaits("05-02 09:00:00"), "each job of a group")
	b.exec(t, `UPDATE belfry.schedules SET template = template - 'types' || '{"type": "push"}', query = 'SELECT n AS needs_approval FROM (VALUES (1, NULL), (2, false), (3, true)) v (o, n) ORDER BY o'`)
	require.Equal(t, "true false true", awaits("05-03 09:00:00"))
	b.exec(t, `UPDATE belfry.schedules SET template = template || '{"needs_approval": false}'`)
	require.Equal(t, "false false true", awaits("05-04 09:00:00"))
	b.exec(t, `UPDATE belfry.categories SET approval_above = 0`)
	require.Equal(t, "true true true", awaits("05-05 09:00:00"), "nobody lifts the category's rule")

	for _, value := range []string{"null", `"true"`, "1", "[]"} {
		_, err := b.db.Pool.Exec(t.Context(), `UPDATE belfry.schedules SET template = template || jsonb_build_object('needs_approval', $1::text::jsonb)`, value)
		require.ErrorContains(t, err, "belfry.schedules.template.needs_approval: "+value+" is not allowed; allowed values: true, false")
	}
}

// Each schedule had a sum of its own: an operator could create any number of them and run each at once.
func TestRunNow_ManySchedulesOfACategoryShareOneSum(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `UPDATE belfry.categories SET approval_above = 100 WHERE name = 'popular_content'`)
	most := 100
	for i := range 4 {
		d := popular()
		d.Name, d.Template.MaxRecipients = fmt.Sprint("popular-", i), &most
		b.put(t, d, "05-01 08:00:00")
		_, err := b.store.RunNow(t.Context(), d.Name, operator)
		require.NoError(t, err)
	}
	free := one[int](t, b, `SELECT sum(max_recipients) FROM belfry.jobs WHERE NOT awaits_approval`)
	require.Contains(t, []int{100, 200}, free, "200: another clock hour began")
	require.Equal(t, 4, one[int](t, b, `SELECT count(*) FROM belfry.jobs`))
}
