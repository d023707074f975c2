package schedule_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// Every problem is told at once, with its key.
func TestDefinition_ValidateTellsEverything(t *testing.T) {
	t.Parallel()
	require.NoError(t, popular().Validate("schedules[0]"))
	err := schedule.Definition{
		Name: "Popular", Cron: "0 9 * * 8", Every: "90", TimeZone: "Local", Query: "DROP TABLE posts", Missed: "never", After: "32d",
		Template: schedule.Template{
			Types: []string{"Inbox", "push", "push"}, Type: "inbox", Title: strings.Repeat("x", 201), Body: strings.Repeat("x", 10_001),
			Data: map[string]any{"f": func() {}}, Variants: map[string]any{"ko": map[string]any{"body": strings.Repeat("x", 131072)}},
			Route: []string{"push", "Fax", "push"}, Audience: map[string]any{"kind": "all"}, Lane: "Fast", Priority: 2000,
			DeliverAfter: "soon", ExpiresAfter: "0s",
		},
	}.Validate("schedules[3]")
	require.Error(t, err)
	var keys []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		key, text, _ := strings.Cut(strings.TrimPrefix(line, "schedules[3]."), ": ")
		keys = append(keys, key)
		require.Regexp(t, "llowed values|; set |the maximum is ", text, line)
	}
	require.Equal(t, []string{
		"name", "cron", "time_zone", "every", "missed", "missed_after", "query", "template.types", "template.types", "template.types",
		"template.title", "template.body", "template.data", "template.variants", "template.route", "template.route", "template.audience", "template.lane", "template.priority",
		"template.deliver_after", "template.expires_after",
	}, keys)
	require.ErrorContains(t, schedule.Definition{}.Validate(""), "template.category: is required without a query")
	require.ErrorContains(t, schedule.Definition{Name: "a", Cron: "0 9 * * 8", Template: popular().Template}.Validate("s"), "s.cron: ")
	for _, zone := range []string{"localtime", "Local", "posixrules", "posix/Asia/Seoul", "right/UTC", "Factory"} {
		require.ErrorContains(t, schedule.Definition{Name: "a", Cron: "@daily", TimeZone: zone, Template: popular().Template}.Validate("s"),
			"s.time_zone: "+strconv.Quote(zone)+" is not a time zone")
	}
	none := popular()
	none.Template.Route = []string{}
	require.ErrorContains(t, none.Validate("s"), "s.template.route: has 0 media; allowed values: 1 to 10 different media")
	require.ErrorContains(t, schedule.Definition{Name: "a", Every: "8785h", Template: popular().Template}.Validate("s"), "s.every: 8785h is not allowed; allowed values: 1s to 8784h")
}

// What passes Validate is stored and read back as it was, whoever checks more.
func TestPut_ComesBackAsItWasGiven(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		d := schedule.Definition{
			Name:     rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,40}`).Draw(r, "name"),
			TimeZone: rapid.SampledFrom([]string{"UTC", "UTC", "UTC", "UTC", "UTC", "UTC", "Asia/Seoul"}).Draw(r, "zone"),
			Missed:   rapid.SampledFrom([]schedule.Policy{schedule.Skip, schedule.Once, schedule.All}).Draw(r, "missed"),
			After:    rapid.SampledFrom([]string{"1s", "10m", "1h30m", "744h"}).Draw(r, "after"),

			QueryTimeout: rapid.SampledFrom([]string{"1s", "10s", "5m"}).Draw(r, "timeout"),
			Template: schedule.Template{
				Types:    rapid.SampledFrom([][]string{{"inbox"}, {"push"}, {"push", "inbox"}}).Draw(r, "types"),
				Category: "popular_content", Title: rapid.StringMatching(`[a-zA-Z<>&"'é]{1,30}`).Draw(r, "title"),
				Body:         "for AlimTalk, which has no title",
				Priority:     rapid.IntRange(-1000, 1000).Draw(r, "priority"),
				DeliverAfter: rapid.SampledFrom([]string{"", "0s", "9999h99999m999999s", "15m"}).Draw(r, "deliver after"),
				ExpiresAfter: rapid.SampledFrom([]string{"", "1s", "1h0m5s"}).Draw(r, "expires after"),
			},
		}
		d.Template.Route = rapid.SampledFrom([][]string{nil, nil, {"push"}, {"sms", "push", "alimtalk"}}).Draw(r, "route")
		d.Template.Variants = rapid.SampledFrom([]map[string]any{nil, nil, {"ko": map[string]any{"title": "{{attributes.name | default \"<&>\"}}"}, "en-GB": map[string]any{"body": ""}}}).Draw(r, "variants")
		if rapid.Bool().Draw(r, "cron") {
			d.Cron = rapid.SampledFrom([]string{"@daily", "0 9 * * MON-FRI", "*/5 1-3,7   1 jan *"}).Draw(r, "cron text")
		} else {
			d.Every = rapid.SampledFrom([]string{"1s", "90s", "1h30m", "8784h", "24h"}).Draw(r, "every")
		}
		if rapid.Bool().Draw(r, "query") {
			d.Query = "\n WITH a AS (SELECT 1) SELECT * FROM a;\n"
			d.QueryRole = rapid.SampledFrom([]string{"", "pg_monitor"}).Draw(r, "role")
		}
		require.NoError(r, d.Validate(""))
		_, err := b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
		require.NoError(r, err)
		change, err := b.store.Put(context.Background(), d, schedule.FromDatabase, operator)
		require.NoError(r, err)
		require.Equal(r, schedule.Unchanged, change)
		got, err := b.store.Get(context.Background(), d.Name)
		require.NoError(r, err)
		if d.Every == "90s" {
			d.Every = "1m30s"
		}
		require.Equal(r, d, got.Definition)
	})
	require.Positive(t, n)
}

