package schedule_test

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/job/schedule"
)

// The three most viewed posts of the day, at noon in Seoul, as a push message each.
func ExampleFirer_FireDue() {
	ctx := context.Background()
	db, drop := dbtest.Open()
	defer drop()
	must(db.Pool.Exec(ctx, `CREATE TABLE posts AS SELECT g AS id, 'Post ' || g AS title, g * g AS views FROM generate_series(1, 9) g`))
	store := schedule.NewStore(db.Pool)
	must(store.Put(ctx, schedule.Definition{
		Name: "popular", Cron: "0 12 * * *", TimeZone: "Asia/Seoul",
		Template: schedule.Template{Type: "push", Category: "popular_content", ExpiresAfter: "2h"},
		Query:    `SELECT title, jsonb_build_object('post', id) AS data FROM posts ORDER BY views DESC LIMIT 3`,
	}, schedule.FromDatabase, job.Act{Actor: "kim", Reason: "asked for"}))

	s := must(store.Get(ctx, "popular"))
	next := must(s.Next(time.Now(), 1))[0]
	clock := schedule.WithClock(func() time.Time { return next.Add(time.Second) }) // as if it were noon
	fired := must(schedule.NewFirer(db.Pool, clock).FireDue(ctx))
	fmt.Println(len(fired.Occurrences), "occurrence,", len(fired.Occurrences[0].Jobs), "jobs")
	fired = must(schedule.NewFirer(db.Pool, clock).FireDue(ctx)) // any other node
	fmt.Println(len(fired.Occurrences), "occurrences")
	for _, j := range must(job.NewStore(db.Pool).List(ctx, job.Filter{})) {
		fmt.Println(j.Title, string(j.Data))
	}
	// Output:
	// 1 occurrence, 3 jobs
	// 0 occurrences
	// Post 7 {"post": 7}
	// Post 8 {"post": 8}
	// Post 9 {"post": 9}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
