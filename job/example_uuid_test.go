package job_test

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/belfryhq/belfry/cursor"
	"github.com/belfryhq/belfry/dev/dbtest"
	"github.com/belfryhq/belfry/job"
)

// account is a row of the service's own table, keyed by uuid.
type account struct {
	ID    uuid.UUID
	Email string
}

// A job type may walk any table or view, by any keyset, instead of the channels.
func ExampleTable() {
	ctx := context.Background()
	db, drop := dbtest.Open() // a database of this example's own
	defer drop()
	must(db.Pool.Exec(ctx, `CREATE TABLE accounts (id uuid PRIMARY KEY, email text NOT NULL)`))
	must(db.Pool.Exec(ctx, `CREATE TABLE letters (account_id uuid PRIMARY KEY, text text NOT NULL)`))
	must(db.Pool.Exec(ctx, `INSERT INTO accounts SELECT md5(g::text)::uuid, g || '@example.org' FROM generate_series(1, 1000) g`))

	accounts := job.Table[account]{
		Relation: pgx.Identifier{"accounts"},
		Key:      cursor.MustKeyset(cursor.Column{Name: "id", Type: cursor.UUID}),
		Columns:  []string{"email"},
		KeyOf:    func(a account) []any { return []any{a.ID} },
	}
	letters := job.WriterFunc[account](func(ctx context.Context, tx pgx.Tx, j job.Job, page []account) (int64, error) {
		return tx.CopyFrom(ctx, pgx.Identifier{"letters"}, []string{"account_id", "text"},
			pgx.CopyFromSlice(len(page), func(i int) ([]any, error) {
				return []any{page[i].ID, "To " + page[i].Email + ": " + j.Body}, nil
			}))
	})

	config := job.DefaultConfig()
	config.Chunk.InitialRows, config.Chunk.MaxRows = 100, 100
	runner := must(job.NewRunner(db.Pool, config, []job.Type{job.NewType[account]("letters", "a letter to each account", accounts, letters)}))
	must(runner.RunDue(ctx)) // registers the type; nothing is due yet
	must(db.Pool.Exec(ctx, `INSERT INTO belfry.jobs (type, category, title, body) VALUES ('letters', 'operator_notice', 'Moving', 'we move')`))
	for _, j := range must(runner.RunDue(ctx)).Jobs {
		fmt.Println(j.Status, j.RowsWritten, "rows in", j.Chunks, "chunks, up to", j.Cursor)
	}
	fmt.Println(must(pgx.CollectExactlyOneRow(must(db.Pool.Query(ctx, `SELECT text FROM letters ORDER BY account_id LIMIT 1`)), pgx.RowTo[string])))
	// Output:
	// PROCESSED 1000 rows in 10 chunks, up to ffeabd22-3de0-d4ea-cb9a-3e6e53e5448d
	// To 363@example.org: we move
}