// The file and the database do not take schedules from each other.
func TestPut_SourcesDoNotOverwriteEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	mine := popular()
	_, err := b.store.Put(ctx, mine, schedule.FromDatabase, operator)
	require.NoError(t, err)
	theirs := popular()
	theirs.Name, theirs.Every, theirs.Cron = "theirs", "1h", ""
	clash := popular()
	clash.Cron = "0 10 * * *"
	broken := popular()
	broken.Name, broken.Template.Category = "broken", "news"
	done, err := b.store.SyncConfig(ctx, []schedule.Definition{clash, broken, theirs}, operator)
	var source *schedule.SourceError
	require.ErrorAs(t, err, &source)
	require.Equal(t, schedule.FromDatabase, source.Is)
	require.ErrorContains(t, err, "'news' is not a category")
	require.Equal(t, schedule.Synced{Created: []string{"theirs"}}, done)
	require.Equal(t, "0 9 * * *", b.get(t, "popular").Cron)

	_, err = b.store.Put(ctx, theirs, schedule.FromDatabase, operator)
	require.ErrorContains(t, err, "schedule theirs is defined in the configuration file")
	_, err = b.store.Pause(ctx, "theirs", operator)
	require.NoError(t, err)
	done, err = b.store.SyncConfig(ctx, []schedule.Definition{theirs}, operator)
	require.NoError(t, err)
	require.Equal(t, schedule.Synced{Unchanged: []string{"theirs"}}, done)
	theirs.Every = "2h"
	done, err = b.store.SyncConfig(ctx, []schedule.Definition{theirs}, job.Act{Actor: "reload"})
	require.NoError(t, err)
	require.Equal(t, schedule.Synced{Changed: []string{"theirs"}}, done)
	require.NotNil(t, b.get(t, "theirs").PausedAt, "a change lifts no pause")
	done, err = b.store.SyncConfig(ctx, nil, operator)
	require.NoError(t, err)
	require.Equal(t, schedule.Synced{}, done)
	list, err := b.store.List(ctx)
	require.NoError(t, err)
	require.Len(t, list, 2, "a file without schedules removes none")

	require.NoError(t, b.store.Remove(ctx, "theirs", operator))
	require.ErrorIs(t, b.store.Remove(ctx, "theirs", operator), schedule.ErrNotFound)
	_, err = b.store.Pause(ctx, "theirs", operator)
	require.ErrorIs(t, err, schedule.ErrNotFound)
	require.Equal(t, []string{"created", "paused", "changed", "removed"}, b.kinds(t, "theirs"))
}

// Eight nodes start with the same file: one creates, nobody fails.
func TestSyncConfig_ByManyNodesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var list []schedule.Definition
	for _, name := range []string{"a", "b", "c"} {
		d := popular()
		d.Name = name
		list = append(list, d)
	}
	var all sync.WaitGroup
	results := make([]schedule.Synced, 8)
	errs := make([]error, 8)
	for node := range results {
		all.Go(func() { results[node], errs[node] = b.store.SyncConfig(context.Background(), list, operator) })
	}
	all.Wait()
	created := 0
	for node := range results {
		require.NoError(t, errs[node])
		require.Empty(t, results[node].Changed)
		created += len(results[node].Created)
	}
	require.Equal(t, 3, created)
	require.Equal(t, 3, one[int](t, b, `SELECT count(*)::int FROM belfry.events`))
}

// What `next` shows is what fires.
func TestSchedule_NextIsWhatFires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := popular()
	d.Cron, d.Every = "", "7h"
	b.put(t, d, "05-01 08:00:00")
	next, err := b.get(t, "popular").Next(at(t, "05-01 08:00:00"), 3)
	require.NoError(t, err)
	require.Equal(t, at(t, "05-01 22:00:00"), next[1])
	require.Equal(t, []string{"05-01 15:00:00"}, occurrences(b.fire(t, "05-01 15:00:00")))
	require.Equal(t, next[1], b.get(t, "popular").NextAt.In(time.UTC))
}
