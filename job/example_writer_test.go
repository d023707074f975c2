package job_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// coupons is a job type of one's own: it gives each recipient a coupon. That is all
// there is to write; who is next, how far, stop and resume are the engine's.
func coupons(who *channels.Store) job.Type {
	return job.NewType("coupons", "a coupon for each recipient", job.Recipients(who), job.WriterFunc[channels.Channel](
		func(ctx context.Context, tx pgx.Tx, j job.Job, recipients []channels.Channel) (int64, error) {
			return tx.CopyFrom(ctx, pgx.Identifier{"coupons"}, []string{"job_id", "user_id", "code"},
				pgx.CopyFromSlice(len(recipients), func(i int) ([]any, error) {
					user := recipients[i].ExternalID
					return []any{j.ID, user, fmt.Sprintf("%s-%d-%s", j.Title, j.ID, user)}, nil
				}))
		}))
}

func ExampleNewType() {
	ctx := context.Background()
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()
	must(db.Pool.Exec(ctx, `CREATE TABLE coupons (job_id bigint, user_id text, code text, PRIMARY KEY (job_id, user_id))`))
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.channels (external_id, platform) VALUES ('ann', 'ios'), ('ben', 'android'), ('cleo', 'ios')`))

	who := must(channels.New(channels.DefaultConfig()))
	runner := must(job.NewRunner(db.Pool, job.DefaultConfig(), []job.Type{coupons(who)}))
	must(runner.RunDue(ctx)) // registers the type; nothing is due yet

	must(db.Pool.Exec(ctx, `INSERT INTO belfry.jobs (type, category, title, audience)
		VALUES ('coupons', 'operator_notice', 'SPRING', belfry.audience_platforms('ios'))`))
	for _, j := range must(runner.RunDue(ctx)).Jobs {
		fmt.Println(j.Type, j.Status, j.RowsWritten)
	}
	rows := must(db.Pool.Query(ctx, `SELECT code FROM coupons ORDER BY user_id`))
	fmt.Println(must(pgx.CollectRows(rows, pgx.RowTo[string])))
	// Output:
	// coupons PROCESSED 2
	// [SPRING-1-ann SPRING-1-cleo]
}

// must keeps the examples short.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
