package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// request is one of many, with further fields.
func request(title, more string) string {
	return fmt.Sprintf(`{"type": ["inbox"], "category": "popular_content", "title": %q, "everyone": true%s}`, title, more)
}

func many(requests ...string) string { return `{"jobs": [` + strings.Join(requests, ",") + `]}` }

func (b *bundle) jobs(t *testing.T) int {
	t.Helper()
	return b.count(t, `SELECT count(*) FROM belfry.jobs`)
}

// idsOf are the ids of an answer, by request.
func idsOf(t *testing.T, a answer) (ids [][]int64) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, a.text)
	var out struct{ Jobs []struct{ IDs []int64 } }
	require.NoError(t, json.Unmarshal([]byte(a.text), &out))
	for _, one := range out.Jobs {
		ids = append(ids, one.IDs)
	}
	return ids
}

// Many requests are enqueued in their order, a group where there are several types, by authors
// and not by viewers.
func TestEnqueueMany_InTheirOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	group := strings.Replace(request("Two", `, "priority": -5`), `["inbox"]`, `["push", "inbox"]`, 1)
	a := b.call(t, "author", "POST", "/jobs/enqueue", many(request("One", ""), group, request("Three", `, "lane": "night"`)))
	ids := idsOf(t, a)
	require.Len(t, ids, 3)
	require.Equal(t, []int{1, 2, 1}, []int{len(ids[0]), len(ids[1]), len(ids[2])})
	require.Less(t, ids[0][0], ids[1][0])
	require.Less(t, ids[1][0], ids[2][0])
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM belfry.jobs WHERE id = $1 AND title = 'Three' AND lane = 'night' AND requested_by = 'the-author'`, ids[2][0]))
	require.Equal(t, 1, b.count(t, `SELECT count(DISTINCT group_id) FROM belfry.jobs WHERE id = ANY ($1) AND type IN ('push', 'inbox') AND priority = -5`, ids[1]))
	require.Contains(t, a.text, `"concerned":4`)
	require.Equal(t, http.StatusForbidden, b.call(t, "viewer", "POST", "/jobs/enqueue", many(request("One", ""))).status)
}

// One request that is wrong keeps all of them from being enqueued, and is named by its index and
// field, whether that is told here or by the database.
func TestEnqueueMany_AllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	long := strings.Repeat("x", 201)
	for _, c := range []struct{ body, location, message string }{
		{many(request("One", ""), request("Two", `, "priority": 5000`)), "body.jobs[1].priority", "-1000 to 1000"},
		{many(request("One", ""), request("Two", `, "titel": "x"`)), "body.jobs[1].titel", "is not known; allowed values: type, "},
		{many(request("One", ""), request("Two", `, "preview": true`)), "body.jobs[1].preview", "is not known"},
		{many(request("One", ""), request("Two", `, "requested_by": "root"`)), "body.jobs[1].requested_by", "is not known"},
		{many(request("One", ""), `{"title": "Two"}`), "body.jobs[1]", "an audience is required"},
		{many(request("One", ""), `17`), "body.jobs[1]", "is not a JSON object"},
		{many(request("One", ""), `{"type": ["inbox"], "type": ["push"]}`), "body.jobs[1]", "is repeated"},
		{many(request("One", ""), request(long, "")), "body.jobs[1].title", "1 to 200"},
		{many(request("One", ""), request("Two", ""), strings.Replace(request("Three", ""), "popular_content", "unpopular", 1)), "body.jobs[2].category", "unpopular"},
		{many(request("One", `, "idempotency_key": "k"`), request("Two", `, "idempotency_key": "k"`)), "body.jobs[1].idempotency_key", "is also the key of jobs[0]"},
		{many(), "body.jobs", "1 to 500"},
		{`{}`, "body.jobs", "is required"},
		{`{"jobs": {}}`, "body.jobs", "JSON arrays"},
		{`{"jobs": [` + strings.TrimSuffix(strings.Repeat(request("One", "")+",", 501), ",") + `]}`, "body.jobs", "has 501 requests; allowed values: 1 to 500"},
	} {
		a := b.call(t, "author", "POST", "/jobs/enqueue", c.body)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", c.location, a.text)
		p := a.problem(t)
		require.Equal(t, c.location, p.Errors[0].Location, a.text)
		require.Contains(t, p.Errors[0].Message, c.message)
		require.Zero(t, b.jobs(t), c.location)
	}
}

// Repeated, requests are enqueued once: by the header, whatever they say, and by their own keys.
func TestEnqueueMany_IsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	body := many(request("One", ""), request("Two", ""))
	first := idsOf(t, b.call(t, "author", "POST", "/jobs/enqueue", body, "Idempotency-Key", "k-1"))
	again := b.call(t, "author", "POST", "/jobs/enqueue", body, "Idempotency-Key", "k-1")
	require.Equal(t, first, idsOf(t, again))
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, 2, b.jobs(t))

	keyed := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = request("Of "+strconv.Itoa(i), fmt.Sprintf(`, "idempotency_key": "own-%d"`, i))
		}
		return many(list...)
	}
	first = idsOf(t, b.call(t, "author", "POST", "/jobs/enqueue", keyed(2)))
	a := b.call(t, "author", "POST", "/jobs/enqueue", keyed(3))
	second := idsOf(t, a)
	require.Equal(t, first, second[:2])
	require.Equal(t, 5, b.jobs(t))
	require.Equal(t, 2, strings.Count(a.text, `"before":true`))

	var done sync.WaitGroup
	answers := make([]answer, 4)
	for i := range answers {
		done.Go(func() { answers[i] = b.call(t, "author", "POST", "/jobs/enqueue", keyed(20)) })
	}
	done.Wait()
	for _, a := range answers {
		require.Equal(t, idsOf(t, answers[0]), idsOf(t, a))
	}
	require.Equal(t, 22, b.jobs(t), "at once, each key made one")
}

// A plan counts the new jobs and enqueues nothing; its token enqueues exactly these requests.
func TestEnqueueMany_PlansAndHoldsToThePlan(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.exec(t, `SELECT belfry.enqueue('inbox', 'popular_content', 'Before', idempotency_key => 'old')`)
	requests := []string{request("One", ""), strings.Replace(request("Two", ""), `"everyone": true`, `"platform": ["ios"]`, 1), request("Before", `, "idempotency_key": "old"`)}
	body := func(more string) string { return strings.TrimSuffix(many(requests...), "}") + more + "}" }
	a := b.call(t, "author", "POST", "/jobs/enqueue", body(`, "dry_run": true`))
	require.Equal(t, http.StatusOK, a.status, a.text)
	var out struct {
		Plan struct {
			Token string
			Count int64
		}
		Receipt any
	}
	require.NoError(t, json.Unmarshal([]byte(a.text), &out))
	require.EqualValues(t, 2, out.Plan.Count)
	require.Nil(t, out.Receipt)
	require.Equal(t, 1, b.jobs(t), "a plan enqueues nothing")
	plan := `, "plan": "` + out.Plan.Token + `"`
	a = b.call(t, "author", "POST", "/jobs/enqueue", strings.Replace(body(plan), `"One"`, `"Other"`, 1))
	require.Equal(t, "body.plan", a.problem(t).Errors[0].Location)
	require.Equal(t, 1, b.jobs(t))
	require.Len(t, idsOf(t, b.call(t, "author", "POST", "/jobs/enqueue", body(plan))), 3)
	require.Equal(t, 3, b.jobs(t))
}
